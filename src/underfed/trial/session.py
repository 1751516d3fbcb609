"""A trial from its plan to its record: a first run for the diagnosis, then the arms in turns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from underfed.diagnosis import Diagnosis, Finding
from underfed.errors import UnderfedError, UsageError
from underfed.playbook.switches import value_of
from underfed.trial.knobs import Change
from underfed.trial.measured import Measured
from underfed.trial.once import Done, Enough, run_once, slug, steps_so_far
from underfed.trial.truth import LATER_STEPS, needs_reference, needs_seeds, repeats, strays

BASE = "baseline"
SCOUT = "first"
REFERENCE = "reference"
SEEDS = "seeds"
#: Runs of the baseline with other seeds.
OTHER_SEEDS = 2
#: How deterministic mode is tried: first as torch means it, then without the operations that have no such form.
DETERMINISTIC = (("deterministic", "strict"), ("deterministic", "lenient"))


@dataclass(kw_only=True)
class Plan:
    """What to run and for how long. `limit_s` ends a run whatever it has; `pairs` is the number of runs an arm."""

    command: list[str]
    changes: list[Change]
    pairs: int = 4
    steps: int = 60
    limit_s: float = 120.0
    seed: int | None = None


@dataclass(kw_only=True)
class Session:
    """All runs of a trial so far; `run` may be interrupted at any time and leaves what was measured."""

    plan: Plan
    folder: Path
    say: Callable[[str], None]
    runs: list[Done] = field(default_factory=list)
    arms: list[Change] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    reference: Done | None = None
    """The baseline in float64, where a change that adds in another order is held against it."""
    seeds: list[Done] = field(default_factory=list)
    """The baseline with other seeds, where the drift of a change in precision is held against what they differ by."""
    repeated: list[Done] = field(default_factory=list)
    """Short runs in deterministic mode, where the baseline's own losses stray without it: for the numbers alone."""
    mode: tuple[str, str] = DETERMINISTIC[0]
    extra: int = 0
    """How many runs were made for the numbers alone."""
    complete: bool = False

    def run(self) -> None:
        """Make the first run, then all arms in turns; raises MeasurementError where the baseline gives no steps."""
        self._scout()
        self.arms = [self._with_value(change) for change in self.plan.changes]
        if len(self.arms) > 1:
            from underfed.trial.knobs import together

            self.arms.append(together(self.arms))
        for arm in order([BASE, *(arm.name for arm in self.arms)], self.plan.pairs):
            if self._settled(arm):
                continue
            done = self._one(arm, next((change for change in self.arms if change.name == arm), None))
            self.runs.append(done)
            self._report(done)
            if arm == BASE:
                done.insist("try", "without the change", self.say)
        self._repeat()
        self._refer()
        self._reseed()
        self.complete = True

    def compared(self, change: Change) -> tuple[list[Measured], list[Measured]]:
        """Return the runs of the baseline and of a change whose losses are compared: those in deterministic mode, where
        there are some and the baseline repeats itself in them.
        """
        base = [done.measured for done in self.repeated if done.arm == BASE and not done.crashed]
        mine = [done.measured for done in self.repeated if done.arm == change.name and not done.crashed]
        if mine and len(base) > 1 and repeats(base):
            return base, mine
        return [done.measured for done in self.of(BASE)], [done.measured for done in self.of(change.name)]

    def deterministic(self, change: Change) -> bool:
        """Whether a change's losses were compared in deterministic mode."""
        base, _ = self.compared(change)
        return any(base[0] is done.measured for done in self.repeated) if base else False

    def _repeat(self) -> None:
        """Run the baseline twice and each change once in deterministic mode, where the baseline strays by rounding."""
        acted = [arm for arm in self.arms if any(_has_losses(done) for done in self.of(arm.name))]
        if not acted or not strays([done.measured for done in self.of(BASE)]):
            return
        self.say("the baseline's own losses differ from run to run: short runs in deterministic mode, for the numbers")
        for self.mode in DETERMINISTIC:
            self.repeated = [self._deterministic(None)]
            if not self.repeated[0].crashed:
                break
        else:
            self.say("the command fails in deterministic mode")
            return
        self.repeated += [self._deterministic(arm) for arm in (*acted, None)]

    def _deterministic(self, arm: Change | None) -> Done:
        switches = arm.switches if arm is not None else ()
        return self._for_numbers(arm.name if arm is not None else BASE, "deterministic-", (*switches, self.mode))

    def _for_numbers(self, arm: str, kind: str, switches: tuple[tuple[str, str | None], ...]) -> Done:
        """Make a run of as many steps as are compared; its times are not used."""
        self.extra += 1
        folder = self.folder / f"{len(self.runs) + self.extra:02d}-{slug(kind + arm)}"
        return run_once(
            self.plan.command,
            folder,
            arm=arm,
            switches=switches,
            seed=self.plan.seed,
            enough=lambda: steps_so_far(folder) > LATER_STEPS,
            most_s=self.plan.limit_s,
        )

    def _refer(self) -> None:
        """Run the baseline once in float64, for as many steps as are compared, where an arm's losses ask for it."""
        for arm in self.arms:
            base, mine = self.compared(arm)
            if needs_reference(arm.numerics, base, [run for run in mine if run.acted]):
                break
        else:
            return
        mode = (self.mode,) if self.deterministic(arm) else ()
        done = self._for_numbers(REFERENCE, "", (("reference", "fp64"), *mode))
        if done.crashed or not done.measured.acted:
            self.say("the run in float64 that the numbers would be held against failed: they are held to a tolerance")
        else:
            self.reference = done
            self.say("one more run, in float64: what the numbers are held against")

    def _reseed(self) -> None:
        """Run the baseline with other seeds, where the drift of a change in precision is more than noise."""
        for arm in self.arms:
            base, mine = self.compared(arm)
            if needs_seeds(arm.numerics, base, [run for run in mine if run.acted]):
                break
        else:
            return
        self.say("the losses drifted: the baseline runs with other seeds, for how far those lie apart")
        mode = (self.mode,) if self.deterministic(arm) else ()
        for number in range(1, OTHER_SEEDS + 1):
            done = self._for_numbers(SEEDS, "", (("reseed", str(number)), *mode))
            if not done.crashed:
                self.seeds.append(done)

    def _settled(self, arm: str) -> bool:
        """Whether more runs of an arm would say nothing: it crashed, or had nothing to act on, and once is enough. The
        baseline is settled when all others are.
        """
        if arm == BASE:
            return bool(self.of(BASE)) and all(self._settled(other.name) for other in self.arms)
        return any(done.crashed or not done.measured.acted for done in self.of(arm))

    def of(self, arm: str) -> list[Done]:
        """Return the runs of one arm, in order."""
        return [done for done in self.runs if done.arm == arm]

    def finding(self, change: Change) -> Finding | None:
        """Return what the diagnosis of the first run says of a change's rule."""
        found = self.diagnosis.findings if self.diagnosis is not None else []
        return next((finding for finding in found if finding.rule == change.rule), None)

    def _scout(self) -> None:
        """Run the command once as it is: it warms caches, gives the diagnosis, and its times are not used."""
        from underfed.diagnose.run import diagnose
        from underfed.diagnose.traced import read_window
        from underfed.recording.read import read

        done = self._one(SCOUT, None)
        self._report(done)
        done.insist("try", "without any change", self.say)
        with contextlib.suppress(UnderfedError, OSError, ValueError):
            self.diagnosis = diagnose(read(done.folder), read_window)

    def _with_value(self, change: Change) -> Change:
        if change.known:
            return change
        finding = self.finding(change)
        value = value_of(finding) if finding is not None else None
        if value is None:
            name = change.rule or change.name
            raise UsageError(
                f"try: {name}: the first run does not say which value to take; write one, such as {name}=4"
            )
        return change.filled(value)

    def _one(self, arm: str, change: Change | None) -> Done:
        number = 0 if arm == SCOUT else len(self.runs) + 1
        folder = self.folder / f"{number:02d}-{slug(arm)}"
        return run_once(
            self.plan.command,
            folder,
            arm=arm,
            switches=change.switches if change is not None else (),
            window="10" if arm == SCOUT else "off",
            seed=self.plan.seed,
            enough=Enough(folder, self.plan.steps, epochs=self._by_epochs()),
            most_s=self.plan.limit_s,
        )

    def _by_epochs(self) -> bool:
        names = {name for change in self.plan.changes for name, _ in change.switches}
        return "persistent_workers" in names

    def _report(self, done: Done) -> None:
        number = len(self.runs) if done.arm != SCOUT else 0
        self.say(f"run {number} of {self.plan.pairs * (1 + len(self._all_arms()))}, {done.arm}: {done.words()}")

    def _all_arms(self) -> Sequence[Change]:
        if self.arms:
            return self.arms
        return [*self.plan.changes, *self.plan.changes[:1]] if len(self.plan.changes) > 1 else self.plan.changes


def _has_losses(done: Done) -> bool:
    return not done.crashed and bool(done.measured.acted) and bool(done.measured.losses)


def order(arms: Sequence[str], pairs: int) -> list[str]:
    """Return the order of runs: forth and back in turns (ABBA), so that a drift of the machine hits all arms alike."""
    return [arm for number in range(pairs) for arm in (arms if number % 2 == 0 else arms[::-1])]


def progress(text: str) -> None:
    """Write a line of progress to stderr; a closed stderr is no reason to stop."""
    from underfed.report.text import clean

    with contextlib.suppress(OSError, ValueError, AttributeError):
        for line in text.splitlines():
            sys.stderr.write(f"underfed: {clean(line)}\n")
        sys.stderr.flush()
