"""Into TensorBoard: figures as scalars, the report as text."""

from __future__ import annotations

import os
from typing import Any

from underfed.diagnosis import Diagnosis
from underfed.errors import UsageError
from underfed.pictures.markdown import render
from underfed.writers.figures import figures


def tensorboard(diagnosis: Diagnosis, to: Any, *, step: int | None = None) -> None:
    """Add the budget and the verdict to a run of TensorBoard.

    `to` is the SummaryWriter of that run (of torch or tensorboardX), which stays open, or its folder. `step` is where
    on the axis the figures go; default: the number of steps seen. Raises UsageError where tensorboard is missing.
    """
    at = step if step is not None else diagnosis.subject.steps or 0
    if not isinstance(to, str | os.PathLike):
        _add(diagnosis, to, at)
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("writers.tensorboard: needs tensorboard: pip install 'underfed[tensorboard]'") from None
    writer: Any = SummaryWriter(os.fspath(to))  # type: ignore[no-untyped-call, unused-ignore]
    try:
        _add(diagnosis, writer, at)
    finally:
        writer.close()


def _add(diagnosis: Diagnosis, writer: Any, step: int) -> None:
    for name, value in figures(diagnosis).items():
        writer.add_scalar(name, value, step)
    writer.add_text("underfed/verdict", render(diagnosis), step)
    writer.flush()
