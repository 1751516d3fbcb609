"""`python -m underfed` is the `underfed` command."""

from underfed.cli import entry

entry()
