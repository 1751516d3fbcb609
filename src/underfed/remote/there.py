"""Runs on the machine that is looked at: does what was asked and writes the answer. Standard library only.

When the other side goes away its end of the pipe closes; the look then ends at once, and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


def main(folder: str, mark: str) -> None:
    """Read the request, and py-spy where it was sent, from stdin; write the answer behind `mark` to stdout."""
    source = sys.stdin.buffer
    request = json.loads(source.read(int(source.readline())))
    size = int(source.readline())
    if size:
        program = Path(folder) / "py-spy"
        program.write_bytes(source.read(size))
        program.chmod(stat.S_IRWXU)
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + folder
    left = threading.Event()
    threading.Thread(target=_until_closed, args=(source.fileno(), left), daemon=True).start()
    answer = json.dumps(_answer(request, left)).encode()
    out = sys.stdout.buffer
    out.write(f"{mark} {len(answer)}\n".encode())
    out.write(answer)
    out.flush()


def _until_closed(descriptor: int, left: threading.Event) -> None:
    # Not through the buffered reader: a thread that holds its lock at the end makes Python abort.
    while os.read(descriptor, 1):
        pass
    left.set()


def _answer(request: dict[str, Any], left: threading.Event) -> dict[str, Any]:
    from underfed.errors import UnderfedError

    try:
        return _box(request) if request["what"] == "box" else _attach(request, left)
    except UnderfedError as error:
        return {"error": str(error), "code": error.exit_code}


def _box(request: dict[str, Any]) -> dict[str, Any]:
    from underfed.observe.host.box.gather import gather
    from underfed.remote.seen import plain_record

    folders = {name: Path(path).expanduser() for name, path in request["folders"].items()}
    temporary = tempfile.gettempdir()
    return {"box": plain_record(gather({**folders, temporary: Path(temporary)}))}


def _attach(request: dict[str, Any], left: threading.Event) -> dict[str, Any]:
    from underfed.observe.live.permission import denied, missing
    from underfed.observe.live.target import choose
    from underfed.observe.live.window import watch
    from underfed.remote.seen import pack

    target = choose(request["process"], request["gpu"])
    seen = watch(target, request["seconds"], stop=left)
    permission = missing(target.pid) if denied(target.pid, seen.sampling.reason) else None
    return {"seen": pack(seen), "permission": permission}
