"""Where sources disagree: what each prints, what is used and why, and systems built with the other figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from trnbook.chapters import common
from trnbook.charts.language import called
from trnbook.shared.ledger import standing
from trnmodel.arguments import shown
from trnmodel.catalog import load
from trnmodel.catalog.systems import System, system
from trnmodel.quantities import quantity
from trnmodel.result import in_sentence
from trnmodel.search.choice import Choice
from trnmodel.units import format_digits, format_quantity

UNDISPUTED = "no source contradicts it"
_LANES = "trn3-nl72x2-aws-lanes"
MOVED = "change of the throughput, or of the joules, if the other figure is right"
_OURS = "project"  # the source of our own arithmetic


class Dispute(NamedTuple):
    """A figure of a system on which sources disagree, the fact that says otherwise, and why ours is used.

    `field` is the figure's name on the chip; `fact` is the id of the rival, or that of another reading of the system.
    """

    title: str
    where: str
    field: str
    fact: str
    why: str
    joules: bool = False


_T2, _T3 = "trn2.48xlarge", "trn3-nl72x2-pcie160"
DISPUTES = (
    Dispute(
        "HBM bandwidth of Trainium3",
        _T3,
        "hbm_bytes_per_s",
        "trainium3/hbm_bytes_per_s/nk-trainium3",
        "open: the totals of both UltraServers need ours; a profile on hardware supports the other",
    ),
    Dispute(
        "lanes of a chip in NL72x2",
        _T3,
        _LANES,
        "trn3-nl72x2-pcie160/scaleup_lanes_page/ah-trn3-arch",
        "only SemiAnalysis counts lanes by cable and board, and its sum fits AWS's total for the chip",
    ),
    Dispute(
        "plain FP8 of Trainium3",
        _T3,
        "peak_flop_per_s[fp8]",
        "trainium3/peak_flop_per_s:fp8/ah-trainium3",
        "AWS's page of the core gives that rate to MX formats alone, and the FP8 instruction doubles BF16",
    ),
    Dispute(
        "memory of Trainium3: GB or GiB",
        _T3,
        "hbm_bytes",
        "trainium3/hbm_bytes/trainium3-deep-dive",
        "the runtime lists 144 times a power of two",
    ),
    Dispute(
        "watts of Trainium3 (joules per token)",
        _T3,
        "tdp_w",
        "trainium3/tdp_w/dcd-trainium3",
        "open: AWS prints none; an encyclopedia says high hundreds, a journalist one kilowatt",
        joules=True,
    ),
    Dispute(
        "HBM bandwidth of Trainium2",
        _T2,
        "hbm_bytes_per_s",
        "trainium2/hbm_bytes_per_s/nk-trainium2",
        "the totals of instance and UltraServer need ours; the other rounds it",
    ),
    Dispute(
        "memory of Trainium2",
        _T2,
        "hbm_bytes",
        "trainium2/hbm_bytes/kiln-hardware",
        "a placeholder in the description of the instance; no program can allocate it",
    ),
    Dispute(
        "8-bit peak of Trainium2",
        _T2,
        "peak_flop_per_s[fp8]",
        "trainium2/peak_flop_per_s:fp8/ah-trainium2-beta",
        "the page of today replaces its first edition, and the total of the instance agrees",
    ),
    Dispute(
        "NeuronLink of Trainium2: one way or both",
        _T2,
        "scaleup_bytes_per_s_per_dir[instance]",
        "trn2.48xlarge/scaleup_bytes_per_s_both_dirs:instance/trn2-arch",
        "no page states the direction; lanes times their rate give the half for each",
    ),
    Dispute(
        "watts of Trainium2 (joules per token)",
        _T2,
        "tdp_w",
        "trainium2/tdp_w/project",
        "open: AWS prints none; an analyst does, and another chip of that process would need less",
        joules=True,
    ),
)


RATES = tuple(dispute for dispute in DISPUTES if not dispute.joules)  # these move the throughput
WATTS = tuple(dispute for dispute in DISPUTES if dispute.joules)


def both(dispute: Dispute) -> tuple[System, System]:
    """Return the system of a dispute as it is used, and the same system with the other figure.

    Examples
    --------
    >>> ours, other = both(DISPUTES[0])
    >>> ours.chip.hbm_bytes_per_s, other.chip.hbm_bytes_per_s
    (4900000000000.0, 4700000000000.0)
    """
    ours, field = system(dispute.where), dispute.field
    if field == _LANES:
        return ours, system(_LANES)
    value = rival(dispute)
    if field.startswith("scaleup_bytes"):
        return ours, ours.moved({field: value})
    return ours, with_chip(ours, **{field: value})


def rival(dispute: Dispute) -> float:
    """Return the other figure in base units; of a range its upper end."""
    row = _fact(dispute.fact)
    high = float(row.high_si)
    return high if high == high else float(row.value_si)


def _fact(name: str) -> pd.Series:
    """Return a fact by its id."""
    facts = load.facts()
    return facts[facts.id == name].iloc[0]


def move(
    dispute: Dispute, ours: Choice | None, other: Choice | None, of: Callable[[Choice], float] | None = None
) -> list[dict[str, object]]:
    """Return how far a plan moves with the other figure, as a ratio; nothing where one of the two keeps no promise.

    Parameters
    ----------
    dispute : Dispute
        What is replaced. [-]
    ours, other : Choice or None
        The best plans with the figure in use, and with the other. [-]
    of : callable, optional
        The figure of a plan that is compared; the throughput per chip by default.
    """
    if ours is None or other is None or not ours.valid or not other.valid:
        return []
    of = of or (lambda best: best.tokens_per_s_per_chip)
    names: dict[str, object] = {"group": dispute.title, "model": ours.question.model.id}
    return [names | dict.fromkeys(("ratio", "ratio_low", "ratio_high"), of(other) / of(ours))]


def line(rate: float, best: Choice | None) -> dict[str, object]:
    """Return a plan at a bandwidth of HBM as a row: its step and its throughput."""
    if best is None or not best.valid:
        return {"hbm_bytes_per_s": rate}
    row = {"model": best.question.model.id, "hbm_bytes_per_s": rate, "time_s": float(best.step.time_s)}
    return row | {"tokens_per_s_per_chip": best.tokens_per_s_per_chip}


def software(best: Choice | None) -> list[dict[str, object]]:
    """Return the band of a plan over its middle, which is what nobody knows of its software."""
    if best is None or not best.valid:
        return []
    value = best.tokens_per_s_per_chip
    names: dict[str, object] = {"group": f"software of {called(best.place)}", "model": best.question.model.id}
    return [names | {"ratio": 1.0, "ratio_low": float(best.low / value), "ratio_high": float(best.high / value)}]


def changes(moves: list[dict[str, object]]) -> pd.DataFrame:
    """Return rows of `move` with the difference that each makes, in percent.

    Examples
    --------
    >>> float(changes([{"group": "x", "model": "m", "ratio": 1.5}]).change_in_percent.item())
    50.0
    """
    table = pd.DataFrame(moves)
    return table.assign(change_in_percent=100 * (table.ratio - 1))


def largest_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `changes` with the disputes that move a model most first, the models of each in their order.

    Examples
    --------
    >>> rows = [{"group": "x", "model": "m", "ratio": 1.1}, {"group": "y", "model": "m", "ratio": 0.5}]
    >>> largest_first(changes(rows)).group.tolist()
    ['y', 'x']
    """
    most = table.groupby("group").change_in_percent.apply(lambda one: one.abs().max())
    return table.sort_values("group", key=lambda names: -names.map(most), kind="stable", ignore_index=True)


def unsure(rows: list[dict[str, object]]) -> str:
    """Return in a sentence between which multiples of ours the software may put the throughput.

    Examples
    --------
    >>> unsure([{"ratio_low": 0.1, "ratio_high": 2.0}, {"ratio_low": 0.5, "ratio_high": 30.0}])
    'What nobody knows of the software moves the throughput far more, to between 0.1 and 30 times ours.'
    """
    table = pd.DataFrame(rows)
    low, high = (format_digits(float(x), 2) for x in (table.ratio_low.min(), table.ratio_high.max()))
    return f"What nobody knows of the software moves the throughput far more, to between {low} and {high} times ours."


def ten(moves: pd.DataFrame) -> pd.DataFrame:
    """Return the disputes with both figures, the reason, and how far each model of the case moves.

    Parameters
    ----------
    moves : DataFrame
        Rows of `move`. [-]
    """
    units, rows = load.quantities(), []
    order = list(dict.fromkeys(moves.group))
    for dispute in sorted(DISPUTES, key=lambda one: order.index(one.title) if one.title in order else len(order)):
        ours, _ = both(dispute)
        row = _fact(dispute.fact)
        owner = ours if dispute.field.startswith("scaleup_bytes") else ours.chip
        if dispute.field == _LANES:
            used, unit = sum(ours.scaleup_lanes.values()), ""
        else:
            used, unit = owner.at(dispute.field), units[dispute.field.partition("[")[0]].unit_si
        said = _said(row)
        cited = load.sources()[str(row.source)]
        who = "our estimate" if row.source == _OURS else cited.publisher
        line = {"figure": dispute.title, "we use": format_quantity(used, unit, 4), "the other": f"{said} ({who})"}
        line |= {"why we use ours": dispute.why}
        own = moves[moves.group == dispute.title].set_index("model").ratio
        rows.append(line | {name: f"{ratio - 1:+.1%}" for name, ratio in own.items()})
    return pd.DataFrame(rows)


def publisher(source: str) -> str:
    """Return who says something: the publisher and the title of a source.

    Examples
    --------
    >>> publisher("nk-trainium3"), publisher("project")
    ('AWS, "Trainium3 Architecture Guide for NKI"', 'our own arithmetic')
    """
    cited = load.sources()[source]
    return "our own arithmetic" if source == _OURS else f'{cited.publisher}, "{cited.title}"'


def followed(facts: pd.DataFrame, entity: str, name: str) -> pd.DataFrame:
    """Return what each source prints of a figure, with a link, and what was decided; what is in use comes first."""
    rows = facts[(facts.entity == entity) & (facts.quantity == name)].drop_duplicates(["source", "value_si"])
    titles = common.bibliography(rows.source).set_index("id")
    table = pd.DataFrame(
        {
            "prints": [_said(row) + _derived(row) for _, row in rows.iterrows()],
            "decision": standing(rows).replace("open", "open: an end of the band"),
            "publisher": rows.source.map(titles.publisher),
            "title": rows.source.map(titles.title),
            "url": rows.source.map(titles.url),
        }
    )
    return table.sort_values("decision", key=_order, kind="stable", ignore_index=True)


def _derived(row: pd.Series) -> str:
    """Return how a figure that its source does not print was found; empty for one that is printed."""
    if row.source == _OURS:
        return " (our arithmetic)"
    return " (implied)" if str(row.note).startswith("implied") else ""


def _order(decision: pd.Series) -> pd.Series:
    """Return what is in use before what is open, and what is set aside last."""
    return decision.map(lambda word: ["in", "open", "set"].index(word.split()[0].rstrip(":")))


def disputed(facts: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each figure on which sources disagree: what is used, what is open or set aside, and why.

    Figures of Trainium come first.

    Parameters
    ----------
    facts : DataFrame
        What `tm.facts()` returns. [-]
    """
    known_facts, rows = facts.set_index("id"), []
    for ruling in load.decisions():
        if not ruling.use:
            continue
        title = quantity(ruling.quantity).title or ruling.quantity
        rows.append(
            {
                "of": ruling.entity,
                "figure": f"{title} {ruling.qualifier.replace('|', ', ')}".strip(),
                "in use": _printed_by(known_facts.loc[[ruling.use]]),
                "open": _printed_by(known_facts.loc[list(ruling.open)]),
                "set aside": _printed_by(known_facts.loc[list(ruling.reject)]),
                "why": ruling.reason.removeprefix("open: "),
            }
        )
    table = pd.DataFrame(rows)
    return table.sort_values("of", key=lambda names: names.map(_place), kind="stable", ignore_index=True)


def _place(entity: str) -> int:
    """Return where an entity stands: Trainium3 and its racks, then Trainium2, older chips, cores, and all others."""
    begins = ("trainium3", "trn3", "trainium2", "trn2", "trainium1", "trn1", "inf", "neuroncore")
    return next((place for place, start in enumerate(begins) if entity.startswith(start)), len(begins))


def _printed_by(facts: pd.DataFrame) -> str:
    """Return facts as they are printed, each with the name of who prints it."""
    who = [("we" if name == _OURS else load.sources()[name].publisher) for name in facts.source]
    texts = [
        f"{_said(row).removesuffix(' text')} ({name})" for (_, row), name in zip(facts.iterrows(), who, strict=True)
    ]
    return "; ".join(dict.fromkeys(texts))


def every_fact(facts: pd.DataFrame) -> pd.DataFrame:
    """Return all facts on which sources disagree, row by row, with source, place, status and reason."""
    columns = "entity quantity qualifier value_printed unit_printed source locator confidence status reason".split()
    rows = facts[facts.reason != UNDISPUTED][columns]
    return rows.sort_values(["entity", "quantity", "qualifier"], kind="stable", ignore_index=True)


def with_chip(where: System, **figures: object) -> System:
    """Return a system whose chip has other figures, by field.

    Examples
    --------
    >>> with_chip(system("trn2.48xlarge"), tdp_w=600.0).chip.tdp_w
    600.0
    """
    return replace(where, chip=where.chip.moved(figures))


def printed_values(facts: pd.DataFrame, entity: str, name: str) -> list[float]:
    """Return the different values that sources print of a figure, in base units, from the smallest on."""
    rows = facts[(facts.entity == entity) & (facts.quantity == name)]
    return sorted(set(rows.value_si.astype(float)))


def sources(facts: pd.DataFrame) -> pd.DataFrame:
    """Return publisher, title, date and address of the sources that another one contradicts."""
    return common.bibliography(facts[facts.reason != UNDISPUTED].source)


def counts(facts: pd.DataFrame) -> Mapping[str, int]:
    """Return how many figures are disputed, and how many facts about them are open or set aside."""
    stands = standing(facts[facts.reason != UNDISPUTED]).value_counts()
    figures = sum(bool(ruling.use) for ruling in load.decisions())
    return {"figures": figures, "open": int(stands["open"]), "set aside": int(stands["set aside"])}


def undisputed(facts: pd.DataFrame, entity: str, name: str) -> str:
    """Return why a number of an entity is none on which sources disagree, with those that it has; empty where it is.

    Examples
    --------
    >>> undisputed(load.facts(), "trainium3", "hbm_bytes_per_s"), undisputed(load.facts(), "<b>", "x")
    ('', "entity = '<b>' has no disputed figure")
    """
    rows = facts[(facts.reason != UNDISPUTED) & facts.value_si.notna()]
    of = sorted(set(rows[rows.entity == entity].quantity))
    if not of:
        return f"entity = {shown(entity)} has no disputed figure"
    return "" if name in of else f"quantity = {shown(name)} of {entity} is not disputed; these are: {', '.join(of)}"


def answer(facts: pd.DataFrame, entity: str, name: str) -> str:
    """Return the card that opens the chapter: a disputed figure with what is open, and who says otherwise.

    Examples
    --------
    >>> print(answer(load.facts(), "trainium3", "hbm_bytes_per_s").splitlines()[0])
    > **4.9 TB/s** (4.7 to 4.9): the figure that we use for the HBM bandwidth of Trainium3.
    """
    rows = facts[(facts.entity == entity) & (facts.quantity == name) & (facts.reason != UNDISPUTED)]
    rows = rows.assign(decision=standing(rows))
    used = rows[rows.decision == "in use"].iloc[0]
    rows = rows[rows.qualifier == used.qualifier]
    kept, other = rows[rows.decision != "set aside"], rows[rows.decision != "in use"].iloc[0]
    low, high = kept[["value_si", "low_si"]].min(axis=None), kept[["value_si", "high_si"]].max(axis=None)
    stated, tally = quantity(name), counts(facts)
    what = stated.title or in_sentence(load.quantities()[name].description)
    return common.card(
        (float(used.value_si), float(low), float(high)),
        f"the figure that we use for the {what} of {called(entity)}",
        unit=load.quantities()[name].unit_si.removesuffix("1"),
        mark="",
        rival=f"{_said(other)} in {publisher(str(other.source))}, and {_said(used)} in {publisher(str(used.source))}",
        proof="Check: printed totals",
        more=f"**How sure?** {_tally(tally)}",
    )


def _said(row: pd.Series) -> str:
    """Return a fact as its source prints it."""
    return f"{row.value_printed} {row.unit_printed}".removesuffix(" 1").replace("/sec", "/s")


def _tally(tally: Mapping[str, int]) -> str:
    """Return how many figures are disputed, in a sentence.

    Examples
    --------
    >>> _tally({"figures": 12, "open": 3})
    'Sources disagree on 12 figures of this book; 3 rival facts stay open, and widen the bands.'
    """
    return (
        f"Sources disagree on {tally['figures']:,} figures of this book; {tally['open']:,} rival facts stay open, and "
        "widen the bands."
    )
