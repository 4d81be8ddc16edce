"""What software decides: bars between kinds of software, shares for a tie, two domains, two counts of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnbook import charts
from trnbook.chapters import software_break_even as break_even
from trnbook.charts.display import altair
from trnbook.shared import domain_sizes, software_kinds
from trnbook.shared.fabrics import capacities
from trnmodel.catalog.stacks import kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.search.frontier import formats
from trnmodel.search.grid import computes
from trnmodel.units import GB, TRILLION, format_within

SIZES = tuple(size * TRILLION for size in (0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 3.5, 4.0, 6.0, 8.0))
ENOUGH, PAYS = 3 * TRILLION, 4 * TRILLION  # parameters: the deep dive, L265
HATCH = "M-.5,.5L-.2,-.5M-.15,.5L.15,-.5M.2,.5L.5,-.5"  # three strokes
SHOWN = 0.05  # share of ideal below which a line ends
PAYS_AT = 1.1  # ratio from which a benefit is meaningful
# lines of the deep dive (trainium3-deep-dive, L265): size, edge of its cell, dash, label
TEXT = (
    (2 * TRILLION, 0.0, [4, 3], "text: enough"),
    (ENOUGH, 1.0, [4, 3], ""),
    (PAYS, 0.0, [1, 0], "text: pays"),
)
# titles of the chapters whose conclusions are checked under both counts of lanes, in the order of the book
TITLES = TORUS, TRAY, REACH, SERVE, GPUS = (
    "Torus or switch?",
    "Which switch tray, and does it matter?",
    "How far does the scale-out network reach?",
    "How fast does it serve?",
    "How does Trainium stand beside GPUs and TPUs?",
)
READINGS = (read_system, break_even.fewer_lanes)
CLASSES: Mapping[str, str] = {
    "smaller ahead": "#7FB2D9",
    "alike (0.95 to 1.1)": "#D9D9D9",
    "larger ahead, to 1.5 times": "#F6C19B",
    "larger ahead, beyond 1.5 times": "#D55E00",
    "only the larger": "#8C3D00",
    "neither": "transparent",
}


def bars(fall: pd.DataFrame) -> pd.DataFrame:
    """Return `waterfall` as a chart draws it: each bar starts where the last one ended."""
    ends = fall[["start_s", "end_s"]]
    which = np.where(fall.index == 0, f"{fall.software.iloc[0]} step", fall.software + ": " + fall.mechanism)
    columns = {"which": which, "step_s": fall.end_s, "step_s_low": ends.min(axis=1), "step_s_high": ends.max(axis=1)}
    return pd.DataFrame(columns | {"basis": fall.basis})


def largest(fall: pd.DataFrame) -> str:
    """Describe the largest bar to each kind of software."""
    added = fall[fall.software != fall.software.iloc[0]]
    most = [part.loc[part.bar_s.idxmax()] for _, part in added.groupby("software", sort=False)]
    texts = [format_within(one.bar_s, one.bar_s_low, one.bar_s_high, "s") for one in most]
    return "; ".join(
        f"to {one.software} most is added by {one.mechanism}, {text}" for one, text in zip(most, texts, strict=True)
    )


def tie_lines(table: pd.DataFrame, system: str) -> pd.DataFrame:
    """Return `break_even.ties` for a chart: rivals, the system's ideal and its hand-tuned band."""
    own, tuned = table.system == system, table.software == "hand-tuned"
    shown = table[(table.share_of_ideal >= SHOWN) & ~(own & (table.software == "public"))].copy()
    shown[break_even.SHARES[1:]] = shown[break_even.SHARES[1:]].where((own & tuned)[shown.index])
    called = software_kinds.names(dict.fromkeys(table.system)) | {system: read_system(system).chip.name}
    return shown.assign(system=shown.system.map(called))


def domain_map(table: pd.DataFrame, caption: str, under: str) -> Any:
    """Chart the ratio of two domains over size and speed, hatched where its band holds 1."""
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
    for size, end, dash, label in TEXT:
        edge = alt.X(field=x, type="ordinal", bandPosition=end)
        at = alt.Chart(pd.DataFrame({x: [size / TRILLION]})).encode(x=edge)
        layers.append(at.mark_rule(color="#777777", strokeWidth=2.5, strokeDash=dash))
        if label:
            layers.append(
                at.mark_text(text=label, align="left", dx=3, fontSize=11, color="#808080").encode(y=alt.value(-7))
            )
    return alt.layer(*layers).properties(**whole, width={"step": 36})


def pays_from(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return per speed the smallest size for which a larger domain pays, with the deep dive's claim."""
    return domain_sizes.verdicts(table[table.software == kind], PAYS_AT, ENOUGH, PAYS)


def describe_sizes(table: pd.DataFrame, speeds: Sequence[float]) -> str:
    """Describe from which size on a larger domain pays at some speeds."""
    at = table.set_index("tokens_per_s_per_user").pays_from_params
    said = (f"{'never' if np.isnan(at[v]) else f'from {at[v] / TRILLION:g}T'} at {v:g} tokens/s" for v in speeds)
    return ", ".join(said)


def agreeing(table: pd.DataFrame) -> str:
    """Describe the speeds at which the deep dive's claim holds."""
    speeds = table.tokens_per_s_per_user[table.verdict == "agrees"]
    return f"{', '.join(f'{v:g}' for v in speeds)} tokens/s a user" if len(speeds) else "no speed of these"


Claim = tuple[str, str, float, bool, str]  # chapter, conclusion, value, whether it holds, the value as text


def _times(chapter: str, conclusion: str, value: float, least: float = 1.0) -> Claim:
    said = "neither is as fast" if np.isnan(value) else "only the first" if np.isinf(value) else f"{value:.3g} times"
    return chapter, conclusion, value, bool(value > least), said


def _claims(
    models: Mapping[str, Any],
    pair: tuple[System, System],
    torus: str,
    rivals: Sequence[str],
    ask: dict[str, Any],
) -> Iterator[Claim]:
    """Yield the conclusions of other chapters about two switched domains, a torus and other chips."""
    small, large = pair
    speeds, request = ask["speeds"], ask["request"]
    shared = [one for one in ask["precisions"] if all(computes(it, one) for it in (small, large, torus))]
    precision = {name: formats([name], ask["precisions"])[name] for name in rivals}
    precision |= dict.fromkeys((small.id, large.id, torus), shared[0])
    compared: dict[str, str | System] = {small.id: small, torus: torus}
    rates = capacities(compared.values()).set_index(["scope", "system"])
    sent = rates.all_to_all_bytes_per_s
    inside, over = (sent[scope, small.id] / sent[scope, torus] for scope in ("rack", "world"))
    yield _times(TORUS, "in a rack switches carry more all-to-all than the torus", inside)
    yield TORUS, "over the domain they carry no more", over, bool(over < 1.05), f"{over:.3g} times"

    def made(model: str, where: str | System) -> NDArray:
        name = where if isinstance(where, str) else where.id
        return break_even.yields(models[model], request, where, "hand-tuned", speeds, precision[name])[0]

    here = {one: made("experts", one) for one in (small, large, torus)}
    for i, speed in enumerate(speeds):
        at = f"at {speed:g} tokens/s a user"
        yield _times(TRAY, f"{at} the larger domain pays", _over(here[large], here[small], i), PAYS_AT)
        yield _times(SERVE, f"{at} switches yield more than the torus", _over(here[small], here[torus], i))
    sizes = break_even.domains(
        SIZES, speeds[:1], pair, request=request, precision=precision[torus], kinds=["hand-tuned"]
    )
    first = float(pays_from(sizes, "hand-tuned").pays_from_params.iloc[0])
    conclusion = f"at {speeds[0]:g} tokens/s a user the larger domain pays only beyond {ENOUGH / TRILLION:g}T"
    yield TRAY, conclusion, first, not first <= ENOUGH, f"from {first / TRILLION:g}T" if first > 0 else "never"
    out = rates.injection_bytes_per_s_per_dir["world", small.id] / small.scaleout_bytes_per_s_per_dir
    yield _times(REACH, "scale-up carries ten times a chip's scale-out", out, 10)
    tuned = [one for one in rivals if "hand-tuned" in kinds(read_system(one).chip)]
    for rival, (kind, model) in product(tuned, models.items()):
        conclusion = f"{getattr(model, 'id', model)} at {speeds[-1]:g} tokens/s: ahead of {read_system(rival).name}"
        yield _times(GPUS, conclusion, _over(made(kind, large), made(kind, rival), -1))


def _over(one: NDArray, other: NDArray, i: int) -> float:
    """Return the ratio of yields; NaN where neither is fast enough, infinite where only the first is."""
    return float(one[i] / other[i]) if other[i] else (np.inf if one[i] else np.nan)


def conclusions(
    models: Mapping[str, Any], pair: Sequence[str], torus: str, rivals: Sequence[str], **ask: Any
) -> pd.DataFrame:
    """Return conclusions of other chapters under both counts of lanes, and whether they flip.

    `models` are "experts" and "dense"; `ask` is speeds, request and precisions.
    """
    smaller, larger = pair
    specs = [(read(smaller), read(larger)) for read in READINGS]
    used, fewer = (list(_claims(models, both, torus, rivals, ask)) for both in specs)
    rates = (capacities([small]).injection_bytes_per_s_per_dir.iloc[0] / GB for small, _ in specs)
    heads = [f"at {rate:,.0f} GB/s a chip" for rate in rates]
    rows = [
        {"chapter": chapter, "conclusion": conclusion, heads[0]: said, heads[1]: other[4]}
        | {"holds": holds, "flips": holds != other[3]}
        for (chapter, conclusion, _, holds, said), other in zip(used, fewer, strict=True)
    ]
    return pd.DataFrame(rows).sort_values(
        "chapter", key=lambda c: c.map(TITLES.index), kind="stable", ignore_index=True
    )
