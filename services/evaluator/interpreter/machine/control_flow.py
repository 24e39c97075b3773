"""Where divergent paths meet again: immediate post-dominators of the instructions of a kernel."""

from __future__ import annotations

from collections.abc import Sequence


def meeting_points(successors: Sequence[Sequence[int]]) -> list[int]:
    """The immediate post-dominator of each node; the exit is the number of nodes, and -1 marks nodes that never exit.

    Iterative algorithm of Cooper, Harvey and Kennedy (2001) on the reversed graph.
    """
    exit_node = len(successors)
    predecessors: list[list[int]] = [[] for _ in range(exit_node + 1)]
    for node, following in enumerate(successors):
        for successor in following:
            predecessors[successor].append(node)
    order = _postorder(predecessors, exit_node)
    rank = [-1] * (exit_node + 1)
    for position, node in enumerate(order):
        rank[node] = position
    meeting = [-1] * (exit_node + 1)
    meeting[exit_node] = exit_node
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            chosen = -1
            for successor in successors[node]:
                if meeting[successor] >= 0:
                    chosen = successor if chosen < 0 else _common(meeting, rank, chosen, successor)
            if meeting[node] != chosen:
                meeting[node] = chosen
                changed = True
    return meeting[:exit_node]


def _postorder(neighbours: Sequence[Sequence[int]], root: int) -> list[int]:
    order: list[int] = []
    seen = {root}
    stack = [(root, iter(neighbours[root]))]
    while stack:
        node, remaining = stack[-1]
        for neighbour in remaining:
            if neighbour not in seen:
                seen.add(neighbour)
                stack.append((neighbour, iter(neighbours[neighbour])))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def _common(meeting: Sequence[int], rank: Sequence[int], first: int, second: int) -> int:
    while first != second:
        while rank[first] < rank[second]:
            first = meeting[first]
        while rank[second] < rank[first]:
            second = meeting[second]
    return first
