"""Settings and counters that change rarely: read from the sampler's thread every few seconds, never on the hot path."""

import sys
from time import perf_counter_ns

from .core import S, write

_EVERY_NS = 2_000_000_000
_last = None
_next = 0
_optimizers = {}


def note_optimizer(optimizer):
    """Remember how an optimizer is set up, once an object."""
    key = id(optimizer)
    if key in _optimizers or len(_optimizers) > 50:
        return
    groups = optimizer.param_groups
    flags = {name: groups[0].get(name) for name in ("foreach", "fused", "capturable")} if groups else {}
    parameters = [p for group in groups for p in group["params"]]
    _optimizers[key] = {
        "name": type(optimizer).__name__,
        "torch_own": type(optimizer).__module__.startswith("torch."),
        "tensors": len(parameters),
        "device": str(parameters[0].device.type) if parameters else None,
        "dtype": str(parameters[0].dtype) if parameters else None,
        **{name: value if isinstance(value, bool) else None for name, value in flags.items()},
    }


def _dynamo():
    """Recompiles and graph breaks so far, or None where torch.compile was not used."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return None
    counters = utils.counters
    stats, breaks = counters.get("stats"), counters.get("graph_break")
    frames = counters.get("frames") or {}
    if not stats and not frames:
        return None
    return {
        "unique_graphs": int((stats or {}).get("unique_graphs", 0)),
        "frames_ok": int(frames.get("ok", 0)),
        "frames_total": int(frames.get("total", 0)),
        "graph_breaks": int(sum((breaks or {}).values())),
        "reasons": [str(reason)[:200] for reason in list((breaks or {}))[:3]],
    }


def _memory(torch):
    if not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "retries": stats.get("num_alloc_retries", 0),
        "ooms": stats.get("num_ooms", 0),
        "driver_allocs": stats.get("num_device_alloc", 0),
        "driver_frees": stats.get("num_device_free", 0),
        "peak": stats.get("reserved_bytes.all.peak", 0),
        "free": free,
        "total": total,
    }


def forget():
    """Start over."""
    global _last, _next
    _last, _next = None, 0
    _optimizers.clear()


def collect():
    """Return the present facts as one dictionary."""
    torch = sys.modules["torch"]
    cuda = torch.cuda.is_initialized()
    return {
        "anomaly": bool(torch.is_anomaly_enabled()),
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "profiler": bool(torch.autograd._profiler_enabled()),
        "settrace": sys.gettrace() is not None,
        "device": torch.cuda.get_device_name() if cuda else None,
        "device_index": torch.cuda.current_device() if cuda else None,
        "capability": list(torch.cuda.get_device_capability()) if cuda else None,
        "distributed": bool(torch.distributed.is_available() and torch.distributed.is_initialized()),
        "backend": torch.distributed.get_backend()
        if torch.distributed.is_available() and torch.distributed.is_initialized()
        else None,
        "anomaly_at": S.anomaly_at,
        "checkpointing": S.checkpointing is not None,
        "checkpointing_at": S.checkpointing,
        "optimizers": list(_optimizers.values()),
        "dynamo": _dynamo(),
        "memory": _memory(torch),
    }


def once_a_while(force=False):
    """Write the facts if they changed since the last time; with `force`, if there were none yet.

    Those at the very end are not written beside others: a `with` block around the loop has ended by then.
    """
    global _last, _next
    now = perf_counter_ns()
    if now < _next or (force and _last is not None):
        return
    _next = now + _EVERY_NS
    found = collect()
    if found != _last:
        _last = found
        write("facts", t=now, step=S.index, **found)
