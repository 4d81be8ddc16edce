"""How chapters read: what a build prints of them, and what makes it fail.

The figures are read off executed notebooks, so that sentences and charts of outputs count as a reader meets them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from trnbook.charts.language import on_dark

MOST_NUMBERS, MOST_IN_HEADLINE = 2, 3  # in a sentence
MOST_LETTERS, LEAST_APART = 90, 20.0  # of a subtitle; between two colours, Delta E of 1976
LEAST_EQUATIONS, LEAST_MODEL_SHARE = 6, 1 / 3  # of a chapter that explains; of the code cells of all chapters
# calls whose result is time, memory, cost, energy, training, an exchange or a validation
MODELS = frozenset(
    """decode_step prefill plan serve disaggregate memory_fit train_step train_run train_runs token_cost tco energy
    collective validate validation sensitivity goodput software_gap training_gap kernel expert_exchange roofline clos
    sweep compare decode fit calibrate nearest doctor next_measurement measure
    claims""".split()
)
PHRASES = (  # that say nothing, or are somebody's private metaphor
    *("so many", "so often", "what of", "the text", "the door", "the stroke", "out of reach", "within the band"),
    *("tells", "speaks of", "feels"),
    r"(?:tokens/s|tokens?|joules?|J|dollars|\$|USD|watts?|W|bytes|GB/s|TB/s|requests) an? (?:chip|user|token|rank)",
)
PLAIN = frozenset(  # abbreviations that every reader knows, makers, units, and names of models and parts
    """AI AMD API AWS BERT CI CPU CSV FLOP GB GFLOP GPU HLAT ID IT JSON MB NVIDIA PB PDF PFLOP SVG SXM TB TFLOP TPU US
    USD YAML""".split()
)
_BANNED = [re.compile(rf"\b{phrase}\b", re.IGNORECASE) for phrase in PHRASES]
_ABBREVIATION = re.compile(r"(?<![\w./-])([A-Z]{2,6})s?(?![\w./-])")
_NUMBER = re.compile(r"(?<![\w.])(?<!\w-)(?:\d[\d,.]*\d|\d(?!\w))")
_BAND = re.compile(r" \([^()]*?\d to [^()]*\)")  # a range beside its number is typography, not prose
_PROBLEM = re.compile(r"^\*\*\d+\.\*\*")  # the number of a problem
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`])|\n\s*\n|\n(?=[*#|>-])")
_SKIPPED = re.compile(  # code, marks of a box, formulas, addresses and tags
    r"```[a-z].*?```|^(?:```|:class:)[^\n]*$|\$\$.*?\$\$|(?<!\\)\$[^$]*(?<!\\)\$|`[^`]*`|\]\([^)]*\)|<[^>]*>",
    re.S | re.M,
)


class Page(NamedTuple):
    """Figures of one chapter, and the texts that are not as they should be."""

    slug: str
    code_cells: int
    model_cells: int
    equations: int
    sentences: int
    numbers: int
    crowded: tuple[str, ...]
    banned: tuple[str, ...]
    unexplained: tuple[str, ...]
    long_subtitles: tuple[str, ...]
    closest: float
    close_colours: tuple[str, ...]
    tooltip_size: int
    raw_tooltips: tuple[str, ...]

    def faults(self, least_equations: int = 0) -> Iterator[str]:
        """Yield what makes a build fail."""
        if self.equations < least_equations:
            yield f"it has {self.equations} display equations; one that explains has at least {least_equations}"
        yield from (f"more than {MOST_NUMBERS} numbers in a sentence: {text}" for text in self.crowded)
        yield from (f"a phrase that is no plain English: {text}" for text in self.banned)
        yield from (f"an abbreviation that the glossary does not explain: {word}" for word in self.unexplained)
        yield from (f"more than {MOST_LETTERS} letters in a subtitle: {text}" for text in self.long_subtitles)
        yield from (f"series that are hard to tell apart: {title}" for title in self.close_colours)
        yield from (f"a tooltip shows the name of a column: {title}" for title in self.raw_tooltips)


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
    """Return the lines under the title of a chart, as they were before a page broke them."""
    lines = chart.get("usermeta", {}).get("under", [])
    if not lines and isinstance(title := chart.get("title"), Mapping):
        lines = title.get("subtitle", [])
    return [lines] if isinstance(lines, str) else list(lines)


def _title(chart: Mapping[str, Any]) -> str:
    title = chart.get("title")
    text = title.get("text", "") if isinstance(title, Mapping) else title or ""
    return text if isinstance(text, str) else " ".join(text)


def _closest(chart: Mapping[str, Any]) -> float:
    """Return the least distance of two series of a chart, on a white page and on a dark one."""
    least = float("inf")
    for scale in _within(chart, "color"):
        colours = scale.get("scale", {}).get("range") if isinstance(scale, Mapping) else None
        if isinstance(colours, list) and all(
            isinstance(c, str) and re.fullmatch("#[0-9A-Fa-f]{6}", c) for c in colours
        ):
            for pair in combinations(dict.fromkeys(colours), 2):
                least = min(least, apart(*pair), apart(*map(on_dark, pair)))
    return least


def _tooltips(chart: Mapping[str, Any]) -> Iterator[str]:
    for tooltip in _within(chart, "tooltip"):
        for field in tooltip if isinstance(tooltip, list) else [tooltip]:
            if isinstance(field, Mapping) and "field" in field:
                yield str(field.get("title") or field["field"])


def page(path: Path, explained: Collection[str] = ()) -> Page:
    """Return the figures of an executed notebook; `explained` are the words that the glossary has."""
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
    headline = {one for text in shown[:1] for one in sentences(text)}
    most = {one: MOST_IN_HEADLINE if one in headline else MOST_NUMBERS for one in said}
    counts = [(one, len(numbers(one))) for one in said]
    known = PLAIN.union(*(re.findall(r"[A-Z]{2,6}", word) for word in explained))
    short = [word for one in said for word in _ABBREVIATION.findall(one)]
    charts = list(_charts(cells))
    apart = [_closest(chart) for chart in charts]
    tooltips = [title for chart in charts for title in _tooltips(chart)]
    return Page(
        slug=path.stem,
        code_cells=len(code),
        model_cells=sum(map(calls_model, code)),
        equations=sum(text.count("$$") // 2 for text in prose),
        sentences=len(said),
        numbers=sum(count for _, count in counts),
        crowded=tuple(one for one, count in counts if count > most[one]),
        banned=tuple(one for one in said if any(phrase.search(one) for phrase in _BANNED)),
        unexplained=tuple(dict.fromkeys(word for word in short if word not in known)),
        long_subtitles=tuple(text for chart in charts for text in _subtitles(chart) if len(text) > MOST_LETTERS),
        closest=min(apart, default=float("inf")),
        close_colours=tuple(_title(chart) for chart, least in zip(charts, apart, strict=True) if least < LEAST_APART),
        tooltip_size=sum(len(title.split()) for title in tooltips),
        raw_tooltips=tuple(dict.fromkeys(title for title in tooltips if "_" in title)),
    )


def glossary(path: Path) -> list[str]:
    """Return the words that the table of a glossary explains."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    cells = (re.sub(r"\]\([^)]*\)|\[", "", row.strip("| ").split(" | ")[0]) for row in rows)
    return [word for cell in cells for word in cell.split(", ")]


def table(pages: Sequence[Page]) -> str:
    """Return what a build prints: a line for each chapter, and one for all."""
    head = f"{'chapter':<18}{'model cells':>12}{'equations':>11}{'numbers per sentence':>22}"
    head += f"{'colours apart':>15}{'tooltip words':>15}"
    lines = [
        f"{one.slug:<18}{f'{one.model_cells} of {one.code_cells}':>12}{one.equations:>11}"
        f"{one.numbers / max(one.sentences, 1):>22.2f}{one.closest:>15.0f}{one.tooltip_size:>15}"
        for one in pages
    ]
    cells = sum(one.code_cells for one in pages)
    return "\n".join([head, *lines, f"{model_share(pages):.0%} of {cells} code cells define or call a model"])


def model_share(pages: Iterable[Page]) -> float:
    """Return the share of the code cells of all chapters that define or call a model."""
    pages = list(pages)
    return sum(one.model_cells for one in pages) / max(sum(one.code_cells for one in pages), 1)


def faults(pages: Sequence[Page], explaining: Collection[str]) -> list[str]:
    """Return what makes a build fail, a line each; chapters that explain have equations."""
    lines = [
        f"{one.slug}: {fault}"
        for one in pages
        for fault in one.faults(LEAST_EQUATIONS if one.slug in explaining else 0)
    ]
    if pages and (share := model_share(pages)) < LEAST_MODEL_SHARE:
        lines.append(f"{share:.0%} of the code cells define or call a model, and a third should")
    return lines
