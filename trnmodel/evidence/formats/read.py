"""The one reader of other people's files: which tool wrote a file, its rows, what users state, and refusals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import HUGE, listed, one_of, refuse, shown
from trnmodel.catalog import untrusted
from trnmodel.declared import Checked, declare
from trnmodel.evidence.cells import COLUMNS, LONGEST_CELL, MOST, text
from trnmodel.evidence.columns import NAMES
from trnmodel.evidence.formats import (
    aiperf,
    collective_tests,
    guidellm,
    inferencex,
    llmperf,
    neuron_tools,
    optimum,
    own,
    training_logs,
    vllm_bench,
)
from trnmodel.evidence.formats.checks import checked
from trnmodel.evidence.formats.documents import FILE, Document, document, yaml_values
from trnmodel.evidence.formats.runs import Refusal, Run, number_of
from trnmodel.evidence.records import TYPES
from trnmodel.evidence.rows import MAX_ROWS
from trnmodel.result import Card
from trnmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

FORMATS: tuple[ModuleType, ...] = (  # the first that recognises a file reads it
    inferencex,
    vllm_bench,
    guidellm,
    llmperf,
    collective_tests,
    neuron_tools,
    aiperf,
    optimum,
    own,
    training_logs,
)
LISTINGS = (collective_tests, training_logs)  # whose lines may hold what a terminal has garbled
READ_HERE = (
    "vllm bench serve, guidellm, AIPerf or genai-perf, LLMPerf, InferenceX, nccl-tests, nccom-test, neuron-profile, "
    "neuron-monitor, optimum-benchmark, a training log of NeMo, NxD or Megatron-LM, and CSV or YAML of our own columns"
)
SHORT = {"system": "instance", "model": "workload", "release": "date_or_sdk"}  # names that users state
REPLACED = ("instance", "workload", "precision", "kind", "phase")  # what files print in names of their own
OF_A_NUMBER = ("source", "metric", "value", "unit", "id", "tier", "needs", "unasked", "measure", "statistic")
STATABLE = tuple(dict.fromkeys([*SHORT, *(name for name in (*COLUMNS, *TYPES, *NAMES) if name not in OF_A_NUMBER)]))
PLACE = ("file", "line", "tool", "run")  # columns in front of those of a row
REFUSED = ("file", "line", "figure", "reason")
DEGREES = ("n_chips", "n_cores_used", "lnc", "tp", "pp", "dp", "slots", "ranks", "machines")  # whole numbers of a row
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")  # of a release that is named by its number alone
SHOWN = 8  # refusals that the card lists


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasuredRows(Card):
    """Rows that were read from files, and what was not read.

    `rows` are measurements as `tm.validate` takes them, with `file`, `line`, `tool` and `run` in front. `refused` has a
    row for each figure that was not read: file, line, figure and the reason.
    """

    rows: pd.DataFrame
    refused: pd.DataFrame

    def card(self) -> list[str]:
        """Return how many rows were read from which tools' files, and the first refusals."""
        tools = self.rows.groupby("tool", sort=False).size() if len(self.rows) else {}
        read = ", ".join(f"{count:,} of {tool}" for tool, count in tools.items())
        lines = [f"{counted(len(self.rows), 'row')} read{f': {read}' if read else ''}; {len(self.refused):,} refused."]
        lines += [
            f"{row.file} line {row.line}, {row.figure}: {row.reason}"
            for row in self.refused.head(SHOWN).itertuples(index=False)
        ]
        more = len(self.refused) - SHOWN
        return lines + ([f"{more:,} more were refused."] if more > 0 else [])


@declare(
    paths=Checked("a path, or a list of paths", {"anyOf": [{"type": "string"}, {"type": "array"}]}),
    stated=Checked("a mapping of columns of a row to values", {"type": "object"}),
)
def read_measurements(
    paths: str | Path | Iterable[str | Path], stated: Mapping[str, Any] | None = None
) -> MeasuredRows:
    """Read files of benchmark tools into rows that `tm.validate` takes.

    Files are recognised by what they hold: `vllm bench serve`, guidellm, AIPerf and genai-perf, LLMPerf, InferenceX,
    nccl-tests, nccom-test, neuron-profile, neuron-monitor, optimum-benchmark, training logs of NeMo, NxD and
    Megatron-LM, and CSV or YAML of the columns of `data/evidence/measured.csv`. Most tools do not print the machine,
    its degrees or the release: state them, or `tm.validate` names the column that is missing.

    Parameters
    ----------
    paths : path or list of paths
        Regular files of at most 64 MiB, with at most 100,000 rows together. [-]
    stated : mapping, optional
        What the files do not state, for all their rows: "system", "model", "tp", "dp", "lnc", "precision", "engine",
        "release" (such as "SDK 2.28"), "slots" (sequences that the server decodes at once), "input_len", "ranks",
        "kind_of_call", "phase", or any other column of a row. It fills blank columns. System, model, precision, kind
        and phase replace what a file prints; any other column that a file states otherwise is a contradiction. [-]

    Returns
    -------
    measurements : MeasuredRows
        `.rows` and `.refused`, both tables with the file and the line. A figure that is no finite number above 0, that
        contradicts another of its run, or that is there twice, is refused.

    Raises
    ------
    ValueError
        A path is no readable file, a stated column is none, or the files have more rows than are read.

    Examples
    --------
    >>> import json, tempfile
    >>> run = {"model_id": "meta-llama/Llama-3.1-8B", "max_concurrency": 4, "duration": 40.0, "completed": 64}
    >>> run |= {"request_throughput": 1.6, "total_input_tokens": 65536, "mean_tpot_ms": 9.5}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run.json"
    ...     _ = path.write_text(json.dumps(run))
    ...     read = read_measurements(path, {"system": "trn2.48xlarge", "tp": 8})
    >>> read.rows[["metric", "value", "unit", "clients", "input_len", "tp"]].values.tolist()
    [['requests per second', 1.6, 'req/s', 4.0, 1024.0, 8], ['TPOT mean', 9.5, 'ms', 4.0, 1024.0, 8]]
    """
    several = [paths] if isinstance(paths, str | Path) else listed("paths", paths, (str, Path))
    known = _stated(stated)
    rows, refused, seen = list[dict[str, Any]](), list[dict[str, Any]](), dict[frozenset, str]()
    for path in [untrusted.as_path("paths", one) for one in several]:
        name = untrusted.printed(path)
        read = [row for one in _read(document(path)) for row in _rows(one, known, name, seen)]
        for row in read or [Refusal(1, FILE, "it holds no figure")]:
            (refused if isinstance(row, Refusal) else rows).append(_placed(name, row))
        if len(rows) + len(refused) > MAX_ROWS:
            raise ValueError(f"paths={name}: more than {MAX_ROWS} figures; allowed are at most {MAX_ROWS} together")
    return MeasuredRows(_table(rows, (*PLACE, *COLUMNS)), _table(refused, REFUSED))


def _stated(stated: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a user states, by the columns of a row, checked."""
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        refuse("stated", stated, "allowed is a mapping of columns of a row to values")
    columns = {
        SHORT.get(one_of("stated", name, STATABLE, "a column of a row"), name): _value(name, value)
        for name, value in stated.items()
    }
    release = text(columns.get("date_or_sdk", ""))
    return columns | ({"date_or_sdk": f"SDK {release}"} if VERSION.fullmatch(release) else {})


def _value(name: str, value: Any) -> str | int | float:
    """Return what a user states for a column: a text on one line, and a number where the column holds one."""
    argument, cell = f"stated[{shown(name)}]", text(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not cell:
        refuse(argument, value, "allowed is a text or a number")
    if len(cell) > LONGEST_CELL or not cell.isprintable():
        refuse(argument, value, f"allowed are up to {LONGEST_CELL} characters on one line")
    number = number_of(value)
    if name in DEGREES and not (1 <= number <= MOST and number % 1 == 0):
        refuse(argument, value, f"allowed are whole numbers from 1 to {MOST}")
    if TYPES.get(name) is float and not 0 <= number <= HUGE:
        refuse(argument, value, f"allowed are numbers from 0 to {HUGE:g}")
    if name == "release" and not re.search(r"\d", cell):
        refuse(argument, value, "allowed is a version or a day, such as 2.28 or 2026-03")
    if name == "engine" and not re.fullmatch(r"\w[\w .+-]{0,79}", cell):
        refuse(argument, value, "allowed is a name, such as vllm-neuron")
    return value


def _read(of: Document) -> Iterator[Run | Refusal]:
    """Return the runs of a file, by the first tool that recognises it."""
    if not of.text.strip():
        yield Refusal(1, FILE, "the file is empty")
        return
    if of.suffix in own.YAML and not own.recognises(of):
        of = yaml_values(of)
    for one in FORMATS:
        if one.recognises(of):
            if of.bad_line and one not in LISTINGS:
                yield Refusal(of.bad_line, FILE, "the line is not UTF-8")
            else:
                yield from one.runs(of)
            return
    yield from of.broken if of.is_json else []
    if not (of.is_json and of.broken):
        yield Refusal(1, FILE, f"no file of a tool that is read here; these are {READ_HERE}")


def _rows(
    of: Run | Refusal, stated: Mapping[str, Any], name: str, seen: dict[frozenset, str]
) -> Iterator[dict[str, Any] | Refusal]:
    """Return the rows of a run with what a user states, and what of it is refused."""
    if isinstance(of, Refusal):
        yield of
        return
    figures, refused = checked(of)
    yield from of.refused
    yield from refused
    for figure in figures:
        printed = {**of.cells, **figure.cells}
        if odd := _contradicted(printed, stated):
            yield Refusal(figure.line, figure.name, odd)
            continue
        cells = _with(printed, stated)
        if long := next((key for key, x in cells.items() if len(text(x)) > LONGEST_CELL), ""):
            yield Refusal(figure.line, figure.name, f"{long}: longer than {LONGEST_CELL} characters")
            continue
        key = frozenset((one, text(x)) for one, x in {**cells, "run": of.name}.items())
        where = f"{name} line {figure.line}"
        if key in seen:
            yield Refusal(figure.line, figure.name, f"the same figure of the same run as {seen[key]}; it counts once")
            continue
        seen[key] = where
        yield {"line": figure.line, "tool": of.tool, "run": of.name, "source": Path(name).name, **cells}


def _contradicted(cells: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    """Return why a row cannot be what a user states of it; nothing where it can."""
    for name, value in stated.items():
        mine = text(cells.get(name, ""))
        same = mine in ("", text(value)) or number_of(mine) == number_of(text(value))
        if not same and name not in (*REPLACED, "date_or_sdk"):
            return f"{name}: the file states {shown(mine)}, and {shown(text(value))} is stated for it"
    return ""


def _with(cells: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row with what a user states: blanks are filled, and names of a tool's own are replaced.

    What a tool's rows need is dropped where the user says that they are rows of another kind.
    """
    blank = {name: value for name, value in stated.items() if name in REPLACED or not text(cells.get(name, ""))}
    day, release = text(cells.get("date_or_sdk", "")), text(stated.get("date_or_sdk", ""))
    both = {"date_or_sdk": f"{day} {release}"} if day and release and release not in day else {}
    needs = {} if text(cells.get("kind", "")) == text({**cells, **blank}.get("kind", "")) else {"needs": ""}
    return {**cells, **blank, **both, **needs}


def _placed(name: str, row: dict[str, Any] | Refusal) -> dict[str, Any]:
    """Return a row or a refusal with its file."""
    if isinstance(row, Refusal):
        return {"file": name, "line": row.line, "figure": row.figure[:200], "reason": row.reason}
    return {"file": name, **row}


def _table(rows: list[dict[str, Any]], first: Iterable[str]) -> pd.DataFrame:
    """Return rows as a table: the columns that every row may have come first, blank cells are empty."""
    import pandas as pd

    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    columns = {name: [row.get(name, "") for row in rows] for name in names}
    return pd.DataFrame(columns, columns=list(names), dtype=None if rows else object)
