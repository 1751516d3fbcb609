"""Switches of `underfed try` that torch and the interpreter have for the whole process."""

import functools
import gc
import os
import sys

from . import core


def threads(torch, value, notes):
    """Threads of torch's own pool, whatever the program asks for later."""
    wanted = int(value)
    original = torch.set_num_threads

    @functools.wraps(original)
    def set_num_threads(number):
        if sys._getframe(1).f_code.co_filename.endswith("/_utils/worker.py"):
            return original(number)  # a loader's worker keeps to one thread
        if number != wanted:
            notes.acted("threads", f"torch.set_num_threads({int(number)}) -> {wanted}")
        return original(wanted)

    original(wanted)
    torch.set_num_threads = set_num_threads
    # The variable was set before this process began, so that torch and every other pool start with it.
    own = core.S.options.get("threads", "")
    before = int(own) if own.isdigit() else _cpus()
    if before != wanted:
        notes.acted("threads", f"OMP_NUM_THREADS={wanted} ({f'was {own}' if own else 'was not set'})")


def _cpus():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _held(torch, name, change):
    """Let a setter of torch's own take `change` of what it is given, whichever API the program sets it by."""
    original = getattr(torch._C, name, None)
    if original is not None:
        setattr(torch._C, name, functools.wraps(original)(lambda *given: original(*change(*given))))


def tf32(torch, value, notes):
    """TF32 for matrix products and convolutions, whatever the program asks for later."""
    if not torch.cuda.is_available():
        notes.refused("tf32", "no device: TF32 is a format of GPU tensor cores")
        return

    def acted():
        notes.acted("tf32", "32-bit matrix products: full precision -> TF32")

    def allow(asked):
        if not asked:
            acted()
        return (True,)

    def precision(asked):
        if asked != "highest":
            return (asked,)
        acted()
        return ("high",)

    def by_backend(backend, operation, asked):
        if asked != "ieee" or backend == "mkldnn":
            return backend, operation, asked
        acted()
        return backend, operation, "tf32"

    if torch.get_float32_matmul_precision() == "highest":
        torch.set_float32_matmul_precision("high")
        acted()
    _held(torch, "_set_cublas_allow_tf32", allow)
    _held(torch, "_set_float32_matmul_precision", precision)
    _held(torch, "_set_fp32_precision_setter", by_backend)
    torch.backends.cudnn.allow_tf32 = True


def deterministic(torch, value, notes):
    """Equal runs for equal seeds: for the numbers alone, since some operations then have only slow forms. Operations
    without such a form fail; `lenient` lets them pass, but fused attention stays as it is then.
    """
    from torch.backends import ContextProp

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=value == "lenient")
    torch.backends.cudnn.benchmark = False  # the search picks by time, so another algorithm each time
    type(torch.backends.cudnn).benchmark = ContextProp(torch._C._get_cudnn_benchmark, lambda _: None)
    notes.acted("deterministic", "deterministic algorithms")


def cudnn_benchmark(torch, value, notes):
    """cuDNN's search for the fastest convolution."""
    if not torch.cuda.is_available():
        notes.refused("cudnn_benchmark", "no device: cuDNN is for GPUs")
        return
    if not torch.backends.cudnn.benchmark:
        torch.backends.cudnn.benchmark = True
        notes.acted("cudnn_benchmark", "cudnn.benchmark False -> True")


def anomaly(torch, value, notes):
    """Anomaly detection stays off, whoever switches it on."""
    original = torch.set_anomaly_enabled

    @functools.wraps(original)
    def set_anomaly_enabled(enabled, check_nan=True):
        if enabled:
            notes.acted("anomaly", "anomaly detection on -> off")
        return original(False, check_nan)

    torch.set_anomaly_enabled = set_anomaly_enabled
    original(False, True)


def empty_cache(torch, value, notes):
    """torch.cuda.empty_cache() does nothing."""
    if not torch.cuda.is_available():
        notes.refused("empty_cache", "no device: there is no cache to empty")
        return

    def nothing():
        notes.acted("empty_cache", "torch.cuda.empty_cache() left out")

    torch.cuda.empty_cache = functools.wraps(torch.cuda.empty_cache)(nothing)


def garbage(torch, value, notes):
    """gc.collect() of the program's own code does nothing, and what lives after a few steps is not searched again."""
    from . import core, frames

    original = gc.collect

    @functools.wraps(original)
    def collect(*args, **kwargs):
        if frames.is_user(sys._getframe(1).f_code.co_filename):
            notes.acted("gc", "gc.collect() left out")
            return 0
        return original(*args, **kwargs)

    gc.collect = collect

    def freeze(_kind):
        if core.S.index >= 5:
            core.S.on_boundary = [hook for hook in core.S.on_boundary if hook is not freeze]
            gc.freeze()
            notes.acted("gc", "gc.freeze() after 5 steps")

    core.S.on_boundary.append(freeze)


def sdpa(torch, value, notes):
    """One backend of scaled_dot_product_attention; the others are switched off."""
    if not torch.cuda.is_available():
        notes.refused("sdpa", "no device: the backends are GPU kernels")
        return
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        setter = "_set_sdp_use_" + name
        if hasattr(torch._C, setter):
            wanted = name.endswith(value)
            getattr(torch._C, setter)(wanted)
            _held(torch, setter, lambda _, wanted=wanted: (wanted,))
    functional = torch.nn.functional
    original = functional.scaled_dot_product_attention

    @functools.wraps(original)
    def attention(*args, **kwargs):
        if not torch.compiler.is_compiling():
            functional.scaled_dot_product_attention = original
            notes.acted("sdpa", f"scaled_dot_product_attention by {value} alone")
        return original(*args, **kwargs)

    functional.scaled_dot_product_attention = attention


SWITCHES = {
    "threads": threads,
    "tf32": tf32,
    "cudnn_benchmark": cudnn_benchmark,
    "anomaly": anomaly,
    "empty_cache": empty_cache,
    "gc": garbage,
    "sdpa": sdpa,
    "deterministic": deterministic,
}
