"""Interval algebra against sets of whole nanoseconds."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from underfed.timeline import intervals as iv

PAIRS = st.lists(st.tuples(st.integers(-20, 60), st.integers(-5, 20)), max_size=30)


def spans(pairs):
    starts = np.array([start for start, _ in pairs], np.int64)
    return iv.union(starts, starts + np.array([length for _, length in pairs], np.int64))


def points(pairs):
    return {moment for start, length in pairs for moment in range(start, start + length)}


def members(found):
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()
    return {
        moment
        for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)
        for moment in range(start, end)
    }


def loose(found):
    return {
        moment
        for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)
        for moment in range(start, end)
    }


@given(PAIRS)
def test_union_holds_the_same_moments_once(pairs):
    found = spans(pairs)
    assert members(found) == points(pairs)
    assert iv.measure(found) == len(points(pairs))


@given(PAIRS, PAIRS)
def test_intersection_difference_and_join(one, two):
    a, b = spans(one), spans(two)
    assert loose(iv.intersect(a, b)) == points(one) & points(two)
    assert iv.measure(iv.intersect(a, b)) == len(points(one) & points(two))
    assert loose(iv.subtract(a, b)) == points(one) - points(two)
    assert members(iv.join(a, b)) == points(one) | points(two)


@given(PAIRS, st.integers(-30, 80), st.integers(-30, 80))
def test_gaps_are_what_is_left_of_the_window(pairs, begin, end):
    found = spans(pairs)
    window = set(range(begin, end))
    assert loose(iv.gaps(found, begin, end)) == window - points(pairs)
    assert loose(iv.clip(found, begin, end)) == window & points(pairs)


@given(PAIRS, st.integers(1, 8))
def test_close_fills_only_shorter_holes(pairs, close):
    filled = set(points(pairs))
    edges = sorted(points(pairs))
    for left, right in itertools.pairwise(edges):
        if 0 < right - left - 1 < close:
            filled |= set(range(left, right))
    starts = np.array([start for start, _ in pairs], np.int64)
    lengths = np.array([length for _, length in pairs], np.int64)
    assert loose(iv.union(starts, starts + lengths, close=close)) == filled


def test_times_far_from_zero_stay_exact():
    start = np.array([1_796_195_007_000_000_001, 1_796_195_007_000_000_003], np.int64)
    assert iv.measure(iv.union(start, start + 1)) == 2
