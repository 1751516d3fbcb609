"""Callbacks that watch the training of a framework and log the verdict at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underfed.callbacks.hf import HFCallback as HFCallback
    from underfed.callbacks.lightning import LightningCallback as LightningCallback

#: Module and distribution of each; a class derives from its framework's, so that is loaded with it.
_NAMES = {"HFCallback": ("hf", "transformers"), "LightningCallback": ("lightning", "lightning")}


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'underfed.callbacks' has no attribute {name!r}")
    from importlib import import_module

    from underfed.errors import UsageError

    module, framework = _NAMES[name]
    try:
        found: object = getattr(import_module(f"underfed.callbacks.{module}"), name)
    except ImportError as error:
        raise UsageError(f"callbacks.{name}: needs {framework}, which cannot be imported: {error}") from None
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
