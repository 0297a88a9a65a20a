"""A headless browser and a server for tests of the built pages; without a browser they say so and skip."""

import gzip
from contextlib import suppress
from functools import cache
from pathlib import Path

import printing.__main__ as printing
import pytest

from tests.book.pages import Quiet, served
from tests.notebooks import HTML

# Nothing that a browser does in the background may look like a request of a page.
OPTIONS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """Debian's chromium or any Chrome on the path; CHROMIUM names another."""
    try:
        found = printing.browser()
    except printing.CannotPrintError as error:
        pytest.skip(str(error))
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found, chromium_sandbox=False, args=OPTIONS
        )
        yield running
        running.close()


@pytest.fixture(scope="session")
def site():
    """Folder of the built book."""
    assert HTML.exists(), "the book is not built: make book"
    return HTML


@cache
def packed(file):
    return gzip.compress(file.read_bytes(), 6)


class Handler(Quiet):
    """Serves files with gzip, as hosts of static pages do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802  (the name that a server calls)
        file = Path(self.translate_path(self.path))
        file = file / "index.html" if file.is_dir() else file
        if not file.is_file():
            self.send_error(404)
            return
        body = packed(file)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(file)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the page is closed before all of it has come
            self.wfile.write(body)


@pytest.fixture(scope="session")
def address(site):
    """Address of a server of the built book on this machine."""
    with served(site, Handler) as address:
        yield address
