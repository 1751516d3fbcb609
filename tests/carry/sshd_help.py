"""A real sshd on a loopback port, with keys made for the test, and a link to it that can drop or fall silent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Box:
    """The far side: an sshd, and a folder of wrappers put first in PATH so that `ssh` knows the host `box`."""

    def __init__(self, folder: Path, far_path: str | None = None) -> None:
        if SSHD is None or not shutil.which("ssh"):
            pytest.skip("openssh-server and openssh-client are not installed")
        self.folder = folder
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        for name in ("host", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "user.pub", folder / "authorized")
        self.port = free_port()
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host",
            f"AuthorizedKeysFile {folder}/authorized",
            f"PidFile {folder}/sshd.pid",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "MaxStartups 100",
            "LogLevel ERROR",
            # The start-up files of whoever runs the tests are not part of them.
            f"SetEnv HOME={folder}/home PATH={far_path or os.environ['PATH']}",
        ]
        (folder / "home").mkdir()
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self.known = folder / "known"
        self.known.write_text(f"[127.0.0.1]:{self.port} {(folder / 'host.pub').read_text()}")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.configure(self.port)
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, port: int, key: str = "user", command: str = "") -> None:
        (self.folder / "config").write_text(
            f"Host box\n HostName 127.0.0.1\n HostKeyAlias [127.0.0.1]:{self.port}\n Port {port}\n"
            f" IdentityFile {self.folder}/{key}\n IdentitiesOnly yes\n UserKnownHostsFile {self.known}\n"
            f" StrictHostKeyChecking yes\n{command}"
        )
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        wrapper.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def start(self) -> Box:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")], stderr=open(self.folder / "log", "ab")
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.recv(1)
                return self
            except OSError:
                time.sleep(0.05)
        pytest.skip(f"sshd does not start: {(self.folder / 'log').read_text()[-300:]}")

    def children(self) -> list[int]:
        """The processes below sshd, the deepest last."""
        assert self.process
        found, queue = [], [self.process.pid]
        while queue:
            parent = queue.pop(0)
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = stat.read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == parent:
                    found.append(int(stat.parent.name))
                    queue.append(int(stat.parent.name))
        return found

    def kill(self) -> None:
        """sshd and every session die at once."""
        assert self.process
        for pid in [*self.children(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self.process = None

    def close(self) -> None:
        if self.process:
            self.kill()


class Link:
    """A TCP relay to a port: it can cut, fall silent, or cut by itself after so many bytes."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.silent = threading.Event()
        self.limits: list[int] = []
        self.connections = self.passed = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            limit = self.limits.pop(0) if self.limits else None
            threading.Thread(target=self._pump, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, limit), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                while self.silent.is_set():
                    time.sleep(0.05)
                target.sendall(data)
                passed += len(data)
                self.passed += len(data)
                if limit is not None and passed > limit:
                    break
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.server.close()
        for end in self._open:
            end.close()
