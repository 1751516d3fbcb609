"""Appending JSON lines to this process's own file; the first failure ends the recording, never the training."""

import fcntl
import json
import os
import time

#: Descriptors are moved up here, out of the way of programs that close or reuse the low ones.
_LOWEST_FD = 64


class Writer:
    """One file a process, made when there is something to say. Lines are whole: one write call each."""

    def __init__(self, folder):
        self.folder = folder
        self.fd = None
        self.inode = None
        self.broken = False
        self.say = True

    def write(self, kind, **fields):
        """Append one line; after a failure does nothing."""
        if self.broken:
            return
        try:
            if self.fd is None:
                self._open()
            seen = os.fstat(self.fd)
            if (seen.st_dev, seen.st_ino) != self.inode:
                self.fd = (
                    None  # the program closed our descriptor and now uses its number: not ours to write to or close
                )
                raise OSError("descriptor taken over")
            fields["k"] = kind
            line = (json.dumps(fields, separators=(",", ":"), default=str) + "\n").encode("utf-8", "replace")
            if os.write(self.fd, line) != len(line):
                raise OSError("short write")
        except Exception as error:
            self._give_up(error)

    def _open(self):
        name = f"p{os.getpid()}-{time.time_ns():x}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        low = os.open(os.path.join(self.folder, name), flags, 0o600)
        try:
            self.fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FD)
        finally:
            os.close(low)
        seen = os.fstat(self.fd)
        self.inode = (seen.st_dev, seen.st_ino)

    def _give_up(self, error):
        self.broken = True
        if not self.say:
            return
        try:
            reason = getattr(error, "strerror", None) or type(error).__name__
            os.write(2, f"underfed: recording stopped ({reason}); the command goes on\n".encode())
        except Exception:
            pass

    def close(self):
        """Write no more."""
        if self.fd is not None and not self.broken:
            try:
                seen = os.fstat(self.fd)
                if (seen.st_dev, seen.st_ino) == self.inode:
                    os.close(self.fd)
            except Exception:
                pass
        self.fd, self.broken, self.say = None, True, False

    def forget(self):
        """In a forked child: leave the parent's file alone and start an own one when needed."""
        if self.fd is not None and not self.broken:
            try:
                os.close(self.fd)
            except Exception:
                pass
        self.fd = None
        self.say = False
