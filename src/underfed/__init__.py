"""What keeps a training run from going faster, what fixing it is worth, and is the faster result still true?"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as type checkers understand it, without loading `typing`

if TYPE_CHECKING:
    from underfed import callbacks as callbacks
    from underfed import writers as writers
    from underfed.diagnosis import Diagnosis as Diagnosis
    from underfed.errors import UnderfedError as UnderfedError
    from underfed.library.reading import diagnose as diagnose
    from underfed.library.reading import open as open
    from underfed.library.reading import read as read
    from underfed.library.tables import frame as frame
    from underfed.library.watching import Watch as Watch
    from underfed.library.watching import watch as watch
    from underfed.recording.read import Recording as Recording

#: Where each name comes from; loaded at its first use, so that `import underfed` stays light.
_NAMES = {
    "Diagnosis": "underfed.diagnosis",
    "Recording": "underfed.recording.read",
    "UnderfedError": "underfed.errors",
    "Watch": "underfed.library.watching",
    "callbacks": "",
    "diagnose": "underfed.library.reading",
    "frame": "underfed.library.tables",
    "open": "underfed.library.reading",
    "read": "underfed.library.reading",
    "watch": "underfed.library.watching",
    "writers": "",
}


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'underfed' has no attribute {name!r}")
    from importlib import import_module

    if not _NAMES[name]:
        return import_module(f"underfed.{name}")
    found: object = getattr(import_module(_NAMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
