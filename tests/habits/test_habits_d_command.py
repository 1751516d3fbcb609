"""Which command, which interpreter: habits 28 to 35."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from habits_harness import PY, environment, interpreters

SHOW_ARGV = "import os, sys\nprint([os.fsencode(a) for a in sys.argv[1:]])\n"


@pytest.mark.parametrize(
    "words",
    [
        ["a b", "", "'", '"', "$HOME", "*", "\\", "a\nb", "\t"],
        ["--", "--help", "--out", "x", "-h", "--", "--window"],
        [b"\xff\xfe", b"caf\xe9", "ü", "\u2028"],
    ],
)
def test_habit_28_words_arrive_verbatim(room, words):
    plain, _ = room.both([PY, room.script(SHOW_ARGV), *words])
    assert plain.stdout


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_habit_28_words_arrive_verbatim_in_every_locale(room, locale):
    room.both(["printf", "%s|", b"\xff\xfe", "ü", b"\xc3"], env=environment(LC_ALL=locale))


def test_habit_29_any_program(room):
    room.script("import sys\nprint('trained', sys.argv[1:])\nsys.exit(6)\n")
    room.script(f"#!/bin/bash\nset -e\n{PY} train.py --lr '0.1 0.2'\n", "job.sh", 0o755)
    room.script(f"train:\n\t@{PY} train.py made; true\n", "Makefile")
    commands = [
        ["bash", "job.sh"],
        ["./job.sh"],
        ["make", "train"],
        ["env", "A=b", PY, "train.py"],
        ["nice", "-n", "1", PY, "train.py"],
        ["sh", "-c", "cat | sed s/a/b/; exit 3"],
        ["timeout", "60", PY, "train.py"],
        ["setsid", "-w", PY, "train.py"],
    ]
    for command in commands:
        if shutil.which(command[0], path=os.environ["PATH"]) or command[0].startswith("."):
            room.both(command, input=b"a\n")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_habits_29_50_a_compiled_launcher_and_a_compiled_child(room):
    room.script("#include <unistd.h>\nint main(int c, char **v) { execvp(v[1], v + 1); return 99; }\n", "launch.c")
    subprocess.run(["gcc", "-o", "launch", "launch.c"], cwd=room.folder, check=True)
    script = room.script("import subprocess, sys\nsys.exit(subprocess.call(['./launch', 'sh', '-c', 'exit 4']))\n")
    plain, _ = room.both(["./launch", PY, script])
    assert plain.returncode == 4


def test_habit_30_lookup_along_path(room):
    """The command's own rules: first executable on PATH, `./x`, an empty word as the working directory."""
    room.script("#!/bin/sh\necho first $0\n", "bin1/tool", 0o755)
    room.script("#!/bin/sh\necho second\n", "bin2/tool", 0o755)
    room.script("#!/bin/sh\necho shadow\n", "bin0/tool", 0o644)
    room.script("#!/bin/sh\necho here\n", "here", 0o755)
    path = f"bin0:{room.folder}/bin1:bin2::/usr/bin:/bin"
    for command in (["tool"], ["here"], ["./here"], ["bin2/tool"], ["sh", "here"]):
        plain, _ = room.both(command, env=environment(PATH=path))
        assert plain.returncode == 0


def test_habit_30_first_lines_of_scripts(room):
    """Spaces in the script's path, `env -S`, and no first line at all."""
    folder = room.folder / "with space"
    folder.mkdir()
    (folder / "python here").symlink_to(PY)
    for name, line in [("a", f"#!{PY} -u\n"), ("b", f"#!/usr/bin/env -S {PY} -X utf8\n"), ("c", "#! /bin/sh -e\n# ")]:
        room.script(
            line + "import sys; print(sys.argv)\necho = 1\n" if name != "c" else line + "\necho $0 $1\n",
            f"with space/{name}",
            0o755,
        )
        room.both([f"{folder}/{name}", "x y"])
    room.script('echo "no first line: $0 $1"\nexit 3\n', "with space/d", 0o755)
    plain, _ = room.both(["env", f"{folder}/d", "x y"])
    assert plain.returncode == 3
    assert room.under([f"{folder}/d", "x y"]).stdout == plain.stdout


def noted(recording: Path) -> list[str]:
    return sorted(line for path in recording.glob("p*.jsonl") for line in path.read_text().splitlines())


def test_habit_31_the_commands_own_interpreter(planted):
    """A virtual environment in which underfed cannot be imported gets the agent, and keeps its own prefix."""
    planted.noting_agent()
    venv.create(planted.folder / "project", symlinks=True, with_pip=False)
    python = str(planted.folder / "project/bin/python")
    site = next((planted.folder / "project/lib").glob("python3*/site-packages"))
    shutil.copytree(Path(planted.library) / "torch", site / "torch")
    script = planted.script(
        "import importlib.util, sys, torch\n"
        "print(sys.prefix, sys.executable, importlib.util.find_spec('underfed'), torch.__file__)\n"
    )
    plain, under = planted.both([python, script])
    assert b" None " in plain.stdout
    assert noted(under.recording) == [f"{sys.version_info[0]}.{sys.version_info[1]} window=off"]


INTERPRETERS = interpreters()


@pytest.mark.parametrize(("version", "python"), INTERPRETERS, ids=[f"{a}.{b}" for (a, b), _ in INTERPRETERS])
def test_habit_32_every_python_starts_as_without_us(planted, version, python):
    """From 3.9 on with the agent, below without a word."""
    planted.noting_agent()
    script = planted.script(
        "import os, sys, torch\nprint(sys.path)\nprint(os.environ.get('PYTHONPATH'), sorted(sys.modules))\n"
        "import subprocess\nsubprocess.call([sys.executable, '-c', 'import torch'])\n"
    )
    env = environment(PYTHONPATH=planted.library)
    if version < (3, 9):
        _, under = planted.both([python, script], env=env)
        assert noted(under.recording) == []
        assert len(under.stderr.splitlines()) == len(under.ours)
    else:
        plain, under = planted.plain([python, script], env=env), planted.under([python, script], env=env)
        assert under.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
        assert under.returncode == 0
        assert noted(under.recording) == [f"{version[0]}.{version[1]} window=off"] * 2


MAIN = """
import pickle, sys
class Point:
    def __eq__(self, other): return type(self) is type(other)
spec = __spec__ and (__spec__.name, __spec__.origin)
print(sys.argv, sys.path, __name__, globals().get('__file__'), spec, pickle.loads(pickle.dumps(Point())) == Point())
"""


def test_habit_33_every_way_to_start_python(room):
    room.script(MAIN, "train.py")
    room.script(MAIN, "package/__main__.py")
    room.script("", "package/__init__.py")
    room.script(MAIN, "folder/__main__.py")
    with zipfile.ZipFile(room.folder / "x.zip", "w") as archive:
        archive.writestr("__main__.py", MAIN)
    room.script(f"#!{PY}\n{MAIN}", "console", 0o755)
    for words in (
        ["train.py"],
        ["-m", "package"],
        ["-m", "train"],
        ["folder"],
        ["x.zip"],
        ["-c", MAIN],
        ["package/../train.py"],
    ):
        room.both([PY, *words, "--lr", "1"])
    room.both([PY, "-", "x"], input=MAIN.encode())
    room.both([PY], input=MAIN.encode())
    room.both(["./console", "x"])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_habit_33_multiprocessing_finds_main_again(room, method):
    script = room.script(
        "import multiprocessing as mp, sys\n"
        "class Box:\n    pass\n"
        "def work(q):\n    q.put((Box(), [p for p in sys.path], __name__))\n"
        "if __name__ == '__main__':\n"
        f"    context = mp.get_context('{method}')\n    q = context.Queue()\n"
        "    p = context.Process(target=work, args=(q,))\n"
        "    p.start()\n    box, path, name = q.get()\n    p.join()\n"
        "    print(isinstance(box, Box), path, name, p.exitcode)\n"
    )
    room.both([PY, script])


SURROUNDINGS = """
import locale, os, resource, sys
print(os.getcwd(), oct(os.umask(0)), locale.setlocale(locale.LC_ALL, ''), sys.getfilesystemencoding())
print(sys.stdout.encoding)
fds = sorted(os.listdir('/proc/self/fd'), key=int)
print([(n, os.readlink('/proc/self/fd/' + n)) for n in fds if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)])
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith('RLIMIT')])
print(os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)), os.getpgid(0) == os.getpgid(os.getppid()))
print(os.getgroups(), os.getresuid(), os.getresgid(), os.getsid(0) == os.getsid(os.getppid()))
status = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines())
# Signals 32 and 33 are the C library's own; its posix_spawn ignores them in every child.
print([hex(int(status[k], 16) & ~(3 << 31)) for k in ('SigPnd', 'ShdPnd', 'SigBlk', 'SigIgn', 'SigCgt')])
print([v for k, v in status.items() if k.startswith(('Cap', 'NoNew', 'Seccomp'))])
print(open('/proc/self/oom_score_adj').read(), open('/proc/self/coredump_filter').read())
"""


def test_habit_34_surroundings_are_equal(room):
    script = room.script(SURROUNDINGS)
    for locale in ({}, {"LC_ALL": "C"}, {"LANG": "C.UTF-8"}):
        env = {k: v for k, v in environment().items() if not k.startswith(("LC_", "LANG"))} | locale
        outer = ["bash", "-c", 'umask 027; ulimit -n 200; cd /; exec 7</dev/null; exec nice -n 3 "$@"', "bash"]
        plain = room.plain([*outer, PY, script], env=env)
        under = room.plain([*outer, *room.prefix(), PY, script], env=env)
        assert plain.returncode == 0
        assert plain.stdout.decode().splitlines() == under.stdout.decode().splitlines()


@pytest.mark.parametrize("pythonpath", [None, "", "/x", ":/x", "/x:"])
def test_habit_35_environment_is_equal_but_for_our_variables(room, pythonpath):
    extra = {} if pythonpath is None else {"PYTHONPATH": pythonpath}
    env = {k: v for k, v in environment(ODD="a=b\n\u00e9", **extra).items() if not k.startswith(("LC_", "LANG"))}

    def variables(seen) -> dict[bytes, bytes]:
        return dict(word.split(b"=", 1) for word in seen.stdout.split(b"\0") if word)

    plain, under = variables(room.plain(["env", "-0"], env=env)), variables(room.under(["env", "-0"], env=env))
    ours = {b"PYTHONPATH", b"UNDERFED_AGENT", b"UNDERFED_OPTIONS"}
    assert {k: v for k, v in under.items() if k not in ours} == {k: v for k, v in plain.items() if k not in ours}
    assert set(under) == set(plain) | ours
    in_python = [PY, "-c", "import os; print(sorted((k, v) for k, v in os.environ.items() if 'UNDERFED' not in k))"]
    room.both(in_python, env=env)
