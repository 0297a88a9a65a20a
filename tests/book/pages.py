"""The pages of the built book, each read once by all tests of a worker: nobody changes what is shared."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bs4 import BeautifulSoup
from theme_repairs import written_pages

from tests.notebooks import HTML


def page_names() -> list[str]:
    """Name all pages of the built book; what the theme keeps under _static is none."""
    return sorted(str(file.relative_to(HTML)) for file in written_pages(HTML))


@cache
def soup(page: Path) -> BeautifulSoup:
    """Read a page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def places(page: Path) -> dict:
    """Return what has an id on a page, by id."""
    return {element["id"]: element for element in soup(page).find_all(id=True)}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def served(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """Serve a folder on this machine; lend its address."""
    serving = partial(handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
