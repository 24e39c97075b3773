"""What a user takes home: the program, a C++ header and a Python loader that use it."""

from sparsesmith.artifacts.bundle import ArtifactKind, artifact

__all__ = ["ArtifactKind", "artifact"]
