"""What the tests of pictures share: recordings and traces to draw, a hostile one, and a real browser."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from underfed.pictures import html
from underfed.pictures.material import Material, load
from underfed.trial.records import Arm, Ratio, Trial, Truth, to_json

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
FIXTURES = ROOT / "tests" / "fixtures" / "h200"
RECORDINGS = sorted(path.name.removesuffix(".before") for path in FIXTURES.glob("*.before"))
# A Diagnosis for every taste comes from the tests of the card.
sys.path.insert(0, str(ROOT / "tests" / "report"))
PAYLOADS = (
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "'-window.pwned=1-'",
    "<!--<script>",
    "${window.pwned=1}{{window.pwned=1}}{% raw %}",
    "\u202egnp.exe\u202c\u2066\u2028\u2029\u05d0\u05d1",
    "javascript:window.pwned=1",
    "\x1b[31m\x00\x07",
)


@cache
def recording(name: str) -> Material:
    return load([str(FIXTURES / f"{name}.before")])


def planted(name: str, folder: Path) -> Material:
    """Unpack a recording of a script with a planted fault."""
    kept = json.loads(gzip.decompress((ROOT / f"tests/fixtures/planted/{name}.json.gz").read_bytes()))
    for file, lines in kept.items():
        (folder / file).write_text(lines if isinstance(lines, str) else "\n".join(lines) + "\n", encoding="utf-8")
    return load([str(folder)])


@cache
def page_of(name: str) -> str:
    return html.render(recording(name))


def shared(*patterns: str) -> list[str]:
    """Paths of the shared collections; skips the test where they are missing."""
    found = [str(path) for pattern in patterns for path in sorted(SHARED.glob(pattern))]
    if not found:
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    return found


def hostile_recording(folder: Path) -> Path:
    """Copy a recording and put a payload into every name in it: places, kernels, command, versions."""
    source = FIXTURES / "workers_few.before"
    shutil.copytree(source, folder)
    header = json.loads((folder / "recording.json").read_text())
    header["command"] = list(PAYLOADS)
    header["started"] = PAYLOADS[0]
    (folder / "recording.json").write_text(json.dumps(header))
    turn = 0

    def poisoned(value: Any) -> Any:
        nonlocal turn
        if isinstance(value, dict):
            return {key: one if key in _KEPT else poisoned(one) for key, one in value.items()}
        if isinstance(value, list):
            return [poisoned(one) for one in value]
        if isinstance(value, str) and value not in _WORDS:
            turn += 1
            return PAYLOADS[turn % len(PAYLOADS)] + value
        return value

    for path in folder.glob("p*.jsonl"):
        lines = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.dumps(poisoned(json.loads(line))))
            except ValueError:
                lines.append(line)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in folder.glob("trace-*.json.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for at, event in enumerate(document["traceEvents"]):
            if event.get("cat") == "kernel":
                event["name"] = PAYLOADS[at % len(PAYLOADS)] + event["name"][:40]
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return folder


#: Fields and words that steer the reader: with them changed the file would be no recording any more.
_KEPT = frozenset({"k", "role", "state", "file"})
_WORDS = frozenset({"data", "forward", "backward", "optimizer", "sync", "h2d", "d2h", "stall", "checkpoint", "eval"})


def trial(folder: Path, *arms: Arm, text: str = "") -> Path:
    """Make what `underfed try --out` leaves: a first run, and what the changes did."""
    shutil.copytree(FIXTURES / "workers_few.before", folder / "00-first")
    record = Trial(folder=text, pairs=4, baseline_step_ms=700.0, arms=arms, limits=(text,) if text else ())
    (folder / "trial.json").write_bytes(to_json(record))
    return folder


def arm(name: str = "T4=16", rule: str | None = "T4", **more: object) -> Arm:
    truth = Truth(numerics="exact", numbers="same", ok=True, text="equal")
    gain = Ratio(value=5.52, low=5.31, high=5.74)
    whole = {"outcome": "faster", "text": "5.52x faster", "step_ms": 127.0, "gain": gain, "truth": truth, **more}
    return Arm(name=name, rule=rule, **whole)  # type: ignore[arg-type]


def chromium() -> str | None:
    return next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


class Opened:
    """A report in a browser, with everything that it complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> None:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")


@contextmanager
def browser() -> Iterator[Any]:
    """Start the system's Chromium; skips where it or its driver is missing."""
    program = chromium()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        # In a container the kernel often grants no user namespaces, and root needs the flag anyway.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = driver.chromium.launch(executable_path=program, args=[*flags, "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()
