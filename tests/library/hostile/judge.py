"""What a call may answer to a hostile argument: one plain ValueError that names it, or a result that makes sense."""

from __future__ import annotations

import inspect
import io
import re
import resource
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trnmodel.catalog.specs import Spec
from trnmodel.models.transformer import Transformer
from trnmodel.result import Result
from trnmodel.steps.mapping import Mapping as Degrees

LONGEST_MESSAGE = 400
CPU_S = 5.0
MORE_BYTES = 3 * 2**30
MOST_DIMENSIONS = 32
SIGNED = {  # may be below zero by design
    "error": "predicted over measured, less one",
    **dict.fromkeys(("difference", "difference_low", "difference_high"), "over what another system makes, less one"),
}
ENDLESS = {
    "kv_stream_bytes_per_s",
    "host_logit_bytes_per_s",
    "prefill_spill_bytes_per_s",
    "graph_layers",
    "bucket_bytes",
    "state_stream_bytes_per_s",
    "checkpoint_bytes_per_s",
    "interval_s",  # between checkpoints where nothing fails
    "young_s",
    "mtbf_s",
}  # infinite: no limit
OF_PAIRS = "tp ep pp cp chips paid_chips replicas_per_decode_replica chips_per_decode_chip".split()
UNKNOWN = {  # may be NaN where the result is valid
    "requests_per_s": "the request states no rate",
    **dict.fromkeys([*(f"prefill_{name}" for name in OF_PAIRS), "transfer_s", "transfer_bytes"], "prompts run beside"),
    "busbw_bytes_per_s": "no bus bandwidth is defined for one rank",
    "predicted": "no prediction, with the reason in `skipped`",
    "error": "no prediction, with the reason in `skipped`",
    "low": "no prediction, with the reason in `skipped`",
    "high": "no prediction, with the reason in `skipped`",
}


@contextmanager
def little_memory() -> Iterator[None]:
    """An address space that ends before a hostile call can take the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = Path("/proc/self/statm")
    if used.is_file():
        pages = int(used.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class SlowError(Exception):
    """A call took more CPU than any should."""


def _stop(*_: object) -> None:
    raise SlowError(f"more than {CPU_S:g} s of CPU")


def attempt(
    call: Any, arguments: Mapping[str, Any], spoiled: Mapping[str, bool], *, unknown: bool = False, signed: bool = False
) -> str:
    """What is wrong with the answer to a call, or nothing.

    `spoiled` names the arguments that were spoiled, each with whether it must be refused. `unknown` lets a result be
    NaN, as where an argument is NaN for "not published"; `signed` lets it be negative.
    """
    printed = io.StringIO()
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        with warnings.catch_warnings(record=True) as heard, redirect_stdout(printed), redirect_stderr(io.StringIO()):
            warnings.simplefilter("always")
            found = _answer(call, arguments, spoiled, unknown, signed)
    except SlowError as error:
        return str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    said = f"warning: {heard[0].category.__name__}: {heard[0].message}" if heard else ""
    return "; ".join(filter(None, (found, said, printed.getvalue() and "prints")))


def _answer(call: Any, arguments: Mapping[str, Any], spoiled: Mapping[str, bool], unknown: bool, signed: bool) -> str:
    try:
        result = call.function(**arguments)
    except SlowError:
        raise
    except Exception as error:
        return wrong_error(error, {alias for name in spoiled for alias in (name, *call.also.get(name, ()))})
    if any(spoiled.values()):
        return "accepted"
    try:
        return insane(result, unknown, signed)
    except SlowError:
        raise
    except Exception as error:
        return f"result that raises {type(error).__name__}: {error}"[:160]


def wrong_error(error: Exception, names: set[str]) -> str:
    """What is wrong with an error about one of some arguments, or nothing."""
    kind, text = type(error), _text(error)
    if not isinstance(error, ValueError) or not (kind is ValueError or kind.__module__.startswith("trnmodel.")):
        return f"{kind.__name__}: {text}"[:160]
    if not any(re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text) for name in names):
        return f"names no {'|'.join(sorted(names))}: {text}"[:200]
    if len(text) > LONGEST_MESSAGE:
        return f"message of {len(text)} characters: {text}"[:120]
    return "" if text.isprintable() else f"message does not print on one line: {text!r}"[:160]


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return "an error that cannot be shown"


def insane(result: Any, unknown: bool = False, signed: bool = False) -> str:
    """What is wrong with a result, or nothing: numbers of what is valid are finite and not negative."""
    for name, value, valid in numbers(result):
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            return f"{name} is no number: {value!r}"[:120]
        if array.ndim > MOST_DIMENSIONS:
            return f"{name} has {array.ndim} dimensions, more than NumPy broadcasts"
        array, seen = np.broadcast_arrays(array, np.asarray(valid, dtype=bool))
        key = name.split(".")[-1]
        nan_ok = unknown or key in UNKNOWN or isinstance(result, Spec)
        endless = ~np.isfinite(array) & ~(np.isnan(array) & nan_ok) & (key not in ENDLESS)
        bad = endless | ((array < 0) & (key not in SIGNED and not signed))
        if np.any(bad & seen):
            return f"{name} = {float(array[bad & seen].flat[0])!r}"
    return _unsafe(result)


def numbers(result: Any) -> Iterator[tuple[str, Any, Any]]:
    """The numbers of a result, each with its name and whether its points are valid."""
    kind = type(result).__name__
    if isinstance(result, Result):
        yield from ((f"{kind}.{name}", value, result.valid) for name, value in parts(result) if _counts(value))
    elif isinstance(result, Spec | Degrees):
        yield from (
            (f"{kind}.{name}", number, True)
            for name, value in parts(result, properties=False)
            if name not in ("sources", "ranges", "estimates")
            for number in (value.values() if isinstance(value, Mapping) else [value])
            if _counts(number)
        )
    elif isinstance(result, Transformer):
        yield from ((f"{kind}.{name}", getattr(result, name), True) for name in ("total_params", "n_layers"))
    elif isinstance(result, pd.DataFrame):
        valid = result["valid"] if "valid" in result else np.full(len(result), True)
        yield from ((str(name), result[name], valid) for name in result if result[name].dtype.kind in "iuf")
    elif isinstance(result, Mapping):
        yield from ((str(name), value, True) for name, value in result.items() if _counts(value))
    elif isinstance(result, tuple | list):
        yield from (found for item in result for found in numbers(item))
    elif is_dataclass(result) and not isinstance(result, type):
        yield from ((f"{kind}.{f.name}", v, True) for f in fields(result) if _counts(v := getattr(result, f.name)))
    elif _counts(result):
        yield kind, result, True


def _counts(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iufc"
    return isinstance(value, int | float | complex | np.number)


def parts(result: Any, properties: bool = True) -> Iterator[tuple[str, Any]]:
    """Fields of a dataclass and, where wanted, its public properties."""
    for spec_field in fields(result):
        if spec_field.name != "reason_mask":
            yield spec_field.name, getattr(result, spec_field.name)
    if properties:
        for name, _ in inspect.getmembers_static(type(result), lambda item: isinstance(item, property)):
            if not name.startswith("_"):
                yield name, getattr(result, name)


def _unsafe(result: Any) -> str:
    """Whether what is to be shown can be shown, and shows text as text."""
    if isinstance(result, Transformer) and not re.fullmatch(r"[\w. +-]{1,80}", result.id):
        return f"id {result.id!r} is no plain name"[:120]
    if type(result).__module__ == "trnbook.charts.tables":
        return "HTML with raw text" if "<img" in result._repr_html_() or "</script" in result._repr_html_() else ""
    if hasattr(result, "to_dict") and type(result).__module__.startswith("altair"):
        result.to_dict()
    return ""
