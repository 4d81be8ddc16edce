"""The few marks that drawings are made of, and the picture that steps through them.

A mark is a piece of SVG. Its colours are classes, not values: ink takes the colour of the page's text, so that a
drawing reads in light and dark alike, and accents come from one palette with a colour for each theme. Coordinates are
pixels of a canvas whose width is that of the column of text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH = 760
Accent = Literal["", "a", "b", "c", "d", "e"]
COLOURS: Mapping[str, tuple[str, str]] = {  # of each accent, on a light page and on a dark one
    "a": ("#C44F00", "#FF8A3D"),
    "b": ("#0072B2", "#5CB3EA"),
    "c": ("#00795A", "#2FC79C"),
    "d": ("#A8457F", "#E59BC6"),
    "e": ("#8A6A00", "#DDB543"),
}
DARK = 'html[data-theme="dark"] .trn-drawing,[data-jp-theme-light="false"] .trn-drawing'
STYLE = f"""
.trn-drawing {{ margin: .5rem 0; overflow-x: auto; color: inherit }}
.trn-drawing svg {{ width: 100%; min-width: 560px; max-width: {WIDTH}px; height: auto; display: block;
  font: 13px "Source Sans Pro", system-ui, sans-serif }}
.trn-drawing figcaption {{ font-weight: 600; margin-bottom: .2rem }}
.trn-drawing .note {{ font-weight: 400; opacity: .8; font-size: .92em }}
.trn-drawing text {{ fill: currentColor }}
.trn-drawing .ink {{ stroke: currentColor; fill: none }}
.trn-drawing .faint {{ stroke: currentColor; fill: none; opacity: .28 }}
.trn-drawing .box {{ stroke: currentColor; fill: currentColor; fill-opacity: .05 }}
.trn-drawing .head {{ fill: currentColor }}
.trn-drawing input {{ position: absolute; opacity: 0 }}
.trn-drawing label {{ display: inline-block; border: 1px solid currentColor; border-radius: 4px; padding: 0 .55rem;
  margin: .15rem .3rem .35rem 0; cursor: pointer; font-size: .9em }}
.trn-drawing input:focus-visible + label {{ outline: 2px solid var(--b); outline-offset: 2px }}
.trn-drawing input:checked + label {{ border-color: var(--b); box-shadow: inset 0 -3px var(--b) }}
.trn-drawing .frame {{ display: none }}
"""


def _attributes(**values: object) -> str:
    return "".join(f' {name.replace("_", "-")}="{escape(str(x))}"' for name, x in values.items() if x not in (None, ""))


def _number(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")


def rect(x: float, y: float, w: float, h: float, *, accent: Accent = "", filled: bool = True, radius: float = 3) -> str:
    """Return a box; with an accent in its colour, else in ink.

    Examples
    --------
    >>> rect(0, 0, 10, 5)
    '<rect x="0" y="0" width="10" height="5" rx="3" class="box"/>'
    """
    place = f'x="{_number(x)}" y="{_number(y)}" width="{_number(w)}" height="{_number(h)}" rx="{_number(radius)}"'
    return f'<rect {place} class="{_look(accent, "box" if filled else "ink")}"/>'


def circle(x: float, y: float, r: float, *, accent: Accent = "") -> str:
    """Return a disc."""
    return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(r)}" class="{_look(accent, "box")}"/>'


def line(
    x: float, y: float, x2: float, y2: float, *, accent: Accent = "", faint: bool = False, wide: float = 1.3
) -> str:
    """Return a line between two points."""
    ends = f'x1="{_number(x)}" y1="{_number(y)}" x2="{_number(x2)}" y2="{_number(y2)}"'
    return (
        f'<line {ends} stroke-width="{_number(wide)}" class="{_look(accent, "faint" if faint else "ink", line=True)}"/>'
    )


def arrow(x: float, y: float, x2: float, y2: float, *, accent: Accent = "", wide: float = 1.6) -> str:
    """Return a line with a head at its second point."""
    length = max(((x2 - x) ** 2 + (y2 - y) ** 2) ** 0.5, 1e-9)
    ux, uy = (x2 - x) / length, (y2 - y) / length
    back, side = 7 + wide, 3 + wide
    corners = [(x2, y2)] + [(x2 - ux * back + s * uy * side, y2 - uy * back - s * ux * side) for s in (1, -1)]
    points = " ".join(f"{_number(px)},{_number(py)}" for px, py in corners)
    shaft = line(x, y, x2 - ux * back * 0.8, y2 - uy * back * 0.8, accent=accent, wide=wide)
    return f'{shaft}<polygon points="{points}" class="{f"fill-{accent}" if accent else "head"}"/>'


def path(d: str, *, accent: Accent = "", faint: bool = False, wide: float = 1.3) -> str:
    """Return an open path from its SVG description."""
    look = _look(accent, "faint" if faint else "ink", line=True)
    return f'<path d="{d}" stroke-width="{_number(wide)}" class="{look}"/>'


def text(
    x: float, y: float, said: str, *, anchor: str = "middle", size: float = 13, bold: bool = False, accent: Accent = ""
) -> str:
    """Return a line of text whose baseline is at `y`."""
    look = _attributes(text_anchor=anchor, font_size=_number(size), font_weight="600" if bold else "")
    colour = f' class="text-{accent}"' if accent else ""
    return f'<text x="{_number(x)}" y="{_number(y)}"{look}{colour}>{escape(said)}</text>'


def _look(accent: str, plain: str, *, line: bool = False) -> str:
    return plain if not accent else f"line-{accent}" if line else f"box-{accent}"


def _palette() -> str:
    """Return the style of the accents: their variables in both themes, and the classes that use them."""
    light, dark = ("".join(f"--{name}: {pair[i]};" for name, pair in COLOURS.items()) for i in (0, 1))
    looks = (
        f".trn-drawing .box-{name} {{ stroke: var(--{name}); fill: var(--{name}); fill-opacity: .2 }}"
        f".trn-drawing .line-{name} {{ stroke: var(--{name}); fill: none }}"
        f".trn-drawing .fill-{name} {{ fill: var(--{name}) }}"
        f".trn-drawing .text-{name} {{ fill: var(--{name}); font-weight: 600 }}"
        for name in COLOURS
    )
    return f".trn-drawing {{ {light} }} {DARK} {{ {dark} }}" + "".join(looks)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture: what it claims, its height, what always stands there, and frames that a reader steps through.

    Parameters
    ----------
    id : str
        Name of the drawing, which is that of its controls too. [-]
    caption : str
        The claim, in at most ten words. [-]
    height : float
        Height of the canvas, which is `WIDTH` wide. [-]
    marks : sequence of str
        What stands in every frame. [-]
    frames : mapping of str to sequence of str
        Marks of each step by its label; without any, the picture stands still. [-]
    note : str
        How to read it, and where the sizes come from. [-]
    alt : str
        What the picture shows, for who cannot see it. [-]
    heights : sequence of float
        Height of each frame, where some are lower than the canvas. [-]

    Examples
    --------
    >>> one = Drawing("d", "A box", 40, [rect(0, 0, 10, 10)], alt="a box")
    >>> one._repr_html_().count("<svg"), "A box" in repr(one)
    (1, True)
    """

    id: str
    caption: str
    height: float
    marks: Sequence[str]
    frames: Mapping[str, Sequence[str]] | None = None
    note: str = ""
    alt: str = ""
    heights: Sequence[float] = ()

    def _repr_html_(self) -> str:
        steps = dict(self.frames or {})
        shown = "".join(
            f"#{self.id}-{i}:checked~svg .f{i}{{display:inline}}#{self.id}-{i}:checked+label{{background:#0072B233}}"
            for i in range(len(steps))
        ) + "".join(
            f"#{self.id}-{i}:checked~svg{{aspect-ratio:{WIDTH}/{_number(height)}}}"
            for i, height in enumerate(self.heights)
        )
        controls = "".join(
            f'<input type="radio" name="{self.id}" id="{self.id}-{i}"{" checked" if not i else ""}>'
            f'<label for="{self.id}-{i}">{escape(label)}</label>'
            for i, label in enumerate(steps)
        )
        moving = "".join(f'<g class="frame f{i}">{"".join(marks)}</g>' for i, marks in enumerate(steps.values()))
        note = f' <span class="note">{escape(self.note)}</span>' if self.note else ""
        cut = ' preserveAspectRatio="xMidYMin slice"' if self.heights else ""
        said = f'role="img" aria-label="{escape(self.alt or self.caption)}"'
        box = f'viewBox="0 0 {WIDTH} {_number(self.height)}"{cut} {said}'
        return (
            f'<figure class="trn-drawing"><style>{STYLE}{_palette()}{shown}</style>'
            f"<figcaption>{escape(self.caption)}{note}</figcaption>{controls}"
            f"<svg {box}>{''.join(self.marks)}{moving}</svg></figure>"
        )

    def __repr__(self) -> str:
        steps = f" ({', '.join(self.frames)})" if self.frames else ""
        return f"{self.caption}{steps}: {self.alt or self.note}"
