"""Execute chapters through papermill: in parallel, only what changed, whole outputs or none."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import CellControlSignal
from nbformat import NotebookNode
from papermill.exceptions import PapermillException
from tqdm import tqdm

from trnmodel.arguments import UnanswerableError
from trnmodel.catalog.load import DATA
from trnmodel.report import chapter, folders, form
from trnmodel.report.chapter import PACKAGE, ROOT, InputError, check_parameters, printable

LOCK = ROOT / "requirements.lock"
PLACE = ("order", "part")  # of a chapter in the book
MAX_CELL_S = 1800
ERROR = ".error.ipynb"
MAX_INPUT_BYTES = 2**24  # of the files that parameters name; of what is beyond, size and time of change count
DATA_SUFFIXES = (".json", ".csv", ".yaml", ".yml")  # of a folder among the parameters: a model's weights are not read
# What papermill, nbclient and jupyter_client raise: cells that fail or last too long, kernels that die or do not start.
FAILURES = (PapermillException, CellControlSignal, RuntimeError, OSError)
KERNEL_ENV = {"PYTHONHASHSEED": "0", "TQDM_DISABLE": "1"}
KERNEL_NAME = {"display_name": "Python 3", "language": "python", "name": "python3"}


class ChapterError(RuntimeError):
    """Chapters failed while running, told in one line each; their error notebooks lie beside the others."""


class Outcome(NamedTuple):
    """An executed chapter: its notebook, and whether this run executed it or found it up to date.

    `replaced` holds those parameters of an earlier report in its place that were others.
    """

    slug: str
    path: Path
    ran: bool
    replaced: Mapping[str, object] = MappingProxyType({})


class _Made(msgspec.Struct):
    """What the metadata of a report say: the digest of all that it was made from, and its parameters."""

    digest: str
    parameters: dict[str, Any]


class _Metadata(msgspec.Struct):
    trnmodel: _Made


class _Notebook(msgspec.Struct):
    metadata: _Metadata


@dataclass(frozen=True)
class _Job:
    slug: str
    given: dict[str, object]
    digest: str
    path: Path

    def n_cells(self) -> int:
        code = [cell for cell in chapter.read(self.slug).cells if cell.cell_type == "code" and cell.source.strip()]
        return len(code) + bool(self.given)


@dataclass(frozen=True)
class _Kernels:
    """The kernel processes of one run, so that an interrupt can end them all."""

    processes: list[subprocess.Popen] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.stopped.set()
        for process in self.processes:
            process.kill()

    def check(self, **_) -> None:
        if self.stopped.is_set():
            raise RuntimeError("the run was interrupted")

    def manager(self, folder: Path) -> type[AsyncKernelManager]:
        """Kernel manager for this very interpreter, with sockets and start-up files in a folder of its own."""
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = KernelSpec(
            argv=argv, env=KERNEL_ENV | {"IPYTHONDIR": str(folder), "TMPDIR": str(folder)}, language="python"
        )
        processes = self.processes

        class Manager(AsyncKernelManager):
            kernel_spec = spec

            def __init__(self, **kwargs) -> None:
                sockets = {"transport": "ipc", "ip": str(folder / "s"), "connection_file": str(folder / "k.json")}
                super().__init__(**kwargs | sockets)

            async def start_kernel(self, **kwargs) -> None:
                await super().start_kernel(**kwargs)
                processes.append(self.provisioner.process)

        return Manager


def run(
    slugs: Iterable[str],
    parameters: Mapping[str, object] | None = None,
    out_dir: str | Path = "reports",
    *,
    workers: int = 2,
    progress: bool = True,
) -> list[Outcome]:
    """Execute chapters into `out_dir/<slug>.ipynb`, `workers` at a time, leaving alone those whose digest holds.

    An output appears whole or not at all. A chapter that fails leaves `<slug>.error.ipynb`, the others go on, and
    ChapterError is raised at the end; InputError where chapters only had no answer for their parameters. Before
    anything runs, parameters are checked for every chapter, and no other run may be writing into the folder.
    """
    given = {slug: check_parameters(slug, parameters or {}) for slug in slugs}
    with folders.claimed(out_dir):
        shared = inputs()
        jobs = [
            _Job(slug, own, _digest(slug, own, shared), Path(out_dir, f"{slug}.ipynb")) for slug, own in given.items()
        ]
        before = {job.slug: _report_there(job.path) for job in jobs}
        stale = [job for job in jobs if (made := before[job.slug]) is None or made.digest != job.digest]
        errors = _run_all(stale, workers, progress) if stale else []
    if errors:
        kind = ChapterError if any(isinstance(error, ChapterError) for error in errors) else InputError
        raise kind("\n".join(map(str, errors)))
    return [Outcome(job.slug, job.path, job in stale, _others(job, before[job.slug])) for job in jobs]


def _report_there(path: Path) -> _Made | None:
    """What an earlier report says of itself; None where there is none, or only half a file.

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


def _others(job: _Job, before: _Made | None) -> dict[str, object]:
    """The parameters of the report that is replaced, as far as they differ from those of the new one."""
    if before is None:
        return {}
    defaults = {name: declared.default for name, declared in chapter.parameters(job.slug).items()}
    now, then = defaults | job.given, defaults | before.parameters
    return {name: value for name, value in then.items() if name in now and now[name] != value}


def inputs() -> str:
    """Hash of what all chapters are made from: package, data and lock (without a lock: what is installed)."""
    files = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(chapter.CHAPTERS)]
    files += [path for path in (*DATA.rglob("*"), LOCK) if path.is_file() and "__pycache__" not in path.parts]
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in sorted(set(files)):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    if not LOCK.is_file():
        digest.update(repr(sorted(f"{item.name} {item.version}" for item in distributions())).encode())
    return digest.hexdigest()


def _digest(slug: str, given: Mapping[str, object], inputs: str) -> str:
    """Hash of what one executed chapter is made from; a parameter that names files stands for their bytes too."""
    digest = hashlib.sha256(inputs.encode() + (chapter.CHAPTERS / f"{slug}.py").read_bytes())
    digest.update(json.dumps(given, sort_keys=True).encode())
    left = MAX_INPUT_BYTES
    for path in (path for _, value in sorted(given.items()) for path in _named_files(value)):
        content = _content(path, left)
        left -= len(content)
        digest.update(f"{path.name} {hashlib.sha256(content).hexdigest()}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _named_files(value: object) -> Iterator[Path]:
    """The files that a parameter names, itself or as an item of a list: a file, or the data files of a folder."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and os.path.isdir(text):  # noqa: PTH112 - a Path raises on over-long names
            files = (path for path in Path(text).iterdir() if path.suffix in DATA_SUFFIXES and path.is_file())
            yield from sorted(files)
        elif isinstance(text, str) and os.path.isfile(text):  # noqa: PTH113 - the same
            yield Path(text)


def _content(path: Path, limit: int) -> bytes:
    """The bytes of a file, or, beyond a limit, its size and the time of its last change."""
    stat = path.stat()
    if stat.st_size <= limit:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) <= limit:
            return content
    return f"{stat.st_size} {stat.st_mtime_ns}".encode()


def _run_all(jobs: list[_Job], workers: int, progress: bool) -> list[Exception]:
    """Run jobs in parallel under one progress bar; the errors of those that gave no report, one line each."""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what it would say is raised or checked here
    kernels, total = _Kernels(), sum(job.n_cells() for job in jobs)
    hidden = None if progress else True  # None hides the bar where there is no terminal
    with (
        folders.temporary() as home,
        tqdm(total=total, unit="cell", desc="chapters", disable=hidden) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:
            futures = [
                pool.submit(_run_one, job, kernels, home / f"{place}", bar.update) for place, job in enumerate(jobs)
            ]
            return [error for future in futures if (error := future.result())]
        finally:  # on an interrupt kernels are still at work
            kernels.stop()
            pool.shutdown(wait=False, cancel_futures=True)


def _run_one(job: _Job, kernels: _Kernels, home: Path, tick: Callable[[], object]) -> Exception | None:
    """Execute one chapter and write its notebook, or its error notebook and a line that says what failed."""
    live = [chapter.read(job.slug)]
    broken = job.path.with_suffix(ERROR)
    home.mkdir()
    try:
        kernels.check()
        notebook = _execute(job, kernels, home, tick, live)
    except FAILURES as error:
        kernels.check()  # an interrupt is no failure of the chapter
        name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", error)
        if name == UnanswerableError.__name__:
            return InputError(f"chapter {job.slug!r} cannot answer: {_one_line(text)}")
        _write_whole(broken, _error_notebook(job.slug, live[-1], error))
        told = _one_line(f"{name}: {text}")[:200]
        return ChapterError(f"chapter {job.slug!r} failed: {told} (see {printable(broken)})")
    finally:
        ensure_event_loop().close()
    made = {"digest": job.digest, "parameters": job.given}
    _write_whole(job.path, clean(job.slug, notebook, made))
    broken.unlink(missing_ok=True)
    return None


def _one_line(text: object) -> str:
    return printable(" ".join(str(text).split()))


def _execute(job: _Job, kernels: _Kernels, folder: Path, tick: Callable, live: list[NotebookNode]) -> NotebookNode:
    """Run the chapter in a kernel of its own; `live` receives the notebook while it fills."""
    return papermill.execute_notebook(
        live[0],
        None,
        parameters=job.given,
        kernel_name=KERNEL_NAME["name"],
        language="python",
        progress_bar=False,
        request_save_on_cell_execute=False,
        execution_timeout=MAX_CELL_S,
        kernel_manager_class=kernels.manager(folder),
        shutdown_kernel="immediate",
        coalesce_streams=True,
        record_timing=False,
        on_notebook_start=lambda notebook: live.append(notebook),
        on_cell_start=kernels.check,
        on_cell_complete=lambda **_: tick(),
    )


def clean(slug: str, notebook: NotebookNode, made: Mapping[str, object] | None = None) -> NotebookNode:
    """The notebook, folded, without what differs between two equal runs: times, versions, random ids, empty tags."""
    source, metadata = notebook.metadata, {}
    metadata["kernelspec"] = source.get("kernelspec", KERNEL_NAME)
    metadata["language_info"] = {k: v for k, v in source.get("language_info", {}).items() if k != "version"}
    metadata["trnmodel"] = {k: v for k, v in source.get("trnmodel", {}).items() if k in PLACE} | dict(made or {})
    notebook.metadata = nbformat.from_dict({key: value for key, value in metadata.items() if value})
    for index, cell in enumerate(notebook.cells):
        kept = {
            k: v for k, v in cell.metadata.items() if k not in ("papermill", "execution") and (k, v) != ("tags", [])
        }
        cell.metadata = nbformat.from_dict(kept)
        cell.id = f"{slug[:50]}-{index}"
    return form.fold(notebook)


def _error_notebook(slug: str, notebook: NotebookNode, error: Exception) -> NotebookNode:
    """What a failing chapter got to; papermill has marked a failing cell, other ends are told at the top."""
    if not isinstance(error, papermill.PapermillExecutionError):
        told = _one_line(f"{type(error).__name__}: {error}")  # an indented line is shown as it stands
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(f"**The run ended here:**\n\n    {told}"))
    return clean(slug, notebook)


def _write_whole(path: Path, notebook: NotebookNode) -> None:
    folders.write_whole(path, form.written(notebook))
