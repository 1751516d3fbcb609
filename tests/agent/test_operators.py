"""Operators of a run without a GPU: counted as torch's own profiler counts them, and never in the program's way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from underfed.recording import records as r

LOOP = """
import os, sys, time
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
x = torch.ones(2, 8)
def step():
    opt.zero_grad()
    with torch.profiler.record_function('aten-like secret label'):
        loss = model(x).square().mean()
    loss.backward()
    opt.step()
def early():
    # Open the count after ten steps instead of thirty and a second.
    if '_underfed_agent' in sys.modules:
        from _underfed_agent import window
        window._AFTER_STEPS, window._AFTER_NS, window._STEADY_NS, window._AT_LEAST_STEPS = 10, 0, 0, 10
early()
"""


def counted(watched: Any) -> list[r.Operators]:
    """What the training process wrote of its operators."""
    return list(watched.main.of(r.Operators))


def given_up(watched: Any) -> list[str | None]:
    """Why the count was given up, where it was."""
    return [line.reason for line in watched.main.of(r.Trace)]


ORACLE = """
from torch.profiler import ProfilerActivity, profile
for _ in range(10):
    step()
with profile(activities=[ProfilerActivity.CPU]) as seen:
    step()
print({row.key: row.count for row in seen.key_averages() if row.key.startswith('aten::')})
"""


def test_each_operator_is_counted_as_torchs_profiler_counts_it(run: Callable[..., Any]) -> None:
    watched = run(LOOP + "for _ in range(40): step()", window="10")
    (line,) = counted(watched)
    rows = {name: count for name, count, _ in line.rows}
    truth = ast.literal_eval(run(LOOP + ORACLE, bare=True).out)
    assert line.steps == 2 and len(truth) > 10
    assert {name: count / line.steps for name, count in rows.items() if name.startswith("aten::")} == truth
    assert all(own >= 0 for _, _, own in line.rows)
    assert 0 < sum(own for _, _, own in line.rows) <= line.wall
    traced = [row for row in watched.main.step_rows() if row[r.STEP_COLUMNS.index("flags")] & r.TRACED]
    assert len(traced) == 2
    # What the program calls its own parts stays there.
    assert "other" in rows and all("secret" not in file.read_text() for file in watched.folder.glob("*.jsonl"))


FORKS = """
for at in range(40):
    step()
    if at == int(sys.argv[1]):
        child = os.fork()
        if child == 0:
            for _ in range(3):
                step()
            os._exit(7 if not torch.autograd._profiler_enabled() else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(torch.autograd._profiler_enabled())
"""


def test_a_fork_while_they_are_counted_ends_the_count_on_both_sides(run: Callable[..., Any]) -> None:
    for at in range(9, 13):  # one of them is between the first and the last counted step
        watched = run(LOOP + FORKS, str(at), window="10", name=f"fork{at}")
        assert (watched.code, watched.out) == (0, "7\nFalse\n"), watched.err
        if given_up(watched):
            assert given_up(watched) == ["the program forked"] and not counted(watched)
            return
    pytest.fail("no fork fell into the counted steps")


OWN = """
import warnings
from torch.autograd import profiler, profiler_legacy
warnings.simplefilter('ignore')
kinds = {
    'early': profiler.profile,
    'legacy': profiler_legacy.profile,
    'late': lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
}
make = kinds[sys.argv[1]]
made = [make(), make()] if sys.argv[1] == 'early' else []
def counts():
    with made.pop() if made else make() as seen:
        step()
    return sorted((row.key, row.count) for row in seen.key_averages() if row.key.startswith('aten::'))
while not torch.autograd._profiler_enabled():
    step()
first = counts()
assert dict(first)['aten::addmm'] == 2
for _ in range(10):
    step()
assert counts() == first and not torch.autograd._profiler_enabled()
"""


@pytest.mark.parametrize("kind", ["early", pytest.param("legacy", marks=pytest.mark.slow), "late"])
def test_the_programs_own_profiler_comes_first(run: Callable[..., Any], kind: str) -> None:
    watched = run(LOOP + OWN, kind, window="10")
    assert watched.code == 0, watched.err
    assert given_up(watched) == ["the program profiles itself"] and not counted(watched)


def test_a_compiled_program_is_told_of_no_profiler(run: Callable[..., Any]) -> None:
    source = LOOP + "model = torch.compile(model, backend='eager')\nfor _ in range(40): step()"
    watched = run(source, window="10")
    assert watched.code == 0 and watched.main.step_rows()
    assert not counted(watched) and not given_up(watched)
