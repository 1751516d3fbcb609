"""What runs on the far side: a POSIX shell script sent on ssh's standard input, and a Python one inside it.

Names travel as data only: the remote command line is always `sh -s`, and every name in the script is quoted for `sh`.
The answer is a line with a nonce (login shells print greetings), then records of six fields, each ended by a NUL:
kind, size, mtime in ns, mode, path, extra. Kinds: d folder, f file, l link (extra: target), o other, m manifest
(extra: its text), s listing done, h hash (extra: algorithm:hex), t still alive, x error (extra: reason), a tool that is
there (extra: its name), p all is hashed and a word is waited for, u all is as it was, e end.
"""

from __future__ import annotations

import shlex

#: Reads the tree with Python from 3.4 on; nothing but its standard library, faster hashes where they are installed.
PYTHON = r"""
import hashlib, json, os, stat, subprocess, sys, time
what, skip, trust = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
units = [os.fsencode(name) for name in sys.argv[4:]]
guide = what == "guide"
out = sys.stdout.buffer if hasattr(sys.stdout, "buffer") else sys.stdout
try:
    from blake3 import blake3
except Exception:
    blake3 = None
def runs(tool):
    for folder in os.environ.get("PATH", "").split(":"):
        if folder and os.access(os.path.join(folder, tool), os.X_OK):
            return True
    return False
b3sum = blake3 is None and runs("b3sum")
last, sent = [time.time()], [0.0]
held = None
def put(kind, path=b"", size="", mtime="", mode="", extra=b""):
    head = "\0".join((kind, str(size), str(mtime), str(mode), "")).encode()
    record = b"".join((head, path, b"\0", extra, b"\0"))
    held.append(record) if held is not None and kind != "t" else out.write(record)
def alive():
    if time.time() - last[0] > 2:
        last[0] = time.time()
        put("t")
        out.flush()
def mtime(s):
    return getattr(s, "st_mtime_ns", None) or int(s.st_mtime * 1000000000)
files, covered = [], {}
def look(path, depth):
    try:
        s = os.lstat(path)
    except OSError as e:
        return put("x", path, extra=str(e.strerror).encode())
    name = os.path.basename(path)
    if name == b".underfed-incoming" or name.startswith(b".underfed-probe"):
        return put("x", path, extra=b"an unfinished transfer of underfed is there")
    if stat.S_ISLNK(s.st_mode):
        return put("l", path, extra=os.readlink(path))
    if stat.S_ISDIR(s.st_mode):
        put("d", path, "", mtime(s), s.st_mode)
        try:
            names = sorted(os.listdir(path))
        except OSError as e:
            return put("x", path, extra=str(e.strerror).encode())
        if b"underfed-manifest.jsonl" in names:
            manifest(path)
        if depth:
            for n in names:
                stack.append(os.path.join(path, n))
    elif stat.S_ISREG(s.st_mode):
        put("f", path, s.st_size, mtime(s), s.st_mode, str(min(s.st_size, s.st_blocks * 512)).encode())
        files.append((path, s.st_size, mtime(s)))
    else:
        put("o", path)
    alive()
def manifest(folder):
    path = os.path.join(folder, b"underfed-manifest.jsonl")
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode) or os.path.getsize(path) > 268435456:
            return
        with open(path, "rb") as f:
            text = f.read()
        if b"\0" in text:
            return
        put("m", folder, extra=text)
        for line in text.decode("ascii").splitlines():
            d = json.loads(line)
            if "path" in d:
                p = os.path.join(folder, d["path"].encode("utf-8", "surrogateescape"))
                covered[p] = (d["size"], d["mtime_ns"])
    except Exception:
        pass
def digest(path, size):
    with open(path, "rb") as f:
        if b3sum and size > 4000000:
            p = subprocess.Popen(["b3sum", "--no-names"], stdin=f, stdout=subprocess.PIPE)
            while True:
                try:
                    text = p.communicate(timeout=2)[0]
                    break
                except subprocess.TimeoutExpired:
                    alive()
            if p.returncode == 0:
                return "blake3:" + text.decode().split()[0]
            f.seek(0)
        name = "sha256" if blake3 is None else "blake3"
        h = hashlib.sha256() if blake3 is None else blake3()
        while True:
            block = f.read(1048576)
            if not block:
                return name + ":" + h.hexdigest()
            h.update(block)
            alive()
stack = []
def walk():
    del files[:]
    covered.clear()
    tops = sorted(os.listdir(b".")) if guide else units
    for unit in tops:
        stack.append(unit)
        while stack:
            look(stack.pop(), 1)
    return tops, files[:]
if guide:
    put("a", os.fsencode(sys.executable), extra=b"python")
before = walk()
put("s")
out.flush()
def order(file):
    return (file[0].split(b"/")[0] if guide else b"", file[0])
if what != "list":
    for path, size, when in sorted(files, key=order)[skip:]:
        if trust and covered.get(path) == (size, when):
            continue
        if size > 4000000 or time.time() - sent[0] > 0.1:
            sent[0] = time.time()
            out.flush()
        try:
            put("h", path, extra=digest(path, size).encode())
        except OSError as e:
            put("x", path, extra=str(e.strerror).encode())
if guide:
    put("p")
    out.flush()
    for line in iter(sys.stdin.readline, ""):  # a shell that reads byte by byte leaves the rest of its script there
        if line.strip() == "again":
            held = []
            same = walk() == before
            for record in [] if same else held:
                out.write(record)
            held = None
            if same:
                put("u")
            break
put("e")
out.flush()
"""

_HEAD = r"""
LC_ALL=C; export LC_ALL; unset CDPATH
printf '%s\n' {nonce}
rec() {{ printf '%s\0%s\0%s\0%s\0%s\0%s\0' "$1" "$2" "$3" "$4" "$5" "$6"; }}
{home}root={root}
if [ ! -d "$root" ]; then
    if [ -e "$root" ] || [ -L "$root" ]; then rec x '' '' '' '' notdir; else rec x '' '' '' '' missing; fi
    rec e; exit 0
fi
cd "$root" 2>/dev/null || {{ rec x '' '' '' '' denied; rec e; exit 0; }}
"""

# The imports are those of the script: a Python that lacks one of them is passed by.
_FIND_PYTHON = r"""
py=
for p in python3 python python3.13 python3.12 python3.11 python3.10 python3.9; do
    py=$(command "$p" -c 'import hashlib, json, os, stat, subprocess, sys, time
print(sys.version_info >= (3, 4) and sys.executable or "")' 2>/dev/null </dev/null) && [ -n "$py" ] && break
    py=
done
"""

_TOOLS = r"""
command -v rsync >/dev/null 2>&1 && rec a '' '' '' '' rsync
command -v tar >/dev/null 2>&1 && rec a '' '' '' '' tar
[ -r . ] || {{ rec x '' '' '' '' denied; rec e; exit 0; }}
if [ -n "$py" ]; then
    {call}
    exit 0
fi
for f in * .[!.]* ..?*; do
    if [ -L "$f" ]; then rec l '' '' '' "$f" ''
    elif [ -d "$f" ]; then rec d '' '' '' "$f" ''
    elif [ -e "$f" ]; then rec f '' '' '' "$f" ''
    fi
done
rec e
"""

_SHELL_WALK = r"""
hash=
if printf x | b3sum --no-names >/dev/null 2>&1; then hash='b3sum --no-names'; name=blake3
elif printf x | sha256sum >/dev/null 2>&1; then hash=sha256sum; name=sha256
elif printf x | shasum -a 256 >/dev/null 2>&1; then hash='shasum -a 256'; name=sha256
elif printf x | openssl dgst -sha256 -r >/dev/null 2>&1; then hash='openssl dgst -sha256 -r'; name=sha256
fi
export hash name what
walk() {
find "$1" -exec sh -c '
for f do
    case ${f##*/} in .underfed-incoming|.underfed-probe*)
        printf "%s\0%s\0%s\0%s\0%s\0%s\0" x "" "" "" "$f" "an unfinished transfer of underfed is there"; continue;; esac
    kind=o extra=
    if [ -L "$f" ]; then kind=l extra=$(readlink "$f"; printf .) extra=${extra%.} extra=${extra%?}
    elif [ -d "$f" ]; then kind=d
    elif [ -f "$f" ]; then kind=f; fi
    size=
    [ $kind = f ] && [ -r "$f" ] && size=$(wc -c <"$f" | tr -d " ")
    printf "%s\0%s\0%s\0%s\0%s\0%s\0" $kind "$size" "" "" "$f" "$extra"
    if [ $kind = d ] && [ -f "$f/underfed-manifest.jsonl" ]; then
        printf "%s\0%s\0%s\0%s\0%s\0" m "" "" "" "$f"; cat "$f/underfed-manifest.jsonl"; printf "\0"
    fi
done' sh {} +
}
sums() {
[ -n "$hash" ] && find "$1" -type f -exec sh -c '
for f do
    if h=$($hash <"$f" 2>/dev/null); then
        printf "%s\0%s\0%s\0%s\0%s\0%s:%s\0" h "" "" "" "$f" "$name" "${h%% *}"
    else
        printf "%s\0%s\0%s\0%s\0%s\0%s\0" x "" "" "" "$f" "cannot be read"
    fi
done' sh {} +
}
for u do walk "$u"; done
rec s
if [ $what = hash ]; then
    ( while sleep 5 </dev/null >/dev/null 2>&1; do rec t '' '' '' '' '' || exit; done ) &
    beat=$!
    for u do sums "$u"; done
    kill $beat
fi
rec e
"""


def quoted(name: str) -> str:
    """Quote a name for a POSIX shell; a name that begins with a dash or a tilde is anchored to the folder it is in."""
    return shlex.quote(name if name.startswith("/") else f"./{name}")


def _head(root: str, nonce: str) -> str:
    home = ""
    if root == "~" or root.startswith("~/"):
        home, root = 'cd "$HOME" || exit 3\n', root[2:]
    return _HEAD.format(nonce=nonce, home=home, root=quoted(root or "."))


def contact_script(root: str, nonce: str) -> str:
    """Return the script that says what tools are there, and what is in a folder.

    With Python there: the whole tree, its hashes, and, after a line `again` on its standard input, the tree once more
    where it has changed (a, d, f, l, o, m, x, s, h, p, u). Without: what lies directly in the folder (a, d, f, l).
    """
    return _head(root, nonce) + _FIND_PYTHON + _TOOLS.format(call=f"exec {_call('guide', 0, True)}")


def walk_script(root: str, nonce: str, units: list[str], *, hashes: bool, skip: int, trust: bool, python: str) -> str:
    """Return the script that lists units (names directly in the folder) and, after that, hashes their files.

    skip: files at the beginning of the sorted list whose hashes are known; trust: leave out files that a manifest
    there vouches for; python: path of the far side's Python, empty for the shell alone.
    """
    what = "hash" if hashes else "list"
    names = " ".join(quoted(unit) for unit in units)
    if not python:
        return _head(root, nonce) + f"what={what}\nset -- {names}\n" + _SHELL_WALK
    return _head(root, nonce) + f"py={shlex.quote(python)}\n{_call(what, skip, trust)} {names} </dev/null\n"


def _call(what: str, skip: int, trust: bool) -> str:
    return f'"$py" -c {shlex.quote(PYTHON)} {what} {skip} {int(trust)}'


def tar_script(root: str, nonce: str, names: list[str]) -> str:
    """Return the script that sends files as one tar stream, keeping holes where its tar can."""
    args = " ".join(quoted(name) for name in names)
    return (
        _head(root, nonce)
        + "sparse=; case $(tar --version 2>/dev/null) in *GNU*) sparse=-S;; esac\n"
        + f"set -- {args}\n"
        + 'exec tar -cf - $sparse "$@"\n'
    )
