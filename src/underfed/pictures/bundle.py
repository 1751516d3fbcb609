"""The page's one script, with Vega in it, and the policy that lets this script run and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from underfed.errors import UsageError

ADVICE = "report: HTML needs the extra `report`: pip install 'underfed[report]' (--format md and perfetto need nothing)"


def file(name: str) -> str:
    """Return one of the files beside this module."""
    return (files("underfed.pictures") / "files" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def script() -> str:
    """Return the script that draws the charts, Vega included. Raises UsageError where the extra is missing."""
    try:
        import vl_convert
    except ImportError:
        raise UsageError(ADVICE) from None
    text: str = vl_convert.javascript_bundle(file("draw.js"))
    if "</script" in text.lower() or "<!--" in text:
        # Inside of a script element these end it, or change how it ends; in JavaScript both are only found in strings.
        text = text.replace("</script", "<\\/script").replace("</SCRIPT", "<\\/SCRIPT").replace("<!--", "<\\!--")
    return text


def policy(text: str) -> str:
    """Return the Content-Security-Policy: no network, no eval, and no script but this one, by its hash."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded(value: Any) -> str:
    """Return JSON that can stand inside of a script element: nothing in it can end the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
