"""Colour is a machine, dash topology, grey not highlighted, hollow extrapolated; claims are short, digits few."""

import base64
import json
import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.charts import language
from trnbook.charts.display import VEGALITE_MIME
from trnbook.charts.plot import MOST_LETTERS, ROOM, end_labels, marked
from trnbook.report.readability import LEAST_APART, apart
from trnmodel.catalog import load, systems
from trnmodel.units import format_digits, format_quantity, format_within

KINDS = (("chip", tm.chip, load.chips), ("system", tm.system, systems.systems))
DASHED = {"software"}  # a chapter in which a dash is a kind of software
SYSTEMS = ["trn3-nl72x2-pcie160", "trn3-nl32x2-torus", "hgx-h200", "mi300x-8"]


def curves(systems=SYSTEMS, **columns):
    """A line a system, of ten points, each twice the last."""
    x = 2.0 ** np.arange(10)
    rows = [pd.DataFrame({"batch": x, "time_s": x * (n + 1), "system": name}) for n, name in enumerate(systems)]
    return pd.concat(rows, ignore_index=True).assign(**columns)


def layers(frame=None, **options):
    ask = {"x": "batch", "y": "time_s", "color": "system", "log_x": True, "log_y": True, "caption": "A claim"}
    return charts.lines(curves() if frame is None else frame, **(ask | options)).to_dict()


def layer(chart, kind):
    return [one for one in chart["layer"] if one["mark"]["type"] == kind]


def scale(chart, kind, channel):
    found = layer(chart, kind)[0]["encoding"][channel]["scale"]
    return dict(zip(found["domain"], found["range"], strict=True))


def test_a_machine_has_the_colour_of_its_chip_and_rivals_of_one_generation_differ():
    colours = scale(layers(), "line", "color")
    assert colours["Trainium3 NL72x2 Switched"] == language.GENERATIONS["trainium3"]
    assert colours["8 x H200 SXM"] == language.OWN["h200"]
    assert len(set(colours.values())) == len(SYSTEMS)
    assert language.colours(["trainium1", "Trainium2"]) == ["#56B4E9", "#0072B2"]


def test_a_system_that_the_book_compares_has_one_colour_whatever_stands_beside_it():
    alone = language.colours(["trn2-ultraserver"])[0]
    assert alone == language.colours(["hgx-h100", "x", "trn2.48xlarge", "trn2-ultraserver"])[-1]


def test_a_dark_page_makes_colours_as_light_as_the_script_does(root):
    script = (root / "book" / "_static" / "charts.js").read_text()
    assert float(re.search(r"const LIGHT = ([\d.]+);", script)[1]) == language.LIGHT


@pytest.mark.parametrize("theme", [str, language.on_dark])
def test_any_two_colours_are_told_apart(theme):
    known = dict.fromkeys([*language.OWN.values(), *language.PALETTE, language.GREY])
    assert min(apart(theme(one), theme(other)) for one, other in combinations(known, 2)) >= LEAST_APART


@pytest.mark.parametrize("chip", ["trainium1", "trainium2", "trainium3", "h100"])
def test_systems_of_one_chip_are_told_apart(chip):
    found = language.colours([name for name in systems.systems() if tm.system(name).chip.id == chip][:12])
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["hgx-h200", "8 x H200 SXM"])
def test_what_is_not_highlighted_is_grey(name):
    colours = scale(layers(highlight=[name]), "line", "color")
    assert colours.pop("8 x H200 SXM") == language.OWN["h200"]
    assert set(colours.values()) == {language.GREY}


def test_a_bar_of_an_axis_without_colours_is_highlighted():
    frame = pd.DataFrame({"part": ["lanes", "chips"], "lost_share": [0.2, 0.1]})
    chart = charts.bars(frame, x="part", y="lost_share", highlight=["lanes"], caption="A claim").to_dict()
    assert scale(chart, "bar", "color") == {"lanes": language.PALETTE[0], "chips": language.GREY}
    assert layer(charts.bars(frame, x="part", y="lost_share", caption="A claim").to_dict(), "bar")


@pytest.mark.parametrize("highlight", ["hgx-h200", 3, [None]])
def test_what_cannot_be_highlighted_is_refused(highlight):
    with pytest.raises((ValueError, TypeError), match=r"highlight|int"):
        layers(highlight=highlight)


def test_other_readings_and_scopes_have_words():
    from trnmodel.fabric.what_if import alternatives

    known = {name for it in systems.systems() if it.startswith("trn3") for name in alternatives(it)}
    assert set(language.READINGS) <= known
    assert all(len(name) <= MOST_LETTERS for name in language.READINGS.values())
    assert language.machine(language.READINGS["trn3-torus-144"])[:2] == ("trainium3", "torus")
    assert language.called("world") == "whole domain"
    assert language.named("a new world") == "a new world"


def test_only_what_is_extrapolated_is_called_hollow_where_both_stand():
    frame = pd.concat([curves(["a"], basis="interpolated"), curves(["b"], basis="extrapolated")]).assign(stack="s")
    said = " ".join(layers(frame)["title"]["subtitle"])
    assert "hollow: extrapolated: s on b; interpolated: s on a" in said
    assert said.count("hollow") == 1


@pytest.mark.parametrize(("kind", "x", "y"), [("bars", "system", "time_s"), ("ranges", "time_s", "system")])
def test_marks_stand_side_by_side_only_where_a_category_has_several(kind, x, y):
    frame = curves().query("batch == 1").assign(mark=["reached", "missed", "reached", "missed"])
    both = pd.concat([frame, frame.assign(mark="again")])
    for rows, beside in ((frame, False), (both, True)):
        chart = getattr(charts, kind)(rows, x, y, "mark", caption="A").to_dict()
        assert any("yOffset" in one["encoding"] for one in chart["layer"]) == beside


def test_an_axis_of_powers_has_room_for_its_first_and_last_mark():
    frame = curves().query("batch == 1").assign(time_s_low=0.5, time_s_high=9.0)
    chart = charts.ranges(frame, "time_s", "system", log_x=True, caption="A").to_dict()
    assert [one["encoding"]["x"]["scale"]["padding"] for one in chart["layer"]] == [ROOM] * 3


def test_many_lines_that_coincide_are_counted():
    pairs = [curves([f"{n} a", f"{n} b"]).assign(time_s=lambda t, n=n: t.batch * 10.0**n) for n in range(9)]
    said = " ".join(layers(pd.concat(pairs))["title"]["subtitle"])
    assert "drawn over each other: 0 a = 0 b; 1 a = 1 b; and 7 more" in said


def test_what_is_no_machine_never_has_the_colour_of_one():
    assert not set(language.PALETTE) & set(language.GENERATIONS.values())
    assert language.machine("bf16") == language.machine("weights") == ("", "", "")


def test_dash_is_topology_and_a_note_says_so():
    chart = layers()
    assert scale(chart, "line", "strokeDash") == {
        "Trainium3 NL72x2 Switched": [1, 0],
        "Trainium3 NL32x2 3D Torus": [7, 4],
        "8 x H200 SXM": [1, 0],
        "8 x MI300X": [2, 3],
    }
    assert chart["title"]["subtitle"] == ["dashed: a torus; dotted: a full mesh"]
    assert "strokeDash" not in layer(layers(curves(["bf16", "fp8"])), "line")[0]["encoding"]


@pytest.mark.parametrize("word", ["measured", "interpolated", "extrapolated"])
def test_only_what_is_extrapolated_is_hollow(word):
    chart = layers(curves(basis=word))
    points = [one for one in layer(chart, "point") if one["mark"].get("opacity") != 0]
    assert len(points) == (word == "extrapolated")
    if points:
        assert points[0]["encoding"]["fillOpacity"]["condition"] == {
            "test": "datum.basis == 'extrapolated'",
            "value": 0,
        }
        assert "hollow: extrapolated" in " ".join(chart["title"]["subtitle"])


def test_a_band_is_drawn_from_low_to_high_and_faint_among_many():
    frame = curves()
    (area,) = layer(layers(frame.assign(time_s_low=frame.time_s / 2, time_s_high=frame.time_s * 2)), "area")
    assert (area["encoding"]["y"]["field"], area["encoding"]["y2"]["field"]) == ("time_s_low", "time_s_high")
    assert area["mark"]["fillOpacity"] == language.FAINT_BAND
    few = curves(SYSTEMS[:1], time_s_low=1.0, time_s_high=2.0)
    assert layer(layers(few), "area")[0]["mark"]["fillOpacity"] == language.BAND_OPACITY


@pytest.mark.parametrize("kind", ["bars", "ranges", "stacks"])
def test_bars_and_ranges_are_hollow_too(kind):
    frame = curves(basis="extrapolated").query("batch == 1")
    ask = {"x": "system", "y": "time_s"} if kind != "ranges" else {"x": "time_s", "y": "system"}
    more = {"color": "basis"} if kind == "stacks" else {}
    assert "datum.basis == 'extrapolated'" in json.dumps(
        getattr(charts, kind)(frame, **ask, **more, caption="A").to_dict()
    )


def test_a_few_lines_carry_their_names_many_a_legend():
    few, many = layers(), layers(curves([f"series {n}" for n in range(9)]))
    assert len(layer(few, "text")) == 1
    assert layer(few, "line")[0]["encoding"]["color"]["legend"] is None
    assert not layer(many, "text")
    assert "legend" not in layer(many, "line")[0]["encoding"]["color"]
    assert "legend" not in layer(layers(curves(["x" * 30, "y"])), "line")[0]["encoding"]["color"]


def test_lines_that_coincide_say_so_and_no_two_labels_overlap():
    frame = pd.concat([curves(["a", "b"]), curves(["c"])])
    found = end_labels(frame, "batch", "time_s", ["system"], (True, True))
    assert found.label.tolist() == ["a =\nc", "b"]
    ends = end_labels(curves([f"line {n}" for n in range(8)]), "batch", "time_s", ["system"], (False, False)).time_s
    assert np.diff(np.sort(ends)).min() >= 16 / 320 * 512 * 8 - 1e-6  # 16 of 320 pixels of an axis to 4,096


def test_points_on_a_line_are_few_and_hold_both_ends():
    found = marked(curves(["a"]), "batch", "time_s", ["system"])
    assert len(found) == 8
    assert {1.0, 512.0} <= set(found.batch)


def test_buttons_choose_what_is_drawn():
    frame = pd.concat([curves(software="public"), curves(software="ideal")])
    chart = layers(frame, choose="software")
    (param,) = [one for one in chart["params"] if one["name"] == "chosen"]
    assert (param["value"], param["bind"]["options"]) == ("public", ["public", "ideal"])
    assert all(one["transform"] == [{"filter": "datum['software'] == chosen"}] for one in chart["layer"])


def test_conditions_stand_below_the_claim():
    chart = layers(under="on ideal software")
    assert chart["title"]["text"] == ["A claim"]
    assert chart["title"]["subtitle"][0] == chart["usermeta"]["under"][0] == "on ideal software"
    assert chart["description"] == "A claim. on ideal software"


def test_digits_follow_the_error():
    """The band of 1,285 is -45 % to +52 %: two digits; 1.2 % either way: three; a count has none."""
    assert format_within(1285, 707, 1952, "tokens/s", "extrapolated") == "1,300 tokens/s (710 to 2,000; extrapolated)"
    assert format_within(1285, 1270, 1300, "tokens/s") == "1,280 tokens/s (1,270 to 1,300)"
    assert format_within(0.00063, 0.00031, 0.0011, "s", "measured") == "630 µs (310 to 1,100; measured)"
    assert format_within(1234567, 1234567, 1234567, "chips") == "1,234,567 chips"
    assert format_within(float("nan"), 1, 2, "s") == "not published"
    assert format_within(9.4e9, 9.4e9, 9.4e9, "B/s", "ideal") == "9.4 GB/s (ideal)"
    assert (format_digits(0.0123456, 2), format_digits(-1285, 2)) == ("0.012", "-1,300")


def test_no_quantity_is_printed_with_a_power_of_ten():
    assert format_quantity(940 * 2**10, "B", 2) == "940 KiB"
    assert format_quantity(8.9e-4, "s", 2) == "890 µs"
    assert format_quantity(5e-5, "tokens/s", 2) == "0.00005 tokens/s"


NAMES = {kind: [get(name).name for name in every()] for kind, get, every in KINDS}


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_unique_and_short_enough_for_the_end_of_a_line(kind):
    assert len(set(NAMES[kind])) == len(NAMES[kind])
    assert [name for name in NAMES[kind] if len(name) > MOST_LETTERS] == []


def test_a_name_finds_its_system():
    assert all(tm.system(tm.system(name).name).id == name for name in systems.systems())


IDS = ["trn3-nl72x2-pcie160", "trn3-nl32x2-torus", "hgx-h200", "trainium1"]
SHOWN = ["Trainium3 NL72x2 Switched", "Trainium3 NL32x2 3D Torus", "8 x H200 SXM", "Trainium1"]


@pytest.mark.parametrize("builder", ["lines", "bars", "stacks", "ranges", "scatter", "regions"])
def test_every_chart_calls_systems_by_their_names(builder):
    frame = pd.DataFrame({"system": IDS, "n": [1.0, 2.0, 3.0, 4.0], "time_s": [4.0, 3.0, 2.0, 1.0], "of": "b"})
    ask = {
        "lines": {"x": "n", "y": "time_s", "color": "system"},
        "bars": {"x": "system", "y": "time_s"},
        "stacks": {"x": "system", "y": "time_s", "color": "of"},
        "ranges": {"x": "time_s", "y": "system"},
        "scatter": {"x": "n", "y": "n", "label": "system"},
        "regions": {"x": "n", "y": "n", "color": "system"},
    }[builder]
    caption, under = f"Faster on {IDS[0]}", f"beside {IDS[2]}, as `{IDS[1]}`"
    chart = getattr(charts, builder)(frame.assign(basis="extrapolated"), **ask, caption=caption, under=under).to_dict()
    text = json.dumps(chart)
    assert all(name in text for name in SHOWN)
    assert [name for name in IDS if name in text.replace(f"`{IDS[1]}`", "")] == []


def test_a_table_shows_names_and_its_file_keeps_ids():
    frame = pd.DataFrame({"system": IDS, "prefill_system": IDS[::-1], "id": IDS, "command": [f"run {IDS[0]}"] * 4})
    frame["why"] = [f"not for {IDS[0]}", "", f"https://a.b/?c={IDS[0]}", "x"]
    table = charts.table(frame, caption=f"All of {IDS[1]}", download="t")
    html = table._repr_html_()
    assert html.count(f">{SHOWN[0]}<") == 2
    assert html.count(f">{IDS[0]}<") == 1
    assert f"not for {SHOWN[0]}<" in html
    assert f"https://a.b/?c={IDS[0]}" in html
    assert f"All of {SHOWN[1]}" in html
    csv = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert csv.count("Trainium3") == 0
    assert csv.count(IDS[0]) == 3 + 4 + 2


def test_headings_are_names_and_a_mark_that_nothing_has_is_no_column():
    frame = pd.DataFrame({"failure": ["one lane"], IDS[0]: [0.5], "estimate": [False], "announced": [True]})
    html = charts.table(frame, caption="Left", download="left")._repr_html_()
    assert f">{SHOWN[0]}<" in html
    assert IDS[0] not in html
    assert ">Announced<" in html
    assert ">Estimate<" not in html
    csv = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert csv.startswith(f"failure,{IDS[0]},estimate,announced")


def claims(root):
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            for output in cell.get("outputs", ()):
                if VEGALITE_MIME in output.get("data", {}):
                    yield path.stem, output["data"][VEGALITE_MIME]


def test_no_chart_of_a_chapter_shows_an_id(root):
    """Colours, legends, tooltips and titles of every committed chart name systems and chips as a person does."""
    shown = [(slug, json.dumps(chart)) for slug, chart in claims(root)]
    assert len(shown) > 50
    assert [slug for slug, text in shown if language.named(text) != text] == []


def test_a_title_is_a_claim_of_at_most_ten_words_and_axes_are_worded(root):
    found = list(claims(root))
    assert len(found) > 50
    long = {
        " ".join(chart["title"]["text"]) for _, chart in found if len(" ".join(chart["title"]["text"]).split()) > 10
    }
    assert not long
    text = json.dumps([chart for _, chart in found])
    assert not [name for name in ("Busbw", '"What"', "Wanted", "e+0") if f'"title": "{name}' in text]


def test_dash_means_topology_or_tells_grey_chips_apart(root):
    """A chip by itself has no topology."""
    for slug, chart in claims(root):
        for one in chart.get("layer", [chart]) if slug not in DASHED else ():
            dash = one.get("encoding", {}).get("strokeDash", {})
            if "field" in dash:
                machines = [language.machine(name) for name in dash["scale"]["domain"]]
                chips = all(one.chip and not one.fabric for one in machines)
                assert chips or any(one.fabric for one in machines), (slug, dash["field"])
