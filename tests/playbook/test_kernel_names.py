"""What the names of kernels say: the width of their operands, and loads in pieces."""

from __future__ import annotations

import pytest
from kernels_help import EVEN_GAIN, ODD_SIZES
from rule_cases import computing

from underfed.playbook.kernels import misaligned_shares, shares
from underfed.playbook.registry import find

WIDE = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)",
    "cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4_nhwc_align4",
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16",
    "ampere_sgemm_128x64_nn",
)
NARROW = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
    "turing_h1688gemm_128x64_ldg8_nn",
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x128_64x4_nt_align8>(Params)",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "nvjet_sm90_tss_128x256_64x4_2x1_v_bz_coopA_NTN",
)


@pytest.mark.parametrize("name", WIDE)
def test_32_bit_operands(name: str) -> None:
    found = shares(computing({name: 5.0}))
    assert found is not None and (found.fp32_matrix, found.half_matrix) == (1.0, 0.0)


@pytest.mark.parametrize("name", NARROW)
def test_16_bit_operands(name: str) -> None:
    found = shares(computing({name: 5.0}))
    assert found is not None and (found.fp32_matrix, found.half_matrix) == (0.0, 1.0)


def test_odd_sizes_under_autocast_are_no_missing_autocast() -> None:
    seen = computing(ODD_SIZES)
    t13, x19 = find("T13"), find("X19")
    assert t13 is not None and t13.check(seen) is None
    assert x19 is not None and (found := x19.check(seen)) is not None
    assert found.gain is not None and found.gain.at_most >= EVEN_GAIN


def test_loads_by_their_width() -> None:
    names = {
        "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2": 3.0,
        "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align1": 1.0,
        "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4": 4.0,
        "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_nt_align16": 2.0,
    }
    assert misaligned_shares(computing(names)) == pytest.approx({2: 0.3, 1: 0.1})
    assert misaligned_shares(computing({})) == {}
