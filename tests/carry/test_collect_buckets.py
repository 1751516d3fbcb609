"""collect into s3:// and gs://: servers on the loopback that are not ours, by the command line."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from blake3 import blake3
from bucket_help import gcs, s3
from carry_help import files_of, make_run, underfed

MANIFEST = "underfed-manifest.jsonl"


@pytest.fixture
def src(tmp_path: Path) -> Path:
    return make_run(tmp_path / "src" / "group" / "a").parent.parent


def claims(manifest: bytes, read) -> set[str]:
    """The paths of a manifest whose lines are true of the objects beside it."""
    lines = [json.loads(line) for line in manifest.splitlines()[1:-1]]
    assert all(blake3(read(line["path"])).hexdigest() == line["blake3"] for line in lines)
    return {line["path"] for line in lines}


def test_s3(src: Path, tmp_path: Path) -> None:
    """Small objects, one in parts (whose tag is no hash), a rerun, a byte that differs, and a newer run."""
    make_run(src / "large", 1, 12 << 20)
    with s3(tmp_path) as (env, client):

        def read(key: str) -> bytes:
            return client.get_object(Bucket="results", Key=key)["Body"].read()

        env |= {"FSSPEC_S3_DEFAULT_BLOCK_SIZE": str(5 << 20)}
        words = ("collect", src, "s3://results/sweep", "--all", "--json")
        done = underfed(*words, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        for name in ("group/a", "large"):
            found = claims(read(f"sweep/{name}/{MANIFEST}"), lambda path, name=name: read(f"sweep/{name}/{path}"))
            assert found == set(files_of(src / name))
        again = json.loads(underfed(*words, env=env).stdout)
        assert again["exit_code"] == 0 and {run["copied_files"] for run in again["runs"]} == {0}
        data = bytearray(read("sweep/group/a/best.pth"))
        data[7] ^= 1
        client.put_object(Bucket="results", Key="sweep/group/a/best.pth", Body=bytes(data))
        assert underfed(*words, "--check", env=env).returncode == 1
        assert underfed(*words, env=env).returncode == 0
        assert read("sweep/group/a/best.pth") == (src / "group/a/best.pth").read_bytes()
        make_run(src / "group/a", 4, when=1_700_000_500.0)
        (src / "group/a/last.pth").unlink()
        done = underfed(*words[:-1], env=env)
        assert done.returncode == 0 and "replaced an older result" in done.stdout
        assert read("sweep/group/a/best.pth") == (src / "group/a/best.pth").read_bytes()
        assert read("sweep/group/.replaced/a/last.pth")
        keys = {item["Key"] for item in client.list_objects_v2(Bucket="results")["Contents"]}
        assert not any("probe" in key or "withdrawn" in key or "incoming" in key for key in keys), keys


def test_a_bucket_that_is_not_there_and_a_server_that_is_not(src: Path, tmp_path: Path) -> None:
    with s3(tmp_path) as (env, _):
        done = underfed("collect", src, "s3://nobody/x", env=env)
        assert done.returncode == 2 and "nothing was copied" in done.stderr and done.stderr.count("\n") == 1
    done = underfed("collect", src, "s3://results/x", env={**env, "AWS_MAX_ATTEMPTS": "1"})
    assert done.returncode == 2 and "nothing was copied" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_gs(src: Path, tmp_path: Path) -> None:
    with gcs(tmp_path) as (env, url):

        def read(key: str) -> bytes:
            name = urllib.parse.quote(key, safe="")
            with urllib.request.urlopen(f"{url}/download/storage/v1/b/results/o/{name}?alt=media") as answer:
                return answer.read()

        words = ("collect", src, "gs://results/sweep", "--all", "--json")
        done = underfed(*words, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        found = claims(read(f"sweep/group/a/{MANIFEST}"), lambda path: read(f"sweep/group/a/{path}"))
        assert found == set(files_of(src / "group/a"))
        again = json.loads(underfed(*words, env=env).stdout)
        assert again["exit_code"] == 0 and {run["copied_files"] for run in again["runs"]} == {0}
        assert underfed(*words, "--check", env=env).returncode == 0
