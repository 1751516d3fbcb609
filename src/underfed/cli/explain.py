"""`underfed explain`: all rules by stage, and the page of one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def explain(
    rule: str | None = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """List all rules, or explain one: `underfed explain T4`.

    It knows the rules that a run or a trace shows, those that `underfed audit` finds in source code, and the other
    numbers that the advice of `underfed box` bears, with the rules that answer each.

    For example:

        underfed explain
        underfed explain T4
        underfed explain workers-restart-each-epoch

    Parameters
    ----------
    rule
        Id or name of a rule, as a verdict or a finding shows it. Without one, all rules are listed, by stage in cost
        order.
    as_json
        Print the rules as JSON.
    """
    import json
    from dataclasses import asdict

    from underfed.errors import UsageError
    from underfed.report.manual import number, words
    from underfed.report.page import say
    from underfed.report.rulebook import as_data, entries, find_entry, near_entries
    from underfed.report.rulepage import listing, page
    from underfed.report.text import clean

    known = list(entries())
    asked = None
    if rule is None:
        chosen = known
    elif found := find_entry(rule):
        chosen = [found]
    elif asked := number(rule):
        chosen = [entry for entry in known if entry.id in asked.rules]
    else:
        near = ", ".join(f"{entry.id} {entry.name}" for entry in near_entries(rule))
        shown = clean(rule)[:60]
        raise UsageError(f"explain: no rule {shown!r}; near: {near or 'run `underfed explain` for all rules'}")
    if as_json:
        head = {"schema": "underfed.rules/1"} | ({"number": asdict(asked)} if asked else {})
        say(json.dumps({**head, "rules": [as_data(entry) for entry in chosen]}, indent=1, ensure_ascii=False) + "\n")
    elif asked:
        say(words(asked, {entry.id: entry.name for entry in known}))
    else:
        say(listing(chosen) if rule is None else page(chosen[0]))
    return 0
