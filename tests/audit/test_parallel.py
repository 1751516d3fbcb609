"""Several processes: the same answers in the same order, one line for the file whose process dies, a clean Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from audit_help import LOOP, run_audit

from underfed.audit.parallel import LINES_A_PROCESS, processes, spread

SNIPPETS = Path(__file__).parent / "snippets"


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_answers_come_in_the_order_of_the_questions(jobs: int) -> None:
    sizes = [7, 1, 9, 9, 3, 0, 4]
    assert spread(lambda at: (at, os.getpid() != here), sizes, jobs) == [(at, True) for at in range(7)]


here = os.getpid()


def test_nothing_to_do_is_nothing_done() -> None:
    assert spread(lambda at: at, [], 3) == []


@pytest.mark.parametrize("dying", [{2}, {0, 1, 2, 3, 4, 5}, {5}])
def test_a_process_that_dies_costs_its_own_answer_alone(dying: set[int]) -> None:
    def work(at: int) -> int:
        if at in dying:
            os.kill(os.getpid(), signal.SIGKILL)
        return at * at

    answers = spread(work, [1] * 6, 2)
    assert [at for at, answer in enumerate(answers) if isinstance(answer, str)] == sorted(dying)
    assert all(answer == at * at for at, answer in enumerate(answers) if at not in dying)
    assert all("SIGKILL" in str(answers[at]) for at in dying)


def test_a_process_that_leaves_by_itself_is_told_as_well() -> None:
    answers = spread(lambda at: os._exit(3) if at == 1 else at, [1] * 4, 2)
    assert (answers[0], answers[2:]) == (0, [2, 3])
    assert "ended before its time" in answers[1]


def test_few_lines_start_no_process() -> None:
    assert processes(LINES_A_PROCESS * 2 - 1, 8) == 1
    assert processes(LINES_A_PROCESS * 3, 8) == 3
    assert processes(10**6, 2) == 2


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 11,000 lines with findings, long enough for two processes, and a file that does not parse."""
    top = tmp_path_factory.mktemp("project")
    blocks = [
        match[1]
        for page in sorted(SNIPPETS.glob("*.md"))
        for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    ]
    lines = 0
    for number in range(10**6):
        if lines > 2 * LINES_A_PROCESS + 500:
            break
        text = "\n".join([*blocks[number % 20 :: 20], LOOP])
        lines += text.count("\n")
        (top / f"part_{number:03}.py").write_text(text)
    (top / "part_005.py").write_text("print 'old'\n")
    return top


def test_what_is_shown_does_not_depend_on_the_number_of_processes(project: Path) -> None:
    alone = run_audit(project, "--jobs", "1", "--json")
    many = run_audit(project, "--jobs", "2", "--json")
    assert (many.returncode, many.stdout, many.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert "X5" in alone.stdout and "part_005.py" in alone.stdout


def begun(project: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Return a running audit in a process group of its own, and its forks as soon as they are there."""
    code = "import sys; from underfed.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "audit", str(project), "--jobs", "2"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    forks: list[psutil.Process] = []
    while running.poll() is None and len(forks) < 2:
        time.sleep(0.001)
        forks = psutil.Process(running.pid).children()
    return running, forks


def test_a_fork_that_is_killed_is_one_line_and_the_rest_is_told(project: Path) -> None:
    whole = set(run_audit(project, "--jobs", "1").stdout.splitlines())
    running, forks = begun(project)
    for fork in forks[:1]:
        fork.kill()
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (1, "")
    lost = [line.partition(": not read: ")[0] for line in out.splitlines() if "ended by SIGKILL" in line]
    assert len(lost) <= 1
    missing = [line for line in whole - set(out.splitlines()) if ".py:" in line]
    assert all(line.startswith(f"{lost[0]}:") for line in missing)


def test_ctrl_c_ends_all_processes_without_a_word(project: Path) -> None:
    running, forks = begun(project)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode in {130, 1}  # 1: it was done before the signal came
    assert err == ""
    assert out == "" or running.returncode == 1
    _, alive = psutil.wait_procs(forks, timeout=60)
    assert alive == []


def test_forks_end_with_the_process_that_started_them(project: Path) -> None:
    running, forks = begun(project)
    running.kill()
    running.communicate(timeout=120)
    _, alive = psutil.wait_procs(forks, timeout=60)
    assert alive == []


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_no_process_is_no_way_to_audit(jobs: str, project: Path) -> None:
    done = run_audit(project, f"--jobs={jobs}")
    assert (done.returncode, "give 1 or more" in done.stderr) == (2, True)
