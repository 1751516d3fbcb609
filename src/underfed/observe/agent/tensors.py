"""Copies between host and device, and the calls that make the host wait for the device, each with its line.

Only installed where torch was built for an accelerator: on a CPU build nothing can wait for a device. A call on a CPU
tensor pays one attribute look-up.
"""

import functools
from threading import get_ident

from . import frames
from .clock import CACHE, CLOCK, COPIES, D2H, H2D, LOOP, SYNC, SYNCS
from .core import S
from .patches import put

_WAITING = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy", "nonzero")


def _note(table, key, spent, extra=None):
    known = table.get(key)
    if known is None:
        if len(table) > 5000:
            return
        known = table[key] = [0, 0] if extra is None else [0, 0, 0]
    known[0] += spent
    known[1] += 1
    if extra is not None:
        known[2] += extra


def _timed_sync(original, name):
    @functools.wraps(original)
    def wait(self, *args, **kwargs):
        if not self.is_cuda or get_ident() != CLOCK.thread:
            return original(self, *args, **kwargs)
        token = CLOCK.enter(SYNC)
        try:
            return original(self, *args, **kwargs)
        finally:
            spent = CLOCK.leave(SYNC, token)
            CLOCK.counts[SYNCS] += 1
            _note(S.syncs, (name, frames.user_place()), spent)

    return wait


def _timed_call(original, name, region=SYNC):
    @functools.wraps(original)
    def wait(*args, **kwargs):
        if get_ident() != CLOCK.thread:
            return original(*args, **kwargs)
        token = CLOCK.enter(region)
        try:
            return original(*args, **kwargs)
        finally:
            spent = CLOCK.leave(region, token)
            CLOCK.counts[SYNCS] += 1
            _note(S.syncs, (name, frames.user_place()), spent)

    return wait


def _pinned(tensor):
    try:
        return tensor.is_pinned()
    except Exception:
        return None


def _timed_move(original, name):
    copies_into = name == "copy_"

    @functools.wraps(original)
    def move(self, *args, **kwargs):
        if get_ident() != CLOCK.thread:
            return original(self, *args, **kwargs)
        source = args[0] if copies_into and args else self
        region_token = CLOCK.enter(D2H if getattr(source, "is_cuda", False) else H2D)
        out = None
        try:
            out = original(self, *args, **kwargs)
            return out
        finally:
            _settle(self, args, kwargs, out, region_token, copies_into)

    return move


def _settle(tensor, args, kwargs, out, token, copies_into):
    """Give the time of a possible copy to where it belongs: to the device, from it, or to nobody special."""
    source, target = tensor, out
    if copies_into:
        source = args[0] if args else kwargs.get("other", kwargs.get("src"))
        target = tensor
    came, went = getattr(source, "is_cuda", None), getattr(target, "is_cuda", None)
    if came is None or went is None or came == went:
        _forget(token)
        return
    spent = CLOCK.leave(H2D if went else D2H, token)
    CLOCK.counts[COPIES] += 1
    blocking = not (kwargs.get("non_blocking") or (args and args[-1] is True))
    host = source if went else target
    key = ("h2d" if went else "d2h", _pinned(host), blocking, frames.user_place(3))
    _note(S.copies, key, spent, source.numel() * source.element_size())


def _forget(token):
    """Leave a region as if it had never been entered: its time stays with whatever is around it."""
    if token[0] == LOOP:
        CLOCK.mark = token[2] + CLOCK.inner
    CLOCK.region = token[0]
    CLOCK.inner += token[1]


def install(torch):
    """Hook the waiting and copying methods of torch.Tensor and torch.cuda."""
    tensor = torch.Tensor
    for name in _WAITING:
        put(tensor, name, _timed_sync(getattr(tensor, name), name))
    for name in ("to", "cuda", "cpu", "copy_"):
        put(tensor, name, _timed_move(getattr(tensor, name), name))
    put(torch.cuda, "synchronize", _timed_call(torch.cuda.synchronize, "synchronize"))
    put(torch.cuda, "empty_cache", _timed_call(torch.cuda.empty_cache, "empty_cache", CACHE))
    for kind in (torch.cuda.Stream, torch.cuda.Event):
        put(kind, "synchronize", _timed_call(kind.synchronize, "synchronize"))
