"""Tables of kernels, copies, launches and collectives against plain loops over the whole document."""

from __future__ import annotations

import itertools
from collections import defaultdict
from statistics import quantiles

import pytest
from trace_oracle import SHARED, load, ns

from underfed.trace import trace_facts

TRACES = (
    "zoo/pageable/before/trace.json.gz",
    "zoo/item_sync/before/trace.json.gz",
    "traces/hta/nccl_parser_config__nccl_data.json.gz",
    "traces/tracelens/inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz",
    "traces/tracelens/mi300__ddp_resnet18_train.json.gz",
)
LAUNCHING = ("Launch", "Memcpy", "Memset")
WIDTHS = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Int": 4, "Double": 8, "Byte": 1}


class Document:
    """One trace, and the device events that its figures are about: launched in a steady step, else all."""

    def __init__(self, path, warmup):
        self.events = [event for event in load(path) if event.get("ph") == "X"]
        self.calls = defaultdict(list)
        for event in self.events:
            if event["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {}):
                self.calls[event["args"]["correlation"]].append(event)
        marks = [e for e in self.events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"]
        marks = sorted(marks, key=lambda event: event["ts"])[warmup:]
        stepping = [e for e in self.events if e["name"].startswith("Optimizer.step#") and e["cat"] == "user_annotation"]
        ends = sorted(e["ts"] + e["dur"] for e in stepping)
        self.spans = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in marks]
        if not marks and len(ends) >= 3:
            self.spans = [(ns(a), ns(b)) for a, b in itertools.pairwise(ends)]
        every = [e for e in self.events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.device = [e for e in every if self.inside(e)]

    def call(self, event):
        calls = self.calls.get(event["args"]["correlation"], [])
        launching = [one for one in calls if any(word in one["name"] for word in LAUNCHING)]
        return next(iter(launching or calls), None)

    def inside(self, event):
        if not self.spans:
            return True
        call = self.call(event)
        return call is not None and any(begin <= ns(call["ts"]) < end for begin, end in self.spans)


@pytest.fixture(params=TRACES)
def both(request):
    path = SHARED / request.param
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    facts = trace_facts(path)
    return Document(path, facts.warmup_steps), facts


def test_the_tables_are_plain_sums(both):
    document, facts = both
    lengths = defaultdict(list)
    copies = defaultdict(lambda: [0, 0, 0])
    for event in document.device:
        if event["cat"] == "kernel":
            lengths[event["name"][:2048]].append(ns(event["dur"]))
        elif event["cat"] == "gpu_memcpy":
            of = copies[event["name"].split()[1], "Pinned" in event["name"], "Pageable" in event["name"]]
            of[0] += 1
            of[1] += ns(event["dur"])
            of[2] += int(event["args"]["bytes"])
    assert facts.kernel_names == len(lengths)
    for row in facts.kernels:
        mine = sorted(lengths[row.name])
        assert (row.count, row.total_ns, row.longest_ns) == (len(mine), sum(mine), mine[-1])
        assert row.median_ns == mine[len(mine) // 2]
    found = {(r.direction, r.pinned is True, r.pinned is False): [r.count, r.total_ns, r.bytes] for r in facts.copies}
    assert found == dict(copies)

    delays, begins, ends = [], [], []
    for event in document.device:
        call = document.call(event)
        if call is not None:
            begins.append(ns(call["ts"]))
            ends.append(ns(event["ts"]) + max(0, ns(event["dur"])))
            delays.append(max(0, ns(event["ts"]) - ns(call["ts"]) - ns(call["dur"])))
    launches = facts.launches
    assert launches.unmatched_events == len(document.device) - len(delays)
    if len(delays) > 1:
        tenths = quantiles(delays, n=10, method="inclusive")
        middle = (launches.delay_p10_ns, launches.delay_p50_ns, launches.delay_p90_ns)
        assert middle == pytest.approx((tenths[0], tenths[4], tenths[8]), abs=1)
        moments = sorted(begins)[::50]
        depth = [max(0, sum(one < now for one in begins) - sum(one <= now for one in ends)) for now in moments]
        assert launches.starved_share == pytest.approx(sum(one == 0 for one in depth) / len(depth), abs=0.15)
        assert launches.depth_p50 == pytest.approx(sorted(depth)[len(depth) // 2], abs=max(2, 0.2 * max(depth)))


def test_collectives_are_as_the_profiler_noted_them(both):
    document, facts = both
    device = facts.main.id
    noted = defaultdict(lambda: [0, 0, 0])
    for event in document.device:
        args = event["args"]
        if event["cat"] == "kernel" and "nccl" in event["name"].lower() and args["device"] == device:
            elements = max(int(args.get("In msg nelems", -1)), int(args.get("Out msg nelems", -1)))
            of = noted[args.get("Process Group Name"), args.get("Group size")]
            of[0] += 1
            of[1] += ns(event["dur"])
            of[2] += elements * WIDTHS.get(args.get("dtype"), 0)
    found = defaultdict(lambda: [0, 0, 0])
    for row in facts.collectives:
        found[row.group, row.size][0] += row.count
        found[row.group, row.size][1] += row.total_ns
        found[row.group, row.size][2] += row.bytes or 0
        if row.bus_gb_s is not None:
            share = (row.size - 1) / row.size * (2 if row.name == "all_reduce" else 1)
            assert row.bus_gb_s == pytest.approx(share * row.bytes / row.total_ns)
    assert {key: value[:2] for key, value in found.items()} == {key: value[:2] for key, value in noted.items()}
    for key, (_, _, size) in noted.items():
        assert size < 0 or key[0] is None or found[key][2] == size


def test_graph_launches_are_counted():
    path = SHARED / "traces/tracelens/inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz"
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    launches = [event for event in load(path) if "GraphLaunch" in str(event.get("name")) and event.get("ph") == "X"]
    facts = trace_facts(path)
    assert facts.launches.graphs == len(launches) > 0
    assert any("graph" in limit for limit in facts.limits)
