"""What is generated from the code is as the code says, and what the README shows exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from underfed.cli import COMMANDS
from underfed.diagnosis import json_schema
from underfed.playbook.registry import RULES

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_docs_and_schema_are_as_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_the_shipped_schema_is_a_valid_schema() -> None:
    shipped = json.loads((ROOT / "src/underfed/schema/diagnosis.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(shipped)
    assert shipped == json_schema()


@pytest.mark.parametrize("path", sorted((ROOT / "tests/report/cards").glob("*.json")), ids=lambda path: path.stem)
def test_what_the_tool_wrote_keeps_to_the_shipped_schema(path: Path) -> None:
    shipped = json.loads((ROOT / "src/underfed/schema/diagnosis.schema.json").read_text(encoding="utf-8"))
    assert list(jsonschema.Draft202012Validator(shipped).iter_errors(json.loads(path.read_bytes()))) == []


def test_the_schema_refuses_what_is_no_diagnosis() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    good = json.loads((ROOT / "tests/report/cards/cannot_tell.json").read_bytes())
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "verdict": {**good["verdict"], "bound": "gpu"}})
    assert not validator.is_valid({**good, "step": {"ms": "fast"}})
    assert not validator.is_valid({key: value for key, value in good.items() if key != "verdict"})


def test_commands_in_the_readme_exist() -> None:
    shown = set(
        re.findall(r"\bunderfed ([a-z]+)\b(?! is)", "\n".join(re.findall(r"`[^`\n]*`|```.*?```", README, re.S)))
    )
    assert shown <= set(COMMANDS), shown - set(COMMANDS)
    assert set(COMMANDS) <= shown


def test_make_targets_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", text, re.M))
    assert {"demo", "test"} <= {"".join(pair) for pair in shown} <= targets


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    titles = [re.sub(r"\\(.)", r"\1", title.replace("`", "")) for title in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", without_code(page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not fragment or fragment in anchors(found), target


def test_every_rule_has_its_section_in_the_docs() -> None:
    page = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+) (\S+)$", page, re.M) == [(rule.id, rule.name) for rule in RULES]


def test_the_licence_is_the_one_that_the_package_names() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
