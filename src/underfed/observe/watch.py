"""What `underfed run` does beside the command: samples the machine, gives a first verdict, and the final card."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underfed.diagnosis import Diagnosis

#: The first verdict stands on this many steps, or on fewer where they are long.
FIRST_STEPS = 50
FEWEST_STEPS = 10
LONG_WAIT_S = 25.0
LOOK_EVERY_S = 1.0

END = "end.json"


class Watch:
    """Follows one command. Imports late: before the command starts nothing of this costs time."""

    def __init__(self, folder: Path | None, *, window: str, steps: int | None, json_file: Path | None) -> None:
        self.folder = folder
        self.window = window
        self.steps = steps
        self.json_file = json_file
        self._host: object | None = None
        self._first_done = False
        self._next_look = 0.0
        self._seen_since: float | None = None

    def tick(self) -> None:
        """Called a few times a second while the command runs."""
        if self.folder is None:
            return
        self._sample()
        now = time.monotonic()
        if self._first_done or now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        if not any(self.folder.glob("p*.jsonl")):
            return
        if self._seen_since is None:
            self._seen_since = now
        self._look(now - self._seen_since)

    def _sample(self) -> None:
        from underfed.observe.host.sampler import HostSampler

        if self.folder is None:
            return
        if self._host is None:
            self._host = HostSampler(os.getpid(), self.folder)
        if isinstance(self._host, HostSampler):
            self._host.poll()

    def _look(self, since: float) -> None:
        """Give the first verdict as soon as it stands."""
        from underfed.report import first

        diagnosis = self._diagnose()
        if diagnosis is None:
            return
        steps = diagnosis.subject.steps or 0
        warm = diagnosis.subject.warmup_steps or 0
        enough = steps >= FIRST_STEPS or (steps + warm >= FEWEST_STEPS and since > LONG_WAIT_S)
        waiting_for_trace = diagnosis.step.device_ms is None and self.window != "off" and since < LONG_WAIT_S
        if not enough or waiting_for_trace or since < 2 * LOOK_EVERY_S:
            return
        self._first_done = True
        with contextlib.suppress(OSError, ValueError):
            first.write(diagnosis, sys.stderr)

    def _diagnose(self) -> Diagnosis | None:
        from underfed.diagnose.run import diagnose
        from underfed.diagnose.traced import read_window
        from underfed.errors import UnderfedError
        from underfed.recording.read import read

        if self.folder is None:
            return None
        try:
            return diagnose(read(self.folder), read_window)
        except UnderfedError:
            return None

    def finish(self, code: int, signal: int | None) -> None:
        """Write how the command ended, and print what there is to say on stderr."""
        if self.folder is None:
            return
        self._sample()
        with contextlib.suppress(OSError):
            (self.folder / END).write_text(json.dumps({"code": code, "signal": signal, "unix": time.time_ns()}) + "\n")
        diagnosis = self._diagnose()
        if diagnosis is None:
            self._say(f"nothing was recorded in {self.folder}")
            return
        self._save(diagnosis)
        if not diagnosis.subject.steps:
            settle = f" To settle it: {diagnosis.verdict.settle}." if diagnosis.verdict.settle else ""
            self._say(f"{diagnosis.verdict.text}{settle}")
            return
        from underfed.report import card

        with contextlib.suppress(OSError, ValueError):
            card.write(diagnosis, sys.stderr, recording=str(self.folder))

    def _save(self, diagnosis: Diagnosis) -> None:
        from underfed.diagnosis import to_json

        data = to_json(diagnosis)
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / "diagnosis.json").write_bytes(data)
        if str(self.json_file) == "-":
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write(data.decode())
                sys.stdout.flush()
        elif self.json_file is not None:
            try:
                self.json_file.write_bytes(data)
            except OSError as error:
                self._say(f"cannot write {self.json_file}: {error.strerror}; the same is in the recording")

    @staticmethod
    def _say(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"underfed: {text}\n")
