"""Windows that follow one another, put together to one: the last seconds of a run that is watched for longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from underfed.observe.live.stacks import Sampling, ThreadStacks
from underfed.observe.live.window import Life, Seen


def joined(windows: Sequence[Seen]) -> Seen:
    """Return windows of one target, in their order, as one that lasts from the first one's begin to the last one's end.

    The gaps in between count to its time: counters of the kernel go on in them, and samples are shares anyway.
    """
    first, last = windows[0], windows[-1]
    if len(windows) == 1:
        return first
    held = [window.holding for window in windows if window.holding is not None]
    return replace(
        last,
        seconds=last.begun + last.seconds - first.begun,
        begun=first.begun,
        lives=_lives(windows),
        before=first.before,
        gpu_box=next((window.gpu_box for window in reversed(windows) if window.gpu_box is not None), None),
        gpu=[reading for window in windows for reading in window.gpu],
        sampling=_sampling([window.sampling for window in windows]),
        holding=_sampling(held) if held else None,
        sources={place: text for window in windows for place, text in window.sources.items()},
        own_cpu_s=sum(window.own_cpu_s for window in windows),
    )


def _lives(windows: Sequence[Seen]) -> list[Life]:
    known: dict[tuple[int, int], Life] = {}
    for window in windows:
        for life in window.lives:
            who = (life.first.pid, life.first.start_ms)
            known[who] = _life(known[who], life) if who in known else life
    there = {(life.first.pid, life.first.start_ms) for life in windows[-1].lives}
    lives = [life if who in there else replace(life, gone=True) for who, life in known.items()]
    # a number that was used twice is one process to those who look by number: the one that is there now
    latest = {life.first.pid: life for life in sorted(lives, key=lambda life: life.first.start_ms)}
    return list(latest.values())


def _life(before: Life, after: Life) -> Life:
    waits = {tid: Counter(found) for tid, found in before.waits.items()}
    for tid, found in after.waits.items():
        waits.setdefault(tid, Counter()).update(found)
    return replace(
        after,
        first=before.first,
        began=before.began,
        variables=before.variables or after.variables,
        python=before.python or after.python,
        # a thread that began within the first window counts from its own start, that is from nothing
        threads_first={
            **{tid: thread for tid, thread in after.threads_first.items() if tid not in before.threads_last},
            **before.threads_first,
        },
        threads_last={**before.threads_last, **after.threads_last},
        states=before.states + after.states,
        waits=waits,
        storage=before.storage + after.storage,
        devices=before.devices | after.devices,
        torch=before.torch or after.torch,
    )


def _sampling(parts: Sequence[Sampling]) -> Sampling:
    threads: dict[tuple[int | None, int | None, str], ThreadStacks] = {}
    for part in parts:
        for thread in part.threads:
            who = (thread.pid, thread.tid, thread.name if thread.tid is None else "")
            known = threads.get(who)
            threads[who] = (
                thread
                if known is None
                else known._replace(samples=known.samples + thread.samples, torn=known.torn + thread.torn)
            )
    return Sampling(
        threads=list(threads.values()),
        rate=parts[-1].rate,
        cpu_s=sum(part.cpu_s for part in parts),
        errors=sum(part.errors for part in parts),
        reason=None if threads else parts[-1].reason,
    )
