"""The built book and JupyterLab in Debian's Chromium, with what went wrong on a page written down."""

import contextlib
import fcntl
import functools
import http.server
import os
import shutil
import threading
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from trnbook import report

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SIZE, SCREEN = {"width": 1280, "height": 900}, {"width": 1440, "height": 1000}
WATCH = """window.violations = [];
document.addEventListener('securitypolicyviolation', event => violations.push(
    `${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));"""
STATE = """JSON.stringify([document.documentElement.dataset.code, document.documentElement.dataset.theme,
    document.querySelectorAll('.trn-open').length,
    [...document.querySelectorAll('details:not(.vega-embed *)')].map(fold => fold.open)])"""
DRAWN = "() => [...document.querySelectorAll('.trn-chart')].every(chart => chart.querySelector('svg.marks'))"


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker("browser")
    items.sort(key=lambda item: item.callspec.params["slug"] if "desk" in getattr(item, "fixturenames", ()) else "")


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def watch(chromium):
    """Open pages by `opened(scheme)`; at the end none may have asked an outside host, nor ours met an error."""
    contexts, problems = [], []

    def note(request):
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1":
            problems.append(f"asked {request.url}")

    def opened(scheme="light", ours=True):
        context = chromium.new_context(viewport=SIZE, color_scheme=scheme)
        contexts.append(context)
        context.add_init_script(WATCH)  # what the policy of a page refuses
        page = context.new_page()
        page.set_default_timeout(300_000)  # for a machine that does much else
        page.on("request", note)
        if ours:
            page.on("pageerror", lambda error: problems.append(f"{page.url} threw {error}"))
            page.on("console", lambda message: message.type == "error" and problems.append(f"logged {message.text}"))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture(scope="session")
def watched(chromium):
    """Pages of their own, as in a browser that was just installed: `with watched() as opened`."""
    return functools.partial(watch, chromium)


@pytest.fixture(scope="session")
def tab(watched):
    """A page for many tests: in a new one Chromium compiles the scripts of the book anew, for a second or two."""
    with watched() as opened:
        yield opened()


@pytest.fixture
def open_page(watched, tab):
    """A function that opens a page; the first of ours in a test is the tab that tests share, with nothing remembered.

    A test that adds a script to its page, or must have a new one, asks for `fresh`.
    """
    with watched() as opened:
        free = [tab]

        def open_page(scheme="light", ours=True, fresh=False):
            if fresh or not ours or not free:
                return opened(scheme, ours)
            free.clear()
            tab.evaluate("location.protocol === 'about:' || localStorage.clear()")
            tab.mouse.move(0, 0)
            tab.set_viewport_size(SIZE)
            tab.emulate_media(color_scheme=scheme)
            return tab

        yield open_page


@pytest.fixture(scope="session")
def site(root):
    """The book as `make book` leaves it; chapters whose digest holds are not run again, by one process at a time."""
    (root / "build").mkdir(exist_ok=True)
    with (root / "build" / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return report.build_book(root / "build", progress=False).parent.resolve()


@pytest.fixture(scope="session")
def slugs(site):
    return sorted(path.stem for path in (site / "chapters").glob("*.html"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def http_base(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(site):
    """The book in a folder, for what each page is asked; what a server may change is asked of few."""
    return site.as_uri()


@pytest.fixture(scope="session")
def one_page(watched):
    with watched() as opened:
        yield opened()


@pytest.fixture
def desk(one_page, folder, slug):
    """A chapter on a large screen; tests of one chapter share the visit, in any order.

    A page on which a test left a fold or code open is visited anew; pointer and focus are taken off it.
    """
    url = f"{folder}/chapters/{slug}.html"
    if one_page.url != url or one_page.evaluate(f"{STATE} !== window.untouched"):
        one_page.evaluate("location.protocol === 'about:' || localStorage.clear()")
        one_page.set_viewport_size(SCREEN)
        one_page.goto(url)
        one_page.evaluate(f"window.untouched = {STATE}")
    one_page.mouse.move(0, 0)
    one_page.evaluate("document.activeElement?.blur()")
    one_page.wait_for_function(DRAWN)
    return one_page


@pytest.fixture(params=[pytest.param("http", marks=pytest.mark.slow), "file"])
def base(request, site):
    """Where the book lies: on a server, and in a folder."""
    return site.as_uri() if request.param == "file" else request.getfixturevalue("http_base")
