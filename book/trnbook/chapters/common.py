"""What several chapters show: the answer card, notation, sources, peaks, and memory per logical core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from trnbook.charts.language import named
from trnmodel.arguments import listed, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.specs import Chip, Spec
from trnmodel.catalog.systems import System
from trnmodel.formulas import memory, roofline
from trnmodel.quantities import quantity
from trnmodel.result import BASES, CALIBRATED, in_sentence, tidy
from trnmodel.steps.rank import site
from trnmodel.units import format_quantity, format_within

FORMATS = ("bf16", "fp8", "mxfp8", "w4a8")  # precisions that chapters compare
LANE_MAP = "trn3-nl72x2-aws-lanes"  # NL72x2 with the lanes that AWS prints, not those that the deep dive counts


def card(
    number: float | Sequence[float] | str,
    of: str,
    *,
    unit: str = "",
    mark: str,
    proof: str,
    rival: str = "",
    rank: str = "Compared with",
    alone: str = "",
    more: str = "",
) -> str:
    """Return the card that opens a chapter, in Markdown: its number, the runner-up, and where the check stands.

    Parameters
    ----------
    number : float, sequence of float or str
        Value of `of` in a base unit, with low and high if it has a band, or a text.
    of : str
        What the number is.
    unit : str
        Unit of the number, as `format_within` takes it.
    mark : str
        Basis, one of `trnmodel.result.BASES`; empty for a count or a figure that a source prints.
    proof : str
        Heading of the check against independent numbers, or a chapter such as "chapter 13".
    rival : str
        The runner-up with its number, where there is one.
    rank : str
        What stands before the runner-up.
    alone : str
        Why there is no runner-up, where a reader expects one.
    more : str
        Text below the card.

    Raises
    ------
    ValueError
        The mark is neither a basis nor empty, or both `rival` and `alone` are passed.

    Examples
    --------
    >>> print(card((0.0123, 0.011, 0.014), "a step of X", unit="s", mark="measured", rival="Y, 20 ms", proof="Check"))
    > **12 ms** (11 to 14; measured): a step of X.
    >
    > **Compared with:** Y, 20 ms.
    >
    > **Proof:** Check.
    """
    if mark and mark not in BASES and not mark.startswith(CALIBRATED):
        refuse("mark", mark, f"allowed are {', '.join(BASES)}, one that begins with {CALIBRATED}, or nothing")
    if rival and alone:
        refuse("rival", rival, f"give it or alone, and not both; alone={alone!r}")
    if isinstance(number, str):
        text = f"{number} ({mark})" if mark else number
    else:
        text = format_within(*_ends(number), unit, mark).replace(" %", "%")
    shown, bracket, band = text.rpartition(" (") if text.endswith(")") else (text, "", "")
    comparison = [f"**{rank}:** {rival}"] if rival else [f"**No rival:** {alone}"] if alone else []
    lines = [f"**{shown}**{bracket}{band}: {of}", *comparison, f"**Proof:** {proof}"]
    ended = (line if line.endswith(("?", "!")) else f"{line.rstrip('.')}." for line in lines)
    return named("\n>\n".join(f"> {line}" for line in ended) + (f"\n\n{more}" if more else ""))


def _ends(number: float | Sequence[float]) -> tuple[float, float, float]:
    value, low, high = number if isinstance(number, Sequence) else (number, number, number)
    return value, low, high


def notation(rows: Iterable[Sequence[str]], last: str = "source") -> pd.DataFrame:
    """Return the notation table: symbol, code name, meaning, value and, in rows of five items, the `last` column.

    An empty symbol or meaning is that of the table of quantities; a row names one of its quantities, or several with
    ", " between them.

    Examples
    --------
    >>> notation([("", "write_s, interval_s", "", "")]).symbol.iloc[0]
    'delta, tau'
    >>> notation(of_spec("trainium2", {"hbm_bytes_per_s": "b"}))[["symbol", "value"]].to_dict("records")
    [{'symbol': 'b', 'value': '2.9 TB/s'}]
    """
    table, columns = [_filled(*row) for row in rows], ["symbol", "code name", "meaning", "value", last]
    return pd.DataFrame(table, columns=columns[: len(table[0])])


def _filled(symbol: str, name: str, meaning: str, *rest: str) -> tuple[str, ...]:
    """Return a row of `notation` with symbol and meaning of the table of quantities where they are empty."""
    known = [quantity(one) for one in name.split(", ")]
    symbol = symbol or ", ".join(one.symbol for one in known if one.symbol)
    return symbol, name, meaning or "; ".join(map(in_sentence, (one.description for one in known))), *rest


def of_spec(spec: str | Spec, symbols: Mapping[str, str] | Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield rows of `notation` from data: fields of a chip, a system or a core, or of a part of it.

    Parameters
    ----------
    spec : str or Spec
        The spec with these fields, or the id of a chip.
    symbols : mapping or iterable of str
        Field ("hbm_bytes", "peak_flop_per_s[bf16]", "tensor.clock_hz"), with a symbol of the chapter's own or with that
        of the table of quantities.
    """
    spec = load.chip(spec) if isinstance(spec, str) else spec
    own = symbols if isinstance(symbols, Mapping) else dict.fromkeys(symbols, "")
    for name, symbol in own.items():
        part, _, field = name.rpartition(".")
        owner = getattr(spec, part) if part else spec
        stated = load.quantities()[field.partition("[")[0]]
        ends = [format_quantity(end, stated.unit_si.removesuffix("1")) for end in dict.fromkeys(owner.range(field))]
        used = [load.facts_rows()[fact_id] for fact_id in owner.sources.get(field, ())]
        source = "; ".join(f"{fact.source}, {fact.locator}" for fact in used)
        symbol = symbol or quantity(stated.quantity, type(owner).__name__).symbol
        yield symbol, name, stated.description, " to ".join(ends), source


def of_fact(symbol: str, fact: load.Fact, value: str = "") -> tuple[str, ...]:
    """Return a row of `notation` from a fact: its value as printed unless one is passed, and source and confidence."""
    printed = value or f"{fact.value_printed} {fact.unit_printed}".removesuffix(" 1")
    meaning, source = load.quantities()[fact.quantity].description, f"{fact.source}, {fact.locator}"
    return symbol, fact.quantity, meaning, printed, f"{source} ({fact.confidence})"


def of_fabric(system: str | System) -> Iterator[tuple[str, ...]]:
    """Yield rows of `notation` for a fabric: latencies, lanes and link rate of a chip."""
    spec = systems.system(system)
    for owner, name in ((spec.chip, "hop_s"), (spec, "switch_s")):
        yield from (
            of_fact(quantity(name).symbol, load.facts_rows()[fact_id]) for fact_id in owner.sources.get(name, ())[:1]
        )
    fields = {"scaleup_lanes": "lanes", "scaleup_lanes_redundant": "spare", "scaleup_bytes_per_s_per_dir": "B"}
    for label, ids in spec.sources.items():
        field, _, medium = label.rstrip("]").partition("[")
        if field in fields:
            yield of_fact(f"{fields[field]} {medium}".strip(), load.facts_rows()[ids[0]])


def bibliography(ids: Iterable[str]) -> pd.DataFrame:
    """Return publisher, title, date and address of the sources with these ids.

    Examples
    --------
    >>> bibliography(["trn1-arch", "trn1-arch"]).id.tolist()
    ['trn1-arch']
    """
    known = load.sources()
    columns = ["id", "publisher", "title", "published", "url"]
    return pd.DataFrame([{c: getattr(known[i], c) for c in columns} for i in sorted(set(ids))], columns=columns)


def with_peak(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool = False) -> list[tuple[Chip, str]]:
    """Return pairs of a chip and a compute dtype with a printed peak; raise ValueError if there is none."""
    resolved = [load.chip(chip) for chip in listed("chips", chips)]
    peaks = {chip.id: chip.sparse_peak_flop_per_s if sparse else chip.peak_flop_per_s for chip in resolved}
    wanted = listed("dtypes", dtypes, str)
    pairs = [(chip, dtype) for chip in resolved for dtype in wanted if dtype in peaks[chip.id]]
    if not pairs:
        refuse("dtypes", wanted, f"none of {list(peaks)} has a {'sparse' if sparse else 'dense'} peak for them")
    return pairs


def peaks(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool = False) -> pd.DataFrame:
    """Return peak, HBM bandwidth and ridge point per chip and dtype, with the range that open disagreements leave.

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
    """Return chips built of NeuronCores; raise ValueError naming one that has none.

    Examples
    --------
    >>> neuron_chips(["h100"])
    Traceback (most recent call last):
    ValueError: chips='h100': it has no NeuronCores
    """
    resolved = [load.chip(chip) for chip in listed("chips", chips)]
    for chip in resolved:
        if not chip.core:
            refuse("chips", chip.id, "it has no NeuronCores")
    return resolved


def logical_cores(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Return HBM and DMA per logical NeuronCore at each LNC that a chip allows or that is announced.

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
        assert chip.core is not None  # `neuron_chips` refuses others
        for at in (site(chip, lnc) for lnc in (*chip.lnc_choices, *chip.lnc_announced)):
            share = float(memory.share_per_logical_core(chip.hbm_bytes, chip.cores, at.lnc))
            row = {"chip": chip.name, "lnc": at.lnc, "announced": at.announced, "hbm_bytes": share}
            row |= {"hbm_bytes_low": share, "hbm_bytes_high": at.hbm_bytes, "hbm_bytes_per_s": at.hbm_bytes_per_s}
            engines = chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
            rows.append(row | {"dma_bytes_per_s": at.lnc * engines})
    return tidy(rows)


def at_speeds(
    table: pd.DataFrame, tokens_per_s_per_user: Iterable[float], systems: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return the rows of a frontier at some promised speeds, with an empty row for a system that does not keep one.

    `systems` are those that must have rows, each with its precision; default those of the table.

    Examples
    --------
    >>> table = pd.DataFrame({"promised_tokens_per_s_per_user": [20.0], "system": "a", "precision": "bf16", "tp": 8.0})
    >>> at_speeds(table, [20.0, 50.0]).tp.tolist()
    [8.0, nan]
    """
    pairs = table[["system", "precision"]].drop_duplicates()
    if systems is not None:
        pairs = pd.DataFrame({"system": list(systems), "precision": list(systems.values())})
    speeds = pd.DataFrame({"promised_tokens_per_s_per_user": list(map(float, tokens_per_s_per_user))})
    whole = speeds.merge(pairs, how="cross")
    return (whole.merge(table, how="left") if len(table) else whole).reindex(columns=table.columns)
