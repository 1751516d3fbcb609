"""From evidence to a Diagnosis: the bound, the budget of a step, the ranking of fixes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """This package is also `underfed.diagnose(recording)`: importing it would hide a function of that name."""

    def __call__(self, recording: Any) -> Any:
        from underfed.library.reading import diagnose

        return diagnose(recording)


sys.modules[__name__].__class__ = _Callable
