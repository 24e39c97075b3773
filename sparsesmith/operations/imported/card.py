"""What stands in the file `task.json` of an imported task: all that is known of it without running its reference."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sparsesmith_proto.message import Axes, AxisName, ElementType

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""As operations, sizes and operands are called."""

Origin = Literal["kernelbench", "flashinfer-bench"]

GivenType = Literal["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
"""Of an array as the suite has it. Kernels get the task's element type, or int32 for whole numbers and truth values."""

DrawKind = Literal["given", "scaled", "centred"]

MAX_OPERANDS = 64
MOST_ALLOWANCE = 100.0
"""Half precision is off by thousands of times the least bound."""


class Frozen(BaseModel):
    """Unknown fields are refused: a file of a later release says more than this one knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ImportedOperand(Frozen):
    """An array that kernels get."""

    name: Name
    role: Literal["input", "output"]
    axes: tuple[Name, ...]
    given: GivenType
    original: str = ""
    """Its name in the suite: of a model's parameter the dotted one."""
    is_parameter: bool = False
    """Of a seeded model."""
    is_number: bool = False
    """The suite hands it over as a number, not as an array of one entry."""
    shape: tuple[int, ...] | None = None
    """As the reference has it, where kernels get the same entries by other axes. None: by these."""

    @property
    def is_floating(self) -> bool:
        return "float" in self.given


class Card(Frozen):
    """An imported task."""

    version: Literal[1] = 1
    name: Name
    origin: Origin
    formula: str = Field(max_length=1000)
    element_type: ElementType
    axes: tuple[AxisName, ...] = ()
    """Sizes that a request names."""
    fixed: dict[Name, Annotated[int, Field(ge=1, lt=2**31)]] = {}
    """Sizes that the suite fixes: kernels take them behind the axes."""
    operands: tuple[ImportedOperand, ...] = Field(max_length=MAX_OPERANDS)
    """Inputs in the order in which the reference takes them, then outputs."""
    constants: dict[str, int] = {}
    """Whole numbers of a KernelBench module that were set anew, by name."""
    scalars: dict[str, bool | int | float] = {}
    """Inputs of a flashinfer-bench workload that are one number."""
    constraints: tuple[str, ...] = ()
    """What must hold of the axes: comparisons of their names."""
    kinds: tuple[DrawKind, ...] = ("given",)
    """Of inputs that its reference is defined for; the first is timed."""
    published: tuple[Axes, ...] = ()
    trial: Axes = {}
    flops: int = Field(default=0, ge=0)
    """Counted of the reference at `trial`."""
    allowance: float = Field(default=1.0, ge=1, le=MOST_ALLOWANCE)
    """Factor on the bound: what another of torch's own ways to the same result takes."""
    flags: tuple[str, ...] = ()
    """Why a right program might say little."""
    solves: str = ""
    """Which task of ours it is, whose names of sizes and operands it then has, and whose programs solve it."""
    programs: tuple[str, ...] = ()
    """Names of files in `programs`; the first is the naive one. None: it is graded once somebody writes one."""
    posted: bool = False
    """It came over HTTP: evaluators refuse it unless their settings say otherwise."""
