"""The one table of rules: what a row is -> its question with arguments and a use, or the reason for none.

`data/evidence/rules.csv` is read first to last: a later rule overrides the cells that it fills, so that exceptions
follow what they are exceptions to; `Decision.rules` names all that had a say. Named groups of a pattern are arguments
too, and `{name}` in an argument repeats one. Nothing here reads a value. Rows that nobody has seen yet go through the
same rules.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from operator import and_, or_

import msgspec

from trnmodel.catalog.load import DATA, DataError, read_csv
from trnmodel.evidence.rows import WIDE
from trnmodel.evidence.words import plain, reachable, spelt

MATCHED = ("kind", "source", "date", "instance", "workload", "phase", "precision", "metric", "shape", "note")
NAMED: Mapping[str, tuple[str, ...]] = {"kernel": ("kernel",), "collective": ("kind", "ranks", "message_")}
ASIDE, PLAIN = "set-aside", "as asked"
SHAPE = {"batch": "batch", "in": "input_len", "out": "output_len", "seq": "seq_len", "tp": "tp", "dp": "dp"}
DECIDING = (
    *(name for name in MATCHED if name not in ("date", "shape")),
    "date_or_sdk",
    "unit",
    *SHAPE.values(),
    "n_cores_used",
    "lnc",
)
PUBLISHER = re.compile(r"^(?:[\w.-]+/|(?:meta-llama|qwen|mistralai|deepseek-ai|nousresearch|google)_)", re.IGNORECASE)


class Rule(msgspec.Struct, frozen=True):
    """One decision about rows: patterns to match on the left, what follows on the right."""

    rule: str
    kind: str
    source: str
    date: str
    instance: str
    workload: str
    phase: str
    precision: str
    metric: str
    shape: str
    note: str
    question: str
    arguments: str
    use: str
    weight: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say of a row: a question with arguments and a use, or the reason why it has none."""

    question: str
    arguments: Mapping[str, str]
    use: str
    weight: float
    reason: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule with its patterns compiled and its arguments split."""

    rule: Rule
    patterns: tuple[tuple[str, re.Pattern], ...]
    arguments: tuple[tuple[str, str], ...]


def ready(rule: Rule) -> Ready:
    """Return a rule made ready to match; raises DataError naming the rule and the cell that is none."""
    try:
        patterns = [(name, re.compile(getattr(rule, name), re.I)) for name in MATCHED if getattr(rule, name)]
        arguments = [pair.split("=", 1) for pair in rule.arguments.split()]
        return Ready(rule, tuple(patterns), tuple((name, value) for name, value in arguments))
    except (re.error, ValueError) as error:
        raise DataError(f"rules.csv rule {rule.rule}: {error}") from None


@cache
def rules() -> tuple[Ready, ...]:
    """Return the rules that are shipped, in order."""
    rows = read_csv(DATA / "evidence" / "rules.csv", Rule)
    names = [rule.rule for rule in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"rules.csv: rules {twice} stand there twice")
    return tuple(ready(rule) for rule in rows)


@cache
def _patterns(column: str) -> tuple[int, tuple[tuple[re.Pattern, int], ...]]:
    """Return the patterns of a column with a bit for each rule that has it, and the bits of the rules without one."""
    every, bits = 0, defaultdict[re.Pattern, int](int)
    for place, one in enumerate(rules()):
        pattern = dict(one.patterns).get(column)
        if pattern is None:
            every |= 1 << place
        else:
            bits[pattern] |= 1 << place
    return every, tuple(bits.items())


@lru_cache(maxsize=2**13)
def _allowing(column: str, cell: str) -> int:
    """Return a bit for each shipped rule that a cell of a column allows: its pattern matches, or it has none."""
    every, patterns = _patterns(column)
    return reduce(or_, (bits for pattern, bits in patterns if pattern.search(cell)), every)


def _places(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def bare_name(workload: str) -> str:
    """Return a workload's name without the publisher in front."""
    return PUBLISHER.sub("", plain(workload).strip())


def matched(row: Mapping[str, str]) -> list[tuple[Ready, dict[str, str]]]:
    """Every rule that matches a row, in order, with the arguments that it gives."""
    cells = {name: row.get(name, "") for name in MATCHED} | {"date": row["date_or_sdk"]}
    cells["shape"] = "".join(f"{label}={row[name]};" for label, name in SHAPE.items())
    cells["workload"] = bare_name(row["workload"])
    allowed = reduce(and_, (_allowing(name, cells[name]) for name in MATCHED))
    every, found = rules(), []
    for one in (every[place] for place in _places(allowed)):
        groups = _groups(one, cells)
        found.append((one, groups | {name: value.format_map(groups) for name, value in one.arguments}))
    return found


def _groups(rule: Ready, cells: Mapping[str, str]) -> dict[str, str]:
    """Return what the named groups of a rule's patterns hold in the cells of a row that they match."""
    hits = (pattern.search(cells[name]) for name, pattern in rule.patterns if pattern.groupindex)
    return {group: value for hit in hits if hit for group, value in hit.groupdict().items() if value}


def decide(row: Mapping[str, str]) -> Decision:
    """Return what the rules say of a row; where several match, the later ones override what they fill.

    A row that none gives a meaning, or whose workload names nothing, is read once more in the rules' own words.
    """
    return _decide(tuple(row.get(name, "") for name in DECIDING))


@lru_cache(maxsize=2**13)  # more than there are rows in `data/evidence`
def _decide(cells: tuple[str, ...]) -> Decision:
    """Return what the rules say of the cells that have a say, each row of many fits once."""
    row = dict(zip(DECIDING, cells, strict=True))
    found = _decided(row)
    start = found.question.partition("-")[0]
    missing = [name for name in NAMED.get(start, ()) if not any(one.startswith(name) for one in found.arguments)]
    if found.question and not missing:
        return found
    again = _decided(spelt(row))
    return again if again.question else found


def _decided(row: Mapping[str, str]) -> Decision:
    question = use = reason = ""
    weight, hits = 1.0, matched(row)
    arguments: dict[str, str] = {}
    for one, given in hits:
        rule = one.rule
        arguments |= given
        question = rule.question or question
        if rule.question == ASIDE:
            use = rule.use
        elif question != ASIDE:
            use = rule.use or use
        if rule.weight:
            weight, reason = float(rule.weight), rule.reason
    names = tuple(one.rule.rule for one, _ in hits)
    if not question:
        return Decision("", arguments, "", weight, "no rule gives it a meaning", names)
    kept = (use or PLAIN) if weight else use if question == ASIDE else ""
    return Decision(question, arguments, kept, weight, "" if kept else reason, names)


def check(rows: Iterable[Mapping[str, str]]) -> None:
    """Refuse rules that match none of the rows, each as its own kind and as one of wide experts, and no spelling."""
    rows = [*rows, *({**dict.fromkeys(DECIDING, ""), **row} for row in reachable())]
    used = {one.rule.rule for row in rows for kind in ({}, {"kind": WIDE}) for one, _ in matched({**row, **kind})}
    if idle := [one.rule.rule for one in rules() if one.rule.rule not in used]:
        raise DataError(f"rules.csv: rules {idle} match no row of data/evidence")
