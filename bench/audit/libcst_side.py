"""What the audit stands on, beside LibCST: time to parse, memory, and whether an edit keeps the rest byte for byte.

    pip install libcst
    python bench/audit/libcst_side.py FOLDER

Both read the same Python files of a folder, one core, each in a process of its own. LibCST parses them, and parses them
with the positions and qualified names that rules would need; the audit reads them whole: parsed, indexed and judged.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from pathlib import Path


def sources(folder: Path) -> list[str]:
    """Return the text of the Python files that both can parse."""
    import ast

    found = []
    for path in sorted(folder.rglob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
            ast.parse(text)
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError):
            continue
        found.append(text)
    return found


def measure(what: str, folder: Path) -> None:
    """Print one line: what was done, seconds of this process's CPU, and its peak memory."""
    texts = sources(folder)
    gc.collect()
    before = time.process_time()
    note = ""
    if what == "ast":
        import ast

        gc.disable()
        kept: list[object] = [ast.parse(text) for text in texts]
    elif what == "libcst":
        import libcst

        kept = []
        for text in texts:
            module = libcst.parse_module(text)
            kept.append(module)
    elif what == "libcst, positions and names":
        import libcst
        from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider

        kept = []
        for text in texts:
            wrapper = MetadataWrapper(libcst.parse_module(text), unsafe_skip_copy=True)
            kept.append(wrapper.resolve_many([PositionProvider, QualifiedNameProvider]))
    else:
        from underfed.audit.engine import audit

        result = audit([folder])
        note = f", {len(result.findings)} findings"
    spent = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = sum(text.count("\n") for text in texts)
    print(f"{what:30}{lines:9} lines{spent:8.2f} s{100_000 * spent / lines:8.2f} s per 100,000{peak:8.0f} MB{note}")


def main() -> int:
    """Measure each in its own process."""
    if len(sys.argv) == 3:
        measure(sys.argv[2], Path(sys.argv[1]))
        return 0
    for what in ("ast", "libcst", "libcst, positions and names", "underfed audit"):
        subprocess.run([sys.executable, __file__, sys.argv[1], what], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
