"""The command line: one module a command, imported only when called; one place from error to exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: Commands in the order of `--help`. Each is `underfed.cli.NAME:NAME` (a trailing underscore where NAME is a keyword);
#: its docstring is its help text, and its return value the exit code.
COMMANDS: tuple[str, ...] = (
    "run",
    "try",
    "tune",
    "compare",
    "attach",
    "read",
    "audit",
    "report",
    "box",
    "explain",
    "demo",
    "collect",
    "pull",
    "stale",
    "completion",
)

#: Commands whose words after `--` are another program's command line and must reach it unread.
PASS_THROUGH = frozenset({"run", "try", "tune"})


def main(argv: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return the exit code."""
    from importlib import import_module

    from cyclopts import App, CycloptsError

    import underfed
    from underfed.errors import USAGE, UnderfedError

    words = list(argv)
    command: list[str] | None = None
    if words and words[0] in PASS_THROUGH and "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    wanted = [name for name in COMMANDS if words and words[0] == name] or list(COMMANDS)
    app = App(
        name="underfed",
        help=underfed.__doc__,
        version=underfed.__version__,
        result_action="return_value",
        version_flags=["--version"],
        help_format="markdown" if len(wanted) == 1 else "plaintext",  # a list of commands needs no parser of Markdown
    )
    for name in wanted:
        attribute = name + "_" if name in {"try"} else name
        app.command(getattr(import_module(f"underfed.cli.{attribute}"), attribute), name=name)
    try:
        call, bound, extra = app.parse_args(words, print_error=False, exit_on_error=False)
        if "command" in extra:
            bound.arguments["command"] = command or []
        return int(call(*bound.args, **bound.kwargs) or 0)
    except CycloptsError as error:
        print(f"underfed: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE
    except UnderfedError as error:
        print(f"underfed: {error}", file=sys.stderr)
        return error.exit_code


def entry() -> None:
    """Entry point of the `underfed` script."""
    if sys.argv[1:2] == ["run"]:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C before the command starts: no traceback of ours
    try:
        code = main(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:  # of --help and --version: commands write by report.page.say
        from underfed.report.page import forget_stdout

        if error.filename is not None:
            raise  # of a file, so a fault of ours: commands say what they cannot open
        forget_stdout()
        if not isinstance(error, BrokenPipeError):
            print(f"underfed: cannot write to stdout: {error.strerror}", file=sys.stderr)
        code = 128 + 13 if isinstance(error, BrokenPipeError) else 2
    sys.exit(code)
