"""What all tests start from."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time, so that a run can be repeated; `HYPOTHESIS_PROFILE=default` draws new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

HERE = Path(__file__).parent
ALONE = {"attach", "compare", "library", "live", "planted", "remote", "trial", "tune"}
"""Folders whose tests judge what real runs took; beside other tests they would judge those as well. Single tests
of other folders carry the marker themselves."""

BESIDE = {
    "test_completion.py",
    "test_ends.py",
    "test_far_side.py",
    "test_gpu_readings.py",
    "test_gpu_verdicts.py",
    "test_harmless.py",
    "test_kept.py",
    "test_library_page.py",
    "test_live_attach.py",
    "test_live_draw.py",
    "test_live_elsewhere.py",
    "test_live_gauges.py",
    "test_live_growing.py",
    "test_live_run.py",
    "test_live_state.py",
    "test_losses.py",
    "test_noise.py",
    "test_search.py",
    "test_show.py",
    "test_stats.py",
    "test_tables.py",
    "test_told.py",
    "test_truth.py",
    "test_try_ends.py",
    "test_tune_words.py",
    "test_writers.py",
}
"""Files of those folders that judge no timing."""

LONGEST = (
    "trial",
    "planted",
    "agent",
    "attach",
    "live",
    "habits",
    "docs",
    "library",
    "carry",
    "pictures",
    "trace",
    "read",
    "remote",
)
"""Folders that begin: what takes long and comes last would be waited for by one process while the others have ended."""


def pytest_configure() -> None:
    """Take back the signals that `nohup` and a shell's `&` make every process below them ignore."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the machine for itself, and begin with what takes longest."""
    for item in items:
        folder = folder_of(item)
        if (folder in ALONE and item.path.name not in BESIDE) or item.path.name == "test_demo.py":
            item.add_marker(pytest.mark.alone)
    items.sort(key=lambda item: LONGEST.index(folder_of(item)) if folder_of(item) in LONGEST else len(LONGEST))


def folder_of(item: pytest.Item) -> str:
    """Return the folder of tests/ that holds a test."""
    return item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
