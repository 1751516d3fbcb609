"""Injection: torch itself, habits 32, 43 and 44."""

from __future__ import annotations

import sys
import venv

import pytest
from habits_harness import LOOP, PY, can, environment, installations, interpreters

FAILING_TORCH = {
    "import error": "def f():\n    raise ImportError('libcudart.so.12: cannot open shared object file')\nf()\n",
    "module error": "import no_such_part\n",
    "error": "raise RuntimeError('planted')\n",
    "exit": "import sys\nsys.exit(3)\n",
    "syntax": "syntax error\n",
}


@pytest.mark.parametrize("fault", FAILING_TORCH)
def test_habit_43_a_failing_torch_import_fails_as_without_us(noting, fault):
    noting.script(FAILING_TORCH[fault], "bad/torch/__init__.py")
    script = noting.script(
        "try:\n    import torch\nexcept (ImportError, RuntimeError) as e:\n    print(repr(e))\nimport torch\n"
    )
    _, under = noting.both([PY, script], env=environment(PYTHONPATH=f"{noting.folder}/bad"))
    assert installations(under.recording) == 0
    assert b"underfed/observe" not in under.stderr


def test_habit_43_no_torch_at_all(noting):
    noting.both([PY, "-I", "-c", "import torch_of_no_kind"])
    noting.both([PY, "-c", "import sys; sys.path[:] = []; import torch"])


def test_habit_43_asking_for_torch_does_not_import_it(noting):
    script = noting.script(
        "import importlib.util, sys\nspec = importlib.util.find_spec('torch')\n"
        "print(spec.name, spec.origin, type(spec.loader), type(spec).__name__, repr(spec).split(' object')[0])\n"
        "print('torch' in sys.modules)\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
        "print(module.loaded, 'torch' in sys.modules)\n"
        "import torch\nprint(torch.loaded, type(torch.__spec__) is type(sys.__spec__))\n"
        "print(torch.__loader__ is torch.__spec__.loader)\n"
        "import importlib, subprocess\n"
        "print(importlib.reload(torch) is torch, [getattr(f, '__name__', type(f).__name__) for f in sys.meta_path])\n"
    )
    library = "import sys\nloaded = type(__loader__).__name__, type(__spec__.loader).__name__, len(sys.path)\n"
    noting.script(library, "lib/torch/__init__.py")
    _, under = noting.both([PY, script], env=environment(PYTHONPATH=noting.library))
    assert installations(under.recording) == 1


def test_habit_43_torch_imported_by_two_threads_at_once(noting):
    noting.script("import time\ntime.sleep(0.3)\nloaded = True\n", "lib/torch/__init__.py")
    script = noting.script(
        "import threading\ndef work():\n    import torch\n    print(torch.loaded)\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "[t.start() for t in threads]\n[t.join() for t in threads]\n"
    )
    _, under = noting.both([PY, script], env=environment(PYTHONPATH=noting.library))
    assert installations(under.recording) == 1


def test_habit_43_torch_imported_by_a_pth_file(noting):
    """Such a line runs before any sitecustomize: torch is there already when ours starts."""
    venv.create(noting.folder / "project", symlinks=True, with_pip=False)
    site = next((noting.folder / "project/lib").glob("python3*/site-packages"))
    (site / "early.pth").write_text(f"import sys; sys.path.append({noting.library!r})\nimport torch, subprocess\n")
    script = noting.script(
        "import subprocess, sys, os\nsubprocess.call([sys.executable, '-c', 'pass'], env=dict(os.environ))\n"
    )
    _, under = noting.both([str(noting.folder / "project/bin/python"), script])
    assert installations(under.recording) == 2


@pytest.mark.torch
def test_habit_43_with_torch_itself_modules_come_in_the_same_order(room):
    script = room.script(
        LOOP + "import sys\nprint('\\n'.join(m for m in sys.modules if not m.startswith('_underfed_agent')))\n"
    )
    plain, under = room.plain([PY, script]), room.under([PY, script])
    before, after = plain.stdout.decode().split(), under.stdout.decode().split()
    more = set(after) - set(before)
    assert not set(before) - set(after)
    assert all(name.split(".")[0] in sys.stdlib_module_names for name in more), more
    first = before[: before.index("torch")]
    assert [name for name in after if name not in more][: len(first)] == first


LOST = {
    "PYTHONPATH inside the job": ["bash", "-c", 'export PYTHONPATH=/x; exec "$@"', "bash"],
    "env -i": ["env", "-i"],
    "env -u": ["env", "-u", "PYTHONPATH"],
    "explicit environment": [PY, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], env={}))"],
    "setpriv": ["setpriv", "--reset-env"],
}


@pytest.mark.parametrize("how", LOST)
def test_habit_44_a_lost_agent_is_one_line(noting, how):
    noting.script("loaded = True\n", "torch/__init__.py")
    script = noting.script("import os, torch; print(torch.loaded, os.environ.get('PYTHONPATH'))\nraise SystemExit(3)\n")
    if not can(*LOST[how], "true"):
        pytest.skip(f"{LOST[how][0]} is missing here")
    _, under = noting.both([*LOST[how], PY, script])
    assert under.returncode == 3
    assert installations(under.recording) == 0
    assert len(under.ours) == 2


OLD = [python for version, python in interpreters() if version < (3, 9)]


@pytest.mark.skipif(not OLD, reason="needs a Python below 3.9")
def test_habit_32_below_an_old_python_the_agent_goes_on(noting):
    """A launcher in an old Python that passes its own environment on as it is."""
    code = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    for old in OLD:
        _, under = noting.both([old, "-c", code, PY, "-c", "import torch"], env=environment(PYTHONPATH=noting.library))
        assert installations(under.recording) == 1
