"""Names of notebook cells: a cell's code claims to be a file, and nobody knows that file by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable


def cell_namer() -> Callable[[str], str | None] | None:
    """Return what turns the file name of a cell's code into `In[3]`, None for other files; None outside IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    known = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if known is None:
        return None

    def name(filename: str) -> str | None:
        found = known(filename)
        return str(found[1]) if found and found[0] == "Cell" else None

    return name
