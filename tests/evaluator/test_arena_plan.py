"""Every byte of an arena is either a buffer that may be written, or watched."""

from hypothesis import given
from hypothesis import strategies as st

from services.evaluator.cuda.arena import (
    NUM_SHIFTS,
    SPREAD_BYTES,
    BufferPlan,
    arena_bytes,
    buffer_starts,
    guarded_segments,
    random_placement,
)
from services.evaluator.device import ALIGNMENT_BYTES, GUARD_BYTES

sizes = st.lists(st.tuples(st.integers(0, 5000), st.booleans()), min_size=1, max_size=8)


def make_plans(buffers: list[tuple[int, bool]]) -> list[BufferPlan]:
    """Writable buffers hold 4-byte elements."""
    return [
        BufferPlan(f"b{index}", num_bytes // 4 * 4 if writable else num_bytes, writable)
        for index, (num_bytes, writable) in enumerate(buffers)
    ]


@given(sizes, st.data())
def test_buffers_are_aligned_apart_and_inside(buffers: list[tuple[int, bool]], data: st.DataObject) -> None:
    plans = make_plans(buffers)
    shifts = [data.draw(st.integers(0, NUM_SHIFTS - 1)) for _ in plans]
    starts = buffer_starts(plans, shifts)
    free = 0
    for plan in plans:
        assert starts[plan.name] % ALIGNMENT_BYTES == 0
        assert starts[plan.name] - free >= GUARD_BYTES
        free = starts[plan.name] + plan.num_bytes
    assert arena_bytes(plans) - free >= GUARD_BYTES


@given(sizes, st.data())
def test_the_watched_segments_and_the_writable_buffers_cover_the_allocation_exactly(
    buffers: list[tuple[int, bool]], data: st.DataObject
) -> None:
    plans, placement = make_plans(buffers), random_placement()
    shifts = [placement.shift(plan.name) for plan in plans]
    starts = {name: placement.offset + start for name, start in buffer_starts(plans, shifts).items()}
    total = arena_bytes(plans) + SPREAD_BYTES
    spans = [(segment.address, segment.address + 4 * segment.num_words) for segment in
             guarded_segments(plans, starts, 0, total)]  # fmt: skip
    spans += [(starts[plan.name], starts[plan.name] + plan.num_bytes) for plan in plans if plan.writable]
    cursor = 0
    for start, end in sorted(spans):
        assert start == cursor
        cursor = end
    assert cursor == total


def test_the_segment_that_holds_a_stray_write_says_where_it_is() -> None:
    plans = [BufferPlan("values", 1001, writable=False), BufferPlan("y", 400, writable=True)]
    starts = buffer_starts(plans, [0, 0])
    labels = [(segment.label, segment.is_guard) for segment in guarded_segments(plans, starts, 0, arena_bytes(plans))]
    assert labels == [
        ("between the start and values", True),
        ("values", False),
        ("between values and y", True),
        ("behind y", True),
    ]


@given(st.text(min_size=1, max_size=8))
def test_a_placement_moves_equal_names_alike_and_is_not_told_beforehand(name: str) -> None:
    placement = random_placement()
    assert placement.shift(name) == placement.shift(name)
    assert 0 <= placement.shift(name) < NUM_SHIFTS
    assert placement.offset % ALIGNMENT_BYTES == 0
    assert placement.offset < SPREAD_BYTES
    assert len({random_placement().key for _ in range(4)}) == 4
