"""Rows in one set of words: what others call a metric, a unit, a workload -> what `patterns.csv` calls it."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import cache, lru_cache

import msgspec

from trnmodel.catalog.load import DATA, read_csv
from trnmodel.evidence.kinds import kind_of
from trnmodel.evidence.names import plain
from trnmodel.units import GIB, KIB, MIB

SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([KMG]?)(?:i?B|ytes)\b", re.IGNORECASE)
SIZES = {"": 1, "K": KIB, "M": MIB, "G": GIB}  # a tool that writes KB counts in powers of two
RANKS = re.compile(
    r"(?:\b(\d+)[ -]?(?:logical |neuron ?)?(?:ranks?|cores?|workers?|devices?|NCs?)\b|\b(?:ranks?|world|n)[ =:]*(\d+)"
    r"|(?<=[x×@]) ?(\d+)$)",
    re.IGNORECASE,
)
KINDS = {
    "allr": "all_reduce",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allg": "all_gather",
    "redsct": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "permute": "p2p",
    "sendrecv": "p2p",
}  # names that nccom-test prints
KIND = re.compile(
    r"\b(all[ _-]?reduce|all[ _-]?gather|reduce[ _-]?scatter|all[ _-]?to[ _-]?all|broadcast|send[ _/-]?recv"
    r"|allr|allg|redsct)\b",
    re.IGNORECASE,
)
FORMAT = re.compile(r"\b(mxfp8|mxfp4|fp8|fp16|fp32|bf16)\b", re.IGNORECASE)
NO_PREFILL = re.compile(r"decode|SDPA prefill \d|cte|layer", re.IGNORECASE)
MATRIX = re.compile(r"(?<!\d)(\d+) ?[x×,] ?(\d+)(?!\d)")  # rows and columns of a message
ELEMENT_BYTES = {"fp32": 4.0, "fp8": 1.0}  # others have two
HEADS = {
    "heads": r"(?:heads|\bH|\bQH)[ =:]*(\d+)|(\d+) ?(?:q(?:uery)? ?)?heads",
    "kv": r"kv[ _]?heads?[ =:]*(\d+)|(\d+) ?kv ?heads|\bKVH?[ =:]*(\d+)",
    "size": r"\bd(?:_?head|h)?[ =:]*(\d+)|head(?: ?dim|_?size|_dim)[ =:]*(\d+)",
    "length": r"\b(?:S|seq(?:uence|len)?(?:[ _]?len(?:gth)?)?|tokens|L|N)[ =:]*(\d+)|(\d+) quer(?:y|ies)",
    "batch": r"\b(?:B|bs|batch(?:[ _]?size)?)[ =:]*(\d+)|(\d+) sequences?",
    "queries": r"(\d+) quer(?:y|ies)",
    "keys": r"(\d+) (?:cached|context) tokens|\bkeys[ =:]*(\d+)|(\d+) keys",
}  # of an attention kernel, in any order

STATISTIC = re.compile(r"(p\d\d|mean|median|average|avg\.?|min|max|best)?\s*([(\[][^()]*[)\]])?", re.IGNORECASE)
SHAPES = {
    "tp": re.compile(r"(?<![\w-])TP ?[=:]? ?(\d+)\b", re.IGNORECASE),
    "pp": re.compile(r"(?<![\w-])PP ?[=:]? ?(\d+)\b", re.IGNORECASE),
    "dp": re.compile(r"(?<![\w-])DP ?[=:]? ?(\d+)\b", re.IGNORECASE),
    "lnc": re.compile(r"(?<![\w-])LNC ?[=:]? ?(\d+)\b", re.IGNORECASE),
    "batch": re.compile(r"(?<![\w-])(?:bs ?[=:]?|batch[ _]?size ?[=:]?|batch ?[=:]) ?(\d+)\b", re.IGNORECASE),
    "input_len": re.compile(r"(?<![\w-])ISL ?[=:]? ?(\d+)\b", re.IGNORECASE),
    "output_len": re.compile(r"(?<![\w-])OSL ?[=:]? ?(\d+)\b", re.IGNORECASE),
}  # that a note states
UNFILLED = re.compile(r"^(other-chip|wide-experts|gpu-)")  # tables whose notes speak of several groups of workers


class Spelling(msgspec.Struct, frozen=True):
    """Another word for what the patterns know: its cell, the kind and phase of its rows, and what it becomes."""

    cell: str
    kind: str
    phase: str
    pattern: str
    becomes: str
    note: str


@cache
def _spellings() -> tuple[tuple[Spelling, re.Pattern, re.Pattern, re.Pattern], ...]:
    """Return the shipped spellings with their patterns."""
    rows = read_csv(DATA / "evidence" / "spellings.csv", Spelling)
    return tuple(
        (one, re.compile(one.kind, re.I), re.compile(one.phase, re.I), re.compile(one.pattern, re.I)) for one in rows
    )


def spelt(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row in the words of the patterns: kind, phase, metric, unit and workload as others write them.

    Examples
    --------
    >>> row = {"kind": "LLM serving", "phase": "", "metric": "mean time per output token (ms)", "unit": "msec"}
    >>> [spelt(row | {"workload": ""})[name] for name in ("kind", "metric", "unit")]
    ['inference-LLM-serving', 'TPOT mean', 'ms']
    """
    cells = {name: plain(cell) for name, cell in row.items()}
    cells["metric"], named = cells["metric"].replace("_", " "), FORMAT.search(cells["workload"])
    if STATISTIC.fullmatch(cells["metric"]):
        cells["metric"] = f"{cells['phase']} {cells['metric']}"
    cells |= _spelt(cells, ("kind",))
    cells["kind"] = kind_of(cells)
    cells |= _spelt(cells, ("phase", "metric", "workload", "unit"))
    if cells["kind"] == "collective":
        cells["workload"] = _collective(cells["workload"], cells.get("note", ""), _ranks(cells))
    if cells["kind"] == "kernel":
        cells["precision"] = cells["precision"] or (named[1] if named else "")
        cells["workload"] = _attention(cells["workload"])
    return cells


def _spelt(row: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    """Return the cells of a row by the shipped spellings of some of them."""
    other = dict(row)
    for one, kind, phase, pattern in _spellings():
        if one.cell in names and kind.search(other["kind"]) and phase.search(other["phase"]):
            other[one.cell] = pattern.sub(one.becomes, other[one.cell].strip(), count=1)
    return other


@lru_cache(maxsize=2**12)
def _shapes(note: str) -> dict[str, tuple[str, ...]]:
    """Return the different numbers that a note gives to each cell of the shapes."""
    shapes = {name: pattern.findall(plain(note)) for name, pattern in SHAPES.items()}
    return {name: tuple(dict.fromkeys(numbers)) for name, numbers in shapes.items() if numbers}


def _blank_shapes(row: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return what the note of a row states of its blank cells of shapes."""
    stated = {} if UNFILLED.search(row.get("kind", "")) else _shapes(row.get("note", ""))
    return {name: numbers for name, numbers in stated.items() if not row.get(name)}


def filled(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row whose blank cells of shapes hold what its note states: "TP=8, bs=4, ISL 1024".

    Examples
    --------
    >>> filled({"note": "TP=8, bs=4", "batch": "2", "tp": ""})
    {'note': 'TP=8, bs=4', 'batch': '2', 'tp': '8'}
    """
    return {**row, **{name: numbers[0] for name, numbers in _blank_shapes(row).items() if len(numbers) == 1}}


def contradiction(row: Mapping[str, str]) -> str:
    """Return why the note of a row does not say what a blank cell holds: two numbers; nothing where there is none.

    Examples
    --------
    >>> contradiction({"note": "TP=8 and TP=16", "tp": ""}), contradiction({"note": "TP=8 and TP=16", "tp": "16"})
    ('note: tp is 8 and 16', '')
    """
    odd = [f"{name} is {' and '.join(numbers)}" for name, numbers in _blank_shapes(row).items() if len(numbers) > 1]
    return f"note: {odd[0]}" if odd else ""


def _ranks(row: Mapping[str, str]) -> str:
    """Return the ranks of a row by its columns: those of a group, else its cores over those of a logical one."""
    cores, logical = (re.match(r"\d{1,6}", row.get(name, "")) for name in ("n_cores_used", "lnc"))
    return row.get("tp", "") or (f"{int(cores[0]) // max(int(logical[0]) if logical else 1, 1)}" if cores else "")


def _collective(workload: str, note: str, ranks: str = "") -> str:
    """Return a collective with its kind, ranks and bytes wherever they stand: "all_reduce 64 ranks size=1048576B".

    Examples
    --------
    >>> _collective("All-to-all: 16 MB x 64", ""), _collective("allreduce 1GB", "", "32")
    ('all_to_all, 64 ranks size=16777216B', 'all_reduce, 32 ranks size=1073741824B')
    """
    kind, message_bytes = KIND.search(workload), _message_bytes(workload, note)
    named = RANKS.search(workload) or RANKS.search(note)
    among = next((n for n in named.groups() if n), "") if named else ranks
    if not (kind and message_bytes and among):
        return workload
    spelling = re.sub(r"[ _/-]", "", kind[1].lower())
    return f"{KINDS.get(spelling, spelling)}, {among} ranks size={message_bytes}B"


def _message_bytes(workload: str, note: str) -> str:
    """Return the bytes of a message by its size or by its rows and columns; an empty text where neither is stated."""
    if size := SIZE.search(workload) or SIZE.search(note):
        return f"{float(size[1]) * SIZES[size[2].upper()]:.0f}"
    if shape := MATRIX.search(workload):
        element = next((n for word, n in ELEMENT_BYTES.items() if word in workload.lower()), 2.0)
        return f"{int(shape[1]) * int(shape[2]) * element:.0f}"
    return ""


def _attention(workload: str) -> str:
    """Return an attention kernel with heads, head size, batch and length in the order of the patterns.

    Examples
    --------
    >>> _attention("flash attention fwd, B=2 S=4096 16 heads d128")
    'SDPA prefill 16/16 heads d128 B2 S4096'
    >>> _attention("attention, 32 q heads, 8 kv heads, head_dim 128, 4 sequences, 1 query each, 8192 cached tokens")
    'attention decode 32/8 heads d128 B4 Q1 S8192'
    """
    if not re.search(r"attention|sdpa", workload, re.I):
        return workload
    hits = {name: re.search(pattern, workload, re.I) for name, pattern in HEADS.items()}
    sizes = {name: next(n for n in hit.groups() if n) for name, hit in hits.items() if hit}
    heads, size, batch = sizes.get("heads", ""), sizes.get("size", "128"), sizes.get("batch", "1")
    who = f"{heads}/{sizes.get('kv', heads)} heads d{size} B{batch}"
    if {"heads", "queries", "keys"} <= sizes.keys():
        return f"attention decode {who} Q{sizes['queries']} S{sizes['keys']}"
    if NO_PREFILL.search(workload) or not {"heads", "length"} <= sizes.keys():
        return workload
    return f"SDPA prefill {who} S{sizes['length']}"
