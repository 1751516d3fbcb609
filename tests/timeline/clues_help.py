"""Writes traces step by step: operators with what they launch, on one host thread and one stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Writer:
    """A trace in the making; all times in us. The device works behind the host, one event after the other."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0.0
        self.device = 0.0
        self.correlation = 0

    def row(self, cat: str, name: str, start: float, length: float, tid: int = 1, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": args}
        )

    def launch(self, kernel: str, length: float, **args: Any) -> None:
        self.correlation += 1
        self.row("cuda_runtime", "cudaLaunchKernel", self.now, 5.0, correlation=self.correlation)
        begin = max(self.device, self.now + 8.0)
        event = {"device": 0, "stream": 7, "correlation": self.correlation, **args}
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": begin, "dur": length, "args": event}
        )
        self.device = begin + length
        self.now += 5.0

    def read(self, size: int = 4) -> None:
        """A copy to the host that is waited for."""
        self.correlation += 1
        start = self.now
        begin = max(self.device, start + 8.0)
        event = {"device": 0, "stream": 7, "correlation": self.correlation, "bytes": size}
        name = "Memcpy DtoH (Device -> Pageable)"
        self.events.append(
            {"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": 7, "ts": begin, "dur": 2.0, "args": event}
        )
        self.device = begin + 2.0
        self.now = self.device + 1.0
        self.row("cuda_runtime", "cudaMemcpyAsync", start, self.now - start, correlation=self.correlation)

    def op(self, name: str, *inner: Any, pause: float = 2.0, cat: str = "cpu_op") -> None:
        """A range around what `inner` does; strings are operators without anything in them."""
        start = self.now
        self.now += pause
        for one in inner:
            one() if callable(one) else self.op(one)
        self.now += pause
        self.row(cat, name, start, self.now - start)

    def rest(self, us: float) -> None:
        self.now += us

    def step(self, number: int, *inner: Any) -> None:
        self.op(f"ProfilerStep#{number}", *inner, cat="user_annotation")

    def write(self, path: Path) -> Path:
        properties = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": self.events}))
        return path
