"""First code of a Python process below `underfed run`: hide this folder again, start the boot, go on as without it.

Any Python may read this file, 2.7 included, and it runs before the user's code. PYTHONPATH names this folder in one of
three spellings, so that the user's own value can be told apart even where a shell has extended it:
FOLDER:VALUE (the value was VALUE), FOLDER/. (it was unset), FOLDER/./. (it was empty).
"""

import os
import sys


def _hide(here):
    """Take this folder off sys.path and out of os.environ; other processes keep it through the C environment.

    Returns the place on sys.path where it was.
    """
    data = getattr(os.environ, "_data", None)
    if data is None:
        data = os.environ.data  # Python 2
    text = not isinstance(next(iter(data), ""), bytes) or bytes is str
    key, sep = ("PYTHONPATH", ":") if text else (b"PYTHONPATH", b":")
    folder = here if text else os.fsencode(here)
    unset = folder + ("/." if text else b"/.")
    empty = unset + ("/." if text else b"/.")
    value = data.get(key)
    stood_for_cwd = False
    if value is not None:
        if value == unset:
            del data[key]
        else:
            words = value.split(sep)
            kept = [word[:0] if word in (unset, empty) else word for word in words if word != folder]
            stood_for_cwd = value != empty and kept != [word for word in words if word != folder]
            data[key] = sep.join(kept)
    place = 0
    for at in range(len(sys.path) - 1, -1, -1):
        entry = sys.path[at]
        if os.path.normpath(entry) == here:
            sys.path_importer_cache.pop(entry, None)
            del sys.path[at]
            place = at
            if stood_for_cwd:  # an empty word in PYTHONPATH is the working directory
                cwd = os.path.abspath("")
                if cwd not in sys.path[:at]:
                    sys.path[at:] = [cwd] + [later for later in sys.path[at:] if later != cwd]
    return place


def _boot(here):
    """Run `_underfed_boot.py` beside this file; it is no module that anyone could import."""
    path = os.path.join(here, "_underfed_boot.py")
    if "__loader__" in globals() and hasattr(__loader__, "get_code"):
        code = type(__loader__)("_underfed_boot", path).get_code("_underfed_boot")
        space = {"__name__": "_underfed_boot", "__file__": path, "__builtins__": __builtins__}
        exec(code, space)  # noqa: S102 - our own file
        space["start"](here)


def _go_on(path):
    """Run the sitecustomize that follows on this part of sys.path: those before it have run, and called us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None:
        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


_here = os.path.normpath(os.path.dirname(os.path.abspath(__file__)))
_place = None
_called = False
try:
    _place = _hide(_here)
    _called = any(os.path.isfile(os.path.join(entry, "sitecustomize.py")) for entry in sys.path[:_place])
    if sys.version_info >= (3, 9):
        _boot(_here)
except (Exception, SystemExit):
    pass

# The module that the interpreter would have found without us, errors included: it takes our place in sys.modules.
_module = sys.modules.get("sitecustomize")
if _place is None:
    pass
elif _called:
    if sys.version_info >= (3, 4):
        _go_on(sys.path[_place:])
elif _module is not None and vars(_module) is globals():
    del sys.modules["sitecustomize"]
    import sitecustomize
else:  # another tool runs this file as the one that follows its own
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if _module is not None:
            sys.modules["sitecustomize"] = _module
