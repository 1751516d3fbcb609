"""One thread a process: where the training thread stands, fifty times a second, and twice a second what to write.

The hooks time regions exactly; the samples say which line of the user's code the time went to, and split what lies
outside every region. A sample counts for the time since the one before it, so that a call that holds the GIL is not
underrated. The thread is started by the low-level interface (it shows in no list of the program's threads), is gone
before every fork, and is back after it.
"""

import _thread
import sys
import time
from time import perf_counter_ns

from . import frames
from .clock import CLOCK, DATA, LOOP, POST, REGIONS
from .core import S, fault, over, write

PERIOD = 0.02
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
_torch_lines = {}
_files = {}

_FETCHER = frames._HERE + "loader.py"
_FORWARD = ("/torch/nn/modules/module.py", "/torch/_dynamo/eval_frame.py")
_FUNCTIONAL = (
    "/torch/nn/",
    "/torch/functional.py",
    "/torch/_tensor.py",
    "/torch/_ops.py",
    "/torch/amp/",
    "/torch/autocast",
)
#: Functions of the user's own that write checkpoints, by the names that people give them.
_SAVES = ("save", "checkpoint", "write_checkpoint", "store_checkpoint")
_CHECKPOINTING = "/torch/utils/checkpoint.py"
_KNOWN = (
    ("/torch/serialization.py", "checkpoint"),
    ("/torch/distributed/checkpoint/", "checkpoint"),
    ("/safetensors/", "checkpoint"),
    ("/logging/__init__.py", "logging"),
    ("/torch/utils/tensorboard/", "logging"),
    ("/wandb/", "logging"),
    ("/mlflow/", "logging"),
    ("/tqdm/", "progress"),
    ("/matplotlib/", "plotting"),
    ("/torch/_inductor/compile_fx.py", "compile"),
    ("/torch/_dynamo/convert_frame.py", "compile"),
)
_INPUT_NAME = ("get_", "next_", "load_", "fetch_", "read_", "make_", "sample_", "build_", "prepare_", "iter_")
_INPUT_THING = ("batch", "data", "sample", "example", "input")


def _names_input(name):
    name = name.lower().lstrip("_")
    return name.startswith(_INPUT_NAME) and any(thing in name for thing in _INPUT_THING)


def _torch_line(frame):
    """Tell whether the names on the frame's current line lead to torch: tensors, modules, functions of torch."""
    key = (frame.f_code, frame.f_lineno)
    known = _torch_lines.get(key)
    if known is None:
        known = False
        torch = sys.modules["torch"]
        line = None
        names = set()
        for instruction in frames.dis.get_instructions(frame.f_code):
            start = instruction.starts_line
            if start is not None and start is not False:
                line = getattr(instruction, "line_number", None) or start
            if line == frame.f_lineno and instruction.opname.startswith(
                ("LOAD_GLOBAL", "LOAD_FAST", "LOAD_NAME", "LOAD_DEREF")
            ):
                value = instruction.argval
                names.update(value if isinstance(value, tuple) else (value,))
        for name in names:
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            if (
                isinstance(value, (torch.Tensor, torch.nn.Module))
                or (getattr(value, "__name__", "") or "").startswith("torch")
                or (getattr(value, "__module__", "") or "").startswith("torch")
            ):
                known = True
                break
        _torch_lines[key] = known
    return known


def _about(name):
    """Return what a file's name says of its code: (user's, forward, checkpointing, functional, optimizer, known)."""
    about = _files.get(name)
    if about is None:
        if len(_files) > 10_000:
            _files.clear()
        about = _files[name] = (
            frames.is_user(name),
            name.endswith(_FORWARD),
            name.endswith(_CHECKPOINTING),
            any(part in name for part in _FUNCTIONAL),
            "/torch/optim/" in name,
            next((what for part, what in _KNOWN if part in name), None),
        )
    return about


def classify(frame):
    """Return (class, user place, leaf place) of the training thread's innermost frame outside every region.

    Classes: data (an iterator or input function of the user's), forward (model or tensor code of the step), eval (the
    same, while another loader than the training one is read), optimizer, and what is known of the rest: checkpoint,
    logging, progress, plotting, compile, or stall.
    """
    leaf, user, known, forward, data = frame, None, None, False, False
    below = None
    functional, in_optim = _about(frame.f_code.co_filename)[3:5]
    while frame is not None:
        code = frame.f_code
        users, runs_module, checkpoints, _, _, named = _about(code.co_filename)
        if users:
            if user is None:
                user = frame
            if known is None and code is not S.step_code and code.co_name.lower().lstrip("_").startswith(_SAVES):
                known = "checkpoint"
        if runs_module:
            forward = True
        elif checkpoints:
            if not S.checkpointing and frame.f_back is not None:
                S.checkpointing = frames.place(frames.user_frame(frame) or frame)
        elif known is None:
            known = named
        loops = S.loops.get(code)
        if loops is not None:
            if frame.f_lasti in loops or (
                below is not None
                and frames.is_user(below.f_code.co_filename)
                and not forward
                and (frames.is_generator(below) or _names_input(below.f_code.co_name))
            ):
                data = True
            if code is S.step_code:
                break
        below = frame
        frame = frame.f_back
    spot = frames.place(user if user is not None else leaf)
    if data:
        return "data", spot, frames.place(leaf)
    if known is not None:
        return known, spot, frames.place(leaf)
    evaluating = S.train_loader is not None and S.loader != S.train_loader
    if forward or functional or (user is leaf and not _behind_step(frame) and _torch_line(leaf)):
        return ("eval" if evaluating else "forward"), spot, frames.place(leaf)
    if in_optim:
        return "optimizer", spot, frames.place(leaf)
    return ("eval" if evaluating else "stall"), spot, frames.place(leaf)


def _behind_step(step_frame):
    """Tell whether the loop is behind its optimizer step: by source order where the stepping frame is on the stack."""
    if step_frame is not None and step_frame.f_code is S.step_code:
        return (step_frame.f_lineno or 0) > (S.step_line or 0)  # between two lines Python may name none
    return CLOCK.section == POST


def _take(elapsed):
    frame = sys._current_frames().get(CLOCK.thread)
    region = CLOCK.region
    if frame is None or S.ours:
        return
    if region == LOOP:
        if S.worker is not None:
            return
        section = REGIONS[CLOCK.section]
        what, spot, leaf = classify(frame)
    else:
        section, what = None, REGIONS[region]
        # Inside a fetch only the dataset's own frames count: behind them stands the loop that asked for the batch.
        user = frames.user_frame(frame, _FETCHER if region == DATA else None)
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


def _loop(stop, done):
    from .facts import once_a_while

    try:
        period = WORKER_PERIOD if S.worker is not None else PERIOD
        last = flushed = perf_counter_ns()
        seed = last & 0xFFFF
        while True:
            # A fixed period can fall into step with the loop and see the same place of it each time.
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            if stop.acquire(timeout=period * (0.5 + (seed >> 8 & 0xFFFF) / 65536)):
                break
            if over():
                S.on = False
                break
            now = perf_counter_ns()
            try:
                _take(now - last)
            except Exception as error:
                fault("sample", error)
            last = now
            if now - flushed > FLUSH_NS:
                flushed = now
                if S.worker is None:
                    once_a_while()
                flush()
                if S.beside is not None:  # `underfed.watch()` has no process of its own to look at the machine from
                    S.beside()
                last = perf_counter_ns()
    except Exception as error:
        fault("sampler", error)
    finally:
        done.release()


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
    for known in (_stacks, _pending, _torch_lines, _files):
        known.clear()


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
    global _running
    _running = None
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
