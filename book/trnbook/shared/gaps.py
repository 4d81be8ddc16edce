"""The gap between kinds of software as a waterfall on an axis of powers, and a sentence that names its largest part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbook import charts
from trnmodel.evidence import before_after
from trnmodel.quantities import quantity
from trnmodel.search.gaps import SoftwareGap, Stage, times
from trnmodel.units import format_digits, format_quantity

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

# what published changes of software call a mechanism; overlaps and the routing of experts have no pairs of their own
CAUSES: Mapping[str, str] = {"kernels": "kernel"} | {
    name: name for name in ("layer overhead", "launch", "padding", "exchange", "precision", "scheduling")
}
LEAST = 1.01  # factor below which a bar is no bar
FEW = 1.1  # factor below which two digits say nothing
WORSE: Mapping[str, str] = {
    "tokens_per_s_per_chip": "Ideal software makes {ratio} as many tokens per chip as {kind} software",
    "usd_per_mtoken": "On {kind} software a token costs {ratio} as much as on ideal software",
    "server_j_per_token": "On {kind} software a token takes {ratio} as much energy as on ideal software",
    "days": "On {kind} software the run takes {ratio} as long as on ideal software",
}


def bars(gap: SoftwareGap) -> pd.DataFrame:
    """Return the stages that change the figure as a chart draws them, with the plan of each kind of software.

    Returns
    -------
    table : pandas.DataFrame
        which, software, before (NaN for a whole plan), the figure of the gap, label (figure or factor), basis. [-]
    """
    rows, before, unit = list[dict[str, Any]](), np.nan, quantity(gap.of).base_unit
    for kind in gap.kinds:
        end = gap.end(kind)
        for one in [stage for stage in gap.stages[1:] if stage.software == kind]:
            if not 1 / LEAST <= gap.loss(one) <= LEAST and 0 < min(one.value, before) < max(one.value, before) < np.inf:
                which = f"{one.mechanism} ({kind})"
                rows.append(_row(gap, one, which, before, _factor(one.factor)))
            before = one.value
        before = end.value
        if 0 < end.value < np.inf:
            rows.append(_row(gap, end, f"{kind} software", np.nan, format_quantity(end.value, unit, 3)))
    import pandas as pd

    columns = ["which", "software", "before", gap.of, "label", "basis"]
    return pd.DataFrame(rows, columns=columns).astype({"before": float, gap.of: float})


def _row(gap: SoftwareGap, one: Stage, which: str, before: float, label: str) -> dict[str, Any]:
    row: dict[str, Any] = {"which": which, "software": one.software, "before": before, gap.of: one.value}
    return row | {"label": label, "basis": one.basis}


def _factor(factor: float) -> str:
    """Return a factor as the label of a bar.

    Examples
    --------
    >>> _factor(0.25), _factor(1.04)
    ('÷ 4', '× 1.04')
    """
    ratio = max(factor, 1 / factor)
    return f"{'×' if factor > 1 else '÷'} {format_digits(ratio, 2 if ratio >= FEW else 3)}"


def unreached(gap: SoftwareGap) -> list[str]:
    """Return the kinds of software, and the stages on the way to others, whose plan keeps no promise, as notes."""
    ends = [f"{kind} software" for kind in gap.kinds if gap.end(kind).reason]
    between = [one for one in gap.stages if one.reason and not gap.end(one.software).reason]
    names = [*ends, *dict.fromkeys(f"{one.mechanism} ({one.software})" for one in between)]
    return [f"no plan keeps the promise: {', '.join(names)}"] * bool(names)


def _breaks(gap: SoftwareGap, most: Stage) -> str:
    """Return what a mechanism after which no plan keeps the promise does, in words."""
    if gap.end(most.software).reason:
        return f"no plan keeps the promise once **{most.mechanism}** is that of {most.software} software"
    return f"**{most.mechanism}** of {most.software} software breaks the promise until the rest of it is there too"


def claim(gap: SoftwareGap) -> str:
    """Return the title of the waterfall: the mechanism that loses most."""
    most = gap.largest()
    if most is None:
        return "Even ideal software keeps no promise" if gap.stages[0].reason else "No software loses anything here"
    if not np.isfinite(gap.loss(most)):
        return f"The promise breaks with {most.mechanism} ({most.software})"
    return f"Most is lost to {most.mechanism}: {times(gap.loss(most))}"


def waterfall(gap: SoftwareGap, under: str = "") -> alt.LayerChart:
    """Return the waterfall of a gap on an axis of powers; `under` says what was asked."""
    return charts.waterfall(
        bars(gap),
        before="before",
        x=gap.of,
        y="which",
        color="software",
        label="label",
        caption=claim(gap),
        under="; ".join(filter(None, [under, *unreached(gap)])),
    )


def describe(gap: SoftwareGap) -> str:
    """Return the gap and its largest part as one sentence of two numbers at most."""
    most, last = gap.largest(), gap.kinds[-1]
    reached = [kind for kind in gap.kinds if not gap.end(kind).reason]
    if most is None:
        return f"{claim(gap)}."
    if np.isfinite(gap.loss(most)):
        why = f"most is lost to **{most.mechanism}** on the way to {most.software} software, {times(gap.loss(most))}"
    else:
        why = _breaks(gap, most)
    best = reached[-1]
    if best == gap.kinds[0]:
        return f"Only ideal software keeps the promise: {why}."
    beyond = "" if last in reached or not np.isfinite(gap.loss(most)) else f", and {last} software keeps no promise"
    return f"{WORSE[gap.of].format(ratio=times(gap.lost(best)), kind=best)}{beyond}; {why}.{closed(most.mechanism)}"


def closed(mechanism: str) -> str:
    """Return as a sentence how many published changes of the kind of a mechanism made a run clearly faster.

    Clearly is by more than repeated runs differ by (`before_after.CLOSED`).

    Examples
    --------
    >>> closed("overlap"), closed("launch").startswith(" Of 15 published changes of its kind")
    ('', True)
    """
    table = before_after.closed().set_index("cause")
    if CAUSES.get(mechanism) not in table.index:
        return ""
    of = table.loc[CAUSES[mechanism]]
    return (
        f" Of {of.pairs:.0f} published changes of its kind, {of.share_closed * of.pairs:.0f} made a run clearly faster."
    )
