"""Which links of the far side may be made again here."""

from __future__ import annotations

from pathlib import Path

from underfed.carry.names import shown


def link_trouble(path: str, target: str, *, refuse: bool) -> str | None:
    """Say why a link at `path` below the destination, with this target, is not made; None if it may be.

    A target may climb only at its beginning, and not above the destination: `..` behind a name could climb out of a
    folder that is itself a link.
    """
    if refuse:
        return f"link to {shown(target)}, and links are refused"
    parts = [part for part in target.split("/") if part not in {"", "."}]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if target == "" or target.startswith("/") or climbs > path.count("/") or ".." in parts[climbs:]:
        return f"link that leaves the destination, to {shown(target)}; it is not made"
    return None


def dead_links(root: Path, paths: list[str]) -> list[str]:
    """Return which of the links made lead nowhere."""
    return [path for path in paths if (root / path).is_symlink() and not _leads_somewhere(root / path)]


def _leads_somewhere(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
