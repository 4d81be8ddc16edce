"""Measured rows -> readings: what a number means, and the machine, model and shapes that it belongs to.

The rules are data: `data/evidence/row_contract.csv` (first to last, a later rule overrides the cells that it fills) and
`data/evidence/workload_aliases.csv` (first match). Rows that nobody has seen yet go through the same rules.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import numpy as np

from trnmodel.arguments import HUGE, shown
from trnmodel.catalog import load
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.specs import Precision
from trnmodel.models import shipped
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import GB, GIB, HOUR, KB, MB, MIB, MINUTE, MS, US, parse_number

COLUMNS = (
    "source date_or_sdk instance n_chips n_cores_used lnc workload phase batch input_len output_len seq_len tp pp dp "
    "precision metric value unit note kind tier"
).split()
NEEDED = ("instance", "workload", "metric", "value", "unit")
COUNTS = ("n_cores_used", "lnc", "batch", "input_len", "output_len", "seq_len", "tp", "pp", "dp")
WHOLE = ("n_cores_used", "lnc", "tp", "pp", "dp")
MOST = 2**40  # tokens, sequences or ranks of a row
LONGEST_CELL = 2000  # characters
TIMES = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": MS, "us": US, "min": MINUTE, "h": HOUR, "hours": HOUR}
TOKENS, REQUESTS = {"tokens/s": 1.0, "tok/s": 1.0}, {"req/s": 1.0}
SEQUENCES = {"inf/s": 1.0, "sequences/s": 1.0, "samples/s": 1.0, **REQUESTS}
SHARES = {"fraction": 1.0, "%": 0.01}
SIZES = {"KB": KB, "MB": MB, "GB": GB, "MiB": MIB, "GiB": GIB, "bytes": 1.0, "B": 1.0}
# a meaning that ends so, or begins so, is in these units; any other is a time
UNITS = {
    "forward-throughput": SEQUENCES,
    "served-requests": REQUESTS,
    "throughput": TOKENS,
    "throughput-batch": TOKENS,
    "served-single": TOKENS,
    "mbu": SHARES,
    "mfu": SHARES,
    "read-bytes": SIZES,
    "memory:": SIZES,
}
FORMATS = re.compile(r"bf16|bfloat16|fp16|float16|fp32|float32|fp8|float8|int8|mxfp[48]|w4a8|auto-?cast|not printed")


class Rule(msgspec.Struct, frozen=True):
    """One decision about rows: patterns to match on the left, cells to set on the right."""

    rule: str
    kind: str
    source: str
    date: str
    instance: str
    workload: str
    phase: str
    metric: str
    shape: str
    note: str
    meaning: str
    stack: str
    batch: str
    context: str
    prompt: str
    percentile: str
    rounding: str
    unit: str
    replicas: str
    speculative: str
    precision: str
    weight: str
    reason: str


class Alias(msgspec.Struct, frozen=True):
    """A pattern of workload names and the model that they mean."""

    pattern: str
    model: str
    note: str


MATCHED = ("kind", "source", "date", "instance", "workload", "phase", "metric", "shape", "note")
SET = (
    "meaning",
    "stack",
    "batch",
    "context",
    "prompt",
    "percentile",
    "rounding",
    "unit",
    "replicas",
    "speculative",
    "precision",
    "weight",
)


class UnreadableRowError(ValueError):
    """A row that cannot become a prediction, and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one measured number means, in base units."""

    meaning: str
    model: str
    where: str
    stack: str
    mapping: tuple[int, int, int, int | None]
    precision: Precision
    batch: float
    compiled_batch: float
    prompt: float
    input_tokens: float
    output_tokens: float
    context: float
    max_context: float
    percentile: str
    scale: float
    rounding: float
    weight: float
    reason: str

    @property
    def degrees(self) -> Degrees:
        """The mapping of one replica, `dp` times."""
        tp, pp, dp, lnc = self.mapping
        return Degrees(tp=tp, pp=pp, dp=dp, lnc=lnc)


@cache
def rules() -> tuple[tuple[Rule, tuple[tuple[str, re.Pattern], ...]], ...]:
    """The row contract with its patterns compiled."""
    compiled = []
    for rule in read_csv(DATA / "evidence" / "row_contract.csv", Rule):
        cells = [(name, getattr(rule, name)) for name in MATCHED if getattr(rule, name)]
        compiled.append((rule, tuple((name, re.compile(cell, re.IGNORECASE)) for name, cell in cells)))
    return tuple(compiled)


@cache
def aliases() -> tuple[tuple[re.Pattern, str], ...]:
    """Patterns of workload names with the model that each means."""
    rows = read_csv(DATA / "evidence" / "workload_aliases.csv", Alias)
    return tuple((re.compile(row.pattern, re.IGNORECASE), row.model) for row in rows)


def number(text: Any) -> float:
    """A number as the tables print it: "~200", "1500±150", "4k (~4096)", "17-19" (its midpoint); NaN for none.

    Commas part thousands; what is no such number, runs backwards or is beyond 1e30 is NaN too.

    Examples
    --------
    >>> number("1500±150"), number("4k (~4096)"), number("100-1024 (random)"), number("~900"), number("")
    (1500.0, 4096.0, 562.0, 900.0, nan)
    >>> number("1,024"), number("1,5"), number("1-1e999")
    (1024.0, nan, nan)
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text) if abs(text) <= HUGE else math.nan
    printed = text.strip() if isinstance(text, str) else ""
    value = _bounded(re.sub(r"±.*|\(.*", "", printed, flags=re.DOTALL))
    inner = re.search(r"\(~?(\d+)\)", printed)
    return _bounded(inner[1]) if inner and math.isnan(value) else value


def _bounded(printed: str) -> float:
    """The middle of a printed number or range; NaN where either end is none, or none that a row can have."""
    value, low, high = parse_number(printed)
    odd_commas = re.search(r",(?!\d{3}(?!\d))", printed)
    return value if -HUGE <= low <= high <= HUGE and not odd_commas else math.nan


def text(cell: Any) -> str:
    """A cell as the rules read it: whole numbers without a point, nothing for a blank, "<list>" for a list.

    Examples
    --------
    >>> text(64.0), text(None), text(float("nan")), text([64]), text(" BF16")
    ('64', '', '', '<list>', 'BF16')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bool | np.bool_ | datetime.date | decimal.Decimal | np.datetime64):
        return str(cell)
    if isinstance(cell, int | float | np.integer | np.floating):
        value = int(cell) if isinstance(cell, int | np.integer) else float(cell)
        return "" if value != value else f"{value:.15g}" if abs(value) <= HUGE else "beyond 1e30"
    return "" if cell is None or type(cell).__name__ in ("NAType", "NaTType") else f"<{type(cell).__name__}>"


def shape(row: Mapping[str, str]) -> str:
    """The shapes of a row as one text that rules can match."""
    cells = {"batch": "batch", "in": "input_len", "out": "output_len", "seq": "seq_len", "tp": "tp", "dp": "dp"}
    return "".join(f"{label}={row[name]};" for label, name in cells.items())


def contract(row: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Cells that the rules set for a row, and the reasons of those that took weight from it."""
    texts = {name: row.get(name, "") for name in MATCHED} | {"date": row["date_or_sdk"], "shape": shape(row)}
    texts["workload"] = bare_name(row["workload"])
    cells = dict.fromkeys(SET, "")
    reason = ""
    for rule, patterns in rules():
        if all(pattern.search(texts[name]) for name, pattern in patterns):
            cells.update({name: getattr(rule, name) for name in SET if getattr(rule, name)})
            reason = rule.reason if rule.weight else reason
    return cells, reason


def bare_name(workload: str) -> str:
    """A workload's name without the publisher in front."""
    return re.sub(
        r"^(?:[\w.-]+/|(?:meta-llama|qwen|mistralai|deepseek-ai|nousresearch|google)_)",
        "",
        workload.strip(),
        flags=re.I,
    )


def model_of(workload: str, models: Mapping[str, Any] | None = None) -> Any:
    """The model that a workload name means: one that the caller gives, one of the table, or one of the catalog."""
    if models and workload in models:
        return models[workload]
    name = bare_name(workload)
    named = [model for pattern, model in aliases() if pattern.search(re.sub(r"^meta-", "", name, flags=re.I))]
    for candidate in (*named[:1], workload, name):
        if known := shipped.aliases().get(candidate.lower()):
            return known
    raise UnreadableRowError(f"no configuration of {shown(workload)} in the catalog")


def counts(row: Mapping[str, str]) -> dict[str, float]:
    """The numbers of a row's shapes, NaN for a blank cell; raises UnreadableRowError naming the column of any other."""
    found = {}
    for name in COUNTS:
        found[name] = value = number(row[name])
        whole = name not in WHOLE or value % 1 == 0
        if row[name] and not (1 <= value <= MOST and whole):
            kind = "whole numbers" if name in WHOLE else "numbers"
            raise UnreadableRowError(f"{name} {shown(row[name])}: allowed are {kind} from 1 to {MOST}, or a blank cell")
    return found


def _length(policy: str, n: Mapping[str, float], fallback: float) -> float:
    """A length by the contract's policy: "seq", "median" (position), a number; else the fallback."""
    known = {
        "seq": n["seq_len"],
        "median": n["input_len"] + n["output_len"] / 2 + 1,
        "total": n["input_len"] + n["output_len"],
    }
    value = known.get(policy, number(policy))
    return fallback if math.isnan(value) else value


def _first(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), math.nan)


def _mapping(n: Mapping[str, float], replicas: float) -> tuple[int, int, int, int | None]:
    """TP, PP, DP and logical core size; a missing TP is what cores, LNC and the other degrees leave."""
    pp, dp, per_rank, tp = _first(n["pp"], 1.0), _first(n["dp"], 1.0), _first(n["lnc"], 1.0), n["tp"]
    if not math.isnan(replicas):
        tp, dp = _first(tp, 1.0), replicas
    if math.isnan(tp):
        tp = max(1.0, _first(n["n_cores_used"], per_rank) / per_rank / pp / dp)
    if tp % 1:
        cores = f"{n['n_cores_used']:g} cores at LNC {per_rank:g}, PP {pp:g}, DP {dp:g}"
        raise UnreadableRowError(f"n_cores_used: {cores} leave no whole TP")
    return int(tp), int(pp), int(dp), None if math.isnan(n["lnc"]) else int(n["lnc"])


def _precision(printed: str) -> Precision:
    text = printed.lower()
    if text and not FORMATS.search(text):
        raise UnreadableRowError(f"precision {shown(printed)}: names no format that the rules know")
    if "fp8" in text and "expert" in text:
        return replace(load.precision("bf16"), name="fp8-experts", experts="fp8")
    if text == "fp32-autocast":
        return replace(load.precision("fp32"), name=text, compute="bf16", attention="bf16")
    names = [("w4a8", "w4a8"), ("mxfp8", "mxfp8"), ("mxfp4", "mxfp4-moe"), ("fp8", "fp8"), ("int8", "int8")]
    return load.precision(next((preset for word, preset in names if word in text), "bf16"))


def _where(instance: str) -> str:
    gpu = re.search(r"\b(H100|H200|A100|B200)\b", instance, re.I)
    return gpu[1].lower() if gpu else instance.split(" ")[0].lower()


def _lengths(n: Mapping[str, float], cells: Mapping[str, str]) -> dict[str, float]:
    """Prompt, output, context and compiled maximum of a row, each by the contract or by what the row says."""
    given, out, seq = n["input_len"], n["output_len"], n["seq_len"]
    total = given + out
    return {
        "input_tokens": _first(given, number(cells["prompt"]), seq),
        "output_tokens": _first(out, seq - given if seq > given else math.nan),
        "prompt": _length(cells["prompt"], n, _first(given, seq)),
        "context": _length(cells["context"], n, _first(total, seq, given)),
        "max_context": _first(seq, total, given, number(cells["context"]), number(cells["prompt"])),
    }


def _compiled_batch(note: str, policy: str, batch: float, replicas: int) -> float:
    """Sequences of the compiled graph: the row's, a number, "total:N" over all replicas, or what the note says."""
    found = re.search(policy.removeprefix("note:"), note) if policy.startswith("note:") else None
    stated = number(found[1] if found else policy.removeprefix("total:"))
    if found and not 1 <= stated <= MOST:
        raise UnreadableRowError(f"note: a compiled batch of {shown(found[1])}: allowed are numbers from 1 to {MOST}")
    return max(batch, _first(stated / (replicas if policy.startswith("total:") else 1), batch))


def _scale(meaning: str, printed: str, override: str) -> float:
    """Base units in the unit of a row, which must be one of its meaning; an override "MB=MiB" says what one means."""
    unit = printed.partition(" ")[0]
    before, _, after = override.partition("=")
    fits = [units for end, units in UNITS.items() if meaning.endswith(end) or meaning.startswith(end)]
    known = fits[0] if fits else TIMES
    if unit not in known:
        raise UnreadableRowError(f"unit {shown(printed)}: units of {meaning} are {', '.join(known)}")
    return known[after if unit == before else unit]


def reading(row: Mapping[str, str], models: Mapping[str, Any] | None = None) -> Reading:
    """What a row means; raises UnreadableRowError with the reason for a row that cannot be predicted."""
    for name in COLUMNS:
        if len(row[name]) > LONGEST_CELL:
            raise UnreadableRowError(f"{name}: a cell of {len(row[name])} characters; allowed are {LONGEST_CELL}")
    cells, reason = contract(row)
    if not cells["meaning"]:
        raise UnreadableRowError(
            f"no rule gives a meaning to metric {shown(row['metric'])} of kind {shown(row['kind'])}"
        )
    if cells["meaning"] == "set-aside":
        raise UnreadableRowError(reason or f"metric {shown(row['metric'])} has no counterpart in the model")
    scale, model = _scale(cells["meaning"], row["unit"], cells["unit"]), model_of(row["workload"], models)
    n = counts(row)
    mapping = _mapping(n, number(cells["replicas"]))
    batch, weight = _first(n["batch"], 1.0), float(cells["weight"] or 1)
    if cells["batch"].startswith("total"):
        batch = max(1.0, batch / mapping[2])
    return Reading(
        meaning=cells["meaning"],
        model=model,
        where=_where(row["instance"]),
        stack=cells["stack"],
        mapping=mapping,
        precision=_precision(cells["precision"] or row["precision"]),
        batch=batch,
        compiled_batch=_compiled_batch(row["note"], cells["batch"], batch, mapping[2]),
        percentile=cells["percentile"],
        scale=scale,
        rounding=float(cells["rounding"] or 0),
        weight=weight,
        reason="" if weight else reason,
        **_lengths(n, cells),
    )
