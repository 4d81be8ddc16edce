"""Tables of how sure an answer is: bands of plans, measured rows near them, and the errors of served models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from trnbook.chapters import common
from trnbook.charts.language import called
from trnbook.shared import drafts
from trnbook.shared import errors as measured
from trnmodel.catalog.systems import system
from trnmodel.evidence.score import counted
from trnmodel.evidence.tables import LEFT_OUT, SOURCE
from trnmodel.formulas.tco import HOURS_PER_YEAR
from trnmodel.models.transformer import model
from trnmodel.search.choice import Choice
from trnmodel.units import format_digits, format_quantity

_FIGURE = "tokens_per_s_per_chip"
MEANS = {
    "measured": "a run was measured at this very point",
    "interpolated": "one measured run lies within a factor of two in batch, length, cores and size of the model",
    "extrapolated": "no measured run is so near, or it was another chip or other software",
}
_SHORT = {"llama-3.3-70b": "Llama", "deepseek-v3": "DeepSeek"}  # models of the case on a narrow axis
FEW = 10  # prompts on a chip below which its band can hold no surprise
_HOURS_PER_MONTH = HOURS_PER_YEAR / 12
_SERVED = ("time per output token under load", "first token in a queue", "throughput", "whole request")


def answer(best: Choice, ideal: Choice, plain: Sequence[Choice | None] = ()) -> str:
    """Return the card that opens the chapter: a plan's throughput with its band, without losses, and without drafts."""
    lossless = f"{ideal.tokens_per_s_per_chip:,.0f} tokens/s per chip on software that loses nothing"
    return common.card(
        (best.tokens_per_s_per_chip, float(best.low), float(best.high)),
        f"throughput per chip of {best.place} that serves `{best.question.model.id}` on public software",
        unit="tokens/s",
        mark=str(best.basis),
        rank="Compared with",
        rival=f"{lossless}, which no software beats",
        proof="Check: servers whose pages no fit had read",
        more=f"**How sure?** {_band(best)} {_low_end(best)} {_checked()}\n\n"
        f"The promise to the users is kept in {best.chance:.0%} of the draws of what is uncertain, and the band holds "
        f"only those.{_drafts(best, plain)}",
    )


def _low_end(best: Choice) -> str:
    """Return where the low end of a band comes from: the part of the request that may last longest."""
    prompt, step = (tuple(map(float, ends)) for ends in (best.banded("prefill_s").values(), _step(best)))
    name, (value, _, high) = max({"a prompt": prompt, "a step": step}.items(), key=lambda one: one[1][2] / one[1][0])
    times = (format_quantity(x, "s", 2) for x in (value, high))
    return "The low end is low because {} is predicted to take {} and may take {}.".format(name, *times)


def _step(best: Choice) -> tuple[float, float, float]:
    """Return the time of a decode step with both ends [s]."""
    low, high = best.step.ends("time_s")
    return float(best.step.time_s), float(low), float(high)


def _checked() -> str:
    """Return how far predicted throughputs of servers were off, with their pages left out of the fits."""
    rows = served()
    row = rows[rows.question == "throughput"].iloc[0]
    return (
        f"Where servers were measured, half of the predicted throughputs are within {row.median_error:.0%}, "
        f"and nine in ten within {row.p90_error:.0%}."
    )


def _drafts(best: Choice, plain: Sequence[Choice | None]) -> str:
    """Return that a band assumes drafts, and what is made without them; empty if the plan drafts nothing."""
    if not plain:
        return ""
    said = " The band assumes that drafts by a small model gain what they did where they were measured. "
    return said + drafts.without(best, plain)


def without_drafts(
    plans: Mapping[tuple[str, str], Choice | None], plain: Mapping[tuple[str, str], Sequence[Choice | None]]
) -> pd.DataFrame:
    """Return the plans that draft with their bands, and the throughput of the same systems without drafts.

    Parameters
    ----------
    plans : mapping
        The best choices by model and system; None where no promise can be kept. [-]
    plain : mapping
        The choices of each without drafts; empty where the plan drafts nothing. [-]
    """
    rows = []
    for (name, where), best in plans.items():
        found = drafts.keeping(plain[name, where])
        if best is not None and best.valid and found:
            row = {"case": f"{name}, {_short(where)}", **best.banded(_FIGURE)}
            made, same = found[0].tokens_per_s_per_chip, drafts.own(best, found)
            row |= {"without drafts [tokens/s per chip]": format_digits(made, 2), "it lies": drafts.place(made, best)}
            row |= {"on the software": found[0].stack.id}
            other = format_digits(same.tokens_per_s_per_chip, 2) if same else "keeps no promise"
            rows.append(row | {"without drafts, on the plan's software [tokens/s per chip]": other})
    return pd.DataFrame(rows)


def unmeasured(rows: pd.DataFrame, plans: Iterable[Choice | None]) -> str:
    """Return on which chips of the plans hardly any prompt was measured, so that their bars are lower bounds.

    Parameters
    ----------
    rows : DataFrame
        What `tm.validation()` returns. [-]
    plans : iterable of Choice or None
        The best choices. [-]
    """
    votes = counted(rows[rows.use.eq("model") & rows.meaning.eq("prefill")])
    of = dict[str, dict[str, None]]()
    for best in plans:
        if best is not None:
            of.setdefault(best.system.chip.id, {})[best.question.model.id] = None
    said = []
    for chip, models in of.items():
        on = votes[votes.chip == chip]
        if len(on) < FEW:
            none = not set(on.model) & set(models)
            routed = [model(name).active_params() < model(name).total_params / 2 for name in on.model if name]
            mixtures = ", of mixtures of experts alone" if routed and all(routed) else ""
            count = {0: "no prompt was", 1: "one prompt was", 2: "two prompts were"}.get(
                len(on), f"{len(on)} prompts were"
            )
            own = ", and none of these models" if none and len(on) else ""
            said.append(
                f"**Read the bars of {called(chip)} as lower bounds of what is uncertain.** There {count} measured"
                f"{mixtures}{own}. So few runs cannot show how far off a prompt may be."
            )
    return "\n\n".join(said)


def parts(best: Choice) -> pd.DataFrame:
    """Return the band of a plan's prompt, of its decode step and of its throughput, and how far the ends are apart."""
    step = _step(best)
    prompt = tuple(best.banded("prefill_s").values())
    made = (best.tokens_per_s_per_chip, best.low, best.high)
    rows = []
    for name, unit, (value, low, high) in (
        ("time of a prompt", "s", prompt),
        ("time of a decode step", "s", step),
        ("throughput per chip", "tokens/s", made),
    ):
        shown = {
            k: format_quantity(float(x), unit, 2)
            for k, x in zip(("predicted", "low end", "high end"), (value, low, high), strict=True)
        }
        rows.append({"figure": name} | shown | {"high over low": format_digits(float(high / low), 2)})
    return pd.DataFrame(rows)


def _band(best: Choice) -> str:
    """Return how wide a band is, in words."""
    times = format_digits(float(best.high / best.low), 1 if best.high > 10 * best.low else 2)
    return f"The ends of the band differ by a factor of about {times}."


def bands(
    public: Mapping[tuple[str, str], Choice | None], ideal: Mapping[tuple[str, str], Choice | None]
) -> pd.DataFrame:
    """Return the throughput of plans with their bands on public software, and without losses, one row each.

    Parameters
    ----------
    public, ideal : mapping
        The best choices on public and on ideal software by model and system; None where no promise can be kept. [-]
    """
    rows = []
    for kind, plans in {"public software": public, "no loss at all": ideal}.items():
        for (name, where), best in plans.items():
            if best is not None and best.valid:
                value, low, high = (float(x) for x in (best.tokens_per_s_per_chip, best.low, best.high))
                ends = {_FIGURE: value, f"{_FIGURE}_low": low, f"{_FIGURE}_high": high}
                group = f"{_model(name)}, {_short(where)}"
                rows.append({"group": group, "software": kind, "basis": str(best.basis)} | ends)
    return pd.DataFrame(rows)


def bases() -> pd.DataFrame:
    """Return what each basis means, and the errors and bands of predictions that rested on it.

    Returns
    -------
    table : pandas.DataFrame
        rests on, what it means; with an unseen model on a page that is otherwise seen and with an unseen page: the
        configurations, their median error, and the share inside the band. [-]
    """
    every = pd.read_csv(measured.COVERAGE)
    table = pd.DataFrame({"rests on": list(MEANS), "what it means": list(MEANS.values())})
    names = {"cases": "runs", "median_error": "median_error", "inside": "share_inside"}
    for split, unseen in ((LEFT_OUT, "model_unseen"), (SOURCE, "page_unseen")):
        held = every[every.split.eq(split) & every.of.eq("basis")].set_index("name").loc[list(MEANS)]
        for name, title in names.items():
            table[f"{unseen}_{title}"] = held[name].to_numpy()
    return table


def nearest(rows: pd.DataFrame, plans: Iterable[Choice | None]) -> pd.DataFrame:
    """Return how many measured configurations are near the plans of each model and chip.

    Parameters
    ----------
    rows : DataFrame
        What `tm.validation()` returns. [-]
    plans : iterable of Choice or None
        The best choices. [-]

    Returns
    -------
    table : pandas.DataFrame
        case, rests on, configurations of steps and prompts: on the chip; of these with the kind of model; of these with
        the software; and what is furthest away. [-]
    """
    votes = counted(rows[rows.use == "model"])
    votes = votes.assign(kind=votes.model.map(lambda name: model(name).kind if name else ""))
    table, seen = [], set[tuple[str, str]]()
    for best in plans:
        if best is None or (key := (best.question.model.id, best.system.chip.id)) in seen:
            continue
        seen.add(key)
        of = best.question.model
        chip = votes[votes.chip == best.system.chip.id]
        kind = chip[chip.kind == of.kind]
        own = kind[kind["stack"].replace("", best.system.chip.default_stack) == best.stack.rows_of]
        table.append(
            {
                "case": f"{of.id}, {best.system.chip.name}",
                "rests on": str(best.step.basis),
                "runs on the chip": len(chip),
                "of this kind of model": len(kind),
                "of this software too": len(own),
                "beside the nearest run": _missing(str(best.step.basis_reason)),
            }
        )
    return pd.DataFrame(table)


def _missing(reason: str) -> str:
    """Return the reasons of a basis in the words of a table.

    Examples
    --------
    >>> _missing("batch: 4.0 times the nearest row's 1; chip: x was fitted on trainium2; y: z")
    'batch is 4 times as large; software was measured on Trainium2; y: z'
    """
    parts = []
    for part in reason.split("; "):
        times = re.fullmatch(r"(.+): ([\d.,]+) times the nearest row's .+", part)
        fitted = re.fullmatch(r"\w+: \S+ was fitted on (.+)", part)
        if times:
            parts.append(f"{times[1]} {'are' if times[1].endswith('s') else 'is'} {float(times[2]):g} times as large")
        elif fitted:
            chips = " and ".join(str(called(chip)) for chip in fitted[1].split(", "))
            parts.append(f"software was measured on {chips}")
        else:
            parts.append(part)
    return "; ".join(parts)


def ratios(plans: Mapping[tuple[str, str], Choice | None]) -> pd.DataFrame:
    """Return the throughput of each system over that of the one before it, draw by draw.

    The draws are common: in each of them the same software is better or worse on all systems.

    Returns
    -------
    table : pandas.DataFrame
        group (the pair), model, ratio (median of the draws in which both keep the promise) with its ends, the 5th and
        the 95th percentile. [-]
    """
    drawn = {key: np.asarray(best.drawn[_FIGURE]) for key, best in plans.items() if best is not None and best.valid}
    models = dict.fromkeys(name for name, _ in drawn)
    rows = []
    for name in models:
        places = [where for of, where in drawn if of == name]
        for one, other in zip(places[1:], places, strict=False):
            low, middle, high = np.nanpercentile(drawn[name, one] / drawn[name, other], [5, 50, 95])
            ends = {"ratio": middle, "ratio_low": low, "ratio_high": high}
            rows.append({"group": f"{_short(one)} over {_short(other)}", "model": name} | ends)
    return pd.DataFrame(rows, columns=["group", "model", "ratio", "ratio_low", "ratio_high"])


def _model(name: str) -> str:
    """Return the name of a model as a narrow axis has it.

    Examples
    --------
    >>> _model("llama-3.3-70b"), _model("deepseek-v3"), _model("gpt-oss-20b")
    ('Llama', 'DeepSeek', 'gpt-oss-20b')
    """
    return _SHORT.get(name, name)


def _short(where: str) -> str:
    """Return the name of a system as a narrow axis has it.

    Examples
    --------
    >>> _short("trn3-nl72x2-pcie160"), _short("trn2.48xlarge")
    ('NL72x2', 'trn2.48xlarge')
    """
    return system(where).name.removeprefix("Trainium3 ").removesuffix(" Switched")


def served() -> pd.DataFrame:
    """Return the errors of served models with their page left out: the median, up to the 90th percentile."""
    errors = measured.by_chip(measured.left_out())
    errors = errors[(errors.chip == measured.ANY) & errors.question.isin(_SERVED)]
    errors = errors.assign(error_in_percent=100 * errors.median_error)
    ends = {"error_in_percent_low": errors.error_in_percent, "error_in_percent_high": 100 * errors.p90_error}
    return errors.assign(**ends, group=errors.question + ", " + errors.configurations.astype(str) + " runs")


def chips_for(tokens_per_s: float, plans: Iterable[Choice | None], rents: Mapping[str, float]) -> pd.DataFrame:
    """Return the chips that make a throughput, in the middle and at both ends of the band, and their rent.

    Chips are counted in whole instances, and in whole replicas where a replica has several instances.

    Parameters
    ----------
    tokens_per_s : float
        Tokens that all users together receive. [1/s]
    plans : iterable of Choice or None
        The best choices. [-]
    rents : mapping
        Price of a chip-hour by system; not a number where none is published. [USD/h]
    """
    rows = []
    for best in plans:
        if best is not None and best.valid:
            ends = np.array([best.high, best.tokens_per_s_per_chip, best.low], dtype=float)
            unit = float(best.paid_chips) * max(float(best.replicas_per_instance), 1.0)  # chips that are sold together
            needed = (np.ceil(tokens_per_s / ends / unit) * unit).astype(int).tolist()
            names = ("high end", "prediction", "low end")
            chips = {f"chips at the {name}": f"{n:,}" for name, n in zip(names, needed, strict=True)}
            row = {"case": f"{best.question.model.id}, {best.place}"} | chips
            rent = needed[1] * rents[best.system.id] * _HOURS_PER_MONTH
            row["rent at the prediction [$ per month]"] = f"{round(rent, -3):,.0f}" if rent == rent else "–"
            rows.append(row | {"promise kept in": f"{best.chance:.0%} of the draws"})
    return pd.DataFrame(rows)


def pages(rows: pd.DataFrame, plans: Iterable[Choice | None]) -> pd.DataFrame:
    """Return the pages of measurements on the chips of the plans, with their configurations."""
    chips = {best.system.chip.id for best in plans if best is not None}
    used = counted(rows[rows.chip.isin(chips) & rows.use.eq("model")]).groupby("source").size()
    return used.sort_values(ascending=False, kind="stable").rename("configurations").reset_index()
