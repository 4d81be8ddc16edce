"""Tables of the chapter on facts: what they rest on, systems with one fact changed, and totals that sources print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from trnbook.chapters import common, guard
from trnbook.shared.ledger import standing
from trnmodel.arguments import SHOWN, nearest, shown
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.units import counted, format_quantity

GROUNDS = {
    "A": "specification of a vendor",
    "B": "talk or page of a vendor",
    "C": "measured or reported by others",
    "D": "our estimate",
}
CHIPS = ("trainium1", "trainium2", "trainium3")
RACKS = ("trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
INSTANCES = ("trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
SOFTWARE = {  # constants of a stack that a decode step uses, and what a reader calls them
    "weight_stream_share": "HBM rate of weights",
    "kv_stream_share": "HBM rate of the cache",
    "dense_layer_s": "time per layer",
    "expert_core_s": "time per expert",
    "compute_memory_overlap": "overlap with reads",
}
_VISIBLE = 0.01  # elasticity below which a bar cannot be seen
UNCHANGED = "nothing"
RESTS_ON = ("a specification of a vendor", "a talk or page of a vendor", "a report of others", "our own estimate")
_SHOWN = ["entity", "quantity", "qualifier", "value_printed", "unit_printed", "decision", "confidence", "title", "url"]


def known(facts: pd.DataFrame, entity: str, quantity: str) -> None:
    """Refuse an entity or a quantity of which there is no fact."""
    for name, value, column in (
        ("entity", entity, facts.entity),
        ("quantity", quantity, facts.quantity[facts.entity == entity]),
    ):
        near = ", ".join(nearest(value[:SHOWN], sorted(set(column))))
        guard.need(value in set(column), f"{name} = {shown(value)} has no fact; nearest: {near}")


def answer(facts: pd.DataFrame) -> str:
    """Return the card that opens the chapter: how many facts there are, from how many sources."""
    ours = int((facts.confidence == "D").sum())
    figures = facts[facts.status != "rejected"].groupby(["entity", "quantity", "qualifier"]).source.nunique()
    return common.card(
        counted(len(facts), "fact"),
        f"the figures that this book computes with, from {counted(facts.source.nunique(), 'source')}. "
        f"Our own estimates are {ours / len(facts):.0%} of them, and each says so",
        mark="",
        proof="Check: totals that vendors print",
        more=f"**How sure?** The facts concern {len(figures):,} quantities. "
        f"Of these, {(figures == 1).mean():.0%} have one source only, so nobody contradicts them "
        "and nobody confirms them. Where sources disagree, all stand here, "
        "with a decision.",
    )


def followed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return facts with the titles and addresses of their sources, those in use first.

    Examples
    --------
    >>> import trnmodel as tm
    >>> facts = tm.facts()
    >>> list(followed(facts[facts.entity == "trainium2"]).columns)[:3]
    ['value_printed', 'unit_printed', 'decision']
    """
    titles = common.bibliography(rows.source).set_index("id")
    known = rows.assign(decision=standing(rows), title=rows.source.map(titles.title), url=rows.source.map(titles.url))
    columns = ["value_printed", "unit_printed", "decision", "qualifier", "confidence", "title", "url"]
    return known.sort_values(["decision", "confidence"], kind="stable")[columns]


def fields(chip: Chip, names: Iterable[str]) -> pd.DataFrame:
    """Return the value of each field of a chip, the ends of its range, and the facts behind it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> fields(tm.chip("trainium3"), ["hbm_bytes_per_s"]).value.item()
    '4.9 TB/s'
    """
    rows = []
    for name in names:
        unit = load.quantities()[name].unit_si.removesuffix("1")
        value, low, high = (format_quantity(x, unit, 3) for x in (getattr(chip, name), *chip.range(name)))
        rows.append(
            {"field": name, "value": value, "lowest": low, "highest": high, "fact": ", ".join(chip.sources[name])}
        )
    return pd.DataFrame(rows)


def by_ground(facts: pd.DataFrame) -> pd.DataFrame:
    """Return how many facts in use rest on a specification, a page, a measurement or an estimate."""
    count = facts[facts.status != "rejected"].confidence.value_counts()
    return pd.DataFrame({"ground": list(GROUNDS.values()), "facts": [int(count.get(one, 0)) for one in GROUNDS]})


def claim(facts: pd.DataFrame) -> str:
    """Return as a title on what most facts in use rest."""
    table = by_ground(facts)
    names = dict(zip(GROUNDS.values(), RESTS_ON, strict=True))
    return f"Most often a fact rests on {names[table.ground[table.facts.idxmax()]]}"


def changed(system: System, change: float) -> Iterator[tuple[str, System]]:
    """Yield a system as it is, and with each rate and latency of its chip larger by a share.

    Examples
    --------
    >>> import trnmodel as tm
    >>> dict(changed(tm.system("trn2.48xlarge"), 0.5))["HBM bandwidth"].chip.hbm_bytes_per_s
    4350000000000.0
    """
    more, chip = 1 + change, system.chip
    peaks = {name: more * rate for name, rate in chip.peak_flop_per_s.items()}
    yield UNCHANGED, system
    yield "HBM bandwidth", replace(system, chip=replace(chip, hbm_bytes_per_s=more * chip.hbm_bytes_per_s))
    yield "peak of the chip", replace(system, chip=replace(chip, peak_flop_per_s=peaks))
    yield "lane of a link", replace(system, lane_bytes_per_s_per_dir=more * system.lane_bytes_per_s_per_dir)
    yield "latency of a hop", replace(system, chip=replace(chip, hop_s=more * chip.hop_s))


def unchanged(steps: pd.DataFrame) -> pd.Series:
    """Return for each row the time of the same model with nothing changed."""
    whole = steps[steps.fact == UNCHANGED].set_index("model").time_s
    return steps.model.map(whole)


def changed_software(stack: Efficiencies, change: float) -> Iterator[tuple[str, Efficiencies]]:
    """Yield a stack with each of the constants that a decode step uses changed by a share.

    Examples
    --------
    >>> import trnmodel as tm
    >>> stack = tm.efficiencies("trainium2")
    >>> dict(changed_software(stack, -0.5))["software: HBM rate of weights"].weight_stream_share
    0.475
    """
    for field, name in SOFTWARE.items():
        value = getattr(stack, field)
        if value > 0:
            yield f"software: {name}", replace(stack, **{field: (1 + change) * value})


def most_elastic(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of facts that move one of the models by a hundredth of their change or more, largest first."""
    rows = steps[steps.fact != UNCHANGED]
    largest = rows.groupby("fact").elasticity.apply(lambda one: one.abs().max())
    visible = largest[largest >= _VISIBLE].sort_values(ascending=False, kind="stable")
    return rows[rows.fact.isin(visible.index)].sort_values("fact", key=lambda names: -names.map(visible), kind="stable")


def in_use(facts: pd.DataFrame) -> pd.DataFrame:
    """Return the facts in use on the chips of Trainium and on the systems of the running case."""
    rows = facts[facts.entity.isin((*CHIPS, *RACKS)) & (facts.status != "rejected")]
    first = (rows.entity == CHIPS[-1]) & (rows.quantity == "hbm_bytes_per_s")
    newest = rows.entity.map(lambda name: (*CHIPS[::-1], *RACKS).index(name))
    order = pd.DataFrame({"first": ~first, "newest": newest}).sort_values(["first", "newest"], kind="stable").index
    titles = common.bibliography(rows.source).set_index("id")
    named = {"title": rows.source.map(titles.title), "url": rows.source.map(titles.url)}
    return rows.assign(decision=standing(rows), **named).loc[order, _SHOWN]


def totals(facts: pd.DataFrame, system: str, chips: float, per_chip: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the totals that sources print for a system, beside the number of chips times a figure for one.

    Examples
    --------
    >>> import trnmodel as tm
    >>> found = totals(tm.facts(), "trn2.48xlarge", 16, {"hbm_bytes_per_s": 2.9e12})
    >>> {row["printed"]: round(row["difference"], 4) for row in found}[46.4e12]
    0.0
    """
    printed = facts[(facts.entity == system) & (facts.status != "rejected") & facts.quantity.isin(list(per_chip))]
    return [
        {
            "system": system,
            "quantity": row.quantity,
            "unit": row.unit_si,
            "printed": row.value_si,
            "computed": chips * per_chip[row.quantity],
            "difference": chips * per_chip[row.quantity] / row.value_si - 1,
            "source": row.source,
        }
        for row in printed.drop_duplicates(["quantity", "value_si"]).itertuples()
    ]


def estimates(facts: pd.DataFrame) -> pd.DataFrame:
    """Return our own estimates with the formula of each and the ends of its range."""
    ours = facts[(facts.confidence == "D") & (facts.status != "rejected")]
    return ours[["entity", "quantity", "qualifier", "value_si", "low_si", "high_si", "unit_si", "note"]]
