"""System calls that a process may not make, by a filter of our own in the kernel's classic BPF.

Refused calls fail with EPERM, so that a library that merely tries goes on. Threads may be made, processes only where
`may_run`. The filter covers all threads and whatever is started later, and nothing takes it away.

CUDA's driver does not initialise (CUDA_ERROR_OPERATING_SYSTEM) unless it may bind and listen on an abstract Unix socket
(`cuda-uvmfd-...`): with `may_listen` local sockets are made, and still neither connected nor accepted on.

What it does not protect against: defects of the calls that are left. It lists what is refused and not what is allowed:
a GPU's driver makes calls that its documentation does not name.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterator

from services.evaluator.confinement.calls import checked, prctl, syscall

CLONE_THREAD = 0x10000
CLONE_NEW = 0x7E020000
"""Flags that ask for namespaces."""
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_GET_ACTION_AVAIL = 2
SECCOMP_FILTER_FLAG_TSYNC = 1

AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPES = 1, 1, 5, 0xF

_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
_X32 = 0x40000000
INSTRUCTION_BYTES = 8

# Numbers by architecture: x86_64, then aarch64; -1: it has no such call.
_REFUSED: dict[str, tuple[int, int]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "connect": (42, 203),
    "accept4": (288, 242),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "personality": (135, 92),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
}
_LISTENING = ("socket", "bind", "listen")
_PROGRAMS: dict[str, tuple[int, int]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, -1),
    "vfork": (58, -1),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SECCOMP = (317, 277)
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def is_supported() -> bool:
    """Whether the kernel filters calls, and the numbers of this machine's are known."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    return syscall(_here(_SECCOMP), SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint(_KILL))) == 0


def refuse_calls(*, may_run: bool, may_listen: bool = False) -> None:
    """Installs the filter for all threads of this process. `may_run`: it may start programs; `may_listen`: see above.

    Raises OSError.
    """
    code = b"".join(_filter(may_run=may_run, may_listen=may_listen))
    program = _Program(len(code) // INSTRUCTION_BYTES, code)
    checked(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
    flags = SECCOMP_FILTER_FLAG_TSYNC
    checked(syscall(_here(_SECCOMP), SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(program)), "seccomp")


def _filter(*, may_run: bool, may_listen: bool) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE_AT)
    yield _instruction(_EQUAL, _ARCHITECTURES[platform.machine()], if_not=0, if_so=1)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER_AT)
    yield _instruction(_AT_LEAST, _X32, if_not=1)  # Another table of numbers, of x86_64 alone.
    yield _instruction(_RETURN, _ENOSYS)
    refused = {name: numbers for name, numbers in _REFUSED.items() if not (may_listen and name in _LISTENING)}
    for numbers in (*refused.values(), *(() if may_run else _PROGRAMS.values())):
        if _here(numbers) >= 0:
            yield from _refuse(_here(numbers), _EPERM)
    if may_listen:
        yield from _local_sockets_alone()
    yield from _refuse(_here(_CLONE3), _ENOSYS)  # Its flags lie in memory; the C library then takes `clone`.
    yield _instruction(_EQUAL, _here(_CLONE), if_not=5)
    yield _instruction(_LOAD, _FIRST_ARGUMENT_AT)
    yield _instruction(_ANY_OF, CLONE_NEW, if_so=2)
    yield _instruction(_ANY_OF, 0xFFFFFFFF if may_run else CLONE_THREAD, if_not=1)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _local_sockets_alone() -> Iterator[bytes]:
    """Those that reach nobody unless they are connected."""
    yield _instruction(_EQUAL, _here(_REFUSED["socket"]), if_not=8)
    yield _instruction(_LOAD, _FIRST_ARGUMENT_AT)
    yield _instruction(_EQUAL, AF_UNIX, if_not=5)
    yield _instruction(_LOAD, _SECOND_ARGUMENT_AT)
    yield _instruction(_AND, SOCK_TYPES)
    yield _instruction(_EQUAL, SOCK_STREAM, if_so=1)
    yield _instruction(_EQUAL, SOCK_SEQPACKET, if_not=1)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _EPERM)


def _refuse(number: int, answer: int) -> Iterator[bytes]:
    yield _instruction(_EQUAL, number, if_not=1)
    yield _instruction(_RETURN, answer)


def _instruction(code: int, value: int, *, if_so: int = 0, if_not: int = 0) -> bytes:
    """`struct sock_filter`; `if_so`, `if_not`: how many of the next ones are left out."""
    return struct.pack("=HBBI", code, if_so, if_not, value)


def _here(numbers: tuple[int, int]) -> int:
    """Of a call on this architecture."""
    return numbers[list(_ARCHITECTURES).index(platform.machine())]
