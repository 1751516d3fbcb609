"""Work on many files by several processes: each is a fork that has what was read, and answers file by file."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
#: A fork and its copied pages cost some 20 ms: fewer lines than this are read before another process has begun.
LINES_A_PROCESS = 5_000


def processes(lines: int, jobs: int) -> int:
    """Return how many processes are worth starting for some lines of source; 1 where forks are not to be had."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return max(1, min(jobs, lines // LINES_A_PROCESS))


def spread(work: Callable[[int], _T], sizes: Sequence[int], jobs: int) -> list[_T | str]:
    """Return `work(0)`, `work(1)`, ... in this order, done by `jobs` forks of this process, the largest first.

    Where a process ends in the middle of its work, that one answer is a text that says how, and another process goes on
    with the rest. An exception, Ctrl-C too, ends all processes before it leaves this function.
    """
    queue = sorted(range(len(sizes)), key=lambda at: sizes[at])
    answers: dict[int, _T | str] = {}
    team: list[_Fork[_T]] = []
    try:
        for _ in range(min(jobs, len(queue))):
            team.append(_Fork(work, team))
        for fork in team:
            fork.give(queue.pop() if queue else None)
        while busy := {fork.pipe: fork for fork in team if fork.at is not None}:
            for pipe in wait(list(busy)):
                fork = busy[pipe]  # type: ignore[index]
                answers[fork.at], alive = fork.take()  # type: ignore[index]
                if not alive:
                    team.remove(fork)
                    fork.end()
                    if not queue:
                        continue
                    fork = _Fork(work, team)
                    team.append(fork)
                fork.give(queue.pop() if queue else None)
    finally:
        for fork in team:
            fork.end()
    return [answers[at] for at in range(len(sizes))]


class _Fork(Generic[_T]):
    """One process and what it works on."""

    def __init__(self, work: Callable[[int], _T], team: list[_Fork[_T]]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.at: int | None = None
        others = [self.pipe, *(fork.pipe for fork in team)]
        self.process = context.Process(target=_serve, args=(work, theirs, others), daemon=True)
        with _interrupts_held():
            self.process.start()
        theirs.close()

    def give(self, at: int | None) -> None:
        """Hand the process its next piece; without one it has nothing to do."""
        self.at = at
        if at is not None:
            with suppress(OSError):  # it has ended: its pipe says so when it is read
                self.pipe.send(at)

    def take(self) -> tuple[_T | str, bool]:
        """Return the process's answer, and whether the process lives on."""
        try:
            answer: _T = self.pipe.recv()  # of our own fork, over a pipe that nobody else has
        except (EOFError, OSError):
            self.process.join()
            return _ended(self.process.exitcode), False
        return answer, True

    def end(self) -> None:
        """End the process; it keeps nothing that would be lost."""
        self.pipe.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while a process starts: the new one would end in the middle of that, with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(work: Callable[[int], Any], pipe: Connection, others: list[Connection]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; whoever started this one decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for one in others:
        one.close()  # or this process would keep a pipe open whose other end waits for its end
    while True:
        try:
            at = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(work(at))


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"the process that read it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"the process that read it was ended by signal {-code}"
    return "the process that read it ended before its time"
