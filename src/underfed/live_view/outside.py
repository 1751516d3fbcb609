"""The looks behind `attach --watch`: windows that follow one another, on a thread of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass

from underfed.diagnose.live import diagnose
from underfed.diagnose.live_records import LiveDiagnosis
from underfed.live_view.gauges import Sample, fixed_of
from underfed.observe.gpu.watch import Watch
from underfed.observe.live.permission import denied, missing
from underfed.observe.live.rolling import joined
from underfed.observe.live.target import Target
from underfed.observe.live.window import Glance, Seen, watch

#: A verdict rests on two windows, so that there is a new one in the middle of the time that it looks back.
_WINDOWS = 2
#: A window that was cut to less than this says nothing that the ones before it do not.
_SHORTEST_S = 0.5


@dataclass(frozen=True)
class Verdict:
    """What the last windows mean; `python` is whether any process of the run is one."""

    diagnosis: LiveDiagnosis
    unix: float
    python: bool
    name: str
    ended: str


class Outside:
    """Looks until `stop`, the target's end or a fault. `found` fills with what was seen; `ready` wakes a select."""

    def __init__(self, target: Target, seconds: float) -> None:
        self.found: queue.SimpleQueue[Glance | Verdict | BaseException] = queue.SimpleQueue()
        self.ready, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._target, self._seconds = target, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="underfed-looks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; the window that is open is closed and told before it."""
        self._stop.set()

    def drain(self) -> list[Glance | Verdict | BaseException]:
        """Return what was found since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 4096)
        found = []
        while not self.found.empty():  # this is the only reader
            found.append(self.found.get_nowait())
        return found

    def _put(self, found: Glance | Verdict | BaseException) -> None:
        self.found.put(found)
        with contextlib.suppress(BlockingIOError):  # a pipe that is full wakes as well
            os.write(self._wake, b".")

    def _run(self) -> None:
        try:
            devices = Watch()
            try:
                self._look(devices)
            finally:
                devices.close()
        except BaseException as error:
            self._put(error)

    def _look(self, devices: Watch) -> None:
        windows: deque[Seen] = deque(maxlen=_WINDOWS)
        length = max(self._seconds / _WINDOWS, min(self._seconds, 1.0))
        while not self._stop.is_set():
            seen = watch(self._target, length, devices_watch=devices, stop=self._stop, glance=self._put)
            if seen.seconds >= _SHORTEST_S or not windows:
                windows.append(seen)
            self._put(_judge(joined(windows), seen.ended))
            if seen.ended != "window":
                return


def _judge(seen: Seen, ended: str) -> Verdict:
    pid = seen.target.pid
    permission = missing(pid) if denied(pid, seen.sampling.reason) else None
    return Verdict(
        diagnosis=diagnose(seen, permission),
        unix=time.time(),
        python=any(life.python for life in seen.lives),
        name=seen.lives[0].first.comm if seen.lives else "?",
        ended=ended,
    )


def sample(glance: Glance) -> Sample:
    """Return the counters of a glance; where the run holds devices, of those alone."""
    throttle = glance.machine.throttle if glance.quota is not None else None
    devices = [each for each in glance.gpu if each.get("device") in glance.held]
    return Sample(
        at=glance.t,
        cpu_s={(each.pid, each.start_ms): (each.utime_ms + each.stime_ms) / 1000 for each in glance.processes},
        usable=glance.usable,
        periods=throttle.nr_periods if throttle is not None else None,
        throttled=throttle.nr_throttled if throttle is not None else None,
        devices=tuple(devices or glance.gpu),
        fixed=fixed_of(glance.gpu_box),
    )
