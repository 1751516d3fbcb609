"""Each rule on code beside what it must say: `# ID level` marks a finding, every other line must stay silent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from underfed.audit.engine import audit
from underfed.audit.registry import RULES, find

PAGES = Path(__file__).parent / "snippets"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
MARK = re.compile(r"# ([TXU]\d+) (certain|likely|possible)\b")


def blocks() -> Iterator[tuple[str, int, str]]:
    for page in sorted(PAGES.glob("*.md")):
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            yield page.stem, number, match[1]


@pytest.mark.parametrize(("rule", "number", "code"), [pytest.param(*b, id=f"{b[0]}-{b[1]}") for b in blocks()])
def test_a_rule_speaks_where_it_is_marked_and_nowhere_else(rule: str, number: int, code: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    expected = {
        (line, mark[2])
        for line, text in enumerate(code.splitlines(), 1)
        for mark in MARK.finditer(text)
        if mark[1] == rule
    }
    found = find(rule)
    assert found is not None
    result = audit([tmp_path], rules=[found])
    assert not result.unread
    assert {(one.line, one.sure) for one in result.findings} == expected


def test_every_rule_has_snippets_that_it_finds_and_code_that_looks_like_it() -> None:
    told = {rule for rule, _, code in blocks() if any(mark[1] == rule for mark in MARK.finditer(code))}
    assert {rule.id for rule in RULES} - told <= {"X62"}  # needs two modules: test_project.py
