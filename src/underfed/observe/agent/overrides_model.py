"""Switches of `underfed try` for the model, its optimizer and what runs them."""

import functools

from . import core

_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad", "NAdam", "RAdam", "RMSprop", "Adamax", "Adadelta", "ASGD", "Rprop")


def optimizer(torch, value, notes):
    """fused=True or foreach=True for torch's own optimizers that have it."""
    import inspect

    for name in _OPTIMIZERS:
        kind = getattr(torch.optim, name, None)
        # Only a class with its own __init__: a subclass would be counted twice.
        if kind is not None and "__init__" in vars(kind) and value in inspect.signature(kind.__init__).parameters:
            kind.__init__ = _with_form(kind.__init__, name, value, notes)


def _with_form(original, name, form, notes):
    other = "foreach" if form == "fused" else "fused"

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        if kwargs.get(form) or kwargs.get("differentiable"):
            return original(self, *args, **kwargs)
        changed = {key: kept for key, kept in kwargs.items() if key != other}
        changed[form] = True
        params = args[0] if args else changed.get("params")
        if params is not None and not isinstance(params, (list, tuple)):  # a generator can be read once only
            params = list(params)
            if args:
                args = (params, *args[1:])
            else:
                changed["params"] = kwargs["params"] = params
        try:
            original(self, *args, **changed)
        except RuntimeError as error:
            notes.refused("optimizer", f"{name} does not take {form}=True here ({type(error).__name__})")
            return original(self, *args, **kwargs)
        notes.acted("optimizer", f"{name}: {form}=True")
        return None

    return __init__


def set_to_none(torch, value, notes):
    """zero_grad() drops gradients instead of writing zeros."""
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        kind.zero_grad = _dropping(kind.zero_grad, notes)


def _dropping(original, notes):
    @functools.wraps(original)
    def zero_grad(self, set_to_none=True):
        if not set_to_none:
            notes.acted("set_to_none", "zero_grad: set_to_none False -> True")
        return original(self, set_to_none=True)

    return zero_grad


def channels_last(torch, value, notes):
    """Weights of convolutions in channels_last order, once the optimizer holds them; activations follow."""
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        changed = 0
        with torch.no_grad():
            for group in self.param_groups:
                for tensor in group["params"]:
                    if tensor.dim() == 4 and tensor.shape[1] > 1:
                        tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
                        changed += 1
        if changed:
            notes.acted("channels_last", f"{changed} weights of convolutions to channels_last")

    torch.optim.Optimizer.__init__ = __init__


def autocast(torch, value, notes):
    """16-bit autocast in the training thread, outside backward passes and optimizer steps."""
    kind = torch.bfloat16
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backward = torch.autograd.backward

    def switch(on):
        torch.set_autocast_enabled(device, on)
        torch.set_autocast_dtype(device, kind)
        torch.clear_autocast_cache()  # casts of weights must not outlive an optimizer step

    @functools.wraps(backward)
    def without(*args, **kwargs):
        if not torch.is_autocast_enabled(device):
            return backward(*args, **kwargs)
        torch.set_autocast_enabled(device, False)
        try:
            return backward(*args, **kwargs)
        finally:
            torch.set_autocast_enabled(device, True)

    torch.autograd.backward = without
    switch(True)
    core.S.on_boundary.append(lambda _kind: torch.clear_autocast_cache())
    notes.acted("autocast", f"autocast({device!r}, bfloat16) around forward passes")


def checkpointing(torch, value, notes):
    """Activation checkpointing is left out: the function runs as it is."""
    from torch.utils import checkpoint as module

    original = module.checkpoint

    @functools.wraps(original)
    def checkpoint(function, *args, use_reentrant=None, context_fn=None, determinism_check=None, debug=None,
                   preserve_rng_state=None, early_stop=None, **kwargs):  # fmt: skip
        notes.acted("checkpointing", "torch.utils.checkpoint left out")
        return function(*args, **kwargs)

    module.checkpoint = checkpoint


def compiled(torch, value, notes):
    """torch.compile for the outermost module of the first training step."""
    kind = torch.nn.Module
    original = kind.__call__
    options = {} if value == "default" else {"mode": value}

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if self.training and torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters()):
            kind.__call__ = original
            if getattr(self, "_compiled_call_impl", None) is not None or hasattr(self, "_orig_mod"):
                notes.refused("compile", "the program compiles its model itself")
            else:
                self.compile(**options)
                notes.acted("compile", f"torch.compile({type(self).__name__}, mode={value})")
        return original(self, *args, **kwargs)

    kind.__call__ = __call__


def dynamic(torch, value, notes):
    """torch.compile(dynamic=True) wherever the program compiles."""
    original = torch.compile

    @functools.wraps(original)
    def compile_(*args, **kwargs):
        if kwargs.get("dynamic") is not True:
            notes.acted("dynamic", f"torch.compile: dynamic {kwargs.get('dynamic')} -> True")
        return original(*args, **{**kwargs, "dynamic": True})

    torch.compile = compile_


def bucket_cap_mb(torch, value, notes):
    """Size of DistributedDataParallel's gradient buckets."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        before = kwargs.get("bucket_cap_mb")
        original(self, *args, **{**kwargs, "bucket_cap_mb": int(value)})
        notes.acted("bucket_cap_mb", f"bucket_cap_mb {before or 25} -> {value}")

    DistributedDataParallel.__init__ = __init__


#: Steps with equally many backward passes, after which the number is taken for granted.
_ALIKE = 2


def no_sync(torch, value, notes):
    """Gradients are exchanged in the last backward pass of a step alone, where steps have several.

    Which one is the last is known from the steps before. A step that then ends behind another one would lose what was
    not exchanged: that is noted, the switch ends, and the losses show it.
    """
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    original = DistributedDataParallel.forward
    state = {"passes": 0, "last": 0, "alike": 0, "open": False, "over": False}

    def end(why):
        state["over"] = True
        notes.refused("no_sync", why)

    @functools.wraps(original)
    def forward(self, *args, **kwargs):
        if state["over"] or not torch.is_grad_enabled() or not self.training:
            return original(self, *args, **kwargs)
        if not self.require_backward_grad_sync:
            end("the program uses no_sync() itself")
            return original(self, *args, **kwargs)
        state["passes"] += 1
        known = state["alike"] >= _ALIKE and state["last"] > 1
        state["open"] = known and state["passes"] < state["last"]
        if not state["open"]:
            return original(self, *args, **kwargs)
        notes.acted("no_sync", f"gradients exchanged in 1 of {state['last']} backward passes a step")
        self.require_backward_grad_sync = False
        try:
            return original(self, *args, **kwargs)
        finally:
            self.require_backward_grad_sync = True

    def before(optimizer, args, kwargs):
        if state["over"] or not state["passes"]:
            return  # the second optimizer of a step
        if state["open"]:
            end("the number of backward passes a step changes")
        state["alike"] = state["alike"] + 1 if state["passes"] == state["last"] else 1
        state["last"], state["passes"] = state["passes"], 0
        if state["alike"] >= _ALIKE and state["last"] == 1:
            notes.refused("no_sync", "one backward pass a step, which has to exchange")

    DistributedDataParallel.forward = forward
    register_optimizer_step_pre_hook(before)


SWITCHES = {
    "optimizer": optimizer,
    "set_to_none": set_to_none,
    "channels_last": channels_last,
    "autocast": autocast,
    "checkpointing": checkpointing,
    "compile": compiled,
    "dynamic": dynamic,
    "bucket_cap_mb": bucket_cap_mb,
    "no_sync": no_sync,
}
