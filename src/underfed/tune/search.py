"""Which setting to run next, and when to stop: pure functions of the model and of what was measured so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from underfed.playbook.loader_model import Feed
from underfed.tune.model import Model, Room, Setting

#: A setting that promises less than this share of the step is not worth a run.
WORTH = 0.03
#: A neighbour of the best is tried where the model puts it at most this far behind.
NEAR = 0.10
#: Share of a CPU that loader workers have to take before the loop's own threads are worth fewer.
CROWDING = 0.3


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One setting that was run. `step` is None where it gave no steps; `fits` is False where memory ended it."""

    setting: Setting
    step: float | None
    feed: Feed | None = None
    border_ms: float = 0.0
    pageable_ms: float = 0.0
    true: bool = True
    fits: bool = True


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What to run next, what it is expected to take, and why."""

    setting: Setting
    predicted: float | None
    why: str


@dataclass(kw_only=True)
class State:
    """What the search knows."""

    model: Model
    room: Room
    threads: int | None = None
    seen: list[Seen] = field(default_factory=list)
    not_run: dict[int, str] = field(default_factory=dict)
    """Numbers of workers that were ruled out, and why."""

    def usable(self) -> list[Seen]:
        """Return what has a step and kept its numbers."""
        return [one for one in self.seen if one.step is not None and one.true]

    def best(self) -> Seen:
        """Return the fastest so far; of those that are alike, the one with the fewest workers."""
        usable = self.usable()
        fastest = min(one.step or 0.0 for one in usable)
        alike = [one for one in usable if (one.step or 0.0) <= (1 + WORTH) * fastest]
        return min(alike, key=lambda one: (one.setting.workers, one.step or 0.0))

    def known(self, setting: Setting) -> bool:
        """Return whether a setting was run, with whatever result."""
        return any(one.setting == setting for one in self.seen)


def propose(state: State) -> Proposal | None:
    """Return the setting to run next, or None where nothing is left that promises more than it costs to find out."""
    return _workers(state) or _neighbour(state) or _queue(state) or _border(state) or _pinning(state) or _threads(state)


def _measured(state: State) -> dict[int, float]:
    """Steps by number of workers, all else as the script has it."""
    base = state.model.base
    return {
        one.setting.workers: one.step
        for one in state.usable()
        if one.step is not None and replace(one.setting, workers=base.workers) == base
    }


def _allowed(state: State) -> list[int]:
    """Numbers of workers that may be run: within memory, below any that was killed, and none that failed otherwise.

    What was run and fitted needs no estimate, nor does less than that.
    """
    failed = [one.setting.workers for one in state.seen if not one.fits]
    crashed = {one.setting.workers for one in state.seen if one.fits and (one.step is None or not one.true)}
    base = state.model.base.workers
    fitted = max((one.setting.workers for one in state.seen if one.step is not None), default=base)
    allowed = []
    for number in sorted({*state.model.candidates(), base}):
        if number in crashed or (failed and number >= min(failed)):
            continue
        if number > fitted and not state.room.allows(number):
            needed, limit = state.room.predict(number) or 0, state.room.limit or 0
            state.not_run[number] = f"needs about {megabytes(needed)} of the {megabytes(limit)} that there are"
            continue
        state.not_run.pop(number, None)
        allowed.append(number)
    return allowed


def megabytes(size: float) -> str:
    """Return a size in MB or GB, as words."""
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.0f} MB"


def _workers(state: State) -> Proposal | None:
    """The smallest number of workers within a hair of the best prediction, if it promises enough."""
    model, measured = state.model, _measured(state)
    allowed = _allowed(state)
    if not allowed:
        return None
    expected = {number: model.predict(number, measured) for number in allowed}
    least = min(expected.values())
    if least > (1 - WORTH) * min(measured.values(), default=model.base_ms):
        return None
    number = min(number for number in allowed if expected[number] <= (1 + WORTH / 3) * least)
    setting = replace(model.base, workers=number)
    if state.known(setting):
        return None
    return Proposal(setting=setting, predicted=expected[number], why="expected to feed the loop best")


def _neighbour(state: State) -> Proposal | None:
    """Some more and one less than the best number: the model may be wrong by that much. Not where the loop is fed."""
    model, best, measured = state.model, state.best(), _measured(state)
    if len(state.seen) < 2 or best.setting.workers not in measured or best.step is None:
        return None
    if best.step <= (1 + WORTH) * model.rest:
        return None
    now, allowed = best.setting.workers, _allowed(state)
    above = [number for number in (now + 1, now + max(1, now // 2)) if number in allowed]
    for number in (*above[-1:], now - 1):
        setting = replace(model.base, workers=number)
        if number < 1 or number not in allowed or state.known(setting):
            continue
        predicted = model.predict(number, measured)
        if predicted <= (1 + NEAR) * best.step:
            return Proposal(setting=setting, predicted=predicted, why="next to the best so far")
    return None


def _queue(state: State) -> Proposal | None:
    """A deeper queue where workers keep up on average and only the spread of their fetches empties it."""
    best = state.best()
    found = best.feed
    if found is None or best.step is None or not found.bursty or found.wait < WORTH * best.step:
        return None
    depth = 4 * (best.setting.prefetch or found.loader.prefetch or 2)
    setting = replace(best.setting, prefetch=min(depth, 32))
    if best.setting.prefetch is not None or any(one.setting.prefetch for one in state.seen):
        return None
    return Proposal(setting=setting, predicted=best.step - 0.5 * found.wait, why="fetches come in bursts")


def _border(state: State) -> Proposal | None:
    """Workers that live on, where starting them anew each epoch costs enough."""
    best = state.best()
    if best.step is None or not best.setting.workers or best.border_ms < WORTH * best.step:
        return None
    if best.feed is None or best.feed.loader.persistent or any(one.setting.persistent for one in state.seen):
        return None
    setting = replace(best.setting, persistent=True)
    return Proposal(setting=setting, predicted=best.step - best.border_ms, why="workers are started anew each epoch")


def _pinning(state: State) -> Proposal | None:
    """Pinned batches, where copies of pageable ones to the device cost enough."""
    best = state.best()
    if best.step is None or best.pageable_ms < WORTH * best.step or any(one.setting.pin for one in state.seen):
        return None
    setting = replace(best.setting, pin=True)
    return Proposal(setting=setting, predicted=best.step - 0.5 * best.pageable_ms, why="batches are copied pageable")


def _threads(state: State) -> Proposal | None:
    """Threads of the loop: no more than the CPUs, and where workers compute as well, no more than these leave."""
    best, model = state.best(), state.model
    if state.threads is None or model.cpus is None or best.step is None:
        return None
    for number in wanted_threads(state.threads, model, best):
        setting = replace(best.setting, threads=number)
        if number != state.threads and not any(one.setting.threads == number for one in state.seen):
            return Proposal(setting=setting, predicted=None, why=f"{state.threads} threads share the CPUs with workers")
    return None


def wanted_threads(now: int, model: Model, best: Seen) -> Sequence[int]:
    """Return the thread counts to try, none where the present one fits."""
    cpus = model.cpus or 0.0
    if now > 1.5 * cpus:
        return (max(1, int(cpus)),)
    if model.on_gpu or best.setting.workers == 0 or best.feed is None or not best.step:
        return ()
    busy = model.fetches * model.cpu / best.step
    left = max(1, round(cpus - busy))
    return (left,) if busy >= CROWDING and left < now else ()
