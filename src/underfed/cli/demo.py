"""`underfed demo`: a starved loop, its verdict, the fix, and predicted against measured gain."""

from __future__ import annotations

from pathlib import Path


def demo(*, out: Path | None = None) -> int:
    """Watch a starved training loop, apply the fix that the verdict names, and measure what it gained.

    Needs torch but no GPU, and takes under a minute. All figures are measured while you watch.

    For example:

        underfed demo
        underfed demo --out demo

    Parameters
    ----------
    out
        Folder for the script and both recordings: new or empty. Default: a new one in the temporary folder.
    """
    import importlib.util
    import sys

    from underfed.demo.session import EndedError, prepare
    from underfed.errors import UsageError

    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"demo: needs torch, which {sys.executable} lacks; install it: pip install torch")
    try:
        return _shown(prepare(out))
    except EndedError as ended:
        return ended.code
    except KeyboardInterrupt:
        return 130


def _shown(folder: Path) -> int:
    from underfed.demo.compare import advised_workers, comparison
    from underfed.demo.session import cpus, watch
    from underfed.errors import MeasurementError
    from underfed.report.page import say
    from underfed.report.text import clean

    say("1. A training script that nobody tuned: underfed run -- python train.py")
    before = watch(folder, "before", [])
    advice = advised_workers(before.diagnosis)
    if advice is None:
        raise MeasurementError(
            "demo: the verdict names no number of workers, so there is nothing to try; run it when the machine is idle"
        )
    workers, finding = advice
    say(f"\n2. The same with the fix of {finding.rule}: python train.py --workers {workers}")
    if workers > cpus():
        say("   PyTorch warns of more workers than CPUs; these mostly wait for a store.")
    after = watch(folder, "after", ["--workers", str(workers)])
    say("\n3. What it gained, by the script's own clock, one run each")
    for line in comparison(before.timing, after.timing, finding):
        say(f"   {line}")
    say(f"   The script and both recordings: {clean(str(folder))}")
    return 0
