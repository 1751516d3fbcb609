"""`underfed report`: a recording or a trace as a page to look at, as Markdown, or as a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.pictures.material import Material


def report(
    *paths: str,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], allow_leading_hyphen=True)] = None,
    format: Literal["html", "md", "perfetto"] | None = None,
    step_ms: float | None = None,
    force: Annotated[bool, Parameter(negative=(), name=["--force", "-f"])] = False,
) -> int:
    """Make a report of a recording or a trace: `underfed report RECORDING -o report.html`.

    HTML is one file that loads nothing: send it, open it anywhere, print it. Markdown is for issues and pull requests.
    The trace for ui.perfetto.dev has steps, the causes of gaps and the findings as tracks of their own.

    For example:

        underfed report RECORDING -o report.html
        underfed report trace.json.gz -o perfetto.json.gz

    Parameters
    ----------
    paths
        The folder that `underfed run` or `underfed try` printed, a diagnosis that --json wrote, or a trace (several:
        one a rank).
    out
        File to write; `-` is stdout, the default for md.
    format
        html, md or perfetto. Default: by the ending of the file (.html, .md, .json or .json.gz), else html.
    step_ms
        For traces: time of a step in ms, measured without a profiler.
    force
        Replace a file that exists.
    """
    import math

    from underfed.errors import UsageError

    if not paths:
        raise UsageError("report: nothing to report on; name the folder that `underfed run` printed, or a trace")
    if step_ms is not None and not (math.isfinite(step_ms) and step_ms > 0):
        raise UsageError(f"report: --step-ms {step_ms}: give the time of a step in ms, above 0")
    kind = format or _kind_of(out)
    if out is None and kind != "md":
        raise UsageError(f"report: name a file for it: -o report.{'html' if kind == 'html' else 'json.gz'}")
    if out is not None and str(out) != "-":
        _writable(out, force)

    from underfed.pictures.material import load

    data = _made(load(list(paths), step_ms), kind)
    if out is None or str(out) == "-":
        from underfed.report.page import say

        say(data.decode())
        return 0
    if out.suffix == ".gz":
        import gzip

        data = gzip.compress(data, mtime=0)
    _write(out, data)
    return 0


def _kind_of(out: Path | None) -> str:
    from underfed.errors import UsageError

    if out is None or str(out) == "-":
        return "html" if out is None else "md"
    name = out.name.lower()
    for kind, endings in (
        ("html", (".html", ".htm")),
        ("md", (".md", ".markdown")),
        ("perfetto", (".json", ".json.gz")),
    ):
        if name.endswith(endings):
            return kind
    raise UsageError(f"report: {out}: end its name in .html, .md or .json.gz, or give --format")


def _made(material: Material, kind: str) -> bytes:
    from underfed.pictures import html, markdown, perfetto

    if kind == "md":
        return markdown.render(material.diagnosis).encode()
    if kind == "perfetto":
        return perfetto.render(material)
    return html.render(material).encode()


def _writable(out: Path, force: bool) -> None:
    from underfed.errors import UsageError

    if out.is_dir():
        raise UsageError(f"report: {out} is a folder: name a file in it")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"report: -o {out}: its folder does not exist; create it first")
    if out.exists() and not force:
        raise UsageError(f"report: {out} exists; --force replaces it")


def _write(out: Path, data: bytes) -> None:
    """Write by way of a file beside it, so that a full disk leaves no half report."""
    import contextlib
    import os

    from underfed.errors import UsageError

    # A pipe or a device is written as it is.
    beside = out.with_name(f".{out.name}.{os.getpid()}.part") if out.is_file() or not out.exists() else None
    try:
        (beside or out).write_bytes(data)
        if beside is not None:
            beside.replace(out)
    except OSError as error:
        if beside is not None:
            with contextlib.suppress(OSError):
                beside.unlink()
        raise UsageError(f"report: cannot write {out}: {error.strerror or error}") from None
