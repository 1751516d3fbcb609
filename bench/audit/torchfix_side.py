"""TorchFix and `underfed audit` on the same snippets: how many of the marked lines each finds, and what else they say.

    pip install --target FOLDER torchfix
    python bench/audit/torchfix_side.py FOLDER

Both read the blocks of tests/audit/snippets; TorchFix runs with all of its codes on, the noisy ones included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from underfed.audit.engine import audit

SNIPPETS = Path(__file__).resolve().parents[2] / "tests" / "audit" / "snippets"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
MARK = re.compile(r"# ([TXU]\d+) (?:certain|likely|possible)\b")


def torchfix(packages: str, folder: Path) -> dict[str, set[int]]:
    """Return the lines that TorchFix names, by file name."""
    command = [sys.executable, "-m", "torchfix", "--select", "ALL", "-j", "1", str(folder)]
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found: dict[str, set[int]] = {}
    for match in re.finditer(r"(\w+\.py):(\d+):\d+: TOR", done.stdout):
        found.setdefault(match[1], set()).add(int(match[2]))
    return found


def main() -> int:
    """Print one line a rule: marked, found by underfed, found by TorchFix, and TorchFix's other lines."""
    marked: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    other: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as where:
        wanted: dict[str, set[int]] = {}
        for page in sorted(SNIPPETS.glob("*.md")):
            for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
                path = Path(where) / f"{page.stem}_{number}.py"
                path.write_text(match[1], encoding="utf-8")
                lines = match[1].splitlines()
                wanted[path.name] = {n for n, text in enumerate(lines, 1) if page.stem in MARK.findall(text)}
                found = {one.line for one in audit([path]).findings if one.rule == page.stem}
                ours[page.stem] += len(found & wanted[path.name])
        peer = torchfix(sys.argv[1], Path(where))
    for name, marks in wanted.items():
        rule = name.partition("_")[0]
        marked[rule] += len(marks)
        theirs[rule] += len(peer.get(name, set()) & marks)
        other[rule] += len(peer.get(name, set()) - marks)
    print(f"{'rule':6}{'marked':>8}{'underfed':>10}{'TorchFix':>10}{'other':>8}")
    for rule, count in marked.items():
        print(f"{rule:6}{count:8}{ours[rule]:10}{theirs[rule]:10}{other[rule]:8}")
    print(f"{'all':6}{marked.total():8}{ours.total():10}{theirs.total():10}{other.total():8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
