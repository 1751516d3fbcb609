"""The generated pages of the docs: one a rule, the numbers of the manual, the JSON contract, the thresholds."""

from __future__ import annotations

import ast
import html
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from docs_tests import test_of, tests_of

from underfed.diagnose import thresholds
from underfed.diagnosis import json_schema
from underfed.playbook import stalls
from underfed.playbook.switches import BY_RULE
from underfed.report.manual import NUMBERS
from underfed.report.rulebook import Entry, entries
from underfed.report.rulepage import escaped, parts
from underfed.report.words import numerics_words

ROOT = Path(__file__).resolve().parent.parent
STAGES = {
    "box": "The machine, before any knob",
    "dataloader": "The dataloader",
    "free": "Free knobs, and work on the training thread",
    "precision": "Precision",
    "kernels": "Kernels and compilation",
    "memory": "Memory for speed",
    "comms": "Between ranks",
}
_NEXT_WAY = re.compile(r"\s+(?=(?:plain PyTorch|HF Trainer|Lightning|Accelerate):)")
_WAY = re.compile(r"(plain PyTorch|HF Trainer|Lightning|Accelerate):\s+(.*)")
_ID = re.compile(r"(?<![\w/#.`-])([TUXMP]\d+)(?![\w.]\w|\w)")


# -- one page a rule


def rule_page(entry: Entry, figures: str) -> str:
    """Return a rule's page for the site; `figures` is the text of docs/figures.md."""
    known = {other.id for other in entries()}
    switch = f"`underfed try {entry.id}`" if entry.id in BY_RULE else "needs your edit"
    numerics = numerics_words(entry.numerics) if entry.numerics else None
    shown = [
        f"# {entry.id} {entry.name}",
        "",
        _linked(escaped(entry.pattern), entry.id, known),
        "",
        "| stage | gates | numbers | found by | to try it |",
        "|---|---|---|---|---|",
        f"| {entry.stage} | {entry.seen.bound if entry.seen else 'a run says'} | {entry.numerics or 'not stated'} "
        f"| {entry.where_seen()} | {switch} |",
    ]
    if numerics:
        shown += ["", f"The fix {numerics}."]
    for heading, body in parts(entry):
        shown += ["", f"## {heading}", ""]
        shown += _lines(body, entry.id, known)
    if published := figures_of(figures).get(entry.id):
        shown += [
            "",
            "## Published figures",
            "",
            "Of others, on their machines: [what they are good for](../figures.md).",
            "",
        ]
        shown += published
    shown += ["", "## Evidence and tests", ""]
    shown += [f"Evidence: {', '.join(kinds(entry))}. Tests:", ""]
    shown += [f"- `{name}`" for name in tests_of(entry)]
    return "\n".join(shown) + "\n"


def _lines(body: list[str], own: str, known: set[str]) -> list[str]:
    """Return a section's lines as Markdown: the ways of each framework as a list, other breaks as breaks."""
    shown = []
    body = [part for line in body for part in _NEXT_WAY.split(line)]
    for place, line in enumerate(body):
        following = body[place + 1] if place + 1 < len(body) else ""
        text = _linked(escaped(line), own, known)
        if way := _WAY.match(line):
            text = f"- **{way.group(1)}**: {_linked(escaped(way.group(2)), own, known)}"
            if following and not _WAY.match(following):
                text += "\n"
        elif line and following:
            text += "\n" if _WAY.match(following) else "  "
        shown.append(text)
    return shown


def rules_index() -> str:
    """Return the page that lists all rules by stage, with links to their pages."""
    shown = [
        "# Rules",
        "",
        "In cost order: what costs nothing to change comes first. `underfed explain` lists the same.",
    ]
    stage = None
    for entry in entries():
        if entry.stage != stage:
            stage = entry.stage
            shown += ["", f"## {STAGES[stage]}", "", "| rule | name | what it finds | found by |", "|---|---|---|---|"]
        text = escaped(entry.pattern).replace("|", "\\|")
        shown.append(f"| [{entry.id}]({entry.id}.md) | `{entry.name}` | {text} | {entry.where_seen()} |")
    return "\n".join(shown) + "\n"


def _linked(line: str, own: str, known: set[str]) -> str:
    """Make ids of other rules links, outside of code spans."""

    def link(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"[{name}]({name}.md)" if name in known and name != own else name

    parts_ = line.split("`")
    return "`".join(part if at % 2 else _ID.sub(link, part) for at, part in enumerate(parts_))


def figures_of(page: str) -> dict[str, list[str]]:
    """Return the list items under each rule's heading of docs/figures.md."""
    found: dict[str, list[str]] = {}
    now: list[str] = []
    for line in page.splitlines():
        if line.startswith("## "):
            now = found.setdefault(line[3:].strip(), [])
        elif line.strip() and found:
            now.append(line)
    return found


def kinds(entry: Entry) -> list[str]:
    """Return the kinds of evidence that a rule's finding can bear, read from the sources of its module."""
    found = {"static"} if entry.written else set()
    if entry.seen:
        module = inspect.getmodule(entry.seen.check)
        source = Path(inspect.getsourcefile(module) or "").read_text(encoding="utf-8") if module else ""
        if "playbook.stalls" in source:
            source += inspect.getsource(stalls)
        found |= set(re.findall(r"source=\"(agent|host|trace|trial|static)\"", source))
    return sorted(found)


# -- the numbers of the manual


def numbers_page() -> str:
    """Return docs/numbers.md: each number with the rules and commands that answer it, evidence, tests, and gaps."""
    rules = {entry.id: entry for entry in entries()}
    shown = [
        "# What is covered",
        "",
        "Generated by `tools/make_docs.py` from the registries and `src/underfed/report/manual.py`. T numbers are",
        "about throughput, U about rented machines, M about memory, P about precision; `X` rules are underfed's own.",
        "Evidence: agent (inside the training process), host (the machine), trace (a traced window), static (source",
        "code), trial (runs with and without a change). Under Tests one is named of each rule and command; the pages",
        "of the rules name all. Snippets are run by `tests/audit/test_snippets.py`.",
        "",
        "| number | about | rules | commands | evidence |",
        "|---|---|---|---|---|",
    ]
    left, tested = [], []
    for number in NUMBERS:
        own = [number.id] if number.id in rules and number.id not in number.rules else []
        names = [*own, *number.rules]
        if number.missing and not own:
            part = "in part: " if number.covered else ""
            left.append(f"| {number.id} | {number.about} | {part}{number.missing} |")
        if not names and not number.commands:
            continue
        evidence = {kind for name in names for kind in kinds(rules[name])}
        evidence |= {kind for name in number.commands for kind in _BY_COMMAND[name.split()[0]]}
        tests = [name for rule in names for name in tests_of(rules[rule])[:1]]
        tests += [test_of(number.id, name) for name in number.commands]
        links = ", ".join(f"[{name}]({_anchor(rules[name])})" for name in names)
        commands = ", ".join(f"`{name}`" for name in number.commands)
        shown.append(f"| {number.id} | {number.about} | {links} | {commands} | {', '.join(sorted(evidence))} |")
        tested.append(f"| {number.id} | {'<br>'.join(f'`{name}`' for name in dict.fromkeys(tests))} |")
    shown += [
        "",
        "## Tests",
        "",
        "| number | where its rules have to speak, and its commands to answer |",
        "|---|---|",
        *tested,
    ]
    shown += ["", "## Not covered", "", "| number | about | what is missing, and why |", "|---|---|---|", *left]
    return "\n".join(shown) + "\n"


_BY_COMMAND = {
    "run": ("agent", "host", "trace"),
    "read": ("trace",),
    "attach": ("agent", "host"),
    "box": ("host",),
    "try": ("trial",),
}


def _anchor(entry: Entry) -> str:
    if entry.seen:
        return f"rules.md#{entry.id.lower()}-{entry.name}"
    return f"audit-rules.md#{entry.id.lower()}"


# -- the JSON contract


def json_page() -> str:
    """Return docs/json.md, from the JSON Schema that the package ships."""
    schema = json_schema()
    records = schema["$defs"]
    order = ["Diagnosis", "Subject", "Verdict", "Step", "Waits", "Device", "Finding", "Gain", "Observation", "Fix"]
    shown = [
        "# The JSON contract",
        "",
        "Generated by `tools/make_docs.py` from the [JSON Schema](../src/underfed/schema/diagnosis.schema.json) that",
        f"the package ships. The object of `{schema['$id']}` is what `underfed run --json FILE` and",
        "`underfed read --json` write, and `diagnosis.json` in a recording. `underfed attach --json` writes the same",
        "with one more field, `live`.",
        "",
        "Times are ms; those under `step` and in findings are per step, `device` holds totals of a whole trace. null",
        "means not known, never zero. While the number behind the slash stays, fields are only added; readers should",
        "pass over those that they do not know.",
        "",
        "    underfed run --json diagnosis.json -- python train.py",
    ]
    for name in [*order, *(name for name in records if name not in order)]:
        record = records[name]
        shown += [
            "",
            f"## {name}",
            "",
            escaped(record["description"]),
            "",
            "| field | type | default |",
            "|---|---|---|",
        ]
        needed = set(record.get("required", []))
        for field, spec in record["properties"].items():
            default = "required" if field in needed else f"`{_short(spec.get('default'))}`"
            shown.append(f"| `{field}` | {_type(spec)} | {default} |")
    shown += [
        "",
        "## Other objects",
        "",
        "Each says which it is in `schema`; only the diagnosis has a",
    ]
    shown += ["JSON Schema in the package.", "", "| schema | where it comes from |", "|---|---|"]
    shown += [f"| `{name}` | {_OBJECTS.get(name.partition('/')[0], 'its command')} |" for name in _schemas()]
    return "\n".join(shown) + "\n"


_OBJECTS = {
    "underfed.audit": "`underfed audit --json`: [audit](audit.md)",
    "underfed.box": "`underfed box --json`: [box](box.md)",
    "underfed.collect": "`underfed collect --json`: [collect](carry.md)",
    "underfed.comparison": "`underfed compare --json`: [compare](compare.md)",
    "underfed.facts": "`underfed read --facts FILE`: [read](read.md)",
    "underfed.manifest": "the manifest beside copied runs: [collect](carry.md)",
    "underfed.pull": "`underfed pull --json`: [pull](carry.md)",
    "underfed.recording": "`recording.json` in a recording: [run](run.md)",
    "underfed.rules": "`underfed explain --json`",
    "underfed.stale": "`underfed stale --json`: [stale](stale.md)",
    "underfed.trial": "`underfed try --json FILE`: [try](try.md)",
    "underfed.tuning": "`underfed tune --json FILE`",
}


def _schemas() -> list[str]:
    found = set()
    for source in (ROOT / "src/underfed").rglob("*.py"):
        found |= set(re.findall(r'"(underfed\.[a-z]+/\d+)"', source.read_text(encoding="utf-8")))
    return sorted(found - {str(json_schema()["$id"])})


def _type(spec: dict[str, Any]) -> str:
    if "$ref" in spec:
        name = spec["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in spec:
        return " or ".join(_type(each) for each in spec["anyOf"])
    if "enum" in spec:
        return ", ".join(f"`{value}`" for value in spec["enum"])
    if spec.get("type") == "array":
        inner = [_type(each) for each in spec.get("prefixItems", [])] or [_type(spec["items"])]
        return f"list of {' and '.join(inner)}"
    return str(spec.get("type", "any"))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "all null"
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if not isinstance(value, list) else "[]"


# -- thresholds


def thresholds_table() -> str:
    """Return the table of thresholds with their reasons, from the source."""
    shown = ["| cut | value | reason |", "|---|---|---|"]
    for name, value, reason in _thresholds():
        shown.append(f"| `{name}` | {value} | {html.escape(' '.join(reason.split()), quote=False)} |")
    return "\n".join(shown) + "\n"


def _thresholds() -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(inspect.getsource(thresholds))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and field.value is not None:
            yield ast.unparse(field.target), ast.unparse(field.value), ast.literal_eval(text.value)
