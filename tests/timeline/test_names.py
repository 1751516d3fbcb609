"""What names of kernels and copies say: attention backends, tensor cores, directions; one by one, and by operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from underfed.errors import UsageError
from underfed.timeline import names as n
from underfed.timeline.launches import match
from underfed.timeline.model import KERNEL, OPERATOR
from underfed.timeline.within import Nested
from underfed.trace import trace_facts
from underfed.trace.kineto import read

SHARED = Path(__file__).resolve().parents[3] / "shared"
ATTENTION = {
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)": "flash",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(Params)": "flash",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128>>(flash::Flash_fwd_params)": "flash",
    "attn_fwd": "flash",
    "attn_fwd.kd": "flash",
    "bwd_kernel_dk_dv": "flash",
    "bwd_kernel_dq": "flash",
    "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync>>(Kargs)": "flash",
    "void ck_tile::kentry<256, 1, ck_tile::FmhaBwdDQDKDVKernel<Pipeline>>(Kargs)": "flash",
    "aiter::fmha_fwd_hd128_bf16_causal_group": "flash",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bf16>)": "efficient",
    "fmha_cutlassB_f16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<half>)": "efficient",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x64": "cudnn",
    "cudnn_generated_fort_native_sdpa_sm80_flash_bprop_f16_knob_26_64": "cudnn",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*)": None,
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": None,
    "Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN": None,
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)": None,
}
CORES = {
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "yes",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT": "yes",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn": "yes",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)": "yes",
    "Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN": "yes",
    "volta_sgemm_128x64_nn": "no",
    "ampere_sgemm_128x64_nn": "no",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)": "no",
    "void implicit_convolve_sgemm<float, float, 1024, 6, 6, 3, 3, 3, 1, false, false, true>(int)": "no",
    "some_new_gemm_kernel_of_tomorrow": "unknown",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)": None,
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": None,
}
COPIES = {
    "Memcpy HtoD (Pageable -> Device)": ("HtoD", False),
    "Memcpy HtoD (Pinned -> Device)": ("HtoD", True),
    "Memcpy DtoH (Device -> Pageable)": ("DtoH", False),
    "Memcpy DtoH (Device -> Pinned)": ("DtoH", True),
    "Memcpy DtoD (Device -> Device)": ("DtoD", None),
    "Memcpy HtoD (Host -> Device)": ("HtoD", None),
    "Memcpy DtoH (Device -> Host)": ("DtoH", None),
    "Memcpy PtoP (Device -> Device)": ("PtoP", None),
    "CopyHostToDevice": ("HtoD", None),
    "CopyDeviceToHost": ("DtoH", None),
    "CopyDeviceToDevice": ("DtoD", None),
    "Memcpy": ("unknown", None),
}
COLLECTIVES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*)": "reduce_scatter",
    "ncclDevKernel_AllGather_RING_LL": "all_gather",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_Broadcast_RING_LL": "broadcast",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "other",
}


@pytest.mark.parametrize("kernel", ATTENTION)
def test_the_attention_backend_of_a_kernel(kernel):
    assert n.attention_of_kernel(kernel) == ATTENTION[kernel]


@pytest.mark.parametrize("kernel", CORES)
def test_whether_a_kernel_uses_tensor_cores(kernel):
    assert n.tensor_cores(kernel) == CORES[kernel]


@pytest.mark.parametrize("name", COPIES)
def test_the_direction_and_the_memory_of_a_copy(name):
    assert (n.copy_direction(name), n.copy_pinned(name)) == COPIES[name]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_kind_of_a_collective(name):
    assert n.is_comms(name)
    assert n.collective_kind(name) == COLLECTIVES[name]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared traces beside the repository")
@pytest.mark.parametrize("pattern", ["traces/tracelens*/*.json.gz", "zoo/attn_*/*/trace.json.gz"])
def test_kernels_say_what_the_operators_around_them_are(pattern):
    """On every shared trace: the backend by a kernel's name is that of the operator that launched it."""
    seen = set()
    for path in sorted(SHARED.glob(pattern)):
        try:
            timeline = read(path)
        except UsageError:
            continue
        host, device = timeline.host, timeline.device
        backends = [n.attention_of_op(name) for name in timeline.names]
        ops = np.array([at for at in np.flatnonzero(host.kind == OPERATOR) if backends[host.name[at]]], np.int64)
        if ops.size == 0:
            continue
        calls = match(timeline).row
        rows = np.flatnonzero((calls >= 0) & (device.kind == KERNEL))
        nested = Nested(ops, host.start[ops], host.end[ops], host.thread[ops])
        around = nested.around(host.start[calls[rows]], host.thread[calls[rows]])
        for row, op in zip(rows.tolist(), around.tolist(), strict=True):
            by_kernel = n.attention_of_kernel(timeline.names[device.name[row]])
            if op >= 0 and by_kernel is not None:
                assert by_kernel == backends[host.name[op]]
                seen.add(by_kernel)
        found = trace_facts(path).character
        assert set(found.attention) == {backends[host.name[op]] for op in ops.tolist()}
    assert seen


def test_the_math_backend_is_told_by_its_operator():
    path = SHARED / "zoo" / "attn_math" / "before" / "trace.json.gz"
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    found = trace_facts(path).character
    assert found.attention == ("math",)
    assert found.attention_ns == {}
