"""What a compiled module declares, read from its ELF sections (needs no driver)."""

import struct

_HEADER = struct.Struct("<40xQ10xHHH")  # e_shoff, e_shentsize, e_shnum, e_shstrndx of an ELF64 header
_SECTION = struct.Struct("<I20xQQ")  # sh_name, sh_offset, sh_size
_UNINITIALISED = ".nv.global"


def device_variable_bytes(cubin: bytes) -> int:
    """Bytes of `__device__` and `static` variables without an initial value: a kernel could remember a launch in them.

    A second look at what the contract refuses in the source (`sparsesmith.domain.restrictions`). Tables with initial
    values are not counted, as the machine code does not tell constants from variables. Raises ValueError for what is no
    64-bit ELF file.
    """
    return _section_sizes(cubin).get(_UNINITIALISED, 0)


def _section_sizes(cubin: bytes) -> dict[str, int]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    table, entry_bytes, num_entries, names_entry = _HEADER.unpack_from(cubin)
    sections = [_SECTION.unpack_from(cubin, table + index * entry_bytes) for index in range(num_entries)]
    names_start = sections[names_entry][1]
    sizes: dict[str, int] = {}
    for name_offset, _, size in sections:
        start = names_start + name_offset
        sizes[cubin[start : cubin.index(b"\0", start)].decode()] = size
    return sizes
