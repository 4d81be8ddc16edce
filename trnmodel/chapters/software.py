"""What software costs: yields in words, bars, shares at which chips tie, two domains, two counts of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnmodel import charts
from trnmodel.catalog.stacks import kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.charts.display import altair
from trnmodel.fabric.compare import capacities
from trnmodel.planner import contests, domain_sizes, software
from trnmodel.planner.deployments import computes, formats
from trnmodel.units import GB, TRILLION, format_within

SIZES = tuple(size * TRILLION for size in (0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 3.5, 4.0, 6.0, 8.0))
ENOUGH, PAYS = 3 * TRILLION, 4 * TRILLION  # parameters: the deep dive, L265
HATCH = "M-.5,.5L-.2,-.5M-.15,.5L.15,-.5M.2,.5L.5,-.5"  # three strokes
SHOWN = 0.05  # of the ideal, below which a line ends
PAYS_AT = 1.1  # from which ratio on a benefit is meaningful
# the text's lines (trainium3-deep-dive, L265): size, edge of its cell, dash, words
TEXT = (
    (2 * TRILLION, 0.0, [4, 3], "text: enough"),
    (ENOUGH, 1.0, [4, 3], ""),
    (PAYS, 0.0, [1, 0], "text: pays"),
)
# titles of the chapters whose conclusions are asked both ways, in the order of the book
TITLES = TORUS, TRAY, REACH, SERVE, BESIDE = (
    "Torus or switch?",
    "Which switch tray, and does it matter?",
    "How far does the scale-out network reach?",
    "How fast does it serve?",
    "How does Trainium stand beside GPUs and TPUs?",
)
READINGS = (read_system, contests.fewer_lanes)
CLASSES: Mapping[str, str] = {
    "smaller ahead": "#7FB2D9",
    "alike (0.95 to 1.1)": "#D9D9D9",
    "larger ahead, to 1.5 times": "#F6C19B",
    "larger ahead, beyond 1.5 times": "#D55E00",
    "only the larger": "#8C3D00",
    "neither": "transparent",
}


def bars(fall: pd.DataFrame) -> pd.DataFrame:
    """`software.waterfall` as a chart draws it: each bar from where the last ended."""
    ends = fall[["start_s", "end_s"]]
    which = np.where(fall.index == 0, f"{fall.software.iloc[0]} step", fall.software + ": " + fall.mechanism)
    found = {"which": which, "step_s": fall.end_s, "step_s_low": ends.min(axis=1), "step_s_high": ends.max(axis=1)}
    return pd.DataFrame(found | {"basis": fall.basis})


def largest(fall: pd.DataFrame) -> str:
    """The largest bar to each kind of software, in words."""
    added = fall[fall.software != fall.software.iloc[0]]
    most = [part.loc[part.bar_s.idxmax()] for _, part in added.groupby("software", sort=False)]
    told = [format_within(*one[["bar_s", "bar_s_low", "bar_s_high"]], "s") for one in most]
    return "; ".join(
        f"to {one.software} most is added by {one.mechanism}, {words}" for one, words in zip(most, told, strict=True)
    )


def tie_lines(table: pd.DataFrame, system: str) -> pd.DataFrame:
    """`contests.ties` as a chart draws it: rivals, the system's ideal and the band that it reaches hand-tuned."""
    own, tuned = table.system == system, table.software == "hand-tuned"
    shown = table[(table.share_of_ideal >= SHOWN) & ~(own & (table.software == "public"))].copy()
    shown[contests.SHARES[1:]] = shown[contests.SHARES[1:]].where((own & tuned)[shown.index])
    called = software.names(dict.fromkeys(table.system)) | {system: read_system(system).chip.name}
    return shown.assign(system=shown.system.map(called))


def domain_map(table: pd.DataFrame, caption: str, under: str) -> Any:
    """Ratio of two domains over size and speed, hatched where its band holds 1, with the text's lines."""
    alt, ratio = altair(), table.ratio
    which = np.select(
        [ratio.isna(), np.isinf(ratio), ratio < 0.95, ratio < PAYS_AT, ratio <= 1.5],
        ["neither", "only the larger", *list(CLASSES)[:3]],
        "larger ahead, beyond 1.5 times",
    )
    x, y = "total_params", "tokens_per_s_per_user"
    cells = charts.regions(table.assign(which=which), x=x, y=y, color="which", caption=caption, under=under)
    there = [name for name in CLASSES if name in set(which)]
    scale = {"domain": there, "range": [CLASSES[name] for name in there]}
    cells = cells.encode(color=alt.Color(field="which", type="nominal", title=None, scale=scale))
    whole = {name: getattr(cells, name) for name in ("title", "description", "usermeta")}
    cells.title = cells.description = cells.usermeta = alt.Undefined
    loose = table.loc[~table.sure & ~ratio.isna(), [x, y]].assign(total_params=lambda t: t.total_params / TRILLION)
    hatch = alt.Chart(loose).mark_point(shape=HATCH, stroke="#333333", size=400)
    layers = [
        cells,
        hatch.encode(x=alt.X(field=x, type="ordinal"), y=alt.Y(field=y, type="ordinal", sort="descending")),
    ]
    for size, end, dash, words in TEXT:
        edge = alt.X(field=x, type="ordinal", bandPosition=end)
        at = alt.Chart(pd.DataFrame({x: [size / TRILLION]})).encode(x=edge)
        layers.append(at.mark_rule(color="#777777", strokeWidth=2.5, strokeDash=dash))
        if words:
            layers.append(
                at.mark_text(text=words, align="left", dx=3, fontSize=11, color="#808080").encode(y=alt.value(-7))
            )
    return alt.layer(*layers).properties(**whole, width={"step": 36})


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
    said = "neither is as fast" if np.isnan(value) else "only the first" if np.isinf(value) else f"{value:.3g} times"
    return chapter, words, value, bool(value > least), said


def _claims(
    models: Mapping[str, Any],
    pair: Sequence[System],
    torus: str,
    rivals: Sequence[str],
    ask: dict[str, Any],
) -> Iterator[Claim]:
    """What other chapters conclude of two switched domains, a torus and chips of others."""
    small, large = pair
    speeds, context = ask["speeds"], ask["context"]
    shared = [one for one in ask["precisions"] if all(computes(it, one) for it in (small, large, torus))]
    precision = {name: formats([name], ask["precisions"])[name] for name in rivals}
    precision |= dict.fromkeys((small.id, large.id, torus), shared[0])
    rates = capacities({small.id: small, torus: torus}.values()).set_index(["scope", "system"])
    sent = rates.all_to_all_bytes_per_s
    inside, over = (sent[scope, small.id] / sent[scope, torus] for scope in ("rack", "world"))
    yield _times(TORUS, "in a rack switches carry more all-to-all than the torus", inside)
    yield TORUS, "over the domain they carry no more", over, bool(over < 1.05), f"{over:.3g} times"

    def made(model: str, where: str | System) -> NDArray:
        name = where if isinstance(where, str) else where.id
        return contests.yields(models[model], where, "hand-tuned", speeds, context, precision[name])[0]

    here = {one: made("experts", one) for one in (small, large, torus)}
    for i, speed in enumerate(speeds):
        at = f"at {speed:g} tokens/s a user"
        yield _times(TRAY, f"{at} the larger domain pays", _over(here[large], here[small], i), PAYS_AT)
        yield _times(SERVE, f"{at} switches yield more than the torus", _over(here[small], here[torus], i))
    sizes = contests.domains(SIZES, speeds[:1], pair, context=context, precision=precision[torus], kinds=["hand-tuned"])
    first = float(pays_from(sizes, "hand-tuned").pays_from_params.iloc[0])
    words = f"at {speeds[0]:g} tokens/s a user the larger domain pays only beyond {ENOUGH / TRILLION:g}T"
    yield TRAY, words, first, not first <= ENOUGH, f"from {first / TRILLION:g}T" if first > 0 else "never"
    out = rates.injection_bytes_per_s_per_dir["world", small.id] / small.scaleout_bytes_per_s_per_dir
    yield _times(REACH, "scale-up carries ten times a chip's scale-out", out, 10)
    tuned = [one for one in rivals if "hand-tuned" in kinds(read_system(one).chip)]
    for rival, (kind, model) in product(tuned, models.items()):
        words = f"{getattr(model, 'id', model)} at {speeds[-1]:g} tokens/s: ahead of {read_system(rival).name}"
        yield _times(BESIDE, words, _over(made(kind, large), made(kind, rival), -1))


def _over(one: NDArray, other: NDArray, i: int) -> float:
    """A ratio of yields, NaN where neither is as fast."""
    return float(one[i] / other[i]) if other[i] else (np.inf if one[i] else np.nan)


def conclusions(
    models: Mapping[str, Any], pair: Sequence[str], torus: str, rivals: Sequence[str], **ask: Any
) -> pd.DataFrame:
    """Headline conclusions of other chapters by both counts of lanes, on hand-tuned software, and whether they flip.

    `models` are "experts" and "dense"; `ask` is speeds, context and precisions.
    """
    specs = [[read(one) for one in pair] for read in READINGS]
    used, fewer = (list(_claims(models, both, torus, rivals, ask)) for both in specs)
    rates = (capacities([small]).injection_bytes_per_s_per_dir.iloc[0] / GB for small, _ in specs)
    heads = [f"at {rate:,.0f} GB/s a chip" for rate in rates]
    rows = [
        {"chapter": chapter, "conclusion": words, heads[0]: said, heads[1]: other[4]}
        | {"holds": holds, "flips": holds != other[3]}
        for (chapter, words, _, holds, said), other in zip(used, fewer, strict=True)
    ]
    return pd.DataFrame(rows).sort_values(
        "chapter", key=lambda c: c.map(TITLES.index), kind="stable", ignore_index=True
    )
