"""Run chapters in parallel kernels with papermill; each notebook is written whole or not at all."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import CellControlSignal
from nbformat import NotebookNode
from papermill.exceptions import PapermillException
from tqdm import tqdm

from trnbook.charts.display import VIEW
from trnbook.report import folders, form
from trnbook.report.execute import ERROR, Job
from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.cli.errors import ChapterError, InputError, NoAnswerError, printable

PLACE = ("order", "part")  # of a chapter in the book
MAX_CELL_S = 1800
# What papermill, nbclient and jupyter_client raise: cells that fail or last too long, kernels that die or do not start.
FAILURES = (PapermillException, CellControlSignal, RuntimeError, OSError)
# Errors of a chapter by name, because they come from another process: refused parameters, and parameters that nothing
# satisfies.
NO_ANSWER = {UnanswerableError.__name__: InputError, ImpossibleError.__name__: NoAnswerError}
KERNEL_ENV = {"PYTHONHASHSEED": "0", "TQDM_DISABLE": "1"}
# A chapter makes many small objects and ends soon: looking for cycles among them took a twelfth of its time.
FEWER_COLLECTIONS = "--IPKernelApp.exec_lines=__import__('gc').set_threshold(50_000, 50, 50)"
KERNEL_NAME = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class _Kernels:
    """The kernel processes of one run, so that an interrupt can end them all."""

    processes: list[subprocess.Popen] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.stopped.set()
        for process in self.processes:
            process.kill()

    def check(self, **_: object) -> None:
        if self.stopped.is_set():
            raise RuntimeError("the run was interrupted")

    def manager(self, folder: Path) -> type[AsyncKernelManager]:
        """Kernel manager for this very interpreter, with sockets and start-up files in a folder of its own."""
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        argv.append(FEWER_COLLECTIONS)
        spec = KernelSpec(
            argv=argv, env=KERNEL_ENV | {"IPYTHONDIR": str(folder), "TMPDIR": str(folder)}, language="python"
        )
        processes = self.processes

        class Manager(AsyncKernelManager):
            kernel_spec = spec

            def __init__(self, **kwargs: Any) -> None:
                sockets = {"transport": "ipc", "ip": str(folder / "s"), "connection_file": str(folder / "k.json")}
                super().__init__(**kwargs | sockets)

            async def start_and_record(self, **kwargs: Any) -> None:
                await super().start_kernel(**kwargs)
                assert isinstance(self.provisioner, LocalProvisioner)  # its processes are of this machine
                assert self.provisioner.process is not None  # it has started
                processes.append(self.provisioner.process)

            start_kernel: Callable[..., Awaitable[None]] = start_and_record

        return Manager


def run_all(jobs: list[Job], workers: int, progress: bool, what: str = "chapters") -> list[Exception]:
    """Run jobs in parallel under one progress bar over cells of `what`; return the errors of those without a report."""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what it would say is raised or checked here
    kernels, total = _Kernels(), sum(_n_cells(job) for job in jobs)
    hidden = None if progress else True  # None hides the bar where there is no terminal
    with (
        folders.temporary() as home,
        tqdm(total=total, unit="cell", desc=what, disable=hidden) as bar,
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


def _n_cells(job: Job) -> int:
    code = [cell for cell in job.notebook().cells if cell.cell_type == "code" and cell.source.strip()]
    return len(code) + bool(job.parameters)


def _run_one(job: Job, kernels: _Kernels, home: Path, tick: Callable[[], object]) -> Exception | None:
    """Execute one chapter and write its notebook, or its error notebook and a line that says what failed."""
    live = [job.notebook()]
    broken = job.path.with_suffix(ERROR)
    home.mkdir()
    try:
        kernels.check()
        notebook = _execute(job, kernels, home, tick, live)
    except FAILURES as error:
        kernels.check()  # an interrupt is no failure of the chapter
        name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", error)
        if name in NO_ANSWER:
            return NO_ANSWER[name](job.unanswered(text))
        _write_whole(broken, _error_notebook(job.slug, live[-1], error))
        message = _one_line(f"{name}: {text}")[:200]
        return ChapterError(f"{job.called} failed: {message} (see {printable(broken)})")
    finally:
        ensure_event_loop().close()
    made = {"digest": job.digest, "parameters": job.parameters}
    _write_whole(job.path, clean(job.slug, notebook, made))
    broken.unlink(missing_ok=True)
    return None


def _one_line(text: object) -> str:
    return printable(" ".join(str(text).split()))


def _execute(job: Job, kernels: _Kernels, folder: Path, tick: Callable, live: list[NotebookNode]) -> NotebookNode:
    """Run the chapter in a kernel of its own; `live` receives the notebook while it fills."""
    return papermill.execute_notebook(
        live[0],
        None,
        parameters=job.parameters,
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
    """Fold a notebook and remove what differs between equal runs: times, versions, random ids, empty tags."""
    source, metadata = notebook.metadata, {}
    metadata["kernelspec"] = source.get("kernelspec", KERNEL_NAME)
    metadata["language_info"] = {k: v for k, v in source.get("language_info", {}).items() if k != "version"}
    metadata["trnmodel"] = {k: v for k, v in source.get("trnmodel", {}).items() if k in PLACE} | dict(made or {})
    notebook.metadata = nbformat.from_dict({key: value for key, value in metadata.items() if value})
    for index, cell in enumerate(notebook.cells):
        remaining = {
            k: v for k, v in cell.metadata.items() if k not in ("papermill", "execution") and (k, v) != ("tags", [])
        }
        cell.metadata = nbformat.from_dict(remaining)
        cell.id = f"{slug[:50]}-{index}"
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(VIEW, None)  # of a kernel that a Jupyter server's kernel has started
    return form.fold(notebook)


def _error_notebook(slug: str, notebook: NotebookNode, error: Exception) -> NotebookNode:
    """Return what a failed chapter had computed, with the cause at the top unless a cell is marked."""
    if not isinstance(error, papermill.PapermillExecutionError):
        message = _one_line(f"{type(error).__name__}: {error}")  # an indented line is shown as it stands
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(f"**The run ended here:**\n\n    {message}"))
    return clean(slug, notebook)


def _write_whole(path: Path, notebook: NotebookNode) -> None:
    folders.write_whole(path, form.written(notebook))
