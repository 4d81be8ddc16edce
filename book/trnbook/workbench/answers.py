"""What the workbench shows for a state: pure functions from a frozen state to tables, over the public calls.

Every number is one of `tm.memory_fit`, `tm.decode_step`, `tm.prefill`, `tm.serve` or `tm.train_step`. A state that
cannot run has the library's own reason in place of numbers; one that does not fit shows its bytes, to see by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from typing import Any

import numpy as np
import pandas as pd

import trnmodel as tm
from trnbook.shared.step_parts import parts
from trnbook.shared.stored import EXTRA, kinds
from trnbook.workbench.state import ServingState, State, TrainingState, drafts, software
from trnmodel.catalog.systems import joined
from trnmodel.fabric.groups import place
from trnmodel.quantities import quantity
from trnmodel.result import Grounded, in_sentence
from trnmodel.search.launch import command, undocumented
from trnmodel.search.train_runs import budget
from trnmodel.serving.account import TOO_LATE, TOO_SLOW
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.support import support
from trnmodel.training.step import TrainStep
from trnmodel.training.work import PARTS as TRAIN_PARTS
from trnmodel.units import DAY, format_quantity, format_within

MEMORY = ["rank", "kind", "stored_bytes", "capacity_bytes"]
SPANS = ["part", "from_s", "time_s", "until_s"]
EXCHANGES = ["exchange", "collective", "ranks", "tiers", "message_bytes", "messages", "time_s"]
FIGURES = ["figure", "value", "low", "high", "unit", "basis", "title", "said"]
DATA_GROUPS = ("dense", "expert")  # of gradients and weights, which all ranks with the same parameters exchange
SHARES = ("mfu", "hfu")
FIRST, ORDINARY, FULLEST = "first rank", "other ranks", "fullest rank"
STORED = {  # of a training step, by what the reader calls them
    "weights": "weight_bytes",
    "gradients": "gradient_bytes",
    "optimizer": "optimizer_bytes",
    "activations": "activation_bytes",
    "buffers": "buffer_bytes",
}
TOO_LARGE = ("does not fit in memory", "the first rank, which holds more, does not fit in memory")
CUT_BY = {"tensor_s": "tp", "expert_s": "ep", "context_s": "cp", "pipeline_s": "pp", "data_s": "dp"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What one state gives: why it cannot run, or its figures; bytes of ranks, parts of the step, exchanges, command.

    `note` is what the reader should know besides, such as a promise that the state does not keep.
    """

    state: State
    reason: str = ""
    note: str = ""
    figures: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=FIGURES))
    memory: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=MEMORY))
    spans: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=SPANS))
    exchanges: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=EXCHANGES))
    command: str = ""
    no_command: str = ""

    @property
    def runs(self) -> bool:
        """Whether the state can run."""
        return not self.reason

    def value(self, figure: str) -> float:
        """Return the value of a figure by its name; NaN where there is none."""
        return float(dict(zip(self.figures.figure, self.figures.value, strict=True)).get(figure, np.nan))


@singledispatch
def answers(state: Any) -> Answers:
    """Return what a state of a server or of a training step gives, with a reason in words where it cannot run.

    Examples
    --------
    >>> answers(ServingState(tp=3)).reason[:60]
    'the software needs a number of attention heads that TP divid'
    >>> round(answers(ServingState()).value("time_s"), 4)
    0.0436
    """
    raise TypeError(f"{state!r} is no state of the workbench")


@answers.register
def _of_serving(state: ServingState) -> Answers:
    try:
        return _serving(state)
    except ValueError as error:
        return Answers(state=state, reason=" ".join(str(error).split()))


@answers.register
def _of_training(state: TrainingState) -> Answers:
    try:
        return _training(state)
    except ValueError as error:
        return Answers(state=state, reason=" ".join(str(error).split()))


def _figures(result: Grounded, titles: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Return figures of one point of a result with their bands, as rows of the table of figures."""
    basis, rows = str(result.basis), []
    for name, title in titles.items():
        value = float(result.figure(name))
        low, high = (float(end) for end in result.ends(name))
        called = quantity(name, type(result).__name__)
        said = format_within(value, low, high, called.unit.replace("/chip", " per chip").replace("/user", " per user"))
        if name in SHARES:
            band = "" if low == high else f" ({low:.0%} to {high:.0%})"
            said = f"{value:.0%}{band}".replace("%", " %")
        rows.append((name, value, low, high, called.base_unit, basis, title, said))
    return rows


def _table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=FIGURES)


def fit_of(state: ServingState) -> MemoryFit:
    """Return what `tm.memory_fit` answers for a state: each attention group reads one prompt at a time."""
    m, request = tm.model(state.model), state.request
    groups = min(state.ep * state.pp, state.batch)
    ask: dict[str, Any] = {"batch": state.batch, "context": state.context, "input_tokens": request.new_tokens}
    ask |= {"prompts": groups, "precision": state.precision, "efficiencies": state.option.efficiencies}
    return tm.memory_fit(m, state.system, state.mapping, **ask)


def step_of(state: ServingState) -> Step:
    """Return what `tm.decode_step` answers for a state: the step in the middle of the answer, with its drafts."""
    one = state.option
    ask: dict[str, Any] = {"batch": state.batch, "context": state.request.mean_context, "max_context": state.context}
    ask |= {"new_tokens": one.draft_tokens + 1, "precision": state.precision, "efficiencies": one.efficiencies}
    return tm.decode_step(tm.model(state.model), state.system, state.mapping, **ask)


def prompt_of(state: ServingState) -> Step:
    """Return what `tm.prefill` answers for one prompt of a state."""
    ask: dict[str, Any] = {"input_tokens": state.prompt, "max_context": state.context, "precision": state.precision}
    return tm.prefill(tm.model(state.model), state.system, state.mapping, **ask, efficiencies=state.option.efficiencies)


def served_by(state: ServingState) -> tm.Serving:
    """Return what `tm.serve` answers for a state, at the largest load at which its promise holds."""
    ask: dict[str, Any] = {"max_batch": state.batch, "precision": state.precision, "efficiencies": state.option.id}
    return tm.serve(tm.model(state.model), state.request, state.system, state.mapping, **ask)


def _serving(state: ServingState) -> Answers:
    """Return the answers of a server; ValueError where an argument is refused."""
    fit, step = fit_of(state), step_of(state)
    stored = _stored(fit)
    reason = str(fit.reason) or str(step.reason)
    most = state.option.most_sequences
    if not reason and state.batch > most:
        reason = f"{state.option.name} is documented for at most {most:,.0f} sequences"
    if reason:
        return _refused(state, reason, stored)
    prompt, served, note = prompt_of(state), served_by(state), ""
    if set(str(served.reason).split("; ")) <= {TOO_SLOW, TOO_LATE} and not served.valid:
        served = served_by(replace(state, speed=0.0))
        note = _missed(state, served)
    if not (served.valid and prompt.valid):
        return _refused(state, str(served.reason) or str(prompt.reason), stored)
    alone = [("prefill_s", *row[1:]) for row in _figures(prompt, {"time_s": "One prompt alone"})]
    rates = {"tokens_per_s_per_user": "Speed per user", "tokens_per_s_per_chip": "Throughput per chip"}
    server = _figures(served, rates | {"ttft_s": "First token, 99th percentile"})
    held = _figures(fit, {"first_rank_total_bytes": "First rank's memory", "total_bytes": "Other ranks' memory"})
    rows = [*server[:2], *_figures(step, {"time_s": "Decode step"}), *server[2:], *alone, *held]
    flags, none = _command(state, step, prompt)
    return Answers(
        state=state,
        note=note,
        figures=_table(rows),
        memory=stored,
        spans=_spans(parts({"step": step})[["part", "time_s"]]),
        exchanges=_exchanges(state, step),
        command=flags,
        no_command=none,
    )


def _refused(state: State, reason: str, stored: pd.DataFrame) -> Answers:
    """Return a reason in place of numbers; bytes stand where size alone is the reason."""
    alone = set(reason.split("; ")) <= set(TOO_LARGE)
    return Answers(state=state, reason=reason, memory=stored if alone else pd.DataFrame(columns=MEMORY))


def _missed(state: ServingState, served: tm.Serving) -> str:
    """Return that a promise is not kept, and what the figures then are."""
    most = f"{float(1 / served.step_s * served.tokens_per_step):,.3g}" if served.valid else "no"
    return (
        f"The promise of {state.speed:,g} tokens/s per user is not kept: an empty server gives {most} tokens/s. "
        "The figures are those of a server that promises no speed."
    )


def _stored(fit: MemoryFit) -> pd.DataFrame:
    """Return the bytes of the first and of another rank by kind, against what each may store; nothing where unknown."""
    table = kinds(fit, (), FIRST).rename(columns={"mapping": "rank"})
    if not np.isfinite(table.stored_bytes).all():
        return pd.DataFrame(columns=MEMORY)
    others = table[table.kind != EXTRA].assign(rank=ORDINARY, capacity_bytes=float(fit.capacity_bytes))
    return pd.concat([table, others], ignore_index=True)[MEMORY]


def _spans(table: pd.DataFrame) -> pd.DataFrame:
    """Return parts end to end, those that take time or are always shown."""
    until = table.time_s.cumsum()
    return table.assign(from_s=until - table.time_s, until_s=until)[SPANS]


def tiers_of(system: tm.System, mapping: tm.Mapping, group: str) -> str:
    """Return the tiers of a system that a group of ranks spans, innermost first.

    Examples
    --------
    >>> tiers_of(tm.system("trn3-nl72x2-pcie160"), tm.Mapping(tp=4, ep=36), "ep")
    'tray, rack'
    """
    ranks, stride = getattr(mapping, group), mapping.extent(group)[0]
    laid = place(system, ranks, stride, mapping.lnc)
    names = [level.name for level, count in zip(laid.levels, laid.counts, strict=True) if np.all(count > 1)]
    return ", ".join(f"torus {name}" if name in ("x", "y", "z") else name for name in names) or "one rank"


def _exchanges(state: ServingState, step: Step) -> pd.DataFrame:
    """Return the exchanges of a decode step with the tiers that they cross; their times are without what hides."""
    spec, mapping, lines = tm.system(state.system), state.mapping, step.breakdown()
    rows = []
    for one in step.messages:
        ranks = float(getattr(mapping, one.group))
        if ranks > 1:
            size, time_s = float(one.message_bytes), float(lines[one.name].network_s)
            tiers = tiers_of(spec, mapping, one.group)
            rows.append((one.name, one.kind.replace("_", "-"), ranks, tiers, size, float(one.count), time_s))
    return pd.DataFrame(rows, columns=EXCHANGES)


def _command(state: ServingState, step: Step, prompt: Step) -> tuple[str, str]:
    """Return the command that starts the server, or why no document gives one; and what documents say of the model."""
    m, one, dtypes = tm.model(state.model), state.option, step.precision
    if one.efficiencies.kind != "public":
        return "", f"{one.id} software is a scenario, which no command starts"
    lnc = state.mapping.lnc or tm.system(state.system).chip.logical(None)
    flags = command(m, one, step, prompt, dtypes, lnc, state.context)
    said = support(m, state.system, one)
    why = undocumented(one, step, dtypes)
    return flags, "; ".join(filter(None, (why, "" if said.supported else said.missing)))


def _training(state: TrainingState) -> Answers:
    """Return the answers of a training step; ValueError where an argument is refused."""
    step = trained_by(state)
    stored = pd.DataFrame(
        [
            (FULLEST, kind, float(getattr(step, name)), float(step.capacity_bytes))
            for kind, name in STORED.items()
            if np.isfinite(getattr(step, name))
        ],
        columns=MEMORY,
    )
    if not step.valid:
        return _refused(state, str(step.reason), stored)
    titles = {"time_s": "Training step", "mfu": "MFU", "hfu": "HFU", "tokens_per_s_per_chip": "Throughput per chip"}
    chips = float(step.chips)
    first = ("chips", chips, chips, chips, "", "", "Chips", f"{chips:,.0f}")
    rows = [first, *_figures(step, titles), _days(step, state.tokens)]
    times = [(_part(name), float(getattr(step, name))) for name in TRAIN_PARTS]
    table = pd.DataFrame([one for one in times if one[1] > 0], columns=["part", "time_s"])
    return Answers(
        state=state,
        figures=_table(rows),
        memory=stored,
        spans=_spans(table),
        exchanges=_crossed(state, step),
        command=state.command,
    )


def trained_by(state: TrainingState) -> TrainStep:
    """Return what `tm.train_step` answers for a state."""
    return tm.train_step(tm.model(state.model), state.system, state.mapping, **state.ask)


def _days(step: TrainStep, tokens: float) -> tuple[Any, ...]:
    """Return how long the tokens of the run take when nothing is lost, with the band of the step."""
    days = float(step.run_s(tokens)) / DAY
    low, high = (days * float(end / step.time_s) for end in step.ends("time_s"))
    title = f"{budget(tokens)} tokens without failures"
    return "days", days, low, high, "d", str(step.basis), title, format_within(days, low, high, "days")


def _part(name: str) -> str:
    return in_sentence(quantity(name, "TrainStep").title)


def _crossed(state: TrainingState, step: TrainStep) -> pd.DataFrame:
    """Return the exchanges of a training step that nothing hides, by the degree that causes them, with tiers."""
    spec, mapping = joined(tm.system(state.system), state.count), state.mapping
    rows = []
    for name, group in CUT_BY.items():
        ranks = float(getattr(mapping, group))
        sent = [one for one in step.messages if one.group == group or (group == "dp" and one.group in DATA_GROUPS)]
        if ranks > 1 and sent:
            largest = max(sent, key=lambda one: float(one.message_bytes * one.count))
            size, many = float(largest.message_bytes), float(largest.count * step.microbatches)
            time_s, tiers = float(getattr(step, name)), tiers_of(spec, mapping, group)
            rows.append((_part(name), largest.kind.replace("_", "-"), ranks, tiers, size, many, time_s))
    return pd.DataFrame(rows, columns=EXCHANGES)


def best(state: ServingState) -> ServingState:
    """Return a state with the mapping, batch and software of `tm.plan` for its model, system, format and lengths.

    Raises ValueError, with the reason of the plan, where nothing fits.

    Examples
    --------
    >>> best(ServingState(tp=64, batch=1)).tp
    4
    """
    plan = tm.plan(tm.model(state.model), state.request, state.system, precision=state.precision or None)
    chosen = plan.best
    if chosen is None:
        raise ValueError("; ".join(plan.refused.values()))
    settings: dict[str, Any] = {name: int(getattr(chosen, name)) for name in ("tp", "ep", "pp", "cp", "batch")}
    one = chosen.option
    names = software(state.model, state.system)
    plain = next((name for name in names if one.id in drafts(state.model, state.system, name)), one.id)
    settings |= {"software": plain, "drafts": one.id if one.speculates else "", "lnc": one.lnc}
    return replace(state, **settings, precision=chosen.precision)


def side_by_side(several: list[Answers]) -> pd.DataFrame:
    """Return configurations beside each other: a row for each thing that was set and for each figure.

    Examples
    --------
    >>> side_by_side([answers(ServingState()), answers(ServingState(tp=8))]).columns.tolist()
    ['what', 'A', 'B']
    """
    columns = {chr(ord("A") + i): _described(one) for i, one in enumerate(several)}
    names = dict.fromkeys(name for rows in columns.values() for name in rows)
    return pd.DataFrame(
        {"what": list(names)} | {key: [rows.get(n, "") for n in names] for key, rows in columns.items()}
    )


def _described(one: Answers) -> dict[str, str]:
    s = one.state
    degrees = " x ".join(f"{n.upper()} {getattr(s, n)}" for n in ("tp", "ep", "pp", "cp") if getattr(s, n) > 1)
    rows = {"model": s.model, "system": s.system, "precision": s.precision, "mapping": degrees or "one rank"}
    if isinstance(s, ServingState):
        rows |= {"batch": f"{s.batch:,}", "tokens": f"{s.prompt:,} in, {s.context - s.prompt:,} out"}
        rows |= {"software": s.drafts or s.software or "public"}
    else:
        rows["mapping"] = f"{rows['mapping']} x DP {s.dp}" if s.dp > 1 else rows["mapping"]
        rows |= {"batch": f"{s.micro_batch:,} of {s.global_batch:,}", "tokens": f"{s.seq:,} per sequence"}
        rows |= {"recomputed": s.recompute, "ZeRO": f"{s.zero}", "software": s.software or "public"}
    figures = {str(title): str(said) for title, said in zip(one.figures.title, one.figures.said, strict=True)}
    return rows | (figures if one.runs else {"cannot run": one.reason})


def time_said(time_s: float) -> str:
    """Return a time as a bar names it; a part that hides behind others takes none.

    Examples
    --------
    >>> time_said(0.0256), time_said(0.0)
    ('25.6 ms', 'hidden')
    """
    return format_quantity(time_s, "s", 3) if time_s > 0 else "hidden"
