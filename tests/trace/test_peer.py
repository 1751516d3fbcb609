"""HTA 0.6.1 (`traceinsight`, pandas 3.1.1, as `bench/read/hta.py` asks it) beside the reader, and why it differs.

Its answers are noted here, in whole us of busy time, since it is no dependency of the tests.
"""

from __future__ import annotations

from math import ceil, floor

import pytest
from trace_oracle import DEVICE, SHARED, load, sweep

from underfed.trace import trace_facts

#: Traces of whole us: nothing to round.
EQUAL = {
    "hta/execution_trace__benchmark_simple_add_trace": 16,
    "hta/trace_diff__control__control": 388587,
    "hta/trace_filter__sampled_rank-0": 547656,
    "hta/trace_filter__sampled_rank-1": 580050,
    "hta/with_gpu_user_annotation": 291,
    "kineto-tb/resnet50_legacy_api_nw0": 979604,
    "kineto-tb/resnet50_legacy_api_nw4": 989497,
    "param/dlrm_8rank_worker0": 6590,
    "param/dlrm_8rank_worker1": 12321,
    "param/dlrm_8rank_worker2": 4304,
    "param/dlrm_8rank_worker3": 10708,
    "param/dlrm_8rank_worker4": 7702,
    "param/dlrm_8rank_worker5": 7271,
    "param/dlrm_8rank_worker6": 4359,
    "param/dlrm_8rank_worker7": 2659,
    "param/linear_kineto": 370983,
    "param/resnet_kineto": 4733822,
}
#: Each event is rounded inward to whole us.
ROUNDED = {
    "hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto": 131,
    "hta/nccl_parser_config__nccl_data": 154038,
    "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace": 467886,
    "tracelens/h100__Falconsai_nsfw_image_detection__1016002": 1068,
    "tracelens/h100__gaunernst_bert-small-uncased__1016001": 254,
    "tracelens/inference__sglang_decode__sglang_Qwen3-8B_decode": 9215,
    "tracelens/inference__vllm_decode_full__graph_execution": 10284,
    "tracelens/mi210__gpu_only_trace__gpu_only_trace": 4780,
    "tracelens/mi300__Falconsai_nsfw_image_detection__1016002": 1563,
    "tracelens/mi300__ddp_resnet18_train": 356564,
    "tracelens/mi300__gaunernst_bert-small-uncased__1016001": 327,
    "tracelens/perf_model__normalization__normalization_layer_test": 856,
}
#: Rows of other categories that carry a stream count as work of the GPU: `cuda_sync`, and operators of Triton.
OTHER_ROWS = {
    "hta/critical_path__alexnet__benchmark_result_2869224_1695835535_trace": 66327,
    "hta/critical_path__cuda_event_sync__event_sync_trace": 56,
    "hta/critical_path__cuda_event_sync_multi_stream__event_sync_trace": 374,
    "hta/critical_path__simple_add__benchmark_result_493459_1694039959_trace": 49963,
    "hta/triton_example__triton_example": 94,
    "tracelens/inference__vllm_decode_full__capture_graph_capture_rank_0.1773709742341309550.pt.trace": 420,
}


def here(name):
    path = SHARED / "traces" / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    return path


def busy(path):
    return max(one.totals.busy_ns for one in trace_facts(path).devices)


@pytest.mark.parametrize("name", EQUAL)
def test_where_it_has_nothing_to_round_its_answer_is_ours(name):
    assert busy(here(name)) == EQUAL[name] * 1000


@pytest.mark.parametrize("name", ROUNDED)
def test_elsewhere_rounding_inward_is_what_it_loses(name):
    path = here(name)
    by_device = {}
    for event in load(path):
        if event.get("ph") == "X" and event.get("cat") in DEVICE:
            start, end = ceil(event["ts"]), floor(event["ts"] + event["dur"])
            by_device.setdefault(event["args"]["device"], []).append((start, end, "compute"))
    rounded = max(sweep(rows)["busy"] for rows in by_device.values())
    assert ROUNDED[name] == pytest.approx(rounded, rel=0.01, abs=1)
    assert busy(path) > ROUNDED[name] * 1000


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_and_rows_that_are_no_work_of_the_gpu_are_what_it_has_too_much(name):
    path = here(name)
    others = [event for event in load(path) if event.get("ph") == "X" and event.get("cat") not in DEVICE]
    others = [event for event in others if int(event.get("args", {}).get("stream", -1)) >= 0]
    assert {event["cat"] for event in others} & {"cuda_sync", "cpu_op"}
    assert busy(path) < OTHER_ROWS[name] * 1000
