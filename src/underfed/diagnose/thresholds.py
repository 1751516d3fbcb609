"""Every threshold of the diagnosis, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Cuts used by the split and the rules; shares are of the untraced step."""

    compute_share: float = 0.80
    """Device share from which the device gates. On the labelled H200 runs every compute-bound one reads 0.93 or more
    and every other one below 0.70, so anything between splits them; 0.80 leaves room on both sides."""

    compute_share_cpu: float = 0.60
    """The same cut where the device is the CPU itself. Such a loop does one thing after the other, so the largest part
    gates; a wait below two fifths of the step cannot be what matters most."""

    unsure: float = 0.10
    """A device share this close to the cut lowers the confidence by one grade: no labelled run is there."""

    copies_gate: float = 0.25
    """Share of the step in device copies from which they, and not computing, may be what keeps the device busy. The
    labelled pageable run copies for more than half of its device time, all others for less than a tenth."""

    worth: float = 0.05
    """A wait below this share is not worth a finding: removing it all gains about 5 %, which is machine noise."""

    cheap_first: float = 0.10
    """A cheaper fix is shown before a dearer one as long as it brings at least this part of the best one's gain."""

    other_share: float = 0.10
    """Unexplained time above this share lowers the confidence by one grade."""

    few_steps: int = 10
    """Fewer steady steps than this carry no verdict above low confidence."""

    enough_steps: int = 30
    """Steady steps needed for high confidence."""

    enough_samples: int = 40
    """Stack samples needed outside the timed regions before their split is trusted (about 8 % error at one sigma)."""

    steady_tolerance: float = 0.30
    """Warm-up ends where a block of steps agrees with the later half of the run to this relative difference."""

    steady_outlier: float = 3.0
    """A step this many times above the longest of the run's later half comes from warm-up (a late compilation, a first
    validation), since whatever recurs, stalls included, is found in the later half as well."""

    waiting_fetch: float = 0.35
    """A fetch that computes for less than this share of its wall time is waiting, for storage or a network."""

    computing_fetch: float = 0.60
    """A fetch that computes for more than this share of its wall time is limited by the CPU."""

    cpu_saturated: float = 0.80
    """Share of the usable CPUs from which the loader is limited by cores and not by the number of workers."""

    crowded_thread: float = 0.25
    """Wait of the training thread for a CPU, to its time on one, from which a CPU-only run's step is not its own: the
    computing in it holds waiting that nothing in the script explains."""

    enough_exchanges: int = 10
    """Gradient exchanges timed by torch below which their median is called uncertain: it times every hundredth."""

    few_exchanges: int = 5
    """Passes timed on all ranks below which who comes last, and how much of an exchange is waiting, is not said."""

    late_rank: float = 0.5
    """Part of the others' waiting that a rank's own longer work must explain before it is called the late one: below
    half something else explains more of it. A choice, not a measured figure."""

    turns: float = 0.15
    """Share of the step for which a rank of a CPU-only run waits for others that take turns at being late, before that
    is a finding: equal ranks on two CPUs wait for each other for 0.02 to 0.08 of it by chance."""

    beside: float = 0.15
    """Gain, at its low end, from which an exchange between ranks is advised on in a CPU-only run that computes for most
    of its step. A choice: well above what the exchange of equal ranks on a busy machine costs."""

    ends_apart: float = 0.5
    """The same held against the time in which data moves: an exchange does not end on all ranks at one moment, so the
    longer it takes the more of it looks like waiting. A choice: equal ranks showed up to 0.28, unequal ones 2 and
    more."""

    bursty_spread: float = 3.0
    """95th percentile over median of the fetch times from which a queue is needed to smooth them."""

    skewed_worker: float = 0.90
    """Share of all batches from one of several workers from which the others feed nothing."""


THRESHOLDS = Thresholds()
