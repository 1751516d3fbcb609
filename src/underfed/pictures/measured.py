"""How a report's figures came about: what ran, where, what was watched, and by what."""

from __future__ import annotations

import re
import time

import underfed
from underfed.pictures.material import Material
from underfed.recording import records as r
from underfed.report.text import clean
from underfed.report.words import count, milliseconds


def how(material: Material) -> list[tuple[str, str]]:
    """Return terms and what is known of each; what is not known is left out."""
    subject = material.diagnosis.subject
    said = [("looked at", {"run": "a run, watched", "trace": "a trace, read", "live": "a live process"}[subject.kind])]
    said += _of_recording(material)
    said += _of_trace(material)
    said.append(("device", clean(subject.device or "not known", ascii_only=False)))
    if subject.ranks is not None:
        said.append(("ranks", count(subject.ranks)))
    said.append(
        ("steps", f"{count(subject.steps)} counted, {count(subject.warmup_steps)} before them left out as warm-up")
    )
    said.append(("this report", f"underfed {underfed.__version__}, {time.strftime('%Y-%m-%d')}"))
    return said


def _of_recording(material: Material) -> list[tuple[str, str]]:
    recording, log = material.recording, material.log
    if recording is None:
        return []
    said = []
    command, started = recording.header.get("command"), recording.header.get("started")
    if isinstance(command, list) and command:
        words = clean(" ".join(str(word) for word in command[:40]), ascii_only=False)
        said.append(("command", f"{words} (values are never recorded)"))
    if isinstance(started, str):
        said.append(("started", _moment(clean(started, ascii_only=False)[:40])))
    if log is not None:
        parts = [
            f"{name} {clean(value, ascii_only=False)}"
            for name, value in (
                ("Python", log.process.python),
                ("torch", log.process.torch),
                ("CUDA", log.process.cuda),
            )
            if value
        ]
        said.append(("software", ", ".join(parts) or "not known"))
    said.append(
        ("time of steps", "wall clock of the training thread between optimizer steps, with no profiler running")
    )
    window = material.window
    if window is not None:
        said.append(("device time", f"one traced window of {window.steps} steps, device activity only"))
    elif log is not None:
        reason = next((line.reason for line in log.of(r.Trace) if line.reason), None)
        said.append(("device time", f"not traced{': ' + clean(reason, ascii_only=False) if reason else ''}"))
    if recording.processes and not all(one.ended for one in recording.processes):
        said.append(("end", "a process did not end in good order; what it wrote before is here"))
    damaged = sum(one.damaged for one in [*recording.processes, *recording.workers])
    if damaged:
        said.append(("damage", f"{damaged} unreadable lines were left out"))
    return said


def _moment(text: str) -> str:
    """`2026-12-02T10:46:17+0000` as people write it; anything else as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\+00:?00", text)
    return f"{found[1]} {found[2]} UTC" if found else text


def _of_trace(material: Material) -> list[tuple[str, str]]:
    if material.recording is not None or material.facts is None:
        return []
    facts = material.facts
    steps = [step.wall_ns * 1e-6 for step in facts.steps[facts.warmup_steps :]]
    marks = {"profiler": "the profiler's marks", "optimizer": "calls of Optimizer.step", "loader": "batches"}
    said = [("events", f"{facts.events} in the trace")]
    if steps and facts.step_source:
        traced = milliseconds(sum(steps) / len(steps))
        said.append(("time of steps", f"between {marks[facts.step_source]}: {traced} with the profiler running"))
    return said
