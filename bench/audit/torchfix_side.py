"""TorchFix and `underfed audit` on the same snippets: how many of the marked lines each finds, and what else they say.

    pip install --target FOLDER torchfix
    python bench/audit/torchfix_side.py FOLDER [CODE]

With CODE, a folder of other people's code, a second table holds TorchFix's rules of speed against the same of underfed
there: lines that both name, and that one of them names alone.

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


#: TorchFix's codes that are about speed, and the rule of underfed for the same.
SPEED = {"TOR401": "T4", "TOR003": "X54"}


def torchfix(packages: str, folder: Path) -> list[tuple[str, int, str]]:
    """Return what TorchFix names: path, line and code."""
    command = [sys.executable, "-m", "torchfix", "--select", "ALL", "-j", "1", str(folder)]
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = re.finditer(r"^(.+\.py):(\d+):\d+: (TOR\d+)", done.stdout, re.M)
    return [(match[1], int(match[2]), match[3]) for match in found]


def on_code(packages: str, folder: Path) -> None:
    """Print TorchFix's rules of speed against the same of underfed on other people's code."""
    result = audit([folder])
    peer = torchfix(packages, folder)
    print(
        f"{'TorchFix':10}{'underfed':10}{'both':>6}{'TorchFix alone':>16}{'underfed alone':>16}{'of them surely':>16}"
    )
    for code, rule in SPEED.items():
        theirs = {(str(Path(path).resolve()), line) for path, line, name in peer if name == code}
        ours = {(str(Path(one.path).resolve()), one.line): one.sure for one in result.findings if one.rule == rule}
        alone = {place: sure for place, sure in ours.items() if place not in theirs}
        certain = sum(1 for sure in alone.values() if sure == "certain")
        both = len(theirs & ours.keys())
        print(f"{code:10}{rule:10}{both:6}{len(theirs) - both:16}{len(alone):16}{certain:16}")


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
        peer: dict[str, set[int]] = {}
        for path_name, line, _ in torchfix(sys.argv[1], Path(where)):
            peer.setdefault(Path(path_name).name, set()).add(line)
    for name, marks in wanted.items():
        rule = name.partition("_")[0]
        marked[rule] += len(marks)
        theirs[rule] += len(peer.get(name, set()) & marks)
        other[rule] += len(peer.get(name, set()) - marks)
    print(f"{'rule':6}{'marked':>8}{'underfed':>10}{'TorchFix':>10}{'other':>8}")
    for rule, count in marked.items():
        print(f"{rule:6}{count:8}{ours[rule]:10}{theirs[rule]:10}{other[rule]:8}")
    print(f"{'all':6}{marked.total():8}{ours.total():10}{theirs.total():10}{other.total():8}")
    if len(sys.argv) > 2:
        on_code(sys.argv[1], Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
