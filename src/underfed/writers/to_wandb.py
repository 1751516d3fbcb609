"""Into Weights & Biases: figures as one row of the history, the verdict into the summary."""

from __future__ import annotations

from typing import Any

from underfed.diagnosis import Diagnosis
from underfed.errors import UsageError
from underfed.writers.figures import figures, verdict


def wandb(diagnosis: Diagnosis, run: Any = None) -> None:
    """Add the budget and the verdict to a run of Weights & Biases.

    `run` is what `wandb.init()` returned; default: the one that is active. The run stays open. Raises UsageError where
    wandb is missing or no run is active.
    """
    if run is None:
        try:
            import wandb as module
        except ImportError:
            raise UsageError("writers.wandb: needs wandb: pip install 'underfed[wandb]'") from None
        run = module.run
    if run is None:
        raise UsageError("writers.wandb: no run is active; call wandb.init() first, or give run=")
    run.log(figures(diagnosis))
    for name, words in verdict(diagnosis).items():
        run.summary[name] = words
