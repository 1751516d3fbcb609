"""The environment of the command: the bytes that `underfed` itself was started with, and three variables of ours."""

from __future__ import annotations

import os
from pathlib import Path

AGENT = b"UNDERFED_AGENT"
"""Absolute recording folder; its presence is what switches the agent on."""
OPTIONS = b"UNDERFED_OPTIONS"
"""Comma-separated NAME=VALUE options of the agent, such as `window=10`."""
PYTHONPATH = b"PYTHONPATH"

INJECT = Path(__file__).resolve().parent / "inject"


def inherited_environment() -> dict[bytes, bytes]:
    """Return the environment as this process received it.

    Not `os.environb`: Python may have set LC_CTYPE for itself since (PEP 538). Of a name given twice the first counts,
    as for getenv.
    """
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environb)
    environment: dict[bytes, bytes] = {}
    for entry in block.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if name and equals:
            environment.setdefault(name, value)
    return environment


def with_agent(environment: dict[bytes, bytes], folder: Path, options: dict[str, str]) -> dict[bytes, bytes]:
    """Return a copy that carries the agent into every Python process: our folder first on PYTHONPATH.

    The spelling of our folder tells `sitecustomize.py` what the user's own PYTHONPATH was; see there.
    """
    ours = os.fsencode(INJECT)
    unset, empty = ours + b"/.", ours + b"/./."
    value = environment.get(PYTHONPATH)
    if value is None:
        extended = unset
    elif value == b"":
        extended = empty
    elif value.split(b":", 1)[0] in (ours, unset, empty):  # `underfed run` below `underfed run`
        extended = value
    else:
        extended = ours + b":" + value
    words = ",".join(f"{name}={text}" for name, text in options.items())
    return {**environment, PYTHONPATH: extended, AGENT: os.fsencode(folder), OPTIONS: words.encode()}
