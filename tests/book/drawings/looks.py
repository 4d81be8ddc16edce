"""What is wrong with the looks of a drawing, found in its marks: `faults(drawing)`.

A browser is not asked. The width of a text is estimated from its letters, so that a drawing is held to what it looks
like in any font of the usual width.
"""

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from typing import NamedTuple

from trnbook.drawings.svg import WIDTH

LETTER = 0.52  # width of a letter, in sizes of the font
LEAST_SIZE, MOST_LABELS, MOST_WORDS = 11, 25, 10
SLACK = 1.0  # in pixels, which nobody sees


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other):
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > SLACK and down > SLACK

    def within(self, other):
        sides = self.left - other.left, self.top - other.top, other.right - self.right, other.bottom - self.bottom
        return min(sides) >= -SLACK


def svg(drawing):
    """Return the picture of a drawing as a tree; ParseError where it is no well-formed XML."""
    return ET.fromstring(re.search(r"<svg.*</svg>", drawing._repr_html_(), re.DOTALL)[0])


def parsed(marks):
    """Return marks as drawn, parsed."""
    return ET.fromstring(f"<svg>{''.join(marks)}</svg>")


def frames(drawing):
    """Return, by the label of each frame, the marks that stand in it; a still drawing has one frame without a label."""
    tree = svg(drawing)
    still = [mark for mark in tree if mark.tag != "g"]
    moving = [list(group) for group in tree if group.tag == "g"]
    labels = list(drawing.frames or {}) or [""]
    return {label: still + more for label, more in zip(labels, moving or [[]], strict=True)}


def labels(marks):
    """Return the texts among marks."""
    return [mark.text for mark in marks if mark.tag == "text"]


def texts(drawing):
    """Return all texts of a drawing, by frame."""
    return {label: labels(marks) for label, marks in frames(drawing).items()}


def number(mark, name):
    return float(mark.get(name, 0))


def size(mark):
    return float(mark.get("font-size", 0))


def area(text):
    """Return where a text stands, from the tops of its high letters to what hangs below the baseline."""
    width = LETTER * size(text) * len(text.text)
    x, y = number(text, "x"), number(text, "y")
    left = x - {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")] * width
    return Area(left, y - 0.8 * size(text), left + width, y + 0.2 * size(text))


def box(mark):
    if mark.tag == "circle":
        x, y, r = (number(mark, name) for name in ("cx", "cy", "r"))
        return Area(x - r, y - r, x + r, y + r)
    x, y = number(mark, "x"), number(mark, "y")
    return Area(x, y, x + number(mark, "width"), y + number(mark, "height"))


def boxes(marks, look):
    """Return where the boxes of a colour stand."""
    return [box(mark) for mark in marks if mark.tag == "rect" and mark.get("class") == look]


def crosses(mark, where):
    """Whether a straight line passes through an area: the part of it between the area's sides is not empty."""
    (x, y), (x2, y2) = ((number(mark, f"x{end}"), number(mark, f"y{end}")) for end in (1, 2))
    first, last = 0.0, 1.0
    for start, step, low, high in (
        (x, x2 - x, where.left + SLACK, where.right - SLACK),
        (y, y2 - y, where.top + SLACK, where.bottom - SLACK),
    ):
        if step == 0:
            if not low < start < high:
                return False
        else:
            ends = sorted(((low - start) / step, (high - start) / step))
            first, last = max(first, ends[0]), min(last, ends[1])
    return first < last


def faults_of_frame(marks, height):
    """Return what is wrong among marks that stand together."""
    said = [mark for mark in marks if mark.tag == "text" and mark.text]
    canvas = Area(SLACK, SLACK, WIDTH - SLACK, height - SLACK)  # at whose edge nothing may be cut
    found = [f"{len(said)} labels, more than {MOST_LABELS}"] if len(said) > MOST_LABELS else []
    for text in said:
        if size(text) < LEAST_SIZE:
            found.append(f"{text.text!r} has size {size(text):g}")
        if not area(text).within(canvas):
            found.append(f"{text.text!r} leaves the canvas")
        for mark in marks:
            if mark.tag in ("rect", "circle") and area(text).meets(box(mark)) and not area(text).within(box(mark)):
                found.append(f"{text.text!r} crosses the edge of a {mark.tag}")
            if mark.tag == "line" and crosses(mark, area(text)):
                found.append(f"{text.text!r} is crossed by a line")
    shapes = [mark for mark in marks if mark.tag in ("rect", "circle")]
    found += [f"a {mark.tag} leaves the canvas" for mark in shapes if not box(mark).within(canvas)]
    found += [f"{a.text!r} meets {b.text!r}" for a, b in combinations(said, 2) if area(a).meets(area(b))]
    return found


def faults(drawing) -> list[str]:
    """Return what is wrong with a drawing: in its words, and in each of its frames; empty where it is as it should be.

    The caption has at most ten words, the note is a sentence, the picture is described for who cannot see it. The SVG
    is well-formed, and in no frame does a text leave the canvas, meet another, cross the edge of a box or a line, or
    have a size below 11; a frame has at most 25 labels.
    """
    try:
        shown = frames(drawing)
    except ET.ParseError as error:
        return [f"no well-formed XML: {error}"]
    found = []
    if not svg(drawing).get("viewBox", "").startswith(f"0 0 {WIDTH} "):
        found.append("the canvas is not as wide as it should be")
    if not 1 <= len(drawing.caption.split()) <= MOST_WORDS:
        found.append(f"the caption has {len(drawing.caption.split())} words")
    if not drawing.note.endswith("."):
        found.append("the note is no full sentence")
    if not drawing.alt:
        found.append("no alternative text")
    if not re.fullmatch(r"[A-Za-z][\w-]*", drawing.id):
        found.append(f"{drawing.id!r} cannot be the name of a control")
    return found + [
        f"{label}: {fault}" for label, marks in shown.items() for fault in faults_of_frame(marks, drawing.height)
    ]
