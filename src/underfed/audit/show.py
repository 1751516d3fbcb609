"""What people and machines see of an audit. Names and code of the user are cleaned before they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from underfed.audit.finding import ORDER, AuditFinding, Result
from underfed.carry.names import plural
from underfed.report.text import clean, wrap

_LEVEL = {"certain": "warning", "likely": "warning", "possible": "notice"}
_SARIF_LEVEL = {"certain": "warning", "likely": "warning", "possible": "note"}


def place(finding: AuditFinding) -> str:
    """Return a finding's `file:line:column`, with the cell of a notebook."""
    cell = f"cell {finding.cell}:" if finding.cell is not None else ""
    return f"{clean(finding.path)}:{cell}{finding.line}:{finding.column}"


def text(result: Result, shown: Sequence[AuditFinding], *, full: bool, hidden: Sequence[str] = ()) -> str:
    """Return one line a finding, files that could not be read, and a summary; `full` adds code, reason and evidence."""
    lines: list[str] = []
    for finding in shown:
        mark = " [*]" if finding.fix is not None and finding.fix.safe else ""
        worth = f" (measured: {finding.gain[0]:.2g}x to {finding.gain[1]:.2g}x)" if finding.gain else ""
        lines.append(f"{place(finding)}: {finding.rule} {clean(finding.message)}{worth} ({finding.sure}){mark}")
        if full:
            lines.append(f"    {clean(finding.code)}")
            for name, body in (("why", finding.why), ("settle", finding.settle)):
                lines += [f"    {part}" for part in wrap(f"{name}: {clean(body)}", 100)]
            if finding.fix is not None:
                safe = "safe" if finding.fix.safe else "unsafe"
                lines.append(f"    fix ({safe}): {clean(finding.fix.title)}")
    lines += [f"{clean(one.path)}: not read: {clean(one.reason)}" for one in result.unread]
    lines += _summary(result, shown)
    lines += hidden
    return "\n".join(lines) + "\n"


def _summary(result: Result, shown: Sequence[AuditFinding]) -> list[str]:
    counts = Counter(finding.sure for finding in shown)
    parts = ", ".join(f"{counts[level]} {level}" for level in ORDER if counts[level])
    read = f"{plural(result.files - len(result.unread), 'file')} read"
    lines = [f"{plural(len(shown), 'finding')}{f' ({parts})' if parts else ''}; {read}"]
    safe = sum(1 for f in shown if f.fix is not None and f.fix.safe)
    unsafe = sum(1 for f in shown if f.fix is not None and not f.fix.safe)
    if safe or unsafe:
        more = f"; {unsafe} more with --fix --unsafe-fixes, which can change results" if unsafe else ""
        lines.append(f"[*] {safe} with --fix{more}")
    if result.unknown:
        lines.append(
            f"{plural(len(result.unknown), 'setting')} not judged, because the value is not in the source (--json)"
        )
    return lines


def document(result: Result, shown: Sequence[AuditFinding]) -> dict[str, Any]:
    """Return the JSON object of an audit."""
    return {
        "schema": "underfed.audit/1",
        "files": result.files,
        "lines": result.lines,
        "findings": [_as_json(finding) for finding in shown],
        "unread": [{"path": one.path, "reason": one.reason} for one in result.unread],
        "unknown": [{"path": one.path, "line": one.line, "text": one.text} for one in result.unknown],
    }


def _as_json(finding: AuditFinding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "rule": finding.rule,
        "name": finding.name,
        "path": finding.path,
        "cell": finding.cell,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "message": finding.message,
        "sure": finding.sure,
        "code": finding.code,
        "why": finding.why,
        "settle": finding.settle,
        "fix": {"title": fix.title, "safe": fix.safe} if fix else None,
        "helps_now": finding.helps_now,
        "gain": list(finding.gain) if finding.gain else None,
    }


def github(result: Result, shown: Sequence[AuditFinding]) -> str:
    """Return annotations of a pull request."""
    lines = []
    for finding in shown:
        at = f"file={_property(finding.path)},line={finding.source_line},col={finding.column}"
        title = _property(f"{finding.rule} {finding.name}")
        lines.append(f"::{_LEVEL[finding.sure]} {at},title={title}::{_data(f'{finding.message} ({finding.sure})')}")
    lines += [f"::notice file={_property(one.path)}::{_data(f'not read: {one.reason}')}" for one in result.unread]
    return "\n".join(lines) + ("\n" if lines else "")


def _data(value: str) -> str:
    return clean(value).replace("%", "%25")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(result: Result, shown: Sequence[AuditFinding], version: str) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log."""
    rules = {f.rule: f for f in shown}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "underfed",
                        "version": version,
                        "rules": [
                            {
                                "id": f.rule,
                                "name": f.name,
                                "shortDescription": {"text": f.name},
                                "fullDescription": {"text": f.why},
                            }
                            for f in rules.values()
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": f"{one.path}: not read: {one.reason}"}}
                            for one in result.unread
                        ],
                    }
                ],
                "results": [_sarif_result(finding) for finding in shown],
            }
        ],
    }


def _sarif_result(finding: AuditFinding) -> dict[str, Any]:
    from urllib.parse import quote

    region = {
        "startLine": finding.source_line,
        "startColumn": finding.column,
        "endLine": finding.source_line + finding.end_line - finding.line,
        "endColumn": finding.end_column,
    }
    uri = quote(finding.path, safe="/")
    return {
        "ruleId": finding.rule,
        "level": _SARIF_LEVEL[finding.sure],
        "message": {"text": f"{finding.message} ({finding.sure})"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
