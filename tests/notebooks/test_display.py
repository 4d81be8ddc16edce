"""What a chart and a table leave in a notebook."""

import base64
import io
import json

import pandas as pd
import pytest
from PIL import Image

from trnmodel import charts
from trnmodel.charts.display import VEGALITE_MIME, mimebundle

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
GRID = pd.DataFrame(
    {"chip": "trainium3", "dtype": "bf16", "intensity_flop_per_byte": [1.0, 10.0, 100.0], "attainable_flop_per_s": 1e12}
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
BUILDERS = {
    "lines": lambda: charts.lines(FRAME, "time_s", "hbm_bytes_per_s", "chip", caption="A claim"),
    "bars": lambda: charts.bars(FRAME, "chip", "hbm_bytes_per_s", "chip", caption="A claim"),
    "ranges": lambda: charts.ranges(FRAME, "hbm_bytes_per_s", "chip", caption="A claim"),
    "scatter": lambda: charts.scatter(TIMES, "measured_s", "predicted_s", "chip", label="chip", caption="A claim"),
    "regions": lambda: charts.regions(TIMES, "batch", "context", "bound", panel="chip", caption="A claim"),
    "roofline": lambda: charts.roofline(GRID, GRID.head(1), marker=10.0, caption="A claim"),
}


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
    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))
    assert picture.format == "PNG"
    assert len(picture.getcolors()) > 2


def test_axes_print_units_and_estimates_are_told():
    spec = json.dumps(BUILDERS["bars"]().to_dict())
    assert "HBM [TB/s]" in spec
    assert "our estimate" in spec
    assert "our estimate" not in json.dumps(BUILDERS["roofline"]().to_dict())


def test_a_scatter_has_one_unit_on_both_axes():
    spec = json.dumps(BUILDERS["scatter"]().to_dict())
    assert "Measured [s]" in spec
    assert "Predicted [s]" in spec


def test_a_generation_keeps_its_colour():
    scale = BUILDERS["lines"]().to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True))["trainium3"] == charts.GENERATIONS["trainium3"]


def test_table_prints_units_and_carries_its_data():
    html = charts.table(FRAME, caption="Memory <b>", download="memory")._repr_html_()
    assert html == charts.table(FRAME, caption="Memory <b>", download="memory")._repr_html_()
    assert "<caption>Memory &lt;b&gt;</caption>" in html
    assert "HBM low [TB/s]" in html
    assert ">3.333<" in html
    csv = base64.b64decode(html.partition("base64,")[2].partition('"')[0])
    pd.testing.assert_frame_equal(pd.read_csv(io.BytesIO(csv)), FRAME)
