"""Attention runs a fused kernel, but not the fastest one: an input rules it out.

What it looks like
    Kernels of the memory-efficient backend (fmha_cutlass) where flash or cuDNN attention would be expected.

Why it costs
    scaled_dot_product_attention chooses among its backends by what they accept. Flash attention takes 16-bit inputs, no
    explicit mask and heads of up to 256; anything else falls back in silence.

Fix
    plain PyTorch: `F.scaled_dot_product_attention(q, k, v, is_causal=True)` on 16-bit inputs, without attn_mask
    HF Trainer:    `TrainingArguments(bf16=True)` and `AutoModel.from_pretrained(name, attn_implementation="sdpa")`
    Lightning:     `Trainer(precision="bf16-mixed")`, and the same call in the module's forward()
    No mask where all positions are valid, or packed sequences; heads padded to a multiple of 8. To be told why:
    `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): ...` raises where it cannot
    run, and warns of the reason. Results agree to rounding.

How it is found
    Names of the attention kernels in the trace: which backend, and on 32-bit or 16-bit inputs. Where the trace holds
    the operators' input shapes, the mask or the head size that rules flash out is named.

When it stays silent
    Where flash or cuDNN attention runs as well, before Ampere, where attention is a small part, and where the GPU is
    not what gates.

Not to be confused with
    T14: no fused kernel at all.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.flash_build import observations
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, attention_shares
from underfed.playbook.rule import Rule

_SHARE = 0.10
#: The memory-efficient operator, and where its inputs hold the mask; query, key and value come before it.
_OPERATORS = frozenset(
    {"aten::_scaled_dot_product_efficient_attention", "aten::_efficient_attention_forward"},
)
_MASK_AT = 3
#: The widest head of flash attention in torch.
_WIDEST = 256


def check(evidence: Evidence) -> Finding | None:
    """Find the memory-efficient backend alone, on a card that has a faster one."""
    capability = evidence.torch.get("capability") or [0]
    found = attention_shares(evidence)
    if found is None or capability[0] < 8 or found.efficient < _SHARE or found.faster > 0:
        return None
    wide = found.efficient_wide > 0.5 * found.efficient
    why = "its inputs are 32 bits wide" if wide else "a mask or a head size rules flash attention out"
    causes = _causes(evidence)
    if causes and not wide:
        why = " and ".join(causes)
    best = after(evidence, (found.efficient, 8.0 if wide else 4.0))
    likely = (after(evidence, (found.efficient, 4.0 if wide else 2.5)), after(evidence, (found.efficient, 1.2)))
    seen = ((found.efficient, "memory-efficient attention"), (found.efficient_wide, "of it on 32-bit inputs"))
    return RULE.finding(
        summary=f"{100 * found.efficient:.0f} % of the GPU's time is attention on the memory-efficient kernel: {why}.",
        gain=gain_between(evidence, best, likely),
        evidence=[
            *[
                Observation(source="trace", text=text, value=round(share, 3), unit="of kernel time")
                for share, text in seen
            ],
            *observations(evidence),
        ],
        fix=Fix(
            text="16-bit inputs, and is_causal=True instead of a mask",
            code="F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        note="changes the numbers: 16-bit inputs" if wide else None,
    )


def _causes(evidence: Evidence) -> list[str]:
    """What the recorded inputs of the attention operators say: a mask, or heads that flash attention does not take."""
    found: dict[str, None] = {}
    for use in evidence.trace.uses if evidence.trace else ():
        if use.operator not in _OPERATORS or not use.shape:
            continue
        inputs = use.shape.split(", ")
        if len(inputs) > _MASK_AT and inputs[_MASK_AT] != "-":
            found["a mask rules flash attention out"] = None
        head = inputs[0].rpartition("x")[2]
        if head.isdigit() and int(head) > _WIDEST:
            found[f"heads of {head} are too wide for flash attention"] = None
    return list(found)


RULE = Rule(
    id="X17",
    name="attention-on-slower-kernel",
    stage="kernels",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
