"""Which tests speak for a rule: read from the tests themselves, so that a rule without one is seen."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from underfed.report.rulebook import Entry

ROOT = Path(__file__).resolve().parent.parent
_RULES = "tests/playbook/test_rules.py"
_CASES = "tests/playbook/rule_cases.py"
_H200 = "tests/diagnose/test_h200.py::test_the_first_finding_is_the_planted_fault"
_RANKS = {
    "T23": "tests/read/test_ranks.py::test_equal_ranks_wait_for_nobody_and_long_transfers_are_not_blamed_on_a_rank",
    "X13": "tests/read/test_ranks.py::test_one_slow_card_is_named_with_its_reason_and_its_price",
}
BY_HAND = {
    "X62": "tests/audit/test_reading.py::test_a_helper_that_throws_switches_on_import_is_told_and_a_script_is_not",
    "T17": "tests/docs/test_numbers.py::test_checkpointing_with_free_memory_is_found",
}


def tests_of(entry: Entry) -> list[str]:
    """Return the tests in which a rule has to speak, as `file::test[parameter]`, or the file of its snippets."""
    found = []
    if entry.seen:
        if entry.id in _spoken():
            found.append(f"{_RULES}::test_it_speaks[{entry.id}]")
        elif entry.id in _RANKS:
            found.append(_RANKS[entry.id])
        elif entry.id in BY_HAND:
            found.append(BY_HAND[entry.id])
        found += [f"{_H200}[{name}]" for name in _recorded(entry.id)]
    if entry.written:
        snippets = f"tests/audit/snippets/{entry.id}.md"
        if (ROOT / snippets).exists():
            found.append(snippets)
        elif entry.id in BY_HAND and not entry.seen:
            found.append(BY_HAND[entry.id])
    return found


def test_of(number: str, command: str) -> str:
    """Return the test that shows that a command answers a number of the manual."""
    return COMMANDS.get((number, command)) or COMMANDS["", command]


_VERDICTS = "tests/attach/test_verdicts.py"
_BOX = "tests/host/test_box.py::test_each_fault_is_named_once_with_what_to_do"
COMMANDS = {
    ("", "attach"): f"{_VERDICTS}::test_a_serial_loader_that_waits_is_data_bound_at_its_line",
    ("", "box"): _BOX,
    ("", "read"): "tests/trace/test_meaning.py::test_the_bound_of_labelled_runs",
    ("", "run"): "tests/planted/test_planted.py::test_the_bound_is_right",
    ("", "run --window"): "tests/diagnose/test_h200.py::test_the_device_was_traced",
    ("", "try cudnn_benchmark"): "tests/trial/test_try_ends.py::test_every_switch_leaves_a_script_running",
    ("", "try"): "tests/trial/test_truth.py::test_each_class_is_held_to_what_it_promises",
    ("T2", "attach"): "tests/attach/test_gpu_readings.py::test_a_full_device_is_told_from_one_that_waits",
    ("T2", "box"): "tests/host/test_gpu.py::test_a_recorded_reading",
    ("T3", "attach"): f"{_VERDICTS}::test_more_threads_than_cpus_are_oversubscribed",
    ("T20", "read"): "tests/read/test_nsight.py",
    ("U17", "attach"): f"{_VERDICTS}::test_a_lock_taken_twice_is_hung",
    ("U21", "attach"): "tests/attach/test_gpu_readings.py::test_a_full_device_is_told_from_one_that_waits",
    ("U21", "box"): "tests/host/test_gpu.py::test_a_recorded_reading",
}


@cache
def _spoken() -> frozenset[str]:
    """Return the rules of the cases in which they must speak, which the test above goes through."""
    tree = ast.parse((ROOT / _CASES).read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == "SPEAKS"
            and isinstance(node.value, ast.Dict)
        ):
            return frozenset(ast.literal_eval(key) for key in node.value.keys if key is not None)
    return frozenset()


@cache
def _recorded(rule: str) -> tuple[str, ...]:
    """Return the recordings of a real GPU whose accuracy row says that this rule came first, and rightly."""
    rows = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")]
    return tuple(row[0] for row in cells if len(row) > 8 and row[3].split()[0] == rule and row[-1] == "hit")
