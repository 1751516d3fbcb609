"""What all tests start from."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take back the signals that `nohup` and a shell's `&` make every process below them ignore."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
