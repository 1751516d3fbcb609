"""Reading stack frames: which line of the user's own code is running, and inside what."""

import dis
import sys
import sysconfig

_GENERATOR = 0x20
_HERE = __file__.rsplit("/", 1)[0] + "/"
#: What lies beside the agent and runs inside the training as well: the library's own `watch`, callbacks and writers.
_BESIDE = tuple(_HERE.rsplit("/", 3)[0] + f"/{name}/" for name in ("library", "callbacks", "writers"))
_roots = None
_user = {}
_for_iter = {}
#: Names of files that are none: `In[3]` for a notebook's cell, once `namer` (file name -> name or None) knows it.
_names = {}
namer = None


def _library_roots():
    found = {_HERE, *_BESIDE}
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        path = sysconfig.get_paths().get(name)
        if path:
            found.add(path.rstrip("/") + "/")
    return tuple(found)


def forget():
    """Start over: names of a notebook's cells may have changed."""
    global namer
    namer = None
    for known in (_user, _names, _for_iter):
        known.clear()


def is_user(filename):
    """Tell whether a source file is the user's own: neither the standard library nor an installed package."""
    known = _user.get(filename)
    if known is None:
        global _roots
        if _roots is None:
            _roots = _library_roots()
        if filename.startswith("<"):
            known = filename.startswith(("<string>", "<stdin>", "<ipython"))
        else:
            known = not (filename.startswith(_roots) or "/site-packages/" in filename or "/dist-packages/" in filename)
        name = namer(filename) if namer is not None else None
        if name:
            _names[filename], known = name, True
        _user[filename] = known
    return known


def place(frame):
    """Return `file:line` of a frame, `In[3]:line` of a notebook's cell."""
    filename = frame.f_code.co_filename
    return f"{_names.get(filename, filename)}:{frame.f_lineno}"


def code_place(code):
    """Return the place where a function begins."""
    is_user(code.co_filename)  # asks for the name of a notebook's cell
    return f"{_names.get(code.co_filename, code.co_filename)}:{code.co_firstlineno}"


def user_frame(frame, until=None):
    """Return the innermost frame of the user's own code at or above `frame`, or None.

    With `until`, frames from the first one of that file outwards do not count.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if name == until:
            return None
        if is_user(name):
            return frame
        frame = frame.f_back
    return None


def user_place(depth=2):
    """Return `file:line` of the innermost user frame above the caller's caller, or the nearest frame's place."""
    frame = sys._getframe(depth)
    found = user_frame(frame)
    return place(found if found is not None else frame)


def _loops(code):
    """Offsets of the code's `for` headers with the end of their bodies."""
    known = _for_iter.get(code)
    if known is None:
        known = _for_iter[code] = [(i.offset, i.argval) for i in dis.get_instructions(code) if i.opname == "FOR_ITER"]
    return known


def enclosing_loops(frame):
    """Map each code object from `frame` outwards to the offsets of the `for` headers that enclose its current point.

    A frame that is later seen standing at one of these offsets is waiting for that loop's next item.
    """
    found = {}
    while frame is not None:
        at = frame.f_lasti
        found[frame.f_code] = frozenset(start for start, end in _loops(frame.f_code) if start < at < end)
        frame = frame.f_back
    return found


def is_generator(frame):
    """Tell whether a frame belongs to a generator."""
    return bool(frame.f_code.co_flags & _GENERATOR)
