"""Settings and counters that change rarely: read from the sampler's thread every few seconds, never on the hot path."""

import importlib.util
import platform
import shutil
import sys
import threading
import weakref
from time import perf_counter_ns

from . import frames
from .clock import CLOCK
from .core import S, fault, write

_EVERY_NS = 2_000_000_000
#: Parameters and numbers of each that are looked at for denormals, and how often among the looks at everything else.
_PARAMETERS, _NUMBERS, _LOOKS = 4, 1024, 10
_last = None
_next = 0
_optimizers = {}
_objects = {}
_failed = set()
_build = None
_looks = 0
_denormals = None
#: Where each thread began: one that has just ended no longer knows.
_began = weakref.WeakKeyDictionary()


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
        "scaled": _from_scaler(),
        **{name: value if isinstance(value, bool) else None for name, value in flags.items()},
    }
    _objects[key] = weakref.ref(optimizer)


def _from_scaler():
    """Tell whether a GradScaler is what called this optimizer's step."""
    frame = sys._getframe(1)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith("grad_scaler.py"):
            return True
        frame = frame.f_back
    return False


def _build_of(torch):
    """What a wheel or a build of flash-attn has to fit, and whether it is there; looked up once."""
    global _build
    if _build is None:
        _build = {
            "flash_attn": importlib.util.find_spec("flash_attn") is not None,
            "ninja": shutil.which("ninja") is not None or importlib.util.find_spec("ninja") is not None,
            "cxx11": bool(torch.compiled_with_cxx11_abi()),
            "machine": platform.machine(),
        }
    return _build


def _python_threads():
    """CPU time so far in ns of the training thread and of the program's other Python threads, None without any."""
    own, others, top, where, count = None, 0, -1, None, 0
    for thread in threading.enumerate():
        used = _cpu_of(thread.native_id)
        if thread.ident == CLOCK.thread:
            own = used
        elif used is not None:
            count += 1
            others += used
            if used > top:
                top, where = used, _place_of(thread)
    if own is None or not count:
        return None
    return {"training": own, "others": others, "count": count, "where": where}


def _cpu_of(thread):
    try:
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _place_of(thread):
    found = _began_at(thread)
    if found is not None:
        _began[thread] = found
    return found or _began.get(thread)


def _began_at(thread):
    run = getattr(type(thread), "run", None)
    target = getattr(thread, "_target", None) if run is threading.Thread.run else run
    code = getattr(target, "__code__", None)
    return frames.code_place(code) if code is not None else None


def _denormal_share(torch):
    """Share of denormal numbers among some of the weights and optimizer states of a run on the CPU, or None."""
    global _looks, _denormals
    _looks += 1
    if torch.cuda.is_initialized() or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    if _looks % _LOOKS == 1:
        _denormals = _count_denormals(torch)
    return _denormals


def _count_denormals(torch):
    seen = found = 0
    for reference in list(_objects.values()):
        optimizer = reference()
        parameters = [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []
        for parameter in parameters[:: max(1, len(parameters) // _PARAMETERS)][:_PARAMETERS]:
            for tensor in (parameter, *list(optimizer.state.get(parameter, {}).values())):
                if not _is_plain(torch, tensor):
                    continue
                sizes = tensor.detach().reshape(-1)[:_NUMBERS].abs()
                seen += sizes.numel()
                found += int(((sizes > 0) & (sizes < torch.finfo(torch.float32).tiny)).sum())
    return round(found / seen, 4) if seen else None


def _is_plain(torch, tensor):
    kind = type(tensor)
    return (
        kind in (torch.Tensor, torch.nn.Parameter)
        and tensor.dtype is torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
    )


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


def _matmul_precision(torch):
    """What 32-bit matrix products may use: highest, high or medium. Asking torch raises an error from 2.9 on once a
    program has set it by an old name and a new one, so that they contradict each other.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if torch.backends.cuda.matmul.allow_tf32 else "highest"


def _cudnn_tf32(torch):
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


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


def _tried(look, *given):
    """What a look finds; None where it fails, which is a fault of its own and not the end of the sampler."""
    try:
        return look(*given)
    except Exception as error:
        if look not in _failed:
            _failed.add(look)
            fault("facts", error)
        return None


def forget():
    """Start over."""
    global _last, _next, _looks, _denormals
    _last, _next, _looks, _denormals = None, 0, 0, None
    _optimizers.clear()
    _objects.clear()
    _failed.clear()


def collect():
    """Return the present facts as one dictionary."""
    torch = sys.modules["torch"]
    cuda = torch.cuda.is_initialized()
    return {
        "anomaly": bool(torch.is_anomaly_enabled()),
        "threads": torch.get_num_threads(),
        "matmul_precision": _matmul_precision(torch),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_tf32": _cudnn_tf32(torch),
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
        "build": _tried(_build_of, torch) if cuda else None,
        "python_threads": _tried(_python_threads),
        "denormals": _tried(_denormal_share, torch),
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
