"""The torch that this Python would import, read from its files: importing it takes seconds."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from underfed.observe.host.box.records import Torch


def installed_torch() -> Torch | None:
    """Return torch's version and the CUDA it was built for; None where this Python has no torch."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return read_version(Path(folders[0]) / "version.py") if folders else None


def read_version(file: Path) -> Torch | None:
    """Return what torch's version.py assigns, without running it; None where it is missing or other than expected."""
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return None
    found: dict[str, object] = {}
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                found[target.id] = value.value
    version, cuda = found.get("__version__"), found.get("cuda")
    return Torch(version=version, cuda=cuda if isinstance(cuda, str) else None) if isinstance(version, str) else None
