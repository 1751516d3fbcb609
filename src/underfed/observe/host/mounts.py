"""Mounts: what a path or an open file is stored on, and whether that is this machine or a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.files import base, field, integer, text

_LOCAL_TYPES = (
    "ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs jfs reiserfs nilfs2 tmpfs ramfs devtmpfs hugetlbfs "
    "overlay aufs squashfs erofs iso9660 vfat exfat ntfs ntfs3 fuseblk rootfs fuse.lxcfs "
    "fuse.fuse-overlayfs fuse.squashfuse fuse.squashfuse_ll"
)
_NETWORK_TYPES = (
    "nfs nfs3 nfs4 cifs smb3 smbfs ceph fuse.ceph fuse.ceph-fuse glusterfs fuse.glusterfs lustre gpfs "
    "beegfs fhgfs panfs pvfs2 orangefs afs coda wekafs quobyte moosefs fuse.mfs fuse.sshfs fuse.s3fs "
    "fuse.gcsfuse fuse.goofys fuse.geesefs fuse.rclone fuse.juicefs fuse.JuiceFS fuse.mount-s3 "
    "fuse.mountpoint-s3 fuse.blobfuse fuse.blobfuse2 fuse.curlftpfs fuse.davfs fuse.seaweedfs "
    "fuse.hf-mount fuse.alluxio-fuse fuse.ossfs fuse.cosfs fuse.obsfs davfs ncpfs 9p virtiofs prl_fs vboxsf"
)
_LOCAL, _NETWORK = frozenset(_LOCAL_TYPES.split()), frozenset(_NETWORK_TYPES.split())


class Mount(NamedTuple):
    """One mount. `network` is None where the type does not say (a FUSE file system that is not known here).

    `device` is `major:minor`, `root` the folder of the file system that is mounted, `options` those of the file system.
    """

    id: int
    point: str
    fs: str
    source: str
    device: str
    root: str
    options: str
    network: bool | None
    read_only: bool


class OpenFile(NamedTuple):
    """A regular file that a process has open, and its mount."""

    path: str
    mount: Mount | None


def is_network(fs: str, source: str) -> bool | None:
    """Return whether a file system of this type is reached over a network or from a host; None where not known."""
    if fs in _NETWORK or source.startswith("//"):
        return True
    if fs in _LOCAL:
        return False
    host, colon, rest = source.partition(":")
    return True if colon and host and rest.startswith("/") and "/" not in host else None


def _plain(word: str) -> str:
    """Undo the octal escapes that mountinfo uses for blanks and backslashes."""
    if "\\" not in word:
        return word
    for escaped, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(escaped, char)
    return word


def parse(content: str | None) -> list[Mount]:
    """Return the mounts of a mountinfo file in its order; lines that are not understood are left out."""
    found = []
    for line in (content or "").splitlines():
        left, dash, right = line.partition(" - ")
        words, kind = left.split(" "), right.split(" ")
        number = integer(words[0])
        if not dash or len(words) < 6 or len(kind) < 2 or number is None:
            continue
        fs, source, options = kind[0], _plain(kind[1]), kind[2] if len(kind) > 2 else ""
        read_only = "ro" in words[5].split(",") or "ro" in options.split(",")
        network = is_network(fs, source)
        found.append(
            Mount(number, _plain(words[4]), fs, source, words[2], _plain(words[3]), options, network, read_only)
        )
    return found


def mounts(root: Path = Path("/"), pid: int | str = "self") -> list[Mount]:
    """Return the mounts that a process sees; empty where they cannot be read."""
    return parse(text(f"{base(root)}/proc/{pid}/mountinfo"))


def mount_of(path: Path | str, known: Sequence[Mount]) -> Mount | None:
    """Return the mount that holds an absolute path with no links in it; None where no mount does."""
    wanted = os.fspath(path).rstrip("/") + "/"
    best: Mount | None = None
    for mount in known:
        # of two mounts on one point the later one hides the earlier one
        if wanted.startswith(mount.point.rstrip("/") + "/") and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def open_files(pid: int, root: Path = Path("/")) -> list[OpenFile] | None:
    """Return the files that a process has open, but for devices, pipes, sockets and /proc; None without permission."""
    folder = f"{base(root)}/proc/{pid}"
    try:
        numbers = os.listdir(f"{folder}/fd")
    except OSError:
        return None
    by_id = {mount.id: mount for mount in mounts(root, pid)}
    found = []
    for number in numbers:
        try:
            path = os.readlink(f"{folder}/fd/{number}")
        except OSError:
            continue
        if not path.startswith("/") or path.startswith(
            ("/dev/pts/", "/dev/null", "/dev/nvidia", "/proc/", "/sys/", "/memfd:")
        ):
            continue
        # the mount's id holds across mount namespaces, where the path alone would mislead
        mount = by_id.get(integer(field(text(f"{folder}/fdinfo/{number}"), "mnt_id")) or -1)
        found.append(OpenFile(path, mount))
    return found
