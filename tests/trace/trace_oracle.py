"""A second opinion on traces, in plain Python: whole-document JSON, decimal times, a sweep over every moment.

Shares no code with underfed and takes no short cuts.
"""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

DEVICE = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
COMMS_WORDS = ("nccl", "rccl")
ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def shared_traces() -> list[Path]:
    """Every trace of the two shared collections; empty where they are missing."""
    return sorted([*SHARED.glob("traces/*/*.json*"), *SHARED.glob("zoo/*/*/trace.json.gz")])


def load(path: Path) -> list[dict] | None:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    document = json.loads(raw, parse_float=Decimal)
    return document if isinstance(document, list) else document.get("traceEvents")


def ns(value) -> int:
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def device_events(events) -> list[tuple[int, int, int, str]]:
    """(device, start, end, class) of each kernel, copy and memset."""
    found = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in DEVICE:
            continue
        args = event.get("args", {})
        device = args.get("device", event.get("pid"))
        start = ns(event["ts"])
        kind = "compute"
        if event["cat"].lower() != "kernel":
            kind = "copy"
        elif any(word in event["name"].lower() for word in COMMS_WORDS):
            kind = "comms"
        found.append((device, start, start + ns(event["dur"]), kind))
    return found


def sweep(intervals: list[tuple[int, int, str]]) -> dict[str, int]:
    """Walk over every moment at which anything starts or ends, and count what is active in between."""
    moments: dict[int, list[tuple[str, int]]] = {}
    for start, end, kind in intervals:
        if end > start:
            moments.setdefault(start, []).append((kind, 1))
            moments.setdefault(end, []).append((kind, -1))
    active = {"compute": 0, "copy": 0, "comms": 0}
    totals = dict.fromkeys(("span", "busy", "compute", "copy", "comms", "exposed_comms", "exposed_copy"), 0)
    before = None
    for moment in sorted(moments):
        if before is not None:
            length = moment - before
            totals["span"] += length
            for kind, count in active.items():
                if count:
                    totals[kind] += length
            if any(active.values()):
                totals["busy"] += length
            if active["comms"] and not active["compute"]:
                totals["exposed_comms"] += length
            if active["copy"] and not active["compute"] and not active["comms"]:
                totals["exposed_copy"] += length
        for kind, change in moments[moment]:
            active[kind] += change
        before = moment
    return totals


def device_totals(events) -> dict[int, dict[str, int]]:
    by_device: dict[int, list[tuple[int, int, str]]] = {}
    for device, start, end, kind in device_events(events):
        by_device.setdefault(device, []).append((start, end, kind))
    return {device: sweep(rows) for device, rows in by_device.items()}
