"""Execute the chapters of which something has changed, by the digest in their earlier reports."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import trnmodel
from trnbook.report import chapter, folders
from trnbook.report.chapter import PACKAGE, ROOT, check_parameters
from trnmodel.catalog.load import DATA
from trnmodel.cli.errors import ChapterError, InputError, NoAnswerError, printable

if TYPE_CHECKING:
    from nbformat import NotebookNode

LOCK = ROOT / "requirements.lock"
ERROR = ".error.ipynb"
MAX_INPUT_BYTES = 2**24  # of files that parameters name; beyond it, size and time of change are hashed
DATA_SUFFIXES = (".json", ".csv", ".yaml", ".yml")  # of a folder among the parameters: a model's weights are not read


class Outcome(NamedTuple):
    """An executed chapter: its notebook, and whether this run executed it or it was up to date.

    `replaced` holds those parameters of an earlier report in its place that were others.
    """

    slug: str
    path: Path
    ran: bool
    replaced: Mapping[str, object] = MappingProxyType({})


class _Made(msgspec.Struct):
    """A report's own metadata: the digest of all that it was made from, and its parameters."""

    digest: str
    parameters: dict[str, Any]


class _Metadata(msgspec.Struct):
    trnmodel: _Made


class _Notebook(msgspec.Struct):
    metadata: _Metadata


@dataclass(frozen=True)
class Job:
    """A chapter to run, with its parameters and the digest of what it is made from.

    A notebook that is no chapter has its text as `template`, and the file that it answers as `origin`.
    """

    slug: str
    parameters: dict[str, object]
    digest: str
    path: Path
    template: str = ""
    origin: str = ""

    def notebook(self) -> NotebookNode:
        """Return the notebook as it is before it runs."""
        return chapter.parsed(self.template) if self.template else chapter.read(self.slug)

    @property
    def called(self) -> str:
        """What a message calls it."""
        return f"the report of {printable(self.origin)}" if self.origin else f"chapter {self.slug!r}"

    def unanswered(self, reason: object) -> str:
        """Return the line that says why it has no answer."""
        if not self.origin:
            return chapter.unanswered(self.slug, reason)
        origin, text = printable(self.origin), printable(" ".join(str(reason).split()))
        return text if text.startswith(origin) else f"{origin}: {text}"


def run(
    slugs: Iterable[str],
    parameters: Mapping[str, object] | None = None,
    out_dir: str | Path = "reports",
    *,
    workers: int = 2,
    progress: bool = True,
) -> list[Outcome]:
    """Execute chapters into `out_dir/<slug>.ipynb`, `workers` at a time; skip those whose digest still holds.

    An output appears whole or not at all. A chapter that fails leaves `<slug>.error.ipynb`, the others go on, and
    ChapterError is raised at the end; InputError where chapters only refused their parameters, NoAnswerError where
    nothing satisfies them. Before anything runs, parameters are checked for every chapter, by the chapter's own guard
    too, and no other run may be writing into the folder.
    """
    checked = {slug: check_parameters(slug, parameters or {}) for slug in slugs}
    with folders.claimed(out_dir):
        shared = inputs()
        jobs = [
            Job(slug, own, _digest(slug, own, shared), Path(out_dir, f"{slug}.ipynb")) for slug, own in checked.items()
        ]
        return execute(jobs, workers=workers, progress=progress)


def templated(slug: str, template: Path, origin: str, files: Iterable[str], path: Path, shared: str) -> Job:
    """Return the job of a notebook that is no chapter and that answers a scenario file, its parameter `scenario`.

    `files` are those that the scenario names, such as its model; `shared` is the hash of `inputs`.
    """
    text = template.read_text(encoding="utf-8")
    made = _hash_of(text.encode(), {"scenario": origin}, shared, [origin, *files])
    return Job(slug, {"scenario": origin}, made, path, text, origin)


def execute(jobs: Sequence[Job], *, workers: int = 2, progress: bool = True, what: str = "chapters") -> list[Outcome]:
    """Execute those jobs whose digest no longer holds, in folders that the caller has claimed, as `run` says.

    `what` is what the progress bar counts cells of.
    """
    before = {job.path: _report_there(job.path) for job in jobs}
    stale = [job for job in jobs if (made := before[job.path]) is None or made.digest != job.digest]
    for job in stale:
        if not job.template:
            chapter.check_answers(job.slug, job.parameters)
    errors: list[Exception] = []
    if stale:
        from trnbook.report import kernels  # papermill and Jupyter take half a second

        errors = kernels.run_all(stale, workers, progress, what)
    if errors:
        worst = (kind for kind in (ChapterError, InputError) if any(type(error) is kind for error in errors))
        raise next(worst, NoAnswerError)("\n".join(map(str, errors)))
    return [Outcome(job.slug, job.path, job in stale, _others(job, before[job.path])) for job in jobs]


def _report_there(path: Path) -> _Made | None:
    """Return an earlier report's metadata; None if there is no report, or only half a file.

    Raises InputError where something else has its name.
    """
    for place in (path, path.with_suffix(ERROR)):
        if os.path.lexists(place) and not place.is_file():
            raise InputError(f"{printable(place)} is in the way: it is no file")
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Notebook).metadata.trnmodel
    except msgspec.ValidationError:
        raise InputError(f"{printable(path)} is in the way: it is no report made here") from None
    except (msgspec.DecodeError, RecursionError):
        return None


def _others(job: Job, before: _Made | None) -> dict[str, object]:
    """Return parameters of the replaced report that differ from those of the new one."""
    if before is None or before.parameters == job.parameters or job.template:
        return {}
    defaults = {name: declared.default for name, declared in chapter.parameters(job.slug).items()}
    now, then = defaults | job.parameters, defaults | before.parameters
    return {name: value for name, value in then.items() if name in now and now[name] != value}


def inputs() -> str:
    """Return a hash of what all chapters are made from: package, data, and lock or installed packages.

    The lab lies among the data, and no chapter imports it, so its code is left out.
    """
    packages = (Path(trnmodel.__file__).parent, PACKAGE)
    files = [
        path for package in packages for path in package.rglob("*.py") if not path.is_relative_to(chapter.CHAPTERS)
    ]
    files += [
        path
        for path in (*DATA.rglob("*"), LOCK)
        if path.is_file() and "__pycache__" not in path.parts and not path.is_relative_to(DATA / "trnlab")
    ]
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in sorted(set(files)):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    if not LOCK.is_file():
        digest.update(repr(sorted(f"{item.name} {item.version}" for item in distributions())).encode())
    return digest.hexdigest()


def _digest(slug: str, parameters: Mapping[str, object], inputs: str) -> str:
    """Return a hash of what one executed chapter is made from, with the bytes of files that parameters name."""
    values = [value for _, value in sorted(parameters.items())]
    return _hash_of((chapter.CHAPTERS / f"{slug}.py").read_bytes(), parameters, inputs, values)


def _hash_of(text: bytes, parameters: Mapping[str, object], inputs: str, values: Iterable[object]) -> str:
    """Return a hash of a notebook's text, its parameters, and the bytes of the files that values name."""
    digest = hashlib.sha256(inputs.encode() + text)
    digest.update(json.dumps(parameters, sort_keys=True).encode())
    left = MAX_INPUT_BYTES
    for path in (path for value in values for path in _named_files(value)):
        content = _content(path, left)
        left -= len(content)
        digest.update(f"{path.name} {hashlib.sha256(content).hexdigest()}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _named_files(value: object) -> Iterator[Path]:
    """Yield the files that a parameter names, alone or in a list: a file, or the data files of a folder."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and os.path.isdir(text):  # noqa: PTH112 - a Path raises on over-long names
            files = (path for path in Path(text).iterdir() if path.suffix in DATA_SUFFIXES and path.is_file())
            yield from sorted(files)
        elif isinstance(text, str) and os.path.isfile(text):  # noqa: PTH113 - the same
            yield Path(text)


def _content(path: Path, limit: int) -> bytes:
    """Return the bytes of a file, or, above a limit, its size and the time of its last change."""
    stat = path.stat()
    if stat.st_size <= limit:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) <= limit:
            return content
    return f"{stat.st_size} {stat.st_mtime_ns}".encode()
