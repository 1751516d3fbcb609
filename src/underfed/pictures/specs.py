"""Vega-Lite specifications. Colours are CSS variables, so that a chart follows the page's theme and its print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from underfed.pictures.palette import scale

Spec = dict[str, Any]
Rows = Sequence[dict[str, Any]]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_TEXT = "var(--text)"
_FAINT = "var(--faint)"
_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _TEXT,
        "titleColor": _TEXT,
        "gridColor": "var(--grid)",
        "domainColor": _FAINT,
        "tickColor": _FAINT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 150,
    },
}


def _top(height: int, span: tuple[float, float], description: str, layers: list[Spec], rows: Rows) -> Spec:
    """Wrap layers; the page sets `width`, and `lo` and `hi` when somebody zooms."""
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": 640,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": _CONFIG,
        "params": [{"name": "lo", "value": span[0]}, {"name": "hi", "value": span[1]}],
        "data": {"values": list(rows)},
        "layer": layers,
    }


def _x(field: str, title: str, *, whole: bool = False) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"domainMin": {"expr": "lo"}, "domainMax": {"expr": "hi"}, "nice": False, "zero": False},
        "axis": {
            "grid": False,
            "tickCount": 8,
            "labelAngle": 0,
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            # Half a step is no step: marks between two of them have no number.
            **({"labelExpr": "datum.value % 1 ? '' : format(datum.value, ',d')"} if whole else {}),
        },
    }


def _ceiling(rows: Rows) -> float:
    """Top of the scale: where few values are far above all others, they are cut, or nothing else could be seen."""
    values = sorted(float(row["ms"]) for row in rows)
    usual, top = values[int(0.97 * (len(values) - 1))], values[-1]
    return 1.05 * top if top <= 4 * usual or len(values) < 8 else 1.6 * usual


def stacked(
    rows: Rows,
    used: tuple[str, ...],
    labels: dict[str, str],
    *,
    what: str,
    marks: dict[str, list[float]] | None = None,
) -> Spec:
    """Stacked ms of things in a row: each has `step` and `to` on the axis, `shown`, `ms`, `longest`, and its parts."""
    top = _ceiling(rows)
    span = (float(rows[0]["step"]), float(rows[-1]["to"]))
    x = _x("step", what, whole=True)
    height_scale = {"domain": [0, top], "nice": False}
    end = {**rows[-1], "step": rows[-1]["to"]}
    areas = [{"step": row["step"], "part": name, "value": row[labels[name]]} for row in [*rows, end] for name in used]
    order = {name: at for at, name in enumerate(used)}
    for area in areas:
        area["order"] = order[area["part"]]
    layers: list[Spec] = []
    if marks and marks.get("traced"):
        low, high = marks["traced"]
        layers.append(
            {
                "data": {"values": [{"step": low, "to": high}]},
                "mark": {"type": "rect", "color": _FAINT, "opacity": 0.25, "clip": True},
                "encoding": {"x": x, "x2": {"field": "to"}},
            }
        )
    layers.append(
        {
            "data": {"values": areas},
            "mark": {"type": "area", "interpolate": "step-after", "clip": True, "opacity": 1},
            "encoding": {
                "x": x,
                "y": {"field": "value", "type": "quantitative", "stack": "zero", "title": "ms", "scale": height_scale},
                "color": {"field": "part", "type": "nominal", "scale": scale(used), "legend": None},
                "order": {"field": "order", "type": "ordinal"},
            },
        }
    )
    if marks and marks.get("epochs"):
        layers.append(
            {
                "data": {"values": [{"step": at} for at in marks["epochs"]]},
                "mark": {"type": "rule", "color": _TEXT, "opacity": 0.45, "strokeDash": [3, 3], "clip": True},
                "encoding": {"x": x},
            }
        )
    if any(float(row["longest"]) > top for row in rows):
        layers.append(
            {
                "transform": [{"filter": f"datum.longest > {top}"}],
                "mark": {"type": "text", "text": "▲", "color": _TEXT, "baseline": "top", "clip": True, "y": 0},
                "encoding": {"x": {**x, "bandPosition": 0.5}},
            }
        )
    tips = [{"field": "shown", "title": what}, {"field": "ms", "title": "ms"}]
    if any(row["longest"] != row["ms"] for row in rows):
        tips[1]["title"] = "mean ms"
        tips.append({"field": "longest", "title": "longest ms"})
    tips += [{"field": labels[name], "title": labels[name], "format": ",.3~f"} for name in used]
    layers.append(
        {
            "mark": {"type": "rect", "color": "transparent", "clip": True, "cursor": "crosshair"},
            "encoding": {"x": x, "x2": {"field": "to"}, "tooltip": tips},
        }
    )
    return _top(220, span, what, layers, rows)


def line(rows: Rows, *, x: str, x_title: str, y: str, y_title: str, colour: str) -> Spec:
    """Draw a stepped line with points to hover."""
    span = (float(rows[0][x]), float(rows[-1][x]))
    encoding: Spec = {
        "x": _x(x, x_title, whole=True),
        "y": {"field": y, "type": "quantitative", "title": y_title},
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "interpolate": "step-after", "color": f"var(--c-{colour})", "clip": True},
            "encoding": encoding,
        },
        {
            "mark": {"type": "point", "size": 60, "opacity": 0, "clip": True},
            "encoding": {**encoding, "tooltip": [{"field": x, "title": x_title}, {"field": y, "title": y_title}]},
        },
    ]
    return _top(130, span, f"{y_title} over {x_title}", layers, rows)


def lanes(rows: Rows, order: Sequence[str], used: tuple[str, ...], span_ms: float, description: str) -> Spec:
    """Draw bars on lanes: each row has `lane`, `start`, `end` (ms), `class`, `full` (0 to 1), `what`, `ms`, `where`."""
    layer: Spec = {
        "mark": {"type": "bar", "clip": True, "height": {"band": 0.82}},
        "encoding": {
            "x": _x("start", "ms since the step began"),
            "x2": {"field": "end"},
            "y": {
                "field": "lane",
                "type": "nominal",
                "title": None,
                "sort": list(order),
                "scale": {"domain": list(order)},
                "axis": {"domain": False, "ticks": False, "grid": False},
            },
            "color": {"field": "class", "type": "nominal", "scale": scale(used), "legend": None},
            # How full a bar is that stands for many events: faint where the device does next to nothing.
            "opacity": {
                "field": "full",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "range": [0.12, 1], "clamp": True},
                "legend": None,
            },
            "tooltip": [
                {"field": "what", "title": "what"},
                {"field": "ms", "title": "ms"},
                {"field": "where", "title": "where"},
            ],
        },
    }
    # How many lanes there are tells the page how high it has to be on paper.
    return {**_top(26 * len(order) + 40, (0.0, span_ms), description, [layer], rows), "usermeta": {"lanes": len(order)}}
