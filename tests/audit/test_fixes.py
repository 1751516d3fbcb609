"""Fixes: the code still parses, comments stay, a second run has nothing left, and results are the same to the bit."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest
from audit_help import LOOP, TRAINING, run_audit
from hypothesis import given, settings
from hypothesis import strategies as st

from underfed.audit.edits import add_keyword
from underfed.audit.engine import judge
from underfed.audit.fix import plan
from underfed.audit.registry import RULES
from underfed.audit.sources import load, parse


def comments(source: str) -> list[str]:
    return [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]


def test_safe_fixes_settle_their_findings_and_keep_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    shown = run_audit(path, "--diff").stdout
    assert path.read_text() == LOOP
    done = run_audit(path, "--fix")
    after = path.read_text()
    assert "[*]" not in done.stdout
    assert "5 fixed" not in shown
    assert comments(after) == comments(LOOP)
    for wanted in (
        "    batch_size=4,\n    pin_memory=True,\n)",
        "x.to(device, non_blocking=True)  # keep",
        "torch.zeros(4, 3, device=device)\n",
    ):
        assert wanted in after
        assert (
            "+" + wanted.partition("\n")[0].lstrip() in shown.replace("+    ", "+")
            or wanted.partition("\n")[0] in shown
        )
    run_audit(path, "--fix")
    assert path.read_text() == after


@pytest.mark.parametrize(
    ("chain", "fixed"), [("long().unsqueeze(0)", True), ("normal_()", False), ("requires_grad_()", False)]
)
def test_what_is_done_on_the_way_to_the_device_decides_whether_it_can_be_built_there(
    chain: str, fixed: bool, tmp_path: Path
) -> None:
    """Numbers drawn there are others; a tensor that asks for its gradient is a leaf only if it is not moved then."""
    path = tmp_path / "train.py"
    path.write_text(LOOP.replace("torch.zeros(4, 3)", f"torch.zeros(4, 3).{chain}"))
    run_audit(path, "--fix")
    assert (f"torch.zeros(4, 3, device=device).{chain}\n" in path.read_text()) is fixed
    assert (f"torch.zeros(4, 3).{chain}.to(device" in path.read_text()) is not fixed


def test_unsafe_fixes_need_to_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
    path.write_text(text)
    run_audit(path, "--fix")
    assert path.read_text() == text
    run_audit(path, "--fix", "--unsafe-fixes")
    assert path.read_text() == "import torch\ntorch.autograd.set_detect_anomaly(False)\n"
    assert run_audit(path).returncode == 0


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    real.write_text(LOOP)
    real.chmod(0o755)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    run_audit(link, "--fix")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o755
    assert "non_blocking" in real.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.py", "real.py"]


def snippets() -> list[str]:
    import re

    pages = sorted((Path(__file__).parent / "snippets").glob("*.md"))
    return [m[1] for p in pages for m in re.finditer(r"^```python\n(.*?)^```", p.read_text(), re.S | re.M)]


@pytest.mark.parametrize("number", range(len(snippets())))
def test_all_fixes_of_all_snippets_parse_and_settle(number: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(snippets()[number])
    before = comments(path.read_text())
    settled: set[tuple[str, str]] = set()
    for _ in range(6):
        sources, result = load([path])
        judge(sources, result, RULES)
        open_now = {(one.rule, one.code) for one in result.findings if one.fix is not None}
        assert not settled & open_now, "a fix came back"
        changes = plan(sources, result.findings, unsafe=True)
        if not changes:
            break
        for change in changes:
            ast.parse(change.text)
            settled |= {(one.rule, one.code) for one in change.findings if change.text.count(one.code) == 0}
            path.write_text(change.text)
    else:
        pytest.fail("fixes never end")
    assert comments(path.read_text()) == before


ARGUMENT = st.sampled_from(
    ["a", "(b)", "f(c, d)", "k=1", "*e", "x[0, 1]", "lambda: 0", "'s, )'", "[i for i in z]", "(y)"]
)
GAP = st.sampled_from(["", " ", "\n    ", "  # note, )\n    "])


@given(
    arguments=st.lists(st.tuples(GAP, ARGUMENT, GAP), max_size=4),
    trailing=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=300, deadline=None)
def test_a_keyword_is_added_and_nothing_else_changes(
    arguments: list[tuple[str, str, str]], trailing: bool, end: str
) -> None:
    arguments = sorted(arguments, key=lambda a: "=" in a[1])
    inner = ",".join(f"{before}{text}{after}" for before, text, after in arguments)
    source = f"v = call({inner}{',' if trailing and arguments else ''})\n".replace("\n", end)
    try:
        module = parse("x.py", "x", source)
    except ValueError:
        return
    call = next(c for c in module.calls if module.text(c.func) == "call")
    edit = add_keyword(module, call, "new", "True")
    assert edit is not None
    after = source[: edit.start] + edit.text + source[edit.end :]
    wanted = ast.parse(source)
    added = next(n for n in ast.walk(wanted) if isinstance(n, ast.Call) and ast.unparse(n.func) == "call")
    added.keywords.append(ast.keyword("new", ast.Constant(True)))
    assert ast.dump(ast.parse(after)) == ast.dump(wanted)
    assert comments(after) == comments(source)


def test_a_program_is_mended_where_it_can_be_and_nowhere_else(tmp_path: Path) -> None:
    """That it gives the same losses then is test_whole_files.py's."""
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    run_audit(path, "--fix")
    after = path.read_text()
    assert after.count("non_blocking=True") == 2
    assert "pin_memory=True" in after
    assert "torch.full((8,), 0.5, device=device)" in after
