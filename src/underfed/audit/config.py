"""Settings of `underfed audit` in pyproject.toml: `[tool.underfed.audit]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from underfed.audit.finding import ORDER, Sure
from underfed.audit.registry import RULES
from underfed.audit.rule import AuditRule
from underfed.errors import UsageError
from underfed.report.text import clean

_KEYS = {"select", "ignore", "exclude", "sure"}


@dataclass(frozen=True)
class Config:
    """What is asked for: rules by id (empty: all), rules left out, globs passed by, the least level that is shown."""

    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    sure: Sure = "likely"

    @property
    def rules(self) -> list[AuditRule]:
        """Return the rules in force."""
        return [r for r in RULES if (not self.select or r.id in self.select) and r.id not in self.ignore]


def read_config(start: Path, *, select: str | None, ignore: str | None, sure: Sure | None) -> Config:
    """Read the nearest pyproject.toml at or above `start`; options of the command line go before it.

    Raises UsageError for a file or a value that cannot be used.
    """
    table = _table(start)
    unknown = set(table) - _KEYS
    if unknown:
        raise UsageError(f"[tool.underfed.audit]: no such key: {clean(', '.join(sorted(unknown)))}")
    level = sure or table.get("sure", "likely")
    if level not in ORDER:
        raise UsageError(f"[tool.underfed.audit] sure: give one of {', '.join(ORDER)}")
    return Config(
        select=_ids("select", select.split(",") if select is not None else _texts("select", table)),
        ignore=_ids("ignore", ignore.split(",") if ignore is not None else _texts("ignore", table)),
        exclude=tuple(_texts("exclude", table)),
        sure=level,
    )


def _ids(key: str, words: list[str]) -> frozenset[str]:
    found = set()
    for word in words:
        rule = next((r for r in RULES if word.strip().lower() in (r.id.lower(), r.name)), None)
        if rule is None:
            raise UsageError(f"audit: {key}: no rule {clean(word)[:40]!r}; see docs/audit-rules.md")
        found.add(rule.id)
    return frozenset(found)


def _texts(key: str, table: dict[str, Any]) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"[tool.underfed.audit] {key}: give a list of texts")
    return value


def _table(start: Path) -> dict[str, Any]:
    at = start.resolve()
    for folder in (at, *at.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            tool = _document(file).get("tool", {})
            ours = tool.get("underfed", {}) if isinstance(tool, dict) else {}
            table = ours.get("audit", {}) if isinstance(ours, dict) else {}
            if not isinstance(table, dict):
                raise UsageError("[tool.underfed.audit]: is not a table; see docs/audit.md")
            return table
    return {}


def _document(file: Path) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    try:
        return dict(toml.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, toml.TOMLDecodeError) as error:
        raise UsageError(f"audit: {clean(str(file))}: cannot be read as TOML: {error}") from error
