"""Drawings of a chip: its NeuronCore, a product tile by tile, the ways to HBM, the roofline and a decode step.

Every size is read from the spec of the chip, from the tiles of the kernels or from the model that a drawing names, so
that a drawing of another chip is a drawing of that chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from trnbook.drawings.amounts import name_of
from trnbook.drawings.svg import Accent, Drawing, arrow, circle, line, rect, text
from trnmodel.arguments import integers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip, Core, Precision, published
from trnmodel.catalog.systems import System, find
from trnmodel.formulas import memory, roofline
from trnmodel.kernels.engines import device, elements_per_cycle
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as find_model
from trnmodel.steps.rank import site
from trnmodel.units import GB, MS, counted, format_digits, format_quantity

TITLE, LABEL = 16.0, 15.0
PITCH = 1.1  # from one box of a grid to the next, in sides of a box
bold, label = partial(text, size=TITLE, bold=True), partial(text, size=LABEL)


def _with_core(chip: str | Chip) -> tuple[Chip, Core]:
    it = load.chip(chip)
    if it.core is None:
        refuse("chip", it.id, "only chips with NeuronCores can be drawn")
    return it, it.core


def _printed(value: float, unit: str) -> str:
    return format_quantity(float(value), unit, 3)


def _column(x: float, y: float, lines: Sequence[str], *, anchor: str = "middle", accent: Accent = "") -> list[str]:
    """Return lines of text below each other, the first one bold."""
    title = bold(x, y, lines[0], anchor=anchor, accent=accent)
    return [title, *(label(x, y + 20 * (i + 1), more, anchor=anchor) for i, more in enumerate(lines[1:]))]


def neuroncore(chip: str | Chip = "trainium3") -> Drawing:
    """Return the drawing of one NeuronCore: its engines and memories, and how data flow between them.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores, by id or object. [-]

    Returns
    -------
    drawing : Drawing
        HBM, DMA engines, SBUF, PSUM and the four engines with their sizes and rates. [-]

    Examples
    --------
    >>> print(neuroncore("trainium2").alt.partition(".")[0])
    HBM of Trainium2 feeds 16 DMA engines, which fill SBUF of NeuronCore-v3
    """
    it, core = _with_core(chip)
    tensor, dma = core.tensor, core.dma_engines * core.dma_engine_bytes_per_s
    hbm = ["HBM", _printed(it.hbm_bytes, "B"), _printed(it.hbm_bytes_per_s, "B/s"), f"for {counted(it.cores, 'core')}"]
    movers = [f"{core.dma_engines:.0f} DMA", "engines", _printed(dma, "B/s")]
    partitions = [f"{core.sbuf_partitions:.0f} partitions", f"of {_printed(core.sbuf_partition_bytes, 'B')}"]
    array = f"{tensor.array_rows:.0f} × {tensor.array_cols:.0f} at {_printed(tensor.clock_hz, 'Hz')}"
    peak = f"{_printed(tensor.peak_flop_per_s['bf16'], 'FLOP/s')} BF16"
    lanes = [f"{elements_per_cycle(unit, 'bf16'):.0f} BF16 per cycle" for unit in (core.vector, core.scalar)]
    processors = counted(published(core.gpsimd.processors, 1.0), "processor")
    marks = [
        rect(12, 130, 104, 170, accent="b"),
        *_column(64, 180, hbm),
        arrow(116, 205, 158, 205),
        arrow(158, 225, 116, 225),
        rect(158, 150, 108, 130, accent="e"),
        *_column(212, 200, movers),
        arrow(266, 205, 326, 205),
        arrow(326, 225, 266, 225),
        rect(300, 8, 452, 430, filled=False, radius=8),
        bold(526, 32, f"{core.name}, 1 of {it.cores:.0f} on {it.name}"),
        rect(326, 48, 134, 374, accent="b"),
        *(line(326, y, 460, y, faint=True) for y in range(162, 422, 13)),
        *_column(393, 76, ["SBUF", _printed(core.sbuf_bytes, "B"), *partitions]),
        arrow(460, 96, 556, 96, accent="a"),
        label(506, 86, "operands"),
        rect(556, 48, 186, 88, accent="a"),
        *_column(649, 76, ["Tensor engine", array, peak]),
        arrow(649, 136, 649, 164, accent="a"),
        rect(556, 164, 186, 60, accent="c"),
        *_column(649, 189, [f"PSUM, {_printed(core.psum_bytes, 'B')}", f"{core.psum_banks:.0f} banks, FP32"]),
        arrow(649, 224, 649, 248, accent="c"),
        rect(548, 248, 196, 122, filled=False),
        arrow(460, 300, 548, 300),
        arrow(548, 320, 460, 320),
        label(504, 342, "results"),
        arrow(460, 390, 556, 390),
        arrow(556, 410, 460, 410),
    ]
    engines = [("Vector engine", lanes[0]), ("Scalar engine", lanes[1]), ("GpSimd engine", processors)]
    for y, (name, rate) in zip((254, 312, 376), engines, strict=True):
        marks += [rect(556, y, 180, 52), *_column(646, y + 21, [name, rate])]
    return Drawing(
        name_of("neuroncore", it.id),
        "Data reach the engines of a NeuronCore only through SBUF",
        446,
        marks,
        note="Follow the arrows from HBM on the left, through the DMA engines and SBUF, to the engine that computes.",
        alt=f"HBM of {it.name} feeds {core.dma_engines:.0f} DMA engines, which fill SBUF of {core.name}. The Tensor "
        "engine reads operands from SBUF and adds its products up in PSUM. The Vector and Scalar engines read PSUM and "
        "SBUF and write results to SBUF, which the GpSimd engine reads and writes too.",
    )


def product_by_tile(chip: str | Chip = "trainium3", dtype: str = "bf16") -> Drawing:
    """Return the drawing of a matrix product of two K tiles and two N tiles, step by step.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores, by id or object. [-]
    dtype : str
        Compute dtype of the Tensor engine, which sets how much of K one instruction covers. [-]

    Returns
    -------
    drawing : Drawing
        Frames that load, stream, accumulate and evict, all at one scale. [-]

    Examples
    --------
    >>> list(product_by_tile("trainium3").frames)
    ['Load', 'Stream', 'Next K tile', 'Evict', 'Next N tile', 'Done']
    """
    it, core = _with_core(chip)
    array = device(it, "stack-nki", 1, None, 0.0, None).array(dtype)
    k, m, n = float(array.rows), float(array.columns), core.tensor.max_moving_cols
    cycles, instructions = (float(x) for x in array.work(m, 2 * n, 2 * k))
    unit = min(512 / (2 * n), 128 / (2 * core.sbuf_partitions), 64 / m)
    depth, across, wide = core.sbuf_partitions * unit, m * unit, n * unit
    left, right, top, sums, out = 130.0, 230.0, 84.0, 276.0, 396.0
    height = max(m * unit, 40)

    def stationary(tile: int, accent: Accent = "") -> str:
        return rect(left + (64 - across) / 2, top + tile * depth, across, depth, accent=accent, radius=0)

    def moving(tile: int, column: int, accent: Accent = "") -> str:
        return rect(right + column * wide, top + tile * depth, wide, depth, accent=accent, radius=0)

    def bank(column: int, y: float, said: str) -> list[str]:
        x = right + column * wide
        return [rect(x, y, wide, height, accent="c", radius=0), label(x + wide / 2, y + height / 2 + 5, said)]

    def streamed(tile: int, column: int) -> list[str]:
        x, y = right + (column + 0.5) * wide, top + 2 * depth + 14
        return [
            stationary(tile, "a"),
            moving(tile, column, "b"),
            rect(left, sums, 64, height, accent="a"),
            line(x, top + (tile + 1) * depth, x, y, accent="b", wide=1.6),
            line(x, y, 208, y, accent="b", wide=1.6),
            line(208, y, 208, sums + 20, accent="b", wide=1.6),
            arrow(208, sums + 20, left + 64, sums + 20, accent="b"),
            arrow(left + 64, sums + height - 16, right, sums + height - 16, accent="c"),
        ]

    said = partial(bold, 12, 26, anchor="start")
    copied = bank(0, out, "N tile 1")
    centre = right + wide / 2
    marks = [
        *(stationary(tile) for tile in (0, 1)),
        *(moving(tile, column) for tile in (0, 1) for column in (0, 1)),
        label(left + 32, 56, "Stationary"),
        label(left + 32, 75, f"M = {m:.0f}"),
        label(right + wide, 56, "Moving, in SBUF"),
        label(right + wide, 75, f"N = 2 × {n:.0f}"),
        label(12, top + depth - 15, f"K = 2 × {k:.0f},", anchor="start"),
        label(12, top + depth + 5, "each tile on", anchor="start"),
        label(12, top + depth + 25, f"{core.sbuf_partitions:.0f} partitions", anchor="start"),
        rect(left, sums, 64, height),
        label(12, sums + 27, "Tensor", anchor="start"),
        label(12, sums + 47, "engine", anchor="start"),
        *(rect(right + column * wide, y, wide, height, radius=0) for y in (sums, out) for column in (0, 1)),
        label(right + 2 * wide, sums - 12, "PSUM: M on partitions, a bank for each N tile", anchor="end"),
        label(right - 14, out + 27, "Output [M, N]", anchor="end"),
        label(right - 14, out + 47, "in SBUF", anchor="end"),
    ]
    frames = {
        "Load": [
            said(f"Load a stationary tile: {k:.0f} rows of K, {m:.0f} columns of M."),
            stationary(0, "a"),
            line(left + 32, top + depth, left + 32, top + 2 * depth, accent="a", wide=1.6),
            arrow(left + 32, top + 2 * depth, left + 32, sums, accent="a"),
            rect(left, sums, 64, height, accent="a"),
        ],
        "Stream": [
            said(f"Stream the moving tile: {n:.0f} columns in {cycles / 4:,.0f} cycles."),
            *streamed(0, 0),
            *bank(0, sums, "K tile 1"),
        ],
        "Next K tile": [
            said("The next K tile adds its products to the same PSUM bank."),
            *streamed(1, 0),
            *bank(0, sums, "K tiles 1 + 2"),
        ],
        "Evict": [
            said("The sum over K is complete, so it is copied out of PSUM."),
            *bank(0, sums, "K tiles 1 + 2"),
            arrow(centre, sums + height, centre, out, accent="c"),
            label(centre + 14, (sums + height + out) / 2 + 5, "Vector or Scalar engine", anchor="start"),
            *copied,
        ],
        "Next N tile": [
            said("The next N tile fills another bank while the first is copied."),
            *streamed(0, 1),
            *bank(1, sums, "K tile 1"),
            *copied,
        ],
        "Done": [
            said(f"Done: {instructions:.0f} instructions took {cycles:,.0f} cycles of the Tensor engine."),
            *copied,
            *bank(1, out, "N tile 2"),
        ],
    }
    return Drawing(
        name_of("tiles", it.id, dtype),
        "The Tensor engine adds K tiles up inside PSUM",
        out + height + 12,
        marks,
        frames,
        note=f"Step through one output of {m:.0f} × {2 * n:,.0f} in {dtype.upper()} on {it.name}; the coloured tiles "
        "are those that the instruction uses.",
        alt=f"A stationary matrix of K = 2 × {k:.0f} by M = {m:.0f} and a moving matrix of the same K by N = 2 × "
        f"{n:.0f} meet in the Tensor engine, tile by tile. Products of both K tiles add up in one PSUM bank, which is "
        "copied to SBUF before the next N tile is done.",
    )


def ways_to_hbm(chip: str | Chip = "trainium3") -> Drawing:
    """Return the drawing of what limits a core's reads: its share of the HBM bandwidth, or its DMA engines.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores, by id or object. [-]

    Returns
    -------
    drawing : Drawing
        Bands as thick as the rates, with all cores at work and with one; the thinner one is highlighted. [-]

    Examples
    --------
    >>> for name in ("trainium2", "trainium3"):
    ...     print(ways_to_hbm(name).caption)
    HBM bandwidth limits Trainium2 before its DMA engines do
    DMA engines limit Trainium3 before its HBM bandwidth does
    """
    it, core = _with_core(chip)
    cores, stacks = int(it.cores), int(published(it.hbm_stacks, 1.0))
    dma = core.dma_engines * core.dma_engine_bytes_per_s
    share = float(memory.share_per_logical_core(it.hbm_bytes_per_s, it.cores, 1))
    row, top = 320 / max(cores, 5), 92.0
    unit, whole = 0.8 * row / max(share, dma), cores * row
    hbm_first = share <= dma
    limit, other = (
        ("HBM bandwidth limits", "DMA engines do") if hbm_first else ("DMA engines limit", "HBM bandwidth does")
    )
    rates = [f"{_printed(rate, 'B/s')} per core" for rate in (share, dma)]

    def bands(core_: int, middle: float, hbm: float, hbm_accent: Accent, dma_accent: Accent) -> list[str]:
        """Return the band of HBM, and that of the DMA engines of a core, with the lines between them."""
        end, tall = top + (core_ + 0.5) * row, dma * unit
        return [
            rect(150, middle - hbm * unit / 2, 250, hbm * unit, accent=hbm_accent, radius=0),
            *(line(400, middle + s * hbm * unit / 2, 440, end + s * tall / 2, faint=True) for s in (-1, 1)),
            rect(440, end - tall / 2, 160, tall, accent=dma_accent, radius=0),
            arrow(600, end, 630, end),
        ]

    marks = [
        *_column(76, 40, [counted(stacks, "stack"), f"{_printed(it.hbm_bytes_per_s, 'B/s')} {it.hbm_type}"]),
        *(rect(16, top + i * whole / stacks + 2, 120, whole / stacks - 4, accent="b") for i in range(stacks)),
        bold(520, 40, f"{core.dma_engines:.0f} DMA engines"),
        *_column(687, 40, ["SBUF", "of each core"]),
        *(rect(630, top + i * row + 3, 114, row - 6) for i in range(cores)),
        *(label(687, top + (i + 0.5) * row + 5, f"core {i}") for i in range(cores)),
    ]
    accents: tuple[Accent, Accent] = ("a", "e") if hbm_first else ("b", "a")
    all_cores = [
        bold(275, 40, "Equal part of HBM"),
        label(275, 60, rates[0], accent="a" if hbm_first else ""),
        label(520, 60, rates[1], accent="" if hbm_first else "a"),
        *(mark for i in range(cores) for mark in bands(i, top + (i + 0.5) * row, share, *accents)),
        bold(380, top + whole + 30, f"All cores at work: {limit} each core to {_printed(min(share, dma), 'B/s')}."),
    ]
    one_core = [
        bold(275, 40, "All of HBM"),
        label(275, 60, _printed(it.hbm_bytes_per_s, "B/s")),
        label(520, 60, rates[1], accent="a"),
        *bands(0, top + whole / 2, share * cores, "b", "a"),
        bold(380, top + whole + 30, f"One core at work: DMA engines limit it to {_printed(dma, 'B/s')}."),
    ]
    return Drawing(
        name_of("hbm", it.id),
        f"{limit} {it.name} before its {other}",
        top + whole + 44,
        marks,
        {"All cores at work": all_cores, "One core at work": one_core},
        note="Each band is as thick as its rate, and the thinner one, in orange, limits what a core reads.",
        alt=f"{counted(stacks, 'HBM stack')} of {it.name} give {rates[0]} where all {cores} cores work; the "
        f"{core.dma_engines:.0f} DMA engines move {rates[1]} into SBUF. {limit} a core, at "
        f"{_printed(min(share, dma), 'B/s')}.",
    )


@dataclass(frozen=True, slots=True)
class _Banks:
    """Where the banks and the cores of a chip stand in the drawing of its memory."""

    chip: Chip

    @property
    def number(self) -> int:
        return int(self.chip.cores / self.chip.hbm_bank_cores)

    @property
    def cores(self) -> int:
        return int(self.chip.hbm_bank_cores)

    @property
    def width(self) -> float:
        return (728 - 14 * (self.number - 1)) / self.number

    def left(self, bank: int) -> float:
        return 16 + bank * (self.width + 14)

    def core(self, index: int) -> tuple[float, float]:
        """Return the left and the right of a core."""
        wide = self.width / self.cores
        left = self.left(index // self.cores) + index % self.cores * wide
        return left, left + wide

    def frame(self, lnc: int) -> list[str]:
        """Return the ranks of a logical core's size, and the end of the memory of the first of them."""
        rank = site(self.chip, lnc)
        sharing, ranks, size = int(rank.ranks_per_bank), int(rank.ranks_per_chip), _printed(rank.hbm_bytes, "B")
        spanned = max(lnc // self.cores, 1)
        end = self.left(spanned - 1) + self.width
        anchor, side = ("end", -4) if end > 400 else ("start", 12)
        marks = [
            line(end + 4, 42, end + 4, 192, accent="a", wide=4),
            label(end + side, 54, "memory of rank 0 ends here", anchor=anchor, accent="a"),
        ]
        for first in range(0, self.number, spanned):
            left, right = self.left(first), self.left(first + spanned - 1) + self.width
            owner = first // spanned * sharing
            names = " and ".join(f"{owner + i}" for i in range(sharing))
            marks += [
                rect(left, 92, right - left, 96, accent="b" if owner else "a"),
                *_column(left + self.width / 2, 134, [f"rank{'s' if sharing > 1 else ''} {names}", size]),
            ]
        for index in range(ranks):
            left, right = self.core(index * lnc)[0], self.core(index * lnc + lnc - 1)[1]
            accent: Accent = "b" if index else "a"
            marks += [
                rect(left + 2, 232, right - left - 4, 62, accent=accent),
                arrow((left + right) / 2, 232, (left + right) / 2, 190, accent=accent),
            ]
        if sharing > 1:
            said = f"{ranks} ranks of {counted(lnc, 'core')}: {sharing} ranks share each bank."
            why = f"What one rank stores, its neighbour cannot; together they have {size}."
        elif ranks > 1:
            said = f"{ranks} ranks of {counted(lnc, 'core')}: each has {counted(spanned, 'bank')} to itself."
            why = f"A rank that needs more than {size} does not fit, whatever the others leave free."
        else:
            said = f"1 rank of {lnc} cores has all {self.number} banks."
            why = f"It must fit into the {size} of the chip."
        return [*marks, bold(380, 326, said), label(380, 350, why)]


def memory_of_a_chip(chip: str | Chip = "trainium3") -> Drawing:
    """Return the drawing of a chip's memory banks, and of how much of them a rank reaches at each LNC.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores, by id or object. [-]

    Returns
    -------
    drawing : Drawing
        Banks and cores, with a frame for each logical core that is allowed or announced. [-]

    Examples
    --------
    >>> list(memory_of_a_chip("trainium3").frames), list(memory_of_a_chip("trainium1").frames)
    (['LNC 1', 'LNC 2', 'LNC 8 (announced)'], ['LNC 1'])
    """
    it, _ = _with_core(chip)
    banks = _Banks(it)
    number, size = counted(banks.number, "bank"), _printed(it.hbm_bytes / banks.number, "B")
    stack = " = one stack" if it.hbm_stacks == banks.number else ""
    marks = [
        bold(16, 26, f"{it.name}: {_printed(it.hbm_bytes, 'B')} of {it.hbm_type}, {number} of {size}", anchor="start"),
        *(rect(banks.left(i), 92, banks.width, 96) for i in range(banks.number)),
        *(label(banks.left(i) + banks.width / 2, 82, f"bank {i}{stack}") for i in range(banks.number)),
    ]
    for i in range(int(it.cores)):
        left, right = banks.core(i)
        marks += [rect(left + 8, 238, right - left - 16, 50), label((left + right) / 2, 268, f"core {i}")]
    choices = {f"LNC {lnc}": banks.frame(lnc) for lnc in it.lnc_choices}
    choices |= {f"LNC {lnc} (announced)": banks.frame(lnc) for lnc in it.lnc_announced}
    return Drawing(
        name_of("memory", it.id),
        "The logical core decides where a rank's memory ends",
        362,
        marks,
        choices,
        note="A rank is one logical NeuronCore (LNC); the orange line shows how far the memory of rank 0 reaches.",
        alt=f"{it.name} has {number} of {size}, each beside {counted(it.hbm_bank_cores, 'core')}. A rank that is "
        "smaller than these cores shares the bank; a rank as large as them has it to itself.",
    )


def roofline_idea(chip: str | Chip = "trainium3", dtype: str = "bf16") -> Drawing:
    """Return the drawing of the roofline: a pipe of bytes that feeds an engine, and the curve that follows.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores, by id or object. [-]
    dtype : str
        Compute dtype of the peak. [-]

    Returns
    -------
    drawing : Drawing
        Frames below, at and above the ridge point. [-]

    Examples
    --------
    >>> list(roofline_idea("trainium2").frames)
    ['57.5 FLOP per byte', '230 FLOP per byte', '920 FLOP per byte']
    """
    it, _ = _with_core(chip)
    peak, rate = it.peak(dtype), it.hbm_bytes_per_s
    ridge = float(roofline.ridge_point_flop_per_byte(peak, rate))
    left, right, floor, roof = 60.0, 740.0, 410.0, 274.0
    octave, rise = (right - left) / 8, (floor - roof) / 4
    corner = left + 4 * octave
    points = {ridge / 4: -2, ridge: 0, ridge * 4: 2}  # octaves from the ridge, by intensity
    limits = {-2: "HBM bandwidth limits", 0: "both limit", 2: "compute limits"}

    def frame(intensity: float, octaves: int) -> list[str]:
        flop_per_s = float(roofline.attainable_flop_per_s(intensity, peak, rate))
        full, busy = flop_per_s / intensity / rate, flop_per_s / peak
        x, y = corner + octaves * octave, roof - min(octaves, 0) * rise
        here = _printed(flop_per_s, "FLOP/s")
        return [
            rect(140, 90 - 28 * full, 280, 56 * full, accent="b", radius=0),
            arrow(420, 90, 450, 90, accent="b", wide=1 + 4 * full),
            rect(450, 52, 290 * busy, 76, accent="a"),
            text(280, 154, f"{100 * full:.0f} % full", size=TITLE, accent="b"),
            text(595, 154, f"{100 * busy:.0f} % busy", size=TITLE, accent="a"),
            bold(380, 190, f"At {format_digits(intensity, 3)} FLOP per byte, {limits[octaves]} the chip to {here}."),
            line(x, y, x, floor, accent="a", wide=1.3),
            circle(x, y, 8, accent="a"),
            label(x + 14, y + 22, here, accent="a", anchor="start")
            if octaves < 0
            else label(x, y - 16, here, accent="a"),
        ]

    marks = [
        bold(76, 36, "HBM"),
        rect(16, 52, 120, 76, accent="b"),
        label(76, 95, _printed(rate, "B/s")),
        bold(280, 36, "Pipe of bytes"),
        rect(140, 62, 280, 56, filled=False, radius=0),
        bold(595, 36, f"Tensor engines, {_printed(peak, 'FLOP/s')} {dtype.upper()}"),
        rect(450, 52, 290, 76),
        line(left, 226, left, floor),
        line(left, floor, right, floor),
        label(left + 10, 240, "FLOP/s", anchor="start"),
        line(left, floor, corner, roof, accent="b", wide=3),
        line(corner, roof, right, roof, accent="a", wide=3),
        label(left + 16, 290, "HBM bandwidth limits", anchor="start", accent="b"),
        label(right - 4, 306, "compute limits", anchor="end", accent="a"),
        *(label(corner + octaves * octave, floor + 22, format_digits(x, 3)) for x, octaves in points.items()),
        label(corner, floor + 42, "ridge"),
        label(right, floor + 42, "FLOP per byte (log)", anchor="end"),
    ]
    return Drawing(
        name_of("roofline", it.id, dtype),
        "Below the ridge, bytes limit; above it, compute does",
        floor + 54,
        marks,
        {f"{format_digits(x, 3)} FLOP per byte": frame(x, octaves) for x, octaves in points.items()},
        note=f"Step from low to high intensity on {it.name}: the pipe is full first, then the engines are always busy.",
        alt=f"HBM of {it.name} feeds Tensor engines of {_printed(peak, 'FLOP/s')} through a pipe of "
        f"{_printed(rate, 'B/s')}. Below {format_digits(ridge, 3)} FLOP per byte the pipe is full and "
        "the engines wait; above it the engines are busy and the pipe is not full.",
    )


def decode_step_idea(
    model: str | Transformer = "llama-3.3-70b",
    system: str | System | Chip = "trn2.48xlarge",
    *,
    context: float = 4096,
    batches: Sequence[int] = (1, 16, 64),
    precision: str | Precision = "bf16",
) -> Drawing:
    """Return the drawing of what a decode step reads: the weights once, and the cache of each sequence.

    Parameters
    ----------
    model : str or Transformer
        Model, by id or object. [-]
    system : str, System or Chip
        Whose HBM bandwidth turns bytes into the least time; a bare chip stands for one of them. [-]
    context : float
        Tokens of each sequence. [token]
    batches : sequence of int
        Sequences that share a step, one frame for each. [-]
    precision : str or Precision
        Storage dtypes of weights and cache. [-]

    Returns
    -------
    drawing : Drawing
        Boxes with areas in proportion to bytes, at one scale in every frame. [-]

    Examples
    --------
    >>> list(decode_step_idea("llama-3.3-70b", "trn2.48xlarge").frames)
    ['Batch 1', 'Batch 16', 'Batch 64']
    """
    it, where = find_model(model), system if isinstance(system, Chip) else find(system, "system")
    named = f"one {where.name} chip" if isinstance(where, Chip) else where.id
    if not it.generates:
        refuse("model", it.id, "only models that generate have a decode step")
    batches = integers("batches", batches)
    stored = load.precision(precision)
    cache = float(it.kv_bytes(context, stored.kv)) + it.state_bytes()
    weights = {batch: float(it.weight_bytes_read(batch, stored)) for batch in batches}
    top, tall = 78.0, 250.0
    unit, columns = _scale(max(weights.values()), cache, max(batches), (310.0, tall), (360.0, tall))
    side = (cache * unit) ** 0.5
    step = side * PITCH

    def frame(batch: int) -> list[str]:
        read, total = weights[batch], weights[batch] + batch * cache
        least_s = total / where.hbm_bytes_per_s
        places = [(374 + i % columns * step, top + i // columns * step) for i in range(batch)]
        return [
            rect(20, top, read * unit / tall, tall, accent="b", radius=0),
            label(20, 56, f"{_decimal(read)}, read once", anchor="start"),
            *(rect(x, y, side, side, accent="a", radius=0) for x, y in places),
            label(374, 56, f"{batch} × {_decimal(cache)}", anchor="start"),
            bold(
                20,
                top + tall + 30,
                f"{_decimal(total)} for {counted(batch, 'token')}: {_decimal(total / batch)} per token.",
                anchor="start",
            ),
            label(
                20,
                top + tall + 54,
                f"At the {_printed(where.hbm_bytes_per_s, 'B/s')} of {named} a step takes at "
                f"least {format_digits(least_s / MS, 3)} ms.",
                anchor="start",
            ),
        ]

    return Drawing(
        name_of("reads", it.id, where.id, f"{context:.0f}"),
        "Sequences of a batch share weights, but not caches",
        top + tall + 68,
        [
            bold(20, 34, "Weights", anchor="start", accent="b"),
            bold(374, 34, f"Caches of {counted(context, 'token')} each", anchor="start", accent="a"),
        ],
        {f"Batch {batch}": frame(batch) for batch in batches},
        note=f"Areas are in proportion to the bytes that one decode step of {it.id} reads, at one scale in all steps.",
        alt=f"A decode step of {it.id} reads {_decimal(weights[batches[0]])} of weights at batch {batches[0]}, and "
        f"{_decimal(cache)} of cache for each sequence of {context:,.0f} tokens.",
    )


def _decimal(size: float) -> str:
    """Return bytes that are moved in the decimal unit of the rates that move them."""
    return f"{format_digits(size / GB, 3)} GB"


def _scale(
    weights: float, cache: float, most: int, room: tuple[float, float], grid: tuple[float, float]
) -> tuple[float, int]:
    """Return pixels per byte and columns at which the weights fit into their room and all caches into their grid."""
    unit = room[0] * room[1] / weights
    while True:
        step = PITCH * (cache * unit) ** 0.5
        columns, rows = int(grid[0] / step), int(grid[1] / step)
        if columns * rows >= most:
            return unit, next(c for c in range(1, columns + 1) if c * min(c, rows) >= most or c == columns)
        unit *= 0.97
