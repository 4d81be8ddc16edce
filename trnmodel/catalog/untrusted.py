"""Files that somebody else wrote: only regular ones of a bounded size are read, and what is wrong is one line."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from trnmodel.arguments import refuse

MAX_ORIGIN, MAX_KEY = 200, 100  # characters of a path and of a key in a message
_QUOTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_LEVEL = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
_NO_BRACKETS = bytes(byte for byte in range(256) if not _LEVEL[byte])


def printed(path: Path) -> str:
    """Return a path as messages show it: on one line, its end where it is long."""
    line = "".join(letter if letter.isprintable() else "?" for letter in str(path))
    return line if len(line) <= MAX_ORIGIN else f"...{line[-MAX_ORIGIN:]}"


def content(argument: str, path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes`.

    Raises ValueError, naming the `argument` and the path, where there is no such file, where it is a folder, a pipe or
    a device, where it is too large, and where it cannot be read.
    """
    origin, held = printed(path), b""
    try:
        state = path.stat()
        if stat.S_ISREG(state.st_mode) and state.st_size:  # pipes and kernel logs would be waited for
            with path.open("rb") as stream:
                held = stream.read(most_bytes + 1)
    except FileNotFoundError:
        raise ValueError(f"{argument}={origin}: no such file") from None
    except OSError as error:
        raise ValueError(f"{argument}={origin}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{argument}={origin}: no path: {error}") from None
    if not stat.S_ISREG(state.st_mode):
        raise ValueError(f"{argument}={origin}: no regular file")
    if len(held) > most_bytes:
        raise ValueError(f"{argument}={origin}: the file is {state.st_size} B; allowed are up to {most_bytes} B")
    return held


def decoded(argument: str, path: Path, most_bytes: int) -> str:
    """Return the text of such a file, which is UTF-8."""
    try:
        return content(argument, path, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{argument}={printed(path)}: not UTF-8 at byte {error.start}") from None


def as_path(argument: str, value: object, of: str = "a file") -> Path:
    """Return a path that a caller gives as text or as a path."""
    if not isinstance(value, str | Path) or not str(value).strip() or not _can_be_named(str(value)):
        refuse(argument, value, f"allowed is the path of {of}")
    return Path(value)


def _can_be_named(path: str) -> bool:
    """Return whether the file system has a name for a text."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def depth(content: bytes) -> int:
    """Return how deeply lists and objects of a JSON text are nested.

    Examples
    --------
    >>> depth(b'{"a": [1, [2]], "[[[": 3}')
    3
    """
    brackets = _QUOTED.sub(b"", content).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_LEVEL.__getitem__, brackets)), default=0)


def _once(origin: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object, in which each key stands once."""
    values = dict(pairs)
    if len(values) != len(pairs):
        doubled = Counter(key for key, _ in pairs).most_common(1)[0][0]
        values_of_it = [value for key, value in pairs if key == doubled]
        refuse(f"{origin}: {doubled[:MAX_KEY]}", values_of_it, "the key is given more than once")
    return values


def json_object(content: bytes, origin: str, what: str, deepest: int, **hooks: Any) -> dict[str, Any]:
    """Return the object that a JSON text of somebody else holds; `what` says what it is to be, `hooks` read numbers.

    Raises ValueError, with its origin, where the text is nested too deeply, is no JSON, has a key twice or is a list.
    """
    if depth(content) > deepest:
        raise ValueError(f"{origin}: nested too deeply for {what}, allowed are {deepest} levels")
    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=partial(_once, origin), **hooks)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{origin}: not a JSON text: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{origin}: holds a JSON {type(values).__name__}; {what} is an object")
    return values
