"""From the facts of one trace, or of one a rank, to a Diagnosis that says how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from underfed.diagnose.assemble import assemble
from underfed.diagnose.split import shares
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Confidence, Device, Diagnosis, Finding, Observation, Subject, Verdict
from underfed.playbook.evidence import Evidence, RankFacts, SkewFacts
from underfed.playbook.rules.x13_late_rank import summary as late_summary
from underfed.timeline import hostcalls as h
from underfed.timeline.facts import DeviceFacts, TraceFacts
from underfed.timeline.ranks import Skew
from underfed.trace.dilation import StepTime
from underfed.trace.evidence import evidence_of, steady_steps
from underfed.trace.late import ranks_of, skew_between

_MS = 1e-6
#: Steps below which a trace can fall between two bursts of a loader with workers: a few times the usual number of them.
_BURSTS = 40
#: Two bounds whose shares of the step are closer than this cannot be told apart by a few steps.
_CLOSE = 0.10
#: Observations that rest on a stand-in or a conclusion (see evidence._HALF and _settings) and not on the trace.
_NOT_SEEN = frozenset({"CPU time of one fetch", "torch.get_float32_matmul_precision() is 'highest'"})


#: Rules whose fix takes away what the trace was replayed without, and how that is called.
_REPLAYED = {
    "T4": (h.DATA, "any wait for data"),
    "T5": (h.DATA, "any wait for data"),
    "T6": (h.TRANSFER, "copies that block"),
    "X5": (h.SYNC, "waits for results"),
    "M8": (h.ALLOCATOR, "calls of the allocator"),
    "T15": (h.LAUNCH, "most of the host's work between launches"),
}


def diagnosis_of(facts: Sequence[TraceFacts], paths: Sequence[str], step_ms: float | None = None) -> Diagnosis:
    """Say what the traces mean; `step_ms` is the time of a step measured without the profiler."""
    seen = [(one, *evidence_of(one, step_ms)) for one in facts]
    numbers, odd = ranks_of(facts)
    skew, between, apart = skew_between(facts, numbers)
    chosen, evidence, time = seen[_late(seen, numbers, skew)]
    limits = (*evidence.limits, *odd, *apart, *_limits(chosen, evidence, time))
    evidence = replace(evidence, ranks=_ranks(seen, numbers, between), skew=between, limits=limits)
    subject = Subject(
        kind="trace",
        paths=list(paths),
        ranks=len(set(numbers)),
        steps=steady_steps(chosen) or None,
        warmup_steps=chosen.warmup_steps,
        device=evidence.device_name or ("GPU" if evidence.on_gpu else "CPU"),
    )
    found = assemble(evidence, subject)
    verdict = _judged(found.verdict, chosen, evidence, time)
    return msgspec.structs.replace(
        found,
        verdict=_about_ranks(verdict, found.findings, evidence),
        device=[
            _device(number, device)
            for one, number in zip(facts, _shown_ranks(facts, numbers), strict=True)
            for device in one.devices
        ]
        or None,
        findings=[_from_trace(finding, chosen) for finding in found.findings],
    )


def _late(seen: list[tuple[TraceFacts, Evidence, StepTime]], numbers: list[int], skew: Skew | None) -> int:
    """Place of the rank whose budget the step is: the one that the others wait for, by their collectives, or else the
    one that waits least itself.
    """
    if skew is not None and skew.late:
        worst = max((one for one in skew.ranks if one.rank in skew.late), key=lambda one: one.caused_ns)
        return numbers.index(worst.rank)
    return max(range(len(seen)), key=lambda at: _own_ms(seen[at][1]))


def _about_ranks(verdict: Verdict, findings: Sequence[Finding], evidence: Evidence) -> Verdict:
    """Say what collectives cost as far as the traces can tell, and who is late where that costs something.

    Whether a collective waits for other ranks or moves data is for the rules to say, which know whether all are here.
    """
    text = verdict.text
    if verdict.bound == "comms":
        text = next((one.summary for one in findings if one.rule == verdict.cause), text)
    skew = evidence.skew
    if skew is not None and skew.waiting >= T.worth * evidence.step_ms and verdict.cause != "X13":
        text = f"{text} {late_summary(skew)}"
    if skew is not None and skew.late and verdict.bound == "compute":
        text = text.replace("The GPU computes", f"The GPU of rank {', '.join(map(str, skew.late))} computes", 1)
    return msgspec.structs.replace(verdict, text=text)


def _shown_ranks(facts: Sequence[TraceFacts], numbers: list[int]) -> list[int | None]:
    """Ranks as the records name them: of one trace what it says itself."""
    return [facts[0].rank] if len(facts) == 1 else list(numbers)


def _own_ms(evidence: Evidence) -> float:
    return evidence.step_ms - (evidence.step.exposed_comms_ms or 0.0)


def _ranks(
    seen: list[tuple[TraceFacts, Evidence, StepTime]], numbers: list[int], skew: SkewFacts | None
) -> tuple[RankFacts, ...]:
    """One entry a rank; none where the collectives say that no rank in particular is waited for."""
    if len(seen) < 2 or (skew is not None and not skew.late):
        return ()
    found = []
    for number, (_, evidence, _) in zip(numbers, seen, strict=True):
        waits = evidence.wait_ms
        own = _own_ms(evidence)
        if skew is not None and number in skew.late:
            own = evidence.step_ms
        found.append(RankFacts(number, evidence.step_ms, own, waits.get("data", 0.0), waits.get("stall", 0.0)))
    return tuple(found)


def _device(rank: int | None, device: DeviceFacts) -> Device:
    totals = device.totals
    return Device(
        id=device.id,
        rank=rank,
        span_ms=totals.span_ns * _MS,
        busy_ms=totals.busy_ns * _MS,
        compute_ms=totals.compute_ns * _MS,
        copy_ms=totals.copy_ns * _MS,
        comms_ms=totals.comms_ns * _MS,
        exposed_comms_ms=totals.exposed_comms_ns * _MS,
    )


def _limits(facts: TraceFacts, evidence: Evidence, time: StepTime) -> list[str]:
    limits = []
    steps = evidence.steps
    if steps == 0:
        limits.append("no steps are marked in the trace: all figures are for the whole of it")
    elif facts.step_source != "profiler":
        what = {
            "range": "one range that the script named as a step",
            "optimizer": "the time between two calls of Optimizer.step",
        }.get(facts.step_source or "", "the time between two batches of the loader")
        limits.append(f"the profiler marked no steps: a step is {what}")
    if facts.main is None and (facts.counts.runtime or evidence.on_gpu):
        limits.append("the run uses a GPU, but the trace holds no GPU activity: record with ProfilerActivity.CUDA")
    if not time.given and steps:
        low, high = time.low * _MS, time.high * _MS
        limits.append(
            f"the profiler slows the host: the traced step is {time.traced * _MS:.3g} ms, an untraced one is estimated "
            f"at {low:.3g} to {high:.3g} ms; --step-ms takes the true one"
        )
    if time.given and steps and time.likely > 1.3 * time.traced:
        limits.append(
            f"the untraced step ({time.likely * _MS:.3g} ms) is longer than the traced one ({time.traced * _MS:.3g} "
            "ms): what makes it long is not in this trace"
        )
    if _may_hide_data(facts):
        limits.append(
            f"{steps or 'a few'} steps are fewer than some bursts of a loader with workers: that the run waits for "
            "data at other times cannot be ruled out from this trace"
        )
    return limits


def _may_hide_data(facts: TraceFacts) -> bool:
    alone = facts.loader is not None and not facts.loader.workers
    return not alone and steady_steps(facts) < _BURSTS


def _judged(verdict: Verdict, facts: TraceFacts, evidence: Evidence, time: StepTime) -> Verdict:
    """Set the confidence by what a trace can show.

    The device's work and the waits of a few steps are exact; what is uncertain is the step that they are held against,
    and what happened outside of the trace.
    """
    confidence: Confidence = "low"
    bound = verdict.bound
    device = (evidence.step.device_ms or 0.0) / _MS
    low, high = time.untraced(device)
    apart = high < T.compute_share - T.unsure or low > T.compute_share + T.unsure
    hidden = bound != "data" and _may_hide_data(facts)
    held = shares(evidence.step)
    if bound == "data" and (evidence.step.wait_ms.data or 0.0) < (evidence.step.copy_ms or 0.0):
        # Copies of input that keep the device from computing count as data, as in the split.
        held["data"] += (evidence.step.copy_ms or 0.0) / evidence.step_ms
    first, second, *_ = sorted(held.values(), reverse=True)
    clear = bound == "compute" or first - second >= _CLOSE
    if bound != "unknown" and evidence.steps >= 2 and apart and clear and evidence.on_gpu:
        confidence = "low" if hidden and not time.given else "medium"
        if not hidden and evidence.steps >= T.few_steps and time.given:
            confidence = "high"
    settle = verdict.settle
    if confidence != "high":
        settle = "underfed run -- COMMAND"
        if not time.given and evidence.steps:
            settle = "the step's time without the profiler, as --step-ms; underfed run -- COMMAND measures it"
    return msgspec.structs.replace(verdict, confidence=confidence, settle=settle)


def _from_trace(finding: Finding, facts: TraceFacts) -> Finding:
    """Name the trace as the source of what the rules saw in it: there was no agent. Add what a replay without it says.

    Where the rule's fix takes another cause away than the replay does, the words say which one it is.
    """
    kept = [
        msgspec.structs.replace(one, source="trace")
        for one in finding.evidence
        if one.text not in _NOT_SEEN and (one.unit is None or one.value is not None)
    ]
    return msgspec.structs.replace(finding, evidence=[*kept, *_replayed(finding, facts)], where=finding.where or None)


def _replayed(finding: Finding, facts: TraceFacts) -> list[Observation]:
    """What the step would take without the cause, by the dependency graph."""
    cause, words = _REPLAYED.get(finding.rule, (None, ""))
    found = [one for one in facts.what_if.causes if one.cause == cause] if facts.what_if is not None else []
    if not found or found[0].expected_ns is None or not finding.helps_now:
        return []
    least, most = found[0].best_ns * _MS, found[0].expected_ns[1] * _MS
    text = f"step replayed without {words}: {least:.3g} ms at the least, and likely no more than"
    return [Observation(source="trace", text=text, value=most, unit="ms")]
