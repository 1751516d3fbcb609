"""What `underfed try` switches in the runs that it starts itself, and what it notes there to judge the result.

Never active in a run that is only watched. Standard library alone, like the rest of the agent. Everything noted goes to
an own file beside the recording: which switch acted where, the loss of each backward pass, checksums of the first
batches and of the weights after a few steps, norms of the first gradients.
"""

import functools
import json
import os
import sys
import time
from threading import get_ident
from time import perf_counter_ns

from . import core, overrides_loader, overrides_model, overrides_reference, overrides_torch
from .clock import CLOCK

#: Exit code of a run that was ended early: not 0, so that nothing behind it (`&& upload`) takes it for finished.
ENDED_EARLY = 75
_CHECK_NS = 200_000_000
_MOST_LOSSES = 100_000
_MOST_RAISES = 3
WEIGHTS_AFTER = 5
GRADIENTS = 10
BATCHES = 20

SWITCHES = {
    **overrides_loader.SWITCHES,
    **overrides_model.SWITCHES,
    **overrides_reference.SWITCHES,
    **overrides_torch.SWITCHES,
}


class Notes:
    """The file that a trial's run leaves about itself: JSON lines, opened at the first."""

    def __init__(self, folder):
        self.path = os.path.join(folder, f"trial-{os.getpid()}-{time.time_ns():x}.jsonl")
        self.owner = os.getpid()
        self.told = set()
        self.losses = []
        self.pending = []
        self.gradients = []
        self.batches = 0

    def write(self, **fields):
        """Append one line; a failure is silent, and shows as a missing line."""
        if os.getpid() != self.owner:  # a loader's worker, forked from us
            return
        try:
            with open(self.path, "a", encoding="ascii") as file:
                file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        except Exception:
            pass

    def acted(self, switch, what):
        """Note once that a switch changed something, and what."""
        if (switch, what) not in self.told and len(self.told) < 200:
            self.told.add((switch, what))
            self.write(k="acted", switch=switch, what=what)

    def refused(self, switch, why):
        """Note once that a switch cannot act here, and why."""
        if (switch, why) not in self.told and len(self.told) < 200:
            self.told.add((switch, why))
            self.write(k="refused", switch=switch, why=why)

    def loss(self, tensor):
        """Keep one loss; on a device only the reference is kept, and read when the run ends."""
        if len(self.losses) + len(self.pending) >= _MOST_LOSSES:
            return
        value = tensor.detach()
        if value.device.type == "cpu":
            self.losses.append(float(value.double().sum()).hex())
        else:
            self.pending.append(value)

    def flush(self):
        """Write the losses; those on a device are read now, with one wait for it."""
        if os.getpid() != self.owner:
            return
        torch = sys.modules["torch"]
        if self.pending:
            try:
                read = torch.stack([value.double().sum() for value in self.pending]).cpu()
                self.losses += [value.hex() for value in read.tolist()]
            except Exception as error:
                self.write(k="fault", where="losses", error=type(error).__name__)
            self.pending = []
        if self.losses:
            self.write(k="losses", rows=self.losses)
            self.losses = []
        if self.gradients:
            try:
                self.write(k="gradients", rows=[None if one is None else float(one).hex() for one in self.gradients])
            except Exception as error:
                self.write(k="fault", where="gradients", error=type(error).__name__)
            self.gradients = []


def _checksum(torch, tensor):
    """Sum of a tensor's bytes as integers: the same in any order of adding, on any device. None where not possible."""
    try:
        flat = tensor.detach().contiguous().reshape(-1)
        if flat.device.type == "meta" or flat.is_complex():
            return None
        size = flat.element_size()
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        bits = flat.view(kind).to(torch.int64)
        # Weighted by place, so that the same values in another order differ.
        return int((bits * torch.arange(1, bits.numel() + 1, device=bits.device)).sum())
    except Exception:
        return None


def _checksum_of(torch, thing, depth=0):
    if isinstance(thing, torch.Tensor):
        return _checksum(torch, thing) if thing.device.type == "cpu" else None
    if depth > 4:
        return None
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        sums = [_checksum_of(torch, part, depth + 1) for part in thing[:64]]
        known = [at * value for at, value in enumerate(sums, 1) if value is not None]
        return sum(known) & (2**63 - 1) if known else None
    if isinstance(thing, (int, float)) and not isinstance(thing, bool):
        return hash(thing) & 0xFFFFFFFF
    return None


def _note_losses(torch, notes):
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors, *args, **kwargs):
        if get_ident() == CLOCK.thread:
            try:
                one = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
                notes.loss(one)
            except Exception:
                pass
        return original(tensors, *args, **kwargs)

    torch.autograd.backward = backward


def _note_batches(torch, notes):
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    original = base.__next__

    @functools.wraps(original)
    def __next__(self):
        batch = original(self)
        if notes.batches < BATCHES and get_ident() == CLOCK.thread:
            notes.batches += 1
            try:
                found = _checksum_of(torch, batch)
                notes.write(k="batch", at=notes.batches, sum=str(found) if found is not None else None)
            except Exception:
                pass
        return batch

    base.__next__ = __next__


def _note_weights(torch, notes, optimizer):
    sums, square = [], 0.0
    with torch.no_grad():
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                sums.append(_checksum(torch, tensor))
                square += float(tensor.detach().double().square().sum())
    known = [at * value for at, value in enumerate(sums, 1) if value is not None]
    notes.write(
        k="weights",
        step=WEIGHTS_AFTER,
        sum=str(sum(known)) if len(known) == len(sums) else None,
        norm=(square**0.5).hex(),
    )


def _norm(torch, optimizer):
    """Norm of all gradients as the optimizer gets them, left on their device; None where that is several, or they are
    tensors of a kind of their own, which may talk to other ranks.
    """
    squares = []
    with torch.no_grad():
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                grad = tensor.grad
                if grad is None:
                    continue
                if type(grad) is not torch.Tensor or grad.layout not in (torch.strided, torch.sparse_coo):
                    return None
                values = grad.coalesce().values() if grad.is_sparse else grad.detach()
                squares.append((values.abs() if values.is_complex() else values).double().square().sum())
        if not squares or len({square.device for square in squares}) > 1:
            return None
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer takes the scaler's factor off by itself
        norm = torch.stack(squares).sum().sqrt()
        return norm / scale.to(norm) if isinstance(scale, torch.Tensor) else norm


def _watch_optimizer(torch, notes):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    steps = {}

    def speaks(optimizer):
        return not steps or id(optimizer) in steps  # the first optimizer speaks for the run

    def aside(where, note):
        started = perf_counter_ns()
        try:
            note()
        except Exception as error:
            notes.write(k="fault", where=where, error=type(error).__name__)
        if core.S.last is not None:  # our own time is no part of the step
            core.S.last += perf_counter_ns() - started

    def before(optimizer, args, kwargs):
        if len(notes.gradients) < GRADIENTS and steps.get(id(optimizer), 0) < GRADIENTS and speaks(optimizer):
            aside("gradients", lambda: notes.gradients.append(_norm(torch, optimizer)))

    def after(optimizer, args, kwargs):
        if not speaks(optimizer):
            return
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        if steps[id(optimizer)] == WEIGHTS_AFTER:
            aside("weights", lambda: _note_weights(torch, notes, optimizer))

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _ender(folder, notes, owner):
    """Make the hook that ends the run at a step boundary, once the file `stop` is there or whoever asked has gone."""
    path = os.path.join(folder, "stop")
    state = {"next": 0, "raised": 0}

    def on_boundary(_kind):
        now = perf_counter_ns()
        if now < state["next"] or state["raised"] >= _MOST_RAISES:
            return
        state["next"] = now + _CHECK_NS
        if os.path.exists(path) or (owner and not os.path.exists("/proc/" + owner)):
            state["raised"] += 1
            state["next"] = 0
            notes.flush()
            notes.write(k="ended", step=core.S.index)
            raise SystemExit(ENDED_EARLY)

    return on_boundary


def _seed(torch, number):
    import random

    random.seed(number)
    torch.manual_seed(number)
    try:
        import numpy

        numpy.random.seed(number % 2**32)
    except Exception:
        pass


def parse(text):
    """Return the switches as a dictionary; `text` is NAME:VALUE;NAME:VALUE."""
    return dict(part.partition(":")[::2] for part in text.split(";") if part)


def install(torch, folder, options):
    """Set every switch that the options name, before the program's own code sees torch."""
    import atexit

    notes = Notes(folder)
    if options.get("seed", "").isdigit():
        _seed(torch, int(options["seed"]))
    wanted = parse(options.get("set", ""))
    # `workers` wraps the loader last, so that it acts first: the switches that need workers then see them.
    for name, value in sorted(wanted.items(), key=lambda pair: pair[0] == "workers"):
        try:
            SWITCHES[name](torch, value, notes)
        except Exception as error:
            notes.refused(name, f"{type(error).__name__} while it was set")
    _note_losses(torch, notes)
    _note_batches(torch, notes)
    _watch_optimizer(torch, notes)
    core.S.on_boundary.append(_ender(folder, notes, options.get("owner", "")))
    atexit.register(notes.flush)
