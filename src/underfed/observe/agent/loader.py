"""DataLoaders: what the loop waits for, how the loader is set up, and each fetch inside the workers."""

import functools
import os
import resource
import sys
from threading import get_ident
from time import perf_counter_ns, thread_time_ns

from . import frames
from .clock import CLOCK, DATA, EVAL, FETCHES, PRE, START
from .core import BY_LOADER, NEW_EPOCH, S, boundary, fault, write
from .patches import put
from .sampler import ensure

_made_at = {}
_described = set()
_first_made = {}
_MOST_LOADERS = 1000
#: Every fetch of the training thread that takes longer is watched; of shorter ones, one in so many.
_WORTH_WATCHING_NS = 500_000
_MOST_UNWATCHED = 12
#: What one look at the counter of bytes read adds to it: the file is longer than that.
_OWN_READ = 64


def _iterable(dataset):
    """Whether the loader walks the dataset; every Dataset of torch has a `__getitem__`, those that are walked too."""
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)


def _describe(loader, make_ns):
    """Write one line about a loader's set-up: settings and places, no data."""
    dataset = loader.dataset
    kind = type(dataset)
    iterable = _iterable(dataset)
    code = None
    for name in ("__iter__",) if iterable else ("__getitems__", "__getitem__"):
        code = getattr(getattr(kind, name, None), "__code__", None)
        if code is not None:
            break
    collate = getattr(loader.collate_fn, "__code__", None)
    context = getattr(loader, "multiprocessing_context", None)
    try:
        length = len(loader)
    except Exception:
        length = None
    sampler = getattr(loader, "sampler", None)
    write(
        "loader",
        id=id(dataset),
        t=perf_counter_ns(),
        workers=loader.num_workers,
        batch=loader.batch_size,
        pin=bool(loader.pin_memory),
        persistent=bool(loader.persistent_workers),
        prefetch=loader.prefetch_factor,
        context=context.get_start_method() if context is not None else None,
        length=length,
        dataset=kind.__name__,
        iterable=iterable,
        item_at=frames.code_place(code) if code is not None else None,
        collate_at=frames.code_place(collate) if collate is not None else None,
        sampler=type(sampler).__name__ if sampler is not None else None,
        made_at=_made_at.get(id(loader)),
        start_ns=make_ns,
    )


def _place_of(loader):
    """Where the user's code makes a loader; one that a library makes anew for the same dataset keeps its place."""
    key = id(getattr(loader, "dataset", None))
    direct = frames.is_user(sys._getframe(2).f_code.co_filename)
    if direct or key not in _first_made:
        _first_made[key] = frames.user_place(3)
    return _first_made[key]


def _remember_place(original):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            if len(_made_at) > _MOST_LOADERS:
                _made_at.clear()
                _first_made.clear()
            _made_at[id(self)] = _place_of(self)
            _described.discard(id(self))
        except Exception as error:
            fault("loader", error)

    return __init__


def _timed_iter(original):
    @functools.wraps(original)
    def __iter__(self):
        if not S.on or get_ident() != CLOCK.thread:
            return original(self)
        ensure()
        token = CLOCK.enter(START)
        try:
            return original(self)
        finally:
            spent = CLOCK.leave(START, token)
            S.flags |= NEW_EPOCH
            try:
                if id(self) not in _described:
                    _described.add(id(self))
                    _describe(self, spent)
            except Exception as error:
                fault("loader", error)

    return __iter__


def _timed_next(original):
    @functools.wraps(original)
    def __next__(self):
        clock = CLOCK
        if get_ident() != clock.thread or not S.on or clock.region == DATA:
            return original(self)
        try:
            loader = S.loader = id(self._dataset)
        except AttributeError:
            loader = S.loader
        region = DATA if S.train_loader is None or loader == S.train_loader else EVAL
        token = clock.enter(region)
        try:
            return original(self)
        finally:
            clock.leave(region, token)
            clock.counts[FETCHES] += 1
            if region == DATA:
                clock.section = PRE
            if S.kind == BY_LOADER:
                boundary(BY_LOADER, perf_counter_ns())

    return __next__


def _read_bytes():
    """Bytes that this process has read through system calls so far, or None."""
    try:
        if S.io_fd is None:
            S.io_fd = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        text = os.pread(S.io_fd, _OWN_READ, 0)
        return int(text[text.index(b":") + 1 : text.index(b"\n")])
    except Exception:
        return None


def _time_collate(fetcher):
    """Time the collate function of one of torch's own fetcher objects (never one of the user's)."""
    original, spent = fetcher.collate_fn, [0]

    def collate(batch):
        start = perf_counter_ns()
        try:
            return original(batch)
        finally:
            spent[0] += perf_counter_ns() - start

    fetcher.collate_fn = collate
    return original, spent


def _samples(index):
    try:
        return len(index)
    except TypeError:
        return 1


def _watch_next_in(wall):
    """How many fetches of the training thread to let pass unwatched, by what the last one took.

    Watching one costs microseconds; where fetches are as short as that, a few of them stand for all. The number varies,
    so that no period of the data's own is always met or always missed.
    """
    mean = min(_MOST_UNWATCHED, _WORTH_WATCHING_NS // max(wall, 1))
    return (S.index * 2654435761 >> 8) % (2 * mean + 1) if mean else 0


def _fetch_here(fetcher, index, original):
    """A fetch on the training thread. The other threads are the loop's own here, so its thread's time says it all."""
    if S.unwatched > 0:
        S.unwatched -= 1
        return original(fetcher, index)
    collate_fn, collated = _time_collate(fetcher)
    start, cpu = perf_counter_ns(), thread_time_ns()
    try:
        return original(fetcher, index)
    finally:
        cpu, end = thread_time_ns() - cpu, perf_counter_ns()
        fetcher.collate_fn = collate_fn
        try:
            S.fetch_rows.append((end, end - start, cpu, cpu, None, _samples(index), collated[0]))
            S.unwatched = _watch_next_in(end - start)
        except Exception as error:
            fault("fetch", error)


def _fetch_in_worker(fetcher, index, original, info):
    """A fetch in a worker process, with the threads that it starts and what the process reads."""
    if S.worker != info.id:
        S.worker = info.id
        CLOCK.thread = get_ident()
        CLOCK.reset()
        ensure()
    before = _read_bytes()
    collate_fn, collated = _time_collate(fetcher)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    token = CLOCK.enter(DATA)
    start, cpu = perf_counter_ns(), thread_time_ns()
    try:
        return original(fetcher, index)
    finally:
        wall, cpu = perf_counter_ns() - start, thread_time_ns() - cpu
        fetcher.collate_fn = collate_fn
        try:
            CLOCK.leave(DATA, token)
            CLOCK.reset()
            after = resource.getrusage(resource.RUSAGE_SELF)
            process = int(1e9 * (after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime))
            read = _read_bytes() if before is not None else None
            read = max(0, read - before - _OWN_READ) if read is not None and before is not None else None
            row = (start + wall, wall, cpu, process, read, _samples(index), collated[0])
            write("fetches", worker=info.id, workers=info.num_workers, rows=[row])
        except Exception as error:
            fault("fetch", error)


def _timed_fetch(original):
    from torch.utils.data._utils import worker as worker_module

    @functools.wraps(original)
    def fetch(self, index):
        info = worker_module._worker_info
        if info is not None and S.on:
            return _fetch_in_worker(self, index, original, info)
        if info is not None or get_ident() != CLOCK.thread:
            return original(self, index)
        return _fetch_here(self, index, original)

    return fetch


def install():
    """Hook DataLoader, its iterators and the dataset fetchers."""
    from torch.utils.data import dataloader
    from torch.utils.data._utils import fetch

    put(dataloader.DataLoader, "__init__", _remember_place(dataloader.DataLoader.__init__))
    put(dataloader.DataLoader, "__iter__", _timed_iter(dataloader.DataLoader.__iter__))
    base = dataloader._BaseDataLoaderIter
    put(base, "__next__", _timed_next(base.__next__))
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        put(fetcher, "fetch", _timed_fetch(fetcher.fetch))


def forget():
    """Start over, as in a process that has not been watched yet."""
    for known in (_made_at, _described, _first_made):
        known.clear()
