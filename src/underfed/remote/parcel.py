"""What travels to a machine that is looked at: the modules that look, as one zip file, and py-spy.

Only the eyes travel, and they need the standard library alone; what was seen is judged here. The records of `box` are
made of msgspec here and of plain objects there, since it need not be installed.
"""

from __future__ import annotations

import io
import platform
import zipfile
from importlib.util import find_spec
from pathlib import Path

import underfed

#: Folders and files of the package that the eyes consist of.
_PARTS = (
    "errors.py",
    "observe/__init__.py",
    "observe/gpu",
    "observe/host",
    "observe/live",
    "remote/__init__.py",
    "remote/seen.py",
    "remote/there.py",
    "report/text.py",
)
#: Stands there for `underfed.diagnosis`: the one name that the eyes take from it, without msgspec.
_RECORD = '''"""Records without msgspec: fields by name, class attributes as defaults."""


class Record:
    def __init_subclass__(cls, **options):
        super().__init_subclass__()

    def __init__(self, **fields):
        for name in type(self).__annotations__:
            if name in fields:
                setattr(self, name, fields[name])
            elif not hasattr(type(self), name):
                raise TypeError(name)
'''


def parcel() -> bytes:
    """Return the zip file. The driver's Python binding (one file, pure Python) travels along where it is installed."""
    top = Path(underfed.__file__).parent
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("underfed/__init__.py", f'__version__ = "{underfed.__version__}"\n')
        box.writestr("underfed/diagnosis.py", _RECORD)
        box.writestr("underfed/report/__init__.py", "")
        for part in _PARTS:
            path = top / part
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                box.write(file, f"underfed/{file.relative_to(top)}")
        binding = find_spec("pynvml")
        if binding is not None and binding.origin is not None and binding.origin.endswith(".py"):
            box.write(binding.origin, "pynvml.py")
    return made.getvalue()


def sampler_for(machine: str) -> bytes | None:
    """Return our py-spy for a machine that has none, None where it would not run there or there is none here."""
    from underfed.observe.live.stacks import find_pyspy

    program = find_pyspy()
    if machine != f"{platform.system()} {platform.machine()}" or program is None:
        return None
    binary = Path(program).read_bytes()
    return binary if binary.startswith(b"\x7fELF") else None
