"""`underfed box`: what this machine really gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.observe.host.box.records import Box


def box(*, host: str | None = None, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Say what this machine really gives: CPU quota, threads, GPU, clocks, storage, inodes, /dev/shm.

    Rented machines show more than they give. This reads limits where the kernel keeps them, writes and reads 8 MiB in
    the current folder and in /tmp (and removes it), and lists what to fix first. It needs no root and no GPU.

    For example:

        underfed box
        underfed box --json

    Parameters
    ----------
    host
        Look at another machine, by ssh: `underfed box --host ALIAS`. Nothing needs to be installed there but Python;
        its home folder and its /tmp are probed, and nothing is left there.
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

    if host is not None:
        found = _elsewhere(host)
    else:
        temporary = tempfile.gettempdir()
        found = gather({"this folder": Path.cwd(), temporary: Path(temporary)})
    found = replace(found, findings=tuple(advise(found)))
    say(to_json(found).decode() if json else text(found))
    return 0


def _elsewhere(host: str) -> Box:
    """Gather the box of another machine."""
    import msgspec

    from underfed.errors import MeasurementError
    from underfed.observe.host.box.records import Box
    from underfed.remote.session import ask, check_host

    answer = ask(check_host(host), {"what": "box", "folders": {"home folder": "~"}})
    try:
        return msgspec.convert(answer.get("box"), Box)
    except msgspec.ValidationError as error:
        raise MeasurementError(f"{host}: gives what is no answer of ours") from error
