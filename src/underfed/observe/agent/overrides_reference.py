"""What `underfed try` holds numbers against: the same training in 64 bits, from which two orders of adding differ by
rounding, and the same training with other random numbers.
"""

import functools
import os
import random
from numbers import Integral


def reference(torch, value, notes):
    """Weights in float64 from their first use on, after they were drawn as always, and whatever meets them as well."""
    if torch.distributed.is_available() and "RANK" in os.environ:
        notes.refused("reference", "several ranks")
        return
    kind = torch.nn.Module
    call, made = kind.__call__, torch.optim.Optimizer.__init__
    state = {"depth": 0, "seen": set()}

    @functools.wraps(call)
    def __call__(self, *args, **kwargs):
        if state["depth"] == 0 and id(self) not in state["seen"]:
            state["seen"].add(id(self))
            self.double()
            notes.acted("reference", "float64")
        if state["depth"] == 0:
            args, kwargs = _wider(torch, (args, kwargs))  # some modules compare types themselves
        state["depth"] += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            state["depth"] -= 1

    @functools.wraps(made)
    def __init__(self, *args, **kwargs):
        made(self, *args, **kwargs)
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.is_floating_point():
                    tensor.data = tensor.data.double()
                    notes.acted("reference", "float64")

    kind.__call__ = __call__
    torch.optim.Optimizer.__init__ = __init__
    _widening(torch).__enter__()


def _narrow(torch, thing):
    return isinstance(thing, torch.Tensor) and thing.is_floating_point() and thing.dtype != torch.float64


def _wider(torch, things):
    from torch.utils._pytree import tree_map

    return tree_map(lambda thing: thing.double() if _narrow(torch, thing) else thing, things)


def _widening(torch):
    """A mode in which a float64 tensor makes every other floating one of the same call float64."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_flatten

    def narrow(thing):
        return _narrow(torch, thing)

    def wide(thing):
        return isinstance(thing, torch.Tensor) and thing.dtype == torch.float64

    class Widening(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            found, _ = tree_flatten((args, kwargs))
            if any(map(wide, found)) and any(map(narrow, found)) and not _in_place(func, args, narrow):
                args, kwargs = _wider(torch, (args, kwargs))
            return func(*args, **kwargs)

    return Widening()


def _in_place(func, args, narrow):
    """Whether the call writes into its narrow first argument, which keeps its type."""
    name = getattr(func, "__name__", "")
    writes = (name.endswith("_") and not name.endswith("__")) or name in ("__set__", "__setitem__")
    return writes and bool(args) and narrow(args[0])


#: From one set of seeds to the next: further than the seeds lie apart that programs make by counting (ranks, epochs).
_APART = 1_000_003


def reseed(torch, value, notes):
    """Other random numbers of Python, NumPy and torch: each seed that the program sets becomes another one, the
    `value`-th of its kind, and those that it starts with as well.
    """
    shift = _APART * int(value)

    def other(original):
        @functools.wraps(original)
        def seed(number=None, *args, **kwargs):
            if isinstance(number, Integral):
                number = (int(number) + shift) % 2**32
                notes.acted("reseed", "other seeds")
            return original(number, *args, **kwargs)

        return seed

    random.seed = other(random.seed)
    torch.manual_seed = torch.random.manual_seed = other(torch.manual_seed)
    seeds = [random.seed, torch.manual_seed]
    try:
        import numpy
    except Exception:
        pass
    else:
        numpy.random.seed = other(numpy.random.seed)
        seeds.append(numpy.random.seed)
    first = torch.initial_seed() % 2**32
    for seed in seeds:
        seed(first)


SWITCHES = {"reference": reference, "reseed": reseed}
