"""Changes of source text at exact places; layout and comments around them stay."""

from __future__ import annotations

import ast
import io
import tokenize

from underfed.audit.finding import Edit
from underfed.audit.module import Module

_QUIET = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def add_keyword(module: Module, call: ast.Call, name: str, value: str) -> Edit | None:
    """Add a keyword argument to a call, in its layout; None where that cannot be done without a doubt."""
    if any(keyword.arg == name for keyword in call.keywords):
        return None
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
        return None
    start, end = module.span(call)
    _, after = module.span(call.func)
    inside = module.source[after : end - 1]
    last = _last_token(inside)
    if last is None:
        return None
    text, place = last
    at = after + place
    if text == "(" and not call.args and not call.keywords:
        return Edit(at, at, f"{name}={value}")
    if text != ",":
        return Edit(at, at, f", {name}={value}")
    arguments = [*call.args, *(k.value for k in call.keywords)]
    line = max(arguments, key=lambda a: (a.lineno, a.col_offset)).lineno
    if line == call.lineno:
        return Edit(at, at, f" {name}={value}")
    row = module.line(line)
    indent = row[: len(row) - len(row.lstrip())]
    if end <= start or module.line(call.end_lineno or line).strip().startswith(")"):
        return Edit(at, at, f"{_line_end(module)}{indent}{name}={value},")
    return Edit(at, at, f" {name}={value}")


def set_keyword(module: Module, call: ast.Call, name: str, value: str) -> Edit | None:
    """Give a keyword argument another value, or add it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return Edit(*module.span(keyword.value), value)
    return add_keyword(module, call, name, value)


def replace(module: Module, node: ast.AST, text: str) -> Edit:
    """Replace a node's source."""
    return Edit(*module.span(node), text)


def drop_statement(module: Module, node: ast.AST) -> Edit | None:
    """Remove a statement that stands alone on its lines; the only one of its block becomes `pass`."""
    statement = module.statement_of(node)
    if statement is None:
        return None
    around = module.parents[statement]
    block = next((b for b in _blocks(around) if statement in b), None)
    if block is None:
        return None
    start, end = module.span(statement)
    if len(block) == 1:
        return Edit(start, end, "pass")
    first = module.offset(statement.lineno, 0)
    if module.source[first:start].strip():
        return None
    rest = module.source[end:].partition("\n")[0]
    if rest.strip():
        return None  # a comment or another statement behind it
    stop = end + len(rest) + (1 if end + len(rest) < len(module.source) else 0)
    return Edit(first, stop, "")


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return [block for name in ("body", "orelse", "finalbody") if isinstance(block := getattr(node, name, None), list)]


def _line_end(module: Module) -> str:
    return "\r\n" if "\r\n" in module.source else "\n"


def _last_token(text: str) -> tuple[str, int] | None:
    """Return the last token that is code, and the offset behind it; `text` begins at or before the opening bracket."""
    # A closing bracket keeps the text between balanced for the tokenizer.
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    found: tuple[str, int] | None = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text + ")", newline="").readline):
            if token.type in _QUIET:
                continue
            place = starts[token.end[0] - 1] + token.end[1]
            if place <= len(text):
                found = (token.string, place)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return None
    return found
