"""`underfed.watch()`: the agent of `underfed run` around any loop of a running process."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from underfed.diagnosis import Diagnosis, Subject, Verdict
from underfed.errors import UnderfedError, UsageError
from underfed.library.arming import Beside, Own, beside, torch_here
from underfed.library.reading import place
from underfed.recording.read import Recording

_lock = threading.Lock()
_current: list[Watch] = []


def watch(*, out: str | os.PathLike[str] | None = None, window: int | None = 10, steps: int | None = None) -> Watch:
    """Watch the training loop in this process: `with underfed.watch() as w: ...`, then `w.diagnosis`.

    `out` is a folder for the Recording, new or empty; without it a temporary one lives as long as what is returned.
    `window` steps are traced once to see a GPU at work, None for never. After `steps` steps nothing is watched any
    more. One watch at a time can be going in a process; under `underfed run` it reads what that records.

    Raises UsageError where the arguments cannot be used, where a watch is going already, or where torch is missing.
    """
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise UsageError(f"watch: window={window!r}: give a number of steps from 1 on, or None")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise UsageError(f"watch: steps={steps!r}: give a number of steps from 1 on, or None")
    options = {"window": "off" if window is None else str(window)}
    if steps is not None:
        options["steps"] = str(steps)
    return Watch(place(out) if out is not None else None, options)


def going() -> Watch | None:
    """Return the watch that is going in this process, if one is."""
    found = _current[0] if _current else None
    return found if found is not None and found._pid == os.getpid() else None  # a fork has its parent's list


class Watch:
    """One look at a loop: a context manager, or `start()` and `stop()`. Made by `underfed.watch()`."""

    def __init__(self, out: Path | None, options: dict[str, str]) -> None:
        self._out, self._options = out, options
        self._eyes: Own | Beside | None = None
        self._state = "new"
        self._why = ""
        self._place: str | None = None
        self._pid = 0
        self._diagnosis: Diagnosis | None = None
        self._recording: Recording | None = None
        self._temporary: _Temporary | None = None

    def start(self) -> Watch:
        """Begin to watch, and return this object. Where nothing can be watched, that is one warning, and no error."""
        if self._state != "new":
            raise UsageError("watch: it has been used already; make another with underfed.watch()")
        with _lock:
            other = going()
            if other is not None:
                raise UsageError(
                    f"watch: one is going already in this process (begun at {other._place}): "
                    "end it first, or use its diagnosis"
                )
            self._place, self._pid = _caller(), os.getpid()
            _current[:] = [self]
        try:
            self._arm()
        except BaseException:
            self._leave()
            raise
        self._state = "going"
        return self

    def _arm(self) -> None:
        if sys.platform != "linux":
            self._give_up("underfed watches on Linux only")
            return
        torch_here()
        self._eyes = beside()
        if self._eyes is not None:
            if self._out is not None:
                warnings.warn(
                    f"underfed: `underfed run` records to {self._eyes.folder}, not to {self._out}", stacklevel=4
                )
            return
        try:
            self._eyes = Own(self._folder(), self._options)
        except UsageError as error:
            raise UsageError(str(error).replace("--out ", "watch: out=")) from None
        except UnderfedError as error:
            self._give_up(str(error).replace("--out DIR", "out="))
        except Exception as error:  # a fault of ours must not keep the training from running
            self._give_up(f"a fault of underfed, not of your code: {type(error).__name__}: {error}")

    def _folder(self) -> Path:
        from underfed.recording.place import NoPlaceError, new_folder

        if self._out is not None:
            return new_folder(self._out)
        try:
            self._temporary = _Temporary()
        except OSError as error:
            raise NoPlaceError(f"no temporary folder can be made: {error.strerror}; name one with out=") from None
        return self._temporary.folder

    def _give_up(self, why: str) -> None:
        self._why = why
        warnings.warn(f"underfed: nothing is watched: {why}", RuntimeWarning, stacklevel=5)

    def stop(self) -> None:
        """End the watch and put everything in the process back as it was; after the first time it does nothing."""
        self._end(0)

    def _end(self, code: int) -> None:
        if self._state != "going":
            return
        self._state = "ended"
        self._leave()
        if os.getpid() != self._pid:
            self._why = "this process is a fork of the one that is watched"
        if self._eyes is not None:
            try:
                self._eyes.end(code)
            except Exception as error:
                warnings.warn(
                    f"underfed: a fault of underfed, not of your code: {type(error).__name__}: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _leave(self) -> None:
        with _lock:
            if _current and _current[0] is self:
                _current.clear()

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end(0 if error is None else 1)

    @property
    def folder(self) -> Path | None:
        """Where the Recording lies; None where nothing is recorded."""
        return self._eyes.folder if self._eyes is not None else None

    @property
    def recording(self) -> Recording:
        """What was recorded, up to now while the watch goes on.

        Raises UsageError before the start and where nothing was recorded.
        """
        if self._state == "new":
            raise UsageError("watch: it has not begun; use it as `with underfed.watch() as w:`")
        if self._eyes is None or self._why:
            raise UsageError(f"watch: nothing was recorded: {self._why}")
        if self._recording is not None:
            return self._recording
        from underfed.recording.read import read

        if self._state == "going":
            self._eyes.catch_up()
        found = read(self._eyes.folder)
        found.keep = self._temporary  # its traced window lies there
        if self._state == "ended" and isinstance(self._eyes, Own):
            self._recording = found
        return found

    @property
    def diagnosis(self) -> Diagnosis:
        """What it means: of all that was seen once the watch has ended, of what was seen so far before.

        Always a Diagnosis, `unknown` with the reason where nothing could be watched. While the watch goes on each
        access reads anew and takes tens of ms, which are left out of the step. Raises UsageError before the start.
        """
        if self._diagnosis is not None:
            return self._diagnosis
        if self._state != "new" and (self._eyes is None or self._why):
            return _nothing(self._why)
        from underfed.library.reading import diagnose

        found = diagnose(self.recording)
        if self._state == "ended" and isinstance(self._eyes, Own):
            self._diagnosis = found
        elif self._eyes is not None:
            self._eyes.leave_out()
        return found

    def __repr__(self) -> str:
        words = {"new": "not begun", "going": "going", "ended": "ended"}[self._state]
        return f"<underfed watch, {words}{': ' + self._why if self._why else ''}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        if self._state == "new":
            return {"text/plain": repr(self)}
        return self.diagnosis._repr_mimebundle_()


def _caller() -> str:
    """Return the file and line outside this module that asks."""
    from underfed.library.cells import cell_namer

    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    name, known = frame.f_code.co_filename, cell_namer()
    return f"{(known(name) if known is not None else None) or name}:{frame.f_lineno}"


def _nothing(why: str) -> Diagnosis:
    return Diagnosis(
        subject=Subject(kind="run", paths=[], steps=0),
        verdict=Verdict(bound="unknown", confidence="low", text=f"Nothing was watched: {why}."),
        limits=["nothing was measured"],
    )


class _Temporary:
    """A folder that goes away with the last object that needs it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="underfed-watch-"))
        weakref.finalize(self, _remove, str(self.folder), os.getpid())


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # forks have this finalizer as well
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
