"""Names of kernels in short, against names that real cards and compilers made."""

from __future__ import annotations

import re

import pytest
from pictures_help import RECORDINGS, recording, shared

from underfed.pictures.kernel_names import short
from underfed.timeline.model import KERNEL
from underfed.trace.kineto import read

ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
POOL = "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>"
)
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >(int)"
)
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass::Params)"
MANGLED = (
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3"
    "INS_34GridwiseGemmMultiD_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajorELi64EEE"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (ADD, "vectorized_elementwise_kernel: CUDAFunctor_add, bf16"),
        (COPY, "unrolled_elementwise_kernel: direct_copy_kernel_cuda, fp32"),
        (ADAM, "multi_tensor_apply_kernel: FusedAdamMathFunctor, fp32"),
        (CUTLASS, "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"),
        (MANGLED, "kernel_grouped_conv_fwd_xdl_cshuffle_v3"),
        (POOL, "max_pool_backward_nhwc, bf16"),
        ("std::enable_if<true>::type gemv2T_kernel<int, float>(float*)", "gemv2T_kernel, fp32"),
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT"),
        (f"{NCCL}(ncclDevKernelArgsStorage<4096ul>)", NCCL),
        ("triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_0"),
    ],
)  # fmt: skip
def test_what_it_does_is_left(name: str, expected: str) -> None:
    assert short(name) == expected


def assert_all(names: set[str]) -> None:
    for name in names:
        said = short(name)
        assert said, name
        assert len(said) <= 96
        assert said.isprintable()
        for word in re.findall(r"[A-Za-z_]\w{4,}", said.partition("…")[0]):
            assert word in name, (said, name)


def test_of_recordings() -> None:
    rows = [row.name for name in RECORDINGS[::3] if (facts := recording(name).facts) for row in facts.kernels]
    assert len(rows) > 100
    assert_all(set(rows))
    # As good as all that differ in full differ in short, so that two rows are not taken for one.
    assert len({short(name) for name in rows}) > 0.75 * len(set(rows))


def test_of_shared_traces_of_three_vendors_libraries() -> None:
    for path in shared("traces/tracelens/h100*", "traces/tracelens/mi300__ddp*", "traces/hta/critical_path__alexnet*"):
        timeline = read(path)
        rows = timeline.device.kind == KERNEL
        assert_all({timeline.names[name] for name in timeline.device.name[rows].tolist()})


@pytest.mark.parametrize("name", ["", "void ", "<", "((((", "_Z", "_Z99999999999999x", "\x1b[31m\u202e", "a" * 10_000])
def test_what_is_no_name_is_no_fault(name: str) -> None:
    assert len(short(name)) <= 96
