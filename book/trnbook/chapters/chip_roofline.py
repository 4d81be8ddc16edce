"""Tables and the drawing of the chapter on what limits a chip: arrays, formats, disputed facts, and reuse."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from trnbook.chapters import common, guard
from trnbook.drawings.chip import bold, label
from trnbook.drawings.svg import Drawing, arrow, path, rect
from trnbook.shared.ledger import shortened
from trnmodel.arguments import TINY, listed, number
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.units import format_quantity

_PEAKS = ("peak_flop_per_s", "sparse_peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s")
_EIGHT_BITS = ("cfp8", "mxfp8", "fp8")  # formats of floating point
FORMATS = ("bf16", "cfp8", "mxfp8", "fp8", "int8")  # of arithmetic, as the chapter prefers them
_USES, _SIDE = (1, 16, 64, 256), 9.0  # sequences of the frames of a drawing, and pixels from use to use
_LONGEST = 600.0  # bar of a drawing [px]


def subject(chip: str | Chip) -> tuple[Chip, str, float]:
    """Return a chip, the first of `FORMATS` in which it has a peak, and the bytes of a value in it.

    Examples
    --------
    >>> subject("trainium3")[1:]
    ('bf16', 2.0)
    """
    spec = load.chip(chip)
    dtype = next((name for name in FORMATS if name in spec.peak_flop_per_s), "")
    guard.need(dtype != "", f"chip = {spec.id!r} has no printed peak in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return spec, dtype, stored_bytes(dtype)


def answer(chip: Chip, dtype: str, ridge_flop_per_byte: float, comparators: Iterable[str]) -> str:
    """Return the card that opens the chapter, with the lowest and the highest comparator, and how sure it is.

    Examples
    --------
    >>> print(answer(load.chip("trainium2"), "bf16", 230.0, ["h100"]).splitlines()[0])
    > **230 FLOP/byte** (ideal): with less work per byte read, memory limits a BF16 program on Trainium2.
    """
    low, high = chip.range(f"peak_flop_per_s[{dtype}]")
    slow, fast = chip.range("hbm_bytes_per_s")
    known = [name for name in comparators if dtype in load.chip(name).peak_flop_per_s]
    rivals = common.peaks(known, [dtype]).sort_values("ridge_flop_per_byte", kind="stable") if known else None
    named = {} if rivals is None else dict(zip(rivals.chip, rivals.ridge_flop_per_byte, strict=True))
    ends = dict.fromkeys([*list(named)[:1], *list(named)[-1:]])
    ours = f"peak_flop_per_s[{dtype}]" in chip.estimates
    return common.card(
        f"{ridge_flop_per_byte:,.0f} FLOP/byte",
        f"with less work per byte read, memory limits a {dtype.upper()} program on {chip.name}",
        mark="ideal",
        rival=" to ".join(f"{named[name]:,.0f} on {name}" for name in ends),
        rank="Compared with",
        alone="" if named else f"no comparator has a peak in {dtype.upper()}",
        proof="Check against numbers that are not ours",
        more=_good(chip, dtype, ridge_flop_per_byte, rivals)
        + f"**How sure?** It is {'our estimate of the' if ours else 'the printed'} peak over the printed bandwidth, "
        "without losses of software. "
        f"Open disagreements between sources move it by at most {high / low * fast / slow - 1:.0%}."
        + _by_engines(chip, dtype),
    )


def _good(chip: Chip, dtype: str, ridge_flop_per_byte: float, rivals: pd.DataFrame | None) -> str:
    r"""Return how to read the ridge of a chip, and where it lies in the chip's fastest format of eight bits.

    Examples
    --------
    >>> _good(load.chip("trainium1"), "bf16", 232.0, None)
    '**Is a low ridge good?** It makes the peak easier to reach, and does not make the peak higher.\n\n'
    """
    said = ["**Is a low ridge good?** It makes the peak easier to reach, and does not make the peak higher."]
    peak = chip.peak_flop_per_s[dtype]
    lowest = () if rivals is None else rivals[["ridge_flop_per_byte", "peak_flop_per_s"]].min().tolist()
    if lowest and ridge_flop_per_byte < lowest[0] and peak < lowest[1]:
        said.append(f"{chip.name} has a lower ridge than the chips compared because its {dtype.upper()} peak is lower.")
    narrow = {one: chip.peak_flop_per_s[one] for one in _EIGHT_BITS if one in chip.peak_flop_per_s and one != dtype}
    if narrow and max(narrow.values()) > peak:
        fastest = max(narrow, key=lambda one: narrow[one])
        said.append(f"In {fastest.upper()} its ridge is {narrow[fastest] / chip.hbm_bytes_per_s:,.0f}.")
    return " ".join(said) + "\n\n"


def _by_engines(chip: Chip, dtype: str) -> str:
    """Return where the ridge would lie if DMA engines limit reads, at the rate of AWS's guide; empty if they do not.

    Examples
    --------
    >>> _by_engines(load.chip("trainium3"), "bf16").rpartition(", ")[2]
    'whose ridge is 159.'
    >>> _by_engines(load.chip("h100"), "bf16")
    ''
    """
    if chip.core is None:
        return ""
    copied = chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
    if not copied < chip.hbm_bytes_per_s:
        return ""
    moved = chip.peak_flop_per_s[dtype] / copied
    return (
        " The book counts with the bandwidth of HBM. By AWS's guide for kernels, [the DMA engines](memory.ipynb) copy "
        f"more slowly than that. If the guide is right, use their rate, whose ridge is {moved:,.0f}."
    )


def stored_bytes(dtype: str) -> float:
    """Return the bytes that a value of a format takes in memory, its part of a shared scale included.

    Examples
    --------
    >>> stored_bytes("bf16"), stored_bytes("mxfp8")
    (2.0, 1.03125)
    """
    return float(load.dtypes()[dtype])


def on_the_roofline(best: Choice) -> dict:
    """Return a plan's decode step as a row: its mapping in short, its intensity, and the ridge point of its chip.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> on_the_roofline(case.choice("deepseek-v3", "trn2.48xlarge"))["sequences"]
    16
    """
    step, chip = best.step, best.system.chip
    return {
        "model": best.question.model.id,
        "system": best.system.id,
        "sequences": int(step.batch),
        "compute": step.precision.compute,
        "peak_flop_per_s": chip.peak(step.precision.compute),
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "intensity_flop_per_byte": float(step.work_flop_per_rank / step.moved_bytes_per_rank),
    }


def arrays(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Compare TensorE's BF16 rate from array and clock with the printed peak per core, and its share of the chip.

    Examples
    --------
    >>> arrays(["trainium2"]).array.tolist()
    ['128 x 128']
    """
    rows = []
    for chip in common.neuron_chips(chips):
        assert chip.core is not None  # `neuron_chips` refuses others
        tensor = chip.core.tensor
        computed = 2 * tensor.array_rows * tensor.array_cols * tensor.clock_hz
        printed = tensor.peak_flop_per_s["bf16"]
        rows.append(
            {
                "chip": chip.name,
                "array": f"{tensor.array_rows:.0f} x {tensor.array_cols:.0f}",
                "clock_hz": tensor.clock_hz,
                "computed_flop_per_s": computed,
                "printed_flop_per_s": printed,
                "difference": computed / printed - 1,
                "part_of_chip_flop_per_s": chip.peak("bf16") / chip.cores,
                "fastest_8_bit_over_bf16": max(tensor.peak_flop_per_s.values()) / printed,
            }
        )
    return tidy(rows)


def weight_formats(chip: str | Chip, precisions: Iterable[str | Precision]) -> pd.DataFrame:
    """Return how a chip stores and multiplies weights in a format: bytes per weight, peak, weights/s from HBM.

    A format whose compute dtype has no peak on the chip is left out.

    Examples
    --------
    >>> table = weight_formats("trainium3", ["mxfp8", "w4a8"]).set_index("precision")
    >>> round(float(table.weights_per_s["w4a8"] / table.weights_per_s["mxfp8"]), 3)
    1.941
    """
    chip, rows = load.chip(chip), []
    for precision in map(load.precision, listed("precisions", precisions)):
        if precision.compute not in chip.peak_flop_per_s:
            continue
        stored = precision.storage_bytes("weights")
        rows.append(
            {
                "precision": precision.name,
                "storage": precision.weights,
                "compute": precision.compute,
                "bytes_per_weight": stored,
                "peak_flop_per_s": chip.peak(precision.compute),
                "weights_per_s": chip.hbm_bytes_per_s / stored,
                "estimate": f"peak_flop_per_s[{precision.compute}]" in chip.estimates,
            }
        )
    return tidy(rows)


def reuse(chip: str | Chip, bytes_per_weight: float, batch_at_ridge: float) -> Drawing:
    """Return the drawing of one weight that is read once and multiplied for every sequence of a batch.

    Parameters
    ----------
    chip : str or Chip
        The chip, by id or object. [-]
    bytes_per_weight : float
        Bytes that a weight takes in HBM. [B]
    batch_at_ridge : float
        Sequences for which multiplying takes as long as reading. [-]

    Returns
    -------
    drawing : Drawing
        A frame for each of four batches. [-]

    Examples
    --------
    >>> list(reuse("trainium2", 2.0, 230.0).frames)
    ['1 sequence', '16 sequences', '64 sequences', '256 sequences']
    """
    name = load.chip(chip).name
    stored, ridge = number("bytes_per_weight", bytes_per_weight, TINY), number("batch_at_ridge", batch_at_ridge, TINY)
    read = _LONGEST / max(_USES[-1] / ridge, 1.0)

    def frame(uses: int) -> list[str]:
        ratio = uses / ridge
        waits = "the engine waits" if ratio < 1 else "HBM waits"
        return [
            path(_squares(uses), accent="a"),
            bold(606, 24, f"{uses:,} x 2 FLOP", accent="a"),
            rect(150, 196, max(read * ratio, 1.5), 30, accent="a", radius=0),
            label(150, 250, f"Multiplying takes {ratio:.2g} times as long as reading: {waits}.", anchor="start"),
        ]

    size = f"{stored:.3g} byte{'s' if stored != 1 else ''}"
    marks = [
        bold(75, 24, "HBM"),
        rect(10, 36, 130, 100, accent="b"),
        label(75, 92, "one weight"),
        bold(290, 74, size, accent="b"),
        arrow(150, 88, 444, 88, accent="b", wide=3),
        label(290, 118, "read once"),
        rect(456, 36, 300, 100),
        bold(10, 181, "reading", anchor="start", accent="b"),
        rect(150, 160, read, 30, accent="b", radius=0),
        bold(10, 217, "multiplying", anchor="start", accent="a"),
    ]
    frames = {f"{n} sequence{'s' if n > 1 else ''}": frame(n) for n in _USES}
    return Drawing(
        "reuse",
        "A weight is read once and used for every sequence",
        264,
        marks,
        frames,
        note=f"One square is one sequence; the bars are times on {name}.",
        alt=f"HBM sends a weight once; the engine multiplies it once for each sequence. On {name} both take as long "
        f"at a batch of {ridge:,.0f}.",
    )


def _squares(uses: int) -> str:
    """Return the path of one small square per use, in rows of 32."""
    corners = (divmod(i, 32) for i in range(uses))
    half = _SIDE - 2.5
    return "".join(
        f"M{464.5 + column * _SIDE:g} {46.5 + row * _SIDE:g}h{half:g}v{half:g}h-{half:g}z" for row, column in corners
    )


def with_units(totals: pd.DataFrame) -> pd.DataFrame:
    """Return printed totals as text with units, and the name of each quantity."""
    stems = totals.quantity.str.partition("[")[0]
    units = [load.quantities()[name].unit_si for name in stems]
    texts = {end: list(map(format_quantity, totals[end], units)) for end in ("per_chip", "computed", "printed")}
    named = stems.map({"hbm_bytes": "HBM", "hbm_bytes_per_s": "HBM bandwidth"}).fillna("peak")
    return totals.assign(**texts, quantity=named + totals.quantity.str.extract(r"\[(.*)\]")[0].radd(" ").fillna(""))


def disagreements(entities: Iterable[str], quantities: Iterable[str]) -> pd.DataFrame:
    """Return the facts about these entities on which sources disagree, with value, status and reason.

    Examples
    --------
    >>> rows = disagreements(["trainium1"], ["peak_flop_per_s"])
    >>> "210" in rows[rows.status == "rejected"].value_printed.tolist()
    True
    """
    facts = load.facts()
    named = facts.entity.isin(listed("entities", entities, str))
    disputed = facts[
        named
        & facts.quantity.isin(listed("quantities", quantities, str))
        & (facts.reason != "no source contradicts it")
    ]
    columns = "entity quantity qualifier value_printed unit_printed source locator status reason".split()
    return disputed[columns].sort_values(["entity", "quantity", "qualifier"], kind="stable", ignore_index=True)


def rulings(entities: Iterable[str]) -> pd.DataFrame:
    """Return decisions about peaks and memory: what is used, what is rejected or open, and why."""
    wanted, facts = set(listed("entities", entities, str)), load.facts_rows()
    rows = [
        {
            "about": ruling.about,
            "used": f"{facts[ruling.use].value_printed} {facts[ruling.use].unit_printed}",
            "set aside": ", ".join(dict.fromkeys(shortened(it, ruling.quantity) for it in ruling.reject.values())),
            "open": ", ".join(dict.fromkeys(ruling.open.values())),
            "why": ruling.reason,
        }
        for ruling in load.decisions()
        if ruling.use and ruling.entity in wanted and ruling.quantity in _PEAKS
    ]
    return pd.DataFrame(rows)
