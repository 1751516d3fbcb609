"""Every threshold of `attach`, with its reason; those that `run` has too are taken from there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiveLimits:
    """Cuts of the live verdict; shares are of the window."""

    samples_high: int = 200
    """Samples of the training thread for high confidence: a share of one half is then known to 7 % at two sigma."""

    samples_medium: int = 60
    """As above, for medium confidence: 13 %."""

    samples_any: int = 20
    """With fewer, a share can be off by a quarter of the window: nothing is said."""

    still_seconds: float = 3.0
    """A window shorter than this does not tell a hang from a long call."""

    still_cpu: float = 0.02
    """A thread that uses more CPU than this does something, even where its stack never changes."""

    margin: float = 0.10
    """Two bounds whose shares are closer than this lower the confidence by one grade."""

    throttled: float = 0.25
    """Share of the quota's periods in which the group was stopped from which the quota is what gates the run. Below
    it, the time lost is a few per cent."""

    queued: float = 0.30
    """Share of the wanted CPU time that threads spent waiting for a CPU from which the CPUs are too few."""

    one_call: float = 3.0
    """Seconds at one line of the model's work, with the GPU idle, from which the run is not yet training: it loads
    kernels, searches for algorithms or compiles. The first steps on an H200 took up to 15 s so; a step that launches
    for longer than this without filling the GPU has not been seen."""

    starting: float = 0.20
    """Share in imports from which the window fell into the start of a run and not into its training."""

    held_up: float = 0.15
    """Share of the window for which a thread must wait for a CPU before a lack of CPUs can gate it: one that wants
    none for most of the time waits long in relation, and loses nothing."""

    starved: float = 0.50
    """The same, from which other programs of the machine are the verdict. Below it they are told as a limit: the
    verdict is what the run itself can change."""

    others: float = 0.50
    """CPUs that other programs use, as a part of those usable, from which they are named as the cause."""

    late_rank: float = 0.15
    """Difference in the time spent in collectives between two ranks from which the one with less keeps the others."""

    comms: float = 0.30
    """Share in collectives, on every rank, from which they gate the step."""

    gpu_full: float = 70.0
    """SM activity in % (GPM) from which a GPU is well fed. Of 19 labelled runs on an H200 the compute-bound ones read
    75 to 93 and all others at most 50, in single seconds 58."""

    gpu_idle: float = 60.0
    """SM activity, or utilization without GPM, in % below which the GPU's time is mostly waiting, on the same runs."""

    gpu_utilized: float = 90.0
    """Utilization in % that a card without GPM must show to be called busy."""

    gpu_power: float = 0.70
    """And its power as a part of the limit: a host-bound run, which empties the cache in each step, reads 83 % and
    0.63."""

    gpu_dead: float = 1.0
    """DRAM activity in % below which a kernel that runs all the time does nothing but wait, as a collective does whose
    other ranks do not come. The least that a labelled run with utilization above 90 % reads is 10."""

    gpu_differ: float = 30.0
    """Utilization above SM activity, in points, from which the difference is told."""


LIMITS = LiveLimits()
