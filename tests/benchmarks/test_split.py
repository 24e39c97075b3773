"""The development split: shares, siblings, and the file that is checked in."""

from collections import Counter, defaultdict

import pytest

from benchmarks.matrices.split import SPLIT_FILE, Entry, read_manifest, read_split, split, stem


def test_the_checked_in_split_is_what_the_rule_gives() -> None:
    entries = read_manifest(SPLIT_FILE)
    assert len(entries) == 491
    assert split(entries) == read_split()


def test_siblings_stand_on_one_side() -> None:
    sides: dict[str, set[str]] = defaultdict(set)
    for name, side in read_split().items():
        sides[stem(name)].add(side)
    assert [group for group, seen in sides.items() if len(seen) > 1] == []


def test_each_class_and_suite_is_on_both_sides_in_its_share() -> None:
    entries, sides = read_manifest(SPLIT_FILE), read_split()
    suites = Counter((entry.suite, sides[entry.name]) for entry in entries)
    assert suites["core", "validation"] / 76 == pytest.approx(26 / 76, abs=0.05)
    assert suites["full", "validation"] / 415 == pytest.approx(0.25, abs=0.05)
    for kind in {entry.kind for entry in entries}:
        assert {sides[entry.name] for entry in entries if entry.kind == kind} == {"train", "validation"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ISPD98_ibm06", "ISPD98_ibm06__2"),
        ("power_case8387pegase_Ybus_re", "power_case8387pegase_Ybus_im"),
        ("dlmc_rn50_mag_0.7_bn1_projgroup4", "dlmc_rn50_mag_0.95_bn3_group4_2_1"),
        ("gcmc_douban_ratings", "gcmc_flixster_W_users"),
        ("gnn_chameleon_directed_adj", "net_chameleon_edges"),
        ("bcsstk25_pat", "bcsstk08"),
    ],
)
def test_variants_of_one_matrix_are_siblings(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_a_large_group_never_goes_to_both_sides() -> None:
    entries = [Entry(f"mesh{size}", "full", "FEM", 1000 * size) for size in range(1, 30)]
    assert len(set(split(entries).values())) == 1
