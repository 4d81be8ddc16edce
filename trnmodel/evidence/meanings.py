"""What a typed record asks: its measure, load and shape -> the question of a measured number, or why it has none.

A reason for none says which of three is missing: the meaning, the model or the machine. The questions of each kind of
row stand in modules of their own: language models and encoders in `meanings_language`, kernels and collectives in
`meanings_kernels`, training, watts and footprints in `meanings_runs`, other chips in `meanings_chips`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trnmodel.arguments import shown
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, too_long
from trnmodel.evidence.kinds import WIDE
from trnmodel.evidence.meanings_chips import other_chip, wide_experts
from trnmodel.evidence.meanings_common import ASIDE, MACHINE, MEANING, MODEL, Question
from trnmodel.evidence.meanings_kernels import collective, kernel
from trnmodel.evidence.meanings_language import encoder, language
from trnmodel.evidence.meanings_runs import energy, memory, training
from trnmodel.evidence.records import Record, document, pattern_cells, patterns
from trnmodel.evidence.records import read as read_record
from trnmodel.evidence.spellings import contradiction, filled

PLAIN = "as asked"  # the use of a row that has no other
PERCENTILES = ("p75", "p90", "p95", "p99", "max")
CALLED = {"workload": MODEL, "instance": MACHINE}  # columns by what they say
MIDDLES, LATE = ("", "mean", "p50"), ("p99",)  # statistics that a row of a tool may be of
WITH_LATE = ("first_token", "token_interval", "device_time", "forward")  # measures that have a late one
TWINS: Mapping[str, tuple[str, ...]] = {
    "decode-throughput": ("decode-step",),
    "all-decode-throughput": ("decode-step",),
    "decode-speed": ("decode-step",),
    "prefill-throughput": ("prefill", "one-prefill"),
    "generated-throughput": ("request-latency",),
    "total-throughput": ("request-latency", "generated-throughput"),
    "kernel-flop-rate": ("kernel-time",),
    "kernel-mfu": ("kernel-time", "kernel-flop-rate"),
    "collective-busbw": ("collective-time",),
    "collective-algbw": ("collective-time", "collective-busbw"),
    "train-mfu": ("train-step", "train-sequences", "train-tokens"),
    "forward-throughput": ("forward",),
}  # what a rate repeats where the page prints both
RUN = "instance workload batch input_len output_len seq_len tp pp dp n_cores_used lnc precision".split()
FAMILIES: Mapping[str, Callable[[Mapping[str, str], Record], Question]] = {
    "inference-LLM": language,
    "inference-LLM-serving": language,
    "inference-LLM-profile": language,
    "inference-LLM-forward": language,
    "inference-encoder": encoder,
    "memory-footprint": memory,
    "training": training,
    "energy": energy,
    "kernel": kernel,
    "collective": collective,
    "gpu-collective": collective,
    "other-chip": other_chip,
    WIDE: wide_experts,
}  # what rows of a kind ask


@dataclass(frozen=True, slots=True)
class Decision:
    """What a row asks: a question with arguments and a use, or the reason why it has none."""

    question: str
    arguments: Mapping[str, str]
    use: str
    weight: float  # 0 where the row does not vote
    reason: str
    patterns: tuple[str, ...]  # names of those that had a say
    record: Record = field(default_factory=Record)
    unknown: tuple[str, ...] = ()  # columns that matter and that nothing states

    @property
    def refused(self) -> bool:
        """Whether it has no question."""
        return not self.question or self.question == ASIDE


def decide(row: Mapping[str, str], statements: bool = True) -> Decision:
    """Return what a row asks; no value is read.

    Parameters
    ----------
    row : mapping of str to str
        The cells of a row, as `trnmodel.evidence.cells.texts` has them. [-]
    statements : bool
        Whether what the row's page states beyond its cells counts. [-]

    Returns
    -------
    decision : Decision
        Question, arguments, use, weight, and the columns that are unknown. [-]

    Examples
    --------
    >>> row = {"kind": "inference-LLM-serving", "metric": "TPOT mean", "note": "concurrency 1", "workload": ""}
    >>> decide(row).question, decide(row | {"note": "concurrency=4"}).question
    ('decode-step', 'loaded-step')
    """
    for name in COLUMNS:
        if long := too_long(name, row.get(name, "")):
            return Decision(ASIDE, {}, "", 0.0, long, (), Record())
    row = filled(row)
    record, names = read_record(row, statements)
    try:
        one = _question(row, record, names)
    except UnreadableRowError as reason:
        return Decision(ASIDE, {}, "", 0.0, str(reason), names, record)
    weight = float(one.name != ASIDE)
    return Decision(one.name, one.arguments, one.use or PLAIN, weight, "", names, record, one.unknown)


def _question(row: Mapping[str, str], record: Record, names: Sequence[str]) -> Question:
    """Return the question of a record; raises UnreadableRowError for none."""
    cells = pattern_cells(row)
    row = {**row, "kind": cells["kind"], "phase": cells["phase"]}
    if record.measure == "part":
        raise UnreadableRowError(f"{MEANING}: {shown(row.get('metric', ''))} is not asked: {_why_part(names)}")
    if record.measure == "other_model":
        raise UnreadableRowError(f"{MODEL}: {shown(row.get('workload', ''))} is not a language model")
    if odd := contradiction(row):
        raise UnreadableRowError(odd)
    _require_stated(row, record)
    if record.contradiction:
        raise UnreadableRowError(f"{MEANING}: the page contradicts itself: {record.contradiction.replace('_', ' ')}")
    if row["kind"] not in FAMILIES:
        raise UnreadableRowError(
            f"{MEANING}: rows of kind {shown(row['kind'])} have no question; kinds that have are {', '.join(FAMILIES)}"
        )
    return FAMILIES[row["kind"]](row, record)


def _require_stated(row: Mapping[str, str], record: Record) -> None:
    """Refuse a row of a tool for which no question stands, or that lacks what its tool does not print."""
    if record.unasked:
        raise UnreadableRowError(f"{MEANING}: {record.unasked}")
    lacking = [names.split("|")[0] for names in record.needs.split() if not any(map(row.get, names.split("|")))]
    if lacking:
        named = ", ".join(CALLED.get(name, name) for name in lacking)
        raise UnreadableRowError(f"{named}: not stated, and no default is taken for rows of a tool")
    allowed = (*MIDDLES, *(LATE if record.measure in WITH_LATE else ()), *_by_arrivals(record))
    if record.needs and record.statistic not in allowed:
        have = ", ".join(name for name in allowed if name)
        raise UnreadableRowError(f"{MEANING}: this statistic has no question; of this metric {have} have one")


def _by_arrivals(record: Record) -> tuple[str, ...]:
    """Return the percentiles that a queue of arrivals has beside the others."""
    return ("p90", "p25") if record.measure == "first_token" and record.arrival_per_s > 0 else ()


def _why_part(names: Sequence[str]) -> str:
    """Return why a number is a part of what a user meets: the note of the last pattern that says so."""
    notes = {one.name: one.note for one, *_, fills in patterns() if fills.get("measure") == "part"}
    return next((notes[name] for name in reversed(names) if name in notes), "one line of a listing, which says no more")


def decisions(rows: Sequence[Mapping[str, str]], statements: bool = True) -> list[Decision]:
    """Return what the rows of a table ask; where two of a page are one run printed twice, one of them votes.

    A rate that stands beside the time of the same step, prompt or kernel says the same, whatever its value.

    Parameters
    ----------
    rows : sequence of mapping of str to str
        The cells of rows, as `trnmodel.evidence.cells.texts` has them. [-]
    statements : bool
        Whether what the rows' pages state beyond their cells counts. [-]

    Returns
    -------
    decisions : list of Decision
        One for each row, in order; the weight is 0 where another row votes. [-]

    Examples
    --------
    >>> row = {"kind": "inference-LLM", "phase": "decode", "metric": "TPOT", "source": "page", "workload": "m"}
    >>> [one.weight for one in decisions([row, row | {"metric": "throughput"}])]
    [1.0, 0.0]
    """
    judged = [decide(row, statements) for row in rows]
    runs = [_run(filled(row), one) if one.weight else () for row, one in zip(rows, judged, strict=True)]
    middles = {
        (run, one.question)
        for run, one in zip(runs, judged, strict=True)
        if one.weight and one.record.statistic not in PERCENTILES
    }
    return [_voting(one, run, middles) for one, run in zip(judged, runs, strict=True)]


def _run(row: Mapping[str, str], one: Decision) -> tuple:
    """Return what the rows of one run share: page, machine, work, shapes and software."""
    record = one.record
    cells = (document(row.get("source", "")), *(row.get(name, "") for name in RUN))
    return (*cells, record.engine, record.kernels, record.clients, record.code, record.version)


def _voting(one: Decision, run: tuple, middles: set[tuple[tuple, str]]) -> Decision:
    """Return a decision, without a vote where the page prints the same run's time or middle beside it."""
    if not one.weight or one.record.series:
        return one
    if one.record.statistic in PERCENTILES and (run, one.question) in middles:
        return replace(one, use="", weight=0.0, reason=f"{one.record.statistic} of a run whose middle counts")
    twins = [twin for twin in TWINS.get(one.question, ()) if (run, twin) in middles]
    if not twins:
        return one
    return replace(one, use="", weight=0.0, reason=f"the same run as its {twins[0]}, which the page prints beside it")
