"""A short trace of the device's activity in the steady state, and nothing of the host but its launches.

The profiler is started and stopped at step boundaries of the training thread; the steps it covers are marked, and the
time it takes to start and stop is left out of every step. A program that uses torch's profiler itself is left alone.
"""

import functools
import os
import sys
import time
from collections import deque
from time import perf_counter_ns

from .core import TRACED, S, fault, skip_until, write
from .patches import put

#: Steps traced by default, and the longest time a window may take.
STEPS = 10
_MOST_NS = 4_000_000_000
#: The window opens after this many steps and this much time, when caches, autotuning and compilation have settled;
#: earlier where the steps show it: the last ones take as long as those before them.
_AFTER_STEPS = 30
_AFTER_NS = 3_000_000_000
_STEADY_NS = 1_000_000_000
_STEADY_STEPS = 10
_STEADY_WITHIN = 0.2
_AT_LEAST_STEPS = 8
#: Whole steps that make a trace worth keeping where the window has to end early.
_FEWEST_STEPS = 2


def _profile():
    """Make a profiler of the device alone; with `acc_events`, where it exists, it does not warn on stderr."""
    from torch.profiler import ProfilerActivity, profile

    try:
        return profile(activities=[ProfilerActivity.CUDA], acc_events=True)
    except TypeError:
        return profile(activities=[ProfilerActivity.CUDA])


def _start_quietly(profile):
    """Start a profiler without the line that newer Kinetos print on stderr when one starts and stops.

    Kineto reads its level when it is first used. The variable is gone again before the program can see it.
    """
    own = "KINETO_LOG_LEVEL" not in os.environ
    if own:
        os.environ["KINETO_LOG_LEVEL"] = "6"
    try:
        profile.start()
    finally:
        if own:
            os.environ.pop("KINETO_LOG_LEVEL", None)


class Window:
    """The one window of this process."""

    def __init__(self, torch, steps):
        self.torch = torch
        self.steps = steps
        self.profile = None
        self.begun = None
        self.first = None
        self.count = 0
        self.done = False
        self.pid = os.getpid()
        self.seen = deque(maxlen=2 * _STEADY_STEPS + 1)

    def on_boundary(self, _kind):
        """Open or close the window where it is time to, and be asked no more afterwards."""
        if self.done:
            S.on_boundary = [hook for hook in S.on_boundary if hook != self.on_boundary]
            return
        now = perf_counter_ns()
        if self.profile is None:
            if self.begun is None:
                self.begun = now
            self.seen.append(now)
            waited = now - self.begun
            if waited <= _STEADY_NS:
                return
            ready = S.index >= _AFTER_STEPS or (S.index >= _AT_LEAST_STEPS and waited > 4 * _AFTER_NS)
            settled = waited > _AFTER_NS or self._steady()
            if ready and settled and self.due():
                self._open()
            return
        S.flags |= TRACED
        self.count += 1
        if self.count >= self.steps or (self.count >= _FEWEST_STEPS and now - self.first > _MOST_NS):
            self._close()

    def _steady(self):
        """Whether the last ten steps took as long as the ten before, by their medians."""
        seen = list(self.seen)
        if len(seen) <= 2 * _STEADY_STEPS:
            return False
        gaps = [after - before for before, after in zip(seen, seen[1:])]  # noqa: B905, RUF007 - the agent runs on Python 3.9
        middle = _STEADY_STEPS // 2
        before, after = sorted(gaps[:_STEADY_STEPS])[middle], sorted(gaps[_STEADY_STEPS:])[middle]
        return abs(after - before) <= _STEADY_WITHIN * before

    def _open(self):
        if self.torch.autograd._profiler_enabled():
            self.done = True
            write("trace", state="skipped", reason="the program profiles itself")
            return
        S.ours = True
        try:
            self.profile = self.make()
            started = perf_counter_ns()
            self.begin(self.profile)
            self.first = perf_counter_ns()
            self.unix_first = time.time_ns()
            self.start_ns = self.first - started
            S.flags |= TRACED
            skip_until(self.first)
        except Exception as error:
            self.done, self.profile = True, None
            fault("window", error)
        finally:
            S.ours = False

    def _close(self):
        """End it; the steps so far are complete."""
        self.done = True
        last, unix_last = perf_counter_ns(), time.time_ns()
        S.flags &= ~TRACED
        S.ours = True
        try:
            profile, self.profile = self.profile, None
            self.keep(profile, last, unix_last)
        except Exception as error:
            fault("window", error)
        finally:
            S.ours = False
        skip_until(perf_counter_ns())

    def due(self):
        """Whether this run is of the kind that is traced."""
        return self.torch.cuda.is_initialized()

    def make(self):
        """Return what is started and stopped."""
        return _profile()

    def begin(self, profile):
        """Start it."""
        _start_quietly(profile)

    def keep(self, profile, last, unix_last):
        """Stop, save and announce the trace."""
        profile.stop()
        stopped = perf_counter_ns()
        name = f"trace-{os.getpid()}-{S.index}.json"
        profile.profiler.kineto_results.save(os.path.join(S.writer.folder, name))
        write(
            "trace",
            state="saved",
            file=name,
            steps=self.count,
            begin_unix=self.unix_first,
            end_unix=unix_last,
            begin=self.first,
            end=last,
            start_ns=self.start_ns,
            stop_ns=stopped - last,
            save_ns=perf_counter_ns() - stopped,
        )

    def abandon(self, reason="the program profiles itself"):
        """Make way for the program's own profiler, or end with the watch."""
        profile, self.profile, self.done = self.profile, None, True
        if profile is not None:
            S.ours = True
            try:
                profile.stop()
            except Exception as error:
                fault("window", error)
            finally:
                S.ours = False
            write("trace", state="skipped", reason=reason)


#: The window of this process, while there is one.
_armed = []


def install(torch):
    """Arm the window, unless it is switched off."""
    wanted = S.options.get("window", "")
    if wanted == "off":
        return
    window = Window(torch, int(wanted) if wanted.isdigit() and int(wanted) > 0 else STEPS)
    S.on_boundary.append(window.on_boundary)
    _armed.append(window)
    _make_way(window)


def close():
    """End a window that is still open: a process whose profiler is going when it exits aborts in Kineto's teardown.

    Two whole steps or more are kept. A forked child has the window of its parent, and leaves it alone.
    """
    while _armed:
        window = _armed.pop()
        if window.profile is None or window.pid != os.getpid():
            continue
        if window.count >= _FEWEST_STEPS:
            window._close()
        else:
            window.abandon("the run ended before the trace had two whole steps")


def _make_way(window):
    """Let any profiler that the program makes or enters end our window first: two at once are refused by torch."""
    profiler, legacy = (sys.modules.get(f"torch.autograd.{name}") for name in ("profiler", "profiler_legacy"))
    kinds = [getattr(profiler, name, None) for name in ("profile", "emit_nvtx", "emit_itt")]
    for kind in (*kinds, getattr(legacy, "profile", None)):
        for name in ("__init__", "__enter__"):
            if kind is not None and hasattr(kind, name):
                put(kind, name, _making_way(window, getattr(kind, name)))


def _making_way(window, original):
    @functools.wraps(original)
    def wrapped(self, *args, **kwargs):
        active = window.profile
        if active is not None and window.first is not None and getattr(active, "profiler", None) is not self:
            window.abandon()
        return original(self, *args, **kwargs)

    return wrapped
