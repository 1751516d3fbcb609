"""The two ways to watch from inside: our own agent for a while, or the one that `underfed run` has put in already."""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from underfed.errors import UsageError

END = "end.json"


def torch_here() -> ModuleType:
    """Import torch and return it; raises UsageError where this Python has none."""
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"watch: torch cannot be imported in {sys.executable}: {error}") from None
    module: ModuleType = torch
    return module


class Own:
    """Our agent, armed in this process and writing to `folder`."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        from underfed.library.cells import cell_namer
        from underfed.observe import agent
        from underfed.observe.agent import core, frames
        from underfed.observe.host.sampler import HostSampler
        from underfed.recording.place import write_header

        self.folder = folder
        self._agent: Any = agent
        self._core: Any = core
        self._pid = os.getpid()
        # sys.argv[0] is -c, a script, or a kernel's launcher; values that could be secret are left out.
        write_header(folder, ["python", *sys.argv])
        torch = torch_here()
        gpu = bool(getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None))
        words = ",".join(f"{name}={text}" for name, text in options.items())
        try:
            self._agent.install(str(folder), words, mmap.mmap(-1, 1))
            frames.namer = cell_namer()
            self._host = HostSampler(self._pid, folder, gpu=gpu)
            self._host.sample()
            core.S.beside = self._host.poll
        except BaseException:
            self._agent.remove()
            raise

    def catch_up(self) -> None:
        """Write what was seen so far."""
        self._agent.catch_up()

    def leave_out(self) -> None:
        """Leave the time up to now out of the step, where the training thread asks."""
        from threading import get_ident

        from underfed.observe.agent.clock import CLOCK

        if CLOCK.thread == get_ident():
            self._core.skip_until(time.perf_counter_ns())

    def end(self, code: int) -> None:
        """Write what is left and take the agent out; `code` is 0 where the loop ended in good order."""
        self._agent.remove()
        if os.getpid() != self._pid:  # a fork that left the block as well: the recording is its parent's
            return
        self._host.sample()
        self._host.close()
        (self.folder / END).write_text(json.dumps({"code": code, "signal": None, "unix": time.time_ns()}) + "\n")


class Beside:
    """The agent of `underfed run`, which watches this process from its start to its end; it is left as it is."""

    def __init__(self, agent: Any, core: Any) -> None:
        self._agent, self._core = agent, core
        self.folder = Path(core.S.writer.folder)

    def catch_up(self) -> None:
        """Write what was seen so far."""
        if self._core.S.on:
            self._agent.catch_up()

    def leave_out(self) -> None:
        """Leave the time up to now in: the card of `underfed run` is about the whole command."""

    def end(self, _code: int) -> None:
        """Let it go on, with what was seen so far written."""
        self.catch_up()


def beside() -> Beside | None:
    """Return the agent of `underfed run`, None where this process is not run by it."""
    agent, core = sys.modules.get("_underfed_agent"), sys.modules.get("_underfed_agent.core")
    if agent is None or core is None or core.S.writer is None:
        return None
    return Beside(agent, core)
