"""The table of quantities: what every field, column and axis is called, and in what unit."""

import ast
import base64
import dataclasses
import importlib
import io
import json
import pkgutil
import re
import subprocess
import sys

import pandas as pd
import pytest

import trnmodel
import trnmodel as tm
from trnbook.charts.display import VEGALITE_MIME
from trnbook.charts.tables import is_number, scale
from trnmodel.quantities import Quantity, quantities, quantity
from trnmodel.result import Card
from trnmodel.steps.mapping import CUTS
from trnmodel.units import split_name, title_of, unit_of

INNER = {"first", "together"}  # what a result is made from, which no table shows


def kinds():
    """Every class of the library that shows itself as a card."""
    for module in pkgutil.walk_packages(trnmodel.__path__, "trnmodel."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    left, found = [Card], {}
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.startswith("trnmodel.") and dataclasses.is_dataclass(kind):
            found[kind.__name__] = kind
    return found


KINDS = kinds()


def names_of(kind):
    """Public fields and properties of a kind of result."""
    names = [field.name for field in dataclasses.fields(kind)]
    for base in kind.__mro__:
        names += [name for name, item in vars(base).items() if isinstance(item, property)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_result_is_in_the_table(kind):
    known = set(quantities())
    names = [name for name in names_of(KINDS[kind]) if name not in INNER]
    bases = [base.__name__ for base in KINDS[kind].__mro__]
    assert [name for name in names if not {name, *(f"{base}.{name}" for base in bases)} & known] == []


def test_a_unit_is_the_one_that_the_name_says():
    wrong = {name: one.unit for name, one in quantities().items() if one.unit != unit_of(name.rpartition(".")[2])}
    assert wrong == {}


def test_every_row_is_complete_and_named_once():
    rows = list(quantities().items())
    assert [name for name, one in rows if one.name != name or not one.description] == []
    silent = [name for name, one in rows if not one.title]  # categories whose values say what they are
    assert silent == ["what", "of", "which", "held", "series", "way", "level", "group"]
    assert [name for name, one in rows if one.title and not one.title[0].isupper() and name not in silent] == []
    phrases = re.compile(r"\b(a chip|a user|a token|a rank|so many|what of)\b", re.IGNORECASE)
    assert [one.title for _, one in rows if phrases.search(one.title.replace("for a user", ""))] == []


def sources(root):
    paths = [*root.glob("notebooks/py/*.py"), *root.glob("book/trnbook/**/*.py"), *root.glob("trnmodel/**/*.py")]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def test_no_row_is_unused(root):
    """A row is a field of a result, or a column that the code of the library or the book names."""
    fields = {name for kind in KINDS.values() for name in names_of(kind)}
    used = set(re.findall(r"\w+", "\n".join(sources(root).values())))
    used |= {name for _, frame in tables(root) for name in frame}  # some names are put together
    owned = [name.split(".") for name in quantities() if "." in name]
    assert [name for name in quantities() if "." not in name and name not in fields | used] == []
    kinds = KINDS | {name: getattr(tm, name) for name in tm.__all__ if dataclasses.is_dataclass(getattr(tm, name))}
    assert [pair for pair in owned if pair[0] not in kinds or pair[1] not in names_of(kinds[pair[0]])] == []


def encodings(part):
    """Fields and titles of the axes and legends of a chart."""
    for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from encodings(item)
    if isinstance(part, dict) and isinstance(part.get("field"), str) and part.get("type") == "quantitative":
        yield part["field"]


def test_every_axis_of_the_book_is_in_the_table(root):
    """Quantities on the axes of the committed notebooks; "x" and "y" are drawn by hand with titles of their own."""
    shown = set()
    for path in root.glob("notebooks/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            for output in cell.get("outputs", ()):
                shown |= set(encodings(output.get("data", {}).get(VEGALITE_MIME, {})))
    names = {re.sub(r"(_low|_high|_text)+$", "", name) for name in shown} - {"x", "y", "x2", "y2"}
    assert len(names) > 50
    drawn = {"low", "high", "value", "label", "from", "to"}
    assert sorted(name for name in names - drawn if name not in quantities() and split_name(name).unit) == []


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("time_s", ("time", "s", "", "")),
        ("s", ("", "s", "", "")),
        ("batch", ("batch", "", "", "")),
        ("", ("", "", "", "")),
        ("tokens_per_s_per_site_mw", ("", "tokens/s", "_per_site_mw", "")),
        ("requests_per_s_per_decode_replica", ("", "requests/s", "_per_decode_replica", "")),
        ("prefill_chips_per_decode_chip", ("prefill_chips_per_decode_chip", "", "", "")),
        ("all_to_all_bytes_per_s_per_pair", ("all_to_all", "B/s", "_per_pair", "")),
        ("bytes_per_token_high", ("", "B/token", "", "_high")),
        ("flop_per_chip", ("", "FLOP", "_per_chip", "")),
        ("chips_per_rack", ("chips_per_rack", "", "", "")),
        ("usd_per_chip_h_low", ("", "USD/h", "_per_chip", "_low")),
        ("rate_bytes_per_s_per_dir_per_chip", ("rate", "B/s", "_per_dir_per_chip", "")),
        ("a\nb_s", ("a\nb", "s", "", "")),
    ],
)
def test_a_name_is_taken_apart(name, parts):
    assert tuple(split_name(name)) == parts
    assert title_of(name) is not None


def test_a_class_may_call_a_field_otherwise():
    assert quantity("tokens").title == "Tokens of the prompt"
    assert quantity("tokens", "Step").title == "Tokens per sequence"
    assert quantity("tensor_s", "MatmulTime", "KernelTime").title == "TensorE"
    assert quantity("tensor_s", "TrainStep").title == "Tensor-parallel exchanges"
    assert quantity("sbuf_partitions", "Core").description == quantity("sbuf_partitions").description != ""


def test_the_ends_of_a_band_are_called_as_its_middle():
    assert quantity("run_days_low") == quantity("run_days")._replace(name="run_days_low", title="Days of the run low")
    assert quantity("usd_per_h_high").base_unit == "USD/h"
    assert quantity("tokens_per_s_per_chip").base_unit == "tokens/s"
    assert isinstance(quantity("unheard_of_s"), Quantity)


def glossary(root):
    """Rows of the glossary: its cells, with the names in code as a list."""
    lines = (root / "book" / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    assert {len(row) for row in rows} == {5}
    return [(word, symbol, unit, re.findall(r"`([a-z]\w+)`", code)) for word, _, symbol, unit, code in rows]


def test_the_glossary_has_the_units_of_the_table(root):
    """The unit of each code name of the glossary's table is the one of the table of quantities."""
    units = [(name, unit.split(", ")) for _, _, unit, names in glossary(root) for name in names]
    known = [(name, cell, quantity(name).base_unit) for name, cell in units if quantity(name).unit]
    assert len(known) > 25
    assert [(name, cell, unit) for name, cell, unit in known if unit not in cell] == []


def test_the_glossary_has_the_symbols_of_the_table(root):
    """A row with names of the table has their symbols and no other; the rest has none but those listed."""
    own = {"alpha, beta": "alpha, beta", "TP, PP, DP, EP, CP": "TP, PP, DP, EP, CP"}
    for word, symbol, _, names in glossary(root):
        expected = ", ".join(dict.fromkeys(quantity(name).symbol for name in names if quantity(name).symbol))
        assert symbol == own.get(word, expected or "–"), word


def test_every_name_in_code_of_the_glossary_is_one(root):
    code = set(re.findall(r"\w+", "\n".join(sources(root).values())))
    assert [name for _, _, _, names in glossary(root) for name in names if name not in code] == []


def tables(root):
    """Tables of the committed notebooks, as the CSV behind each has them."""
    for path in root.glob("notebooks/*.ipynb"):
        for text in re.findall(r"data:text/csv;base64,([A-Za-z0-9+/=]+)", path.read_text(encoding="utf-8")):
            yield path.stem, pd.read_csv(io.BytesIO(base64.b64decode(text)))


def test_every_heading_of_a_table_has_the_unit_that_its_name_says(root):
    """The heading of a column is made by `charts.tables.scale`; the unit in it is that of `units.split_name`."""
    wrong, checked = set(), 0
    for chapter, frame in tables(root):
        for name in map(str, frame):  # a name with a unit in brackets is written by hand
            unit, heading = split_name(name).unit, scale(frame, name)[1]
            shown = re.sub(r"^(million|billion|trillion) ", "", heading.rpartition(" [")[2].rstrip("]"))
            bare = re.sub(r"^[EPTGMKkmuµnp]i?(?=[A-Z]|s$)", "", shown) if unit else shown
            checked += bool(unit)
            bare = "" if "[" not in heading or shown in ("million", "billion", "trillion") else bare
            if is_number(frame[name]) and "[" not in name and bare != unit:
                wrong.add((chapter, name, heading))
    assert checked > 300
    assert wrong == set()


def test_every_heading_with_a_unit_has_a_title_in_the_table(root):
    names = {re.sub(r"(_low|_high)$", "", name) for _, frame in tables(root) for name in frame}
    drawn = {"bar_s", "low_s", "high_s", "hbm_s", "sbuf_s", "DMA_s", "TensorE_s", "VectorE_s", "ScalarE_s"}
    assert sorted(name for name in names - drawn if split_name(name).unit and name not in quantities()) == []


OWN_SYMBOLS = {  # where a chapter's symbol is not the table's, for its equations need the letter for something else
    ("serving", "batch"): "n",
    ("serving", "step_s"): "t",
    ("serving", "tpot_mean_s"): "τ",
}


def rows_of_notation(root):
    """Chapter, symbols and names of each row of notation that the code of chapters and notebooks writes down."""
    for path in [*root.glob("book/trnbook/chapters/*.py"), *root.glob("notebooks/py/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            texts = [item.value for item in getattr(node, "elts", ()) if isinstance(item, ast.Constant)]
            if (
                isinstance(node, ast.Tuple)
                and len(node.elts) in (4, 5, 6)
                and len(texts) >= 3
                and all(isinstance(text, str) for text in texts[:2])
            ):
                yield path.stem, *texts[:2]
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "of_spec" and len(node.args) == 2:
                pairs = zip(getattr(node.args[1], "keys", ()), getattr(node.args[1], "values", ()), strict=True)
                yield from ((path.stem, b.value, a.value) for a, b in pairs if isinstance(a, ast.Constant))


def test_the_symbols_of_chapters_are_those_of_the_table(root):
    """A chapter that has a symbol of its own for a quantity of the table is listed, with the symbol."""
    own, known = {}, quantities()
    for chapter, symbols, names in rows_of_notation(root):
        pairs = list(zip(symbols.split(", "), names.split(", "), strict=False))
        own |= {(chapter, name): symbol for symbol, name in pairs if name in known and symbol != known[name].symbol}
    own = {key: symbol for key, symbol in own.items() if known[key[1]].symbol and symbol not in {"", *CUTS}}
    assert own == OWN_SYMBOLS


def test_the_loader_loads_no_pandas():
    code = "import sys, trnmodel.quantities as q; q.quantity('time_s'); assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cards_and_axes_agree():
    """The card of a result and the axis of a chart call a figure the same."""
    card = repr(tm.collective("all_reduce", 2.0**20, "trn2.48xlarge", chips=16))
    title = quantity("busbw_bytes_per_s").title
    assert f"{title[:1].lower()}{title[1:]}: " in card
