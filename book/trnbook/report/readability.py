"""What a build says of how its chapters read: model calls, equations, crowded sentences, subtitles and colours.

The figures are read off executed notebooks, so that sentences and charts of outputs count as a reader meets them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

MOST_NUMBERS, MOST_LETTERS, LEAST_APART = 2, 90, 20.0  # in a sentence, in a subtitle, between two colours
# calls whose result is time, memory, cost, energy, training, an exchange or a validation
MODELS = frozenset(
    """decode_step prefill plan serve disaggregate memory_fit train_step train_run train_runs token_cost tco energy
    collective validate validation sensitivity goodput software_gap training_gap kernel expert_exchange roofline clos
    sweep compare decode fit""".split()
)
BANNED = (
    *("so many", "so often", "what of", "the text", "the door", "the stroke", "out of reach", "within the band"),
    *("a token cost", "a chip cost", "a rank has", "tells", "speaks of", "feels"),
)
_NUMBER = re.compile(r"(?<![\w.])(?<!\w-)(?:\d[\d,.]*\d|\d(?!\w))")
_BAND = re.compile(r" \([^()]*?\d to [^()]*\)")  # a range beside its number is typography, not prose
_PROBLEM = re.compile(r"^\*\*\d+\.\*\*")  # the number of a problem
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`])|\n\s*\n|\n(?=[*#|>-])")
_SKIPPED = re.compile(  # code, marks of a box, formulas, addresses and tags
    r"```[a-z].*?```|^(?:```|:class:)[^\n]*$|\$\$.*?\$\$|(?<!\\)\$[^$]*(?<!\\)\$|`[^`]*`|\]\([^)]*\)|<[^>]*>",
    re.S | re.M,
)


class Page(NamedTuple):
    """Figures of one chapter."""

    slug: str
    code_cells: int
    model_cells: int
    equations: int
    crowded: tuple[str, ...]
    banned: tuple[str, ...]
    long_subtitles: int
    close_colours: int

    @property
    def model_share(self) -> float:
        """Share of the code cells that define or call a model."""
        return self.model_cells / self.code_cells if self.code_cells else 0.0


def calls_model(source: str) -> bool:
    """Whether a cell calls a model, or defines a function that does.

    Examples
    --------
    >>> calls_model("step = tm.decode_step(m, s)"), calls_model("charts.bars(step)"), calls_model("a = (")
    (True, False, False)
    >>> calls_model("tm.kernel.dma(chip, 2**20, 512)")
    True
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(one, ast.Attribute) and bool(_path(one) & MODELS) and not _of_charts(one) for one in called)


def _path(one: ast.Attribute) -> set[str]:
    """Return the name of a called function, with that of its module where this is one of `tm`."""
    module = one.value
    return {one.attr, module.attr} if isinstance(module, ast.Attribute) and _of(module, "tm") else {one.attr}


def _of(one: ast.Attribute, *owners: str) -> bool:
    return isinstance(one.value, ast.Name) and one.value.id in owners


def _of_charts(one: ast.Attribute) -> bool:
    return _of(one, "charts", "tables")


def sentences(text: str) -> Iterator[str]:
    r"""Yield the sentences of Markdown without its code, formulas, links and tables.

    Examples
    --------
    >>> list(sentences("One is $1+1$. Two `x` is more.\n\n| 1 | 2 |"))
    ['One is .', 'Two  is more.']
    >>> list(sentences("It costs \\$2, or \\$3.\n\n```{admonition} Answer\n:class: dropdown\nThree.\n```"))
    ['It costs \\$2, or \\$3.', 'Three.']
    """
    for part in _SENTENCE.split(_SKIPPED.sub("", text)):
        one = " ".join(part.split(" ")).strip()
        if one and not one.startswith(("|", "#", "```")):
            yield one


def numbers(sentence: str) -> list[str]:
    """Return the numbers of a sentence; those of a name, of a band in brackets and of a problem are none.

    Examples
    --------
    >>> numbers("**1.** The step of llama-3.3-70b takes 45 ms (30 to 60; extrapolated)")
    ['45']
    >>> numbers("Trainium3 takes 4.5 ms for 1,024 tokens"), numbers("NL72x2 has 144 chips")
    (['4.5', '1,024'], ['144'])
    """
    return _NUMBER.findall(_BAND.sub("", _PROBLEM.sub("", sentence)))


def _lab(colour: str) -> tuple[float, float, float]:
    """Return a hex colour in CIE Lab under D65."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (sum(a * b for a, b in zip(row, linear, strict=True)) / w for row, w in zip(rows, white, strict=True))
    fx, fy, fz = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def apart(one: str, other: str) -> float:
    """Return the distance of two hex colours in CIE Lab, Delta E of 1976.

    Examples
    --------
    >>> round(apart("#000000", "#ffffff")), round(apart("#D55E00", "#D55E00"))
    (100, 0)
    """
    return float(sum((a - b) ** 2 for a, b in zip(_lab(one), _lab(other), strict=True)) ** 0.5)


def _within(spec: Any, key: str) -> Iterator[Any]:
    """Yield every value under a key in a nested chart."""
    if isinstance(spec, Mapping):
        for name, value in spec.items():
            if name == key:
                yield value
            yield from _within(value, key)
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        for value in spec:
            yield from _within(value, key)


def _charts(cells: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the Vega-Lite charts of the outputs."""
    for cell in cells:
        for output in cell.get("outputs", ()):
            for kind, value in output.get("data", {}).items():
                if "vegalite" in kind:
                    yield value


def _subtitles(chart: Mapping[str, Any]) -> list[str]:
    title = chart.get("title")
    lines = title.get("subtitle", ()) if isinstance(title, Mapping) else ()
    return [lines] if isinstance(lines, str) else [" ".join(lines)]


def _too_close(chart: Mapping[str, Any]) -> bool:
    for scale in _within(chart, "color"):
        colours = scale.get("scale", {}).get("range") if isinstance(scale, Mapping) else None
        if isinstance(colours, list) and all(
            isinstance(c, str) and re.fullmatch("#[0-9A-Fa-f]{6}", c) for c in colours
        ):
            pairs = combinations(dict.fromkeys(colours), 2)
            if any(apart(*pair) < LEAST_APART for pair in pairs):
                return True
    return False


def page(path: Path) -> Page:
    """Return the figures of an executed notebook."""
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    shown = [
        "".join(output["data"]["text/markdown"])
        for cell in cells
        for output in cell.get("outputs", ())
        if "text/markdown" in output.get("data", {})
    ]
    said = [one for text in (*prose, *shown) for one in sentences(text)]
    charts = list(_charts(cells))
    return Page(
        slug=path.stem,
        code_cells=len(code),
        model_cells=sum(map(calls_model, code)),
        equations=sum(text.count("$$") // 2 for text in prose),
        crowded=tuple(one for one in said if len(numbers(one)) > MOST_NUMBERS),
        banned=tuple(phrase for phrase in BANNED for one in said if re.search(rf"\b{phrase}\b", one.lower())),
        long_subtitles=sum(len(text) > MOST_LETTERS for chart in charts for text in _subtitles(chart)),
        close_colours=sum(map(_too_close, charts)),
    )


def table(paths: Iterable[Path]) -> str:
    """Return what a build prints: a line for each chapter, and one for all."""
    pages = [page(path) for path in paths]
    head = (
        f"{'chapter':<18}{'model cells':>12}{'equations':>11}{'crowded':>9}{'banned':>8}{'subtitles':>11}{'colours':>9}"
    )
    lines = [_line(one.slug, one.model_cells, one.code_cells, one) for one in pages]
    cells, model = sum(one.code_cells for one in pages), sum(one.model_cells for one in pages)
    share = f"{model / max(cells, 1):.0%} of {cells} code cells define or call a model"
    return "\n".join([head, *lines, share])


def _line(slug: str, model: int, cells: int, one: Page) -> str:
    return (
        f"{slug:<18}{f'{model} of {cells}':>12}{one.equations:>11}{len(one.crowded):>9}{len(one.banned):>8}"
        f"{one.long_subtitles:>11}{one.close_colours:>9}"
    )
