"""All rules in cost order: a new rule is one module under `rules/` and one line here."""

from __future__ import annotations

from underfed.playbook.rule import Rule

RULES: tuple[Rule, ...] = ()


def find(wanted: str) -> Rule | None:
    """Return the rule with this id or name (case does not matter), or None."""
    key = wanted.strip().lower()
    return next((rule for rule in RULES if key in (rule.id.lower(), rule.name)), None)
