"""Tuning options as a user writes them."""

from pydantic import ValidationError

from sparsesmith.errors import InvalidOption
from sparsesmith_proto.api import TuningOptions


def tuning_options(**given: object) -> TuningOptions:
    """The fields of `TuningOptions` by name. Raises InvalidOption naming the first that is unknown or out of range."""
    try:
        return TuningOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "options"
        if first["type"] == "extra_forbidden":
            known = ", ".join(TuningOptions.model_fields)
            raise InvalidOption(f"{field} is not an option (known: {known})", field=field, limit=known) from error
        raise InvalidOption(f"{field}: {first['msg']}", field=field, value=first.get("input")) from error
