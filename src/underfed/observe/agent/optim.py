"""The step boundary: every optimizer of torch, through its own global hooks, and the backward pass."""

import functools
import sys
from threading import get_ident
from time import perf_counter_ns

from . import frames
from .clock import BACKWARD, CLOCK, LOOP, MID, OPTIMIZER
from .core import BY_BACKWARD, BY_OPTIMIZER, S, boundary, fault, optimizer_stepped
from .patches import put
from .sampler import ensure

_open = []
_noted = set()
_handles = []
#: Called once for each optimizer object.
on_optimizer = None


def _before(optimizer, args, kwargs):
    try:
        clock = CLOCK
        thread = get_ident()
        if thread != clock.thread:
            if _open or S.index:
                return
            clock.thread = thread  # the loop runs on another thread than the one that imported torch
        if id(optimizer) not in _noted:
            _noted.add(id(optimizer))
            on_optimizer(optimizer)
        if _open:  # the step before this one raised, and nothing closed it
            clock.leave(OPTIMIZER, _open.pop())
            _open.clear()
        _open.append(clock.enter(OPTIMIZER))
    except Exception as error:
        fault("optimizer", error)


def _after(optimizer, args, kwargs):
    try:
        if not _open or get_ident() != CLOCK.thread:
            return
        token = _open.pop()
        now = token[2] + CLOCK.leave(OPTIMIZER, token)
        if not S.index:
            ensure()
        # frame 0 is this hook, 1 torch's wrapper, 2 the caller of step()
        optimizer_stepped(optimizer, now, sys._getframe(2))
    except Exception as error:
        fault("optimizer", error)


def _timed_backward(original):
    @functools.wraps(original)
    def backward(*args, **kwargs):
        if get_ident() != CLOCK.thread:
            return original(*args, **kwargs)
        clock = CLOCK
        token = clock.enter(BACKWARD)
        try:
            return original(*args, **kwargs)
        finally:
            clock.leave(BACKWARD, token)
            clock.section = MID
            if S.after_backward is not None:
                S.after_backward()
            # A closure's backward is inside its optimizer's step, which will close the step itself.
            if S.kind != BY_OPTIMIZER and token[0] == LOOP:
                S.kind = BY_BACKWARD
                ensure()
                boundary(BY_BACKWARD, perf_counter_ns())

    return backward


def _remember_anomaly(original):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            if S.anomaly_at is None:
                S.anomaly_at = frames.user_place()
        except Exception as error:
            fault("anomaly", error)

    return __init__


def install(torch):
    """Hook all optimizers and `torch.autograd.backward` (which `Tensor.backward` calls)."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    _handles.append(register_optimizer_step_pre_hook(_before))
    _handles.append(register_optimizer_step_post_hook(_after))
    for switch in (torch.autograd.set_detect_anomaly, torch.autograd.detect_anomaly):
        put(switch, "__init__", _remember_anomaly(switch.__init__))
    put(torch.autograd, "backward", _timed_backward(torch.autograd.backward))


def remove():
    """Take the optimizers' hooks away and start over."""
    while _handles:
        _handles.pop().remove()
    _open.clear()
    _noted.clear()
