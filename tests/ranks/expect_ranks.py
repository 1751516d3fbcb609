"""What is true of each script of several ranks, written down from what its options plant.

`bounds` hold every bound that is right, `first` the rules of which one must come first (none: nothing may be advised),
`never` rules that may not be said to help notably. `fixed` are the options without the fault, `rule` the one whose
`at_most` must not be below the true gain of that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """One script with its options and the truth about it."""

    id: str
    options: str
    bounds: tuple[str, ...]
    script: str = "ddp_train"
    first: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    fixed: str | None = None
    rule: str | None = None
    late: int | None = None
    said: str = ""
    short: bool = True
    """Whether the form of two ranks belongs to the tests that always run."""


#: What no script here gives a reason for: equal ranks are not late, and nothing is loaded from anywhere.
_INPUT = ("T4", "T5", "T7", "T8", "U8")
_DEEP = "--model deep --batch 512"
_CROSSING = "--model deep --batch 768 --link 100"

SCENARIOS = (
    Ranks(
        id="exposed",  # 6 MB of gradients, nearly all of which come last, beside next to no computing
        options="--model table --batch 32",
        bounds=("comms",),
        first=("T23",),
        never=("X13", *_INPUT),
        fixed="--model table --batch 32 --half",
        rule="T23",
    ),
    Ranks(id="healthy", options=_DEEP, bounds=("compute",), never=("T23", "X13", *_INPUT)),
    Ranks(
        id="one_bucket",  # sent when the backward pass is over
        options=f"{_CROSSING} --cap 1000",
        bounds=("comms", "compute"),
        never=("X13", *_INPUT),
        fixed=f"{_CROSSING} --cap 0.3",
        rule="T23",
        short=False,
    ),
    Ranks(
        id="sensible_buckets", options=f"{_CROSSING} --cap 0.3", bounds=("compute", "comms"), never=_INPUT, short=False
    ),
    Ranks(
        id="find_unused",  # one more exchange, of which parameters were used, behind all others
        options=f"{_DEEP} --find-unused",
        bounds=("compute", "comms"),
        never=("X13", *_INPUT),
        fixed=_DEEP,
        rule="T23",
        short=False,
    ),
    Ranks(
        id="accumulation",  # how much of it is computing depends on how fast the machine copies
        options="--model table --batch 32 --accum 4 --steps 40",
        bounds=("comms", "compute"),
        first=("T23",),
        never=_INPUT,
        fixed="--model table --batch 32 --accum 4 --steps 40 --no-sync",
        rule="T23",
        said="exchange once a step",
        short=False,  # ddp_no_sync of the planted scripts is its short form
    ),
    Ranks(
        id="no_sync",
        options="--model table --batch 32 --accum 4 --steps 40 --no-sync",
        bounds=("comms", "compute"),
        never=_INPUT,
        short=False,
    ),
    # On a CPU results are there when the call returns: `.item()` costs nothing.
    Ranks(id="item", options=f"{_DEEP} --item", bounds=("compute",), never=("X5", "T23", "X13", *_INPUT), short=False),
    Ranks(
        id="late_rank",
        options="--model deep --batch 64 --slow-ms 0.3",
        bounds=("data",),
        first=("T4", "T8", "U8"),
        fixed="--model deep --batch 64",
        rule="X13",
        late=1,
    ),
    Ranks(
        id="uneven",
        options=f"{_DEEP} --uneven",
        bounds=("compute", "comms"),
        first=("X13",),
        never=("T23", *_INPUT),
        fixed=_DEEP,
        rule="X13",
        said="take turns",
    ),
    # The exchange is inside the passes, and nothing times it there: that is said, and no bound is claimed.
    Ranks(
        id="fully_shard",
        script="fsdp_train",
        options="",
        bounds=("unknown", "comms"),
        never=("X13", *_INPUT),
        short=False,
    ),
    Ranks(
        id="fsdp_wrapper",
        script="fsdp_train",
        options="--wrapper",
        bounds=("unknown", "comms"),
        never=("X13", *_INPUT),
        short=False,
    ),
)
