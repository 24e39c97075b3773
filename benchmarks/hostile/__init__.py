"""Hostile programs by the thousand: what `benchmarks.attacker` tries."""
