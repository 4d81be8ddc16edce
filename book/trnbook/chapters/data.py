"""Tables of the chapter on facts: what they rest on, what an answer stands on, and totals that sources print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from trnbook.chapters import common, guard
from trnbook.shared.ledger import standing
from trnmodel.arguments import SHOWN, nearest, shown
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import stacks
from trnmodel.explained.explain import Explanation, FactShare
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
NAMES = {  # what a reader calls quantities that a decode step stands on
    "hbm_bytes_per_s": "HBM bandwidth",
    "peak_flop_per_s": "peak of the chip",
    "hop_s": "latency of a hop",
    "scaleup_bytes_per_s_per_dir": "rate of a lane",
    "intra_chip_bytes_per_s": "rate within a chip",
    "weight_stream_share": "HBM rate of weights",
    "kv_stream_share": "HBM rate of the cache",
    "dense_layer_s": "time per layer",
    "expert_core_s": "time per expert",
    "compute_memory_overlap": "overlap with reads",
}
_VISIBLE = 0.01  # share below which a bar cannot be seen
RESTS_ON = ("a specification of a vendor", "a talk or page of a vendor", "a report of others", "our own estimate")
_SHOWN = [
    "entity",
    "quantity",
    "qualifier",
    "value_printed",
    "unit_printed",
    "decision",
    "confidence",
    "title",
    "locator",
    "url",
]


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


def shares(explanations: Mapping[str, Explanation]) -> pd.DataFrame:
    """Return a row for each model and each fact that moves its answer, with the share under a short name.

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", batch=1, context=2048, efficiencies="ideal")
    >>> shares({"llama-3.1-8b": tm.explain(step)}).share.round(3).tolist()
    [-1.0]
    """
    rows = [
        {"model": model, "fact": _short(one), "share": one.share, "source": one.source, "locator": one.locator}
        for model, explanation in explanations.items()
        for one in explanation.facts
        if abs(one.share) > 0
    ]
    return pd.DataFrame(rows)


def _short(one: FactShare) -> str:
    """Return a short name of a fact: the chip's own come as they are, those of software say so."""
    name = NAMES.get(one.quantity, one.quantity.replace("_", " "))
    return f"software: {name}" if one.about in stacks() else name


def largest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of facts that move one of the models by a hundredth of their change or more, largest first."""
    most = rows.groupby("fact").share.apply(lambda one: one.abs().max())
    visible = most[most >= _VISIBLE].sort_values(ascending=False, kind="stable")
    return rows[rows.fact.isin(visible.index)].sort_values("fact", key=lambda names: -names.map(visible), kind="stable")


def behind(explanations: Mapping[str, Explanation]) -> pd.DataFrame:
    """Return the facts behind the times of some models with their sources, shares and rival readings, by model.

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", batch=1, context=2048, efficiencies="ideal")
    >>> behind({"llama-3.1-8b": tm.explain(step)})[["printed", "rival_printed"]].iloc[0].tolist()
    ['2.9 TB/sec', '3 TB/s']
    """
    some = [(model, one) for model, explanation in explanations.items() for one in explanation.facts]
    titles = common.bibliography(pd.Series([one.source for _, one in some])).set_index("id")
    rows = [
        {
            "model": model,
            "fact": f"{_short(one)}, {one.about}",
            "share": one.share,
            "printed": one.printed,
            "title": titles.title[one.source],
            "locator": one.locator,
            "rival_printed": one.rival.printed if one.rival else "",
            "rival_time_s": one.rival.answer if one.rival else math.nan,
            "url": titles.url[one.source],
        }
        for model, one in some
    ]
    return pd.DataFrame(rows)


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
