"""What others measured for the fixes that rules name, each with the month in which it was last read at its source.

`docs/figures.md` is generated from here, and `underfed stale src/underfed/playbook` lists what has grown old. A figure
with a probe is looked up again by `underfed stale --run-probes`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure: the rule it belongs to, what was measured, the answer, on what, by whom, when read there."""

    rule: str
    fact: str
    value: str
    hardware: str | None
    source: str
    verified: str
    probe: str | None = None

    def line(self) -> str:
        """Return it as a line of docs/figures.md, with its stamp."""
        where = f"{self.hardware}. " if self.hardware else ""
        return f"{self.fact}: {self.value}. {where}Source: {self.source}. verified {self.verified}"


FIGURES = (
    Figure(
        rule="T4",
        fact="Loading with a transform that sleeps for 5 ms a sample, 100 samples a batch, 0 to 4 workers",
        value="5.388, 3.900, 1.333, 0.839, 0.875 s",
        hardware="GPU not named",
        source="stas00/ml-engineering, training/performance",
        verified="2026-12",
    ),
    Figure(
        rule="T6",
        fact="Copies of 100 MB batches",
        value="0.646 s pageable, 0.522 s pinned, 0.459 s pinned and `non_blocking`, 0.658 s `non_blocking` alone",
        hardware="A100 80GB PCIe",
        source="stas00/ml-engineering, training/performance",
        verified="2026-12",
    ),
    Figure(
        rule="T6",
        fact="`tensor.pin_memory().to(device, non_blocking=True)` on the training thread, against `tensor.to(device)`",
        value="can take twice as long",
        hardware="Hardware not stated",
        source="PyTorch tutorial on pinned memory",
        verified="2026-12",
    ),
    Figure(
        rule="T17",
        fact="Training with activation checkpointing",
        value="about 20 % slower",
        hardware="Hardware not stated",
        source="Hugging Face Transformers documentation, gradient checkpointing",
        verified="2026-12",
    ),
    Figure(
        rule="T16",
        fact="`recompile_limit` by default; past it a function runs uncompiled",
        value="8",
        hardware=None,
        source="torch 2.13.0, torch._dynamo.config",
        verified="2026-12",
        probe="python -c 'import torch._dynamo.config as c; print(c.recompile_limit)'",
    ),
    Figure(
        rule="X58",
        fact="Accumulation of gradients over two nodes, seconds a batch",
        value="2.00 without `no_sync`, 0.91 with it, 2.13 with it in the wrong place",
        hardware=None,
        source="huggingface/accelerate#1153",
        verified="2026-12",
    ),
)


def page() -> str:
    """Return docs/figures.md."""
    text = (
        "# Published figures\n\n"
        "What others measured for the fixes that the rules name: on their hardware, with their model. None is a promise"
        " for yours;\nthe card's range comes from your own run. Each was read at its source in the month of its stamp;"
        " `underfed stale docs` lists\nthose whose stamp has grown old, and `make check` ends with an error when there"
        " are any. Generated from\n`src/underfed/playbook/figures.py` by `tools/make_docs.py`; edit them there.\n"
    )
    for rule in dict.fromkeys(figure.rule for figure in FIGURES):
        text += f"\n## {rule}\n\n" + "".join(f"- {figure.line()}\n" for figure in FIGURES if figure.rule == rule)
    return text
