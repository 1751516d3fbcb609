"""The critical path against a small machine that notes, for each moment, what it waited for."""

from __future__ import annotations

import itertools
import json
import random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from underfed.trace import trace_facts

CALL, LATENCY, BEHIND, RETURN = 4_000, 3_000, 2_000, 2_500
#: Two things that end closer to each other than this could be told apart by no reader of times.
CLEAR = 30_000
KERNELS = {
    "compute": "gemm",
    "comms": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "copy": "Memcpy DtoD (Device -> Device)",
}
KINDS = st.sampled_from(sorted(KERNELS))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.integers(0, 1), st.integers(1, 60), KINDS, st.booleans()),
        st.tuples(st.just("work"), st.integers(1, 60)),
        st.tuples(st.just("data"), st.integers(1, 90)),
        st.tuples(st.just("sync"), st.integers(0, 1)),
    ),
    min_size=2,
    max_size=25,
)  # fmt: skip


class Machine:
    """One host, two streams; every kernel and every return of a sync knows what it waited for."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now = 1_000_000
        self.rows, self.kernels, self.returns = [], [], []
        self.last = [None, None]
        self.ambiguous = False

    def length(self, units):
        return units * 50_000 + self.rng.randrange(49_000)

    def clear(self, one, other):
        self.ambiguous |= abs(one - other) < CLEAR

    def launch(self, stream, units, kind, waits):
        call = self.now
        self.now += CALL
        before = self.last[stream]
        other = self.last[1 - stream] if waits else None
        ends = [(self.kernels[one]["end"] + BEHIND, one) for one in (before, other) if one is not None]
        ready = max(ends, default=(0, None))
        start = max(ready[0], self.now + LATENCY)
        cause = ("kernel", ready[1]) if ready[0] >= self.now + LATENCY else ("host", call)
        if len(ends) == 2:
            self.clear(ends[0][0], ends[1][0])
        if before is not None:
            # A queued kernel that starts right behind the one before it, and one that is launched, look alike else.
            self.clear(self.kernels[before]["end"], call)
        if other is not None:
            self.clear(self.kernels[other]["end"], call)
        self.last[stream] = len(self.kernels)
        self.kernels.append({"start": start, "end": start + self.length(units), "kind": kind, "cause": cause,
                             "stream": stream, "call": call})  # fmt: skip
        self.rows.append(("cudaLaunchKernel", call, self.now, len(self.kernels) - 1))

    def work(self, units):
        begin = self.now
        self.now += self.length(units)
        self.rows.append(("aten::add", begin, self.now, None))

    def data(self, units):
        begin = self.now
        self.now += self.length(units)
        self.rows.append(("enumerate(DataPipe)#Mapper", begin, self.now, None))

    def sync(self, stream):
        begin = self.now
        last = self.last[stream]
        done = self.kernels[last]["end"] + RETURN if last is not None else 0
        self.now = max(begin + CALL, done)
        for kernel in self.kernels:
            self.clear(kernel["end"], begin)
        waited = done > begin + CALL
        self.returns.append((begin, self.now, last if waited else None))
        self.rows.append(("cudaStreamSynchronize", begin, self.now, None))

    def path(self, begin, end):
        """Walk back along the noted causes."""
        found = dict.fromkeys((*KERNELS, "queued", "launch", "sync", "data", "host"), 0)
        last = max(range(len(self.kernels)), key=lambda one: self.kernels[one]["end"])
        at = ("kernel", last) if self.kernels[last]["end"] >= end else ("host", end)
        now = end
        while now > begin:
            if at[0] == "kernel":
                kernel = self.kernels[at[1]]
                found[kernel["kind"]] += now - kernel["start"]
                now, at = kernel["start"], kernel["cause"]
                if at[0] == "kernel":
                    found["queued"] += now - self.kernels[at[1]]["end"]
                    now = self.kernels[at[1]]["end"]
                else:
                    found["launch"] += now - kernel["call"]
                    now = kernel["call"]
                continue
            returned = [one for one in self.returns if one[1] <= now]
            back = returned[-1] if returned else (begin, begin, None)
            self.host(found, back[1], now)
            now = back[1]
            if not returned:
                break
            if back[2] is None:
                found["sync"] += back[1] - back[0]
                now, at = back[0], ("host", back[0])
            else:
                found["sync"] += back[1] - self.kernels[back[2]]["end"]
                now, at = self.kernels[back[2]]["end"], ("kernel", back[2])
        return found

    def host(self, found, begin, end):
        data = sum(max(0, min(b, end) - max(a, begin)) for name, a, b, _ in self.rows if "Data" in name)
        found["data"] += data
        found["host"] += end - begin - data

    def unclear(self):
        """Two moments so close that either could be taken for the cause."""
        ends = sorted(kernel["end"] for kernel in self.kernels)
        return self.ambiguous or any(two - one < CLEAR for one, two in itertools.pairwise(ends))

    def trace(self, end):
        mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1}
        events = [{**mark, "ts": 1000.0, "dur": (self.now - 1_000_000) / 1000}]
        for number, kernel in enumerate(self.kernels):
            cat = "gpu_memcpy" if kernel["kind"] == "copy" else "kernel"
            stream = 7 + kernel["stream"]
            events.append({"ph": "X", "cat": cat, "name": KERNELS[kernel["kind"]], "pid": 0, "tid": stream,
                           "ts": kernel["start"] / 1000, "dur": (kernel["end"] - kernel["start"]) / 1000,
                           "args": {"device": 0, "stream": stream, "correlation": number + 1}})  # fmt: skip
        for name, begin, finish, number in self.rows:
            cat = "cuda_runtime" if name.startswith("cuda") else "user_annotation" if "Data" in name else "cpu_op"
            args = {} if number is None else {"correlation": number + 1}
            events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": begin / 1000,
                           "dur": (finish - begin) / 1000, "args": args})  # fmt: skip
        return json.dumps({"traceEvents": events})


@settings(max_examples=120, deadline=None)
@given(actions, st.integers(0, 99))
@example([("launch", 0, 9, "compute", False), ("launch", 1, 30, "comms", False), ("launch", 0, 2, "copy", True)], 1)
@example([("launch", 0, 40, "compute", False), ("sync", 0), ("data", 20), ("launch", 0, 1, "compute", False)], 2)
def test_the_path_is_what_the_machine_waited_for(tmp_path_factory, script, seed):
    machine = Machine(seed)
    for name, *words in script:
        getattr(machine, name)(*words)
    assume(machine.kernels)
    assume(not machine.unclear())
    end = max(machine.now, *(kernel["end"] for kernel in machine.kernels))
    path = tmp_path_factory.mktemp("path") / "t.json"
    path.write_text(machine.trace(end))
    found = trace_facts(path).devices[0].path
    assert found.whole
    assert found.span_ns == sum(found.by_class.values()) == end - 1_000_000
    expected = machine.path(1_000_000, end)
    names = ("launch", "host", "silent")
    seen = {name: found.by_class.get(name, 0) for name in (*KERNELS, "queued", "sync", "data")}
    assert seen == {name: expected[name] for name in seen}
    assert sum(found.by_class.get(name, 0) for name in names) == expected["launch"] + expected["host"]


def test_a_walk_that_is_cut_short_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("underfed.timeline.critical.MOVES_MOST", 3)
    machine = Machine(0)
    for _ in range(20):
        machine.launch(0, 9, "compute", False)
        machine.now += 100_000
    path = tmp_path / "t.json"
    path.write_text(machine.trace(0))
    found = trace_facts(path).devices[0].path
    assert not found.whole
    assert sum(found.by_class.values()) == found.span_ns
