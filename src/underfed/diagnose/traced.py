"""Device time of a step from the window that the agent traced."""

from __future__ import annotations

from pathlib import Path

from underfed.diagnose.budget import DeviceTime
from underfed.diagnose.run import TracedWindow
from underfed.errors import UnderfedError

_MS = 1e-6


def read_window(path: Path, begin_unix: int, end_unix: int, steps: int) -> TracedWindow | None:
    """Read a traced window; None where it cannot be read or holds no device work.

    Times are unix ns, `steps` how many steps it covers. The device's work is what those steps launched, wherever on
    the time axis it ran, so a device that runs behind the host loses nothing.
    """
    from underfed.trace import trace_facts

    if steps < 1:
        return None
    try:
        facts = trace_facts(path, (begin_unix, end_unix))
    except (UnderfedError, OSError):
        return None
    device = facts.main
    if device is None or device.work.busy_ns <= 0:
        return None
    work = device.work
    idle = sum(device.idle_ns.values())
    return TracedWindow(
        device=DeviceTime(
            busy=work.busy_ns * _MS / steps,
            compute=work.compute_ns * _MS / steps,
            copy=work.copy_ns * _MS / steps,
            comms=work.comms_ns * _MS / steps,
            exposed_comms=work.exposed_comms_ns * _MS / steps,
            sync_share=device.idle_ns.get("sync", 0) / idle if idle else 0.0,
        ),
        facts=facts,
    )
