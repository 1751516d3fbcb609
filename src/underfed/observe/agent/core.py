"""The agent's state in this process, and the step boundary."""

import os
import sys
import time
from collections import deque
from threading import get_ident

from . import frames
from .clock import CLOCK, POST
from .writer import Writer

#: What a step row was closed by; the analysis uses the first kind that the run has.
BY_OPTIMIZER, BY_BACKWARD, BY_LOADER = range(3)

TRACED, NEW_EPOCH = 1, 2


class State:
    """Everything the agent knows in one process."""

    def __init__(self):
        self.on = False
        self.writer = None
        self.options = {}
        self.rows = deque(maxlen=200_000)
        self.last = None
        self.index = 0
        self.primary = None
        self.since_primary = set()
        self.kind = BY_LOADER
        self.loops = {}
        self.step_code = None
        self.step_line = 0
        self.loader = None
        self.train_loader = None
        self.flags = 0
        self.ours = False  # whether the training thread is in work of ours that belongs to no step
        self.worker = None
        self.fetch_rows = deque(maxlen=200_000)
        self.syncs = {}
        self.copies = {}
        self.unwatched = 0
        self.after_backward = None
        self.io_fd = None
        self.checkpointing = None
        self.anomaly_at = None
        self.on_boundary = []
        self.header_written = False
        self.owner = None
        self.ended = None
        self.beside = None


S = State()


def header():
    """Write the line that says which process this is; once, before its first other line."""
    if S.header_written or S.writer is None:
        return
    S.header_written = True
    torch = sys.modules.get("torch")
    S.writer.write(
        "process",
        pid=os.getpid(),
        ppid=os.getppid(),
        role="worker" if S.worker is not None else "main",
        worker=S.worker,
        clock=time.perf_counter_ns(),
        unix=time.time_ns(),
        cwd=_folder(),
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(getattr(torch, "__version__", "")) or None,
        cuda=str(getattr(getattr(torch, "version", None), "cuda", None) or "") or None,
        rank=_number("RANK"),
        local_rank=_number("LOCAL_RANK"),
        world=_number("WORLD_SIZE"),
        restart=_number("TORCHELASTIC_RESTART_COUNT"),
    )


def _folder():
    try:
        return os.getcwd()
    except OSError:
        return None


def _number(name):
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() and len(value) < 10 else None


def write(kind, **fields):
    """Write one line, after the header."""
    if over():
        S.on = False
        return
    header()
    if S.writer is not None:
        S.writer.write(kind, **fields)


def fault(where, error):
    """Record a fault of the agent's own; the text names the place, never a value of the user's."""
    try:
        write("fault", where=where, error=type(error).__name__)
    except Exception:
        pass


def boundary(kind, now):
    """Close the current step at `now` (perf_counter_ns)."""
    if not S.on:
        return
    if S.last is None:
        S.last = now
        CLOCK.cut(now)
        return
    ns, counts = CLOCK.cut(now)
    S.rows.append((S.index, kind, now, now - S.last, S.flags, ns, counts))
    S.index += 1
    S.last = now
    S.flags = 0
    for hook in S.on_boundary:
        try:
            hook(kind)
        except Exception as error:
            S.on_boundary = [h for h in S.on_boundary if h is not hook]
            fault("boundary", error)


def skip_until(now):
    """Leave the time up to `now` out of the next step: the agent's own work, such as starting a trace."""
    if S.last is not None:
        S.last = now
        CLOCK.cut(now)


def optimizer_stepped(optimizer, now, frame):
    """Decide whether this optimizer's step ends a training step.

    With several optimizers in one iteration (a GAN) only the first closes it; when another comes round twice without
    the first, the roles have changed and it takes over.
    """
    key = id(optimizer)
    if key != S.primary:
        if S.primary is not None and key not in S.since_primary:
            S.since_primary.add(key)
            return
        S.primary = key
        S.loops = {}
    S.since_primary.clear()
    S.kind = BY_OPTIMIZER
    if not S.loops and frame is not None:
        S.loops = frames.enclosing_loops(frame)
        found = frames.user_frame(frame) or frame
        S.step_code, S.step_line = found.f_code, found.f_lineno
    if S.loader is not None:
        S.train_loader = S.loader
    boundary(BY_OPTIMIZER, now)
    CLOCK.section = POST


def over():
    """Tell whether the watch that this process was forked in has ended meanwhile."""
    return S.ended is not None and S.ended[0] and S.owner != os.getpid()


def start(folder, options, ended=None):
    """Turn the agent on in this process.

    `ended` is a byte that forked children share, where a watch may end before the process: it is set then.
    """
    S.__init__()
    CLOCK.thread = get_ident()
    CLOCK.reset()
    S.writer = Writer(folder)
    S.owner, S.ended = os.getpid(), ended
    S.options = options
    S.on = True
