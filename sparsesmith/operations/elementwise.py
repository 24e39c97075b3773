"""Programs of tasks that find each entry of y from the entry of x at its place."""

from sparsesmith.operations.texts import template_texts


def elementwise_programs(task: str, axes: tuple[str, ...], entry: str) -> dict[str, str]:
    """`entry`: what y holds where x holds `of`, as an expression."""
    places = {
        "task": task,
        "sizes": ", ".join(f"int {axis}" for axis in axes),
        "count": "*".join(axes),
        "wide_count": " * ".join(("(size_t)" if place == 0 else "") + axis for place, axis in enumerate(axes)),
        "entry": entry,
    }
    return template_texts(places, "vectors")
