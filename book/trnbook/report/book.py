"""The static book, the page of one report, and the committed notebooks: Sphinx over executed chapters."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from trnbook.report import chapter, leash, readability
from trnbook.report.chapter import INDEX, PACKAGE, ROOT, notebooks
from trnbook.report.execute import Outcome, inputs, run
from trnbook.report.folders import claimed, scratch, swap, temporary, write_whole
from trnmodel.cli.errors import ChapterError, InputError, printable

BOOK = PACKAGE / "pages" if (PACKAGE / "pages").is_dir() else ROOT / "book"
FOLDER = "reference"  # of the pages of public names
MARK = "made-from.txt"
EXPLAINING = "Understand"  # the part of the book whose chapters have equations
MAX_PAGE_BYTES = 10**6  # of HTML, which a phone still opens at once
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--no-pdf-header-footer", "--virtual-time-budget=60000"),
]


def write_reference_notebooks(out_dir: str | Path = "build", *, progress: bool = True) -> list[Path]:
    """Execute all chapters with their defaults, write the committed notebooks, return changed files.

    The digest of each notebook is written to `digest/<slug>.txt`, for review.
    """
    import nbformat

    from trnbook.report import form, kernels

    if chapter.CHAPTERS.is_relative_to(PACKAGE):
        raise InputError("the committed notebooks belong to the source tree; this is an installed package")
    changed, committed, made = [], chapter.CHAPTERS.parent, Path(out_dir) / "notebooks"
    with claimed(committed), claimed(made):
        for outcome in run(notebooks(), out_dir=made, progress=progress):
            target = committed / f"{outcome.slug}.ipynb"
            notebook = kernels.clean(outcome.slug, nbformat.read(outcome.path, 4))
            notebook.metadata["jupytext"] = chapter.pairing(outcome.slug)
            for path, text in ((target, form.written(notebook)), (digest_path(target), form.digest(notebook))):
                if not path.is_file() or path.read_text(encoding="utf-8") != text:
                    path.parent.mkdir(exist_ok=True)
                    write_whole(path, text)
                    changed.append(path)
    return changed


def digest_path(notebook: Path) -> Path:
    """Return the path of a committed notebook's digest."""
    return notebook.parent / "digest" / f"{notebook.stem}.txt"


def build_book(out_dir: str | Path = "build", *, pdf: bool = False, progress: bool = True) -> Path:
    """Execute what changed, build `out_dir/html` or `trnmodel.pdf`, and return the first page or the PDF.

    The notebook `index` is the first page and ends with the list of chapters, by parts. The old book stays until
    the new one is complete, and after that for as long as its mark matches its files and what it is made from.
    """
    _require_book()
    browser = find_browser() if pdf else None
    folder = Path(out_dir)
    with claimed(folder), claimed(folder / "notebooks"), scratch(folder) as own, temporary() as home:
        _require_places(folder)
        outcomes = run(notebooks(), out_dir=folder / "notebooks", progress=progress)
        source, built, there = own / "source", own / "html", folder / "html"
        if not browser and (there / MARK).is_file() and (there / MARK).read_text() == _mark(outcomes, there):
            return there / "index.html"
        pages = _read(outcomes)
        _assemble(source, outcomes)
        if browser:
            _sphinx("singlehtml", source, built, home)
            return print_page(browser, built / "index.html", folder / "trnmodel.pdf", home)
        _sphinx("html", source, built, home, "--fail-on-warning", "--keep-going")
        (built / MARK).write_text(_mark(outcomes, built))
        if progress and (sizes := page_sizes(built)):
            print(sizes, file=sys.stderr)  # noqa: T201 - as a progress bar is printed
            print(readability.table(pages), file=sys.stderr)  # noqa: T201 - as above
        return swap(built, there) / "index.html"


def build_page(notebook: Path) -> Path | None:
    """Make `<slug>/index.html` next to an executed notebook; None where Sphinx is missing."""
    target, index = notebook.with_suffix(""), notebook.with_suffix("") / "index.html"
    if not _has_book():
        return None
    with claimed(target.parent), scratch(target.parent) as own, temporary() as home:
        require_place(target)
        if _is_page_of(index, notebook):
            return index
        source, built = own / "source", own / "html"
        source.mkdir()
        for path in (notebook, *BOOK.glob("*.bib")):
            shutil.copy2(path, source / ("index.ipynb" if path == notebook else path.name))
        _sphinx("html", source, built, home)
        return swap(built, target) / "index.html"


def _read(outcomes: list[Outcome]) -> list[readability.Page]:
    """Return how the chapters read; raise ChapterError where one reads as it should not.

    A book without a glossary, such as a user's own, is not held to ours.
    """
    glossary = BOOK / "glossary.md"
    explained = readability.glossary(glossary) if glossary.is_file() else []
    pages = [readability.page(outcome.path, explained) for outcome in outcomes]
    if explained and (found := readability.faults(pages, chapter.parts().get(EXPLAINING, ()))):
        raise ChapterError("\n".join(["The chapters do not read as they should:", *found]))
    return pages


def _mark(outcomes: list[Outcome], built: Path) -> str:
    """Return hashes of what pages are made from (chapters, the book's own pages, package, lock) and of the pages."""
    own = (path for path in sorted(BOOK.iterdir()) if path != PACKAGE)  # which is among the inputs
    return f"{inputs()} {_hash(*own)} {_hash(*(outcome.path for outcome in outcomes))} {_hash(built)}\n"


def _hash(*places: Path) -> str:
    """Return a hash of names and bytes of files, or of a folder without its mark and compiled Python files."""
    digest = hashlib.sha256()
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and path != place / MARK and path.suffix != ".pyc":
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(place.parent).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _require_places(folder: Path) -> None:
    require_place(folder / "html")
    if (folder / "trnmodel.pdf").is_dir():
        raise InputError(f"{printable(folder / 'trnmodel.pdf')} is in the way: it is a folder")


def require_place(target: Path) -> None:
    """Refuse to put pages in the place of anything else.

    Raises InputError, before any work is done for them.
    """
    if os.path.lexists(target) and not (target / "searchindex.js").is_file():
        raise InputError(f"{printable(target)} is in the way: it holds no pages made here")


def _is_page_of(index: Path, notebook: Path) -> bool:
    """Return whether a page is newer than a notebook and was made from the same bytes of it."""
    if not index.is_file() or index.stat().st_mtime_ns < notebook.stat().st_mtime_ns:
        return False
    made_from = (index.parent / "_sources").glob("index.ipynb*")
    return notebook.read_bytes() in [path.read_bytes() for path in made_from]


def _has_book() -> bool:
    return (BOOK / "conf.py").is_file() and all(find_spec(name) for name in ("sphinx", "myst_nb"))


def _require_book() -> None:
    if not _has_book():
        raise InputError("the book needs its folder `book/` and the extra `book` (pip install 'trnmodel[book]')")


def find_browser() -> str:
    """Return the browser that prints pages.

    Raises InputError where there is none.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise InputError(f"printing needs one of {', '.join(BROWSERS)} on the path")
    return browser


def _assemble(source: Path, outcomes: list[Outcome]) -> None:
    """Lay out the book's own pages and the executed chapters, numbered, in one source folder."""
    import nbformat

    from trnbook.report import form

    shutil.copytree(BOOK, source, ignore=shutil.ignore_patterns("__pycache__", PACKAGE.name))
    (source / "chapters").mkdir(exist_ok=True)
    chapters = [outcome for outcome in outcomes if outcome.slug != INDEX]
    for number, outcome in enumerate(chapters, 1):
        notebook = form.numbered(nbformat.read(outcome.path, 4), number)
        (source / "chapters" / outcome.path.name).write_text(form.written(notebook), encoding="utf-8")
    parts = {part: [f"chapters/{slug}" for slug in slugs] for part, slugs in chapter.parts().items()}
    own = [path.stem for path in sorted(BOOK.glob("*.md")) if path.stem != INDEX]
    parts |= {"Reference": [*own, f"{FOLDER}/index"]}
    for outcome in outcomes:
        if outcome.slug == INDEX:
            notebook = form.listing(nbformat.read(outcome.path, 4), parts)
            (source / outcome.path.name).write_text(form.written(notebook), encoding="utf-8")


def page_sizes(pages: Path) -> str:
    """Return the median and largest bytes of HTML of a built book in a line; empty without chapters."""
    sizes = sorted((path.stat().st_size, path.name) for path in pages.glob("chapters/*.html"))
    if not sizes:
        return ""
    (largest, name), median = sizes[-1], sizes[len(sizes) // 2][0]
    heavy = sum(size > MAX_PAGE_BYTES for size, _ in sizes)
    beyond = f"; {heavy} beyond {MAX_PAGE_BYTES / 1e6:.0f} MB" if heavy else ""
    return f"{len(sizes)} pages, median {median / 1e3:.0f} kB of HTML, largest {largest / 1e3:.0f} kB ({name}){beyond}"


def _sphinx(builder: str, source: Path, built: Path, home: Path, *flags: str) -> None:
    """Call Sphinx with the configuration of `book/`; raise ChapterError with its last lines if it fails."""
    places = ["-c", str(BOOK), "-d", str(built.parent / "doctrees"), str(source), str(built)]
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-q", "-j", "2", *flags, *places]
    done = leash.run(command, home)
    if done.returncode:
        lines = done.stderr.replace(f"{source}{os.sep}", "").strip().splitlines() or ["no message"]
        raise ChapterError("\n".join(["Sphinx could not build the pages:", *list(dict.fromkeys(lines))[-20:]]))


def print_page(browser: str, page: Path, target: Path, home: Path) -> Path:
    """Print a page to PDF."""
    draft = page.with_name("book.pdf")
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [browser, *BROWSER_FLAGS, profile, f"--print-to-pdf={draft.resolve()}", page.resolve().as_uri()]
    done = leash.run(command, home)
    if done.returncode or not draft.is_file():
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ChapterError(f"{browser} could not print the page: {lines[-1]}")
    return draft.replace(target)
