"""Collectives move data for a noticeable part of the step with no computing beside them.

What it looks like
    N cards deliver far less than N times one. In the trace, kernels of NCCL or RCCL run while no compute kernel does.

Why it costs
    DDP and FSDP run collectives on a stream of their own so that they hide behind the backward or forward pass; what is
    not hidden is added to the step.

Fix
    DDP: gradient_as_bucket_view=True; a larger bucket_cap_mb where there are many small all-reduces, a smaller one
    where one big one comes at the end; static_graph=True instead of find_unused_parameters=True; no_sync() around all
    but the last step of gradient accumulation. FSDP: forward_prefetch=True, backward_prefetch=BACKWARD_PRE, larger
    units, reshard_after_forward=False where memory allows. Remove syncs from the step (X5), which keep collectives from
    overlapping. Between machines: check that NCCL uses the fast network (NCCL_DEBUG=INFO). Sending fewer bits (bf16
    gradients, compression hooks) changes the numbers: check the loss.

How it is found
    The union of the kernels that communicate, less what compute kernels cover. With the traces of all ranks, waiting
    for a late rank is taken off, and only moving data is left.

When it stays silent
    Where that is below the noise, and on a run whose collectives are hidden.

Not to be confused with
    X13 (the time is spent waiting for a rank that comes late). One rank's trace cannot tell the two apart.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_SHOWN = 3


def check(evidence: Evidence) -> Finding | None:
    """Find uncovered communication in a trace."""
    trace, step = evidence.trace, evidence.step_ms
    exposed = evidence.step.exposed_comms_ms
    if trace is None or evidence.kind != "trace" or exposed is None or step <= 0:
        return None
    alone = evidence.skew is None
    moving = exposed if evidence.skew is None else min(exposed, evidence.skew.moving)
    if moving < T.worth * step:
        return None
    steps = max(1, evidence.steps)
    observed = [Observation(source="trace", text="uncovered collectives", value=round(moving, 3), unit="ms/step")]
    for row in trace.collectives[:_SHOWN]:
        size = "" if row.size is None else f" over {row.size} ranks"
        rate = "" if row.bus_gb_s is None else f", at least {row.bus_gb_s:.3g} GB/s over the links"
        observed.append(
            Observation(
                source="trace",
                text=f"{row.count / steps:.3g} {row.name}{size} a step, uncovered{rate}",
                value=round(row.exposed_ns * 1e-6 / steps, 3),
                unit="ms/step",
            )
        )
    also = "; this is one rank's trace, so part of it may be waiting for a late rank" if alone else ""
    kinds = {row.name for row in trace.collectives[:_SHOWN]}
    sharded = bool(kinds & {"all_gather", "reduce_scatter"})
    return RULE.finding(
        summary=f"Collectives that no computing covers take {moving:.3g} ms of each {step:.3g} ms step{also}.",
        # Fewer bytes or a better overlap can take away any part of it; how much is for a trial to say.
        gain=gain_between(evidence, step - moving),
        evidence=observed,
        fix=Fix(
            text="prefetch the next shard while computing"
            if sharded
            else "let the collectives overlap the backward pass",
            code="FSDP(..., forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)"
            if sharded
            else "DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=50)",
        ),
    )


RULE = Rule(
    id="T23",
    name="collectives-not-covered",
    stage="comms",
    bound="comms",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
