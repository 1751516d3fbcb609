"""How old a fact of each class may become, in months."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from underfed.carry.names import shown
from underfed.errors import UsageError

#: Months by class; None is never. Prices move with the market, verbs with the provider's console, silicon not at all.
BUILT_IN: dict[str, float | None] = {
    "price": 1,
    "prices": 1,
    "billing": 3,
    "teardown": 3,
    "hardware": None,
    "constant": None,
}
DEFAULT_MONTHS = 6.0


@dataclass(frozen=True)
class Limits:
    """The limits in force: by class, and for facts without one; paths (globs) that are passed by."""

    classes: dict[str, float | None] = field(default_factory=lambda: dict(BUILT_IN))
    default: float = DEFAULT_MONTHS
    exclude: tuple[str, ...] = ()

    def of(self, kind: str | None) -> float | None:
        """Return the limit of a class, in months; one that is not configured has the default."""
        return self.classes.get(kind, self.default) if kind else self.default


def read_limits(start: Path, max_age: float | None) -> Limits:
    """Read `[tool.underfed.stale]` of the nearest pyproject.toml at or above `start`; `max_age` overrides its default.

    Keys: `max-age`, `exclude`, and a table `classes` of months or "never". Raises UsageError when it cannot be used.
    """
    table = _table(start)
    classes = dict(BUILT_IN)
    for name, months in _mapping(table.get("classes", {})).items():
        classes[str(name).lower()] = None if months == "never" else _months(f"classes.{name}", months)
    default = DEFAULT_MONTHS if "max-age" not in table else _months("max-age", table["max-age"])
    exclude = table.get("exclude", [])
    if not isinstance(exclude, list) or not all(isinstance(item, str) for item in exclude):
        raise UsageError("[tool.underfed.stale] exclude: give a list of globs")
    return Limits(classes, default if max_age is None else _months("--max-age", max_age), tuple(exclude))


def _table(start: Path) -> dict[str, Any]:
    at = start.resolve()
    for folder in (at, *at.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            loads, broken = _toml()
            try:
                document = loads(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, broken) as error:
                raise UsageError(f"stale: {shown(file)}: cannot be read as TOML: {error}") from error
            tool = _mapping(_mapping(document.get("tool", {})).get("underfed", {}))
            return _mapping(tool.get("stale", {}))
    return {}


def _toml() -> tuple[Any, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads, tomllib.TOMLDecodeError
    import tomli

    return tomli.loads, tomli.TOMLDecodeError


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("[tool.underfed.stale]: is not a table; see docs/stale.md")
    return value


def _months(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10_000:
        raise UsageError(f"{name}: give a number of months from 0 on{', or never' if 'classes' in name else ''}")
    return float(value)
