"""What the training thread is at, by the frames on its stack: which kind of work, at which line of the user's code."""

import sys

from . import frames
from .clock import CLOCK, POST
from .core import S

_torch_lines = {}
_files = {}
_judging = {}

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
#: Functions of the user's own that judge the model, by names and by what a body that trains nothing calls.
_JUDGES = ("eval", "valid", "estimate_loss")
_JUDGE_NAMES = ("val", "test")
_NO_GRADIENT = {"no_grad", "inference_mode", "eval"}
_DECORATED = "/torch/utils/_contextlib.py"
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


def _judges(frame):
    """Tell whether a frame of the user's judges the model beside the training: by its name, and no gradient in it."""
    code = frame.f_code
    known = _judging.get(code)
    if known is None:
        words = code.co_name.lower().strip("_").split("_")
        named = any(word in code.co_name.lower() for word in _JUDGES) or any(word in words for word in _JUDGE_NAMES)
        outer = frame.f_back
        decorated = outer is not None and outer.f_code.co_filename.endswith(_DECORATED)
        known = _judging[code] = named and (decorated or not _NO_GRADIENT.isdisjoint(code.co_names))
    return known and code is not S.step_code and code not in S.loops


def judge(frame):
    """Return the frame that judges the model, at or above this one, or None."""
    while S.loops and frame is not None and frame.f_code is not S.step_code:
        if frames.is_user(frame.f_code.co_filename) and _judges(frame):
            return frame
        frame = frame.f_back
    return None


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
    same, while another loader than the training one is read or inside a function that judges the model), optimizer, and
    what is known of the rest: checkpoint, logging, progress, plotting, compile, or stall.
    """
    leaf, user, known, forward, data = frame, None, None, False, False
    evaluates = S.train_loader is not None and S.loader != S.train_loader
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
            if not evaluates and S.loops and _judges(frame):
                evaluates, user = True, frame if known is None else user
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
    if forward or functional or (user is leaf and not _behind_step(frame) and _torch_line(leaf)):
        return ("eval" if evaluates else "forward"), spot, frames.place(leaf)
    if in_optim:
        return "optimizer", spot, frames.place(leaf)
    return ("eval" if evaluates else "stall"), spot, frames.place(leaf)


def _behind_step(step_frame):
    """Tell whether the loop is behind its optimizer step: by source order where the stepping frame is on the stack."""
    if step_frame is not None and step_frame.f_code is S.step_code:
        return (step_frame.f_lineno or 0) > (S.step_line or 0)  # between two lines Python may name none
    return CLOCK.section == POST


def forget():
    """Start over."""
    for known in (_torch_lines, _files, _judging):
        known.clear()
