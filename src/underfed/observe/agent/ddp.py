"""What DistributedDataParallel itself measures of its gradient exchange, read between steps.

torch times the exchange of the first ten backward passes and of every hundredth after them, on the CPU and on a GPU,
whether anybody asks or not. Only these figures are read; nothing is switched on.
"""

import functools
import weakref

from .core import BY_OPTIMIZER, S, fault, write
from .patches import put

_models = []
_seen = {}
#: Backward passes, those of them that exchanged, optimizer steps.
_passes = [0, 0, 0]
_MOST_MODELS = 4
#: Asked after each of these first steps, while torch times every pass, and then once in a while.
_EAGER_STEPS = 12
_LATER_EVERY = 16


def _read(number, model):
    data = model._get_ddp_logging_data()
    iteration = int(data.get("iteration", 0))
    if iteration <= 0 or iteration == _seen.get(number) or not int(data.get("backward_compute_time", 0)):
        return
    _seen[number] = iteration
    buckets = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    write(
        "ddp",
        step=S.index,
        model=number,
        iteration=iteration,
        passes=_passes[0],
        exchanges=_passes[1],
        optimizer_steps=_passes[2],
        compute=int(data["backward_compute_time"]),
        exchange=int(data["backward_comm_time"]),
        overlap=int(data["backward_compute_comm_overlap_time"]),
        forward=int(data.get("forward_compute_time", 0)),
        buckets=[int(size) for size in buckets.replace(",", " ").split() if size.isdigit()][:1000],
        bytes=int(data.get("total_parameter_size_bytes", 0)),
        cap=int(data.get("bucket_cap_bytes", 0)),
        find_unused=bool(data.get("find_unused_parameters", 0)),
        unused=int(data.get("unused_parameter_size", 0)),
        view=bool(data.get("gradient_as_bucket_view", 0)),
        hook=str(data.get("comm_hook") or "")[:80] or None,
        world=int(data.get("world_size", 0)),
    )


def _between_steps(kind):
    if kind == BY_OPTIMIZER:
        _passes[2] += 1
    if S.index > _EAGER_STEPS and S.index % _LATER_EVERY:
        return
    for number, known in enumerate(_models):
        model = known()
        if model is not None:
            _read(number, model)


def _passed():
    """Count a backward pass, and whether it exchanges: it does not under `no_sync()`."""
    try:
        _passes[0] += 1
        _passes[1] += any(model.require_backward_grad_sync for known in _models if (model := known()) is not None)
    except Exception as error:
        S.after_backward = None
        fault("ddp", error)


def _remember(original):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            if len(_models) < _MOST_MODELS and hasattr(self, "_get_ddp_logging_data"):
                _models.append(weakref.ref(self))
                if _between_steps not in S.on_boundary:
                    S.on_boundary = [*S.on_boundary, _between_steps]
                    S.after_backward = _passed
        except Exception as error:
            fault("ddp", error)

    return __init__


def install(torch):
    """Notice every DistributedDataParallel that is made."""
    parallel = torch.nn.parallel.DistributedDataParallel
    put(parallel, "__init__", _remember(parallel.__init__))


def forget():
    """Start over."""
    _models.clear()
    _seen.clear()
    _passes[:] = [0, 0, 0]
