"""A search from its first run to its last: what the model proposes is run, while it promises enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from underfed.diagnosis import Numerics
from underfed.errors import MeasurementError
from underfed.playbook.evidence import Evidence
from underfed.playbook.loader_model import feed
from underfed.recording.read import Recording
from underfed.trial.once import LEAST_EPOCHS, Done, Enough, run_once, slug
from underfed.trial.records import Truth
from underfed.trial.truth import judge
from underfed.tune import memory
from underfed.tune.model import Setting, learned, model_of
from underfed.tune.search import Proposal, Seen, State, megabytes, propose

FIRST = "first"
#: Rounds of the base and the choice in turns at the end, each starting with the other one (ABBA).
ROUNDS = 2
#: A run is not begun where less than this many times the longest so far is left of the budget.
SPARE = 1.1


@dataclass(kw_only=True)
class Plan:
    """What to run. `budget_s` is for all runs together, `limit_s` what any run may take; `memory` is in bytes."""

    command: list[str]
    budget_s: float = 300.0
    steps: int = 60
    limit_s: float = 120.0
    seed: int | None = None
    memory: int | None = None


@dataclass(kw_only=True)
class Tried:
    """One setting with its runs, and why it was run; `proposal` is None for the script's own."""

    setting: Setting
    proposal: Proposal | None = None
    runs: list[Done] = field(default_factory=list)
    confirmed: list[Done] = field(default_factory=list)
    """Those made in turns with the base at the end, which the gain rests on."""
    watch: memory.Watch | None = None
    needed: int | None = None
    ended: str | None = None
    """How the kernel, or we for its memory, ended it."""
    truth: Truth | None = None


@dataclass(kw_only=True)
class Search:
    """All runs of a search so far; `run` may be interrupted at any time and leaves what was measured."""

    plan: Plan
    folder: Path
    say: Callable[[str], None]
    tried: list[Tried] = field(default_factory=list)
    order: list[Done] = field(default_factory=list)
    state: State | None = None
    evidence: Evidence | None = None
    limit: int | None = None
    complete: bool = False
    begun: float = field(default_factory=time.monotonic)
    _longest: float = 0.0
    by_epochs: bool = False

    @property
    def spent(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.begun

    def run(self) -> None:
        """Search; raises MeasurementError where the script gives no steps, or has no loader."""
        self._first()
        assert self.state is not None  # noqa: S101 - set by the line above
        while (proposal := propose(self.state)) is not None:
            if not self._affordable():
                self.say("the budget is used up")
                return
            self._try(proposal)
        while (best := self.at(self.state.best().setting)) is not self.tried[0]:
            if self._confirm(best):
                break
        else:
            self.complete = True
            return
        self.complete = len(best.confirmed) == ROUNDS

    def at(self, setting: Setting) -> Tried:
        """Return what was tried with a setting."""
        return next(one for one in self.tried if one.setting == setting)

    def _affordable(self) -> bool:
        return self.plan.budget_s - self.spent >= SPARE * self._longest

    def _first(self) -> None:
        """Run the script as it is, with a traced window where there is a device: what the model is built from."""
        done, watch, recording = self._one(FIRST, (), window="10")
        self._report(done, None)
        done.insist("tune", "as it is", self.say)
        evidence = evidence_of(recording)
        loader = evidence.loader if evidence is not None else None
        base = Setting(workers=loader.workers if loader is not None else 0)
        usual = done.measured.step_ms or 0.0
        model = model_of(evidence, base, usual, watch.ranks) if evidence is not None else None
        if evidence is None or model is None:
            raise MeasurementError("tune: no DataLoader was seen in the training process: there is nothing to tune")
        self.limit = memory.limit_of(recording.host, self.plan.memory)
        self.by_epochs = done.measured.epochs > LEAST_EPOCHS
        self.evidence = evidence
        self.tried = [Tried(setting=base, runs=[done], watch=watch)]
        threads = evidence.torch.get("threads")
        self.state = State(
            model=model, room=memory.room(watch, self.limit), threads=threads if isinstance(threads, int) else None
        )
        self.state.seen.append(_seen(base, done, evidence))

    def _try(self, proposal: Proposal) -> None:
        assert self.state is not None  # noqa: S101 - the first run has set it
        setting = proposal.setting
        tried = Tried(setting=setting, proposal=proposal, needed=self.state.room.predict(setting.workers))
        self.tried.append(tried)
        done, watch, recording = self._one(setting.name(), setting.switches(self.tried[0].setting))
        if not self._usable(tried, done, watch, recording):
            return
        tried.truth = self.judged(tried)
        evidence = evidence_of(recording)
        seen = _seen(setting, done, evidence, true=tried.truth.ok is not False)
        if seen.feed is not None:
            self.state.model = learned(self.state.model, seen.feed)
        self.state.seen.append(seen)

    def _usable(self, tried: Tried, done: Done, watch: memory.Watch, recording: Recording) -> bool:
        """Keep a run with its setting; False rules the setting out, whatever its other runs took."""
        assert self.state is not None  # noqa: S101 - the first run has set it
        tried.runs.append(done)
        if tried.watch is None or watch.total > tried.watch.total:
            tried.watch = watch
        if watch.over:
            tried.ended = f"ended by underfed: it held {megabytes(watch.total)} of {megabytes(self.limit or 0)}"
        elif done.crashed:
            tried.ended = memory.was_killed(done.ended.code, "\n".join(done.tail(40)), recording.host)
        self._report(done, tried.ended)
        self.state.room = memory.room(watch, self.limit, self.state.room)
        if not tried.ended and not done.crashed and self._long_enough(done):
            return True
        self.state.seen = [one for one in self.state.seen if one.setting != tried.setting]
        self.state.seen.append(Seen(setting=tried.setting, step=None, fits=not tried.ended))
        return False

    def _long_enough(self, done: Done) -> bool:
        """Whether a run has half the steps that were asked for, or that the first run made in its time."""
        first = len(self.order[0].measured.walls)
        return 2 * len(done.measured.walls) >= min(self.plan.steps, first)

    def judged(self, tried: Tried) -> Truth:
        """Judge the numbers of a setting against the script's own runs."""
        numerics: Numerics = "reorder" if tried.setting.threads is not None else "exact"
        base = [done.measured for done in self.tried[0].runs]
        return judge(numerics, base, [done.measured for done in tried.runs], seeded=self.plan.seed is not None)

    def _confirm(self, best: Tried) -> bool:
        """Run the base and the choice in turns: the fastest of several was also the luckiest. False rules it out."""
        assert self.state is not None  # noqa: S101 - the first run has set it
        usable = self._in_turns(best)
        if not usable or not best.confirmed:
            return usable
        best.truth = self.judged(best)
        true = best.truth.ok is not False
        self.state.seen = [replace(one, true=true) if one.setting == best.setting else one for one in self.state.seen]
        return true

    def _in_turns(self, best: Tried) -> bool:
        """Make the runs of both in turns, as far as the budget goes. False where one of the choice failed."""
        base = self.tried[0]
        base.confirmed = []
        for number in range(ROUNDS):
            for tried in (base, best) if number % 2 == 0 else (best, base):
                if not self._affordable():
                    self.say("the budget is used up")
                    return True
                done, watch, recording = self._one(tried.setting.name(), tried.setting.switches(base.setting))
                if tried is base:
                    self._report(done, None)
                    if done.crashed or not self._long_enough(done):
                        self.say(f"the command, as it is, did not run as before: {done.folder}")
                        return True
                    base.runs.append(done)
                elif not self._usable(best, done, watch, recording):
                    return False
                tried.confirmed.append(done)
        return True

    def _one(
        self, name: str, switches: tuple[tuple[str, str], ...], window: str = "off"
    ) -> tuple[Done, memory.Watch, Recording]:
        from underfed.recording.read import read

        folder = self.folder / f"{len(self.order):02d}-{slug(name)}"
        watch = memory.Watch(
            folder=folder, limit=self.limit, enough=Enough(folder, self.plan.steps, epochs=self.by_epochs)
        )
        started = time.monotonic()
        done = run_once(
            self.plan.command,
            folder,
            arm=name,
            switches=switches,
            window=window,
            seed=self.plan.seed,
            enough=watch,
            most_s=self._most(),
        )
        self.order.append(done)
        self._longest = max(self._longest, time.monotonic() - started)
        return done, watch, read(folder)

    def _most(self) -> float:
        """Return the seconds that the next run may take: the first one the budget, one that hangs does not."""
        if not self.order:
            return max(self.plan.limit_s, self.plan.budget_s)
        left = max(1.0, self.plan.budget_s - self.spent)
        return min(left, max(self.plan.limit_s, 2 * self._longest))

    def _report(self, done: Done, ended: str | None) -> None:
        words = "; ".join([done.words(), *([ended] if ended else [])])
        self.say(f"{self.spent:.0f} of {self.plan.budget_s:g} s, {done.arm}: {words}")


def evidence_of(recording: Recording) -> Evidence | None:
    """Return what the training process of a run shows; None where it made no steps."""
    from underfed.diagnose.run import look
    from underfed.diagnose.traced import read_window
    from underfed.trial.measured import main_log

    log = main_log(recording)
    seen = look(recording, log, read_window) if log is not None else None
    return seen.evidence if seen is not None else None


def _seen(setting: Setting, done: Done, evidence: Evidence | None, *, true: bool = True) -> Seen:
    found = feed(evidence) if evidence is not None else None
    copies = evidence.copies if evidence is not None else ()
    return Seen(
        setting=setting,
        step=done.measured.step_ms,
        feed=found,
        border_ms=found.border if found is not None else 0.0,
        pageable_ms=sum(one.ms for one in copies if one.direction == "h2d" and one.pinned is False and one.blocking),
        true=true,
    )
