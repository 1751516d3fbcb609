"""Every command that the docs show: it parses, and it runs, or a reason says why it is not run here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App
from docs_commands_help import EXPECTED, LONG, NOT_RUN, PAGES, ROOT, Shown, filled, prepare, shown, words_to_run
from markdown_it import MarkdownIt

from underfed.cli import COMMANDS, PASS_THROUGH

SHOWN = shown()
OURS = [each for each in SHOWN if each.text.startswith("underfed ")]
RUN = [each for each in OURS if each.reason is None]
#: Options of other programs that the pages speak of.
FOREIGN = {
    "--cap-add", "--export", "--idle", "--ipc", "--lr", "--native", "--nonblocking", "--nproc-per-node", "--shm-size",
    "--type",
}  # fmt: skip


def parse(words: list[str]) -> None:
    """Parse a command line as underfed does, and run nothing; raises where an option or a value is refused."""
    name = words[0]
    assert name in COMMANDS, f"no command {name}"
    if name in PASS_THROUGH and "--" in words:
        words = words[: words.index("--")]
    _app_of(name).parse_args(words, print_error=False, exit_on_error=False)


@pytest.mark.parametrize("command", OURS, ids=lambda each: each.text)
def test_it_parses(command: Shown) -> None:
    words = filled(command.text)[1:]
    if words[0] == "true":  # `underfed COMMAND --help`
        return
    assert words[0] in COMMANDS
    if command.mention:
        assert {word for word in words[1:] if word != "--"} <= _options(words[0])
    else:
        parse(words)


def test_the_parser_here_refuses_what_does_not_exist() -> None:
    for wrong in (
        ["run", "--no-such-option", "--", "true"],
        ["read", "a.json", "--step-ms", "fast"],
        ["box", "--yaml"],
    ):
        with pytest.raises(Exception, match=r"(?i)unknown option|invalid value|unused|no-such|yaml"):
            parse(wrong)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run all commands that can be run, those that record before those that read what was recorded."""
    folder = tmp_path_factory.mktemp("docs")
    prepare(folder)
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(number: int, command: str) -> subprocess.CompletedProcess[str]:
        """Run it in a folder of its own that shows all that is prepared, unless what it makes is for others."""
        own = folder
        if not command.startswith("underfed run"):
            own = folder / f"number{number}"
            own.mkdir()
            for thing in folder.iterdir():
                if not thing.name.startswith("number"):
                    (own / thing.name).symlink_to(thing)
        result = subprocess.run(
            words_to_run(command, str(folder / "before")),
            cwd=own, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": path, "TMPDIR": str(folder)},
        )  # fmt: skip
        written = re.search(r" -o (\S+)", command)
        assert result.returncode or not written or (own / written.group(1)).stat().st_size > 100
        return result

    first = {"underfed run --out before -- python train.py"} | {
        t.text for t in RUN if t.text.startswith("underfed run")
    }
    results = {}
    for batch in (sorted(first), [each.text for each in RUN if each.text not in first]):
        with ThreadPoolExecutor(2) as pool:
            results.update(zip(batch, pool.map(run, range(len(batch)), batch), strict=True))
    return results


@pytest.mark.parametrize("command", RUN, ids=lambda each: each.text)
def test_it_runs(command: Shown, done: dict[str, subprocess.CompletedProcess[str]]) -> None:
    result = done[command.text]
    allowed = next((codes for start, codes in EXPECTED.items() if command.text.startswith(start)), {0})
    where = f"{command.text} ({', '.join(command.pages)}): mend it, prepare what it needs, or give a reason in NOT_RUN"
    assert result.returncode in allowed, f"{where}\n{result.stdout[-600:]}\n{result.stderr[-1200:]}"
    assert "Traceback" not in result.stderr


def test_reasons_are_for_commands_that_are_shown() -> None:
    texts = [each.text for each in SHOWN]
    unused = {start for start in NOT_RUN if not any(text.startswith(start) for text in texts)}
    assert unused == set()
    assert set(LONG) <= set(texts)
    # What is neither run here nor in test_long_commands.py is a name, a synopsis, or has its reason.
    for each in OURS:
        assert each in RUN or each.text in LONG or each.mention or each.synopsis or each.reason in NOT_RUN.values()
    assert [each.text for each in SHOWN if each not in OURS and each.reason is None] == []


def test_most_commands_are_run() -> None:
    assert len(RUN) >= 15
    assert {each.text.split()[1] for each in RUN} >= {"run", "read", "audit", "report", "box", "explain", "stale"}


def test_scripts_that_the_docs_start_exist() -> None:
    for each in SHOWN:
        if each.text.startswith("python ") and (script := each.text.split()[1])[0] != "-":
            path = ROOT / script
            assert (path / "__main__.py").is_file() if path.is_dir() else path.is_file(), each.text


def test_python_in_the_docs_compiles() -> None:
    compiled = 0
    for page in PAGES:
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            if token.type == "fence" and token.info.split()[:1] in (["python"], ["py"]):
                assert compile(token.content, f"{page.name}:{token.map}", "exec").co_code
                compiled += 1
    assert compiled >= 6, "the blocks are not found"


def test_extras_that_the_docs_install_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(
        re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2].partition("\n[")[0], re.M)
    )
    for page in PAGES:
        for named in re.findall(r"underfed\[([\w,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= extras, page.name


@pytest.mark.parametrize("name", [name for name in COMMANDS if (ROOT / f"docs/{name}.md").exists()])
def test_options_on_a_commands_page_exist(name: str) -> None:
    known = {option for one in COMMANDS for option in _options(one)}
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    for option in re.findall(r"(?<![\w-])(--[a-z][\w-]*)", text):
        assert option in known | FOREIGN, option


def _app_of(name: str) -> App:
    app = App(name="underfed", result_action="return_value")
    attribute = name + "_" if name == "try" else name
    app.command(getattr(import_module(f"underfed.cli.{attribute}"), attribute), name=name)
    return app


def _options(name: str) -> set[str]:
    arguments = _app_of(name)[name].assemble_argument_collection()
    return {option for argument in arguments for option in argument.names if option.startswith("--")} | {"--help"}
