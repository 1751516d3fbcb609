"""The labelled cases: what is known of each run, and what the diagnosis says of it now.

Five sources. `h200`: recordings of `underfed run` under tests/fixtures/h200. `planted`: recordings of the scripts under
tests/planted, kept by keep.py. `zoo`, `alone` (without the step's time) and `public`: traces beside the repository,
read as `underfed read` does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keep import KEPT, PLANTED, unpack

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.diagnosis import Diagnosis, Finding
from underfed.recording.read import read
from underfed.trace import rank_facts
from underfed.trace.meaning import diagnosis_of

ROOT = Path(__file__).resolve().parents[2]
H200 = ROOT / "tests" / "fixtures" / "h200"
SHARED = ROOT.parent / "shared"
#: Whose trace is shorter than what gates the run, so that no tool can tell it from the trace.
NOT_SCORED = frozenset({"transform_heavy"})
#: Device share of a fixed run from which it computes all the time, so that the fixed fault must draw no advice.
FED = 0.9


@dataclass(frozen=True)
class Case:
    """One labelled run. `bounds` and `rules` hold every answer that is right first; `gain` is the true one.

    `quiet`: no finding may help. `never`: rules that may not. `misses`: aspects that the evidence is known not to show.
    """

    source: str
    name: str
    bounds: tuple[str, ...]
    rules: tuple[str, ...]
    gain: float | None
    found: Diagnosis
    quiet: bool = False
    never: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()

    @property
    def scenario(self) -> str:
        """What is left out together in cross-validation: the same fault, however it was recorded."""
        return self.name.partition(".")[0]

    @property
    def helping(self) -> list[Finding]:
        """The findings that are said to help now."""
        return [finding for finding in self.found.findings if finding.helps_now]

    @property
    def first(self) -> Finding | None:
        """The finding that is shown first."""
        return next(iter(self.helping), None)

    @property
    def bound_right(self) -> bool:
        """Whether the bound is one that the label accepts."""
        return self.found.verdict.bound in self.bounds

    @property
    def hit(self) -> bool:
        """Whether the planted fault is named first."""
        return self.first is not None and acceptable(self.first, self.rules)

    @property
    def alarms(self) -> list[str]:
        """Rules that are said to help and must not be."""
        return [one.rule for one in self.helping if self.quiet or acceptable(one, self.never)]

    @property
    def scored_gain(self) -> tuple[float, float | None, float | None, float] | None:
        """True gain, expected range and bound of the finding that names the planted fault; None where not scored."""
        finding = next((one for one in self.found.findings if acceptable(one, self.rules)), None)
        if not self.gain or finding is None or finding.gain is None:
            return None
        low, high = finding.gain.expected or (None, None)
        if self.source == "planted" and finding.rule in _TAKEN_OUT:
            low = high = None
        return self.gain, low, high, finding.gain.at_most


#: The planted scripts' fix takes the work per sample out altogether; these rules expect that it gets cheaper.
_TAKEN_OUT = frozenset({"T8", "X3"})


def acceptable(finding: Finding, rules: tuple[str, ...]) -> bool:
    """Tell whether the label accepts a rule; `X:word` is any rule outside the numbering with that word in its name."""
    words = [rule[2:] for rule in rules if rule.startswith("X:")]
    return finding.rule in rules or (finding.rule.startswith("X") and any(word in finding.name for word in words))


def h200() -> Iterator[Case]:
    """Recordings of `underfed run` on a GPU."""
    for name, label in json.loads((H200 / "labels.json").read_text(encoding="utf-8")).items():
        found = diagnose(read(H200 / f"{name}.before"), read_window)
        rules = tuple(label["rules"])
        yield Case("h200", name, (label["class"],), rules, label["gain"], found, quiet=not rules)


def planted() -> Iterator[Case]:
    """Recordings of the planted scripts; the true gain is that of the same script without its fault."""
    steps = KEPT / "steps.json"
    truths = json.loads(steps.read_text(encoding="utf-8")) if steps.is_file() else {}
    for label in PLANTED:
        file = KEPT / f"{label.id}.json.gz"
        if not file.is_file():
            continue
        with tempfile.TemporaryDirectory() as folder:
            unpack(file, Path(folder))
            found = diagnose(read(Path(folder)), None)
        before, after = truths.get(label.id, (None, None))
        gain = before / after if before and after and label.rules else None
        rules = label.rules
        yield Case("planted", label.id, label.bounds, rules, gain, found, label.quiet, label.never)


def zoo() -> Iterator[Case]:
    """Traces of the labelled GPU runs, with the step's true time given; those of the fixed runs must draw no advice."""
    for truth_file in sorted((SHARED / "zoo").glob("*/*/truth.json")):
        truth, trace = json.loads(truth_file.read_text(encoding="utf-8")), truth_file.parent / "trace.json.gz"
        if not trace.is_file() or truth["name"] in NOT_SCORED:
            continue
        found = diagnosis_of(rank_facts(trace), [trace.name], truth["step_ms"])
        rules = tuple(word for word in truth["rules"].split("/") if word != "-")
        name = f"{truth['name']}.{truth['variant']}"
        if truth["variant"] == "after":
            if truth["device_share"] >= FED:
                yield Case("zoo", name, ("compute",), (), None, found, never=rules)
            continue
        seen = truth["trace_shows_cause"] or not rules
        bounds = (truth["cls"],) if seen else (truth["cls"], "unknown")
        gain = _gain(truth, truth_file.parent.parent / "after" / "truth.json") if seen else None
        yield Case("zoo", name, bounds, rules if seen else (), gain, found, quiet=not rules or not seen)


def alone() -> Iterator[Case]:
    """The same traces as they come, without the step's true time: the faulted runs and the healthy one."""
    for truth_file in sorted((SHARED / "zoo").glob("*/before/truth.json")):
        truth, trace = json.loads(truth_file.read_text(encoding="utf-8")), truth_file.parent / "trace.json.gz"
        if not trace.is_file() or truth["name"] in NOT_SCORED:
            continue
        rules = tuple(word for word in truth["rules"].split("/") if word != "-")
        seen = truth["trace_shows_cause"] or not rules
        bounds = (truth["cls"],) if seen else (truth["cls"], "unknown")
        found = diagnosis_of(rank_facts(trace), [trace.name])
        misses = () if seen else ("bound",)
        label = rules if seen else ()
        yield Case("alone", truth["name"], bounds, label, None, found, quiet=not label, misses=misses)


#: Scenarios whose pair says nothing of the gain: the fixed run was limited by something else, or has another batch.
_NO_GAIN = frozenset({"store_slow", "tiny_batch", "healthy_resnet"})


def _gain(before: dict[str, float], after: Path) -> float | None:
    if before["name"] in _NO_GAIN or not after.is_file():
        return None
    return float(before["step_ms"] / json.loads(after.read_text(encoding="utf-8"))["step_ms"])


#: Public traces whose answer is published or plain: two pairs of a loader without and with workers, and traces without
#: a device, of which no tool can say what gates the run.
_PUBLIC: tuple[tuple[str, tuple[str, ...], tuple[str, ...], float | None, tuple[str, ...]], ...] = (
    ("kineto-tb/resnet50_nw0", ("data",), ("T4",), 154.7 / 128.2, ()),
    ("kineto-tb/resnet50_legacy_api_nw0", ("data",), ("T4",), 153.0 / 142.8, ()),
    ("kineto-tb/resnet50_nw4", ("compute", "host"), (), None, ("T4", "T5", "T8", "U8")),
    ("kineto-tb/resnet50_legacy_api_nw4", ("compute", "host"), (), None, ("T4", "T5", "T8", "U8")),
    ("hta/cpu_only_rank34_full", ("unknown",), (), None, ("T4", "T15")),
    ("hta/rank_non_gpu__rank_non_gpu", ("unknown",), (), None, ("T4", "T15")),
)


def public() -> Iterator[Case]:
    """Traces by other people, without the step's true time."""
    for name, bounds, rules, gain, never in _PUBLIC:
        trace = SHARED / "traces" / f"{name}.json.gz"
        if trace.is_file():
            found = diagnosis_of(rank_facts(trace), [trace.name])
            yield Case("public", name.partition("/")[2], bounds, rules, gain, found, never=never)


SOURCES = {"h200": h200, "planted": planted, "zoo": zoo, "alone": alone, "public": public}
