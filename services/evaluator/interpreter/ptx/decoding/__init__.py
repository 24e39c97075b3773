"""From a parsed kernel to the integer arrays that the machine runs."""

from __future__ import annotations

from collections.abc import Mapping

from services.evaluator.interpreter.ptx.decoding import accesses, arithmetic, control, conversions, cooperation
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder, Handler
from services.evaluator.interpreter.ptx.decoding.kernel import DecodedKernel, SharedArray
from services.evaluator.interpreter.ptx.decoding.placement import named_symbols
from services.evaluator.interpreter.ptx.parsing import PtxText

__all__ = ["DecodedKernel", "SharedArray", "decode_kernel", "named_symbols"]

_HANDLERS: dict[str, Handler] = {
    "mov": arithmetic.decode_move,
    "cvta": arithmetic.decode_address_conversion,
    "isspacep": arithmetic.decode_space_test,
    "setp": arithmetic.decode_comparison,
    "set": arithmetic.decode_set,
    "add": arithmetic.decode_carrying,
    "addc": arithmetic.decode_carrying,
    "sub": arithmetic.decode_carrying,
    "subc": arithmetic.decode_carrying,
    "mad": arithmetic.decode_carrying,
    "madc": arithmetic.decode_carrying,
    "cvt": conversions.decode_conversion,
    "ld": accesses.decode_load,
    "ldu": accesses.decode_load,
    "st": accesses.decode_store,
    "atom": accesses.decode_atomic,
    "red": accesses.decode_atomic,
    "cp": accesses.decode_copy,
    "bra": control.decode_branch,
    "brx": control.decode_indexed_branch,
    "ret": control.decode_return,
    "exit": control.decode_return,
    "call": control.decode_call,
    "shfl": cooperation.decode_shuffle,
    "vote": cooperation.decode_vote,
    "match": cooperation.decode_match,
    "redux": cooperation.decode_reduction,
    "elect": cooperation.decode_election,
    "mma": cooperation.decode_multiplication,
    "bar": cooperation.decode_barrier,
    "barrier": cooperation.decode_barrier,
    "mbarrier": accesses.decode_phase_barrier,
    "membar": control.decode_fence,
    "fence": control.decode_fence,
    "trap": control.decode_trap,
    "brkpt": control.decode_trap,
    "activemask": arithmetic.decode_active_mask,
    "createpolicy": arithmetic.decode_policy,
    "nanosleep": control.decode_nothing,
    "prefetch": control.decode_nothing,
    "prefetchu": control.decode_nothing,
    "discard": control.decode_nothing,
    "applypriority": control.decode_nothing,
    "griddepcontrol": control.decode_grid_dependency,
    "setmaxnreg": control.decode_nothing,
    "pmevent": control.decode_nothing,
}


def decode_kernel(text: PtxText, name: str, variable_addresses: Mapping[str, int]) -> DecodedKernel:
    """Decode an entry function; `variable_addresses` places the module's global and constant variables.

    Raises UnsupportedPtx for instructions that the interpreter does not model.
    """
    decoder = Decoder(text, text.functions[name], variable_addresses, _HANDLERS, arithmetic.decode_operation)
    return decoder.decode()
