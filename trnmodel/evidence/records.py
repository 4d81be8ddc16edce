"""Typed records: what a table says of a measured number, each word of it read once into a column.

`data/evidence/patterns.csv` is a list of general patterns, read first to last: in which cell of which kind of rows
words stand, and which columns they fill; a later pattern overrides the columns that it fills. No pattern sees the
source, the value or the id of a row. What no word says stays unknown.

What a page of measurements states of all its rows, in its text or its scripts, and not in their cells, is transcribed
in `data/evidence/statements.csv` with its place. A statement fills typed columns as a user would who brings the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from math import nan
from typing import Any, get_type_hints

import msgspec

from trnmodel.catalog.load import DATA, DataError, read_csv
from trnmodel.evidence.cells import number, tokens
from trnmodel.evidence.names import bare_name, plain
from trnmodel.evidence.spellings import filled, spelt
from trnmodel.units import BILLION, TRILLION

CELLS = ("kind", "phase", "metric", "unit", "rate", "workload", "instance", "date", "precision", "note", "text")
TEXT = ("workload", "phase", "precision", "metric", "unit", "note")  # cells that are one text for the words of a run
SHAPES = ("batch", "input_len", "output_len", "seq_len", "tp", "pp", "dp", "n_cores_used", "lnc")
DECIDING = (*(name for name in CELLS if name not in ("date", "rate", "text")), "date_or_sdk", *SHAPES)
FLAGS = re.IGNORECASE | re.MULTILINE
POWERS = {"B": BILLION, "T": TRILLION}  # of tokens


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The typed columns of a measured row; an empty text and NaN are unknown."""

    # what the number is of
    measure: str = ""
    statistic: str = ""
    first_of: str = ""  # "batch": the first token of a whole batch
    batch_of: str = ""  # "replicas": the batch is that of all replicas
    interval_of: str = ""  # "gap": between two tokens, "whole": a request over its tokens, "bare": nothing is named
    rate_of: str = ""  # "replicas": the rate is that of all replicas
    rank: str = ""  # "first": of the first rank alone
    inside: str = ""  # of launch, host, queue: what is inside the time
    rounding: str = ""  # half a step of a rounded value, or "digit"
    megabyte: str = ""  # "binary": the unit counts by 1,024
    read_unit: str = ""  # "ms=tokens/s": the unit of a number that its page prints in the column of another
    contradiction: str = ""  # why the shapes of a row cannot be those of a run, in words joined by "_"
    format: str = ""  # of all numbers of a model, where the cell of the precision does not say it
    cache_format: str = ""  # of the cache, where it differs from what the precision says
    unasked: str = ""  # why the number has no question, in words of whoever read it from a file
    needs: str = ""  # columns without which a row is not asked, "tp|n_cores_used" for one of two, parted by blanks
    # machine and software
    system: str = ""
    server_of: str = ""
    machines: float = nan
    network: str = ""
    maker: str = ""
    engine: str = ""
    release: str = ""
    sdk: str = ""
    day: str = ""
    steps: str = ""  # "async": the next step starts before the token is on the host
    kernels: str = ""
    server: str = ""  # "yes": requests go through a server
    # requests and load
    served: str = ""
    scheduling: str = ""  # static, single, closed, open or burst
    clients: str = ""  # requests that a client keeps in flight, or "batch"
    requests: float = nan
    arrival_per_s: float = nan
    in_flight: float = nan
    slots: float = nan
    draft_tokens: float = nan
    new_tokens: float = nan
    cached: str = ""
    generates: str = ""
    apart: str = ""  # "yes": prefill and decode run on machines of their own
    prefill_machines: float = nan
    decode_machines: float = nan
    lengths: str = ""
    # shapes
    prompt_bucket: str = ""  # tokens that a prompt is padded to, or "length": the compiled length
    context_bucket: str = ""  # the same of a context, or "median": the bucket of the middle of a run
    longest: float = nan
    buckets: str = ""  # "one": one graph of the compiled length
    chunk: float = nan
    input_tokens: float = nan
    pages: float = nan
    page_tokens: float = nan
    expert_ranks: float = nan
    expert_groups: float = nan  # groups of TP that share out whole experts, where the cell has the ranks of one group
    tensor_ranks: float = nan  # ranks of TP, where the cell is blank
    run_batch: float = nan  # sequences that ran, where other figures of the page contradict the cell
    attention_replicas: float = nan
    attention_tp: float = nan
    prefill_replicas: float = nan
    decode_tp: float = nan
    prefill_chunk: float = nan
    bound: str = ""  # "prefill": most steps wait for one
    launches: float = nan  # of the host in a step
    call_rows: float = nan  # tokens of one call of a prefill, over all replicas of attention
    replicas: str = ""  # "cores", or a number
    layers: str = ""
    hbm_bytes_per_s: float = nan
    # training
    micro_batch: float = nan
    accumulation: float = nan  # micro-batches of a replica in a step
    adapters: str = ""
    recompute: str = ""  # none, selective or full
    zero: float = nan  # stage of ZeRO
    sequence_parallel: str = ""  # "1" or "0"
    interleave: float = nan  # stages of a pipeline on each rank
    context_ranks: float = nan
    network_gbit_per_s: float = nan  # of a machine
    tokens: float = nan  # of a whole run
    # kernels
    core_of: str = ""  # the chip that has the cores
    op: str = ""
    function: str = ""
    dtype: str = ""
    m: float = nan
    k: float = nan
    n: float = nan
    square: str = ""
    groups: str = ""
    products: float = nan  # narrower ones that make one product
    physical_cores: float = nan  # that a kernel keeps busy, where counters of its page contradict the cell
    transpose: str = ""
    hidden: float = nan
    experts: float = nan
    experts_per_token: float = nan
    expert_intermediate: float = nan
    heads: float = nan
    kv_heads: float = nan
    head_size: float = nan
    sequences: float = nan
    queries: float = nan
    keys: float = nan
    causal: float = nan
    rows: float = nan
    columns: float = nan
    transfer_kib: float = nan
    elements: float = nan
    axis: str = ""  # along which a vector is moved in pieces: "row" or "free"
    row_bytes: float = nan
    transfers: float = nan
    engines: float = nan
    channels: float = nan
    filters: float = nan
    height: float = nan
    width: float = nan
    window: float = nan
    code: str = ""
    buffering: str = ""
    version: str = ""
    peak_flop_per_s: float = nan
    operator: str = ""
    analytic: str = ""
    # collectives
    kind_of_call: str = ""
    ranks: float = nan
    message_bytes: float = nan
    message_kib: float = nan
    message_mib: float = nan
    message_gib: float = nan
    graph: str = ""
    count: float = nan
    each: str = ""
    exchange: str = ""  # "dispatch" or "combine" of experts, through buffers with fixed slots
    per_choice: str = ""  # "yes": every chosen expert's row comes back, not the sum of a rank's
    tokens_per_rank: float = nan
    load_imbalance: float = nan
    waits: str = ""  # "yes": the host waits for each call before the next
    series: str = ""  # the listing that a line of a sweep belongs to
    q: float = nan
    gpu: str = ""

    def known(self) -> dict[str, str | float]:
        """Return the columns that are known.

        Examples
        --------
        >>> Record(measure="step", micro_batch=2.0).known()
        {'measure': 'step', 'micro_batch': 2.0}
        """
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: x for name, x in values.items() if x != "" and x == x}


TYPES: Mapping[str, type] = get_type_hints(Record)


class Pattern(msgspec.Struct, frozen=True):
    """Words of a cell, and the columns that they fill: by name, or the named groups of the pattern."""

    name: str
    kind: str
    phase: str
    cell: str
    match: str
    fills: str
    note: str


class Statement(msgspec.Struct, frozen=True):
    """What a page states of its rows: those for which `where` holds, the columns that it fills, and its place."""

    page: str
    where: str
    fills: str
    printed: str
    locator: str


def fills_of(text: str) -> dict[str, str]:
    """Return the columns that a text fills; raises DataError for a name that is no column.

    Examples
    --------
    >>> fills_of("measure=mfu rank=first")
    {'measure': 'mfu', 'rank': 'first'}
    """
    pairs = [pair.partition("=") for pair in text.split()]
    if odd := [name for name, _, _ in pairs if name not in TYPES]:
        raise DataError(f"{text!r}: {odd} are no columns of a record")
    return {name: value for name, _, value in pairs}


@cache
def patterns() -> tuple[tuple[Pattern, re.Pattern, re.Pattern, re.Pattern, dict[str, str]], ...]:
    """Return the shipped patterns, in order, compiled; raises DataError naming the pattern that is none.

    Returns
    -------
    patterns : tuple
        Of each pattern: itself, its kind, phase and match compiled, and the columns that it fills by name. [-]

    Examples
    --------
    >>> [fills for one, *_, fills in patterns() if one.name == "whole-batch"]
    [{'first_of': 'batch'}]
    """
    compiled = []
    for one in read_csv(DATA / "evidence" / "patterns.csv", Pattern):
        try:
            if one.cell not in CELLS:
                raise DataError(f"cell {one.cell!r}: allowed are {', '.join(CELLS)}")
            kind, phase, match = (re.compile(text, FLAGS) for text in (one.kind, one.phase, one.match))
            compiled.append((one, kind, phase, match, fills_of(one.fills)))
        except (re.error, DataError) as error:
            raise DataError(f"patterns.csv {one.name}: {error}") from None
    return tuple(compiled)


@cache
def _statements() -> tuple[tuple[Statement, dict[str, str], dict[str, str]], ...]:
    rows = read_csv(DATA / "evidence" / "statements.csv", Statement)
    return tuple(
        (one, dict(pair.split("=", 1) for pair in one.where.split(";") if pair), fills_of(one.fills)) for one in rows
    )


def document(source: str) -> str:
    """Return what a source is beside its version: the page or the pull request.

    Examples
    --------
    >>> document("aws-neuron-sdk libraries/a.rst @81ce03ae")
    'aws-neuron-sdk libraries/a.rst'
    """
    return re.sub(r"\s*@\w+.*$", "", source).strip()


def pattern_cells(row: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row as patterns see them: as they stand and, below, as `spelt` has them.

    Kind and phase are the words of `spelt` alone; a workload is without its publisher; `rate` is metric and unit, and
    `text` all cells in which a run of training states its options.

    Examples
    --------
    >>> row = {"metric": "Mean TPOT (ms)", "workload": "meta-llama/Llama-3.1-8B", "kind": "serving"}
    >>> pattern_cells(row)["metric"].splitlines(), pattern_cells(row)["kind"]
    (['Mean TPOT (ms)', 'TPOT Mean'], 'inference-LLM-serving')
    """
    cells = {name: plain(row.get(name, "")) for name in DECIDING}
    of_run = "; ".join(cells[name] for name in TEXT)
    cells["workload"] = bare_name(cells["workload"])
    other = spelt(cells)
    seen = {name: text if text == other[name] else f"{text}\n{other[name]}" for name, text in cells.items()}
    phase = re.sub(r"^(decode|prefill|e2e)\b.*", r"\1", other["phase"], flags=re.IGNORECASE)
    rate = f"{other['metric']} in {other['unit']}"
    return seen | {"kind": other["kind"], "phase": phase, "date": seen["date_or_sdk"], "rate": rate, "text": of_run}


def _value(name: str, text: str) -> Any:
    """Return a column's value: a number where it is one of numbers, NaN for a text that is none."""
    if TYPES[name] is str:
        return text.strip().lower() if name == "statistic" else text.strip()
    if name == "tokens" and text[-1:].upper() in POWERS:
        return number(text[:-1]) * POWERS[text[-1].upper()]
    return tokens(text) if name == "chunk" else number(text)


@lru_cache(maxsize=2**14)
def _read(cells: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the columns that the words of a row fill, as text, and the patterns that had a say."""
    row = pattern_cells(dict(zip(DECIDING, cells, strict=True)))
    columns: dict[str, str] = {}
    used = []
    for one, kind, phase, match, fills in patterns():
        if kind.search(row["kind"]) and phase.search(row["phase"]) and (hit := match.search(row[one.cell])):
            groups = {name.rstrip("2"): text for name, text in hit.groupdict().items() if text}
            columns |= fills | groups
            used.append(one.name)
    return columns, tuple(used)


def stated(row: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return what the page of a row states beyond its cells.

    Parameters
    ----------
    row : mapping of str to str
        The cells of a row, with its `source`. [-]
    columns : mapping of str to str
        Columns that its words fill; a condition of a statement names one of them, or a cell. [-]

    Returns
    -------
    columns : dict of str to str
        Columns that the page fills beyond them. [-]

    Examples
    --------
    >>> stated({"source": "a page that nobody has read"}, {"measure": "token_interval"})
    {}
    """
    page, say = document(row.get("source", "")), dict[str, str]()
    if not page:
        return say
    for one, where, fills in _statements():
        if page.startswith(one.page) and all(_holds(row, {**columns, **say}, *pair) for pair in where.items()):
            say |= fills
    return say


def _holds(row: Mapping[str, str], columns: Mapping[str, str], name: str, allowed: str) -> bool:
    """Return whether a cell or column has one of the allowed values: "batch" in "1|2|4", or "any", or "none"."""
    value = columns.get(name, "") or row.get(name, "")
    if allowed in ("any", "none"):
        return bool(value) == (allowed == "any")
    return value.lower() in allowed.lower().split("|")


def read(row: Mapping[str, str], statements: bool = True) -> tuple[Record, tuple[str, ...]]:
    """Return a row's record and the patterns that had a say.

    Parameters
    ----------
    row : mapping of str to str
        The cells of a row by column, as text; typed columns may stand among them by name and win. [-]
    statements : bool
        Whether what the row's page states beyond its cells counts. [-]

    Returns
    -------
    record : Record
        Typed columns. [-]
    patterns : tuple of str
        Names of `data/evidence/patterns.csv`. [-]

    Examples
    --------
    >>> row = {"kind": "inference-LLM-serving", "metric": "TPOT mean", "note": "concurrency=4", "workload": ""}
    >>> read(row)[0].known()
    {'measure': 'token_interval', 'statistic': 'mean', 'served': 'yes', 'scheduling': 'closed', 'clients': '4'}
    """
    row = filled(row)
    columns, used = _read(tuple(row.get(name, "") for name in DECIDING))
    say = columns | (stated(row, columns) if statements else {})
    say |= {name: text for name in TYPES if name not in SHAPES and (text := row.get(name, ""))}
    return Record(**{name: _value(name, text) for name, text in say.items() if name in TYPES}), used


def check(rows: Iterable[Mapping[str, str]]) -> None:
    """Refuse statements about pages that none of the rows is of; raises DataError naming them."""
    rows = list(rows)
    pages = {document(row.get("source", "")) for row in rows}
    if idle := [one.page for one, _, _ in _statements() if not any(page.startswith(one.page) for page in pages)]:
        raise DataError(f"statements.csv: no row is of the pages {sorted(set(idle))}")


def is_known(value: Any) -> bool:
    """Return whether a column is known.

    Examples
    --------
    >>> is_known(""), is_known(nan), is_known(4.0)
    (False, False, True)
    """
    return bool(value != "" and value == value)
