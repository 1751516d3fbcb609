"""For the Trainer of Lightning, by either of its names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from underfed.callbacks.around import LOG, Around, Then
from underfed.diagnosis import Diagnosis
from underfed.writers.figures import figures

if TYPE_CHECKING:
    Callback = Any
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class LightningCallback(Callback):  # type: ignore[misc, unused-ignore]
    """`Trainer(..., callbacks=[underfed.callbacks.LightningCallback()])` watches a fit and logs the verdict.

    The budget of a step goes to all loggers of the trainer, the card to the logger `underfed` (level INFO), and the
    Diagnosis to `diagnosis` of this object and to `then`, such as `underfed.writers.mlflow`. `out` and `window` are
    those of `underfed.watch`. Of several processes each watches itself, and the first one logs.
    """

    def __init__(
        self, *, out: str | os.PathLike[str] | None = None, window: int | None = 10, then: Then | None = None
    ) -> None:
        super().__init__()
        self._around = Around(out, window, then)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What was found, once the fit has ended."""
        return self._around.diagnosis

    def on_train_start(self, *_: Any) -> None:
        """Begin to watch."""
        self._around.begin()

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """End the watch and log the verdict."""
        first = bool(trainer.is_global_zero)
        found = self._around.end(tell=first)
        if found is None or not first:
            return
        for logger in trainer.loggers:
            _log(logger, figures(found), trainer.global_step)

    def on_exception(self, *_: Any) -> None:
        """End the watch without a word: the exception is what matters now."""
        self._around.end(tell=False)


def _log(logger: Any, found: dict[str, float], step: int) -> None:
    try:
        logger.log_metrics(found, step=step)
    except Exception as error:
        LOG.warning("%s took no figures: %s", type(logger).__name__, error)
