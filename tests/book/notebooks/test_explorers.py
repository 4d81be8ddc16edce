"""What an explorer carries: a grid of four digits, options by name, words where nothing can be drawn."""

import json
import re

import nbformat
import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.chapters.serving_explorer import frontier_grid
from trnbook.charts import language
from trnbook.charts.display import VEGALITE_MIME, mimebundle, script_json

MOST_BYTES = 300_000
REQUEST, SPEEDS = tm.Request(3584, 512), [10.0, 20.0, 40.0, 80.0]
ASK = {"models": ["llama-3.1-8b", "deepseek-v3"], "systems": ["trn1.32xlarge", "trn3-nl72x2-pcie160"]}
ASK |= {"software": ["public", "ideal"], "precisions": ["bf16", "fp8"], "tokens": REQUEST.longest_context}
PEAKS = {"peak_flop_per_s": 667e12, "hbm_bytes_per_s": 2.9e12, "estimate": False}
PEAKS |= {f"ridge_flop_per_byte{end}": 230.0 for end in ("", "_low", "_high")}


@pytest.fixture(scope="module")
def grid():
    def ask(model, system, software, precision):
        return tm.compare(model, REQUEST, system, speeds=SPEEDS, efficiencies=software, precision=precision)

    return frontier_grid(ask, tm.tco, **ASK)


def spec(grid, chosen=(), **more):
    chart = charts.frontier(grid, dict(chosen), caption="A claim", **more)
    return mimebundle(chart.to_dict())[VEGALITE_MIME]


def rows(chart):
    """The rows that travel as one list for each column."""
    columns = next(data[0] for data in chart["datasets"].values() if all(isinstance(x, list) for x in data[0].values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def param(chart, name):
    return next(one for one in chart["params"] if one["name"] == name)


def test_the_numbers_are_those_of_the_grid_to_four_digits(grid):
    found = rows(spec(grid))
    drawn = grid[grid.why == ""]
    assert len(found) == len(drawn)
    for row, point in zip(found, drawn.itertuples(), strict=True):
        assert row["chip"] == pytest.approx(point.tokens_per_s_per_chip, rel=5e-4)
        assert row["user"] == point.promised_tokens_per_s_per_user
        assert row["alone"] == pytest.approx(point.decode_tokens_per_s_per_chip, rel=5e-4)
        assert row["software"] == pytest.approx(1e3 * point.overhead_s, rel=5e-4)
        assert row["step"] == pytest.approx(1e3 * point.time_s, rel=5e-4)
        assert (row["tp"], row["n"]) == (point.tp, point.place)
        assert (
            row["joule"] is None
            if point.energy_basis == ""
            else row["joule"] == pytest.approx(point.server_j_per_token, rel=5e-4)
        )
        assert max(len(json.dumps(value)) for value in row.values()) <= 9


def test_a_combination_has_the_number_that_its_controls_give(grid):
    """The expression of Vega is one of Python too; each number stands for one line, or for one reason."""
    chart = spec(grid)
    names = ["model", "system", "stack_kind", "precision"]
    options = {name: list(dict.fromkeys(grid[name])) for name in names}
    drawn = {row["of"] for row in rows(chart)}
    (missing,) = [data for data in chart["datasets"].values() if "told" in data[0]]
    told = {of: row["told"].replace("\n", " ") for row in missing for of in row["of"]}
    for key, lines in grid.groupby(names):
        places = {name: options[name].index(value) for name, value in zip(names, key, strict=True)}
        of = eval(param(chart, "of")["expr"], {}, places)
        assert (of in drawn, of in told) == ((lines.why == "").any(), (lines.why != "").any())
        assert told.get(of, "").lower() == lines.why.iloc[0].lower()
    assert drawn.isdisjoint(told)


def test_controls_begin_with_what_is_chosen_and_have_human_names(grid):
    chart = spec(grid, {"system": "trn3-nl72x2-pcie160"})
    system = param(chart, "system")
    assert (system["value"], system["bind"]["labels"][1]) == (1, "Trainium3 NL72x2 Switched")
    assert param(chart, "precision")["bind"]["labels"] == ["BF16", "FP8"]
    with pytest.raises(ValueError, match=r"chosen\['model'\]='gpt': allowed are llama-3.1-8b, deepseek-v3"):
        spec(grid, {"model": "gpt"})


def test_the_chapters_grid_is_small(root):
    """The largest chart of the chapter is the explorer."""
    cells = nbformat.read(root / "notebooks" / "serving.ipynb", 4).cells
    outputs = [output.data for cell in cells for output in cell.get("outputs", ()) if "data" in output]
    sizes = [len(script_json(data[VEGALITE_MIME])) for data in outputs if VEGALITE_MIME in data]
    assert 50_000 < max(sizes) < MOST_BYTES


def test_what_has_no_watts_or_no_price_goes_dark_on_their_axes(grid):
    """The expressions of Vega are those of Python too, once its words are; Trainium1 has no watts, Trainium3 has."""
    chart = spec(grid)
    drawn = [(row["of"], row["joule"]) for row in rows(chart)]
    own = grid[grid.why == ""]
    dark = [{of for of, joule in drawn if joule is None}]
    dark.append({of for (of, _), usd in zip(drawn, own.useful_usd_per_h, strict=True) if np.isnan(usd)})
    assert all(dark)
    assert set().union(*dark) < {row["of"] for row in rows(chart)}
    (places,) = re.findall(r"indexof\((\[\[.*\]\])\[measure\], of\) >= 0", param(chart, "unlit")["expr"])
    assert [set(one) for one in json.loads(places)] == [set(), *dark]
    assert param(chart, "measure")["bind"]["labels"] == ["tokens/s a chip", "J a token", "USD a million tokens"]
    assert param(chart, "measure")["value"] == 0


def test_a_grid_without_points_or_without_gaps_is_drawn_too(grid):
    vl_convert = pytest.importorskip("vl_convert")
    for part in (grid[grid.why != ""], grid[grid.why == ""], grid[grid.place == 1]):
        assert vl_convert.vegalite_to_vega(spec(part), vl_version="5.8")


def test_hostile_names_stay_names(grid):
    name = "</script><img src=x onerror='1'>\"]"
    chart = spec(grid.assign(model=name))
    assert param(chart, "model")["bind"]["labels"] == [name]
    assert "</script>" not in script_json(chart)


@pytest.mark.parametrize(("marker", "start", "most"), [(300.0, 2.48, 3), (1e-6, 0, 3), (1e9, 9, 9)])
def test_the_slider_of_the_roofline_is_in_powers_of_ten(marker, start, most):
    """Up to four times the ridge, 230 FLOP/B, in one digit: 1,000; a larger start is the end. log10(300) is 2.477."""
    peaks = pd.DataFrame([PEAKS | {"chip": "Trainium2", "dtype": "bf16"}])
    chart = charts.roofline(peaks, {}, marker=marker, caption="A claim").to_dict()
    pick = param(chart, "pick")
    assert pick["value"] == [{"power": start}]
    assert [pick["bind"]["power"][name] for name in ("min", "max", "step")] == [0, most, 0.01]


def test_the_roofline_marks_its_phases_and_greys_other_chips():
    """Decode stands left of the ridge of the chosen chip and a long prompt right; the slider names powers."""
    peaks = pd.DataFrame([PEAKS | {"chip": name, "dtype": "bf16"} for name in ("Trainium2", "H100 SXM")])
    chart = charts.roofline(peaks, {}, marker=300.0, highlight=["Trainium2"], caption="A claim").to_dict()
    assert param(chart, "pick")["bind"]["power"]["name"].endswith("power of ten [FLOP/B] ")
    told = [layer["mark"].get("text", "") for layer in chart["layer"] if "mark" in layer]
    assert {"\N{LEFTWARDS ARROW} decode", "long prompt \N{RIGHTWARDS ARROW}"} <= set(told)
    own, other = chart["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert own != other == language.GREY


def test_a_chip_whose_bandwidth_is_not_published_has_no_roof():
    peaks = pd.DataFrame([PEAKS | {"chip": name, "dtype": "bf16"} for name in ("Trainium2", "Trainium4")])
    peaks.loc[1, ["hbm_bytes_per_s", "ridge_flop_per_byte"]] = float("nan")
    chart = charts.roofline(peaks, {}, marker=1.0, caption="A claim").to_dict()
    assert param(chart, "chip")["bind"]["labels"] == ["Trainium2"]
    assert "NaN" not in json.dumps(chart)


def test_draws_are_numbered_by_their_controls_and_say_what_is_missing():
    """Two systems at two speeds on one kind of software; one is too slow at the second speed."""
    who = [(system, speed) for system in ("trn2.48xlarge", "hgx-h200") for speed in (20.0, 50.0)]
    names = ["system", "wanted_tokens_per_s_per_user", "software", "share_of_draws", "server_j_per_token", "why"]
    frame = pd.DataFrame(
        [(*one, "public", share, 1.0 + share, "") for one in who[:-1] for share in (0.05, 0.5, 0.95)]
        + [(*who[-1], "public", float("nan"), float("nan"), "too slow for a user")],
        columns=names,
    )
    chart = mimebundle(charts.draws(frame, {"system": "hgx-h200"}, caption="A claim").to_dict())[VEGALITE_MIME]
    assert param(chart, "system")["value"] == 1
    assert param(chart, "wanted_tokens_per_s_per_user")["bind"]["labels"] == ["20", "50"]
    found = rows(chart)
    for i, (system, speed) in enumerate(who):
        places = {"system": ["trn2.48xlarge", "hgx-h200"].index(system), "software": 0}
        places["wanted_tokens_per_s_per_user"] = [20.0, 50.0].index(speed)
        of, beside = (eval(param(chart, name)["expr"], {}, places) for name in ("of", "beside"))
        mine = [row for row in found if row["of"] == of]
        assert (len(mine), {row["beside"] for row in mine}) == ((3, {beside}) if i < 3 else (0, set()))
    assert json.dumps("Too slow for a user") in json.dumps(chart)
