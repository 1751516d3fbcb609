"""From evidence to a Diagnosis: the bound, the findings of all rules in order, and the sentence."""

from __future__ import annotations

import math
from dataclasses import replace

from underfed.diagnose.sentence import sentence
from underfed.diagnose.split import Split, lower, split
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Diagnosis, Finding, Subject, Verdict
from underfed.playbook.evidence import Evidence
from underfed.playbook.registry import RULES
from underfed.playbook.switches import with_trials

_HIDDEN_COLLECTIVES = (
    "several ranks exchange gradients inside the backward pass, "
    "and on a CPU-only run that is not told apart from computing"
)
_STAGES = ("box", "dataloader", "free", "precision", "kernels", "memory", "comms")


def findings_of(evidence: Evidence) -> list[Finding]:
    """Ask every rule, in cost order."""
    return [finding for rule in RULES if (finding := rule.check(evidence)) is not None]


def _middle(finding: Finding) -> float:
    if finding.gain is None:
        return 1.0
    if finding.gain.expected is None:
        return finding.gain.at_most
    return math.sqrt(finding.gain.expected[0] * finding.gain.expected[1])


def ranked(findings: list[Finding], evidence: Evidence) -> list[Finding]:
    """Order findings: those of the actual bound first, in the order of what their fixes cost, then by their worth.

    A cheap fix goes before a dear one unless it is worth next to nothing beside it. A finding of another
    bound, or one too small to notice, cannot help now; it is kept below with the reason. One that adds to the step
    whatever gates it comes behind those of the bound.
    """
    order = {rule.id: at for at, rule in enumerate(RULES)}
    judged = []
    for finding in findings:
        if not finding.helps_now:
            judged.append(finding)
        elif evidence.bound not in (finding.bound, "unknown") and not _beside(finding, evidence):
            note = finding.note or f"the step is {evidence.bound}-bound: this is not what gates it now"
            judged.append(_set_aside(finding, note))
        elif _middle(finding) < 1 + T.worth:
            judged.append(_set_aside(finding, finding.note or "worth less than this machine's noise"))
        else:
            judged.append(finding)
    best = max((_middle(finding) for finding in judged if finding.helps_now), default=1.0)

    def key(finding: Finding) -> tuple[bool, bool, bool, int, float, int]:
        matters = _middle(finding) - 1 >= T.cheap_first * (best - 1)
        stage = _STAGES.index(finding.stage) if matters else 0
        other = evidence.bound not in (finding.bound, "unknown")
        place = order.get(finding.rule, len(order))
        return (not finding.helps_now, other, not matters, stage, -_middle(finding), place)

    return sorted(judged, key=key)


def _beside(finding: Finding, evidence: Evidence) -> bool:
    """Whether a fix surely takes its time off a step that something else gates: without a GPU one thing is done after
    the other, and what ranks exchange needlessly, or wait for, is no part of the computing.
    """
    expected = finding.gain.expected if finding.gain is not None else None
    alone = evidence.kind == "run" and not evidence.on_gpu and finding.bound == "comms"
    return alone and expected is not None and expected[0] >= 1 + T.beside


def _set_aside(finding: Finding, note: str) -> Finding:
    import msgspec

    changed: Finding = msgspec.structs.replace(finding, helps_now=False, note=note)
    return changed


def assemble(evidence: Evidence, subject: Subject, *, steady: bool = True) -> Diagnosis:
    """Decide the bound, ask the rules, and put the answer into words."""
    decided: Split = split(evidence.step, steps=evidence.steps, steady=steady, on_gpu=evidence.on_gpu)
    untold = evidence.torch.get("distributed") and evidence.exchange is None
    if decided.bound == "compute" and not evidence.on_gpu and untold:
        decided = Split("unknown", None, "low", _HIDDEN_COLLECTIVES)
    crowded = _crowded(evidence) if decided.bound in ("compute", "comms") else None
    if crowded is not None:
        decided = replace(decided, confidence=lower(decided.confidence), why=crowded)
    evidence = replace(evidence, bound=decided.bound)
    findings = with_trials(ranked(findings_of(evidence), evidence))
    cause = next((finding for finding in findings if finding.helps_now and finding.bound == decided.bound), None)
    limits = list(evidence.limits)
    if not steady:
        limits.append("step times had not settled; the figures are a mean over what was seen")
    if crowded is not None:
        what = "computing" if decided.bound == "compute" else "the exchange between ranks"
        limits.append(f"{crowded}; what is called {what} holds that wait")
    if 0 < evidence.steps < T.few_steps:
        limits.append(f"only {evidence.steps} steady step{'s were' if evidence.steps > 1 else ' was'} seen")
    settle = None
    if decided.confidence != "high":
        settle = "the same run with CPUs to spare" if crowded is not None else _settle(evidence)
    return Diagnosis(
        subject=subject,
        verdict=Verdict(
            bound=decided.bound,
            cause=cause.rule if cause else None,
            confidence=decided.confidence,
            text=sentence(evidence, decided, cause, next((one for one in findings if one.helps_now), None)),
            settle=settle,
        ),
        step=evidence.step,
        findings=findings,
        limits=limits,
    )


#: CPUs kept busy by others from which they are named as what the training thread waited for.
_NOTABLE = 0.5


def _crowded(evidence: Evidence) -> str | None:
    """Say how long the training thread wanted a CPU and had none, where that spoils a CPU-only run's figures."""
    wait = evidence.cpu_wait
    if evidence.on_gpu or wait is None or wait < T.crowded_thread:
        return None
    others = evidence.cpus.others if evidence.cpus else None
    whose = ""
    if others is not None:
        beside = f"processes beside the run kept {others:.1f} CPUs busy"
        whose = f"; {beside}" if others >= _NOTABLE else "; the run's own processes and threads kept them busy"
    share = 100 * wait / (1 + wait)
    return f"the training thread had no CPU for {share:.0f} % of the time in which it wanted one{whose}"


def _settle(evidence: Evidence) -> str | None:
    if evidence.on_gpu and evidence.step.device_ms is None:
        return "underfed run --window 10 -- COMMAND, for at least 60 steps"
    if evidence.steps < T.enough_steps:
        return f"a run of at least {2 * T.enough_steps} steps"
    if (evidence.step.wait_ms.other or 0.0) > T.other_share * evidence.step_ms:
        return "a longer run: more stack samples say what the rest is"
    return None
