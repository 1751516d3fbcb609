"""The budget of a step and the verdict, added to a run that TensorBoard, Weights & Biases or MLflow keeps already.

Each takes a Diagnosis first, so that each can be what a callback does at the end: `HFCallback(then=writers.wandb)`, and
`HFCallback(then=functools.partial(writers.tensorboard, to="runs/one"))`, which needs to be told where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underfed.writers.to_mlflow import mlflow as mlflow
    from underfed.writers.to_tensorboard import tensorboard as tensorboard
    from underfed.writers.to_wandb import wandb as wandb

_NAMES = {"mlflow": "to_mlflow", "tensorboard": "to_tensorboard", "wandb": "to_wandb"}


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'underfed.writers' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"underfed.writers.{_NAMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
