"""What several chapters show: the card of the answer, names of things, sources, peaks, shares of a chip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from trnmodel.arguments import listed, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.specs import Chip, Spec
from trnmodel.catalog.systems import System
from trnmodel.charts.language import named
from trnmodel.formulas import memory, roofline
from trnmodel.result import BASES, tidy
from trnmodel.steps.rank import site
from trnmodel.units import counted as counted
from trnmodel.units import format_quantity, format_within

FORMATS = ("bf16", "fp8", "mxfp8", "w4a8")  # precisions that chapters set beside each other
LANE_MAP = "trn3-nl72x2-aws-lanes"  # NL72x2 with the lanes that AWS prints, not those that the deep dive counts


def card(
    number: float | Sequence[float] | str,
    of: str,
    *,
    unit: str = "",
    mark: str,
    proof: str,
    rival: str = "",
    rank: str = "Beside it",
    alone: str = "",
    more: str = "",
) -> str:
    """The card that a chapter opens with, in Markdown: its number, what comes next to it, where the proof stands.

    `number` is a figure of `of` in a base unit or words (`format_within`), with low and high where it has a band, or a
    text; `mark` is of `trnmodel.result.BASES`, where arithmetic on printed figures is ideal; `rival` is what stands
    beside it with its number, `rank` how ("Next best", "Ahead of it"), and `alone` why nothing does; `proof` is the
    heading under which the answer meets what is not ours, or "chapter 13"; `more` stands below. Raises ValueError for
    another mark, or both rivals.

    Examples
    --------
    >>> print(card((0.0123, 0.011, 0.014), "a step of X", unit="s", mark="measured", rival="Y, 20 ms", proof="Check"))
    > **12 ms** (11 to 14; measured): a step of X.
    >
    > **Beside it:** Y, 20 ms.
    >
    > **Proof:** Check.
    """
    if mark not in BASES:
        refuse("mark", mark, f"allowed are {', '.join(BASES)}")
    if bool(rival) == bool(alone):
        refuse("rival", rival, f"give it or alone, and not both; alone={alone!r}")
    if isinstance(number, str):
        told = f"{number} ({mark})"
    else:
        value, low, high = number if isinstance(number, Sequence) else (number, number, number)
        told = format_within(value, low, high, unit, mark).replace(" %", "%")
    shown, _, band = told.rpartition(" (")
    beside = f"**{rank}:** {rival}" if rival else f"**No rival:** {alone}"
    lines = [f"**{shown}** ({band}: {of}", beside, f"**Proof:** {proof}"]
    return named("\n>\n".join(f"> {line.rstrip('.')}." for line in lines) + (f"\n\n{more}" if more else ""))


def notation(rows: Iterable[Sequence[str]], last: str = "source") -> pd.DataFrame:
    """What a chapter calls things: symbol, code name, meaning, value and, where rows have five items, its `last`.

    Examples
    --------
    >>> notation(of_spec("trainium2", {"hbm_bytes_per_s": "b"}))[["symbol", "value"]].to_dict("records")
    [{'symbol': 'b', 'value': '2.9 TB/s'}]
    """
    table, columns = list(rows), ["symbol", "code name", "meaning", "value", last]
    return pd.DataFrame(table, columns=columns[: len(table[0])])


def of_spec(spec: str | Spec, symbols: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Rows of `notation` from data: fields of a chip, a system or a core, or of a part of it.

    Parameters
    ----------
    spec : str or Spec
        Whose fields; a name is a chip's.
    symbols : mapping
        Field ("hbm_bytes", "peak_flop_per_s[bf16]", "tensor.clock_hz") to the symbol that the chapter uses.
    """
    spec = load.chip(spec) if isinstance(spec, str) else spec
    for name, symbol in symbols.items():
        part, _, field = name.rpartition(".")
        owner, quantity = getattr(spec, part) if part else spec, load.quantities()[field.partition("[")[0]]
        ends = [format_quantity(end, quantity.unit_si.removesuffix("1")) for end in dict.fromkeys(owner.range(field))]
        used = [load.facts_rows()[fact_id] for fact_id in owner.sources.get(field, ())]
        source = "; ".join(f"{fact.source}, {fact.locator}" for fact in used)
        yield symbol, name, quantity.description, " to ".join(ends), source


def of_fact(symbol: str, fact: load.Fact, value: str = "") -> tuple[str, ...]:
    """A row of `notation` from a fact: its value as printed unless given, and its source with the confidence."""
    printed = value or f"{fact.value_printed} {fact.unit_printed}".removesuffix(" 1")
    meaning, source = load.quantities()[fact.quantity].description, f"{fact.source}, {fact.locator}"
    return symbol, fact.quantity, meaning, printed, f"{source} ({fact.confidence})"


def of_fabric(system: str | System) -> Iterator[tuple[str, ...]]:
    """Rows of `notation` for what a fabric is made of: latencies, lanes and rate of a chip."""
    spec = systems.system(system)
    for symbol, owner, name in (("alpha", spec.chip, "hop_s"), ("t_switch", spec, "switch_s")):
        yield from (of_fact(symbol, load.facts_rows()[fact_id]) for fact_id in owner.sources.get(name, ())[:1])
    fields = {"scaleup_lanes": "lanes", "scaleup_lanes_redundant": "spare", "scaleup_bytes_per_s_per_dir": "B"}
    for label, ids in spec.sources.items():
        field, _, medium = label.rstrip("]").partition("[")
        if field in fields:
            yield of_fact(f"{fields[field]} {medium}".strip(), load.facts_rows()[ids[0]])


def bibliography(ids: Iterable[str]) -> pd.DataFrame:
    """The sources with these ids: publisher, title, date and address.

    Examples
    --------
    >>> bibliography(["trn1-arch", "trn1-arch"]).id.tolist()
    ['trn1-arch']
    """
    known = load.sources()
    columns = ["id", "publisher", "title", "published", "url"]
    return pd.DataFrame([{c: getattr(known[i], c) for c in columns} for i in sorted(set(ids))], columns=columns)


def with_peak(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool = False) -> list[tuple[Chip, str]]:
    """Pairs of a chip and a compute dtype for which a peak is printed; raises ValueError where there is none."""
    resolved = [load.chip(chip) for chip in listed("chips", chips)]
    peaks = {chip.id: chip.sparse_peak_flop_per_s if sparse else chip.peak_flop_per_s for chip in resolved}
    wanted = listed("dtypes", dtypes, str)
    pairs = [(chip, dtype) for chip in resolved for dtype in wanted if dtype in peaks[chip.id]]
    if not pairs:
        refuse("dtypes", wanted, f"none of {list(peaks)} has a {'sparse' if sparse else 'dense'} peak for them")
    return pairs


def peaks(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool = False) -> pd.DataFrame:
    """Peak, HBM bandwidth and ridge point of each chip and dtype, with the pair that open disagreements leave.

    Returns
    -------
    table : pandas.DataFrame
        chip, dtype, year, peak_flop_per_s, hbm_bytes_per_s, ridge_flop_per_byte with `_low` and `_high`, and
        `estimate`, True where our own estimate enters.

    Examples
    --------
    >>> float(peaks(["trainium2"], ["bf16"]).ridge_flop_per_byte.iloc[0])
    230.0
    """
    rows = []
    for chip, dtype in with_peak(chips, dtypes, sparse):
        label = f"{'sparse_' if sparse else ''}peak_flop_per_s[{dtype}]"
        peak, bandwidth = chip.peak(dtype, sparse), chip.hbm_bytes_per_s
        (low, high), (slow, fast) = chip.range(label), chip.range("hbm_bytes_per_s")
        ends = zip(("", "_low", "_high"), (peak, low, high), (bandwidth, fast, slow), strict=True)
        ridges = {f"ridge_flop_per_byte{end}": float(roofline.ridge_point_flop_per_byte(p, b)) for end, p, b in ends}
        row = {"chip": chip.name, "dtype": dtype, "year": chip.year, "peak_flop_per_s": peak}
        row |= {"hbm_bytes_per_s": bandwidth, **ridges}
        rows.append(row | {"estimate": bool({label, "hbm_bytes_per_s"} & chip.estimates)})
    return pd.DataFrame(rows)


def neuron_chips(chips: Iterable[str | Chip]) -> list[Chip]:
    """Chips of NeuronCores; raises ValueError naming one that has none.

    Examples
    --------
    >>> neuron_chips(["h100"])
    Traceback (most recent call last):
    ValueError: chips='h100': it has no NeuronCores
    """
    found = [load.chip(chip) for chip in listed("chips", chips)]
    for chip in found:
        if not chip.core:
            refuse("chips", chip.id, "it has no NeuronCores")
    return found


def logical_cores(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """HBM and DMA of one logical NeuronCore at each LNC that a chip allows, or that is announced for it.

    Returns
    -------
    table : pandas.DataFrame
        chip, lnc, announced, hbm_bytes (its share, with `_low` the same and `_high` what it reaches where logical cores
        share a bank), hbm_bytes_per_s and dma_bytes_per_s (shares).

    Examples
    --------
    >>> table = logical_cores(["trainium3"])
    >>> table.hbm_bytes.div(2**30).tolist(), table.hbm_bytes_high.div(2**30).tolist()
    ([18.0, 36.0, 144.0], [36.0, 36.0, 144.0])
    """
    rows = []
    for chip in neuron_chips(chips):
        for at in (site(chip, lnc) for lnc in (*chip.lnc_choices, *chip.lnc_announced)):
            share = float(memory.share_per_logical_core(chip.hbm_bytes, chip.cores, at.lnc))
            row = {"chip": chip.name, "lnc": at.lnc, "announced": at.announced, "hbm_bytes": share}
            row |= {"hbm_bytes_low": share, "hbm_bytes_high": at.hbm_bytes, "hbm_bytes_per_s": at.hbm_bytes_per_s}
            engines = chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
            rows.append(row | {"dma_bytes_per_s": at.lnc * engines})
    return tidy(rows)
