"""Garbage collections, through the interpreter's own callbacks."""

import gc
from threading import get_ident

from .clock import CLOCK, COLLECTIONS, GC

_open = None


def _on_collection(phase, info):
    global _open
    if get_ident() != CLOCK.thread:
        return
    if phase == "start":
        _open = CLOCK.enter(GC)
    elif _open is not None:
        CLOCK.leave(GC, _open)
        CLOCK.counts[COLLECTIONS] += 1
        _open = None


def install():
    """Time each garbage collection of the training thread."""
    gc.callbacks.append(_on_collection)


def remove():
    """Time them no more."""
    global _open
    _open = None
    if _on_collection in gc.callbacks:
        gc.callbacks.remove(_on_collection)
