"""Kernel families: expert strategies as program templates with every parameter explicit."""

from sparsesmith.domain.families.catalogue import FAMILIES
from sparsesmith.domain.families.family import Choice, Family, FamilyInstance
from sparsesmith.domain.families.proposal import propose

__all__ = ["FAMILIES", "Choice", "Family", "FamilyInstance", "propose"]
