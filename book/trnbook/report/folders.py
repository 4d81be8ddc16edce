"""Folders that a run writes into: one run at a time, every output whole at every moment, and no leftovers.

A run claims its folder by a lock on the file `.trnmodel.lock` in it. The system lets go of a lock when its process
ends, however it ends, so whatever is named `.trnmodel-*` in a folder that a run has just claimed belongs to no living
run and goes. A folder of pages is replaced by two renames; a run that is killed between them leaves the old one whole
under `.trnmodel-*/replaced`, and the next claim puts it back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from trnmodel.cli.errors import InputError, printable

LOCK = ".trnmodel.lock"
SCRATCH = ".trnmodel-"
REPLACED = "replaced"
TEMPORARY = "trnmodel-"
MAX_SOCKET_FOLDER = 92  # the path of a socket has at most 103 bytes on every system

_claims: ContextVar[frozenset[str]] = ContextVar("_claims", default=frozenset())


@contextmanager
def claimed(folder: str | Path) -> Iterator[None]:
    """Make a folder where there is none, keep other runs out of it, and clear away what killed runs left there.

    Raises InputError where it cannot be written or another run is writing there. A folder that was made for nothing is
    removed again. Who has claimed a folder may claim it once more.
    """
    path = Path(folder)
    try:
        own = os.path.realpath(path)
    except ValueError:  # a NUL, or half a character
        raise InputError(f"{printable(path)} is no name of a folder") from None
    with _made(path):
        if own in _claims.get():
            yield
            return
        lock = _lock(path)
        token = _claims.set(_claims.get() | {own})
        try:
            _sweep(path)
            yield
        finally:
            _claims.reset(token)
            with suppress(OSError):
                (path / LOCK).unlink()
            os.close(lock)


@contextmanager
def _made(path: Path) -> Iterator[None]:
    """Remove at the end those folders of a path that were not there at the start and that nobody filled."""
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    try:
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def _lock(folder: Path) -> int:
    """Open and lock the lock file of a folder; another run may remove either until the lock holds."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise InputError(f"{printable(folder)} is no folder that can be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise InputError(
                f"another run is writing into {printable(folder)}; wait for it, or name another folder"
            ) from None
        except FileNotFoundError:  # its last owner has removed it
            pass
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Remove what a killed run left in a folder, and put back what it was about to replace."""
    for left in folder.glob(f"{SCRATCH}*"):
        for old in (left / REPLACED).glob("*"):
            if not os.path.lexists(folder / old.name):
                old.rename(folder / old.name)
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Make a hidden folder for half-made files inside a claimed folder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH, ignore_cleanup_errors=True) as name:
        yield Path(name)


def swap(built: Path, target: Path) -> Path:
    """Put a folder made in a scratch folder in the place of the old one; the old one stays whole until then."""
    old = built.parent / REPLACED / target.name
    old.parent.mkdir()
    try:
        if target.exists():
            target.rename(old)
        built.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
    old.parent.rename(built)  # from here on it may be half removed, and must not be put back
    return target


def write_whole(path: Path, text: str) -> None:
    """Write a draft next to the target, then replace the target in one step."""
    draft = path.with_name(f"{SCRATCH}{path.name}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def temporary() -> Iterator[Path]:
    """Make a folder in the system's temporary folder with a path short enough for sockets; remove dead ones.

    Making and clearing take turns by a lock on the system's folder: a folder just made has no lock yet.
    """
    root = Path(tempfile.gettempdir())
    with ExitStack() as held:
        with _turn(root):
            for left in root.glob(f"{TEMPORARY}????????"):
                _remove_if_dead(left)
            made = tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=root, ignore_cleanup_errors=True)
            path = Path(held.enter_context(made))
            held.enter_context(claimed(path))
        if len(os.fsencode(path)) > MAX_SOCKET_FOLDER:
            raise InputError(f"{printable(path)}: too long a path for sockets; set TMPDIR to a shorter one")
        yield path


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other run is between making a temporary folder and locking it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_if_dead(folder: Path) -> None:
    """Remove a temporary folder whose lock nobody holds; one without a lock only if it is empty."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)
