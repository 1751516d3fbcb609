"""Matrix products have a dimension that tensor cores cannot load in whole words, so slower kernels run.

What it looks like
    Kernels whose names end in align1, align2 or align4, in a vocabulary of 50257, or a hidden size that is not a
    multiple of 8.

Why it costs
    Tensor-core kernels load 16 bytes at a time: 8 numbers of 16 bits, or 4 of 32. Where a row does not begin on such a
    border they load in smaller pieces, or the product falls back to another kernel altogether.

Fix
    Pad the dimension to a multiple of 64 (8 at least): vocab_size 50257 to 50304, d_ff 10922 to 10944. The batch
    and the sequence count as well.
    plain PyTorch: `nn.Embedding(50304, width)`, and `DataLoader(..., drop_last=True)`
    HF Trainer:    `model.resize_token_embeddings(n, pad_to_multiple_of=64)`,
    `TrainingArguments(dataloader_drop_last=True)` and `DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)`
    Lightning:     no switch: the same sizes in the module, and `DataLoader(..., drop_last=True)`
    It changes the model's shape: do it before a training begins.

How it is found
    The alignment in the names of CUTLASS kernels, by their share of the kernel time.

When it stays silent
    Where aligned kernels dominate, and where names do not tell (cuBLAS has kernels that do not).

Not to be confused with
    T9 and T13: no tensor cores at all.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, misaligned_shares
from underfed.playbook.rule import Rule

_SHARE = 0.10
#: How much faster whole loads are, by the numbers loaded at once: at most, at best and at least likely. Tensor cores
#: want 8 of 16 bits, so single ones take up to 8 times the loads, in kernels of an older generation: on an H200, sizes
#: of 4095 instead of 4096 took 5.1 times as long (bf16; verified 2026-12-03). Published gains by padding reach from
#: nothing, where half of a whole load is left, to 1.25 of a step of which an odd vocabulary fills a third.
_FASTER = {1: (8.0, 5.0, 2.0), 2: (4.0, 2.5, 1.2), 4: (3.0, 1.5, 1.05)}


def check(evidence: Evidence) -> Finding | None:
    """Find matrix kernels that load in pieces smaller than tensor cores want."""
    shares = misaligned_shares(evidence)
    share = sum(shares.values())
    if share < _SHARE:
        return None
    best, high, low = (
        after(evidence, *((part, _FASTER[width][at]) for width, part in shares.items())) for at in range(3)
    )
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the GPU's time are matrix products with a dimension that is not aligned.",
        gain=gain_between(evidence, best, (high, low)),
        evidence=[
            Observation(source="trace", text="misaligned matrix kernels", value=round(share, 3), unit="of kernel time")
        ],
        fix=Fix(text="pad vocabulary, hidden sizes, batch and sequence to multiples of 64, or of 8 at least"),
        note="changes the model's shape: for a training that has yet to begin",
    )


RULE = Rule(
    id="X19",
    name="misaligned-matrix-dimensions",
    stage="kernels",
    bound="compute",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)
