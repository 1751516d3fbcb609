"""What stands between us and the stacks of a process, and the exact way to remove it."""

from __future__ import annotations

import os

from underfed.observe.host.box.ptrace import ptrace
from underfed.observe.live import proc

_DOCKER = "in a container, start it with --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add)"


def denied(pid: int, reason: str | None) -> bool:
    """Return whether a right is what py-spy lacked; for a process that it may not even look up it finds no Python."""
    if reason is None or proc.group_leader(pid) is None:
        return False
    return reason == "permission" or proc.environment(pid) is None


def missing(pid: int) -> str:
    """Return one line: why the memory of a process cannot be read from here, and what gives the permission."""
    known, owner = ptrace(), proc.owner(pid)
    if known.blocked:
        return f"a seccomp filter refuses process_vm_readv here; {_DOCKER}"
    if known.scope == 3:
        return "kernel.yama.ptrace_scope is 3, which stays until a reboot: nobody can read stacks on this machine"
    if not known.capability and owner is not None and owner != os.geteuid():
        return f"the process belongs to user {owner}, you are {os.geteuid()}: run `sudo underfed attach {pid}`"
    if known.scope in {1, 2} and not known.capability:
        return (
            f"kernel.yama.ptrace_scope is {known.scope}: run `sudo underfed attach {pid}`,"
            f" or once `sudo sysctl kernel.yama.ptrace_scope=0`; {_DOCKER}"
        )
    return f"CAP_SYS_PTRACE is missing: run `sudo underfed attach {pid}`; {_DOCKER}"
