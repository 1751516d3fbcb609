"""Switches of `underfed try` for the DataLoader and the copy to the device."""

import functools


def _wrap_init(change):
    """Let `change(loader_arguments)` edit the arguments of every DataLoader that is made with a dataset."""
    from torch.utils.data import dataloader

    original = dataloader.DataLoader.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        try:
            args, kwargs = change(args, kwargs)
        except Exception:
            pass
        original(self, *args, **kwargs)

    dataloader.DataLoader.__init__ = __init__


#: Place of an argument in `DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, ...)`.
_PLACES = {"num_workers": 4, "pin_memory": 6}


def _get(args, kwargs, name, default):
    """Return an argument as the program gave it; `args` are those behind the dataset."""
    place = _PLACES.get(name)
    at = place + 1 if place is not None else None
    if at is not None and len(args) > at:
        return args[at]
    return kwargs.get(name, default)


def _put(args, kwargs, name, value):
    place = _PLACES.get(name)
    if place is not None and len(args) > place + 1:
        args = (*args[: place + 1], value, *args[place + 2 :])
        return args, kwargs
    return args, {**kwargs, name: value}


def workers(torch, value, notes):
    """num_workers of every loader."""
    wanted = int(value)

    def change(args, kwargs):
        before = _get(args, kwargs, "num_workers", 0)
        args, kwargs = _put(args, kwargs, "num_workers", wanted)
        if wanted == 0:  # these two are refused without workers
            kwargs = {name: kept for name, kept in kwargs.items() if name != "prefetch_factor"}
            if kwargs.get("persistent_workers"):
                kwargs = {**kwargs, "persistent_workers": False}
        if before != wanted:
            notes.acted("workers", f"num_workers {before} -> {wanted}")
        return args, kwargs

    _wrap_init(change)


def persistent_workers(torch, value, notes):
    """persistent_workers=True where a loader has workers."""

    def change(args, kwargs):
        if _get(args, kwargs, "num_workers", 0) > 0 and not kwargs.get("persistent_workers"):
            kwargs = {**kwargs, "persistent_workers": True}
            notes.acted("persistent_workers", "persistent_workers False -> True")
        return args, kwargs

    _wrap_init(change)


def prefetch_factor(torch, value, notes):
    """prefetch_factor where a loader has workers."""
    wanted = int(value)

    def change(args, kwargs):
        if _get(args, kwargs, "num_workers", 0) > 0:
            before = kwargs.get("prefetch_factor") or 2
            kwargs = {**kwargs, "prefetch_factor": wanted}
            if before != wanted:
                notes.acted("prefetch_factor", f"prefetch_factor {before} -> {wanted}")
        return args, kwargs

    _wrap_init(change)


def pin_memory(torch, value, notes):
    """pin_memory=True; pointless without an accelerator."""
    if not torch.cuda.is_available():
        notes.refused("pin_memory", "no device: pinned memory serves copies to a GPU")
        return

    def change(args, kwargs):
        if not _get(args, kwargs, "pin_memory", False):
            args, kwargs = _put(args, kwargs, "pin_memory", True)
            notes.acted("pin_memory", "pin_memory False -> True")
        return args, kwargs

    _wrap_init(change)


def non_blocking(torch, value, notes):
    """non_blocking=True for copies of pinned tensors to the device."""
    if not torch.cuda.is_available():
        notes.refused("non_blocking", "no device to copy to")
        return
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, _moved(getattr(torch.Tensor, name), notes))


def _moved(original, notes):
    @functools.wraps(original)
    def move(self, *args, **kwargs):
        # Only from pinned memory, and only to the device: a copy to the host that is not waited for is read too early.
        if (
            not kwargs.get("non_blocking")
            and not self.is_cuda
            and self.is_pinned()
            and not any(a is True for a in args)
        ):
            try:
                out = original(self, *args, **{**kwargs, "non_blocking": True})
            except TypeError:
                return original(self, *args, **kwargs)
            notes.acted("non_blocking", "copies of pinned tensors: non_blocking=True")
            return out
        return original(self, *args, **kwargs)

    return move


SWITCHES = {
    "workers": workers,
    "persistent_workers": persistent_workers,
    "prefetch_factor": prefetch_factor,
    "pin_memory": pin_memory,
    "non_blocking": non_blocking,
}
