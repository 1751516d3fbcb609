"""Object stores of other people's making on a loopback port: moto's S3 and an emulator of Google's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sshd_help import free_port

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def server(words: list[str], port: int, log: Path):
    import urllib.error
    import urllib.request

    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, *words], stdout=out, stderr=out, env={**os.environ, **KEYS})
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
            except urllib.error.HTTPError:
                break
            except OSError:
                if process.poll() is not None:
                    pytest.skip(f"the server does not start: {log.read_text()[-300:]}")
                time.sleep(0.05)
            else:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def s3(folder: Path):
    """An S3 with the bucket `results`: environment for underfed, and a client that is not ours."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    import boto3

    port = free_port()
    with server(["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, folder / "s3.log") as url:
        client = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        client.create_bucket(Bucket="results")
        yield {**KEYS, "AWS_ENDPOINT_URL": url}, client


@contextlib.contextmanager
def gcs(folder: Path):
    """Google's storage with the bucket `results`: environment for underfed, and the address."""
    pytest.importorskip("gcp_storage_emulator")
    pytest.importorskip("gcsfs")
    port = free_port()
    words = ["start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=results"]
    with server(["-m", "gcp_storage_emulator", *words], port, folder / "gcs.log") as url:
        yield (
            {
                "STORAGE_EMULATOR_HOST": url,
                "FSSPEC_GS_TOKEN": "anon",
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
                "GOOGLE_CLOUD_PROJECT": "test",
            },
            url,
        )
