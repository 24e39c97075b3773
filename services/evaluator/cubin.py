"""What a compiled module declares, read from its ELF sections (needs no driver)."""

import struct

_HEADER = struct.Struct("<40xQ10xHHH")  # e_shoff, e_shentsize, e_shnum, e_shstrndx of an ELF64 header
_SECTION = struct.Struct("<I20xQQ")  # sh_name, sh_offset, sh_size
_STATE_SECTIONS = (".nv.global", ".nv.global.init")


def device_variable_bytes(cubin: bytes) -> int:
    """Bytes of `__device__` and `static` variables: memory in which a kernel could remember an earlier launch.

    `__constant__` tables are not counted: a kernel cannot write them. Raises ValueError for what is no 64-bit ELF file.
    """
    return sum(_section_sizes(cubin).get(name, 0) for name in _STATE_SECTIONS)


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
