"""Tables and the drawing of the chapter on software: a step on each kind, factors, ties, and what changes gained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.charts.display import alt as draw
from trnbook.charts.language import called, colours
from trnbook.charts.tables import rounded_frame
from trnbook.drawings.amounts import name_of, number, seconds
from trnbook.drawings.svg import Accent, Drawing, text
from trnbook.drawings.timelines import SAID, TALL, Scale, axis, box, legend, row_name
from trnbook.shared import gaps
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import before_after
from trnmodel.evidence import tables as evidence
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Comparison
from trnmodel.search.gaps import LAST, MECHANISMS, TRAINING_MECHANISMS, SoftwareGap
from trnmodel.steps.answers import Step
from trnmodel.steps.support import Support
from trnmodel.units import counted, format_digits

if TYPE_CHECKING:
    import altair as alt

PARTS: Mapping[str, Accent] = {"reading and computing": "b", "exchange": "d", "layers and routing": "a"}
ORDER = (*dict.fromkeys([*MECHANISMS, *TRAINING_MECHANISMS]),)
ORDER = (*(name for name in ORDER if name != LAST), LAST)
SAME = 1e-6  # change of a prediction below which no constant moved it
MOVED, UNMOVED = "moves", "does not move"
ALL = "all of them"


def answer(
    tables: Mapping[str, SoftwareGap],
    plans: Mapping[str, Choice | None],
    tuned: Mapping[str, Choice | None] | None = None,
) -> str:
    """Return the card of the chapter: how many times as much ideal software makes as public software, with its band.

    The last model's gap is the answer, the first one's stands beside it.
    """
    (first, other), (model, gap) = tables.items()
    ideal, c = gap.stages[0].value, plans[model]
    times: tuple[float, float, float] | str = _times(np.inf)
    if c and c.valid:
        low, high = (float(end) for end in c.ends(c.FIGURE))
        times = lost(gap), ideal / high, ideal / low
    made = {kind: gap.end(kind).value for kind in gap.kinds[::-1]}
    on = [f"on {kind} software {format_digits(value, 3)}" for kind, value in made.items() if 0 < value < np.inf]
    return common.card(
        times,
        f"what ideal software makes per chip over what public software makes, `{model}` on {gap.system.name}",
        unit="times",
        rank="Compared with",
        mark=str(c.basis) if c and c.valid else "extrapolated",
        rival=f"{_times(lost(other))} with `{first}`",
        proof="Check: what changes of software gained",
        more=(f"`{model}` makes, in tokens/s per chip, {', '.join(on[:-1])} and {on[-1]}." if len(on) > 1 else "")
        + _tuned((tuned or {}).get(model)),
    )


def _tuned(best: Choice | None) -> str:
    """Return the range of hand-tuned software, and why it is too narrow; empty where it keeps no promise."""
    if best is None or not best.valid:
        return ""
    low, high = (format_digits(float(end), 2) for end in best.ends(best.FIGURE))
    return (
        f" The range of hand-tuned software, {low} to {high}, is too narrow. "
        "It holds what is uncertain of the parts, and nobody has measured them together."
    )


def lost(gap: SoftwareGap) -> float:
    """Return how many times worse the public plan is than the ideal one; NaN where even that keeps no promise."""
    return np.nan if gap.stages[0].reason else gap.lost()


def _times(ratio: float) -> str:
    """Return a ratio in words.

    >>> _times(4.08), _times(1.023), _times(float("inf"))
    ('4.1 times', '1.02 times', 'no promise kept on public software')
    """
    digits = 2 if ratio >= gaps.FEW else 3
    return f"{format_digits(ratio, digits)} times" if np.isfinite(ratio) else "no promise kept on public software"


def lost_by_mechanism(gap: SoftwareGap, under: str) -> alt.LayerChart:
    """Return a bar for each mechanism from one to its factor, and one for all; on an axis of powers lengths add up.

    Where a stage keeps no promise there are no such factors, and the stages themselves are drawn.
    """
    losses = _losses(gap)
    every = pd.Series([*losses.values(), lost(gap)], dtype=float)
    if not (np.isfinite(every) & (every > 0)).all():
        return gaps.waterfall(gap, under)
    some = {name: loss for name, loss in losses.items() if not 1 / gaps.LEAST <= loss <= gaps.LEAST}
    some = dict(sorted(some.items(), key=lambda one: -one[1]))
    rows = [(name.removesuffix(" of experts"), loss, "one mechanism") for name, loss in some.items()] + [
        (ALL, lost(gap), ALL)
    ]
    frame = pd.DataFrame(rows, columns=["which", "times_less_throughput", "cost"])
    most = next(iter(some), "")
    title = f"Most is lost to {most}: {_times(some[most])}" if most and some[most] > 1 else gaps.claim(gap)
    return charts.waterfall(
        frame.assign(
            before=1.0, label=[_times(loss) for loss in frame.times_less_throughput], basis=gap.stages[-1].basis
        ),
        before="before",
        x="times_less_throughput",
        y="which",
        color="cost",
        label="label",
        caption=title,
        under=under,
    )


def _losses(gap: SoftwareGap) -> dict[str, float]:
    """Return the factor of each mechanism on the whole way from ideal to public software, in the order of the walk."""
    losses = dict.fromkeys([one.mechanism for one in gap.stages[1:]], 1.0)
    for one in gap.stages[1:]:
        losses[one.mechanism] *= gap.loss(one)
    return losses


def must_fit(plans: Mapping[str, Choice | None], system: str) -> None:
    """Refuse a model that the system does not hold."""
    for model, best in plans.items():
        guard.need(best is not None, f"{model} does not fit on system = {system!r}")


def question_of(plan: Choice) -> dict[str, Any]:
    """Return the batch, lengths, format and drafts of a plan's decode step, as `tm.decode_step` takes them.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> question_of(case.choice("llama-3.3-70b", "trn2.48xlarge"))["new_tokens"]
    8
    """
    request = plan.question.request
    ask: dict[str, Any] = {"batch": plan.batch, "context": request.mean_context, "precision": plan.dtypes}
    return ask | {"max_context": request.longest_context, "new_tokens": 1 + plan.option.draft_tokens}


def in_time(steps: Mapping[str, Mapping[str, Step]]) -> Drawing:
    """Return the drawing of one decode step on each kind of software, to the same scale, with a frame for each model.

    Parameters
    ----------
    steps : mapping of str to mapping of str to Step
        Decode steps of one mapping and batch by model and kind of software. [-]

    Returns
    -------
    drawing : Drawing
        What a step reads and computes, exchanges that nothing hides, and its fixed time. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 4, "context": 1024}
    >>> kinds = {kind: tm.decode_step("llama-3.1-8b", "trn2.48xlarge", efficiencies=kind, **ask) for kind in ("ideal",)}
    >>> list(in_time({"llama-3.1-8b": kinds}).frames)
    ['llama-3.1-8b']
    """
    frames = {model: _rows(kinds) for model, kinds in steps.items()}
    rows = max(map(len, steps.values()))
    times = {model: {kind: number(one, "time_s") for kind, one in kinds.items()} for model, kinds in steps.items()}
    said = [f"{m}: " + "; ".join(f"{kind} {seconds(t)}" for kind, t in own.items()) for m, own in times.items()]
    return Drawing(
        name_of("software", *steps, *(f"{t:.6g}" for t in next(iter(times.values())).values())),
        "Software adds time in which nothing is read",
        44 + rows * (TALL + 12) + 30,
        legend(PARTS.items()),
        frames,
        note="One decode step with the same mapping and batch on three kinds of software.",
        alt=" / ".join(said),
    )


def _rows(kinds: Mapping[str, Step]) -> list[str]:
    """Return one frame: a row of boxes for each kind of software, and the axis of time."""
    longest = max(number(one, "time_s") for one in kinds.values())
    at, marks, y = Scale(longest * 1.12, 112.0), list[str](), 40.0
    for kind, one in kinds.items():
        marks.append(row_name(y, kind))
        start = 0.0
        for accent, length in zip(PARTS.values(), parts(one).values(), strict=True):
            if length > 0:
                marks.append(box(at, y, start, length, accent))
            start += length
        marks.append(text(at.x(start) + 8, y + TALL / 2 + 5, seconds(start), anchor="start", size=SAID))
        y += TALL + 12
    return [*marks, axis(at, y)]


def parts(step: Step) -> dict[str, float]:
    """Return the parts of a step that follow one another: what it reads and computes, sees of exchanges, and adds [s].

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=1024)
    >>> bool(abs(sum(parts(one).values()) - one.time_s) < 1e-12)
    True
    """
    fixed, network, outer = number(step, "overhead_s"), number(step, "network_s"), float(step.question.overlaps[1])
    device = number(step, "time_s") - fixed
    busy = device - (1 - outer) * network
    if outer == 1 and network == device:  # the exchange is longer, and hides the rest
        busy = min(max(number(step, "compute_s"), number(step, "memory_s")), device)
    elif busy < network:
        busy = (device - network) / (1 - outer)
    return dict(zip(PARTS, (busy, device - busy, fixed), strict=True))


def factors(tables: Mapping[tuple[str, str, str], SoftwareGap]) -> pd.DataFrame:
    """Return how many times each mechanism costs on the way from ideal to public software, a row for each gap.

    Parameters
    ----------
    tables : mapping of (str, str, str) to SoftwareGap
        Gaps by model, system and task. [-]

    Returns
    -------
    table : pandas.DataFrame
        model, system, task, and a column for each mechanism: the product of its losses, NaN where the gap does not have
        it. What loses nothing in any gap has no column; the last column is the whole gap. [-]
    """
    rows = [
        dict(zip(("model", "system", "task"), key, strict=True)) | _losses(gap) | {ALL: lost(gap)}
        for key, gap in tables.items()
    ]
    named = ["model", "system", "task"]
    table = pd.DataFrame(rows, columns=[*named, *ORDER, ALL])
    table[[*ORDER, ALL]] = table[[*ORDER, ALL]].round(2)
    costs = table[[*ORDER, ALL]].fillna(1.0).ne(1.0).any()
    # a column that is named padding would print as a share
    return table[[*named, *costs.index[costs]]].rename(columns={"padding": "padding of graphs"})


def by_batch(steps: Mapping[str, Step], promise_s: float) -> pd.DataFrame:
    """Return times of steps by batch, a line for each, and one at the time that a promise leaves per token [s]."""
    frames = [one.to_frame()[["batch", "time_s"]].assign(line=name) for name, one in steps.items()]
    promise = frames[0].assign(time_s=promise_s, line="promise")
    return pd.concat([promise, *frames], ignore_index=True)


def dial(
    plans: Mapping[str, Mapping[str, Choice | None]], rivals: Mapping[str, Comparison], system: str
) -> pd.DataFrame:
    """Return shares of the ideal throughput of a system: what its software reaches, and where rivals tie.

    Parameters
    ----------
    plans : mapping of str to mapping of str to Choice
        Plans of the system by model and kind of software, the ideal one among them. [-]
    rivals : mapping of str to Comparison
        Rivals on public software by model. [-]
    system : str
        Id of the system. [-]

    Returns
    -------
    table : pandas.DataFrame
        which, model, share_of_ideal with `_low` and `_high`; what breaks its promise has no row. [-]
    """
    rows, name = list[dict[str, Any]](), read_system(system).chip.name
    columns = ["which", "model", "share_of_ideal", "share_of_ideal_low", "share_of_ideal_high"]
    for model, kinds in plans.items():
        ideal = kinds["ideal"]
        if ideal is None or not ideal.valid:
            continue
        whole = ideal.tokens_per_s_per_chip
        for kind, c in kinds.items():
            if c is not None and c.valid and kind != "ideal":
                made, low, high = (float(x) / whole for x in c.banded(c.FIGURE).values())
                row = {"which": f"{name}, {kind}", "model": model}
                rows.append(row | dict(zip(columns[2:], (made, low, high), strict=True)))
        for c in (c for c in rivals[model].at() if c.valid):
            row = {"which": f"ties with {called(c.system.id)}", "model": model}
            made, low, high = (float(x) / whole for x in c.banded(c.FIGURE).values())
            rows.append(row | dict(zip(columns[2:], (made, low, high), strict=True)))
    return pd.DataFrame(rows, columns=columns)


def beaten(table: pd.DataFrame, model: str) -> str:
    """Return as a title how many rivals lie within the range of a system's public software with a model.

    >>> rows = pd.DataFrame({"which": ["X, public", "ties with A", "ties with B"], "model": "m"})
    >>> rows = rows.assign(share_of_ideal_low=[0.1, 0.3, 0.6], share_of_ideal_high=[0.4, 0.5, 0.9])
    >>> beaten(rows, "m")
    'With m, public software overlaps 1 of 2 rivals'
    """
    at = table[table.model == model]
    rivals = at[at.which.str.startswith("ties with ")]
    public = at[at.which.str.endswith(", public")]
    if rivals.empty or public.empty:
        return f"Not both sides keep the promise with {model}"
    low, high = float(public.share_of_ideal_low.iloc[0]), float(public.share_of_ideal_high.iloc[0])
    meet = (rivals.share_of_ideal_low <= high) & (rivals.share_of_ideal_high >= low)
    return f"With {model}, public software overlaps {int(meet.sum())} of {counted(len(rivals), 'rival')}"


def with_bands(chart: alt.LayerChart, table: pd.DataFrame) -> alt.LayerChart:
    """Return the chart of `dial` for one model with the range of public software shaded over its whole height."""
    public = table[table.which.str.endswith(", public")]
    ends = rounded_frame(public[["share_of_ideal_low", "share_of_ideal_high"]]).to_dict("records")
    if ends:
        shade = draw.Chart(draw.InlineData(values=ends)).mark_rect(color=colours(["public"])[0], opacity=0.13)
        x = draw.X(field="share_of_ideal_low", type="quantitative")
        chart.layer.insert(0, shade.encode(x=x, x2=draw.X2("share_of_ideal_high")))
    return chart


def listed(support: Support) -> str:
    """Return in Markdown what documented software says of a model, and whether a port was contributed.

    Examples
    --------
    >>> import trnmodel as tm
    >>> listed(tm.support("deepseek-v3", "trn2.48xlarge")).partition("; ")[0]
    '**deepseek-v3** is not listed by nxd-inference-2.31'
    """
    row = support.to_frame().iloc[0]
    port = f"a contributed port: {row.port.partition(': ')[2]}" if row.port else "no contributed port is known"
    return f"**{row.model}** is {row.status} by {row.release}; {port}."


def pairs(validation: pd.DataFrame) -> pd.DataFrame:
    """Return published changes of software whose figures both have a prediction, with both speedups.

    Returns
    -------
    table : pandas.DataFrame
        chip, model, what, cause, prediction (whether it moves with the change), measured_speedup,
        predicted_speedup, run (what a point shows under the pointer), source. [-]
    """
    predicted = validation.set_index("id").predicted
    rows = before_after.pairs()
    before, after = (rows[name].map(predicted).astype(float) for name in ("before_id", "after_id"))
    rows = rows.assign(predicted_speedup=np.where(rows.lower_is_better, before / after, after / before))
    rows = rows.dropna(subset="predicted_speedup").rename(columns={"speedup": "measured_speedup"})
    known = (rows.predicted_speedup - 1).abs() > SAME
    rows = rows.assign(prediction=np.where(known, MOVED, UNMOVED), run=rows.what + ": " + rows.model)
    names = "chip model what cause prediction measured_speedup predicted_speedup run source".split()
    return rows[names].sort_values("prediction", ascending=False, kind="stable", ignore_index=True)


def foreseen(table: pd.DataFrame) -> str:
    """Return in words how many published changes our constants foresee, and how well.

    >>> rows = pd.DataFrame({"prediction": [MOVED, UNMOVED], "measured_speedup": [2.0, 1.1]})
    >>> foreseen(rows.assign(predicted_speedup=[2.2, 1.0])).partition(". ")[0]
    'We can predict both figures of 2 changes, and 1 of them moves a constant of ours'
    """
    moved, rest = (table[table.prediction == which] for which in (MOVED, UNMOVED))
    text = f"We can predict both figures of {len(table)} changes, and {len(moved)} of them move"
    text += f"{'s' * (len(moved) == 1)} a constant of ours."
    if len(moved):
        off = (moved.predicted_speedup / moved.measured_speedup - 1).abs()
        text += f" Half of their speedups are predicted within {off.median():.0%},"
        text += f" and nine in ten within {off.quantile(0.9):.0%}."
    if len(rest):
        gain = (rest.measured_speedup - 1).abs().median()
        text += f" The other {len(rest)} move none, and half of them changed the speed by less than {gain:.0%}."
    return text


def closed() -> pd.DataFrame:
    """Return how much published changes of each cause gained, the greatest median first."""
    table = before_after.closed().rename(columns={"sources": "pages", "share_closed": "share_faster"})
    columns = ["cause", "pairs", "pages", "least", "median", "greatest", "share_faster"]
    return table[columns].round(2).sort_values("median", ascending=False, kind="stable", ignore_index=True)


def every_pair() -> pd.DataFrame:
    """Return every published change of software with its source."""
    columns = "source locator chip model what cause before after unit speedup".split()
    return before_after.pairs()[columns]


def wide_experts() -> pd.DataFrame:
    """Return published times of wide expert parallelism on GPUs, with what the others predict of each."""
    return evidence.table("wide_experts")


def held(table: pd.DataFrame) -> str:
    """Return in words how many left-out times lie within the interval that the others give.

    >>> held(pd.DataFrame({"inside": [True, False, True]}))
    '2 of 3'
    """
    return f"{int(table.inside.sum())} of {len(table)}"
