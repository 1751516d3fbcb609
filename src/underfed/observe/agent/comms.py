"""Collectives that the program calls itself, once a process group exists."""

import functools
from threading import get_ident

from .clock import CLOCK, COMMS
from .patches import put

_NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "send",
)  # fmt: skip


def _timed(original):
    @functools.wraps(original)
    def collective(*args, **kwargs):
        if get_ident() != CLOCK.thread:
            return original(*args, **kwargs)
        token = CLOCK.enter(COMMS)
        try:
            return original(*args, **kwargs)
        finally:
            CLOCK.leave(COMMS, token)

    return collective


def install(torch):
    """Hook torch.distributed's collectives, unless dynamo is at work, which knows them by identity."""
    distributed = torch.distributed
    module = distributed.distributed_c10d
    for name in _NAMES:
        original = getattr(module, name, None)
        if original is None:
            continue
        wrapped = _timed(original)
        put(module, name, wrapped)
        if getattr(distributed, name, None) is original:
            put(distributed, name, wrapped)
