"""How old a stamp is, and whether that is too old."""

from __future__ import annotations

import calendar
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from underfed.carry.names import shown
from underfed.freshness.limits import Limits
from underfed.freshness.stamps import Stamp

Verdict = Literal["fresh", "stale", "future", "impossible", "changed", "probe failed"]
_PROBE_SECONDS = 60


@dataclass(frozen=True)
class Judged:
    """A stamp with its age in whole months, the limit of its class in months (None: never), and the verdict."""

    stamp: Stamp
    age: int | None
    limit: float | None
    verdict: Verdict
    note: str = ""

    @property
    def bad(self) -> bool:
        """Whether the fact needs a look."""
        return self.verdict != "fresh"

    def message(self) -> str:
        """Return what is to be said of it, on one line."""
        stamp = self.stamp
        kind = f", class {stamp.kind}" if stamp.kind else ""
        head = f"verified {stamp.written}"
        if self.verdict == "impossible":
            return f"{head}: {stamp.error}"
        if self.verdict == "future":
            return f"{head}: lies in the future"
        limit = "never stale" if self.limit is None else f"limit {self.limit:g}"
        age = f"{self.age} {'month' if self.age == 1 else 'months'} old ({limit}{kind})"
        return f"{head}: {age}" + (f"; {self.note}" if self.note else "")

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        stamp = self.stamp
        return {
            "path": shown(stamp.path),
            "line": stamp.line,
            "fact": stamp.fact,
            "verified": stamp.written,
            "class": stamp.kind,
            "age_months": self.age,
            "limit_months": self.limit,
            "verdict": self.verdict,
            "note": self.note or stamp.error or "",
        }


def judge(stamp: Stamp, limits: Limits, today: date, *, whole_month: bool = False) -> Judged:
    """Hold a stamp against today. A month without a day is aged in calendar months; exactly the limit is still fresh.

    whole_month: today is known to the month only, so that no day of it lies in the future.
    """
    limit = limits.of(stamp.kind)
    if stamp.error:
        return Judged(stamp, None, limit, "impossible")
    months = (today.year - stamp.year) * 12 + today.month - stamp.month
    ahead = months == 0 and stamp.day is not None and stamp.day > today.day and not whole_month
    if months < 0 or ahead:
        return Judged(stamp, None, limit, "future")
    beyond = 0.0
    if stamp.day is not None and not whole_month:
        length = calendar.monthrange(today.year, today.month)[1]
        last = calendar.monthrange(stamp.year, stamp.month)[1]
        day = min(stamp.day, length) if stamp.day < last else min(last, length)
        if today.day < day:
            months, beyond = months - 1, 0.5
        elif today.day > day:
            beyond = 0.5
    stale = limit is not None and months + beyond > limit
    return Judged(stamp, months, limit, "stale" if stale else "fresh")


def probe(judged: Judged) -> Judged:
    """Run the command that is written beside a fact and hold its answer against the fact.

    The command is the user's own, written in the user's own file, and runs only on request. Its answer, without blanks
    around it, must stand in the entry's `value`, or in the fact's text as a word.
    """
    stamp = judged.stamp
    if stamp.probe is None or judged.bad:
        return judged
    try:
        done = _run(stamp.probe)
    except subprocess.TimeoutExpired:
        return _with(judged, "probe failed", f"its probe gave no answer in {_PROBE_SECONDS} s")
    except OSError as error:
        return _with(judged, "probe failed", f"its probe cannot be run: {error.strerror}")
    answer = " ".join(done.stdout.split())
    if done.returncode != 0 or not answer:
        said = " ".join(done.stderr.split())[:120]
        return _with(judged, "probe failed", f"its probe ended with {done.returncode}: {shown(said) or 'no answer'}")
    if _agrees(answer, stamp):
        return _with(judged, "fresh", "its probe agrees")
    return _with(judged, "changed", f"its probe says {shown(answer)[:120]}")


def _run(line: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line (that it is one by definition, and asked for with --run-probes); when it takes too long, all
    that it started is ended with it. Raises TimeoutExpired, OSError.
    """
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            said = process.communicate(timeout=_PROBE_SECONDS)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(line, process.returncode, *said)


def _agrees(answer: str, stamp: Stamp) -> bool:
    if stamp.answer is not None:
        return answer == " ".join(stamp.answer.split())
    import re

    return re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w]|\.\d)", stamp.fact) is not None


def _with(judged: Judged, verdict: Verdict, note: str) -> Judged:
    return Judged(judged.stamp, judged.age, judged.limit, verdict, note)
