"""Facts of traces that are made of kernels with given names and times."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from underfed.timeline.facts import TraceFacts
from underfed.trace import trace_facts

FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, bfloat16_t>>(Flash_fwd_params)"
EFFICIENT = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"
EFFICIENT_WIDE = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"
MATRIX = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"
PIECES = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(Params)"
#: Kernel time in ms of ten steps of 22.7 ms: products of 4095 under bf16 autocast on an H200, 2026-12-03.
ODD_SIZES = {
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)": 8.50,
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x256_nt_align1>(Params)": 7.32,
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(Params)": 6.70,
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata>": 1.19,
    "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>": 0.44,
}
#: Of it, what the same step took with 4096.
EVEN_GAIN = 25.3 / 6.95
WHOLE = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(Params)",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(Params)",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(Params)",
)
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
BF16 = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>>"
PLAIN = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>"


def traced(times: dict[str, float], *, devices: int = 1, ranges: tuple[str, ...] = ()) -> TraceFacts:
    """Return the facts of one trace in which each kernel runs once, for a time in ms, one after the other."""
    events: list[dict[str, Any]] = []
    now = 0.0
    for device in range(devices):
        for name, ms in times.items():
            correlation = len(events) + 1
            launch = {"correlation": correlation}
            args = {"device": device, "stream": 7, **launch}
            events += [
                _row("cuda_runtime", "cudaLaunchKernel", 1, now, 5.0, launch),
                _row("kernel", name, device, now + 8.0, 1000 * ms, args),
            ]
            now += 1000 * ms + 10
    events += [_row("user_annotation", name, 1, 0.0, now, {}) for name in ranges]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return trace_facts(path)


def _row(cat: str, name: str, pid: int, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": args}
