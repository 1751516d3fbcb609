"""The machine has a GPU, and training runs on the CPU.

What it looks like
    A step that takes far longer than it should, and a GPU at 0 %.

Why it costs
    A CPU computes a network tens of times slower than a GPU. It happens silently where the device is chosen by
    torch.cuda.is_available(), and another package has replaced torch by a build without CUDA.

Fix
    `$ python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"` prints None for a build for
    CPUs: install the build for your CUDA from download.pytorch.org. False means that the driver is too old, or that
    CUDA_VISIBLE_DEVICES hides the card.
    plain PyTorch: `model.to("cuda")`, and the batch as well
    HF Trainer:    `TrainingArguments(use_cpu=False)`; it takes the card that torch sees
    Lightning:     `Trainer(accelerator="gpu")`, which fails where there is none

How it is found
    NVML shows a GPU, and the training process never opened one.

When it stays silent
    Where NVML shows none, and where a device was used.

Not to be confused with
    T1: a GPU that is used and whose time is not known.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule

_FEW = 3


def check(evidence: Evidence) -> Finding | None:
    """Find a run on the CPU beside a GPU."""
    gpu = evidence.gpu
    if evidence.kind != "run" or gpu is None or evidence.on_gpu or evidence.steps < _FEW:
        return None
    build = evidence.torch.get("cuda_build")
    why = "this torch is a build without CUDA" if build == "" else "nothing was moved to it"
    many = f"{gpu.devices} GPU{'s' if gpu.devices > 1 else ''}"
    return RULE.finding(
        summary=f"This machine has {many}, and training runs on the CPU: {why}.",
        bound=evidence.bound,
        evidence=[Observation(source="host", text="GPUs that the driver shows", value=float(gpu.devices), unit="GPUs")],
        fix=Fix(
            text="train on the GPU; check the build and the driver first",
            code='python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"',
        ),
        helps_now=False,
        note="a run that is meant for the CPU can leave it so; how much faster the GPU is, only a run on it tells",
    )


RULE = Rule(
    id="X14",
    name="gpu-not-used",
    stage="box",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)
