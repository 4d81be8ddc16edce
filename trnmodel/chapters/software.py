"""What software costs: yields in words, bars, shares at which chips tie, two domains, two counts of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnmodel import charts
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.charts.display import altair
from trnmodel.fabric.compare import capacities
from trnmodel.planner import contests, domain_sizes, software
from trnmodel.planner.deployments import formats
from trnmodel.units import TRILLION

SIZES = tuple(size * TRILLION for size in (0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0))
ENOUGH, PAYS = 3 * TRILLION, 4 * TRILLION  # parameters: the deep dive, L265
PAYS_AT = 1.1  # from which ratio on a benefit is meaningful
TEXT = "trainium3-deep-dive, L265"
READINGS = (read_system, contests.fewer_lanes)
CLASSES: Mapping[str, str] = {
    "smaller ahead": "#0072B2",
    "alike (0.95 to 1.1)": "#D9D9D9",
    "larger ahead, to 1.5 times": "#F6C19B",
    "larger ahead, beyond 1.5 times": "#D55E00",
    "only the larger": "#7A3500",
    "neither": "#FFFFFF",
}


def bars(fall: pd.DataFrame) -> pd.DataFrame:
    """`software.waterfall` as a chart draws it: each bar from where the last ended."""
    ends = fall[["start_s", "end_s"]]
    label = np.where(fall.index == 0, "ideal step", fall.software + ": " + fall.mechanism)
    return fall.assign(bar=label, step_s=fall.end_s, step_s_low=ends.min(axis=1), step_s_high=ends.max(axis=1))


def largest(fall: pd.DataFrame) -> str:
    """The largest bar to each kind of software, in words."""
    added = fall[fall.software != fall.software.iloc[0]]
    most = [part.loc[part.bar_s.idxmax()] for _, part in added.groupby("software", sort=False)]
    return "; ".join(
        f"to {one.software} most is added by {one.mechanism}, {one.bar_s * 1e3:.1f} ms "
        f"({one.bar_s_low * 1e3:.1f} to {one.bar_s_high * 1e3:.1f})"
        for one in most
    )


def tie_lines(table: pd.DataFrame, system: str) -> pd.DataFrame:
    """`contests.ties` as a chart draws it: rivals on each software, and the band that the system's own reaches."""
    own = table.system == system
    shown = table[~own | table.software.isin(["hand-tuned", "ideal"])].copy()
    banded = (shown.system == system) & (shown.software == "hand-tuned")
    ends = ["share_of_ideal_low", "share_of_ideal_high"]
    shown[ends] = shown[ends].where(banded & (shown.share_of_ideal_high > 0).to_numpy())
    return shown.assign(system=shown.system.map(software.names(dict.fromkeys(table.system))))


def tie_words(table: pd.DataFrame, system: str) -> str:
    """Against each rival on each software: what share ties at the slowest speed, and where no software does."""
    called, words = software.names(dict.fromkeys(table.system)), list[str]()
    for (name, kind), lines in table[table.system != system].groupby(["system", "software"], sort=False):
        known = lines.dropna(subset=["share_of_ideal"])
        if known.empty:
            words.append(f"{called[name]}, {kind}: it is nowhere as fast")
            continue
        first, last = known.iloc[0], known.iloc[-1]
        beyond = known[known.share_of_ideal > 1].wanted_tokens_per_s_per_user
        said = f"{first.share_of_ideal:.2f} at {first.wanted_tokens_per_s_per_user:g} tokens/s"
        said += f", {last.share_of_ideal:.2f} at {last.wanted_tokens_per_s_per_user:g}" if len(known) > 1 else ""
        none = f"; no software ties from {beyond.min():g} to {beyond.max():g}" if len(beyond) else ""
        words.append(f"{called[name]}, {kind}: {said}{none}")
    return "\n".join(f"* {one}" for one in words)


def reached(table: pd.DataFrame, system: str) -> str:
    """The share of the ideal that a system's hand-tuned software reaches, at the slowest speed and up to the fastest."""
    at = table[(table.system == system) & (table.software == "hand-tuned")].dropna(subset=["share_of_ideal"])
    if at.empty:
        return "none of these speeds"
    ends = (at.iloc[0], at.iloc[-1]) if len(at) > 1 else (at.iloc[0],)
    said = (
        f"{one.share_of_ideal:.2f} ({one.share_of_ideal_low:.2f} to {one.share_of_ideal_high:.2f}) at "
        f"{one.wanted_tokens_per_s_per_user:g} tokens/s"
        for one in ends
    )
    return ", ".join(said)


def domain_map(table: pd.DataFrame, caption: str, under: str) -> Any:
    """Ratio of two domains over size and speed, hatched where its band holds 1, with the text's lines."""
    alt, ratio = altair(), table.ratio
    which = np.select(
        [ratio.isna(), np.isinf(ratio), ratio < 0.95, ratio < PAYS_AT, ratio <= 1.5],
        ["neither", "only the larger", *list(CLASSES)[:3]],
        "larger ahead, beyond 1.5 times",
    )
    shown = table.assign(trillion=table.total_params / TRILLION, which=which)
    cells = charts.regions(shown, x="trillion", y="tokens_per_s_per_user", color="which", caption=caption, under=under)
    there = [name for name in CLASSES if name in set(which)]
    scale = {"domain": there, "range": [CLASSES[name] for name in there]}
    cells = cells.encode(color=alt.Color(field="which", type="nominal", title=None, scale=scale))
    x = {"field": "trillion", "type": "ordinal"}
    loose = shown.loc[~shown.sure & ~shown.ratio.isna(), ["trillion", "tokens_per_s_per_user"]]
    hatch = alt.Chart(loose).mark_text(text="///", color="#555555", fontSize=13)
    marks = [hatch.encode(x=alt.X(**x), y=alt.Y(field="tokens_per_s_per_user", type="ordinal", sort="descending"))]
    for size, words in ((ENOUGH, "text: enough to here"), (PAYS, "text: pays from here")):
        at = pd.DataFrame({"trillion": [size / TRILLION], "said": [words]})
        edge = alt.X(**x, bandPosition=1.0 if size == ENOUGH else 0.0)
        base = alt.Chart(at).encode(x=edge)
        marks.append(base.mark_rule(color="#000000", strokeWidth=2, strokeDash=[1, 0] if size == PAYS else [4, 3]))
    title, told = cells.title, cells.description
    cells.title = cells.description = alt.Undefined
    return alt.layer(cells, *marks).properties(title=title, description=told)


def pays_from(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """At each speed the smallest size of which a larger domain pays, beside the text's claim."""
    return domain_sizes.verdicts(table[table.software == kind], PAYS_AT, ENOUGH, PAYS)


def first_words(table: pd.DataFrame, speeds: Sequence[float]) -> str:
    """From which size on a larger domain pays at some speeds, in words."""
    at = table.set_index("tokens_per_s_per_user").pays_from_params
    said = (f"{'never' if np.isnan(at[v]) else f'from {at[v] / TRILLION:g}T'} at {v:g} tokens/s" for v in speeds)
    return ", ".join(said)


def agreeing(table: pd.DataFrame) -> str:
    """The speeds at which the text's claim holds."""
    speeds = table.tokens_per_s_per_user[table.verdict == "agrees"]
    return f"{', '.join(f'{v:g}' for v in speeds)} tokens/s a user" if len(speeds) else "no speed of these"


Claim = tuple[str, str, float, bool, str]  # chapter, conclusion, value, whether it holds, the value in words


def _times(chapter: str, words: str, value: float, least: float = 1.0) -> Claim:
    return chapter, words, value, bool(value > least), f"{value:.2f} times"


def _claims(
    models: Mapping[str, str], pair: Sequence[System], torus: str, rivals: Sequence[str], ask: dict[str, Any]
) -> Iterator[Claim]:
    """What other chapters conclude of two switched domains, a torus and chips of others."""
    small, large = pair
    speeds, context = ask["speeds"], ask["context"]
    precision = {name: formats([name], ask["precisions"])[name] for name in (torus, *rivals)}
    precision |= dict.fromkeys((small.id, large.id), precision[torus])
    rates = capacities([small, torus]).set_index(["scope", "system"])
    sent = rates.all_to_all_bytes_per_s
    inside, over = (sent[scope, small.id] / sent[scope, torus] for scope in ("rack", "world"))
    yield _times("Torus or switch?", "in a rack switches carry more all-to-all than the torus", inside)
    yield "Torus or switch?", "over the domain they carry no more", over, bool(over < 1.05), f"{over:.2f} times"

    def made(model: str, where: str | System) -> NDArray:
        name = where if isinstance(where, str) else where.id
        return contests.yields(models[model], where, "hand-tuned", speeds, context, precision[name])

    here = {one: made("experts", one) for one in (small, large, torus)}
    tray, serving, beside = (
        "Which switch tray, and does it matter?",
        "How fast does it serve?",
        "How does Trainium stand?",
    )
    for i, speed in enumerate(speeds):
        at = f"at {speed:g} tokens/s a user"
        yield _times(tray, f"{at} the larger domain pays", _over(here[large], here[small], i), PAYS_AT)
        yield _times(serving, f"{at} switches yield more than the torus", _over(here[small], here[torus], i))
    sizes = contests.domains(SIZES, speeds[:1], (small, large), context=context, kinds=["hand-tuned"])
    first = float(pays_from(sizes, "hand-tuned").pays_from_params.iloc[0])
    words = f"at {speeds[0]:g} tokens/s a user the larger domain pays only beyond {ENOUGH / TRILLION:g}T"
    yield tray, words, first, not first <= ENOUGH, f"from {first / TRILLION:g}T" if first > 0 else "never"
    out = rates.injection_bytes_per_s_per_dir["world", small.id] / small.scaleout_bytes_per_s_per_dir
    yield _times("How far does the scale-out network reach?", "scale-up carries ten times a chip's scale-out", out, 10)
    for rival, (kind, model) in product(rivals, models.items()):
        words = f"{model} at {speeds[-1]:g} tokens/s: ahead of {read_system(rival).name}"
        yield _times(beside, words, _over(made(kind, large), made(kind, rival), -1))


def _over(one: NDArray, other: NDArray, i: int) -> float:
    """A ratio of yields, NaN where neither is as fast."""
    return float(one[i] / other[i]) if other[i] else (np.inf if one[i] else np.nan)


def conclusions(
    models: Mapping[str, str], pair: Sequence[str], torus: str, rivals: Sequence[str], **ask: Any
) -> pd.DataFrame:
    """Headline conclusions of other chapters by both counts of lanes, on hand-tuned software, and whether they flip.

    Parameters
    ----------
    models : mapping
        "experts" and "dense" to a model each. [-]
    ask
        speeds, context and precisions. [-]
    """
    used, fewer = (list(_claims(models, [read(one) for one in pair], torus, rivals, ask)) for read in READINGS)
    rows = [
        {"chapter": chapter, "conclusion": words, "with the lanes used": said, "with fewer": other[4]}
        | {"holds": holds, "flips": holds != other[3]}
        for (chapter, words, _, holds, said), other in zip(used, fewer, strict=True)
    ]
    return pd.DataFrame(rows)
