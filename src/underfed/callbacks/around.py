"""What the callbacks share: a watch around the training, and the verdict logged once at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from underfed.diagnosis import Diagnosis
from underfed.library.watching import Watch, going, watch

LOG = logging.getLogger("underfed")

Then = Callable[[Diagnosis], object]


class Around:
    """A watch that a framework begins and ends. Nothing that fails here reaches the training."""

    def __init__(self, out: Any, window: int | None, then: Then | None) -> None:
        self._make = partial(watch, out=out, window=window)
        self._make()  # tells wrong arguments before the training begins
        self._then = then
        self._watch: Watch | None = None
        self._own = False
        self.diagnosis: Diagnosis | None = None

    def begin(self) -> None:
        """Watch from here on, or look at the watch that is going already around the training."""
        self.end(tell=False)  # of a training that failed: not every framework says so
        self.diagnosis = None
        try:
            self._watch = going()
            self._own = self._watch is None
            if self._watch is None:
                self._watch = self._make().start()
        except Exception as error:
            LOG.warning("nothing is watched: %s", error)

    def end(self, *, tell: bool = True) -> Diagnosis | None:
        """End the watch and return what it means, once; with `tell`, also log it and hand it on."""
        seen, self._watch = self._watch, None
        if seen is None:
            return None
        try:
            if self._own:
                seen.stop()
            self.diagnosis = seen.diagnosis
            if tell:
                LOG.info("%s", self.diagnosis)
        except Exception as error:
            LOG.warning("no verdict: %s: %s", type(error).__name__, error)
            return None
        if tell and self._then is not None:
            try:
                self._then(self.diagnosis)
            except Exception as error:
                LOG.warning("the verdict could not be handed on: %s: %s", type(error).__name__, error)
        return self.diagnosis
