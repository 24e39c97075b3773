"""Slots behind a row are masked in every text of `spmm_ell`; where there are none the compiler sees it."""

import struct

import pytest

from services.evaluator.compiling.toolchain import Toolchain
from sparsesmith.families import FAMILIES
from sparsesmith.program.program import parse_program


def machine_code(text: str) -> dict[str, bytes]:
    """Of each kernel: the sections `.text.*` of a cubin (ELF, 64 bits)."""
    cubin = Toolchain.find().build(parse_program(text, "spmm", "float32").source, "sm_90").cubin
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, number, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + place * entry_size) for place in range(number)]
    names = headers[names_at][4]
    found = {}
    for header in headers:
        name = cubin[names + header[0] : cubin.index(b"\0", names + header[0])].decode()
        if name.startswith(".text."):
            found[name] = cubin[header[4] : header[4] + header[5]]
    return found


@pytest.mark.parametrize(("splits", "lanes", "vector"), [(2, 8, 4), (4, 8, 4), (4, 16, 2), (8, 4, 4)])
def test_a_mask_that_masks_nothing_costs_nothing(splits: int, lanes: int, vector: int) -> None:
    family = FAMILIES["spmm_ell"]
    defaults = {name: spec.default for name, spec in family.parameters.items()}
    width = 4 * splits
    parameters = defaults | {"splits": splits, "lanes": lanes, "vector": vector, "width": width}
    masked = family.render(parameters, "float32", 32)
    slot = f"part + u * {splits}"
    bare = masked.replace(f"min({slot}, {width - 1})", f"({slot})")
    bare = bare.replace(f"    if ({slot} >= {width}) value[u] = 0;\n", "")
    assert "= 0;" in masked and "min(part" not in bare and "value[u] = 0" not in bare
    assert machine_code(masked) == machine_code(bare) != {}
