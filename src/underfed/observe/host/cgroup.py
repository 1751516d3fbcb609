"""Control groups: the folders, own group first, whose limits hold for a process, in version 1 and 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.files import base, text
from underfed.observe.host.mounts import Mount, mounts


class Groups(NamedTuple):
    """Folders of the groups that hold for a process, its own first, up to the topmost that it can see.

    `v2` is the unified hierarchy; `cpu` and `memory` are those of version 1, empty where version 2 has the controller.
    """

    v2: tuple[str, ...]
    cpu: tuple[str, ...]
    memory: tuple[str, ...]
    membership: str


def _chain(path: str, mount: Mount, prefix: str) -> tuple[str, ...]:
    """Return the folders from a group up to its hierarchy's mount point; only those that exist."""
    top = prefix + mount.point.rstrip("/")
    # a container can see its own group as the mount's root while /proc still names the host's path, or the reverse
    outer = mount.root.rstrip("/")
    inside = path[len(outer) :] if (path + "/").startswith(outer + "/") else "/"
    parts = [part for part in inside.split("/") if part]
    if ".." in parts or not os.path.isdir("/".join([top, *parts])):
        parts = []
    found = ["/".join([top, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return tuple(folder for folder in found if os.path.isdir(folder))


def groups(root: Path = Path("/"), pid: int | str = "self") -> Groups | None:
    """Find the groups of a process; None where /proc does not name any or none is mounted."""
    prefix = base(root)
    membership = text(f"{prefix}/proc/{pid}/cgroup")
    if not membership:
        return None
    known = [mount for mount in mounts(root, pid) if mount.fs in {"cgroup", "cgroup2"}]
    v2: tuple[str, ...] = ()
    v1: dict[str, tuple[str, ...]] = {"cpu": (), "memory": ()}
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            v2 = max((_chain(path, mount, prefix) for mount in known if mount.fs == "cgroup2"), key=len, default=())
            continue
        for name in v1:
            if name in controllers.split(","):
                v1[name] = max(
                    (_chain(path, mount, prefix) for mount in known if _holds(mount, name)), key=len, default=()
                )
    if not v2 and not any(v1.values()):
        return None
    return Groups(v2, v1["cpu"], v1["memory"], membership)


def _holds(mount: Mount, controller: str) -> bool:
    """Return whether a version 1 mount is that of a controller."""
    return mount.fs == "cgroup" and controller in mount.options.split(",")
