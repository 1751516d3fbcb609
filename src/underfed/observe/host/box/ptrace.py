"""Whether stacks can be read from outside (py-spy): Yama's scope, the capability, and filters of system calls."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Literal

from underfed.observe.host.box.records import Ptrace
from underfed.observe.host.files import base, field, integer, number, text

_SYS_PTRACE = 19
_OWN_CHILDREN, _ADMIN_ONLY, _NOBODY = 1, 2, 3


def ptrace(root: Path = Path("/")) -> Ptrace:
    """Return whose memory this process may read."""
    prefix = base(root)
    status = text(f"{prefix}/proc/self/status")
    scope = number(f"{prefix}/proc/sys/kernel/yama/ptrace_scope")
    mask = _hex(field(status, "CapEff"))
    seccomp = integer(field(status, "Seccomp"))
    capability = None if mask is None else bool(mask >> _SYS_PTRACE & 1)
    blocked = _blocked() if prefix == "" else None
    return Ptrace(
        reach=_reach(scope, capability, blocked) if status is not None else None,
        scope=scope,
        capability=capability,
        seccomp=None if seccomp is None else seccomp != 0,
        blocked=blocked,
    )


def _reach(
    scope: int | None, capability: bool | None, blocked: bool | None
) -> Literal["any", "user", "children", "none"]:
    if blocked or scope == _NOBODY:
        return "none"
    if capability:
        return "any"
    if scope == _ADMIN_ONLY:
        return "none"
    # without Yama there is no scope file, and the kernel's own rule holds: the same user
    return "children" if scope == _OWN_CHILDREN else "user"


def _hex(word: str | None) -> int | None:
    try:
        return int(word, 16) if word else None
    except ValueError:
        return None


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _blocked() -> bool | None:
    """Return whether a filter refuses process_vm_readv: a process may always read itself, unless one does."""
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return None
    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    near, far = (_Vector(ctypes.addressof(buffer), 1) for buffer in (target, source))
    call.restype = ctypes.c_ssize_t
    got = call(
        os.getpid(), ctypes.byref(near), ctypes.c_ulong(1), ctypes.byref(far), ctypes.c_ulong(1), ctypes.c_ulong(0)
    )
    if got == 1:
        return False
    return True if ctypes.get_errno() in {errno.EPERM, errno.ENOSYS, errno.EACCES} else None
