"""Injection: habits 36 to 42."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from habits_harness import PY, can, environment, installations

SHOW = "import os, sys; print(sys.path, os.environ.get('PYTHONPATH'), 'sitecustomize' in sys.modules)"


@pytest.mark.parametrize(
    "body",
    [
        "print('site', sys.path)",
        "raise ImportError('planted')",
        "import no_such_module_anywhere",
        "raise ValueError('planted')",
        "syntax error",
        "sys.modules['sitecustomize'] = sys",
        "os.environ['PYTHONPATH'] = '/elsewhere'; print('site', os.environ['PYTHONPATH'])",
        "sys.path.insert(0, '/first')",
    ],
)
def test_habit_36_an_existing_sitecustomize_runs_once_and_first(noting, body):
    noting.script(f"import os, sys\n{body}\n", "theirs/sitecustomize.py")
    env = environment(PYTHONPATH=f"{noting.folder}/theirs:{noting.library}")
    script = noting.script(
        "import sys, torch\nm = sys.modules.get('sitecustomize')\nprint(sys.path, m and m.__file__)\n"
    )
    _, under = noting.both([PY, script], env=env)
    assert installations(under.recording) == 1


def test_habit_36_a_sitecustomize_that_ends_python_ends_it(noting):
    noting.script("import sys\nsys.exit(5)\n", "theirs/sitecustomize.py")
    env = environment(PYTHONPATH=f"{noting.folder}/theirs")
    plain, under = noting.plain([PY, "-c", "print(1)"], env=env), noting.under([PY, "-c", "print(1)"], env=env)
    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout) == (1, b"")


def test_habit_36_sitecustomize_of_a_virtual_environment_and_usercustomize(noting):
    venv.create(noting.folder / "project", symlinks=True, with_pip=False)
    site = next((noting.folder / "project/lib").glob("python3*/site-packages"))
    (site / "sitecustomize.py").write_text("print('site')\n")
    python = str(noting.folder / "project/bin/python")
    plain, _ = noting.both([python, "-c", SHOW])
    assert plain.stdout.startswith(b"site\n")
    base = noting.folder / "userbase"
    asked = [PY, "-c", "import site; print(site.getusersitepackages())"]
    outside_venv = getattr(sys, "_base_executable", None) or PY
    env = environment(PYTHONUSERBASE=str(base))
    folder = Path(
        subprocess.run([outside_venv, *asked[1:]], env=env, capture_output=True, text=True, check=True).stdout.strip()
    )
    folder.mkdir(parents=True)
    (folder / "usercustomize.py").write_text("print('user')\n")
    noting.both([outside_venv, "-c", SHOW], env=env)


@pytest.mark.parametrize("pythonpath", [None, "", "/x", ":/x", "/x:", "/x::/y", ":", "."])
def test_habit_37_path_and_pythonpath_read_as_the_user_set_them(noting, pythonpath):
    env = environment(**({} if pythonpath is None else {"PYTHONPATH": pythonpath}))
    script = noting.script(
        "import os, subprocess, sys\nprint(sys.path, os.environ.get('PYTHONPATH'), os.environb.get(b'PYTHONPATH'))\n"
        "print(sys.path_importer_cache.keys() == {k for k in sys.path_importer_cache if 'inject' not in k})\n"
        f"sys.exit(subprocess.call([sys.executable, '-c', {SHOW!r}]))\n"
    )
    noting.both([PY, script], env=env)


@pytest.mark.parametrize("pythonpath", [None, "", "/a"])
@pytest.mark.parametrize("export", ["$PYTHONPATH:/x", "/x:$PYTHONPATH", "/x:$PYTHONPATH:/y", "$PYTHONPATH"])
def test_habit_37_what_a_shell_script_makes_of_pythonpath(noting, pythonpath, export):
    """An unset PYTHONPATH leaves an empty word, which Python takes as the working directory: so it must stay."""
    if export == "$PYTHONPATH" and pythonpath is None:
        pytest.skip("sets the variable to what it was not: empty")
    env = environment(**({} if pythonpath is None else {"PYTHONPATH": pythonpath}))
    job = noting.script(f'export PYTHONPATH="{export}:{noting.library}"\n"$@"\n', "job.sh")
    _, under = noting.both(["bash", job, PY, "-c", SHOW + "; import torch"], env=env)
    assert installations(under.recording) == 1


CHILDREN = {
    "inherit": "subprocess.call(c)",
    "copy": "subprocess.call(c, env=os.environ.copy())",
    "own pythonpath": "subprocess.call(c, env=dict(os.environ, PYTHONPATH='/x:' + L))",
    "set before": "os.environ.__setitem__('PYTHONPATH', '/y:' + L), subprocess.call(c)",
    "spawn": "subprocess.call(c, close_fds=False)",
    "spawn copy": "subprocess.call(c, close_fds=False, env=os.environ.copy())",
    "bytes": "subprocess.call(c, env=dict(os.environb))",
    "shell": "subprocess.call(shlex.join(c), shell=True, env={**os.environ})",
    "system": "os.system(shlex.join(c))",
    "spawnve": "os.spawnve(os.P_WAIT, c[0], c, os.environ)",
    "posix_spawn": "os.waitpid(os.posix_spawn(c[0], c, os.environ), 0)[1]",
    "fork and exec": "os.waitpid(os.fork() or os.execve(c[0], c, os.environ.copy()), 0)[1]",
    "execv": "os.waitpid(os.fork() or os.execv(c[0], c), 0)[1]",
    "putenv": "os.putenv('PYTHONPATH', '/z:' + L), subprocess.call(c)",
}


@pytest.mark.parametrize("how", CHILDREN)
def test_habit_37_children_and_grandchildren_get_the_agent_however_they_are_started(noting, how):
    """Three deep: the same line starts the child and the grandchild."""
    script = noting.script(
        "import os, shlex, subprocess, sys, torch\n"
        f"L = {noting.library!r}\ndepth = int(sys.argv[1])\n"
        "print(depth, sys.path, os.environ.get('PYTHONPATH'), flush=True)\n"
        f"c = [sys.executable, sys.argv[0], str(depth - 1)]\nif depth:\n    {CHILDREN[how]}\n"
    )
    _, under = noting.both([PY, script, "2"], env=environment(PYTHONPATH=noting.library))
    assert installations(under.recording) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("os.environ.clear()", b""),
        ("os.environ.pop('UNDERFED_AGENT', None)", b""),
        ("os.environ.pop('PYTHONPATH', None)", None),
        ("os.environ.update(PYTHONPATH='/n')", b"/n"),
    ],
)
def test_habit_37_a_script_that_empties_its_environment_empties_it(noting, change, expected):
    env = environment(PYTHONPATH="/old") if "pop('P" in change else environment()
    script = noting.script(
        f"import os\n{change}\nprint(os.environ.get('PYTHONPATH'), flush=True)\n"
        "os.execv('/bin/sh', ['sh', '-c', 'echo \"[$PYTHONPATH]\"'])\n"
    )
    plain, under = noting.plain([PY, script], env=env), noting.under([PY, script], env=env)
    assert plain.stdout.splitlines()[0] == under.stdout.splitlines()[0]
    if expected is not None and b"UNDERFED" not in change.encode() and expected == b"":
        assert plain.stdout == under.stdout
    if "UNDERFED" in change:
        assert under.stdout.splitlines()[1] == b"[]"


def test_habit_37_an_exec_that_fails_says_the_same(noting):
    script = noting.script(
        "import os, subprocess\n"
        "for call in (lambda: subprocess.call(['/no/such']), lambda: os.execve('/no/such', ['x'], {}),\n"
        "             lambda: subprocess.call(['/no/such'], env=os.environ.copy()),\n"
        "             lambda: os.posix_spawn('/no/such', ['x'], os.environ)):\n"
        "    try:\n        call()\n    except OSError as error:\n        print(repr(error), error.filename)\n"
        "print(os.execve in os.supports_fd, os.execve.__name__, os.posix_spawn.__name__)\n"
    )
    noting.both([PY, script])


OTHER_TOOLS = {
    "finds the next": """
import os, sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
here = os.path.dirname(os.path.abspath(__file__))
spec = PathFinder.find_spec('sitecustomize', [p for p in sys.path if os.path.abspath(p or '.') != here])
if spec is not None:
    module = module_from_spec(spec)
    sys.modules['sitecustomize'] = module
    spec.loader.exec_module(module)
print('other tool')
""",
    "imports again": """
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or '.') != here]
mine = sys.modules.pop('sitecustomize')
try:
    import sitecustomize
except ImportError:
    sys.modules['sitecustomize'] = mine
print('other tool')
""",
    "hooks imports": """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'torch':
            import importlib.util
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            sys.meta_path.insert(0, self)
            print('other tool saw torch')
            return spec
sys.meta_path.insert(0, Finder())
print('other tool')
""",
}


@pytest.mark.parametrize("order", ["other first", "ours first"])
@pytest.mark.parametrize("tool", OTHER_TOOLS)
def test_habit_38_two_tools_at_once(noting, tool, order):
    noting.script(OTHER_TOOLS[tool], "other/sitecustomize.py")
    script = noting.script("import sys, torch; print(torch.loaded, type(torch.__loader__).__name__)\n")
    if order == "ours first":
        env = environment(PYTHONPATH=f"{noting.folder}/other:{noting.library}")
        command = [PY, script]
    elif tool == "hooks imports":
        pytest.skip("a tool that does not go on to the next sitecustomize shuts out all that follow")
    else:
        env = environment(PYTHONPATH=noting.library)
        launcher = noting.script('export PYTHONPATH="$PWD/other:$PYTHONPATH"\nexec "$@"\n', "other-run")
        command = ["bash", launcher, PY, script]
    plain, under = noting.both(command, env=env)
    assert plain.stdout.count(b"other tool\n") == 1
    assert installations(under.recording) == 1


@pytest.mark.parametrize("flag", ["-S", "-E", "-I", "-s", "-P", "-OO", "-Wd", "-bb", "-Xdev", "-Xutf8", "-u"])
def test_habit_39_flags(noting, flag):
    """-S, -E and -I switch the agent off; the command runs unharmed and the card says why it saw nothing."""
    if flag == "-P" and sys.version_info < (3, 11):
        pytest.skip("-P came with 3.11")
    noting.script("loaded = True\n", "torch/__init__.py")
    script = noting.script("import sys; sys.path.insert(0, '.'); import torch; print(torch.loaded, sys.flags)\n")
    _, under = noting.both([PY, flag, script])
    blind = flag in ("-S", "-E", "-I")
    assert installations(under.recording) == (0 if blind else 1)
    if blind:
        assert sum("-I" in line for line in under.ours) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_habit_40_children_inherit_the_flags(noting, method, flag):
    script = noting.script(
        "import multiprocessing as mp, sys\n"
        "def work():\n    print(sys.flags.isolated, sys.flags.ignore_environment, flush=True)\n"
        "if __name__ == '__main__':\n"
        f"    p = mp.get_context('{method}').Process(target=work)\n    p.start()\n    p.join()\n    print(p.exitcode)\n"
    )
    _, under = noting.both([PY, flag, script])
    assert installations(under.recording) == 0
    assert sum("-I" in line for line in under.ours) == 1


def snapshot(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def test_habit_41_nothing_is_written_beside_the_project_or_at_home(noting):
    for name in ("project", "home", "tmp"):
        (noting.folder / name).mkdir()
    script = noting.script("import torch\n", "project/train.py")
    env = environment(PYTHONPATH=noting.library, HOME=str(noting.folder / "home"), TMPDIR=str(noting.folder / "tmp"))
    before = snapshot(noting.folder / "project")
    noting.plain([*noting.prefix(), PY, script], env=env, cwd=noting.folder / "project")
    assert snapshot(noting.folder / "project") == before
    assert snapshot(noting.folder / "home") == []
    assert snapshot(noting.folder / "tmp") == []
    del env["HOME"]
    noting.plain([*noting.tool, "run", "--", PY, script], env=env)
    (one,) = (noting.folder / "tmp").iterdir()
    assert one.name == f"underfed-{os.geteuid()}"
    noting.both([PY, script], env=env)


@pytest.mark.skipif(not can("unshare", "-m", "true"), reason="needs mount namespaces")
def test_habit_41_read_only_project_and_noexec_tmp(noting):
    """Everything read-only but one small file system on which nothing may be executed."""
    (noting.folder / "tmp").mkdir()
    script = noting.script("import torch; print(torch.loaded)\n")
    setup = (
        "mount --bind . . && mount -o remount,bind,ro . && cd / && cd - >/dev/null && "
        "mount -t tmpfs -o noexec none tmp && "
        'touch x 2>/dev/null && echo writable; "$@"; ls -d tmp/underfed-*/*/p*.jsonl | wc -l'
    )
    env = environment(PYTHONPATH=noting.library, TMPDIR=str(noting.folder / "tmp"))
    seen = noting.plain(["unshare", "-m", "sh", "-c", setup, "sh", *noting.tool, "run", "--", PY, script], env=env)
    assert seen.stdout == b"True\n1\n"


def test_habit_42_processes_without_torch_leave_no_file_and_import_nothing_more(noting):
    script = noting.script("import sys; print(sorted(sys.modules), sys.meta_path[-3:])\n")
    _, under = noting.both([PY, script])
    assert installations(under.recording) == 0
    noting.both([PY, "-m", "pip", "--version"])
    noting.both([PY, "-c", "import subprocess; print(subprocess.check_output(['git', '--version']))"])


def test_habit_42_no_more_files_are_opened_than_our_own(noting):
    if not can("strace", "-V"):
        pytest.skip("needs strace")
    opened = ["strace", "-f", "-e", "trace=openat,open", "-o", "calls", PY, "-c", "pass"]

    def files(seen) -> set[str]:
        assert seen.returncode == 0
        calls = (noting.folder / "calls").read_text().splitlines()
        return {line.split('"')[1] for line in calls if '"' in line and "ENOENT" not in line}

    more = files(noting.under(opened)) - files(noting.plain(opened))
    ours = str(noting.folder / "tool/underfed/observe/inject")
    assert more
    assert all(name.startswith(ours) for name in more)
