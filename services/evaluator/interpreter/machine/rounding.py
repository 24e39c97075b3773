"""Directed rounding (toward zero, down, up) of floats, from the nearest result and the sign of its error."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from services.evaluator.interpreter.machine.lanes import F32, F64, I32, I64, LaneEmitter, Value

DIRECTIONS = ("rz", "rm", "rp")


def directed(lanes: LaneEmitter, direction: str, nearest: Value, residual: Value) -> Value:
    """Move `nearest` by one unit in the last place where the sign of `residual` (exact minus nearest) asks for it."""
    build = lanes.ir
    zero = lanes.like(nearest, 0.0)
    below = build.fcmp_ordered("<", residual, lanes.like(residual, 0.0))
    above = build.fcmp_ordered(">", residual, lanes.like(residual, 0.0))
    if direction == "rm":
        return build.select(below, _neighbour(lanes, nearest, up=False), nearest)
    if direction == "rp":
        return build.select(above, _neighbour(lanes, nearest, up=True), nearest)
    positive_too_large = build.and_(build.fcmp_ordered(">", nearest, zero), below)
    negative_too_small = build.and_(build.fcmp_ordered("<", nearest, zero), above)
    toward_zero = _step(lanes, nearest, -1)
    return build.select(build.or_(positive_too_large, negative_too_small), toward_zero, nearest)


def sum_residual(lanes: LaneEmitter, x: Value, y: Value, total: Value) -> Value:
    """The exact error x + y - total of a rounded sum (Knuth's TwoSum)."""
    build = lanes.ir
    y_part = build.fsub(total, x)
    x_part = build.fsub(total, y_part)
    return build.fadd(build.fsub(x, x_part), build.fsub(y, y_part))


def narrow_directed(lanes: LaneEmitter, direction: str, wide: Value, error: Value) -> Value:
    """Round wide + error (float64, |error| under half a unit of wide) to float32 in a direction."""
    build = lanes.ir
    nearest = build.fptrunc(wide, ir.VectorType(F32, wide.type.count))
    difference = build.fsub(wide, build.fpext(nearest, wide.type))
    exact = build.fcmp_ordered("==", difference, lanes.like(difference, 0.0))
    return directed(lanes, direction, nearest, build.select(exact, error, difference))


def _neighbour(lanes: LaneEmitter, value: Value, *, up: bool) -> Value:
    build = lanes.ir
    zero = lanes.like(value, 0.0)
    grows = build.fcmp_ordered(">" if up else "<", value, zero)
    moved = build.select(grows, _step(lanes, value, 1), _step(lanes, value, -1))
    smallest = 5e-324 if value.type.element == F64 else 2.0**-149
    from_zero = lanes.like(value, smallest if up else -smallest)
    return build.select(build.fcmp_ordered("==", value, zero), from_zero, moved)


def _step(lanes: LaneEmitter, value: Value, ulps: int) -> Value:
    integer = I64 if value.type.element == F64 else I32
    bits = lanes.bits(value, integer)
    return lanes.bits(lanes.ir.add(bits, lanes.constant(integer, ulps)), value.type.element)
