"""Figures and places of a live verdict in words."""

from __future__ import annotations

from underfed.diagnose.live_frames import Spot
from underfed.diagnose.places import shorten
from underfed.observe.live.stacks import Frame

_MOST_TEXT = 60


def percent(share: float) -> str:
    """Format a share as a whole percentage."""
    return f"{100 * share:.0f} %"


def at(spot: Spot) -> str:
    """Return a spot's place, packages' folders taken off."""
    return shorten(spot.where, None)


def line(spot: Spot) -> str:
    """Return a spot's place and what stands there."""
    text = f" `{spot.text[:_MOST_TEXT]}`" if spot.text else ""
    return at(spot) + text


def frame_line(frame: Frame, text: str = "") -> str:
    """Return a frame as one line: function, place and what stands there."""
    shown = f"  {text[:_MOST_TEXT]}" if text else ""
    return f"{frame.function} ({shorten(frame.place, None)}){shown}"
