"""What names of kernels, runtime calls and host ranges mean. Unknown is said as unknown, never guessed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

#: Communication kernels by name: the collective libraries, and the custom all-reduce kernels of inference engines.
_COMMS = re.compile(
    r"nccl|rccl|msccl|oneccl|deep_ep|nvshmem|rocshmem|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce|"
    r"custom_all_?reduce|quick_?all_?reduce|all_reduce_kernel|allreduce_fusion|multimem_all|AllReduce_|AllGather_|"
    r"ReduceScatter_|SendRecv_",
    re.IGNORECASE,
)
#: Helpers that ship with the libraries above but move no data between ranks.
_NOT_COMMS = re.compile(r"permute|layout|memset", re.IGNORECASE)

_MATRIX = re.compile(
    r"gemm|gemv|conv(?!ert)|wgrad|dgrad|fprop|bprop|mma(?!p)|nvjet|cijk_|winograd|sdpa|fmha|flash|attn_fwd|attn_bwd|"
    r"bwd_kernel_dk_dv|bwd_kernel_dq|wmma|cublas.*kernel|matmul",
    re.IGNORECASE,
)
_PLAIN_CORES = re.compile(
    r"simt|ffma|gemv|volta_(?:s|d|c|gc|z)gemm|(?:ampere|maxwell|sm\d+)_(?:s|d|c|z)gemm|implicit_convolve_sgemm|"
    r"explicit_convolve_sgemm|winograd|volta_scudnn|[sdc]gemm_\d|_f32f32_f32f32_f32_|wgrad_alg\d|dgrad_engine|"
    r"gemmsn|dot_kernel|conv_depthwise|depthwise|fmha_cutlass[fb]_f32",
    re.IGNORECASE,
)
_TENSOR_CORES = re.compile(
    r"tensorop|tensor16x8|[hsid]\d?(?:16816|1688|884|8816|161616)|hmma|imma|wgmma|qgmma|tf32|nvjet|xmma|"
    r"fmha_cutlass[fb]_(?:f16|bf16)|flash_(?:fwd|bwd)|flash.*kernel|bf16.*(?:gemm|fprop|dgrad|wgrad)|"
    r"_mi\d+x\d+x\d+|mfma|xdl|gtcx|fp8|e4m3|umma|utcmma|ImplicitGemmMultistage",
    re.IGNORECASE,
)
_LAYOUT = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|batched_transpose", re.IGNORECASE)

TensorCores = Literal["yes", "no", "unknown"]
Attention = Literal["flash", "efficient", "cudnn", "math"]

_ATTENTION_KERNELS: tuple[tuple[re.Pattern[str], Attention], ...] = (
    (re.compile(r"cudnn.*sdpa|cudnn.*fmha", re.IGNORECASE), "cudnn"),
    (re.compile(r"fmha_cutlass|AttentionKernel<|AttentionBackwardKernel<|mem_?eff", re.IGNORECASE), "efficient"),
    (
        re.compile(r"flash|fmhafwd|fmhabwd|fmha_fwd|fmha_bwd|^attn_fwd|^bwd_kernel_d|aiter.*fmha", re.IGNORECASE),
        "flash",
    ),
)
_ATTENTION_OPS: dict[str, Attention] = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_flash_attention_forward": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_efficient_attention_forward": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_cudnn_attention_forward": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
}


@lru_cache(maxsize=65536)
def is_comms(kernel: str) -> bool:
    """Tell whether a kernel moves data between ranks."""
    return bool(_COMMS.search(kernel)) and not _NOT_COMMS.search(kernel)


def is_layout(kernel: str) -> bool:
    """Tell whether a kernel only swaps between NCHW and NHWC."""
    return bool(_LAYOUT.search(kernel))


def tensor_cores(kernel: str) -> TensorCores | None:
    """Tell whether a matrix kernel uses tensor (matrix) cores; None for a kernel that multiplies no matrices."""
    if is_layout(kernel) or not _MATRIX.search(kernel) or is_comms(kernel) or "elementwise" in kernel:
        return None
    if _PLAIN_CORES.search(kernel):
        return "no"
    return "yes" if _TENSOR_CORES.search(kernel) else "unknown"


def attention_of_kernel(kernel: str) -> Attention | None:
    """Which SDPA backend a kernel belongs to. The math backend has no kernel of its own."""
    return next((backend for pattern, backend in _ATTENTION_KERNELS if pattern.search(kernel)), None)


def attention_of_op(operator: str) -> Attention | None:
    """Which SDPA backend an operator is."""
    return _ATTENTION_OPS.get(operator)


_STEP = re.compile(r"^ProfilerStep#(\d{1,9})$")


def step_number(name: str) -> int | None:
    """Return the number of a step mark of torch.profiler."""
    found = _STEP.match(name)
    return int(found[1]) if found else None


#: Begin of the name of the range that torch records around the loader's next batch.
LOADER_NEXT = "enumerate(DataLoader)#"
_DIRECTION = re.compile(r"\b([HD])to([HD])\b|\b(P)to(P)\b")
#: As roctracer calls them.
_SPELT_OUT = re.compile(r"Copy(Host|Device)To(Host|Device)")


def copy_direction(name: str) -> str:
    """Return HtoD, DtoH, DtoD, HtoH, PtoP or unknown."""
    if found := _DIRECTION.search(name):
        return found[0]
    spelt = _SPELT_OUT.search(name)
    return f"{spelt[1][0]}to{spelt[2][0]}" if spelt else "unknown"


def copy_pinned(name: str) -> bool | None:
    """Whether the host's side of a copy is pinned memory; None where the name does not say (ROCm says only Host)."""
    if "Pageable" in name:
        return False
    return True if "Pinned" in name else None


#: Kinds of collective by what the profiler or the kernel calls them, the longer names first.
_KINDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"reduce_?scatter", "reduce_scatter"),
        (r"all_?gather", "all_gather"),
        (r"all_?reduce|cross_device_reduce", "all_reduce"),
        (r"all_?to_?all", "all_to_all"),
        (r"sendrecv", "send_recv"),
        (r"barrier", "barrier"),
        (r"broadcast", "broadcast"),
        (r"reduce", "reduce"),
        (r"gather", "gather"),
        (r"scatter", "scatter"),
        (r"\brecv|recv\b", "recv"),
        (r"\bsend|send\b", "send"),
    )
)
#: Those that no rank leaves before all have come. `send_recv` kernels are mostly the parts of an all-to-all.
MEETING = frozenset({"reduce_scatter", "all_gather", "all_reduce", "all_to_all", "send_recv", "barrier"})


@lru_cache(maxsize=4096)
def collective_kind(name: str) -> str:
    """Return the kind of a collective from its own or its kernel's name, `other` where neither says."""
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "other")
