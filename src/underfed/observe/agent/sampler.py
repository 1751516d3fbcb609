"""One thread a process: where the training thread stands, and twice a second what to write.

The hooks time regions exactly; the samples say which line of the user's code the time went to, and split what lies
outside every region. A sample counts for the time since the one before it, so that a call that holds the GIL is not
underrated. The thread is started by the low-level interface (it shows in no list of the program's threads), is gone
before every fork, and is back after it.
"""

import _thread
import sys
import time
from time import perf_counter_ns

from . import frames, places
from .clock import CLOCK, D2H, DATA, LOOP, REGIONS, SYNC
from .core import S, fault, over, write

#: Seconds between two looks at the training thread, until there have been MANY of them, and from then on. A look can
#: cost a loop of many short operators half a millisecond: each gives the GIL away, and wakes whoever waits for it.
PERIOD, MANY, LATER_PERIOD = 0.02, 150, 0.1
WORKER_PERIOD = 0.05
FLUSH_NS = 500_000_000
#: A gap between two samples longer than this is not believed to be one place's time in full.
_MOST_NS = 2_000_000_000

_running = None
_stop = None
_done = None
_stacks = {}
#: Samples of the step that is still going. What no boundary ends (behind the loop, in the exit) is no step's time.
_pending = {}
_pending_step = 0
_looks = 0
_failed = set()

_FETCHER = frames._HERE + "loader.py"


def _take(elapsed):
    frame = sys._current_frames().get(CLOCK.thread)
    region = CLOCK.region
    if frame is None or S.ours:
        return
    if region == LOOP:
        if S.worker is not None:
            return
        section = REGIONS[CLOCK.section]
        what, spot, leaf = places.classify(frame)
    else:
        section, what = None, REGIONS[region]
        judge = places.judge(frame) if region in (SYNC, D2H) and S.worker is None else None
        if judge is not None:
            what = "eval"
        # Inside a fetch only the dataset's own frames count: behind them stands the loop that asked for the batch.
        user = judge or frames.user_frame(frame, _FETCHER if region == DATA else None)
        leaf = frames.place(frame)
        spot = frames.place(user) if user is not None else leaf
    table = _stacks
    if S.worker is None and S.index:
        _settle()
        table = _pending
    _add(table, (section, what, spot, leaf), min(elapsed, _MOST_NS), 1)


def _add(table, key, ns, count):
    known = table.get(key)
    if known is None:
        if len(table) > 2000:
            return
        known = table[key] = [0, 0]
    known[0] += ns
    known[1] += count


def _settle():
    """Count the samples of the steps that have ended since."""
    global _pending_step
    if S.index != _pending_step:
        _pending_step = S.index
        for key, (ns, count) in _pending.items():
            _add(_stacks, key, ns, count)
        _pending.clear()


def flush():
    """Write everything that has gathered since the last flush."""
    if S.rows:
        rows = []
        while S.rows:
            index, kind, end, wall, flags, ns, counts = S.rows.popleft()
            rows.append([index, kind, end, wall, flags, *ns, *counts])
        write("steps", rows=rows)
    if S.fetch_rows:
        rows = []
        while S.fetch_rows:
            rows.append(S.fetch_rows.popleft())
        write("fetches", worker=None, workers=0, rows=rows)
    _settle()
    if _stacks:
        taken = list(_stacks.items())
        _stacks.clear()
        write("stacks", rows=[[*key, ns, count] for key, (ns, count) in taken])
    for kind, table in (("syncs", S.syncs), ("copies", S.copies)):
        if table:
            taken = list(table.items())
            table.clear()
            write(kind, rows=[[*key, *value] for key, value in taken])


def _period():
    """Return the mean seconds to the next look."""
    if S.worker is not None:
        return WORKER_PERIOD
    return PERIOD if _looks < MANY else LATER_PERIOD


def _loop(stop, done):
    global _looks
    from .facts import once_a_while

    try:
        last = flushed = perf_counter_ns()
        seed = last & 0xFFFF
        while True:
            # A fixed period can fall into step with the loop and see the same place of it each time.
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            if stop.acquire(timeout=_period() * (0.5 + (seed >> 8 & 0xFFFF) / 65536)):
                break
            if over():
                S.on = False
                break
            now = perf_counter_ns()
            _looks += 1
            try:
                _take(now - last)
            except Exception as error:
                fault("sample", error)
            last = now
            if now - flushed > FLUSH_NS:
                flushed = now
                if S.worker is None:
                    whole("facts", once_a_while)
                flush()
                if S.beside is not None:  # `underfed.watch()` has no process of its own to look at the machine from
                    S.beside()
                last = perf_counter_ns()
    except Exception as error:
        fault("sampler", error)
    finally:
        done.release()


def whole(where, look):
    """Look at something; a look that fails is a fault of its own, said once, and does not end the sampler."""
    try:
        look()
    except Exception as error:
        if where not in _failed:
            _failed.add(where)
            fault(where, error)


def ensure():
    """Start the thread if it does not run."""
    global _running, _stop, _done
    if _running is not None or not S.on:
        return
    _running = True
    _stop, _done = _thread.allocate_lock(), _thread.allocate_lock()
    _stop.acquire()
    _done.acquire()
    _thread.start_new_thread(_loop, (_stop, _done))


def halt():
    """Stop the thread and wait until it has gone; returns whether it ran."""
    global _running
    if _running is None:
        return False
    _stop.release()
    _done.acquire(timeout=5)
    _running = None
    return True


def stop_at_limit(_kind):
    """After the number of steps that was asked for, write what there is and watch no further."""
    limit = S.options.get("steps", "")
    if limit.isdigit() and S.index >= int(limit):
        S.on = False
        halt()
        flush()
        write("end", steps=S.index)
        S.writer.broken, S.writer.say = True, False


def forget():
    """Start over."""
    global _looks
    _looks = 0
    for known in (_stacks, _pending, _failed):
        known.clear()
    places.forget()


def _wait_for_thread_exit():
    """Let the thread's last instructions in the kernel pass, so that a fork sees a process without it."""
    time.sleep(0.0005)


def before_fork():
    """Runs in the parent before a fork."""
    global _resume
    _resume = halt()
    if _resume:
        _wait_for_thread_exit()


def after_fork_in_parent():
    """Runs in the parent after a fork."""
    if _resume:
        ensure()


def after_fork_in_child():
    """Runs in the child: nothing of the parent's is written twice, and no thread is started until something happens."""
    global _running, _looks
    _running, _looks = None, 0
    _stacks.clear()
    _pending.clear()
    S.rows.clear()
    S.fetch_rows.clear()
    S.syncs.clear()
    S.copies.clear()
    S.header_written = False
    S.last = None
    S.io_fd = None
    S.beside = None
    S.index = 0
    S.on_boundary = []
    if S.writer is not None:
        S.writer.forget()
    CLOCK.thread = _thread.get_ident()
    CLOCK.reset()


_resume = False
