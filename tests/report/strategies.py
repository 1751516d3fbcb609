"""Hypothesis strategies for Diagnoses, hostile ones included."""

from __future__ import annotations

from hypothesis import strategies as st

from underfed import diagnosis as d

_NASTY = st.sampled_from(
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]8;;http://x\x07link\x1b]8;;\x07",
        "\x1b]0;title\x1b\\",
        "\x9b2Jgone",
        "\u202egnp.exe\u202c",
        "\u2066x\u2069",
        "a\r\nb",
        "\x00\x07\x7f\x08",
        "\u200d\ufe0f\U0001f469",
        "\ud800",
        "名前" * 30,
        "\uff21\uff22\uff41" * 40,
        "e\u0301" * 50,
        "word " * 60,
        "x" * 300,
        "\u2028line\u2029",
    ]
)
text = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(codec=None), max_size=40),
    st.lists(_NASTY, min_size=1, max_size=4).map("".join),
)
number = st.one_of(st.none(), st.floats(), st.floats(0, 1e5), st.floats(0, 10))
whole = st.one_of(st.none(), st.integers(0, 10_000), st.integers())


def sampled(alias: object) -> st.SearchStrategy[str]:
    return st.sampled_from(alias.__args__)  # type: ignore[attr-defined]


waits = st.builds(d.Waits, **dict.fromkeys(d.Waits.__struct_fields__, number))
steps = st.builds(d.Step, wait_ms=waits, **{name: number for name in d.Step.__struct_fields__ if name != "wait_ms"})
factor = st.one_of(st.floats(0, 300), st.floats(allow_nan=False, allow_infinity=False))
gains = st.builds(d.Gain, at_most=factor, expected=st.one_of(st.none(), st.tuples(factor, factor)))
findings = st.builds(
    d.Finding,
    rule=text,
    name=text,
    stage=sampled(d.Stage),
    bound=sampled(d.Bound),
    numerics=sampled(d.Numerics),
    summary=text,
    gain=st.one_of(st.none(), gains),
    where=st.one_of(st.none(), text),
    evidence=st.lists(st.builds(d.Observation, source=sampled(d.Source), text=text), max_size=3),
    fix=st.builds(d.Fix, text=text, code=st.one_of(st.none(), text), try_=st.one_of(st.none(), text)),
    helps_now=st.booleans(),
    note=st.one_of(st.none(), text),
)
diagnoses = st.builds(
    d.Diagnosis,
    subject=st.builds(
        d.Subject,
        kind=st.sampled_from(["run", "trace", "live"]),
        paths=st.lists(text, max_size=2),
        ranks=whole,
        steps=whole,
        warmup_steps=whole,
        device=st.one_of(st.none(), st.just("CPU"), text),
    ),
    verdict=st.builds(
        d.Verdict,
        bound=sampled(d.Bound),
        cause=st.one_of(st.none(), text),
        confidence=sampled(d.Confidence),
        text=text,
        settle=st.one_of(st.none(), text, text.map("underfed ".__add__)),
    ),
    step=steps,
    findings=st.lists(findings, max_size=12),
    limits=st.lists(text, max_size=12),
)
