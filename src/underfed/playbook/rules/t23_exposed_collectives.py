"""Collectives move data for a noticeable part of the step with no computing beside them.

What it looks like
    N cards deliver far less than N times one. In the trace, kernels of NCCL or RCCL run while no compute kernel does.

Why it costs
    DDP and FSDP run collectives on a stream of their own so that they hide behind the backward or forward pass; what is
    not hidden is added to the step.

Fix
    A larger bucket_cap_mb where there are many small all-reduces, a smaller one where one big one comes at the end;
    static_graph instead of find_unused_parameters; no_sync() around all but the last step of gradient accumulation.
    plain PyTorch: `DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=50,
    static_graph=True)`
    HF Trainer:    `TrainingArguments(ddp_bucket_cap_mb=50, ddp_find_unused_parameters=False)`
    Lightning:     `DDPStrategy(gradient_as_bucket_view=True, bucket_cap_mb=50, static_graph=True)`
    Of FSDP, with larger units, and without resharding after forward where memory allows:
    plain PyTorch: `FullyShardedDataParallel(model, forward_prefetch=True,
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE)`
    HF Trainer:    `TrainingArguments(fsdp_config={"forward_prefetch": True, "backward_prefetch": "backward_pre"})`
    Lightning:     `FSDPStrategy(forward_prefetch=True, sharding_strategy="SHARD_GRAD_OP")`
    Remove syncs from the step (X5), which keep collectives from overlapping. Between machines: check that NCCL uses
    the fast network (NCCL_DEBUG=INFO). Sending fewer bits (bf16 gradients, compression hooks) changes the numbers:
    check the loss.

How it is found
    In a trace: the union of the kernels that communicate, less what compute kernels cover. With the traces of all
    ranks, waiting for a late rank is taken off, and only moving data is left. In a run without a GPU: what
    DistributedDataParallel itself times of its exchange, less what backward computing covers and, where all ranks were
    seen, less what each waits for the one that comes last.

When it stays silent
    Where that is below the noise, and on a run whose collectives are hidden.

Not to be confused with
    X13 (the time is spent waiting for a rank that comes late). One rank's trace cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence, ExchangeFacts
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule
from underfed.playbook.switches import trying

if TYPE_CHECKING:
    from underfed.timeline.collectives import CollectiveRow

_SHOWN = 3
#: All-reduces below this many bytes are dominated by what each costs at all; from so many a step that adds up.
_SMALL = 5e6
_MANY = 8
#: With no more than these the first one begins when the backward pass is nearly over.
_FEW = 2


def check(evidence: Evidence) -> Finding | None:
    """Find uncovered communication in a trace, or in what DistributedDataParallel times itself."""
    if evidence.kind == "run":
        return _of_exchange(evidence)
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
    busy = sum(sync.calls for sync in evidence.syncs if sync.call != "empty_cache")
    if busy >= 1:
        observed.append(
            Observation(source="trace", text="syncs in the step, which keep collectives from overlapping", value=busy)
        )
    also = "; this is one rank's trace, so part of it may be waiting for a late rank" if alone else ""
    kinds = {row.name for row in trace.collectives[:_SHOWN]}
    sharded = bool(kinds & {"all_gather", "reduce_scatter"})
    return RULE.finding(
        summary=f"Collectives that no computing covers take {moving:.3g} ms of each {step:.3g} ms step{also}.",
        # Fewer bytes or a better overlap can take away any part of it; how much is for a trial to say.
        gain=gain_between(evidence, step - moving),
        evidence=observed,
        fix=_of_shards() if sharded else _of_reductions(trace.collectives, steps),
    )


def _of_shards() -> Fix:
    return Fix(
        text="prefetch the next shard while computing",
        code="FSDP(model, forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
    )


def _of_reductions(rows: Sequence[CollectiveRow], steps: int) -> Fix:
    """Say which way the buckets should go: by the size and number of the all-reduces, where a trace holds them."""
    row = max((row for row in rows if row.name == "all_reduce"), key=lambda row: row.exposed_ns, default=None)
    size = row.bytes / row.count if row is not None and row.bytes and row.count else None
    if row is None or size is None:
        return Fix(
            text="let the collectives overlap the backward pass",
            code="DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=50)",
        )
    times = row.count / steps
    if size < _SMALL and times >= _MANY:
        return Fix(
            text=f"{times:.0f} all-reduces of {size / 1e6:.2g} MB a step: larger buckets send fewer of them",
            code="DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=50)",
        )
    if times <= _FEW:
        return Fix(
            text=f"{times:.2g} all-reduces of {size / 1e6:.3g} MB a step, at its end: smaller buckets begin earlier",
            code="DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=10)",
        )
    return Fix(
        text="let the collectives overlap the backward pass",
        code="DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=50)",
    )


def _of_exchange(evidence: Evidence) -> Finding | None:
    """Exchanges inside the backward pass of a run without a GPU (on one, the traced window says more)."""
    found, step = evidence.exchange, evidence.step_ms
    if found is None or evidence.on_gpu or step <= 0:
        return None
    uncovered = found.exposed if evidence.skew is None else min(found.exposed, evidence.skew.moving)
    if uncovered < T.worth * step:
        return None
    spare = found.times > 1.5 and found.passes >= found.times
    observed = [
        Observation(source="agent", text="gradient exchange not covered", value=_ms(uncovered), unit="ms/step"),
        Observation(source="agent", text="gradient exchange in all", value=_ms(found.total), unit="ms/step"),
        Observation(source="agent", text="backward passes", value=round(found.passes, 2), unit="a step"),
        Observation(source="agent", text="passes that exchange", value=round(found.times, 2), unit="a step"),
        Observation(source="agent", text="gradients", value=found.bytes / 1e6, unit="MB"),
    ]
    exposed = min(uncovered, evidence.regions.get("backward", 0.0))
    if spare:
        # What is not exchanged is not copied into buckets and back either, which counts as computing: at the most all
        # of the backward pass is that.
        saved = exposed * (1 - 1 / found.times)
        most = evidence.regions.get("backward", 0.0) * (1 - 1 / found.times)
        gain = gain_between(evidence, step - most, (step - min(1.3 * saved, most), step - 0.8 * saved))
        text = f"exchange once a step: {found.times:.0f} of {found.passes:.0f} backward passes do, one has to"
        code = "with model.no_sync() if not last else nullcontext():"
        word: str | None = "no_sync"
    else:
        gain = gain_between(evidence, step - exposed)
        text, code, word = _of_buckets(found)
        if found.find_unused:
            word = None
            text = "find_unused_parameters delays the exchange; static_graph=True where the graph does not change"
            code = "DDP(model, static_graph=True)"
    also = "" if evidence.skew else "; part of it may be waiting for a late rank"
    return RULE.finding(
        summary=f"The backward pass waits for the gradient exchange for {exposed:.3g} of {step:.3g} ms a step{also}.",
        gain=gain,
        evidence=observed,
        fix=Fix(text=text, code=code, try_=trying(word) if word is not None else None),
    )


def _of_buckets(found: ExchangeFacts) -> tuple[str, str, str]:
    """Say what the buckets' number and size leave to gain, whether gradients are copied into them, and what to try."""
    count = len(found.buckets)
    view = ", gradient_as_bucket_view=True" if not found.view else ""
    copies = "" if found.view else ", and without copies (gradient_as_bucket_view)"
    if count >= _MANY and found.bytes / count < _SMALL:
        return (
            f"{count} buckets of {found.bytes / count / 1e6:.2g} MB: fewer and larger ones{copies}",
            f"DDP(model{view}, bucket_cap_mb=50)",
            "bucket_cap_mb=50",
        )
    if count == 1 and found.bytes > _SMALL:
        size = max(1, round(found.bytes / 4e6))
        return (
            f"one bucket of {found.bytes / 1e6:.3g} MB is sent when the backward pass is over: smaller ones begin "
            f"earlier, as far as no single parameter is that large{copies}",
            f"DDP(model{view}, bucket_cap_mb={size})",
            f"bucket_cap_mb={size}",
        )
    return (
        f"let the exchange overlap the backward pass, and send fewer bytes{copies}",
        f"DDP(model{view}, bucket_cap_mb=50)",
        "bucket_cap_mb=50",
    )


def _ms(value: float) -> float:
    return round(value, 3)


RULE = Rule(
    id="T23",
    name="collectives-not-covered",
    stage="comms",
    bound="comms",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
