"""For the Trainer of Hugging Face transformers."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from underfed.callbacks.around import Around, Then
from underfed.diagnosis import Diagnosis
from underfed.writers.figures import figures, verdict


class HFCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """`Trainer(..., callbacks=[underfed.callbacks.HFCallback()])` watches the training and logs the verdict at its end.

    The verdict and the budget of a step go to `trainer.state.log_history`, the card to the logger `underfed` (level
    INFO), and the Diagnosis to `diagnosis` of this object and to `then`, such as `underfed.writers.wandb`. `out` and
    `window` are those of `underfed.watch`. Of several processes each watches itself, and the first one logs.
    """

    def __init__(
        self, *, out: str | os.PathLike[str] | None = None, window: int | None = 10, then: Then | None = None
    ) -> None:
        self._around = Around(out, window, then)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What was found, once the training has ended."""
        return self._around.diagnosis

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin to watch."""
        self._around.begin()

    def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """End the watch and log the verdict."""
        first = bool(state.is_world_process_zero)
        found = self._around.end(tell=first)
        if found is not None and first:
            state.log_history.append(
                {"step": state.global_step, "epoch": state.epoch, **figures(found), **verdict(found)}
            )
