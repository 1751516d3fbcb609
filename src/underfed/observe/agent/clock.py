"""Exclusive timing of the training thread: which region it is in, and what each region cost in this step.

Everything here runs inside the user's training process, on the hot path: standard library only, no allocation that is
not needed, and no lock. Only the training thread writes; the sampler thread reads.
"""

from threading import get_ident
from time import perf_counter_ns

# Regions, in the order of the columns of a step row.
DATA, START, EVAL, H2D, D2H, SYNC, GC, BACKWARD, OPTIMIZER, COMMS, CACHE, PRE, MID, POST = range(14)
REGIONS = (
    "data", "start", "eval", "h2d", "d2h", "sync", "gc",
    "backward", "optimizer", "comms", "cache", "pre", "mid", "post",
)  # fmt: skip
#: Not inside any region: the user's own loop. That time goes to one of three sections by what came last: PRE after a
#: fetch (the forward pass is here), MID after a backward pass, POST after an optimizer step.
LOOP = -1

FETCHES, SYNCS, COPIES, COLLECTIONS = range(4)
COUNTS = ("fetches", "syncs", "copies", "collections")


class Clock:
    """Region times of the current step. `inner` is the time already given to regions nested in the current one."""

    __slots__ = ("counts", "inner", "mark", "ns", "region", "section", "thread")

    def __init__(self):
        self.thread = get_ident()
        self.reset()

    def reset(self):
        """Start over, on whatever thread calls."""
        self.region = LOOP
        self.section = PRE
        self.inner = 0
        self.mark = perf_counter_ns()
        self.ns = [0] * len(REGIONS)
        self.counts = [0] * len(COUNTS)

    def enter(self, region):
        """Enter a region; returns the token that `leave` wants."""
        now = perf_counter_ns()
        outer = self.region
        if outer == LOOP:
            self.ns[self.section] += now - self.mark
        token = (outer, self.inner, now)
        self.region = region
        self.inner = 0
        return token

    def leave(self, region, token):
        """Leave a region; its nested regions keep their own time. Returns the whole time spent, in ns."""
        now = perf_counter_ns()
        spent = now - token[2]
        self.ns[region] += spent - self.inner
        self.region = token[0]
        self.inner = token[1] + spent
        if token[0] == LOOP:
            self.mark = now
        return spent

    def cut(self, now):
        """Return the region times and counts since the last cut, and start new ones at `now`.

        A region left open by an exception is closed here, so that it cannot swallow the steps that follow.
        """
        ns, counts = self.ns, self.counts
        if self.region == LOOP:
            ns[self.section] += now - self.mark
        self.mark = now
        self.region = LOOP
        self.inner = 0
        self.ns = [0] * len(REGIONS)
        self.counts = [0] * len(COUNTS)
        return ns, counts


CLOCK = Clock()
