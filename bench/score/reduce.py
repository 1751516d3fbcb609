"""Make a small fixture of a recording: `python bench/score/reduce.py RECORDING OUT [--most KB]`.

Kept are the lines of all processes and of the machine, and of the trace the device events and the runtime calls that
the reader uses. Absolute paths become relative ones, so that nothing names a machine or a user. A trace that is too
large is cut at the end of one of its steps.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from underfed.recording import records as r

_COLUMN = {name: at for at, name in enumerate(r.STEP_COLUMNS)}
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")
_ARGS = ("device", "stream", "correlation", "bytes")
#: Packages keep the part that says so, since the diagnosis tells the user's own code from a library's by it.
_PACKAGES = re.compile(r'"/[^"]*?/(lib/python[\d.]+/(?:site|dist)-packages/)')
_STANDARD = re.compile(r'"/(?:[^"/]*/)*?(lib/python[\d.]+/)')
_OWN = re.compile(r'"/[^"]*?/(underfed/[^"/]*/[^"]*\.py)')
_OTHER = re.compile(r'"/(?:[^"/]*/)*([^"/]+\.pyw?(?::\d+)?)"')
_FOLDER = re.compile(r'("cwd": ?)"/[^"]*"')


def anonymous(text: str) -> str:
    """Rewrite every absolute path of a program file to a relative one, and the folder it ran in to a dot."""
    text = _FOLDER.sub(r'\1"."', text)
    for pattern in (_PACKAGES, _OWN, _STANDARD):
        text = pattern.sub(r'"\1', text)
    return _OTHER.sub(r'"\1"', text)


def reduced(events: list[dict[str, Any]], base: int, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield what was launched in [begin, end) (unix ns), and the calls of that time; the clock starts at `begin`."""
    shift = (base - begin) / 1000
    runtime = [e for e in events if e.get("cat") in _RUNTIME]
    inside = [e for e in runtime if 0 <= 1000 * (e["ts"] + shift) < end - begin]
    launched = {e["args"]["correlation"] for e in inside}
    device = [e for e in events if e.get("cat") in _DEVICE and e["args"].get("correlation") in launched]
    for event in sorted([*inside, *device], key=lambda e: float(e["ts"])):
        args = {key: event["args"][key] for key in _ARGS if key in event["args"]}
        short = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid")}
        yield {**short, "ts": round(event["ts"] + shift, 3), "dur": event["dur"], "args": args}


def _trace(source: Path, line: dict[str, Any], ends: list[int], most: int) -> tuple[bytes, dict[str, Any]]:
    document = json.loads(source.read_bytes())
    devices = [{key: one[key] for key in ("id", "name", "totalGlobalMem")} for one in document["deviceProperties"]]
    for steps in range(line["steps"], 0, -1):
        end = line["end"] if steps == line["steps"] else ends[steps - 1]
        end_unix = line["begin_unix"] + end - line["begin"]
        events = list(reduced(document["traceEvents"], document["baseTimeNanoseconds"], line["begin_unix"], end_unix))
        head = {"schemaVersion": 1, "deviceProperties": devices, "baseTimeNanoseconds": line["begin_unix"]}
        text = json.dumps({**head, "traceEvents": events}, separators=(",", ":"))
        data = gzip.compress(text.encode(), 9, mtime=0)
        if len(data) <= most:
            return data, {**line, "steps": steps, "end": end, "end_unix": end_unix}
    raise SystemExit(f"{source}: even one step is larger than {most} bytes; give a larger --most")


def reduce(recording: Path, out: Path, most: int) -> None:
    """Write the small copy of one recording into the new folder `out`."""
    out.mkdir(parents=True)
    for path in sorted(recording.glob("p*.jsonl")):
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        rows = [row for line in lines if line["k"] == "steps" for row in line["rows"]]
        kept = []
        for line in lines:
            if line["k"] == "trace" and line.get("file"):
                ends = [row[_COLUMN["end"]] for row in rows if line["begin"] < row[_COLUMN["end"]] <= line["end"]]
                data, line = _trace(recording / line["file"], line, ends, most)  # noqa: PLW2901
                line["file"] += ".gz"
                (out / line["file"]).write_bytes(data)
            kept.append(json.dumps(line, separators=(",", ":")))
        (out / path.name).write_text(anonymous("\n".join(kept) + "\n"))
    for name in ("recording.json", "host.jsonl"):
        (out / name).write_text(anonymous((recording / name).read_text()))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=390, help="KB that the trace may take")
    given = parser.parse_args()
    reduce(given.recording, given.out, given.most * 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
