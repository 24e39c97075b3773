"""What a user takes home: the program, a C++ header and a Python loader that use it."""

from sparsesmith.artifacts.bundle import Artifact, ArtifactKind, artifact, artifact_name, instant_artifact, kinds_of

__all__ = ["Artifact", "ArtifactKind", "artifact", "artifact_name", "instant_artifact", "kinds_of"]
