"""Variables that PTX keeps between launches."""

from sparsesmith.program.restrictions.state import persistent_variables

PTX = """
.version 9.5
.target sm_90
.global .align 4 .u32 calls;
.visible .global .align 4 .b8 table[8] = {1, 0, 0, 0, 2};
.const .align 4 .b8 constants[8] = {3, 0, 0, 0, 4};
.global .align 1 .b8 _ZN4cuda3std3__45valueE = 1;
.extern .shared .align 16 .b8 tile[];
.visible .entry k(
	.param .u64 k_param_0
)
{
	ld.global.u32 	%r1, [calls];
	mov.u64 	%rd4, table;
	ld.const.u32 	%r3, [constants];
	mov.u64 	%rd5, tile;
}
"""


def test_variables_in_global_memory_that_a_kernel_uses_are_named() -> None:
    assert persistent_variables(PTX) == ["calls", "table"]


def test_constants_of_headers_that_no_kernel_uses_do_not_count() -> None:
    assert persistent_variables(PTX.replace("[calls]", "[%rd1]").replace("table;\n\tld", "0;\n\tld")) == []
