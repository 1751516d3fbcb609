"""Colours of the classes of time, told apart by colour-blind people on light and on dark ground."""

from __future__ import annotations

#: Class, label, colour on light ground, colour on dark ground. Lightness differs between neighbours, so that the order
#: in a bar survives a black-and-white print as well.
CLASSES: tuple[tuple[str, str, str, str], ...] = (
    ("device", "device at work", "#2a9d8f", "#3fcbb0"),
    ("data", "waiting for data", "#e9b44c", "#efbc4b"),
    ("transfer", "copying input", "#8ecae6", "#b5f0fa"),
    ("sync", "waiting in a sync", "#d1495b", "#f8816f"),
    ("launch", "launching", "#9b5de5", "#d09dff"),
    ("stall", "stalls", "#6b2d43", "#9a4485"),
    ("comms", "other ranks", "#1d4e89", "#3f7fcf"),
    ("other", "the rest", "#b8bcc4", "#7f8792"),
)
LABELS = {name: label for name, label, _, _ in CLASSES}
NAMES = tuple(name for name, *_ in CLASSES)


def variables(dark: bool) -> str:
    """Return the colours as declarations of CSS variables."""
    return " ".join(f"--c-{name}: {night if dark else day};" for name, _, day, night in CLASSES)


def scale(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the Vega-Lite colour scale of some classes; the colours themselves are left to the page's theme."""
    return {"domain": list(names), "range": [f"var(--c-{name})" for name in names]}
