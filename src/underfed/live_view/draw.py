"""The picture of a state: lines of styled text that fit a terminal of any size. No clock, no terminal, no file."""

from __future__ import annotations

import time

from underfed.live_view.marks import PARTS, bar, spark
from underfed.live_view.state import Judged, State, Track
from underfed.report.page import Line
from underfed.report.text import cells, clean, wrap
from underfed.report.words import BOUND_STYLE, CONFIDENCE_STYLE, milliseconds

#: A line of text needs this many columns to be readable at all.
_NARROWEST = 20
_LABEL = 7
_FIGURES = 30


def page(state: State, width: int, height: int, *, ascii_only: bool) -> list[Line]:
    """Return at most `height` lines of at most `width` columns each; what matters less goes first where room lacks."""
    if width < _NARROWEST or height < 3:
        return [fit([(line, "")], width) for line in [status_text(state, ascii_only)][: max(0, height)]]
    head = [_title(state, width, ascii_only)]
    verdict = _verdict(state, width, ascii_only, most=4 if height >= 20 else 2)
    blocks: list[tuple[int, list[Line]]] = [  # (what it is worth, lines) in the order of the page
        (9, [[], *_budget(state, width, ascii_only)]),
        (8, [_steps(state, width, ascii_only)]),
        *((6 if at < 4 else 3, [_track(track, width, ascii_only)]) for at, track in enumerate(state.tracks)),
    ]
    room = height - len(head) - len(verdict)
    kept = set()
    for at, (_, lines) in sorted(enumerate(blocks), key=lambda each: -each[1][0]):
        if len(lines) <= room:
            kept.add(at)
            room -= len(lines)
    lines = [*head, *verdict, *(line for at, (_, block) in enumerate(blocks) if at in kept for line in block)]
    if room >= 3:
        lines += [[], *_changes(state, room - 1, ascii_only)]
    return [fit(line, width) for line in lines[:height]]


def status(state: State, width: int, *, ascii_only: bool) -> Line:
    """Return the same in one line of at most `width` columns; a part that does not fit is left out as a whole."""
    judged = state.judged
    parts: list[Line] = [[("underfed", "bold")]]
    if (late := _late(state)) is not None:
        parts.append([(f"  {late}", "bold red")])
    elif state.step_ms is not None:
        parts.append([(f"  {milliseconds(state.step_ms)} a step, {_rate(state.rate)}", "")])
    elif judged is None:
        parts.append([("  no steps yet", "dim")])
    if judged is not None:
        words = clean(judged.key[1], ascii_only=ascii_only)
        cause = f" {clean(judged.cause, ascii_only=ascii_only)}" if judged.cause else ""
        parts.append(
            [("  ", ""), (words, BOUND_STYLE[judged.bound]), (cause, ""), (f" since {_clock(state.since)}", "")]
        )
        largest = sorted(judged.parts, key=lambda part: -part[1])[:2]
        parts += [[(f"  {name} {_percent(share)}", "dim")] for name, share in largest if share >= 0.005]
    if state.step_ms is not None:
        parts.append([("  ", ""), (spark(state.step_track, 8, top=None, ascii_only=ascii_only), "cyan")])
    for track in state.tracks[:2]:
        parts.append(
            [(f"  {clean(track.name, ascii_only=ascii_only)} {clean(track.text, ascii_only=ascii_only)}", "dim")]
        )
    line: Line = []
    for part in parts:
        if sum(cells(text) for text, _ in (*line, *part)) <= width:
            line += part
    return line or fit(parts[0], width)


def status_text(state: State, ascii_only: bool) -> str:
    """Return the verdict alone, for a terminal in which nothing else has room."""
    judged = state.judged
    return "looking" if judged is None else clean(judged.key[1], ascii_only=ascii_only)


def fit(line: Line, width: int) -> Line:
    """Cut a line of cleaned text to `width` columns."""
    room, kept = max(0, width), []
    for text, style in line:
        if cells(text) <= room:
            kept.append((text, style))
            room -= cells(text)
            continue
        cut = ""
        for char in text:
            if cells(cut + char) > room:
                break
            cut += char
        kept.append((cut, style))
        break
    return kept


def _clock(at: float | None) -> str:
    return "?" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


def _length(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "? steps/s"
    return (
        f"{rate:.0f} steps/s" if rate >= 100 else f"{rate:.1f} steps/s" if rate >= 1 else f"{60 * rate:.1f} steps/min"
    )


def _late(state: State) -> str | None:
    """Say how long no step ended, where that is far longer than a step takes."""
    if state.stepped_at is None or state.step_ms is None:
        return None
    passed = state.at - state.stepped_at
    return f"no step for {passed:.0f} s" if passed > max(5.0, 10 * state.step_ms / 1000) else None


def _title(state: State, width: int, ascii_only: bool) -> Line:
    clock = f"{_length(state.at - state.began)}  {_clock(state.at)}" if width >= 40 else ""
    room = width - cells(clock) - 2
    left = fit([("underfed ", "bold"), (clean(state.title, ascii_only=ascii_only), "")], room)
    gap = width - sum(cells(text) for text, _ in left) - cells(clock)
    return [*left, (" " * max(1, gap), ""), (clock, "dim")]


def _verdict(state: State, width: int, ascii_only: bool, *, most: int) -> list[Line]:
    judged = state.judged
    if judged is None:
        words = "waiting for the first steps" if state.stepping else "looking: no verdict yet"
        return [[(words, "bold")], [(state.hint, "dim")]]
    bound, _, meaning = clean(judged.words, ascii_only=ascii_only).partition(" (")
    first: Line = [(bound, BOUND_STYLE[judged.bound])]
    since = f" since {_clock(state.since)}"
    rest = f", {judged.confidence} confidence"
    if meaning and cells(bound) + cells(meaning) + cells(rest) + cells(since) + 3 <= width:
        first.append((f" ({meaning}", ""))
    first += [(since, ""), (rest, CONFIDENCE_STYLE[judged.confidence])]
    lines = [first]
    if judged.cause is not None:
        named = f"{clean(judged.cause, ascii_only=ascii_only)} {clean(judged.name, ascii_only=ascii_only)}"
        lines.append([("cause: ", ""), (named, "bold")])
    lines += [[(line, "")] for line in wrap(clean(judged.text, ascii_only=ascii_only), width, most=most)]
    return [*lines, *_advice(judged, width, ascii_only)]


def _advice(judged: Judged, width: int, ascii_only: bool) -> list[Line]:
    lead, text = ("fix: ", judged.fix) if judged.fix is not None else ("to settle it: ", judged.settle)
    if text is None:
        return []
    broken = wrap(clean(text, ascii_only=ascii_only), max(8, width - cells(lead)), most=2)
    return [[(lead if at == 0 else " " * cells(lead), "bold"), (line, "green")] for at, line in enumerate(broken)]


def _label(name: str) -> tuple[str, str]:
    return (f"{name:<{_LABEL}} ", "bold")


def _budget(state: State, width: int, ascii_only: bool) -> list[Line]:
    judged = state.judged
    if judged is None or not judged.parts:
        return [[_label("budget"), ("not known yet" if judged is None else "not known", "dim")]]
    drawn = bar(judged.parts, width - _LABEL - 1, ascii_only=ascii_only)
    shown = [(name, share) for name, share in judged.parts if share >= 0.005]
    legend: list[Line] = [[(" " * (_LABEL + 1), "")]]
    for name, share in shown:
        style, letter = PARTS.get(name, PARTS["other"])
        mark = letter if ascii_only else "█"
        text = f"{name} {_percent(share)}"
        if sum(cells(part) for part, _ in legend[-1]) + cells(text) + 4 > width:
            legend.append([(" " * (_LABEL + 1), "")])
        legend[-1] += [(mark, style), (f" {text}  ", "")]
    return [[_label("budget"), *drawn], *legend[:2], [(" " * (_LABEL + 1), ""), (f"of {judged.of}", "dim")]]


def _steps(state: State, width: int, ascii_only: bool) -> Line:
    if not state.stepping:
        return [_label("step"), ("not seen from outside: `underfed run` times it", "dim")]
    if state.step_ms is None:
        return [_label("step"), ("none yet", "dim")]
    text = f"{milliseconds(state.step_ms)}, {_rate(state.rate)}"
    if (late := _late(state)) is not None:
        return [_label("step"), (f"{text}  ", ""), (late, "bold red")]
    return _track(Track("step", state.step_track, text, None), width, ascii_only)


def _track(track: Track, width: int, ascii_only: bool) -> Line:
    name, text = _named(track.name, ascii_only), clean(track.text, ascii_only=ascii_only)
    line: Line = [_label(name), (text + " " * (_FIGURES - cells(text) + 1), "")]
    room = width - sum(cells(part) for part, _ in line)
    return [*line, (spark(track.values, room, top=track.top, ascii_only=ascii_only), "cyan")]


def _named(name: str, ascii_only: bool) -> str:
    """Return a track's name; a blank in front of it stands for what it belongs to."""
    return " " * (len(name) - len(name.lstrip())) + clean(name, ascii_only=ascii_only)


def _changes(state: State, room: int, ascii_only: bool) -> list[Line]:
    if not state.changes:
        return []
    more = state.changed - min(len(state.changes), room - 1)
    title = f"changes ({more} earlier)" if more > 0 else "changes"
    lines: list[Line] = [[(title, "bold"), (f"  {state.hint}", "dim")]]
    for change in reversed(state.changes[-(room - 1) :]):
        cause = f" {clean(change.cause, ascii_only=ascii_only)}" if change.cause else ""
        words = clean(change.words, ascii_only=ascii_only)
        lines.append([(f"  {_clock(change.at)}  ", "dim"), (words, BOUND_STYLE[change.bound]), (cause, "")])
    return lines
