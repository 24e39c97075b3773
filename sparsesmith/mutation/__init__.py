"""Changes to kernel programs that nobody has to invent: pure functions from a program to others that compute the same.

The families span a grid of programs; mutators step outside of it. What one cannot change it refuses: it gives nothing.
"""

from sparsesmith.mutation.catalogue import MUTATORS, Mutant, mutants, random_mutant
from sparsesmith.mutation.subject import Subject, subject_of
from sparsesmith.mutation.worth import WORTH

__all__ = ["MUTATORS", "WORTH", "Mutant", "Subject", "mutants", "random_mutant", "subject_of"]
