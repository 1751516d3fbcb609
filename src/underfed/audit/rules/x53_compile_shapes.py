"""torch.compile in a project whose shapes change from step to step.

Why it costs
    A new shape breaks the compiled function's guards, so it compiles again: tens of seconds each. After eight times
    torch gives up and runs the function as if it had never been compiled; with CUDA graphs (mode "reduce-overhead")
    every shape records a graph of its own.

Fix
    dynamic=True, or few shapes: pad_to_multiple_of, buckets, drop_last=True.

When it stays silent
    dynamic=True, mark_dynamic, or padding to a fixed length; without dynamic=False or CUDA graphs torch makes a size
    dynamic when it changes for the first time, so that is only possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.x48_cudnn_search import RANDOM_SIZE

_CHANGES = (
    r"\bpad_sequence\(|padding\s*=\s*(True|[\"']longest[\"'])|DataCollatorWithPadding|DataCollatorForSeq2Seq"
    r"|RandomResize\b|RandomShortestSize|ResizeShortestEdge|multi_?scale_train"
    rf"|{RANDOM_SIZE}"
)
_FIXED = r"mark_dynamic|pad_to_multiple_of|[\"']max_length[\"']|pad_to_max_length|dynamic\s*=\s*True"
_GRAPHS = ("reduce-overhead", "max-autotune")


def check(code: Code) -> Iterator[Hit]:
    """Find compilations that meet changing shapes."""
    if not code.project.mentions(_CHANGES) or code.project.mentions(_FIXED):
        return
    for call in code.calls:
        if code.module.called(call) != "torch.compile":
            continue
        mode = code.value(code.keyword(call, "mode"))
        if any(k.arg is None for k in call.keywords):
            continue
        text = "shapes change from step to step here, and"
        if code.is_false(call, "dynamic"):
            yield Hit(call, f"{text} dynamic=False compiles anew for each of them", "likely")
        elif mode.known and mode.value in _GRAPHS:
            level: Sure = "likely" if not mode.is_default else "possible"
            yield Hit(call, f"{text} mode {mode.value!r} records a CUDA graph for each of them", level)
        else:
            yield Hit(call, f"{text} a new one compiles again", "possible")


RULE = AuditRule(
    id="X53",
    name="compile-meets-changing-shapes",
    settle="TORCH_LOGS=recompiles, or `underfed run`: compilations after the warm-up",
    doc=__doc__ or "",
    check=check,
)
