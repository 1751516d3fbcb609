"""A small machine, one host and two streams, that is run moment by moment: with a cause of waiting, and without it.

It shares no code with underfed, and knows every dependency, also those that happen not to bind.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

CALL, LATENCY, BEHIND, RETURN = 4_000, 3_000, 1_500, 2_500
BEGIN = 1_000_000
NAMES = {
    "compute": "gemm",
    "comms": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "copy": "Memcpy DtoD (Device -> Device)",
}
ROWS = {
    "work": ("cpu_op", "aten::add"),
    "data": ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "allocator": ("cuda_runtime", "cudaMalloc"),
    "gc": ("user_annotation", "Garbage collection"),
}


@dataclass
class Machine:
    """What happened. `without` is the kind of action that takes no time; `speed` shortens the host's own work; `noted`
    writes down which stream waits for which.
    """

    without: str | None = None
    speed: float = 1.0
    seed: int = 0
    noted: bool = False
    now: float = BEGIN
    kernels: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    marks: list = field(default_factory=list)
    waits: list = field(default_factory=list)

    def run(self, script, steps):
        for number in range(steps):
            rng = random.Random(self.seed)
            begin = self.now
            for name, *words in script:
                getattr(self, name)(rng, *words)
            self.marks.append((number, begin, self.now))
        return self

    def end(self):
        return max([self.now, *(kernel["end"] for kernel in self.kernels)]) - BEGIN

    def _last(self, stream):
        return next((kernel["end"] for kernel in reversed(self.kernels) if kernel["stream"] == stream), None)

    def launch(self, rng, stream, units, kind, waits):
        length = units * 50_000 + rng.randrange(49_000)
        call = self.now
        self.now += CALL * self.speed
        free, other = self._last(stream), self._last(1 - stream) if waits else None
        start = max(call + CALL + LATENCY, *(end + BEHIND for end in (free, other) if end is not None), 0)
        if other is not None and self.noted:
            number = 100_000 + 2 * len(self.waits)
            self.rows.append(("cuda_runtime", "cudaEventRecord", call, call, number))
            self.rows.append(("cuda_runtime", "cudaStreamWaitEvent", call, call, number + 1))
            self.waits.append((7 + stream, 8 - stream, number + 1))
        self.rows.append(("cuda_runtime", "cudaLaunchKernel", call, self.now, len(self.kernels)))
        self.kernels.append({"start": start, "end": start + length, "kind": kind, "stream": stream})

    def host(self, rng, kind, units):
        length = units * 50_000 + rng.randrange(49_000)
        if kind == self.without:
            return
        begin = self.now
        self.now += length * (self.speed if kind == "work" else 1.0)
        self.rows.append((*ROWS[kind], begin, self.now, None))

    def sync(self, rng, stream):
        if self.without == "sync":
            return
        begin = self.now
        done = self._last(stream)
        self.now = max(begin + CALL, done + RETURN if done is not None else 0)
        self.rows.append(("cuda_runtime", "cudaStreamSynchronize", begin, self.now, None))

    def trace(self):
        us = 1000
        events = []
        for number, begin, end in self.marks:
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
            events.append({**mark, "ts": begin / us, "dur": (end - begin) / us})
        for number, kernel in enumerate(self.kernels):
            stream = 7 + kernel["stream"]
            cat = "gpu_memcpy" if kernel["kind"] == "copy" else "kernel"
            events.append({"ph": "X", "cat": cat, "name": NAMES[kernel["kind"]], "pid": 0, "tid": stream,
                           "ts": kernel["start"] / us, "dur": (kernel["end"] - kernel["start"]) / us,
                           "args": {"device": 0, "stream": stream, "correlation": number + 1}})  # fmt: skip
        for cat, name, begin, end, number in self.rows:
            args = {} if number is None else {"correlation": number + 1}
            events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": begin / us,
                           "dur": (end - begin) / us, "args": args})  # fmt: skip
        for stream, on, number in self.waits:
            args = {"device": 0, "stream": stream, "wait_on_stream": on, "correlation": number + 1,
                    "wait_on_cuda_event_record_corr_id": number, "cuda_sync_kind": "Stream Wait Event"}  # fmt: skip
            events.append({"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": stream,
                           "ts": 1.0, "dur": 1.0, "args": args})  # fmt: skip
        return json.dumps({"traceEvents": events})


def period(script, steps, **changes):
    """Ns that `steps` of a script take where as many come before them."""
    return Machine(**changes).run(script, 2 * steps).end() - Machine(**changes).run(script, steps).end()
