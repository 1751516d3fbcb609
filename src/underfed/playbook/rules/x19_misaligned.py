"""Matrix products have a dimension that tensor cores cannot load in whole words, so slower kernels run.

What it looks like
    Kernels whose names end in align1, align2 or align4, in a vocabulary of 50257, or a hidden size that is not a
    multiple of 8.

Why it costs
    Tensor-core kernels load 16 bytes at a time: 8 numbers of 16 bits, or 4 of 32. Where a row does not begin on such a
    border they load in smaller pieces, or the product falls back to another kernel altogether.

Fix
    Pad the dimension to a multiple of 64 (8 at least): vocab_size 50257 to 50304, d_ff 10922 to 10944. HF:
    model.resize_token_embeddings(n, pad_to_multiple_of=64). The batch and the sequence count as well: drop_last=True,
    padding to a multiple of 8. It changes the model's shape: do it before a training begins.

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
from underfed.playbook.kernels import after, misaligned_share
from underfed.playbook.rule import Rule

_SHARE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find matrix kernels that load in pieces smaller than tensor cores want."""
    share = misaligned_share(evidence)
    if share is None or share < _SHARE:
        return None
    # Published cases reach from nothing to half as fast again.
    likely = (after(evidence, (share, 1.5)), after(evidence, (share, 1.05)))
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the GPU's time are matrix products with a dimension that is not aligned.",
        gain=gain_between(evidence, after(evidence, (share, 3.0)), likely),
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
