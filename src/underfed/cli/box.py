"""`underfed box`: what this machine really gives."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def box(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Say what this machine really gives: CPU quota, threads, GPU, clocks, storage, inodes, /dev/shm.

    Rented machines show more than they give. This reads limits where the kernel keeps them, writes and reads 8 MiB in
    the current folder and in /tmp (and removes it), and lists what to fix first. It needs no root and no GPU.

    Parameters
    ----------
    json
        Print one JSON object (schema underfed.box/1) instead of the table.
    """
    import tempfile
    from pathlib import Path

    from msgspec.structs import replace

    from underfed.observe.host.box.advice import advise
    from underfed.observe.host.box.gather import gather
    from underfed.observe.host.box.records import to_json
    from underfed.observe.host.box.show import text
    from underfed.report.page import say

    temporary = tempfile.gettempdir()
    found = gather({"this folder": Path.cwd(), temporary: Path(temporary)})
    found = replace(found, findings=tuple(advise(found)))
    say(to_json(found).decode() if json else text(found))
    return 0
