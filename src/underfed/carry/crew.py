"""Work shared out among processes: where files are many and small, one interpreter is what they wait for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

_MOST = 4
_PR_SET_PDEATHSIG = 1


def hands(pieces: int) -> int:
    """Return how many processes can share so many pieces; 1 where this process cannot be copied safely."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return max(1, min(_MOST, pieces, len(os.sched_getaffinity(0))))


class Crew:
    """Copies of this process, each of which does one piece after the other; none outlives us.

    `work` is given the number of the process and of the piece, and returns bytes, none of them a line feed.
    """

    def __init__(self, count: int, work: Callable[[int, int], bytes]) -> None:
        self._hands: list[_Hand] = []
        for number in range(count):
            self._hands.append(_Hand(number, work, self._hands))

    def share(self, pieces: int, heard: Callable[[int, bytes | None], bool]) -> None:
        """Hand out pieces in order; `heard` is told what came of each, None where its process died, as it ends.

        Once it returns False no more are handed out.
        """
        waiting = list(range(pieces))
        more = True
        busy: dict[int, _Hand] = {}
        for hand in self._hands[:pieces]:
            hand.give(waiting.pop(0))
            busy[hand.answers] = hand
        while busy:
            for ready in select.select(list(busy), [], [])[0]:
                hand = busy[ready]
                came, ended = hand.take()
                if not ended:
                    continue
                more &= heard(hand.piece, came)
                if came is not None and more and waiting:
                    hand.give(waiting.pop(0))
                else:
                    del busy[ready]
        for piece in waiting if more else ():
            heard(piece, None)  # all processes have died

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self._hands:
            hand.end()


class _Hand:
    """One process; it reads numbers of pieces, one a line, and answers each with a line."""

    def __init__(self, number: int, work: Callable[[int, int], bytes], others: list[_Hand]) -> None:
        orders, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        self.piece = -1
        self._heard = b""
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends us
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                for fd in (self._orders, self.answers, *(fd for hand in others for fd in (hand._orders, hand.answers))):
                    os.close(fd)
                if os.getppid() == parent:
                    _serve(number, work, orders, answers)
            except Exception:
                sys.excepthook(*sys.exc_info())  # a fault of ours: seen, as it is without processes
            finally:
                os._exit(0)
        os.close(orders)
        os.close(answers)

    def give(self, piece: int) -> None:
        """Have a piece done."""
        self.piece = piece
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders, b"%d\n" % piece)

    def take(self) -> tuple[bytes | None, bool]:
        """Read on; returns the answer, None if the process has ended, and whether it is there."""
        block = os.read(self.answers, 1 << 16)
        self._heard += block
        if self._heard.endswith(b"\n"):
            answer, self._heard = self._heard[:-1], b""
            return answer, True
        return None, not block

    def end(self) -> None:
        """End the process, whatever it does."""
        os.close(self._orders)
        os.close(self.answers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(number: int, work: Callable[[int, int], bytes], orders: int, answers: int) -> None:
    with open(orders, "rb") as lines, open(answers, "wb", buffering=0) as out:
        for line in lines:
            answer = memoryview(work(number, int(line)) + b"\n")
            while answer:
                answer = answer[out.write(answer) or 0 :]
