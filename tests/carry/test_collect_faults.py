"""collect under kills, full disks, rot and writers: nothing lost, nothing falsely verified."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from blake3 import blake3
from carry_help import (
    UNDERFED,
    image_mounted,
    in_child,
    kill_after,
    make_run,
    mounted,
    tree,
    underfed,
    wait_for,
    with_quota,
)

from underfed.carry.collect import Options, collect
from underfed.carry.local import LocalStore

MANIFEST = "underfed-manifest.jsonl"
KILLS_ALWAYS, KILLS_SLOW = 8, 200


def claims_hold(dst: Path) -> int:
    """Every manifest in place must be true of the bytes beside it; returns how many there are."""
    manifests = list(dst.rglob(MANIFEST)) if dst.exists() else []
    for path in manifests:
        raw = path.read_bytes()
        *lines, last = [json.loads(line) for line in raw.splitlines()]
        assert last["digest"] == blake3(raw[: raw.rindex(b"\n", 0, -1) + 1]).hexdigest()
        for line in lines[1:]:
            assert blake3((path.parent / line["path"]).read_bytes()).hexdigest() == line["blake3"], (path, line)
    return len(manifests)


def kill_collect(tmp_path: Path, kills: int) -> int:
    """Kill, check all that is claimed, let one end, compare it with the source; return how many were killed."""
    chance = random.Random(20)
    src, dst, clean = tmp_path / "src", tmp_path / "dst", tmp_path / "clean"
    killed = version = 0
    length = 0.5
    while killed < kills:
        when = 1_700_000_000.0 + version * 1000
        for number in range(3):
            run = make_run(src / f"run{number}", version * 10 + number, 2_000_000, when)
            for small in range(30):
                (run / "protocol" / f"{small}.yaml").write_text(f"{version} {small}")
                os.utime(run / "protocol" / f"{small}.yaml", (when, when))
        (src / "run0" / "protocol" / f"only-in-{version}.yaml").write_text("x")
        for old in (src / "run0" / "protocol").glob("only-in-*"):
            if old.name != f"only-in-{version}.yaml":
                old.unlink()
        source_before = tree(src)
        for _ in range(chance.randint(3, 8)):
            ended = kill_after(in_child(["collect", str(src), str(dst)]), chance.uniform(0.02, length))
            assert ended in {None, 0}
            killed += ended is None
            claims_hold(dst)
        began = time.monotonic()
        assert wait_for(in_child(["collect", str(src), str(dst)])) == 0
        length = max(0.3, time.monotonic() - began)
        assert claims_hold(dst) == 3
        assert tree(src) == source_before
        shutil.rmtree(clean, ignore_errors=True)
        assert wait_for(in_child(["collect", str(src), str(clean)])) == 0
        assert tree(dst, (".replaced",)) == tree(clean)
        if version:
            kept = dst / ".replaced" / "run0" / "protocol" / f"only-in-{version - 1}.yaml"
            assert kept.read_text() == "x"
        version += 1
    return killed


def test_killed_at_random_points(tmp_path: Path) -> None:
    assert kill_collect(tmp_path, KILLS_ALWAYS) >= KILLS_ALWAYS


@pytest.mark.slow
def test_killed_at_many_random_points(tmp_path: Path) -> None:
    assert kill_collect(tmp_path, KILLS_SLOW) >= KILLS_SLOW


def many_files(src: Path) -> None:
    """Enough for several processes to share the runs."""
    for number in range(4):
        run = make_run(src / f"run{number}", number, 3_000_000)
        for small in range(100):
            (run / "protocol" / f"{small}.yaml").write_text(f"{number} {small}")


def processes_below(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def open_in(pid: int) -> set[str]:
    """What a process has open, as far as it can be seen while it comes and goes."""
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
    except OSError:
        pass
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: one process carries all")
def test_a_process_of_several_that_dies_costs_its_run_alone(tmp_path: Path) -> None:
    many_files(tmp_path / "src")
    (tmp_path / "dst/run1").mkdir(parents=True)
    held = os.open(tmp_path / "dst/run1", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # its carrier waits, and is found by that
    sweep = subprocess.Popen([*UNDERFED, "collect", tmp_path / "src", tmp_path / "dst"], stdout=subprocess.PIPE)
    victim = None
    while victim is None and sweep.poll() is None:
        for pid in processes_below(sweep.pid):
            if str(tmp_path / "dst/run1") in open_in(pid):
                victim = pid
    assert victim is not None and sweep.stdout is not None
    os.kill(victim, signal.SIGKILL)
    said = sweep.stdout.read().decode()
    os.close(held)
    assert sweep.wait() == 1 and "the process that carried it was ended" in said and said.count("verified  run") == 3
    assert claims_hold(tmp_path / "dst") == 3
    assert underfed("collect", tmp_path / "src", tmp_path / "dst").returncode == 0
    assert claims_hold(tmp_path / "dst") == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_first(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches all of them and is one line; SIGKILL reaches the first alone."""
    many_files(tmp_path / "src")
    words = [*UNDERFED, "collect", tmp_path / "src", tmp_path / "dst"]
    sweep = subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    while sweep.poll() is None and not list(tmp_path.glob("dst/run*")):
        time.sleep(0.001)
    helpers = processes_below(sweep.pid)
    os.killpg(sweep.pid, number) if number == signal.SIGINT else sweep.kill()
    said = sweep.communicate()[1]
    if number == signal.SIGINT:
        assert sweep.returncode == 1 and "interrupted; run the same command again" in said, said
    assert said.count("\n") == (number == signal.SIGINT), said
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in helpers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert underfed("collect", tmp_path / "src", tmp_path / "dst").returncode == 0
    assert claims_hold(tmp_path / "dst") == 4 and not list(tmp_path.glob("dst/.underfed*"))


def test_no_room_for_the_bytes(tmp_path: Path) -> None:
    make_run(tmp_path / "src/a", size=3_000_000)
    with mounted(tmp_path / "dst", "size=2m") as dst:
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 2 and "3.0 MB are needed" in done.stderr and len(done.stderr.splitlines()) == 1
        assert not any(dst.iterdir())


def test_no_room_for_the_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "src/a", size=100)
    for number in range(50):
        (run / "protocol" / str(number)).touch()
    with mounted(tmp_path / "dst", "size=20m", "nr_inodes=40") as dst:
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 2 and "inodes are needed" in done.stderr and "df -i" in done.stderr
        assert not any(dst.iterdir())


def wait_until_it_copies(dst: Path, stop: threading.Event) -> None:
    """Return when the first checkpoint lies in a folder that comes and goes while we look."""
    while not stop.is_set():
        try:
            if any("best.pth" in files for _, _, files in os.walk(dst)):
                return
        except OSError:
            continue
        time.sleep(0.001)


def test_the_disk_fills_up_on_the_way(tmp_path: Path) -> None:
    """Another writer takes the room after the check; what was verified stays, the rest is not claimed."""
    for number in range(6):
        make_run(tmp_path / f"src/{number}", number, 4_000_000)
    with mounted(tmp_path / "dst", "size=30m") as dst:
        stop = threading.Event()

        def fill() -> None:
            wait_until_it_copies(dst, stop)
            with open(dst / "filler", "wb", buffering=0) as file:
                try:
                    while not stop.is_set():
                        file.write(bytes(1 << 16))
                except OSError:
                    pass

        other = threading.Thread(target=fill)
        other.start()
        done = underfed("collect", tmp_path / "src", dst)
        stop.set()
        other.join()
        assert done.returncode in {1, 2} and "No space left" in done.stdout, done.stdout + done.stderr
        assert "FAILED" in done.stdout
        claimed = claims_hold(dst)
        assert claimed < 6
        (dst / "filler").unlink()
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 0 and claims_hold(dst) == 6


def test_inodes_run_out_on_the_way(tmp_path: Path) -> None:
    for number in range(6):
        make_run(tmp_path / f"src/{number}", number, 4_000_000)
    with mounted(tmp_path / "dst", "size=60m", "nr_inodes=80") as dst:
        (dst / "taken").mkdir()
        stop = threading.Event()

        def fill() -> None:
            wait_until_it_copies(dst, stop)
            try:
                for number in range(1000):
                    (dst / "taken" / str(number)).touch()
            except OSError:
                pass

        other = threading.Thread(target=fill)
        other.start()
        done = underfed("collect", tmp_path / "src", dst)
        stop.set()
        other.join()
        assert done.returncode in {1, 2} and "df -i" in done.stdout, done.stdout + done.stderr
        assert claims_hold(dst) < 6
        shutil.rmtree(dst / "taken")
        assert underfed("collect", tmp_path / "src", dst).returncode == 0
        assert claims_hold(dst) == 6


@pytest.mark.parametrize("free", [1, 2, 3, 5, 8])
def test_each_place_where_inodes_can_run_out_is_one_line(tmp_path: Path, free: int) -> None:
    """So many are left when the sweep has begun, whatever it needs the next one for."""
    for number in range(2):
        make_run(tmp_path / f"src/{number}", number, 4_000_000)
    with mounted(tmp_path / "dst", "size=60m", "nr_inodes=60") as dst:
        (dst / "taken").mkdir()
        stop = threading.Event()

        def fill() -> None:
            while not stop.is_set() and not list(dst.glob(".underfed-probe-*")):
                pass
            while not stop.is_set() and not (dst / "0").exists():
                pass
            number = 0
            while os.statvfs(dst).f_ffree > free:
                (dst / "taken" / str(number)).touch()
                number += 1

        other = threading.Thread(target=fill)
        other.start()
        done = underfed("collect", tmp_path / "src", dst)
        stop.set()
        other.join()
        claimed = claims_hold(dst)
        assert (claimed == 2) if done.returncode == 0 else done.returncode in {1, 2}
        shutil.rmtree(dst / "taken")
        assert underfed("collect", tmp_path / "src", dst).returncode == 0
        assert claims_hold(dst) == 2


def test_a_read_only_destination(tmp_path: Path) -> None:
    make_run(tmp_path / "src/a")
    with mounted(tmp_path / "dst", "ro") as dst:
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 2 and "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_quota_that_no_count_shows_is_seen_before_anything_is_copied(tmp_path: Path) -> None:
    """df shows 115 MB free; 2 MB may be written, which only the trial shows."""
    make_run(tmp_path / "src/a", size=3_000_000)
    with with_quota(tmp_path / "dst", tmp_path / "image") as dst:
        assert shutil.disk_usage(dst).free > 100_000_000
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 2 and "ran out of quota" in done.stderr, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1 and not any(dst.iterdir())


def test_a_quota_that_another_writer_uses_up(tmp_path: Path) -> None:
    for number in range(6):
        make_run(tmp_path / f"src/{number}", number, 200_000)
    with with_quota(tmp_path / "dst", tmp_path / "image") as dst:
        stop = threading.Event()

        def fill() -> None:
            wait_until_it_copies(dst, stop)
            with open(dst / "filler", "wb", buffering=0) as file:
                try:
                    while not stop.is_set():
                        file.write(os.urandom(1 << 14))
                except OSError:
                    stop.wait(60)

        other = threading.Thread(target=fill)
        other.start()
        done = underfed("collect", tmp_path / "src", dst)
        stop.set()
        other.join()
        claimed = claims_hold(dst)
        assert (claimed == 6) if done.returncode == 0 else "quota" in done.stdout, done.stdout + done.stderr
        (dst / "filler").unlink()
        os.sync()
        assert underfed("collect", tmp_path / "src", dst).returncode == 0
        assert claims_hold(dst) == 6


def test_a_quota_is_seen_before_anything_is_copied(tmp_path: Path) -> None:
    """df shows 50 MB free; the user may write 1 MB."""
    make_run(tmp_path / "src/a", size=3_000_000)
    setquota = shutil.which("setquota", path=os.environ["PATH"] + ":/usr/sbin")
    if setquota is None:
        pytest.skip("setquota is not installed")
    make = ["mkfs.ext4", "-q", "-O", "quota"]
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.owner() == "root" and folder.stat().st_mode & 0o005 != 0o005 and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    with image_mounted(tmp_path / "dst", tmp_path / "image", 64, make, "usrquota") as dst:
        quota = subprocess.run(
            [setquota, "-u", "65533", "1000", "1000", "0", "0", str(dst)], capture_output=True, check=False
        )
        if quota.returncode:
            pytest.skip(f"the kernel keeps no quota: {quota.stderr.decode().strip()}")
        os.chown(dst, 65533, 65533)
        done = subprocess.run(
            [*UNDERFED, "collect", str(tmp_path / "src"), str(dst)],
            capture_output=True,
            text=True,
            check=False,
            user=65533,
            group=65533,
        )
        if "Permission denied" in done.stderr and "Traceback" in done.stderr:
            pytest.skip("another user cannot start this Python")
        assert done.returncode == 2 and "quota" in done.stderr, done.stdout + done.stderr
        assert {path.name for path in dst.iterdir()} <= {"lost+found"}


def test_a_file_that_is_open_for_writing_is_not_half_taken(tmp_path: Path) -> None:
    make_run(tmp_path / "src/busy")
    make_run(tmp_path / "src/idle", 1)
    with open(tmp_path / "src/busy/train.log", "ab"):
        done = underfed("collect", tmp_path / "src", tmp_path / "dst")
    assert done.returncode == 1 and "GROWING   busy" in done.stdout and "open for writing by process" in done.stdout
    assert "verified  idle" in done.stdout
    assert not (tmp_path / "dst/busy").exists()
    assert underfed("collect", tmp_path / "src", tmp_path / "dst").returncode == 0


def test_a_file_that_is_closed_soon_is_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path / "src/busy")
    writer = "import sys,time\nf=open(sys.argv[1],'ab')\nprint(flush=True)\n" + (
        "for _ in range(12):\n f.write(b'more');f.flush();time.sleep(.1)\n"
    )
    log = tmp_path / "src/busy/train.log"
    other = subprocess.Popen([sys.executable, "-c", writer, str(log)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    done = underfed("collect", tmp_path / "src", tmp_path / "dst")
    assert other.wait() == 0
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "dst/busy/train.log").read_bytes() == log.read_bytes()


def test_a_source_that_changes_during_the_copy_is_not_verified(tmp_path: Path) -> None:
    """The writer opens, writes and closes: only a look before and after can tell."""
    make_run(tmp_path / "src/a", size=50_000_000)
    victim, stop = tmp_path / "src/a/best.pth", threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            with open(victim, "r+b") as file:
                file.write(os.urandom(8))
            time.sleep(0.01)

    other = threading.Thread(target=meddle)
    other.start()
    try:
        sweep = collect(tmp_path / "src", LocalStore(tmp_path / "dst"), Options(patience=1.0), lambda _: None)
    finally:
        stop.set()
        other.join()
    assert sweep.exit_code == 1 and [run.status for run in sweep.runs] == ["growing"], sweep
    assert claims_hold(tmp_path / "dst") == 0


def read_from_disks() -> int:
    """Bytes that this process has had disks read."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


@pytest.mark.parametrize("size", [30_000, 12_000_000])
def test_the_copy_is_read_back_from_the_disk_and_not_from_memory(tmp_path: Path, size: int) -> None:
    """All that was written is in memory still; the kernel's own count says where the second look went."""
    for number in range(4):
        make_run(tmp_path / f"src/{number}", number, size)
    taken = [path for path in (tmp_path / "src").rglob("*") if path.is_file() and path.name != "last.pth"]
    total = sum(path.stat().st_size for path in taken)
    with image_mounted(tmp_path / "dst", tmp_path / "image", 256, ["mkfs.ext4", "-q"]) as dst:
        before = read_from_disks()
        sweep = collect(tmp_path / "src", LocalStore(dst), Options(), lambda _: None)
        assert sweep.exit_code == 0 and read_from_disks() - before >= total
        assert claims_hold(dst) == 4


@pytest.mark.parametrize("size", [1_000_000, 6_000_000])
def test_bytes_that_rot_behind_the_file_system(tmp_path: Path, size: int) -> None:
    """The flip is made in the image, below the page cache: the copy must be read from the disk to see it."""
    make_run(tmp_path / "src/a", 3, size)
    needle = (tmp_path / "src/a/best.pth").read_bytes()[500_000:500_064]
    image = tmp_path / "image"
    with image_mounted(tmp_path / "dst", image, 64, ["mkfs.ext4", "-q"]) as dst:
        assert underfed("collect", tmp_path / "src", dst).returncode == 0
        at = image.read_bytes().find(needle)
        assert at > 0
        with open(image, "r+b") as file:
            file.seek(at)
            file.write(bytes([needle[0] ^ 1]))
            file.flush()
            os.fsync(file.fileno())
        loop = subprocess.run(
            ["losetup", "-j", str(image), "-n", "-O", "NAME"], capture_output=True, text=True, check=False
        )
        subprocess.run(["blockdev", "--flushbufs", loop.stdout.split()[0]], check=False)
        done = underfed("collect", tmp_path / "src", dst, "--check")
        assert done.returncode == 1 and "best.pth: other bytes" in done.stdout
        done = underfed("collect", tmp_path / "src", dst)
        assert done.returncode == 0 and "repaired" in done.stdout


def test_two_sweeps_into_one_run_do_not_mix(tmp_path: Path) -> None:
    make_run(tmp_path / "src/a")
    (tmp_path / "dst/a").mkdir(parents=True)
    lock = os.open(tmp_path / "dst/a", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = underfed("collect", tmp_path / "src", tmp_path / "dst")
    os.close(lock)
    assert done.returncode == 1 and "another underfed is writing there" in done.stdout


def test_what_only_has_the_name_of_a_trial_is_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "src/a")
    (tmp_path / "thesis").mkdir()
    for name in ("1", "thesis.tex"):
        (tmp_path / "thesis" / name).write_text("years")
    shutil.copytree(tmp_path / "thesis", tmp_path / "dst/.underfed-probe-folder")
    (tmp_path / "dst/.underfed-probe-link").symlink_to(tmp_path / "thesis")
    assert underfed("collect", tmp_path / "src", tmp_path / "dst").returncode == 0
    assert {path.name for path in (tmp_path / "thesis").iterdir()} == {"1", "thesis.tex"}
    assert (tmp_path / "dst/.underfed-probe-folder/thesis.tex").exists()


def test_a_run_on_a_bind_mount_of_the_same_file_system(tmp_path: Path) -> None:
    """Its device is the store's, and yet nothing can be moved into it: no file of the group may be lost to that."""
    run = make_run(tmp_path / "src/a")
    for number in range(20):
        (run / "protocol" / f"{number}.yaml").write_text(str(number))
    with mounted(tmp_path / "dst", "size=20m") as dst:
        (dst / "elsewhere").mkdir()
        (dst / "a").mkdir()
        done = subprocess.run(["mount", "--bind", str(dst / "elsewhere"), str(dst / "a")], check=False)
        if done.returncode:
            pytest.skip("bind mounts are not allowed")
        try:
            assert (dst / "a").stat().st_dev == dst.stat().st_dev
            done = underfed("collect", tmp_path / "src", dst)
            assert done.returncode == 0, done.stdout + done.stderr
            assert claims_hold(dst) == 2  # by both names of the folder
        finally:
            subprocess.run(["umount", str(dst / "a")], check=True)


def test_a_trial_that_another_host_cleared_away_is_no_loss(tmp_path: Path) -> None:
    """Where locks are known to one host only, another takes our empty files for left over ones."""
    for number in range(3):
        make_run(tmp_path / f"src/{number}", number)

    class Cleared(LocalStore):
        def check_room(self, sizes, folders, counted_bytes) -> None:
            super().check_room(sizes, folders, counted_bytes)
            for left in self.folder.glob(".underfed-probe-*"):
                shutil.rmtree(left)

    sweep = collect(tmp_path / "src", Cleared(tmp_path / "dst"), Options(), lambda _: None)
    assert sweep.exit_code == 0 and claims_hold(tmp_path / "dst") == 3
