"""Pressure stall information: the time in which tasks waited for CPU, I/O or memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.cgroup import Groups
from underfed.observe.host.files import base, integer, real, text

RESOURCES = ("cpu", "io", "memory")


class Pressure(NamedTuple):
    """One resource. `some`: at least one task waited, `full`: all did; in us since boot and in % of the last 10 s."""

    some_us: int | None
    some_avg10: float | None
    full_us: int | None
    full_avg10: float | None


def parse(content: str | None) -> Pressure | None:
    """Return what a pressure file says; None where it says nothing."""
    found: dict[str, tuple[int | None, float | None]] = {}
    for line in (content or "").splitlines():
        words = line.split()
        values = dict(word.partition("=")[::2] for word in words)
        found[words[0] if words else ""] = integer(values.get("total")), real(values.get("avg10"))
    some, full = found.get("some", (None, None)), found.get("full", (None, None))
    return Pressure(*some, *full) if some[0] is not None or full[0] is not None else None


def _read(files: Iterable[tuple[str, str]]) -> dict[str, Pressure] | None:
    found = {name: reading for name, path in files if (reading := parse(text(path))) is not None}
    return found or None


def system_pressure(root: Path = Path("/")) -> dict[str, Pressure] | None:
    """Return the machine's pressure by resource; None where the kernel does not keep it."""
    return _read((name, f"{base(root)}/proc/pressure/{name}") for name in RESOURCES)


def group_pressure(found: Groups | None) -> dict[str, Pressure] | None:
    """Return the pressure in a process's own group (version 2 only), its limits included."""
    if found is None or not found.v2:
        return None
    return _read((name, f"{found.v2[0]}/{name}.pressure") for name in RESOURCES)
