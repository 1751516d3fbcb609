"""Traces of many ranks from the real trace of one, with a lateness and a transfer time that are known.

Every rank does what the one rank did. At the end of each of its steps, where the device has just finished, an
all-reduce is put in: rank `r` comes `late[r]` ns after the earliest one, the last one's takes `transfer` ns, and all
leave together. Whatever came later in the trace moves back by the same time on all ranks, and rank `r`'s clock is
`clocks[r]` ns ahead. So a rank waits `max(late) - late[r]` in each all-reduce, and nothing else differs.
"""

from __future__ import annotations

import bisect
import gzip
import json
from pathlib import Path
from typing import Any

_NAME = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}


def _is_step(event: dict[str, Any]) -> bool:
    return event.get("cat") == "user_annotation" and str(event.get("name")).startswith("ProfilerStep#")


def cuts_of(events: list[dict[str, Any]]) -> list[float]:
    """Return where the device has finished behind the end of each step, in us."""
    ends = [one["ts"] + one["dur"] for one in events if _is_step(one)]
    busy = sorted((one["ts"], one["ts"] + one["dur"]) for one in events if one.get("cat") in _DEVICE)
    cuts = []
    for end in sorted(ends):
        cut = end
        for begin, until in busy:
            if begin <= cut < until:
                cut = until
        cuts.append(cut)
    return sorted(set(cuts))


def spread(source: Path, folder: Path, *, late: list[int], transfer: int, clocks: list[int]) -> tuple[list[Path], int]:
    """Write one trace a rank; return their paths and how many all-reduces each has."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = [one for one in document["traceEvents"] if one.get("ph") == "X"]
    mark = next(one for one in events if _is_step(one))
    kernel = next(one for one in events if one.get("cat") == "kernel")
    cuts, more, ranks = cuts_of(events), (max(late) + transfer) / 1000, len(late)

    def moved(us: float) -> float:
        return us + more * bisect.bisect_left(cuts, us)

    paths = []
    for rank in range(ranks):
        ahead = clocks[rank] / 1000
        written = []
        for one in events:
            begin, end = moved(one["ts"]), moved(one["ts"] + one["dur"])
            written.append({**one, "ts": round(begin + ahead, 3), "dur": round(end - begin, 3)})
        for number, cut in enumerate(cuts):
            begin = cut + more * number + late[rank] / 1000 + ahead
            length = (max(late) - late[rank] + transfer) / 1000
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": mark["pid"]}
            launch |= {"tid": mark["tid"], "ts": round(begin - 8, 3), "dur": 5.0}
            args = {"device": kernel["args"]["device"], "stream": 99, "correlation": 90_000_000 + number}
            notes = {
                "Collective name": "allreduce",
                "In msg nelems": 1_000_000,
                "Out msg nelems": 1_000_000,
                "Group size": ranks,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Ranks": "[0, ..., " + str(ranks - 1) + "]",
                "Seq": number,
            }
            put = {"ph": "X", "cat": "kernel", "name": _NAME, "pid": kernel["pid"], "tid": 99, "args": args | notes}
            written.append({**launch, "args": {"correlation": args["correlation"]}})
            written.append({**put, "ts": round(begin, 3), "dur": round(length, 3)})
        said = {"backend": "nccl", "rank": rank, "world_size": ranks}
        paths.append(folder / f"rank{rank}.pt.trace.json.gz")
        text = json.dumps({**document, "distributedInfo": said, "traceEvents": written})
        paths[-1].write_bytes(gzip.compress(text.encode(), 1))
    return paths, len(cuts)
