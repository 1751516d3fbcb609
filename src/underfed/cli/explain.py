"""`underfed explain`: the rules of the playbook, and the page of one."""

from __future__ import annotations


def explain(rule: str | None = None, /) -> int:
    """List the rules of the playbook, or explain one: `underfed explain T4`.

    Parameters
    ----------
    rule
        Id or name of a rule, as a verdict shows it. Without one, all rules are listed.
    """
    from underfed.errors import UsageError
    from underfed.playbook.registry import RULES, find
    from underfed.report.page import say
    from underfed.report.rulepage import listing, page
    from underfed.report.text import clean

    if rule is None:
        say(listing(RULES))
        return 0
    found = find(rule)
    if found is None:
        near = ", ".join(near_matches(rule)) or "run `underfed explain` for all rules"
        raise UsageError(f"explain: no rule {clean(rule)[:60]!r}; near: {near}")
    say(page(found))
    return 0


def near_matches(wanted: str, most: int = 3) -> list[str]:
    """Return the ids, with names, of rules whose id or name is close to a word or holds it."""
    from difflib import SequenceMatcher

    from underfed.playbook.registry import RULES

    key = wanted.strip().lower().replace(" ", "-").replace("_", "-")
    scored = []
    for place, rule in enumerate(RULES):
        score = max(SequenceMatcher(None, key, text).ratio() for text in (rule.id.lower(), rule.name))
        if len(key) >= 3 and key in rule.name:
            score = 1.0
        if score >= 0.5:
            scored.append((-score, place, f"{rule.id} {rule.name}"))
    return [shown for _, _, shown in sorted(scored)[:most]]
