"""What a rule says beyond that it speaks: which input, which way, how to build; from evidence made for it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from kernels_help import EFFICIENT, MATRIX, traced
from rule_cases import CPUS, LOOP, ROOM, SPEAKS, WORK, computing, stalled

from underfed.diagnose.gather import StepTable, skipped_share, thread_facts
from underfed.diagnosis import Finding
from underfed.playbook.evidence import Copy, Evidence, ExchangeFacts, Spot
from underfed.playbook.flash_build import max_jobs, observations, wheel
from underfed.playbook.kernels import bf16_share, fp16_share
from underfed.playbook.registry import find
from underfed.recording import records as r
from underfed.recording.read import ProcessLog
from underfed.timeline.collectives import CollectiveRow
from underfed.timeline.uses import KernelUse

from scenes import evidence  # isort: skip

BUILD = {"flash_attn": False, "ninja": False, "cxx11": True, "machine": "x86_64"}
VERSIONS = {"python": "3.12.4", "torch": "2.8.0+cu128", "cuda": "12.8"}


def said(name: str, seen: Evidence) -> Finding:
    rule = find(name)
    assert rule is not None
    finding = rule.check(seen)
    assert finding is not None, name
    return finding


def attention(shape: str) -> Evidence:
    """The memory-efficient kernel, launched by an operator on inputs of a shape."""
    seen = computing({EFFICIENT: 4.0, MATRIX: 5.0})
    assert seen.trace is not None
    use = KernelUse(
        name=EFFICIENT,
        operator="aten::_scaled_dot_product_efficient_attention",
        shape=shape,
        types=None,
        module=None,
        count=1,
        total_ns=4_000_000,
        median_ns=1,
        longest_ns=1,
        cores=None,
        eligible=None,
    )
    return replace(seen, trace=msgspec.structs.replace(seen.trace, uses=[use]))


@pytest.mark.parametrize(
    ("shape", "words", "other"),
    [
        ("8x12x512x64, 8x12x512x64, 8x12x512x64, 8x12x512x512, -", "a mask rules", "heads of"),
        ("8x12x512x320, 8x12x512x320, 8x12x512x320, -, -", "heads of 320", "a mask rules"),
        ("8x12x512x64, 8x12x512x64, 8x12x512x64, -, -", "a mask or a head size", "heads of"),
    ],
)
def test_the_input_that_rules_flash_attention_out_is_named(shape: str, words: str, other: str) -> None:
    summary = said("X17", attention(shape)).summary
    assert words in summary and other not in summary


def test_a_build_of_flash_attention_fits_the_machine() -> None:
    seen = computing({EFFICIENT: 4.0, MATRIX: 5.0}, build=BUILD, versions=VERSIONS)
    seen = replace(seen, cpus=replace(CPUS, usable=64.0), memory=replace(ROOM, limit=80 * 2**30, used=10 * 2**30))
    assert wheel(seen) == "+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64"
    assert max_jobs(seen) == 7, "70 GiB are free, and a compiler takes 9"
    texts = [one.text for one in said("X17", seen).evidence]
    assert any("pip install ninja; MAX_JOBS=7 pip install flash-attn" in text for text in texts)
    assert any("+cu12torch2.8" in text for text in texts)
    few = replace(seen, cpus=replace(CPUS, usable=4.0))
    assert max_jobs(few) == 2, "half of the CPUs"
    tight = replace(seen, memory=replace(ROOM, limit=8 * 2**30, used=7 * 2**30))
    assert max_jobs(tight) == 1
    there = replace(seen, torch={**seen.torch, "build": {**BUILD, "flash_attn": True, "ninja": True}})
    assert observations(there) == [] and observations(computing({EFFICIENT: 4.0})) == []
    assert wheel(replace(seen, torch={"build": BUILD, "versions": {"python": "3.12"}})) is None
    with_ninja = replace(seen, torch={**seen.torch, "build": {**BUILD, "ninja": True}})
    assert not any("pip install ninja" in one.text for one in observations(with_ninja))


@pytest.mark.parametrize(
    ("name", "fp16", "bf16"),
    [
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", True, False),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", False, True),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64", True, False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", False, True),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_nt_align8>(Params)",
            True,
            False,
        ),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>(P)", False, True),
        ("volta_h884gemm_128x128_ldg8_nn", True, False),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", True, False),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", False, False),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(Params)", True, False),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", False, True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::half_t>>(P)", True, False),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>(P)", False, True),
        ("ampere_sgemm_128x64_tn", False, False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32", False, False),
    ],
)
def test_16_bit_kernels_are_told_apart(name: str, fp16: bool, bf16: bool) -> None:
    seen = computing({name: 1.0})
    assert (fp16_share(seen) == 1.0, bf16_share(seen) == 1.0) == (fp16, bf16)


def exchanging(buckets: tuple[int, ...], *, view: bool = False) -> Evidence:
    exchange = ExchangeFacts(
        total=4.0,
        exposed=3.0,
        times=1.0,
        passes=1.0,
        readings=20,
        bytes=sum(buckets),
        buckets=buckets,
        find_unused=False,
        view=view,
    )
    return evidence(LOOP, sections=WORK, on_gpu=False, exchange=exchange)


@pytest.mark.parametrize(
    ("buckets", "words", "cap"),
    [
        ((1_000_000,) * 20, "larger ones", "bucket_cap_mb=50"),
        ((400_000_000,), "smaller ones", "bucket_cap_mb=100"),
        ((25_000_000,) * 4, "overlap", "bucket_cap_mb=50"),
    ],
)
def test_buckets_are_advised_by_their_sizes(buckets: tuple[int, ...], words: str, cap: str) -> None:
    fix = said("T23", exchanging(buckets)).fix
    assert words in fix.text and fix.code is not None and cap in fix.code and "gradient_as_bucket_view" in fix.code
    kept = said("T23", exchanging(buckets, view=True)).fix
    assert kept.code is not None and "gradient_as_bucket_view" not in kept.code


@pytest.mark.parametrize(
    ("count", "size", "words"),
    [(400, 500_000, "larger buckets"), (10, 400_000_000, "smaller buckets"), (50, 25_000_000, "overlap")],
)
def test_all_reduces_of_a_trace_are_advised_by_size_and_number(count: int, size: int, words: str) -> None:
    row = CollectiveRow(
        name="all_reduce",
        group=None,
        size=8,
        count=count,
        total_ns=1,
        median_ns=1,
        longest_ns=1,
        exposed_ns=10_000_000,
        bytes=count * size,
        bus_gb_s=None,
    )
    seen = computing({MATRIX: 5.0})
    facts = msgspec.structs.replace(traced({MATRIX: 5.0}), collectives=[row])
    step = msgspec.structs.replace(seen.step, exposed_comms_ms=3.0)
    finding = said("T23", replace(seen, kind="trace", trace=facts, step=step, steps=10))
    assert words in finding.fix.text


def test_work_on_what_was_copied_from_the_gpu_is_named() -> None:
    plain = stalled("stall")
    down = Copy("d2h", False, True, "train.py:50", 1.0, 3.0, 4e6)
    assert "EMA, metrics" in said("X9", replace(plain, copies=(down,))).summary
    assert "EMA" not in said("X9", plain).summary
    assert "EMA" not in said("X9", replace(plain, copies=(replace(down, where="train.py:9"),))).summary


def test_histograms_are_named() -> None:
    seen = stalled("logging")
    leaf = Spot("logging", "train.py:50", "numpy/lib/_histograms_impl.py:700", 30.0, 50)
    assert "histograms" in said("X8", replace(seen, spots=(leaf,))).summary
    assert "histograms" not in said("X8", seen).summary


def facts(t: float, training: float, others: float, step: int) -> r.Facts:
    seen = {"training": int(training * 1e9), "others": int(others * 1e9), "count": 2, "where": "a.py:3"}
    return r.Facts(t=int(t * 1e9), step=step, python_threads=seen)


def test_cpu_time_of_threads_is_that_of_the_steady_part() -> None:
    log = ProcessLog("x", r.Process(pid=1, ppid=0), [facts(0, 0, 5, 0), facts(10, 4, 6, 10), facts(20, 8, 16, 90)])
    found = thread_facts(log, 5)
    assert found is not None
    assert (found.training, found.others, found.count, found.where) == (0.4, 1.0, 2, "a.py:3")
    assert thread_facts(log, 50) is None, "one reading says no rate"
    ended = ProcessLog("x", r.Process(pid=1, ppid=0), [facts(0, 0, 5, 0), facts(10, 4, 1, 10)])
    gone = thread_facts(ended, 0)
    assert gone is not None and gone.others == 0.0


def table(fetches: list[int]) -> StepTable:
    at = r.STEP_COLUMNS.index("fetches")
    rows = [[count if column == at else 0 for column in range(len(r.STEP_COLUMNS))] for count in fetches]
    return StepTable(rows=rows, kind=r.BY_OPTIMIZER, warmup=0, steady=True, traced=0)


@pytest.mark.parametrize(
    ("fetches", "share"),
    [
        ([1] * 30, 0.0),
        ([1] * 24 + [2] * 6, 6 / 36),
        ([4] * 27 + [8] * 3, 12 / 132),
        ([4] * 29 + [3], 0.0),  # the rest of an epoch
        ([1] * 5, None),
        ([0] * 30, None),
    ],
)
def test_skipped_steps_are_those_that_took_a_multiple_of_the_usual_batches(
    fetches: list[int], share: float | None
) -> None:
    assert skipped_share(table(fetches)) == (None if share is None else pytest.approx(share))


def test_what_a_skipped_step_costs_is_what_it_computed() -> None:
    gain = said("P10", SPEAKS["P10"]).gain
    assert gain is not None and gain.at_most == pytest.approx(1 / 0.8, abs=0.002)
