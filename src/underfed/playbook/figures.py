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
    version: str | None = None
    """Of the software that it was measured with; None where the source does not say."""
    probe: str | None = None

    def line(self) -> str:
        """Return it as a line of docs/figures.md, with its stamp."""
        where = "".join(f"{part}. " for part in (self.hardware, self.version or "Version not stated") if part)
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
        rule="T9",
        fact="T5-base in HF Trainer, samples a second without and with `--tf32`",
        value="93.68 and 210.53",
        hardware="A100",
        source="huggingface/transformers#15026",
        verified="2026-12",
        version="transformers of 2022-01",
    ),
    Figure(
        rule="T13",
        fact="T5-base in HF Trainer, samples a second in 32 bits without TF32, with `--fp16`, with `--bf16`",
        value="93.68, 217.75, 224.09",
        hardware="A100",
        source="huggingface/transformers#15026",
        verified="2026-12",
        version="transformers of 2022-01",
    ),
    Figure(
        rule="M5",
        fact="T5-base in HF Trainer, samples a second with 1 and 2 steps of accumulation in bf16",
        value="224.09 and 246.08, at twice the effective batch",
        hardware="A100",
        source="huggingface/transformers#15026",
        verified="2026-12",
        version="transformers of 2022-01",
    ),
    Figure(
        rule="T18",
        fact="T5-base in HF Trainer, samples a second at a batch of 1, 2, 4, 8, 16",
        value="10.04, 19.39, 38.66, 77.52, 144.12, at another effective batch each",
        hardware="RTX 3090",
        source="huggingface/transformers#14608",
        verified="2026-12",
        version="transformers of 2022-01",
    ),
    Figure(
        rule="T12",
        fact="One epoch of a diffusion model with anomaly detection on, and with it off",
        value="about 90 minutes and about 36 minutes",
        hardware="RTX 4090",
        source="icon-lab/SynDiff#43",
        verified="2026-12",
    ),
    Figure(
        rule="T14",
        fact="Building flash-attn without ninja, and with it on 64 cores",
        value="about 2 hours, and 3 to 5 minutes",
        hardware="A machine with 64 cores",
        source="README of Dao-AILab/flash-attention",
        verified="2026-12",
    ),
    Figure(
        rule="T11",
        fact="Training with channels_last under mixed precision",
        value="22 % more throughput for ResNet-50, 8 to 35 % over a selection of models",
        hardware="V100",
        source="fastai documentation, which quotes PyTorch's tutorial on memory formats",
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
        source="torch._dynamo.config",
        verified="2026-12",
        version="torch 2.13.0",
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


def lines_of(rule: str) -> list[str]:
    """Return the figures of a rule as lines with their stamps."""
    return [figure.line() for figure in FIGURES if figure.rule == rule]


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
        text += f"\n## {rule}\n\n" + "".join(f"- {line}\n" for line in lines_of(rule))
    return text
