"""Kernel families: expert strategies as program templates with every parameter explicit."""

from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.families.family import Family, FamilyInstance
from sparsesmith.families.proposal import propose

__all__ = ["FAMILIES", "Family", "FamilyInstance", "propose"]
