"""Execute chapters through papermill: in parallel, only what changed, whole outputs or none."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbformat import NotebookNode
from tqdm import tqdm

from trnmodel.catalog.load import DATA
from trnmodel.report import chapter
from trnmodel.report.chapter import PACKAGE, ROOT, check_parameters

LOCK = ROOT / "requirements.lock"
MAX_CELL_S = 1800
KERNEL_ENV = {"PYTHONHASHSEED": "0", "TQDM_DISABLE": "1"}
KERNEL_NAME = {"display_name": "Python 3", "language": "python", "name": "python3"}


class ChapterError(RuntimeError):
    """Chapters failed while running, told in one line each; their error notebooks lie beside the others."""


class Outcome(NamedTuple):
    """An executed chapter: its notebook, and whether this run executed it or found it up to date."""

    slug: str
    path: Path
    ran: bool


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
        spec = KernelSpec(argv=argv, env=KERNEL_ENV | {"IPYTHONDIR": str(folder)}, language="python")
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
    ChapterError is raised at the end. Parameters are checked for every chapter before anything is written.
    """
    given = {slug: check_parameters(slug, parameters or {}) for slug in slugs}
    folder, inputs = Path(out_dir), _inputs()
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [_Job(slug, own, _digest(slug, own, inputs), folder / f"{slug}.ipynb") for slug, own in given.items()]
    stale = [job for job in jobs if _stored_digest(job.path) != job.digest]
    failures = _run_all(stale, workers, progress) if stale else []
    if failures:
        raise ChapterError("\n".join(failures))
    return [Outcome(job.slug, job.path, job in stale) for job in jobs]


def _inputs() -> str:
    """Hash of what all chapters are made from: package, data and lock (without a lock: what is installed)."""
    files = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(chapter.CHAPTERS)]
    files += [path for path in (*DATA.rglob("*"), LOCK) if path.is_file() and "__pycache__" not in path.parts]
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in sorted(set(files)):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    if not LOCK.is_file():
        digest.update(repr(sorted(f"{item.name} {item.version}" for item in distributions())).encode())
    return digest.hexdigest()


def _digest(slug: str, given: dict[str, object], inputs: str) -> str:
    """Hash of what one executed chapter is made from; a parameter that names a file stands for its bytes too."""
    digest = hashlib.sha256(inputs.encode() + (chapter.CHAPTERS / f"{slug}.py").read_bytes())
    digest.update(json.dumps(given, sort_keys=True).encode())
    for _, value in sorted(given.items()):
        if isinstance(value, str) and os.path.isfile(value):  # noqa: PTH113 - a Path raises on over-long names
            digest.update(Path(value).read_bytes())
    return digest.hexdigest()


def _stored_digest(path: Path) -> str | None:
    try:
        return json.loads(path.read_bytes())["metadata"]["trnmodel"]["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _run_all(jobs: list[_Job], workers: int, progress: bool) -> list[str]:
    """Run jobs in parallel under one progress bar; the failures, one line each."""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what it would say is raised or checked here
    kernels, total = _Kernels(), sum(job.n_cells() for job in jobs)
    hidden = None if progress else True  # None hides the bar where there is no terminal
    with (
        tqdm(total=total, unit="cell", desc="chapters", disable=hidden) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:
            futures = [pool.submit(_run_one, job, kernels, bar.update) for job in jobs]
            return [failure for future in futures if (failure := future.result())]
        except BaseException:
            kernels.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_one(job: _Job, kernels: _Kernels, tick: Callable[[], object]) -> str | None:
    """Execute one chapter and write its notebook, or its error notebook and a line that says what failed."""
    live = [chapter.read(job.slug)]
    broken = job.path.with_suffix(".error.ipynb")
    with tempfile.TemporaryDirectory(prefix="trnmodel-", ignore_cleanup_errors=True) as folder:
        try:
            kernels.check()
            notebook = _execute(job, kernels, Path(folder), tick, live)
        except Exception as error:
            kernels.check()  # an interrupt is no failure of the chapter
            _write_whole(broken, _error_notebook(job.slug, live[-1], error))
            reason = f"{getattr(error, 'ename', type(error).__name__)}: {getattr(error, 'evalue', error)}"
            return f"chapter {job.slug!r} failed: {' '.join(reason.split())[:200]} (see {broken})"
        finally:
            ensure_event_loop().close()
    made = {"digest": job.digest, "parameters": job.given}
    _write_whole(job.path, clean(job.slug, notebook, made))
    broken.unlink(missing_ok=True)
    return None


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
    """The notebook without what differs between two equal runs: times, versions, random cell ids, empty tags."""
    source, metadata = notebook.metadata, {}
    metadata["kernelspec"] = source.get("kernelspec", KERNEL_NAME)
    metadata["language_info"] = {k: v for k, v in source.get("language_info", {}).items() if k != "version"}
    metadata["trnmodel"] = {k: v for k, v in source.get("trnmodel", {}).items() if k == "order"} | dict(made or {})
    notebook.metadata = nbformat.from_dict({key: value for key, value in metadata.items() if value})
    for index, cell in enumerate(notebook.cells):
        kept = {
            k: v for k, v in cell.metadata.items() if k not in ("papermill", "execution") and (k, v) != ("tags", [])
        }
        cell.metadata = nbformat.from_dict(kept)
        cell.id = f"{slug[:50]}-{index}"
    return notebook


def _error_notebook(slug: str, notebook: NotebookNode, error: Exception) -> NotebookNode:
    """What a failing chapter got to; papermill has marked a failing cell, other ends are told at the top."""
    if not isinstance(error, papermill.PapermillExecutionError):
        told = f"**The run ended here:** {type(error).__name__}: {error}"
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(told))
    return clean(slug, notebook)


def _write_whole(path: Path, notebook: NotebookNode) -> None:
    write_whole(path, nbformat.writes(notebook) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write beside the target, then replace it in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
