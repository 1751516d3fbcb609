"""Collectives of all ranks held against each other: who came last, how long the others stood still, what is transfer.

Clocks of different machines differ by more than a collective takes, so times of different ranks are never compared as
they are. No rank leaves a collective such as an all-reduce before all have come and the data is through, so its ends
are one moment, and each collective is lined up by its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from underfed.timeline.collectives import CollectiveLog, unpacked
from underfed.timeline.intervals import Flags, Ints, measure, union
from underfed.timeline.names import MEETING

#: Rows of all logs together; more would take more than about 1 GB.
ROWS_MOST = 4_000_000
#: Ends that lie this much further apart than the clocks say belong to different collectives.
ENDS_APART_NS = 2_000_000
#: Larger numbers are no count of collectives; what is packed into one number below has room for these.
_SEQUENCE_MOST = 1 << 48
#: Ranks that cause this share of the waiting, if few, are the late ones.
MOST_OF_IT = 0.75
#: And these few: one, or one machine's worth of eight among many.
FEW_OF = 8


class RankSkew(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, in ns over all matched collectives: standing still until the last one came, and moving data, both where
    no compute covers it; in how many it was the last, and how long the others stood still for it, on average over them.
    """

    rank: int
    wait_ns: int
    transfer_ns: int
    last_in: int
    caused_ns: int


class LateIn(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of collective in one group: how many, how long the others stood still in them, and for whom most."""

    name: str
    group: str | None
    count: int
    caused_ns: int
    longest_ns: int
    rank: int


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks together say. `matched` collectives are summed up, `opening` ones are those that began the
    recording and are not; `unmatched` counts kernels that no other rank has.

    `caused_ns` is the standing still of a mean rank; `late` are the ranks, if few, that cause most of it, and
    `late_share` is their part; `saved_ns` is how much shorter the run is if they come when the next one does.
    `clocks_ns` is how far the ranks' clocks are apart, None where that cannot be said.
    """

    matched: int
    opening: int
    unmatched: int
    caused_ns: int
    late: list[int]
    late_share: float
    saved_ns: int
    ranks: list[RankSkew]
    collectives: list[LateIn]
    clocks_ns: int | None


class _Rows(NamedTuple):
    """One entry a collective and rank."""

    rank: Ints
    place: Ints
    key: Ints
    sequence: Ints
    start: Ints
    end: Ints
    inside: Ints

    def at(self, chosen: Ints | Flags) -> _Rows:
        return _Rows(*(column[chosen] for column in self))


def skew_of(logs: Sequence[CollectiveLog], ranks: Sequence[int]) -> Skew | None:
    """Hold the logs of different ranks against each other; None where no collective is in two of them.

    The first collective of each rank is left out where there are others: ranks do not start recording together.
    """
    keys: dict[str, int] = {}
    rows = _all_rows(logs, keys)
    names = list(keys)
    meeting = np.array([name.split("\0")[0] in MEETING for name in names] or [False], np.bool_)
    rows = rows.at(meeting[rows.key])
    unmatched = rows.rank.size
    rows, first = _instances(rows)
    if first.size == 0:
        return None
    unmatched -= rows.rank.size
    clocks, apart = _clocks(rows, first, len(logs))
    steady = np.minimum.reduceat(rows.inside, first) > 0
    opening = np.maximum.reduceat((rows.place == _earliest(rows, len(logs))[rows.rank]).astype(np.int64), first) > 0
    unmatched += int(_sizes(first, rows.rank.size)[apart].sum())
    kept = steady & ~apart
    opened = int((kept & opening).sum()) if (kept & ~opening).any() else 0
    if opened:
        kept &= ~opening
    if not kept.any():
        return None
    rows, first = _instances(rows.at(np.repeat(kept, _sizes(first, rows.rank.size))))
    found = _summed(logs, ranks, names, (rows, first))
    return msgspec.structs.replace(found, opening=opened, unmatched=unmatched, clocks_ns=clocks)


def _earliest(rows: _Rows, number: int) -> Ints:
    """Place of each rank's first row."""
    earliest = np.full(number, np.iinfo(np.int64).max)
    np.minimum.at(earliest, rows.rank, rows.place)
    return earliest


def _all_rows(logs: Sequence[CollectiveLog], keys: dict[str, int]) -> _Rows:
    most = max(1, ROWS_MOST // len(logs))
    parts = []
    for rank, log in enumerate(logs):
        renamed = np.array([keys.setdefault(key, len(keys)) for key in log.keys] or [0], np.int64)
        key = renamed[unpacked(log.key)[:most]]
        sequence = np.minimum(unpacked(log.sequence)[:most], _SEQUENCE_MOST)
        # Without numbers of their own, collectives of a kind and group are numbered by their order; those that share a
        # number (coalesced ones) as well.
        order = _ordinal(key, sequence)
        columns = (unpacked(column)[:most] for column in (log.start, log.end, log.inside))
        place = np.arange(key.size)
        parts.append(_Rows(np.full(key.size, rank), place, key, sequence * 4096 + np.minimum(order, 4095), *columns))
        if (sequence < 0).any():
            parts[-1] = parts[-1]._replace(sequence=np.where(sequence < 0, -1 - order, parts[-1].sequence))
    return _Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _ordinal(key: Ints, sequence: Ints) -> Ints:
    """How many of the same key and sequence come before each."""
    order = np.lexsort((np.arange(key.size), sequence, key))
    opens = np.ones(key.size, np.bool_)
    opens[1:] = (key[order][1:] != key[order][:-1]) | (sequence[order][1:] != sequence[order][:-1])
    first = np.flatnonzero(opens)
    found = np.empty(key.size, np.int64)
    found[order] = np.arange(key.size) - np.repeat(first, _sizes(first, key.size))
    return found


def _sizes(first: Ints, total: int) -> Ints:
    sizes: Ints = np.diff(np.append(first, total))
    return sizes


def _instances(rows: _Rows) -> tuple[_Rows, Ints]:
    """Sort rows by collective, drop those that only one rank has, and say where each collective begins."""
    rows = rows.at(np.lexsort((rows.rank, rows.sequence, rows.key)))
    opens = np.ones(rows.key.size, np.bool_)
    opens[1:] = (rows.key[1:] != rows.key[:-1]) | (rows.sequence[1:] != rows.sequence[:-1])
    first = np.flatnonzero(opens)
    sizes = _sizes(first, rows.key.size)
    shared = sizes > 1
    rows = rows.at(np.repeat(shared, sizes))
    sizes = sizes[shared]
    begin: Ints = np.cumsum(sizes) - sizes
    return rows, begin


def _clocks(rows: _Rows, first: Ints, number: int) -> tuple[int | None, Flags]:
    """How far apart the clocks are, and which collectives do not end together even so: they are not the same one.

    Only ranks that meet in one collective are compared, each with the mean of that collective.
    """
    sizes = _sizes(first, rows.rank.size)
    base = int(rows.end.min())
    ends = (rows.end - base).astype(np.float64)
    offset = np.zeros(number)
    for _ in range(8):  # converges at once where all meet in one group, and in a few rounds through smaller ones
        aligned = ends - offset[rows.rank]
        mean = np.add.reduceat(aligned, first) / sizes
        apart = aligned - np.repeat(mean, sizes)
        change = _medians(rows.rank, apart, number)
        offset += change
        if np.abs(change).max() < 1_000:
            break
    spread = np.abs(
        ends - offset[rows.rank] - np.repeat(np.add.reduceat(ends - offset[rows.rank], first) / sizes, sizes)
    )
    lengths = (rows.end - rows.start).astype(np.float64)
    limit = ENDS_APART_NS + np.maximum.reduceat(lengths, first)
    met = np.unique(rows.rank)
    return int(offset[met].max() - offset[met].min()), np.maximum.reduceat(spread, first) > limit


def _medians(groups: Ints, values: NDArray[Any], number: int) -> NDArray[Any]:
    order = np.lexsort((values, groups))
    counts = np.bincount(groups, minlength=number)
    begin = np.cumsum(counts) - counts
    found = np.zeros(number)
    has = counts > 0
    found[has] = values[order][begin[has] + counts[has] // 2]
    return found


def _summed(
    logs: Sequence[CollectiveLog], ranks: Sequence[int], names: list[str], instances: tuple[_Rows, Ints]
) -> Skew:
    rows, first = instances
    sizes = _sizes(first, rows.rank.size)
    length = rows.end - rows.start
    moving = np.minimum.reduceat(length, first)
    came = rows.start + (length - np.repeat(moving, sizes))
    wait, transfer, bare_wait = _bare_parts(logs, rows, came)
    # The one that came last is the one with the shortest kernel; of several, the first by rank.
    order = np.lexsort((rows.rank, length, np.repeat(np.arange(first.size), sizes)))
    last = order[first]
    last_rank = rows.rank[last]
    caused = (np.add.reduceat(bare_wait, first) - bare_wait[last]) // (sizes - 1)
    by_rank = np.bincount(last_rank, weights=caused, minlength=len(logs)).astype(np.int64)
    total = int(caused.sum())
    late, share = _late(by_rank, total, len(logs))
    return Skew(
        matched=int(first.size),
        opening=0,
        unmatched=0,
        caused_ns=total,
        late=sorted(ranks[at] for at in late),
        late_share=share,
        saved_ns=_saved(rows, first, late, caused, last_rank),
        ranks=[
            RankSkew(
                rank=ranks[at],
                wait_ns=wait[at],
                transfer_ns=transfer[at],
                last_in=int((last_rank == at).sum()),
                caused_ns=int(by_rank[at]),
            )
            for at in range(len(logs))
        ],
        collectives=_by_kind(names, rows.key[first], caused, last_rank, ranks),
        clocks_ns=None,
    )


def _bare_parts(logs: Sequence[CollectiveLog], rows: _Rows, came: Ints) -> tuple[list[int], list[int], Ints]:
    """Uncovered waiting and moving of each rank, as unions, and uncovered waiting of each row."""
    waits, moves = [], []
    by_row = np.zeros(rows.rank.size, np.int64)
    # One pass over the ranks, whose rows are spread over all collectives.
    order = np.argsort(rows.rank, kind="stable")
    bounds = np.searchsorted(rows.rank[order], np.arange(len(logs) + 1))
    for rank, log in enumerate(logs):
        mine = order[bounds[rank] : bounds[rank + 1]]
        of = unpacked(log.bare_of)
        row_of = np.full(len(log.key) // 8, -1, np.int64)
        row_of[rows.place[mine]] = mine
        at = row_of[of]
        known = at >= 0
        at = at[known]
        start, end = unpacked(log.bare_start)[known], unpacked(log.bare_end)[known]
        until = np.clip(came[at], start, end)
        np.add.at(by_row, at, until - start)
        waiting = union(start, until)
        waits.append(measure(waiting))
        moves.append(measure(union(until, end)))
    return waits, moves, by_row


def _late(by_rank: Ints, total: int, number: int) -> tuple[list[int], float]:
    """The few ranks that cause most of the waiting, and their share of it; none where it moves between many."""
    if total <= 0:
        return [], 0.0
    order = np.argsort(-by_rank, kind="stable")
    shares = np.cumsum(by_rank[order]) / total
    needed = int(np.searchsorted(shares, MOST_OF_IT)) + 1
    if needed > max(1, number // FEW_OF):
        return [], float(shares[0])
    return order[:needed].tolist(), float(shares[needed - 1])


def _saved(rows: _Rows, first: Ints, late: list[int], caused: Ints, last_rank: Ints) -> int:
    """What is saved where the late ranks come when the next one does; never more than the others stood still."""
    if not late:
        return 0
    length = rows.end - rows.start
    far = int(length.max()) + 1
    others = np.where(np.isin(rows.rank, late), far, length)
    gap = np.minimum.reduceat(others, first) - np.minimum.reduceat(length, first)
    # A collective that only late ranks take part in shows no one to compare with.
    alone = np.add.reduceat((~np.isin(rows.rank, late)).astype(np.int64), first) == 0
    gain = np.where(alone | ~np.isin(last_rank, late), 0, np.minimum(gap, caused))
    return int(gain.sum())


def _by_kind(names: list[str], keys: Ints, caused: Ints, last_rank: Ints, ranks: Sequence[int]) -> list[LateIn]:
    found = []
    for key in np.unique(keys).tolist():
        mine = keys == key
        kind, group, _ = names[key].split("\0")
        by_rank = np.bincount(last_rank[mine], weights=caused[mine], minlength=len(ranks))
        found.append(
            LateIn(
                name=kind,
                group=group or None,
                count=int(mine.sum()),
                caused_ns=int(caused[mine].sum()),
                longest_ns=int(caused[mine].max()),
                rank=ranks[int(np.argmax(by_rank))],
            )
        )
    return sorted(found, key=lambda one: -one.caused_ns)
