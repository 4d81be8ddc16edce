"""What the first page compares: a chip, an instance, and the racks of a domain, each chip as a square."""

from __future__ import annotations

from math import ceil

from trnbook.drawings import svg
from trnbook.drawings.amounts import digits, name_of
from trnbook.drawings.svg import Accent, Drawing
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.units import GIB, TB, counted

CHIP, GAP = 12.0, 3.0  # edge of a square and the space between two [px]
TOP, HEIGHT = 58.0, 226.0  # of the squares, and of the picture [px]


def compared(instance: str | System = "trn2.48xlarge", domain: str | System = "trn3-nl72x2-pcie160") -> Drawing:
    """Return a chip, an instance with its chips, and the racks of a domain with theirs.

    Parameters
    ----------
    instance, domain : str or System
        A system that is one server, and one that fills several racks. [-]

    Returns
    -------
    drawing : Drawing
        A picture without steps. [-]

    Examples
    --------
    >>> compared().alt
    'One chip of Trainium2; trn2.48xlarge with 16 chips; Trainium3 NL72x2 Switched with 144 chips in 2 racks.'
    """
    small, large = read_system(instance), read_system(domain)
    racks = int(large.racks)
    chip = small.chip
    marks = [
        *_head(95, "A chip", chip.name),
        svg.rect(74, TOP, 42, 42, accent="a"),
        svg.text(95, TOP + 62, f"{digits(chip.hbm_bytes / GIB)} GiB of memory", size=12),
        svg.text(95, TOP + 79, f"{digits(chip.hbm_bytes_per_s / TB)} TB/s", size=12),
        *_head(300, "An instance", small.name),
        *_block(300, int(small.chips), 4, "a"),
        svg.text(300, TOP + 84, counted(small.chips, "chip"), size=12),
        *_head(572, "A domain", large.name),
    ]
    each = int(large.chips) // racks
    for rack in range(racks):
        x = 572 + (rack - (racks - 1) / 2) * 160
        marks += _block(x, each, 8, "b")
        marks.append(svg.text(x, HEIGHT - 14, f"rack {rack + 1}: {counted(each, 'chip')}", size=12))
    return Drawing(
        name_of("compared", small.id, large.id),
        "A chip, an instance and a domain of two racks",
        HEIGHT,
        marks,
        note="Each square is a chip. Links join all chips of an instance and all chips of a domain.",
        alt=f"One chip of {chip.name}; {small.name} with {counted(small.chips, 'chip')}; "
        f"{large.name} with {counted(large.chips, 'chip')} in {counted(racks, 'rack')}.",
    )


def _head(x: float, what: str, name: str) -> list[str]:
    """Return a heading and the name of what stands under it."""
    return [svg.text(x, 20, what, size=16, bold=True), svg.text(x, 40, name, size=13)]


def _block(x: float, chips: int, columns: int, accent: Accent) -> list[str]:
    """Return the chips of a server or a rack as squares around a middle."""
    step = CHIP + GAP
    left, rows = x - (columns * step - GAP) / 2, ceil(chips / columns)
    frame = svg.rect(left - 6, TOP - 6, columns * step - GAP + 12, rows * step - GAP + 12)
    squares = (
        svg.rect(left + (i % columns) * step, TOP + (i // columns) * step, CHIP, CHIP, accent=accent, radius=1)
        for i in range(chips)
    )
    return [frame, *squares]
