"""Measured against predicted: a row's own columns become a prediction, or a reason why not."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import TINY, refuse, shown
from trnmodel.catalog import load
from trnmodel.catalog.load import DATA
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies, efficiencies
from trnmodel.catalog.systems import System, system
from trnmodel.evidence.readings import COLUMNS, NEEDED, Reading, UnreadableRowError, number, reading, text
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.inference import MemoryFit, Step, decode_step, memory_fit, prefill
from trnmodel.steps.rank import site
from trnmodel.units import MIB

if TYPE_CHECKING:
    import pandas as pd

MAX_FILE_BYTES, MAX_ROWS, MAX_COLUMNS = 64 * MIB, 100_000, 1_000
JUDGED = "predicted error low high meaning model stack configuration weight set_aside skipped".split()
FITTED_UP = ("share", "bytes_per_s")
Tune = Callable[[Efficiencies], Efficiencies]


def machine(r: Reading) -> System | Chip:
    """The system of a reading, or the bare chip of a GPU reference row."""
    for find in (system, load.chip):
        try:
            return find(r.where)
        except ValueError:
            continue
    raise UnreadableRowError(f"instance {shown(r.where)} is unknown")


def _stack(r: Reading, tune: Tune | None) -> Efficiencies:
    where = machine(r)
    chosen = efficiencies(getattr(where, "chip", where), r.stack or None)
    return tune(chosen) if tune else chosen


def _decode(r: Reading, tune: Tune | None) -> Step:
    if math.isnan(r.context):
        raise UnreadableRowError("no context: neither lengths nor a compiled length")
    return decode_step(
        r.model,
        machine(r),
        r.degrees,
        batch=r.batch,
        compiled_batch=r.compiled_batch,
        context=r.context,
        max_context=max(r.max_context, r.context),
        precision=r.precision,
        efficiencies=_stack(r, tune),
    ).require_valid()


def _prefill(r: Reading, tune: Tune | None, batch: float = 1.0) -> Step:
    if math.isnan(r.prompt):
        raise UnreadableRowError("no input length, nor a compiled length")
    return prefill(
        r.model,
        machine(r),
        r.degrees,
        batch=batch,
        input_tokens=r.prompt,
        max_context=max(r.max_context, r.prompt),
        precision=r.precision,
        efficiencies=_stack(r, tune),
    ).require_valid()


def _step_s(r: Reading, tune: Tune | None) -> float:
    return float(_decode(r, tune).time_s)


def _prefill_s(r: Reading, tune: Tune | None) -> float:
    return float(_prefill(r, tune, r.batch).time_s)


def _one_prefill_s(r: Reading, tune: Tune | None) -> float:
    return float(_prefill(r, tune).time_s)


def _output(r: Reading) -> float:
    if math.isnan(r.output_tokens) or r.output_tokens <= 0:
        raise UnreadableRowError("no output length")
    return r.output_tokens


def _stalled_step_s(r: Reading, tune: Tune | None) -> float:
    """A decode step plus its part of the prefills of the other requests, one for every output length."""
    others = max(r.batch - 1, 0.0)
    return _step_s(r, tune) + others * _one_prefill_s(r, tune) / _output(r)


def _run_s(r: Reading, tune: Tune | None) -> float:
    return _prefill_s(r, tune) + max(_output(r) - 1, 0) * _step_s(r, tune)


def _batch_run_s(r: Reading, tune: Tune | None) -> float:
    return r.batch * _one_prefill_s(r, tune) + max(_output(r) - 1, 0) * _step_s(r, tune)


def _loaded_s(r: Reading, tune: Tune | None) -> float:
    return _one_prefill_s(r, tune) + _output(r) * _stalled_step_s(r, tune)


def _served(r: Reading, tune: Tune | None) -> float:
    return r.mapping[2] * r.batch * _output(r) / _loaded_s(r, tune)


def _total(r: Reading, tune: Tune | None) -> float:
    tokens = r.input_tokens + _output(r)
    return r.batch * tokens / _run_s(r, tune)


def _memory(kind: str) -> Callable[[Reading, Tune | None], float]:
    def stored(r: Reading, tune: Tune | None) -> float:
        fit: MemoryFit = memory_fit(
            r.model,
            machine(r),
            r.degrees,
            batch=r.batch,
            context=r.max_context,
            precision=r.precision,
            efficiencies=_stack(r, tune),
        )
        return float(getattr(fit, kind))

    return stored


def _mbu(r: Reading, tune: Tune | None) -> float:
    step = _decode(r, tune)
    return float(step.moved_bytes_per_rank / step.time_s / site(machine(r), r.mapping[3]).hbm_bytes_per_s)


def _mfu(r: Reading, tune: Tune | None) -> float:
    step = _prefill(r, tune)
    return float(step.work_flop_per_rank / step.time_s / site(machine(r), r.mapping[3]).peak(r.precision.compute))


PREDICTORS: Mapping[str, Callable[[Reading, Tune | None], float]] = {
    "decode-step": _step_s,
    "decode-throughput": lambda r, tune: r.batch / _step_s(r, tune),
    "prefill": _prefill_s,
    "forward": _prefill_s,
    "forward-throughput": lambda r, tune: r.batch * r.mapping[2] / _prefill_s(r, tune),
    "batch-prefill": lambda r, tune: r.batch * _one_prefill_s(r, tune),
    "burst-prefill": lambda r, tune: (r.batch + 1) / 2 * _one_prefill_s(r, tune),
    "prefill-throughput": lambda r, tune: r.batch * r.input_tokens / _prefill_s(r, tune),
    "reprefill-throughput": lambda r, tune: r.batch / _prefill_s(r, tune),
    "request-latency": _run_s,
    "run-per-token": lambda r, tune: _run_s(r, tune) / (r.input_tokens + _output(r)),
    "run-per-output-token": lambda r, tune: _run_s(r, tune) / _output(r),
    "generated-throughput": lambda r, tune: r.batch * _output(r) / _run_s(r, tune),
    "generated-throughput-batch": lambda r, tune: r.batch * _output(r) / _batch_run_s(r, tune),
    "total-throughput": _total,
    "loaded-step": _stalled_step_s,
    "loaded-request": _loaded_s,
    "served-throughput": _served,
    "served-requests": lambda r, tune: _served(r, tune) / _output(r),
    "served-single": lambda r, tune: 2 * _output(r) / (_one_prefill_s(r, tune) + _output(r) * _step_s(r, tune)),
    "one-prefill": _one_prefill_s,
    "queued-prefill": _one_prefill_s,
    "decode-read-bytes": lambda r, tune: float(_decode(r, tune).moved_bytes_per_rank),
    "decode-mbu": _mbu,
    "prefill-mfu": _mfu,
    "memory:total": _memory("total_bytes"),
    "memory:first": _memory("first_rank_total_bytes"),
    "memory:weights": _memory("weight_bytes"),
    "memory:cache": _memory("cache_bytes"),
    "memory:scratchpad": _memory("scratchpad_bytes"),
    "memory:collective": _memory("collective_buffer_bytes"),
    "memory:ring": _memory("ring_bytes"),
    "memory:code": _memory("code_bytes"),
}


def predict(r: Reading, tune: Tune | None = None) -> float:
    """What the model gives for a reading, in base units; raises UnreadableRowError with the reason for none."""
    try:
        value = PREDICTORS[r.meaning](r, tune)
    except UnreadableRowError:
        raise
    except ValueError as error:
        raise UnreadableRowError(str(error)) from None
    if r.percentile == "99":
        e = _stack(r, tune)
        value = (
            value * e.p99_over_p50 if r.meaning.endswith(("step", "prefill", "token", "forward", "latency")) else value
        )
    if not math.isfinite(value):
        raise UnreadableRowError("the model has no figure for a part of this row")
    if not value > 0:
        raise UnreadableRowError("the model gives nothing for what this row measures")
    return value


def _edge(high: bool) -> Tune:
    """Efficiencies at the end of their ranges that makes a step slow (`high`) or fast."""

    def tune(e: Efficiencies) -> Efficiencies:
        edges = {}
        for name, (low, up) in e.ranges.items():
            faster_is_more = name.endswith(FITTED_UP)
            edges[name] = low if faster_is_more == high else up
        return replace(e, **edges)

    return tune


@lru_cache(maxsize=65536)
def _interval(r: Reading) -> tuple[float, float, float]:
    plain = predict(r)
    ends = sorted((predict(r, _edge(False)), predict(r, _edge(True)), plain))
    return plain, ends[0], ends[-1]


def validation() -> pd.DataFrame:
    """The shipped measurements through `validate`, with the group that a split keeps together.

    Returns
    -------
    table : pandas.DataFrame
        As `validate` gives it, with `group`: kind, model and system family. Splits are by group, never by row.
    """
    table = validate(DATA / "evidence" / "measured.csv")
    family = table["instance"].str.extract(r"^([a-z]+[0-9]+)", expand=False).fillna("")
    names = table["model"].where(table["model"] != "", table["workload"])
    return table.assign(group=table["kind"] + "/" + names + "/" + family)


def _configuration(r: Reading, predicted: float) -> str:
    """A key that rows share which are one question: the same machine, stack, model, batch, meaning and answer."""
    question = (
        r.meaning,
        r.where,
        r.stack,
        r.mapping,
        str(getattr(r.model, "id", r.model)),
        r.compiled_batch,
        r.percentile,
        f"{predicted:.9g}",
    )
    return hashlib.sha1(repr(question).encode()).hexdigest()[:12]


def _content(path: Path) -> str:
    """The text of a regular file of at most 64 MiB; bytes that are no UTF-8 become replacement characters."""
    allowed = f"allowed is a readable CSV file, a regular one of at most {MAX_FILE_BYTES // MIB} MiB"
    try:
        if not path.is_file():
            refuse("rows", str(path), f"not a readable CSV file: {allowed}")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        refuse("rows", str(path), f"not a readable CSV file ({error.strerror}): {allowed}")
    if len(content) > MAX_FILE_BYTES:
        refuse("rows", str(path), f"the file is too large: {allowed}")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        refuse("rows", str(path), f"the file is UTF-16: {allowed}, in UTF-8")
    return content.decode("utf-8-sig", errors="replace")


def _from_csv(path: Path) -> pd.DataFrame:
    """The rows of a CSV file, cells as text; a short row ends in blank cells."""
    import pandas as pd

    reader = csv.reader(io.StringIO(_content(path), newline=""), strict=True)
    try:
        lines = list(islice(reader, MAX_ROWS + 2))
    except csv.Error as error:
        refuse("rows", str(path), f"not a readable CSV file: line {reader.line_num}: {error}")
    if not lines:
        refuse("rows", str(path), "not a readable CSV file: it is empty")
    header = lines[0]
    if len(header) > MAX_COLUMNS:
        refuse("rows", str(path), f"{len(header)} columns; allowed are at most {MAX_COLUMNS}")
    if len(lines) > MAX_ROWS + 1:
        refuse("rows", str(path), f"more than {MAX_ROWS} rows")
    for number_, line in enumerate(lines, start=1):
        if len(line) > len(header):
            refuse("rows", str(path), f"record {number_} has {len(line)} cells for {len(header)} columns")
    filled = [line + [""] * (len(header) - len(line)) for line in lines[1:] if line]
    return pd.DataFrame(filled, columns=header, dtype=str)


def _table(rows: pd.DataFrame | str | Path) -> pd.DataFrame:
    """The rows as a DataFrame, refused with one clear error where they are not such a table."""
    import pandas as pd

    if isinstance(rows, (str, Path)):
        rows = _from_csv(Path(rows))
    if not isinstance(rows, pd.DataFrame):
        refuse("rows", rows, "allowed is a DataFrame or the path of a CSV file")
    names = [name for name in rows.columns if isinstance(name, str)]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ValueError(f"rows: columns {missing} are missing; the format has {COLUMNS}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"rows: columns {shown(twice)} are given more than once")
    if len(rows) > MAX_ROWS:
        raise ValueError(f"rows: {len(rows)} rows; allowed are at most {MAX_ROWS}")
    return rows


def read_rows(rows: pd.DataFrame | str | Path) -> list[dict[str, str]]:
    """Measured rows as texts by column, checked; a column that is missing is blank."""
    return _texts(_table(rows))


def _texts(table: pd.DataFrame) -> list[dict[str, str]]:
    cells = [table[name].tolist() if name in table.columns else [""] * len(table) for name in COLUMNS]
    return [dict(zip(COLUMNS, map(text, row), strict=True)) for row in zip(*cells, strict=True)]


def read_models(models: Mapping[str, Any] | None) -> dict[str, Transformer]:
    """The models that a caller gives by workload name, each read once."""
    found = {}
    for name, value in ({} if models is None else _named(models)).items():
        try:
            found[text(name)] = read_model(value)
        except ValueError as error:
            raise ValueError(f"models[{shown(name)}]: {error}") from None
    return found


def _named(models: Any) -> Mapping[str, Any]:
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        refuse("models", models, "allowed is a mapping of workload names to models")
    return models


def measure(row: Mapping[str, str]) -> float:
    """The measured value of a row, in the row's unit; raises UnreadableRowError for none."""
    measured = number(row["value"])
    if not measured >= TINY:
        raise UnreadableRowError(f"value {shown(row['value'])} is no positive number")
    return measured


def _judge(row: dict[str, str], models: Mapping[str, Any] | None) -> dict[str, Any]:
    """One row's prediction beside its meaning, or the reason for none."""
    blank = dict.fromkeys(("predicted", "error", "low", "high"), math.nan)
    blank |= dict.fromkeys(("meaning", "model", "stack", "configuration", "set_aside"), "") | {"weight": 0.0}
    try:
        r, measured = reading(row, models), measure(row)
        value, low, high = (end / r.scale for end in _interval(r))
    except UnreadableRowError as reason:
        return blank | {"skipped": str(reason)}
    return {
        "predicted": value,
        "error": value / measured - 1,
        "low": low,
        "high": high,
        "meaning": r.meaning,
        "model": getattr(r.model, "id", r.model),
        "stack": r.stack,
        "configuration": _configuration(r, value * r.scale),
        "weight": r.weight,
        "set_aside": r.reason,
        "skipped": "",
    }


def validate(rows: pd.DataFrame | str | Path, models: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Predict measured rows from their own columns.

    A row that cannot be read or predicted says why and spoils no other. Blank cells (nothing, None, NaN) are unknown;
    lengths, degrees, batch and cores are numbers from 1, as tables print them.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements in the columns of `data/evidence/measured.csv`; of these instance, workload, metric, value and
        unit must be there. A file is a regular one, UTF-8, of at most 64 MiB; at most 100,000 rows. [-]
    models : mapping, optional
        Workload name to model (an id, the path of a config.json, or an object), asked before the alias table. [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with `predicted` (in the row's unit), `error` (predicted / measured - 1), `low` and `high` (all
        efficiencies at one end of their ranges), `meaning`, `model`, `stack`, `configuration` (a key that rows of one
        configuration share), `weight`, `set_aside` (why a predicted row does not count) and `skipped` (why a row has
        no prediction).

    Raises
    ------
    ValueError
        What is given is no such table, or one of the models is none.
    """
    import pandas as pd

    table, known = _table(rows), read_models(models)
    judged = pd.DataFrame([_judge(row, known) for row in _texts(table)], index=table.index, columns=JUDGED)
    return pd.concat([table.drop(columns=[name for name in JUDGED if name in table.columns]), judged], axis=1)
