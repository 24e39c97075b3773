"""The base of every message: closed (unknown fields are refused), frozen, and JSON both ways."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sparsesmith_proto.words import ElementType as ElementType


class Message(BaseModel):
    """A value that crosses a process boundary. Two equal messages have equal JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in lower-case hexadecimal."""

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
"""Name of a job, a candidate or a record: up to 128 letters, digits and `_.:-`."""

Architecture = Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,3}a?$")]
"""A GPU generation as NVRTC spells it: `sm_90`."""

Operation = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""`spmv` is y = A x. `spmm` is C = A B with dense row-major B of `num_dense_cols` columns. Services may know others."""

AxisName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Axes = Annotated[dict[AxisName, Annotated[int, Field(ge=1, lt=2**31)]], Field(max_length=8)]
"""Sizes that a request names, by the names that the operation gives them."""

Gpu = Annotated[str, StringConstraints(pattern=r"^[ -~]{1,128}$")]
"""A kind of GPU by the name that its driver gives it, `NVIDIA H200`; in a request also without the vendor, `H200`, or
the generation of the only kind that has it, `sm_90`."""

EncoderName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""How a policy is shown a matrix: `structural`, `profiled` and `sinusoidal` by soft tokens, `text` in words. Services
may know others."""

PolicyVersion = Annotated[int, Field(ge=0)]
"""Counts the published weights; 0 is the policy as shipped or configured."""

Microseconds = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0)]

MAX_PROGRAM_CHARACTERS = 64 * 1024
ProgramText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROGRAM_CHARACTERS)]
"""A kernel program: one .cu text with its `//@` directives."""
