"""Attention writes its full score matrix to memory instead of using a fused kernel.

What it looks like
    Softmax, masking, scaling and copy kernels over T x T scores, and no flash, memory-efficient or cuDNN attention.

Why it costs
    The scores of every head are written and read five or six times, forward and backward, where a fused kernel keeps
    them on the chip. The cost grows with the square of the sequence.

Fix
    plain PyTorch: `F.scaled_dot_product_attention(q, k, v, is_causal=True)`; of nn.MultiheadAttention:
    `attention(x, x, x, need_weights=False)`
    HF Trainer:    `AutoModel.from_pretrained(name, attn_implementation="sdpa")`, the model before the Trainer is
    made
    Lightning:     no switch: the same calls in the module's forward()
    With 16-bit inputs and without an explicit mask where possible. To be told when it falls back: `with
    torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): ...` torch has a flash kernel of
    its own. Where code asks for the flash-attn package, take the wheel of the same CUDA, torch, C++ ABI and Python;
    a build needs ninja, and MAX_JOBS that the memory has room for: the finding works both out.

How it is found
    Softmax kernels that are not of the loss, and no fused attention kernel, in the traced window. Without a GPU,
    softmax operators among batched products, and no fused attention operator.

When it stays silent
    When a fused attention kernel runs, and when softmax is a small part.

Not to be confused with
    A large vocabulary, whose loss is a log-softmax.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.flash_build import observations
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, shares
from underfed.playbook.rule import Rule

_SHARE = 0.03


def check(evidence: Evidence) -> Finding | None:
    """Find softmax over scores without any fused attention."""
    if not evidence.on_gpu:
        return _operators(evidence)
    found = shares(evidence)
    if found is None or found.fused_attention or found.softmax < _SHARE:
        return None
    # The scores are touched by two products, scaling, mask, softmax and casts, forward and backward; softmax is one of
    # five or six passes over them, and nearly all of that traffic goes away.
    softmax = found.softmax
    likely = tuple(after(evidence, (min(0.85, passes * softmax), 1e9)) for passes in (5.5, 4.0))
    best = after(evidence, (min(0.95, 7 * softmax), 1e9))
    place = evidence.top("forward")
    return RULE.finding(
        summary="Attention writes its full score matrix; a fused kernel (SDPA) would keep it on the chip.",
        gain=gain_between(evidence, best, (likely[0], likely[1])),
        where=place.where if place else None,
        evidence=[
            Observation(source="trace", text="softmax over scores", value=round(softmax, 3), unit="of kernel time"),
            Observation(source="trace", text="no fused attention kernel was seen"),
            *observations(evidence),
        ],
        fix=Fix(
            text="use scaled_dot_product_attention with inputs that its fused kernels take",
            code="out = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
    )


def _operators(evidence: Evidence) -> Finding | None:
    found = evidence.operators
    if found is None or any("scaled_dot_product" in name or "flash" in name for name in found.counts):
        return None
    calls = found.counts.get("aten::_softmax", 0.0)
    products = sum(found.counts.get(name, 0.0) for name in ("aten::bmm", "aten::baddbmm"))
    own = sum(found.own_ms.values())
    if not calls or products < 2 * calls or own <= 0:
        return None
    softmax = sum(found.own_ms.get(name, 0.0) for name in ("aten::_softmax", "aten::_softmax_backward_data")) / own
    if softmax < _SHARE:
        return None
    product = sum(found.own_ms.get(name, 0.0) for name in ("aten::bmm", "aten::baddbmm")) / own
    # The products stay, in blocks that fit a cache; the passes of softmax over memory go, not what they compute.
    step = evidence.step_ms
    place = evidence.top("forward")
    return RULE.finding(
        summary="Attention writes its full score matrix; scaled_dot_product_attention would keep it in the cache.",
        gain=gain_between(
            evidence,
            step * max(0.05, 1 - softmax - 0.7 * product),
            (step * (1 - softmax), step * (1 - 0.3 * softmax)),
        ),
        where=place.where if place else None,
        evidence=[
            Observation(source="agent", text="softmax over scores", value=round(softmax, 3), unit="of operator time"),
            Observation(source="agent", text="no fused attention operator was seen"),
        ],
        fix=Fix(
            text="use scaled_dot_product_attention; with nn.MultiheadAttention pass need_weights=False",
            code="out = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
    )


RULE = Rule(
    id="T14",
    name="attention-materializes-scores",
    stage="kernels",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
