"""Run all of underfed on labelled scripts on a GPU: `python bench/gpu/session.py PART... --zoo DIR --out DIR`.

Parts run one after the other, each until the seconds given to it (`try:400`) or the session's `--limit` are used up:

- `watch`: `underfed run` on each scenario of the zoo, its verdict, gains, time to the first verdict, step time;
- `own`: the same on the scripts of faults.py, each also run bare, with and without its fault, for the true gain;
- `loss`: whether the losses of a watched run are those of a bare one, bit for bit, in deterministic mode;
- `overhead`: what watching costs a step, in turns of one process, with nothing switched on as the control;
- `attach`: one look at each of some running scripts;
- `try`, `tune`, `box`: those commands;
- `traceml`: TraceML on the zoo, by its own launcher and with its calls in the script.

Everything goes to OUT as it comes, one JSON line a result in results.jsonl, cards in cards.txt, recordings in tar
files, so that a session that is ended early keeps what it has. `--only` names scenarios.

How TraceML's answer is judged (its primary diagnosis): INPUT_BOUND and H2D_BOUND say data, COMPUTE_BOUND says compute,
RESIDUAL_HEAVY says host; anything else names no class.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FAULTS = HERE / "faults.py"
#: Steps and warm-up steps for `watch`: the zoo's own runs are too short for a verdict in some scenarios.
LONGER = {"tiny_ops": 300, "workers_zero": 45, "workers_few": 30, "store_slow": 60, "transform_heavy": 150}
USUAL = 150
LEAST_STEPS = 45
#: What `try` is asked: words, scenario of the zoo.
TRIALS = (
    ("T9", "tf32_off"),
    ("T14", "attn_math"),
    ("T4=14", "workers_zero"),
    ("T15", "tiny_ops"),
    ("T11", "nchw"),
    ("T13", "fp32"),
    ("T17", "act_ckpt"),
    ("T12", "anomaly"),
    ("X11", "foreach_off"),
    ("X12", "empty_cache"),
    ("T6", "pageable"),
    ("cudnn_benchmark", "healthy_resnet"),
)
LOOKS = (
    "workers_zero",
    "pageable",
    "tiny_ops",
    "item_sync",
    "attn_eager",
    "ckpt_stall",
    "store_slow",
    "healthy_resnet",
)
#: Bytes of recordings in one tar file.
TAR_BYTES = 14 << 20


class Session:
    """Where results go, and how much time is left."""

    def __init__(self, out: Path, zoo: Path, limit: float) -> None:
        self.out, self.zoo = out, zoo
        self.ends = self.part_ends = time.monotonic() + limit
        self.work = Path(tempfile.mkdtemp(prefix="underfed-gpu-"))
        self.tars = 1

    def left(self) -> float:
        return min(self.ends, self.part_ends) - time.monotonic()

    def say(self, part: str, name: str, **found: Any) -> None:
        line = json.dumps({"part": part, "name": name, **found})
        with (self.out / "results.jsonl").open("a") as file:
            file.write(line + "\n")
        print(f"{self.left():6.0f} s left  {line[:600]}", flush=True)

    def card(self, title: str, text: str) -> None:
        with (self.out / "cards.txt").open("a") as file:
            file.write(f"\n######## {title}\n{text}\n")

    def keep(self, recording: Path, name: str) -> None:
        """Add a recording's files to the tar file of the moment."""
        size = sum(path.stat().st_size for path in recording.iterdir() if path.is_file())
        if size > TAR_BYTES:
            return
        place = self.out / f"recordings{self.tars}.tar"
        if place.exists() and place.stat().st_size + size > TAR_BYTES:
            self.tars += 1
            place = self.out / f"recordings{self.tars}.tar"
        with tarfile.open(place, "a") as tar:
            tar.add(recording, arcname=name)

    def zoo_command(self, name: str, steps: int = 0, warm: int = 10, variant: str = "before") -> list[str]:
        words = [sys.executable, str(self.zoo / "train.py"), name, variant]
        return [*words, "--steps", str(steps), "--warm", str(warm)] if steps else words


def own_command(name: str, variant: str, steps: int = 0) -> list[str]:
    return [sys.executable, str(FAULTS), name, variant, *(["--steps", str(steps)] if steps else [])]


def underfed(*words: str) -> list[str]:
    return [sys.executable, "-m", "underfed", *words]


def run(command: list[str], limit: float, cwd: Path) -> tuple[int | None, str, str]:
    """Return exit code (None where it was ended for its time), stdout and stderr; nothing is left behind."""
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True
    )
    try:
        out, err = child.communicate(timeout=max(limit, 1))
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGINT)
        try:
            out, err = child.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
        return None, out, err


def result_of(out: str) -> dict[str, Any]:
    """Return the JSON line that a script prints at its end."""
    for line in reversed(out.splitlines()):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "step_ms" in found:
                return found
    return {}


def short(path: Path) -> dict[str, Any]:
    """Return what is compared of a diagnosis."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"error": "no diagnosis"}
    findings = [
        {key: finding.get(key) for key in ("rule", "severity", "confidence", "gain", "summary", "where")}
        for finding in found.get("findings", [])[:4]
    ]
    return {"verdict": found.get("verdict"), "findings": findings}


def watched(session: Session, name: str, command: list[str], limit: float) -> dict[str, Any]:
    """Run a command under `underfed run`; return the verdict with its times, and keep the recording."""
    recording, verdict = session.work / f"{name}.run", session.work / f"{name}.json"
    begin = time.monotonic()
    child = subprocess.Popen(
        underfed("run", "--out", str(recording), "--json", str(verdict), "--", *command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=session.zoo,
        start_new_session=True,
    )
    killer = subprocess.Popen(
        ["sh", "-c", f"sleep {limit:.0f}; kill -INT -{child.pid}; sleep 20; kill -KILL -{child.pid}"],
        start_new_session=True,
    )
    first = None
    lines: list[str] = []
    assert child.stderr is not None and child.stdout is not None
    for line in child.stderr:
        lines.append(line)
        if first is None and re.match(r"underfed: .*-bound|underfed: cannot tell", line):
            first = time.monotonic() - begin
    out = child.stdout.read()
    code = child.wait()
    with contextlib.suppress(OSError):
        os.killpg(killer.pid, signal.SIGKILL)
    killer.wait()
    session.card(name, "".join(lines))
    with contextlib.suppress(OSError):
        session.keep(recording, name)
    found = {"code": code, "wall_s": round(time.monotonic() - begin, 1), "first_verdict_s": first}
    return {**found, "script": result_of(out), **short(verdict)}


# --------------------------------------------------------------------------------------------------- the parts


def part_watch(session: Session, names: list[str]) -> None:
    for name in names:
        if session.left() < 25:
            return
        steps = LONGER.get(name, USUAL)
        found = watched(session, name, session.zoo_command(name, steps), min(session.left(), 45))
        session.say("watch", name, **found)


def part_own(session: Session, names: list[str]) -> None:
    sys.path.insert(0, str(HERE))
    from faults import LABELS

    for name in [name for name in names if name in LABELS] or list(LABELS):
        if session.left() < 40:
            return
        true: dict[str, Any] = {}
        for variant in ("after", "before"):
            _, out, err = run(own_command(name, variant), min(session.left(), 60), session.work)
            true[variant] = result_of(out).get("step_ms")
            if true[variant] is None:
                session.card(f"{name} {variant}: bare", (out + err)[-3000:])
        steps = max(LABELS[name].steps, LEAST_STEPS) if true["before"] and true["before"] > 300 else USUAL
        found = watched(session, f"own_{name}", own_command(name, "before", steps), min(session.left(), 60))
        session.say("own", name, true_ms=true, **found)


def part_loss(session: Session, _: list[str]) -> None:
    """Losses of `loss_run.py`, twice bare and once watched."""
    command = [sys.executable, str(HERE / "loss_run.py")]
    seen = [run(command, 60, session.work)[1].strip() for _ in range(2)]
    _, out, _ = run(underfed("run", "--out", str(session.work / "loss.run"), "--", *command), 90, session.work)
    session.say(
        "loss", "deterministic", bare_equal=seen[0] == seen[1], watched_equal=out.strip() == seen[0], n=len(seen[0])
    )


def part_overhead(session: Session, _: list[str]) -> None:
    """Turns of one process: bare, watched, bare, over and over; the same with nothing switched on."""
    sys.path.insert(0, str(HERE))
    from turns import turns

    for found in turns(session.left):
        session.say("overhead", found.pop("loop"), **found)


def part_attach(session: Session, names: list[str]) -> None:
    for name in [name for name in LOOKS if name in names] or [name for name in names if name in LOOKS]:
        if session.left() < 40:
            return
        child = subprocess.Popen(
            session.zoo_command(name, 1_000_000),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=session.zoo,
            start_new_session=True,
        )
        try:
            time.sleep(16)
            verdict = session.work / f"attach-{name}.json"
            words = underfed("attach", str(child.pid), "--json", str(verdict))
            code, out, err = run(words, min(session.left(), 40), session.work)
            session.card(f"attach {name}", out + err)
            found = short(verdict)
            with contextlib.suppress(OSError, ValueError):
                found["device"] = json.loads(verdict.read_text()).get("device")
            session.say("attach", name, code=code, **found)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def part_try(session: Session, names: list[str]) -> None:
    for words, name in TRIALS:
        if name not in names:
            continue
        if session.left() < 50:
            return
        verdict, folder = session.work / f"try-{name}.json", session.work / f"try-{name}"
        options = ["--pairs", "2", "--steps", "30", "--seed", "0", "--limit", "60"]
        command = session.zoo_command(name, 1_000_000)
        begin = time.monotonic()
        code, out, err = run(
            underfed("try", words, *options, "--out", str(folder), "--json", str(verdict), "--", *command),
            min(session.left() - 5, 200),
            session.zoo,
        )
        found: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(verdict.read_text())
        with contextlib.suppress(OSError):
            (session.out / "trials.jsonl").open("a").write(json.dumps({"words": words, "name": name, **found}) + "\n")
        session.card(f"try {words} {name}", out + err)
        for notes in sorted(folder.glob("*deterministic*/trial-*.jsonl")):
            session.card(f"{notes.parent.name}", notes.read_text(errors="replace")[:1500])
        for output in sorted(folder.glob("*/output.txt")):
            text = output.read_text(errors="replace")
            if "Traceback" in text or "rror" in text:
                session.card(f"try {words} {name}: {output.parent.name}", text[-2500:])
        session.say(
            "try", f"{words} {name}", code=code, took_s=round(time.monotonic() - begin, 1), arms=found.get("arms")
        )


def part_tune(session: Session, _: list[str]) -> None:
    verdict = session.work / "tune.json"
    words = [
        "--budget",
        str(int(min(session.left() - 15, 120))),
        "--steps",
        "20",
        "--seed",
        "0",
        "--json",
        str(verdict),
    ]
    command = session.zoo_command("workers_few", 1_000_000)
    code, out, err = run(underfed("tune", *words, "--", *command), session.left(), session.zoo)
    session.card("tune workers_few", out + err)
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(verdict.read_text())
    session.say("tune", "workers_few", code=code, found=found)


def part_box(session: Session, _: list[str]) -> None:
    code, out, err = run(underfed("box"), 60, session.work)
    session.card("box", out + err)
    session.say("box", "box", code=code)


def part_traceml(session: Session, names: list[str]) -> None:
    logs = session.work / "traceml"
    script = session.zoo / "train.py"
    for name in names:
        if session.left() < 30:
            return
        steps = str(LONGER.get(name, 60))
        words = ["--logs-dir", str(logs), "--run-name", name, "--finalize-timeout-sec", "20", str(script)]
        tail = ["--args", name, "before", "--tool", "traceml", "--steps", steps, "--warm", "10"]
        launcher = [sys.executable, "-c", "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())"]
        code, out, err = run([*launcher, "run", *words, *tail], min(session.left(), 60), session.zoo)
        found: dict[str, Any] = {}
        for path in logs.glob(f"{name}*/**/final_summary.json"):
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(path.read_text())
        primary = found.get("primary_diagnosis") or {}
        if not primary:
            session.card(f"traceml {name}", (out + err)[-3000:])
        session.say("traceml", name, code=code, script=result_of(out), primary=primary)


PARTS: dict[str, Callable[[Session, list[str]], None]] = {
    name.removeprefix("part_"): part for name, part in list(globals().items()) if name.startswith("part_")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", help=f"of {', '.join(PARTS)}; PART:SECONDS bounds one")
    parser.add_argument("--zoo", type=Path, required=True, help="folder of train.py and scenarios.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=540, help="seconds for all parts")
    parser.add_argument("--only", nargs="*", help="scenarios; all")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    session = Session(args.out, args.zoo.resolve(), args.limit)
    sys.path.insert(0, str(session.zoo))
    from record import jpegs
    from scenarios import SCENARIOS
    from train import JPEGS

    if not Path(JPEGS).is_dir():
        jpegs(400)
    names = args.only or list(SCENARIOS)
    for word in args.parts:
        part, _, seconds = word.partition(":")
        session.part_ends = time.monotonic() + (float(seconds) if seconds else 1e9)
        begin = time.monotonic()
        try:
            PARTS[part](session, names)
        except Exception as error:
            session.say(part, "failed", error=repr(error))
        print(f"== {part}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
