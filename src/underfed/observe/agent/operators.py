"""On a run without a GPU: one or two steady steps with every operator counted, so that what is slow inside forward and
backward has a name.

Autograd's own profiler does that without Kineto, which no forked child inherits whole. It is on for the training thread
alone; its steps are marked like those of a traced window, and its work is left out of every step.
"""

import re
import sys
from time import perf_counter_ns

from .core import TRACED, S, skip_until, write
from .window import Window, _armed, _make_way

_STEPS = 2
#: A step longer than this is counted alone.
_LONG_NS = 500_000_000
_MOST_ROWS = 60
#: Names of operators; anything else is a label of the program's, and its text stays there.
_NAME = re.compile(r"(?:aten|prims|autograd|torchvision|quantized|mkldnn|c10d|fbgemm)::[\w:. ]{1,80}|\w+Backward\d*")


class _Counting:
    """Starts and stops the profiler; `rows` are name, count and own time in ns."""

    def __init__(self, torch):
        self.autograd = torch.autograd
        self.config = torch.autograd.ProfilerConfig(
            torch.autograd.ProfilerState.CPU,
            False,
            False,
            False,
            False,
            False,
            torch._C._profiler._ExperimentalConfig(),
        )
        self.rows = []

    def start(self):
        self.autograd._enable_profiler_legacy(self.config)

    def stop(self):
        sums = {}
        for events in self.autograd._disable_profiler_legacy():
            running = []
            for event in events:
                kind = event.kind()
                if kind == "push":
                    running.append([event, 0.0])
                elif kind == "pop" and running:
                    began, inside = running.pop()
                    took = began.cpu_elapsed_us(event)
                    if running:
                        running[-1][1] += took
                    name = began.name()
                    known = sums.setdefault(name if _NAME.fullmatch(name) else "other", [0, 0.0])
                    # The kernels that one operator goes through under its own name are one call.
                    known[0] += not running or running[-1][0].name() != name
                    known[1] += max(0.0, took - inside)
        rows = sorted(sums.items(), key=lambda item: -item[1][1])
        rest = rows[_MOST_ROWS:]
        self.rows = [[name, count, int(1000 * own)] for name, (count, own) in rows[:_MOST_ROWS]]
        if rest:
            count, own = sum(row[1][0] for row in rest), sum(row[1][1] for row in rest)
            self.rows.append(["other", count, int(1000 * own)])


def _compiles():
    """Whether torch.compile is at work: its code asks whether a profiler is on, and must be told what it always is."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters.get("frames"))


class Operators(Window):
    """The one count of this process."""

    def due(self):
        """Whether this run is of the kind that is counted."""
        if self.torch.cuda.is_initialized() or _compiles():
            self.done = True
        return not self.done

    def make(self):
        """Return what is started and stopped."""
        if self.seen and len(self.seen) > 1 and (self.seen[-1] - self.seen[0]) > _LONG_NS * (len(self.seen) - 1):
            self.steps = 1
        return _Counting(self.torch)

    def begin(self, profile):
        """Start it."""
        profile.start()

    def keep(self, profile, last, _unix_last):
        """Stop, and write what was counted."""
        profile.stop()
        write("operators", steps=self.count, wall=last - self.first, rows=profile.rows)


def before_fork():
    """A child would go on counting what nobody asks it for: end it first."""
    for window in _armed:
        if isinstance(window, Operators) and window.profile is not None:
            window.abandon("the program forked")
            skip_until(perf_counter_ns())
            S.flags |= TRACED


def install(torch):
    """Arm the count, unless windows are switched off or this torch has no such profiler."""
    if S.options.get("window", "") == "off" or not hasattr(torch.autograd, "_enable_profiler_legacy"):
        return
    window = Operators(torch, _STEPS)
    S.on_boundary.append(window.on_boundary)
    _armed.append(window)
    _make_way(window)
