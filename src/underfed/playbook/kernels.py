"""What the kernel rules share: shares of the device's kernel time by what the kernels' names say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from underfed.playbook.evidence import Evidence

#: Matrix kernels that read 32-bit operands, with tensor cores (TF32) or without.
_FP32_MATRIX = re.compile(
    r"gemm_f32f32_|_tf32f32_|sgemm|(?<![fp]16_)s1688(gemm|fprop|wgrad|dgrad)|fmha\w*_f32_|AttentionKernel<float", re.I
)
#: Matrix kernels that read 16-bit operands. The first of nvjet's three letters is the operands' type: h, or t for bf16.
_HALF_MATRIX = re.compile(
    r"bf16bf16|f16f16|16816|[fp]16_[sh](1688|884)|hgemm|h1688|h884|nvjet_(sm\d+_)?[ht][a-z]{2}_|fmha\w*_(bf16|f16)_"
    r"|flash_\w*(bf16|f16|half)|sdpa_sm\d+_flash",
    re.I,
)
_FP32_SCALAR = re.compile(r"simt_sgemm|f32f32_f32f32|_ffma_|volta_sgemm|ampere_sgemm|sgemm_\d+x\d+", re.I)
_SOFTMAX = re.compile(r"softmax", re.I)
_LOG_SOFTMAX = re.compile(r"logsoftmax|log_softmax|softmax_warp_(forward|backward)<[^>]*?, \d+, true", re.I)
_BATCH_NORM = re.compile(r"batch_?norm|bn_(fw|bw)", re.I)


@dataclass(frozen=True)
class KernelShares:
    """Shares of the kernel time, 0 to 1, and the softmax kernels that ran in a step."""

    fp32_matrix: float
    fp32_scalar: float
    half_matrix: float
    layout: float
    batch_norm_nchw: float
    softmax: float
    softmax_count: int
    fused_attention: bool


def shares(evidence: Evidence) -> KernelShares | None:
    """Sort the traced kernels by name, or None without a traced window."""
    facts = evidence.trace
    if facts is None or not facts.kernels:
        return None
    total = sum(kernel.total_ns for kernel in facts.kernels)
    if total <= 0:
        return None
    sums = dict.fromkeys(("fp32", "scalar", "half", "norm", "softmax"), 0)
    count = 0
    for kernel in facts.kernels:
        name = kernel.name
        if _FP32_SCALAR.search(name):
            sums["scalar"] += kernel.total_ns
        if _FP32_MATRIX.search(name) or _FP32_SCALAR.search(name):
            sums["fp32"] += kernel.total_ns
        elif _HALF_MATRIX.search(name):
            sums["half"] += kernel.total_ns
        elif _BATCH_NORM.search(name) and "channels_last" not in name and "nhwc" not in name.lower():
            sums["norm"] += kernel.total_ns
        elif _SOFTMAX.search(name) and not _LOG_SOFTMAX.search(name):
            sums["softmax"] += kernel.total_ns
            count += kernel.count
    return KernelShares(
        fp32_matrix=sums["fp32"] / total,
        fp32_scalar=sums["scalar"] / total,
        half_matrix=sums["half"] / total,
        layout=facts.character.layout_ns / total,
        batch_norm_nchw=sums["norm"] / total,
        softmax=sums["softmax"] / total,
        softmax_count=count,
        fused_attention=any(backend != "math" for backend in facts.character.attention),
    )


def after(evidence: Evidence, *parts: tuple[float, float]) -> float:
    """Step in ms when each part, a share of the device time, becomes `factor` times as fast; the rest stays.

    A step that the device does not fill shrinks by no more than the device's own part of it.
    """
    device = min(evidence.step.device_ms or 0.0, evidence.step_ms)
    saved = sum(share * (1 - 1 / factor) for share, factor in parts)
    return evidence.step_ms - device * min(saved, 0.98)


_CONV = re.compile(r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit_gemm|xmma_new", re.I)
_BF16 = re.compile(r"bf16|bfloat16", re.I)
#: Matrix kernels on fp16, of the libraries that say so in their names.
_FP16 = re.compile(
    r"(?<!b)f16f16|(?<!b)f16_s\d|(?<!b)fp16_s\d|hgemm|_h1688|_h884|nvjet_(sm\d+_)?h[a-z]{2}_|fmha\w*_f16_"
    r"|flash_.*half_t",
    re.I,
)
_ATTENTION_WIDE = re.compile(r"fmha\w*_f32_|Attention(Backward)?Kernel<float", re.I)

#: CUTLASS names say how many numbers a kernel loads at once: 8 of 16 bits, or 4 of 32, is all that tensor cores want.
_MISALIGNED = re.compile(r"(?:16816|161616|_f16_|_bf16_|h\d*gemm)\w*_align([124])(?!\d)|s1688\w*_align([12])(?!\d)")


def misaligned_shares(evidence: Evidence) -> dict[int, float]:
    """Share of the kernel time in matrix kernels that load in pieces, by how many numbers they load at once."""
    found: dict[int, float] = {}
    facts = evidence.trace
    total = sum(kernel.total_ns for kernel in facts.kernels) if facts is not None else 0
    for kernel in facts.kernels if facts is not None and total > 0 else ():
        if match := _MISALIGNED.search(kernel.name):
            width = int(match[1] or match[2])
            found[width] = found.get(width, 0.0) + kernel.total_ns / total
    return found


def conv_share(evidence: Evidence) -> float | None:
    """Share of the kernel time in convolutions, or None without a traced window."""
    return _share(evidence, _CONV)


def bf16_share(evidence: Evidence) -> float | None:
    """Share of the kernel time in kernels that name bf16, or None without a traced window."""
    return _share(evidence, _BF16)


def fp16_share(evidence: Evidence) -> float | None:
    """Share of the kernel time in matrix kernels on fp16, or None without a traced window."""
    return _share(evidence, _FP16)


def _share(evidence: Evidence, pattern: re.Pattern[str]) -> float | None:
    facts = evidence.trace
    total = sum(kernel.total_ns for kernel in facts.kernels) if facts is not None else 0
    if facts is None or total <= 0:
        return None
    return sum(kernel.total_ns for kernel in facts.kernels if pattern.search(kernel.name)) / total


@dataclass(frozen=True)
class AttentionShares:
    """Shares of the kernel time in fused attention: memory-efficient, of it on 32-bit inputs, and flash or cuDNN."""

    efficient: float
    efficient_wide: float
    faster: float


def attention_shares(evidence: Evidence) -> AttentionShares | None:
    """Sort the fused attention kernels by backend, or None without a traced window."""
    facts, wide = evidence.trace, _share(evidence, _ATTENTION_WIDE)
    if facts is None or wide is None:
        return None
    total = sum(kernel.total_ns for kernel in facts.kernels)
    spent = facts.character.attention_ns
    return AttentionShares(
        efficient=spent.get("efficient", 0) / total,
        efficient_wide=wide,
        faster=(spent.get("flash", 0) + spent.get("cudnn", 0)) / total,
    )
