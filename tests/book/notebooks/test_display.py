"""What a chart and a table leave in a notebook."""

import base64
import json
import math
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from trnbook import charts
from trnbook.charts.display import VEGALITE_MIME, BookRenderer, mimebundle
from trnbook.charts.tables import rounded

VEGALITE = "5.8"  # of those that vl-convert carries, the nearest to JupyterLab's 5.6

FRAME = pd.DataFrame(
    {
        "chip": ["trainium2", "trainium3", "other"],
        "hbm_bytes_per_s": [1 / 3 * 1e13, 4e12, float("nan")],
        "hbm_bytes_per_s_low": [3e12, 4e12, float("nan")],
        "hbm_bytes_per_s_high": [4e12, 4e12, float("nan")],
        "time_s": [1e-3, 2e-3, 3e-3],
        "estimate": [True, False, False],
    }
)
PEAKS = pd.DataFrame(
    {
        "chip": ["Trainium2", "H100 SXM", "H100 SXM"],
        "dtype": ["bf16", "bf16", "fp8"],
        "peak_flop_per_s": [667e12, 989e12, 1979e12],
        "hbm_bytes_per_s": [2.9e12, 3.35e12, 3.35e12],
        "ridge_flop_per_byte": [230.0, 295.2, 590.7],
        "ridge_flop_per_byte_low": [230.0, 290.1, 590.7],
        "ridge_flop_per_byte_high": [230.0, 295.2, 590.7],
        "estimate": [False, False, True],
    }
)
CHOICES = {"model": "m", "system": "trn2.48xlarge", "stack_kind": "public", "precision": "bf16", "context": 4096.0}
STEPS = ["time_s", "compute_s", "memory_s", "network_s", "overhead_s"]
GRID = pd.DataFrame(
    {
        **CHOICES,
        "place": [1, 2, 3],
        "promised_tokens_per_s_per_user": [10.0, 20.12345, 40.0],
        "decode_tokens_per_s_per_chip": [60000.0, 300.0, 0.5],
        "chance": [1.0, 0.5, 0.25],
        "tokens_per_s_per_chip": [54321.0, 200.0, 1 / 3],
        "tokens_per_s_per_chip_low": [50000.0, 150.0, 0.25],
        "tokens_per_s_per_chip_high": [60000.0, 250.0, 0.5],
        "tp": 4.0,
        "ep": 1.0,
        "pp": 1.0,
        "cp": 1.0,
        "batch": [64.0, 8.0, 1.0],
        "chips": 1.0,
        **dict.fromkeys(STEPS, 0.0123456),
        "basis": ["measured", "interpolated", "extrapolated"],
        **{f"server_j_per_token{end}": [0.5, float("nan"), 2.0] for end in ("", "_low", "_high")},
        "energy_basis": ["extrapolated", "", "extrapolated"],
        **{f"useful_usd_per_h{end}": 1.23456 for end in ("", "_low", "_high")},
        "cost_basis": "extrapolated",
        "why": "",
    }
)
TIMES = pd.DataFrame(
    {
        "chip": ["trainium2", "trainium3"],
        "batch": [1.0, 2.0],
        "context": [512.0, 1024.0],
        "bound": ["memory", "network"],
        "measured_s": [1e-3, 2.5],
        "predicted_s": [1.5e-3, 2.0],
        "predicted_s_low": [1.2e-3, 1.5],
        "predicted_s_high": [1.8e-3, 2.2],
    }
)
ROLLED = pd.DataFrame(
    {"system": "trn2.48xlarge", "wanted_tokens_per_s_per_user": 20.0, "software": "public", "why": ""}
    | {"share_of_draws": [0.05, 0.5, 0.95], "server_j_per_token": [0.5, 1.23456, 2.0]}
)
BUILDERS = {
    "lines": lambda: charts.lines(FRAME, "time_s", "hbm_bytes_per_s", "chip", caption="A claim"),
    "bars": lambda: charts.bars(FRAME, "chip", "hbm_bytes_per_s", "chip", caption="A claim"),
    "ranges": lambda: charts.ranges(FRAME, "hbm_bytes_per_s", "chip", caption="A claim"),
    "scatter": lambda: charts.scatter(TIMES, "measured_s", "predicted_s", "chip", label="chip", caption="A claim"),
    "regions": lambda: charts.regions(TIMES, "batch", "context", "bound", panel="chip", caption="A claim"),
    "stacks": lambda: charts.stacks(TIMES, "chip", "predicted_s", "bound", limit="measured_s", caption="A claim"),
    "roofline": lambda: charts.roofline(PEAKS, {}, marker=10.0, caption="A claim"),
    "frontier": lambda: charts.frontier(GRID, {}, caption="A claim"),
    "draws": lambda: charts.draws(ROLLED, {}, caption="A claim"),
}
HOSTILE = "</script><!--<script>alert(1)</script><img src=x onerror='alert(\"1\")'>\u2028\x1b[31m & more"


def floats(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from floats(item)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize("name", BUILDERS)
def test_bundle(name):
    spec = BUILDERS[name]().to_dict()
    bundle = mimebundle(spec)
    assert bundle == mimebundle(spec)
    assert bundle["text/plain"] == "Chart: A claim"
    chart = bundle[VEGALITE_MIME]
    assert chart["$schema"].endswith("/v5.json")
    assert chart["title"]["text"] == ["A claim"]
    assert all(value == float(f"{value:.6g}") and not value.is_integer() for value in floats(chart))
    assert set(bundle) == {VEGALITE_MIME, "text/plain"}


EMPTY = pd.DataFrame(
    {name: pd.Series(dtype=kind) for name, kind in zip("xyabc", (float, float, str, str, str), strict=True)}
)
BARE = {
    "lines": lambda: charts.lines(EMPTY, "x", "y", "a", shape="b", choose="c", caption="A"),
    "lines, log": lambda: charts.lines(EMPTY, "x", "y", "a", log_x=True, log_y=True, caption="A"),
    "bars": lambda: charts.bars(EMPTY, "a", "y", "b", caption="A"),
    "ranges": lambda: charts.ranges(EMPTY, "y", "a", "b", caption="A"),
    "scatter": lambda: charts.scatter(EMPTY, "x", "y", "a", label="b", caption="A"),
    "regions": lambda: charts.regions(EMPTY, "x", "y", "a", panel="b", caption="A"),
    "stacks": lambda: charts.stacks(EMPTY, "a", "y", "b", caption="A"),
    "spans": lambda: charts.spans(EMPTY, "x", "y", "a", "b", caption="A"),
    "waterfall": lambda: charts.waterfall(EMPTY, "x", "y", "a", "b", label="c", caption="A"),
}


@pytest.mark.parametrize("name", BARE)
def test_nothing_is_drawn_of_nothing(name):
    vl_convert = pytest.importorskip("vl_convert")
    assert vl_convert.vegalite_to_vega(mimebundle(BARE[name]().to_dict())[VEGALITE_MIME], vl_version=VEGALITE)


def test_shapes_in_a_legend_are_seen_on_a_dark_page():
    """Where no colour tells values apart, Vega draws their symbols black."""
    legend = charts.lines(FRAME, "time_s", "hbm_bytes_per_s", "chip", caption="A").to_dict()["config"]["legend"]
    assert legend["symbolBaseFillColor"] == legend["symbolBaseStrokeColor"] == "#888888"


@pytest.mark.parametrize(("spec", "role"), [({"mark": "bar"}, "img"), ({"params": [{"name": "near"}]}, "figure")])
def test_a_chart_with_something_to_choose_is_no_image(spec, role):
    data = SimpleNamespace(mime_type=VEGALITE_MIME, content=spec | {"description": "A claim"})
    (node,) = BookRenderer.handle_mime(None, data, inline=False)
    assert f'role="{role}" aria-label="A claim"' in node.astext()


@pytest.mark.parametrize("name", BUILDERS)
def test_vega_lite_5_compiles_it(name):
    vl_convert = pytest.importorskip("vl_convert")
    assert vl_convert.vegalite_to_vega(mimebundle(BUILDERS[name]().to_dict())[VEGALITE_MIME], vl_version=VEGALITE)


@pytest.mark.parametrize("name", BUILDERS)
def test_last_bits_are_not_in_a_chart(name, monkeypatch):
    """Every float moved by a few units in its last place: the same specification, names of the data included."""
    first = mimebundle(BUILDERS[name]().to_dict())
    for table in ("FRAME", "GRID", "PEAKS", "TIMES"):
        frame = globals()[table]
        moved = {column: frame[column] * (1 + 3e-16) for column in frame if frame[column].dtype.kind == "f"}
        monkeypatch.setitem(globals(), table, frame.assign(**moved))
    assert json.dumps(mimebundle(BUILDERS[name]().to_dict())) == json.dumps(first)


def test_six_digits_and_whole_numbers():
    """2^40 and 1,026,408,232,448 stay; 1/3 is 0.333333; a sum that should be 8 is 8; beyond 1e13 six digits hold."""
    cases = {2.0**40: 2.0**40, 1026408232448.0: 1026408232448.0, 1 / 3: 0.333333, 8 - 8.9e-16: 8.0, -0.0: 0.0}
    cases |= {1.23456789e15: 1.23457e15, 123456.5: 123456.0, 1e-300: 1e-300, math.inf: math.inf}
    assert {value: rounded(value) for value in cases} == cases
    assert math.isnan(rounded(math.nan))


def test_axes_print_units_and_estimates_are_told():
    spec = json.dumps(BUILDERS["bars"]().to_dict())
    assert "HBM bandwidth [TB/s]" in spec
    assert "our estimate" in spec
    assert "our estimate" not in json.dumps(BUILDERS["stacks"]().to_dict())


def test_a_scatter_has_one_unit_on_both_axes():
    spec = json.dumps(BUILDERS["scatter"]().to_dict())
    assert "Measured time [s]" in spec
    assert "Predicted time [s]" in spec


def test_a_generation_keeps_its_colour():
    scale = BUILDERS["lines"]().to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True))["Trainium3"] == charts.GENERATIONS["trainium3"]


def test_table_prints_units_and_carries_its_data():
    html = charts.table(FRAME, caption="Memory <b>", download="memory")._repr_html_()
    assert html == charts.table(FRAME, caption="Memory <b>", download="memory")._repr_html_()
    assert "<caption>Memory &lt;b&gt;</caption>" in html
    assert "HBM bandwidth low" not in html
    assert ">3.3 (3 to 4)<" in html
    assert ">4<" in html
    assert download(html).splitlines()[1] == "trainium2,3333330000000.0,3000000000000.0,4000000000000.0,0.001,True"


def download(html):
    return base64.b64decode(html.partition("base64,")[2].partition('"')[0]).decode()


def test_a_download_has_six_digits_and_whole_numbers():
    frame = pd.DataFrame({"bytes": [2.0**31, 59.52279764077258], "n": [2**40, 1], "mixed": ["text", 1 / 3]})
    html = charts.table(frame, caption="Sizes", download="sizes")._repr_html_()
    assert download(html) == "bytes,n,mixed\n2147483648.0,1099511627776,text\n59.5228,1,0.333333\n"


def test_last_bits_are_not_in_a_table():
    """0.123450 is between two cells of 4 digits, 999.5 between two prefixes: a last bit must not choose."""
    values = np.array([0.12345, 999.5, 1000.0, 1 / 3, 2.0**31])
    frames = [pd.DataFrame({"time_s": values * (1 + bit), "n": values[::-1] + bit}) for bit in (-3e-16, 0.0, 3e-16)]
    tables = [charts.table(frame, caption="", download="t") for frame in frames]
    assert len({table._repr_html_() for table in tables}) == len({repr(table) for table in tables}) == 1


class Tags(HTMLParser):
    """Tags, links and attributes of a page, and the data of its scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.found = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found.append((tag, dict(attributes)))


def test_names_are_text_in_a_table():
    frame = pd.DataFrame({"name": [HOSTILE, "https://x/<script>", 'https://x" onclick="alert(1)']})
    html = charts.table(frame.rename(columns={"name": HOSTILE}), caption=HOSTILE, download=f"../{HOSTILE}")
    tags = Tags(html._repr_html_())
    assert set(tags.tags) == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "a"}
    ((_, link),) = [found for found in tags.found if found[0] == "a"]
    assert link["download"] == "script----script-alert-1-script-img-src-x-onerror-alert-1-31m-more.csv"
    assert "\x1b" not in repr(html)


def test_only_an_address_is_a_link():
    texts = ["https://example.org/a?b=1&c=2", "http://example.org", "javascript:alert(1)", "https://a b"]
    html = charts.table(pd.DataFrame({"source": texts}), caption="", download="t")._repr_html_()
    links = [attributes["href"] for tag, attributes in Tags(html).found if tag == "a"]
    assert links[:-1] == ["https://example.org/a?b=1&c=2"]
    assert links[-1].startswith("data:text/csv;base64,")


def test_names_are_text_in_a_chart():
    chart = charts.bars(FRAME.assign(chip=HOSTILE), "chip", "hbm_bytes_per_s", "chip", caption=HOSTILE)
    bundle = mimebundle(chart.to_dict())
    assert "\x1b" not in bundle["text/plain"]
    data = SimpleNamespace(mime_type=VEGALITE_MIME, content=bundle[VEGALITE_MIME])
    (node,) = BookRenderer.handle_mime(None, data, inline=False)
    html = node.astext()
    assert [tag for tag, _ in Tags(html).found] == ["div", "script"]
    script = html.partition('"application/json">')[2].partition("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(script)
    assert json.loads(script) == bundle[VEGALITE_MIME]
