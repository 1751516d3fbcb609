"""The numbers of the field's manual of slow training, and what underfed has for each.

T numbers are about throughput, U about rented machines, M about memory, P about precision. Some are rules here under
the same number; others are part of another rule, of advice that `underfed box` gives, or of a command.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number: what it is about, the rules and commands that answer it, and what is missing."""

    id: str
    about: str
    rules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands that answer it beside the rules, as words."""
    missing: str | None = None
    """What of it is not covered, and why; everything where there are neither rules nor commands."""

    @property
    def covered(self) -> bool:
        """Whether anything answers it."""
        return bool(self.rules or self.commands)


def _n(name: str, about: str, rules: str = "", *commands: str, missing: str | None = None) -> Number:
    return Number(id=name, about=about, rules=tuple(rules.split()), commands=commands, missing=missing)


_SNAPSHOT = "the rule says that memory grows and gives the lines; what holds it is for torch's own viewer to show"

NUMBERS: tuple[Number, ...] = (
    _n("T1", "which resource gates the step", "T1", "run", "attach", "read"),
    _n("T2", "utilization reads high while the device starves", "T2", "box", "attach"),
    _n("T3", "a quick look at who is busy; too many threads", "T3 X21", "attach"),
    _n("T4", "no or too few loader workers", "T4"),
    _n("T5", "workers that restart at each epoch", "T5"),
    _n("T6", "pageable or blocking copies", "T6"),
    _n("T7", "bursty fetches and a shallow queue", "T7"),
    _n("T8", "slow storage against a heavy transform", "T8 U8 X40 X41"),
    _n("T9", "TF32 off for 32-bit matrix products", "T9"),
    _n(
        "T10",
        "cuDNN's search for the fastest convolution",
        "T10 X47 X48",
        "try cudnn_benchmark",
    ),
    _n("T11", "channels_last for convolutions under mixed precision", "T11"),
    _n("T12", "gradients filled with zeros, debugging aids left on", "T12 X49 X11"),
    _n("T13", "16-bit mixed precision for speed", "T13"),
    _n("T14", "attention that stores its scores; flash-attn", "T14 X17 X50 X51"),
    _n("T15", "many short kernels: torch.compile, CUDA graphs", "T15 X20 X52"),
    _n("T16", "recompiles, changing shapes", "T16 X52"),
    _n("T17", "activation checkpointing although memory is free", "T17 X54"),
    _n("T18", "micro-batch too small", "T18"),
    _n("T19", "a torch.profiler trace, and reading it", "T1", "run --window", "read"),
    _n("T20", "an Nsight Systems trace, and reading it", "T15 X5", "read"),
    _n("T21", "stacks of a live process", "", "attach", "box"),
    _n("T22", "memory snapshots: what allocated the memory", "M18", missing=_SNAPSHOT),
    _n("T23", "collectives that nothing covers", "T23 X13 X56 X57 X58 X60"),
    _n("U8", "hot data on slow storage", "U8", "box"),
    _n("U9", "workers against the memory limit", "U9 T4", "box"),
    _n("U10", "memory of the card that others hold, fragmentation", "", "box"),
    _n("U17", "hung, or only slow", "", "attach"),
    _n("U21", "utilization misleads (T2)", "T2", "box", "attach"),
    _n("U23", "clocks held down by heat or power", "U23", "box"),
    _n("U24", "the order of the loader's knobs", "T5 X2 T4 T6 T7 X1 T8"),
    _n("U25", "many small files", "U25 X41", "box", missing="a run counts the bytes of a sample, not its files"),
    _n("U28", "torch and CUDA that do not fit the driver", "", "box"),
    _n("U38", "the device at 0 %: transforms one by one on the CPU", "T4 T8 X3"),
    _n("U40", "more threads than the CPU quota", "T3 X61", "box"),
    _n("M5", "accumulation instead of a larger micro-batch", "M5 T18 X58"),
    _n("M6", "16-bit activations", "T13"),
    _n("M7", "activation checkpointing: when it pays", "T17 X54"),
    _n("M8", "fragmented memory; expandable segments", "M8 X12"),
    _n("M18", "memory_summary", "M18", missing=_SNAPSHOT),
    _n("M19", "memory snapshot and its viewer", "M18", missing=_SNAPSHOT),
    _n("P1", "which precision", "T13 T9"),
    _n("P2", "TF32 is off unless asked for", "T9"),
    _n("P3", "bf16 needs Ampere or later", "P3"),
    _n(
        "P4", "where autocast belongs", "T13", missing="the fix says where; a wrong place in a script is not looked for"
    ),
    _n("P5", "fp16 needs a scaler", "P5"),
    _n("P6", "bf16 needs no scaler", "X55"),
    _n(
        "P7",
        "clip after unscaling",
        "P5",
        "try",
        missing="the order of calls is not looked for; a trial refuses a change that spoils the loss",
    ),
    _n(
        "P8",
        "where NaN comes from",
        "T12",
        "try",
        missing="a trial refuses a change that brings NaN; which operator brings it anomaly detection says (T12)",
    ),
    _n("P9", "anomaly detection costs", "T12"),
    _n("P10", "fp16 overflow: steps that the scaler skips", "P10"),
    _n("P19", "determinism against speed", "P19 X47", "try cudnn_benchmark"),
)


def number(wanted: str) -> Number | None:
    """Return a number of the manual by its id, in any case."""
    return next((each for each in NUMBERS if each.id.lower() == wanted.strip().lower()), None)


def words(each: Number, names: dict[str, str]) -> str:
    """Return a number's answer for a terminal; `names` has the name of each rule by its id."""
    lines = [f"{each.id}: {each.about}"]
    if each.rules:
        lines += ["", "Rules that answer it"] + [f"  {name:<4} {names.get(name, '')}".rstrip() for name in each.rules]
    if each.commands:
        lines += ["", "Commands that answer it"] + [f"  underfed {name}" for name in each.commands]
    if each.missing:
        lines += ["", "Not covered", f"  {each.missing}"]
    return "\n".join(lines) + "\n"
