"""Hostile programs by the thousand: what `benchmarks.judging.attacker` tries."""
