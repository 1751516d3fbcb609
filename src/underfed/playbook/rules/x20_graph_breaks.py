"""A compiled model falls apart into many graphs, with Python in between.

What it looks like
    torch.compile gives little or nothing, or costs more than it brings; a profile shows many CompiledFunction ranges a
    step.

Why it costs
    Where the tracer meets something that it cannot follow (item(), print, a library call, a branch on a value), it ends
    the graph, runs Python, and begins another. Nothing is fused across the border, CUDA graphs cannot span it, and each
    piece checks its guards again.

Fix
    The reasons say what to take out of the compiled part: .item() and prints above all. TORCH_LOGS=graph_breaks
    lists all.
    plain PyTorch: `torch.compile(model, fullgraph=True)` makes the first break an error while you look for them
    HF Trainer:    no switch for fullgraph: compile so before the Trainer is made, and train with torch_compile=True
    Lightning:     `model = torch.compile(model, fullgraph=True)` before `trainer.fit(model)`, while you look for
    them
    `torch.compiler.disable(log)` moves the border to where it costs nothing. Compiling only the repeated block is
    often enough.

How it is found
    Dynamo's own counters of graphs and breaks, with the reasons that it notes.

When it stays silent
    Without torch.compile, and with a break or two.

Not to be confused with
    T16: compiling again and again during training. Breaks outside the hot part cost nothing: see what a trial says.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_BREAKS = 5


def check(evidence: Evidence) -> Finding | None:
    """Find a compiled program with many breaks."""
    dynamo = evidence.torch.get("dynamo") or {}
    breaks, graphs = dynamo.get("graph_breaks", 0), dynamo.get("unique_graphs", 0)
    if breaks < _BREAKS or graphs < 2:
        return None
    launch, device = evidence.wait_ms.get("launch", 0.0), evidence.step.device_ms
    step = evidence.step_ms
    known = evidence.on_gpu and device is not None and launch > 0 and step > 0
    return RULE.finding(
        summary=f"The compiled code is in {graphs} graphs with {breaks} breaks; whole graphs launch and fuse better.",
        # How much of the launching falls to the pieces is for a trial to say.
        gain=gain_between(evidence, max(0.5 * (device or 0.0), step - launch)) if known else None,
        evidence=[
            Observation(source="agent", text="graphs", value=float(graphs), unit="graphs"),
            Observation(source="agent", text="breaks", value=float(breaks), unit="breaks"),
            *[Observation(source="agent", text=f"break: {reason}") for reason in (dynamo.get("reasons") or [])[:3]],
        ],
        bound=evidence.bound_of_device_code(),
        fix=Fix(
            text="take what breaks the graph out of the compiled part",
            code="model = torch.compile(model, fullgraph=True)  # names the first break",
        ),
        helps_now=known,
        note=None if known else "what the breaks cost is not known from this run: a trial tells",
    )


RULE = Rule(
    id="X20",
    name="compiled-in-many-graphs",
    stage="kernels",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
