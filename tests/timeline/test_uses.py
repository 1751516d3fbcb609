"""Kernels by name, shape and module against a plain join by External id; eligibility of products case by case."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from underfed.timeline.eligible import eligible
from underfed.timeline.within import Nested
from underfed.trace import trace_facts

SHARED = Path(__file__).resolve().parents[3] / "shared"
TRACES = (
    "zoo/attn_math/before/trace.json.gz",
    "traces/tracelens/mi300__ddp_resnet18_train.json.gz",
    "traces/tracelens/h100__Falconsai_nsfw_image_detection__1016002.json.gz",
    "traces/tracelens/perf_model__normalization__normalization_layer_test.json.gz",
)
CALLS = ("cuda_runtime", "cuda_driver")


class Plain:
    """One trace as a whole document, and joins over all of it."""

    def __init__(self, path, warmup):
        raw = gzip.decompress(path.read_bytes())
        self.events = [e for e in json.loads(raw, parse_float=Decimal)["traceEvents"] if e.get("ph") == "X"]
        ops = [e for e in self.events if e["cat"] == "cpu_op"]
        self.by_id = {e["args"]["External id"]: e for e in ops if "External id" in e["args"]}
        self.by_number = defaultdict(list)
        for op in ops:
            if "Sequence number" in op["args"]:
                self.by_number[op["args"]["Sequence number"]].append(op)
        self.nodes = [e for e in ops if e["name"].startswith("autograd::engine::evaluate_function:")]
        self.modules = [e for e in self.events if e["name"].startswith("nn.Module: ")]
        self.ranges = [
            e for e in self.events
            if e["cat"] == "user_annotation" and not e["name"].startswith(("ProfilerStep#", "enumerate(DataLoader)"))
        ]  # fmt: skip
        marks = [e for e in self.events if e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep#")]
        stepping = [e for e in self.events if e["name"].startswith("Optimizer.step#") and e["cat"] == "user_annotation"]
        ends = sorted(e["ts"] + e["dur"] for e in stepping)
        # Without marks a step runs from the end of one Optimizer.step to the next.
        between = [{"ts": a, "dur": b - a} for a, b in itertools.pairwise(ends)]
        self.steps = sorted(marks, key=lambda e: e["ts"])[warmup:] or between

    @staticmethod
    def around(events, moment, thread):
        holding = [
            e for e in events
            if (e["pid"], e["tid"]) == thread and e["ts"] <= moment < Decimal(e["ts"]) + Decimal(e["dur"])
        ]  # fmt: skip
        return max(holding, key=lambda e: (e["ts"], -e["dur"]), default=None)

    def module(self, call):
        thread, moment = (call["pid"], call["tid"]), call["ts"]
        inside = self.around(self.modules, moment, thread)
        node = self.around(self.nodes, moment, thread) if inside is None and self.modules else None
        if node is not None:
            numbered = self.by_number.get(node["args"].get("Sequence number"), [node])
            first = min(numbered, key=lambda e: e["ts"])
            if first["ts"] < node["ts"]:
                inside = self.around(self.modules, first["ts"], (first["pid"], first["tid"]))
        inside = inside or self.around(self.ranges, moment, thread)
        return inside["name"].removeprefix("nn.Module: ") if inside else None

    def table(self):
        calls = {}
        for event in self.events:
            if event["cat"] in CALLS and "correlation" in event["args"]:
                calls.setdefault(event["args"]["correlation"], event)
        found = defaultdict(lambda: [0, 0])
        for event in self.events:
            if event["cat"] != "kernel":
                continue
            call = calls.get(event["args"]["correlation"])
            if call is None or (self.steps and not any(s["ts"] <= call["ts"] < s["ts"] + s["dur"] for s in self.steps)):
                continue
            op = self.by_id.get(event["args"].get("External id"))
            dims = op["args"].get("Input Dims") if op else None
            key = event["name"][:2048], op["name"] if op else None, text(dims), self.module(call)
            found[key][0] += 1
            found[key][1] += int((event["dur"] * 1000).to_integral_value())
        return found


def text(dims):
    if dims is None:
        return None
    return ", ".join(
        "-" if not one or not isinstance(one, list)
        else "x".join(map(str, one)) if not isinstance(one[0], list)
        else "[list]"
        for one in dims[:8]
    ) + (", ..." if len(dims) > 8 else "")  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_the_table_is_a_plain_join(name, monkeypatch):
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    monkeypatch.setattr("underfed.timeline.facts.KERNELS_KEPT", 10**6)
    facts = trace_facts(path)
    wanted, uses = Plain(path, facts.warmup_steps).table(), facts.uses
    assert sum(one.total_ns for one in uses) == sum(total for _, total in wanted.values())
    found = defaultdict(lambda: [0, 0])
    for one in uses:
        shape = one.shape
        if shape is not None and "[" in shape:
            # Lists of tensors are shown by their first members; here they are all one.
            shape = ", ".join("[list]" if part.startswith("[") else part for part in split(shape))
        found[one.name, one.operator, shape, one.module][0] += one.count
        found[one.name, one.operator, shape, one.module][1] += one.total_ns
    assert dict(found) == dict(wanted)


def split(shape):
    parts, depth, word = [], 0, ""
    for sign in shape:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            parts.append(word.strip())
            word = ""
        else:
            word += sign
    return [*parts, word.strip()]


def test_modules_reach_the_backward_pass():
    path = SHARED / TRACES[1]
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    uses = trace_facts(path).uses
    backward = [one for one in uses if one.operator == "aten::native_batch_norm_backward"]
    assert backward and all(one.module.startswith("BatchNorm2d_") for one in backward)


def test_what_a_trace_does_not_hold_is_unknown(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_nn", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{**kernel, "args": {"device": 0, "stream": 7, "correlation": 1}}]}))
    (one,) = trace_facts(path).uses
    assert (one.operator, one.shape, one.types, one.module) == (None, None, None, None)
    assert (one.cores, one.eligible) == ("no", "unknown")
    assert trace_facts(path).tensor_cores == {"no": {"unknown": 2000}}


HALF, FLOAT, DOUBLE = '["c10::BFloat16", "c10::BFloat16"]', '["float", "float"]', '["double", "double"]'


@pytest.mark.parametrize(
    ("operator", "dims", "types", "card", "answer"),
    [
        ("aten::mm", "[[64, 128], [128, 32]]", HALF, (8, 0), "yes"),
        ("aten::mm", "[[64, 127], [127, 32]]", HALF, (8, 0), "misaligned"),
        ("aten::mm", "[[64, 128], [128, 32]]", HALF, (6, 1), "no"),
        ("aten::mm", "[[64, 128], [128, 32]]", HALF, None, "yes"),
        ("aten::mm", "[[64, 128], [128, 32]]", FLOAT, (9, 0), "yes"),
        ("aten::mm", "[[64, 128], [128, 33]]", FLOAT, (9, 0), "misaligned"),
        ("aten::mm", "[[64, 128], [128, 32]]", FLOAT, (7, 5), "no"),
        ("aten::mm", "[[64, 128], [128, 32]]", FLOAT, None, "unknown"),
        ("aten::mm", "[[64, 128], [128, 32]]", DOUBLE, (8, 6), "no"),
        ("aten::mm", "[[64, 128], [128, 32]]", DOUBLE, (8, 0), "yes"),
        ("aten::mm", "[[64, 128], [128, 32]]", '["float", "c10::Half"]', (8, 0), "unknown"),
        ("aten::addmm", "[[32], [64, 128], [128, 32]]", '["float", "c10::Half", "c10::Half"]', (8, 0), "yes"),
        ("aten::conv2d", "[[8, 3, 32, 32], [64, 3, 7, 7]]", HALF, (8, 0), "misaligned"),
        ("aten::conv2d", "[[8, 64, 32, 32], [64, 64, 3, 3]]", HALF, (8, 0), "yes"),
        ("aten::mm", None, HALF, (8, 0), "unknown"),
        ("aten::mm", "[[64, 128], [128, 32]]", None, (8, 0), "unknown"),
        ("aten::mm", "[[]", HALF, (8, 0), "unknown"),
        ("aten::mm", '["x", {}]', HALF, (8, 0), "unknown"),
        ("triton_gemm", "[[64, 128], [128, 32]]", HALF, (8, 0), "unknown"),
        (None, "[[64, 128], [128, 32]]", HALF, (8, 0), "unknown"),
    ],
)
def test_which_products_tensor_cores_could_do(operator, dims, types, card, answer):
    assert eligible(operator, dims, types, card) == answer


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_innermost_interval_is_found(data):
    spans = []

    def nest(begin, end, depth):
        at = begin
        while at < end and len(spans) < 60 and depth < 6:
            first = data.draw(st.integers(at, end))
            last = data.draw(st.integers(first, end))
            if last > first:
                spans.append((first, last, data.draw(st.integers(0, 1)) if depth == 0 else spans[-1][2]))
                thread = spans[-1][2]
                if data.draw(st.booleans()):
                    before = len(spans)
                    nest(first, last, depth + 1)
                    spans[before:] = [(a, b, thread) for a, b, _ in spans[before:]]
            at = last + 1

    nest(0, 200, 0)
    moments = data.draw(st.lists(st.tuples(st.integers(-5, 205), st.integers(0, 2)), max_size=20))
    start, end, thread = (np.array([one[at] for one in spans], np.int64) for at in range(3))
    nested = Nested(np.arange(len(spans)) + 100, start, end, thread)
    found = nested.around(
        np.array([one for one, _ in moments], np.int64), np.array([one for _, one in moments], np.int64)
    )
    for (moment, on), row in zip(moments, found.tolist(), strict=True):
        holding = [at for at, (a, b, t) in enumerate(spans) if t == on and a <= moment < b]
        if not holding:
            assert row == -1
        else:
            inner = min(holding, key=lambda at: spans[at][1] - spans[at][0])
            assert spans[row - 100] == spans[inner]
