"""From a Diagnosis, of a run or of a live look, to the verdict that the view shows."""

from __future__ import annotations

from collections.abc import Sequence

from underfed.diagnose.live_frames import COMMS, DATA, WORK
from underfed.diagnose.live_records import LiveDiagnosis
from underfed.diagnosis import Diagnosis
from underfed.live_view.state import Judged
from underfed.report.words import bound_words, finite, gloss, has_gpu

_WAITS = ("data", "transfer", "sync", "launch", "stall", "comms", "other")


def judged(diagnosis: Diagnosis, at: float) -> Judged:
    """Return a verdict for the view; `at` is its unix time in s."""
    verdict, subject = diagnosis.verdict, diagnosis.subject
    head = diagnosis.live.headline if isinstance(diagnosis, LiveDiagnosis) else None
    first = next((finding for finding in diagnosis.findings if finding.helps_now), None)
    named = next((finding.name for finding in diagnosis.findings if finding.rule == verdict.cause), "")
    parts, of = _of_thread(diagnosis) if isinstance(diagnosis, LiveDiagnosis) else (_of_step(diagnosis), "a step")
    return Judged(
        at=at,
        bound=verdict.bound,
        words=head or f"{bound_words(verdict.bound, subject)} ({gloss(verdict.bound)})",
        confidence=verdict.confidence,
        text=verdict.text,
        cause=verdict.cause,
        name=named,
        fix=None if first is None else f"{first.rule}: {first.fix.text}",
        settle=verdict.settle,
        parts=parts,
        of=of,
        step_ms=finite(diagnosis.step.ms),
        device=subject.device,
        ranks=subject.ranks,
    )


def command_words(words: Sequence[str]) -> str:
    """Return a command for the view's title: its program by its name alone."""
    return " ".join([words[0].rpartition("/")[2], *words[1:]]) if words else "?"


def _of_step(diagnosis: Diagnosis) -> tuple[tuple[str, float], ...]:
    """Shares of the step; what is not known is no zero, but a part of its own with all that the others leave."""
    step, total = diagnosis.step, finite(diagnosis.step.ms)
    if total is None or total <= 0:
        return ()
    values = [("device", step.device_ms), *((name, getattr(step.wait_ms, name)) for name in _WAITS)]
    parts = [(name, known / total) for name, value in values if (known := finite(value)) is not None]
    left = 1.0 - sum(share for _, share in parts)
    return (*parts, ("not split", left)) if len(parts) < len(values) and left > 0 else tuple(parts)


def _of_thread(diagnosis: LiveDiagnosis) -> tuple[tuple[tuple[str, float], ...], str]:
    """Shares of the training thread's time on the rank with most samples: steps are not seen from outside."""
    ranks = [rank for rank in diagnosis.live.ranks if rank.samples]
    if not ranks:
        return (), ""
    rank = max(ranks, key=lambda each: each.samples)
    model = "model" if has_gpu(diagnosis.subject) or diagnosis.subject.device is None else "device"
    sums = dict.fromkeys((model, "data", "sync", "stall", "comms", "other"), 0.0)
    for kind, share in rank.kinds.items():
        sums[_part(kind, model)] += share
    sums["other"] = max(0.0, sums["other"] + 1.0 - sum(sums.values()))
    who = f" of rank {rank.rank}" if len(ranks) > 1 and rank.rank is not None else ""
    return tuple(sums.items()), f"the training thread's time{who}"


def _part(kind: str, model: str) -> str:
    for part, kinds in (("data", DATA), (model, WORK), ("comms", COMMS)):
        if kind in kinds:
            return part
    return "sync" if kind == "sync" else "other" if kind in {"other", "import"} else "stall"
