"""Sparklines and the bar of a step, in block characters or in ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence

from underfed.report.page import Line

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.:-=+*#"

#: Parts of a step in the order of the bar: rich style, and the letter that stands for it without colour.
PARTS: dict[str, tuple[str, str]] = {
    "device": ("green", "#"),
    "model": ("green", "#"),
    "data": ("yellow", "d"),
    "transfer": ("bright_yellow", "t"),
    "sync": ("magenta", "s"),
    "launch": ("bright_magenta", "l"),
    "stall": ("red", "x"),
    "comms": ("blue", "c"),
    "other": ("bright_black", "."),
    "not split": ("dim", "?"),
}


def spark(values: Sequence[float | None], width: int, *, top: float | None, ascii_only: bool) -> str:
    """Return the last `width` values as one character each; a blank where there was no reading.

    `top` fills the scale, None takes the largest value shown. Zero is the lowest mark, not a blank.
    """
    shown = [value if value is not None and math.isfinite(value) else None for value in values[-max(0, width) :]]
    if width <= 0 or not shown:
        return ""
    levels = _ASCII if ascii_only else _BLOCKS
    scale = top if top is not None and top > 0 else max((value for value in shown if value is not None), default=0.0)
    line = ""
    for value in shown:
        if value is None:
            line += " "
        else:
            part = value / scale if scale > 0 else 0.0
            line += levels[min(len(levels) - 1, max(0, round(min(1.0, max(0.0, part)) * (len(levels) - 1))))]
    return line


def bar(parts: Sequence[tuple[str, float]], width: int, *, ascii_only: bool) -> Line:
    """Return shares of 1 as one bar of at most `width` columns; shares that add up to 1 fill it."""
    line: Line = []
    total = done = 0.0
    drawn = 0
    scale = max(1.0, sum(share for _, share in parts if math.isfinite(share) and share > 0))
    for name, share in parts:
        if not math.isfinite(share) or share <= 0:
            continue
        done += share / scale
        total = round(min(1.0, done) * width)
        style, letter = PARTS.get(name, PARTS["other"])
        if total > drawn:
            line.append(((letter if ascii_only else "█") * int(total - drawn), style))
            drawn = int(total)
    return line
