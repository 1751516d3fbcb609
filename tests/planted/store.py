"""A store on the loopback: answers `index, size` (two big-endian uint32) with `size` bytes, slowly.

Runs as its own process outside the job, as a bucket or a file server does; it sleeps and uses next to no CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import threading
import time


def take(conn: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = conn.recv(size - len(got))
        if not part:
            raise ConnectionError
        got += part
    return got


class Store:
    def __init__(self, latency: float, bytes_per_s: float, cold_every: int, cold: float) -> None:
        self.latency, self.bytes_per_s, self.cold_every, self.cold = latency, bytes_per_s, cold_every, cold
        self.lock = threading.Lock()
        self.free_at = 0.0

    def wait(self, index: int, size: int) -> None:
        """Sleep as long as this answer takes; bandwidth is shared by all clients."""
        until = time.monotonic() + self.latency
        if self.cold_every and index % self.cold_every == 0:
            until += self.cold
        if self.bytes_per_s:
            with self.lock:
                self.free_at = max(self.free_at, time.monotonic()) + size / self.bytes_per_s
                until = max(until, self.free_at)
        time.sleep(max(0.0, until - time.monotonic()))

    def serve(self, conn: socket.socket) -> None:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), conn:
            while True:
                index, size = struct.unpack("!II", take(conn, 8))
                self.wait(index, size)
                block = bytes((index * 31 + k * 7) & 255 for k in range(256))
                conn.sendall((block * (size // 256 + 1))[:size])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--mb-s", type=float, default=0.0, help="bandwidth of all clients together; 0 is unlimited")
    parser.add_argument("--cold-every", type=int, default=0)
    parser.add_argument("--cold-ms", type=float, default=0.0)
    args = parser.parse_args()
    store = Store(args.latency_ms / 1e3, args.mb_s * 1e6, args.cold_every, args.cold_ms / 1e3)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            conn, _ = server.accept()
            threading.Thread(target=store.serve, args=(conn,), daemon=True).start()


if __name__ == "__main__":
    main()
