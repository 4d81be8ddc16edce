"""Measured rows -> readings: what a number means, and the machine, model and shapes that it belongs to.

The rules are data: `data/row_contract.csv` (first to last, a later rule overrides the cells that it fills) and
`data/workload_aliases.csv` (first match). Rows that nobody has seen yet go through the same rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from trnmodel.catalog import load
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.specs import Precision
from trnmodel.units import GB, GIB, HOUR, KB, MB, MIB, MINUTE, MS, US
from trnmodel.workloads import transformer
from trnmodel.workloads.parallelism import Mapping as Degrees

COLUMNS = (
    "source date_or_sdk instance n_chips n_cores_used lnc workload phase batch input_len output_len seq_len tp pp dp "
    "precision metric value unit note kind tier"
).split()
NEEDED = ("instance", "workload", "metric", "value", "unit")
SCALES = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": MS, "us": US, "min": MINUTE, "h": HOUR, "hours": HOUR}
SCALES |= {
    "tokens/s": 1.0,
    "tok/s": 1.0,
    "req/s": 1.0,
    "inf/s": 1.0,
    "sequences/s": 1.0,
    "samples/s": 1.0,
    "fraction": 1.0,
}
SCALES |= {"KB": KB, "MB": MB, "GB": GB, "MiB": MIB, "GiB": GIB, "bytes": 1.0, "B": 1.0, "%": 0.01}


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
    for rule in read_csv(DATA / "row_contract.csv", Rule):
        cells = [(name, getattr(rule, name)) for name in MATCHED if getattr(rule, name)]
        compiled.append((rule, tuple((name, re.compile(cell, re.IGNORECASE)) for name, cell in cells)))
    return tuple(compiled)


@cache
def aliases() -> tuple[tuple[re.Pattern, str], ...]:
    """Patterns of workload names with the model that each means."""
    rows = read_csv(DATA / "workload_aliases.csv", Alias)
    return tuple((re.compile(row.pattern, re.IGNORECASE), row.model) for row in rows)


def number(text: Any) -> float:
    """A number as the tables print it: "~200", "1500±150", "4k (~4096)", "17-19" (its midpoint); NaN for none.

    Examples
    --------
    >>> number("1500±150"), number("4k (~4096)"), number("100-1024 (random)"), number("~900"), number("")
    (1500.0, 4096.0, 562.0, 900.0, nan)
    """
    if isinstance(text, (int, float)):
        return float(text)
    text = str(text or "").strip()
    inner = re.search(r"\(~?(\d+)\)", text)
    text = inner[1] if inner else re.sub(r"±.*|\(.*", "", text)
    from trnmodel.units import parse_number

    return parse_number(text)[0]


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
        try:
            return transformer.model(candidate).id
        except ValueError:
            continue
    raise UnreadableRowError(f"no configuration of {workload!r} in the catalog")


def _length(policy: str, row: Mapping[str, str], fallback: float) -> float:
    """A length by the contract's policy: "seq", "median" (position), a number; else the fallback."""
    total = number(row["input_len"]) + number(row["output_len"])
    known = {
        "seq": number(row["seq_len"]),
        "median": number(row["input_len"]) + number(row["output_len"]) / 2 + 1,
        "total": total,
    }
    value = known.get(policy, number(policy) if policy else math.nan)
    return fallback if math.isnan(value) else value


def _first(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), math.nan)


def _mapping(row: Mapping[str, str], replicas: float) -> tuple[int, int, int, int | None]:
    """TP, PP, DP and logical core size; a missing TP is what cores, LNC and the other degrees leave."""
    lnc = number(row["lnc"])
    cores = number(row["n_cores_used"])
    pp, dp = (int(_first(number(row[name]), 1)) for name in ("pp", "dp"))
    per_rank = 1 if math.isnan(lnc) else lnc
    tp = number(row["tp"])
    if not math.isnan(replicas):
        tp, dp = _first(tp, 1.0), int(replicas)
    if math.isnan(tp):
        tp = max(1.0, _first(cores, per_rank) / per_rank / pp / dp)
    if tp != int(tp):
        raise UnreadableRowError(f"{cores:g} cores at LNC {per_rank:g}, PP {pp}, DP {dp} leave no whole TP")
    return int(tp), pp, dp, None if math.isnan(lnc) else int(lnc)


def _precision(text: str) -> Precision:
    text = text.lower()
    if "fp8" in text and "expert" in text:
        return replace(load.precision("bf16"), name="fp8-experts", experts="fp8")
    if text == "fp32-autocast":
        return replace(load.precision("fp32"), name=text, compute="bf16", attention="bf16")
    names = [("w4a8", "w4a8"), ("mxfp8", "mxfp8"), ("mxfp4", "mxfp4-moe"), ("fp8", "fp8"), ("int8", "int8")]
    return load.precision(next((preset for word, preset in names if word in text), "bf16"))


def _where(instance: str) -> str:
    gpu = re.search(r"\b(H100|H200|A100|B200)\b", instance, re.I)
    return gpu[1].lower() if gpu else instance.split(" ")[0].lower()


def _lengths(row: Mapping[str, str], cells: Mapping[str, str]) -> dict[str, float]:
    """Prompt, output, context and compiled maximum of a row, each by the contract or by what the row says."""
    given, out, seq = number(row["input_len"]), number(row["output_len"]), number(row["seq_len"])
    total = given + out
    return {
        "input_tokens": _first(given, number(cells["prompt"]), seq),
        "output_tokens": _first(out, seq - given if seq > given else math.nan),
        "prompt": _length(cells["prompt"], row, _first(given, seq)),
        "context": _length(cells["context"], row, _first(total, seq, given)),
        "max_context": _first(seq, total, given, number(cells["context"]), number(cells["prompt"])),
    }


def _compiled_batch(note: str, policy: str, batch: float, replicas: int) -> float:
    """Sequences of the compiled graph: the row's, a number, "total:N" over all replicas, or what the note says."""
    if policy.startswith("note:"):
        found = re.search(policy.removeprefix("note:"), note)
        return max(float(found[1]), batch) if found else batch
    stated = number(policy.removeprefix("total:")) / (replicas if policy.startswith("total:") else 1)
    return max(batch, _first(stated, batch))


def reading(row: Mapping[str, str], models: Mapping[str, Any] | None = None) -> Reading:
    """What a row means; raises UnreadableRowError with the reason for a row that cannot be predicted."""
    cells, reason = contract(row)
    if not cells["meaning"]:
        raise UnreadableRowError(f"no rule gives a meaning to metric {row['metric']!r} of kind {row['kind']!r}")
    if cells["meaning"] == "set-aside":
        raise UnreadableRowError(reason or f"metric {row['metric']!r} has no counterpart in the model")
    unit = (cells["unit"] or row["unit"]).split(" ")[0]
    if unit not in SCALES:
        raise UnreadableRowError(f"unit {row['unit']!r} is unknown; known are {sorted(SCALES)}")
    batch = _first(number(row["batch"]), 1.0)
    weight = float(cells["weight"] or 1)
    mapping = _mapping(row, number(cells["replicas"]))
    if cells["batch"].startswith("total"):
        batch = max(1.0, batch / mapping[2])
    found = Reading(
        meaning=cells["meaning"],
        model=model_of(row["workload"], models),
        where=_where(row["instance"]),
        stack=cells["stack"],
        mapping=mapping,
        precision=_precision(cells["precision"] or row["precision"]),
        batch=batch,
        compiled_batch=_compiled_batch(row["note"], cells["batch"], batch, mapping[2]),
        percentile=cells["percentile"],
        scale=SCALES[unit],
        rounding=float(cells["rounding"] or 0),
        weight=weight,
        reason="" if weight else reason,
        **_lengths(row, cells),
    )
    if batch < 1 or found.compiled_batch < 1:
        raise UnreadableRowError(f"batch {row['batch']!r} is no number of sequences")
    return found
