"""What a stack means: which part of a training step a thread is in, and at which line of the user's code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from underfed.observe.live.stacks import Frame, Stack

#: Kinds of a training thread's time, by what they are to the step.
DATA = frozenset({"data", "start", "fetch", "generator"})
WORK = frozenset({"forward", "backward", "optimizer", "tensor", "copy"})
#: On a GPU a thread that is seen in a copy waits for it: what only launches returns in microseconds.
COPY = frozenset({"copy"})
COMMS = frozenset({"comms", "rendezvous"})
STALL = frozenset(
    {"checkpoint", "logging", "progress", "plotting", "compile", "sleep", "lock", "wait", "sync", "own", "import"}
)

_LOADER = "/torch/utils/data/dataloader.py"
_WORKER = "/torch/utils/data/_utils/worker.py"
_FETCH = "/torch/utils/data/_utils/fetch.py"
_BY_FILE = (
    ("<frozen importlib", "import"),
    ("/torch/distributed/rendezvous.py", "rendezvous"),
    ("/torch/distributed/checkpoint/", "checkpoint"),
    ("/torch/serialization.py", "checkpoint"),
    ("/safetensors/", "checkpoint"),
    ("/torch/_inductor/compile_fx.py", "compile"),
    ("/torch/_dynamo/convert_frame.py", "compile"),
    ("/torch/distributed/distributed_c10d.py", "comms"),
    ("/torch/distributed/_functional_collectives.py", "comms"),
    ("/horovod/", "comms"),
    ("/logging/__init__.py", "logging"),
    ("/torch/utils/tensorboard/", "logging"),
    ("/wandb/", "logging"),
    ("/mlflow/", "logging"),
    ("/tqdm/", "progress"),
    ("/matplotlib/", "plotting"),
    ("/torch/autograd/__init__.py", "backward"),
    ("/torch/autograd/graph.py", "backward"),
    ("/torch/optim/", "optimizer"),
    ("/torch/nn/", "forward"),
    ("/torch/functional.py", "forward"),
    ("/torch/_dynamo/eval_frame.py", "forward"),
    ("/torch/_ops.py", "forward"),
    ("/torch/cuda/__init__.py", "sync"),
)
#: Library calls that wait, by file and function; they count only where nothing further out says more.
_WAITING = {
    ("threading.py", "wait"): "lock",
    ("threading.py", "acquire"): "lock",
    ("threading.py", "join"): "lock",
    ("threading.py", "_wait_for_tstate_lock"): "lock",
    ("threading.py", "__enter__"): "lock",
    ("queue.py", "get"): "lock",
    ("queue.py", "put"): "lock",
    ("queues.py", "get"): "wait",
    ("connection.py", "_recv"): "wait",
    ("connection.py", "_poll"): "wait",
    ("connection.py", "wait"): "wait",
    ("selectors.py", "select"): "wait",
    ("subprocess.py", "_try_wait"): "wait",
    ("popen_fork.py", "poll"): "wait",
    ("socket.py", "readinto"): "wait",
    ("ssl.py", "read"): "wait",
}
#: What a line of the user's own says where the call on it is native, so that no frame names it. The first one counts.
_BY_TEXT = (
    (re.compile(r"\bsleep\("), "sleep"),
    (re.compile(r"\.backward\("), "backward"),
    (re.compile(r"\b(?:all_reduce|all_gather|broadcast|barrier|reduce_scatter|all_to_all)\w*\("), "comms"),
    (re.compile(r"\.(?:acquire|wait)\(|\bwith\b.*lock", re.IGNORECASE), "lock"),
    (re.compile(r"\.(?:item|tolist|cpu|numpy)\(|\bsynchronize\("), "sync"),
    (re.compile(r"\.(?:to|cuda|copy_)\("), "copy"),
    (re.compile(r"\btorch\.|\bF\.|\w\s*@\s*\w|\.(?:matmul|mm|bmm|einsum)\("), "tensor"),
    (re.compile(r"\bopt\w*\.step\("), "optimizer"),
)
_INPUT_NAME = re.compile(
    r"^_*(?:get|next|load|fetch|read|make|sample|build|prepare|iter)_?\w*(?:batch|data|sample|example|input)", re.I
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_SAVE_NAME = re.compile(r"^_*(?:save|write|store)\w*|^_*\w*checkpoint$", re.I)


class Spot(NamedTuple):
    """A kind of time, the user's line (the innermost frame's where no user code is on the stack), and that frame."""

    kind: str
    where: str
    text: str
    leaf: str


def is_worker(stack: Stack) -> bool:
    """Return whether a stack is that of a DataLoader worker."""
    return any(frame.function == "_worker_loop" and frame.file.endswith(_WORKER) for frame in stack)


def own_part(stack: Stack) -> Stack:
    """Cut a forked worker's stack where the loader's loop begins: what is outside is its parent's."""
    for at, frame in enumerate(stack):
        if frame.function == "_worker_loop":
            return stack[: at + 1]
    return stack


def inside_fetch(stack: Stack) -> Stack:
    """Return the part of a worker's stack that makes a sample, empty where it makes none."""
    own = own_part(stack)
    return own[: next((at for at, frame in enumerate(own) if frame.file.endswith(_FETCH)), 0)]


def _user(stack: Stack) -> Frame | None:
    return next((frame for frame in stack if frame.user), None)


def _spot(kind: str, frame: Frame | None, leaf: Frame, sources: Mapping[tuple[str, int], str]) -> Spot:
    at = frame or leaf
    return Spot(kind, at.place, sources.get((at.file, at.line), ""), leaf.place)


def worker_spot(stack: Stack, sources: Mapping[tuple[str, int], str]) -> Spot:
    """Say what a loader worker does: `idle` (waits for its next index), `fetch`, `send` or `start`."""
    own = own_part(stack)
    leaf = own[0]
    fetch = next((at for at, frame in enumerate(own) if frame.file.endswith(_FETCH)), None)
    if fetch is not None:
        inside = own[:fetch]
        user = _user(inside)
        collate = any("/collate.py" in frame.file or "collate" in frame.function for frame in inside)
        return _spot("collate" if collate and user is None else "fetch", user, leaf, sources)
    if len(own) == 1 or own[-2].function == "get":
        return _spot("idle", None, leaf, sources)
    return _spot("send" if own[-2].function == "put" else "start", _user(own), leaf, sources)


def training_spot(stack: Stack, sources: Mapping[tuple[str, int], str]) -> Spot:
    """Say which part of a step the training thread is in."""
    leaf, user = stack[0], _user(stack)
    known, waiting = None, None
    named: set[str | None] = set()  # a name alone says less than a line that takes a lock
    for at, frame in enumerate(stack):
        function = frame.function
        if frame.file.endswith(_FETCH):
            return _spot("fetch", _user(stack[:at]), leaf, sources)
        if frame.file.endswith(_LOADER):
            return _loader_spot(stack[at:], user, leaf, sources)
        if known is None:
            known = next((kind for part, kind in _BY_FILE if part in frame.file), None)
            waiting = waiting or _WAITING.get((frame.file.rpartition("/")[2], function))
            if known is None and frame.user:
                known = _by_name(function)
                named = {known}
    if known in {"forward", "optimizer"} and user is not None and user is not leaf:
        known = _inner(stack, known)
    if known is not None and known not in named:
        return _spot(known, user, leaf, sources)
    if waiting is not None and known is None:
        return _spot(waiting, user, leaf, sources)
    said = _said(leaf, sources)
    return _spot(said if said == "lock" else known or said or "own", user, leaf, sources)


def _by_name(function: str) -> str | None:
    """Return what a function of the user's does by its name, None where the name does not say."""
    return "generator" if _INPUT_NAME.match(function) else "checkpoint" if _SAVE_NAME.match(function) else None


def _said(leaf: Frame, sources: Mapping[tuple[str, int], str]) -> str | None:
    """Return what the source line says of a native call on it, None where it says nothing."""
    text = _COMMENT.sub("", sources.get((leaf.file, leaf.line), "")) if leaf.user else ""
    return next((kind for pattern, kind in _BY_TEXT if pattern.search(text)), None)


def _inner(stack: Stack, known: str) -> str:
    """A collective or a log call inside a model's forward is what the thread does, whatever stands around it."""
    for frame in stack:
        kind = next((kind for part, kind in _BY_FILE if part in frame.file), None)
        if kind is not None:
            return kind
    return known


def _loader_spot(outer: Stack, user: Frame | None, leaf: Frame, sources: Mapping[tuple[str, int], str]) -> Spot:
    """A stack in the DataLoader's own code and not in a fetch: it starts workers, or waits for them."""
    frames = [frame for frame in outer if frame.file.endswith(_LOADER)]
    starting = any(frame.function in {"_get_iterator", "__iter__", "_reset"} for frame in frames)
    # of a stack that is the loader's inside, the user's line is the one that asked for the batch
    return _spot("start" if starting else "data", user, leaf, sources)
