"""Files that a process may open, by Landlock: rules that it gives itself and can never take back.

https://docs.kernel.org/userspace-api/landlock.html. What the kernel does not know yet is not asked of it. Beside files:
TCP (from ABI 4 on), abstract Unix sockets and signals to processes outside (from ABI 6 on).

What it does not protect against: what is open already, and threads that were there before (the kernel's rules are the
calling thread's and its children's).
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from services.evaluator.confinement.calls import checked, prctl, syscall

PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule about a file that is no folder may name."""
_TCP = 0b11
_SCOPES = 0b11
READ = READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | _MAKE_AND_REMOVE | REFER | TRUNCATE
DEVICE = READ | WRITE_FILE | TRUNCATE | IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The kernel's ABI of Landlock; 0: it has none, or it is switched off."""
    return max(0, syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def allow_only(rules: Iterable[tuple[Path, int]]) -> None:
    """From now on this thread, and what it starts, opens nothing but what lies at or beneath these paths, each for its
    rights. Paths that do not exist are passed over. Raises OSError, also where the kernel has no Landlock."""
    abi = checked(syscall(_CREATE_RULESET, None, 0, _ASK_VERSION), "landlock")
    handled = _handled(abi)
    made = _Ruleset(handled, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = checked(syscall(_CREATE_RULESET, ctypes.byref(made), size, 0), "landlock_create_ruleset")
    try:
        for path, rights in rules:
            _add(ruleset, path, rights & handled)
        checked(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
        checked(syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _handled(abi: int) -> int:
    """Rights that this ABI knows: what has no rule is refused."""
    known = EXECUTE | WRITE_FILE | READ | _MAKE_AND_REMOVE
    for right, since in ((REFER, 2), (TRUNCATE, 3), (IOCTL_DEV, 5)):
        known |= right if abi >= since else 0
    return known


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, parent)
        checked(syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0), f"landlock_add_rule {path}")
    finally:
        os.close(parent)
