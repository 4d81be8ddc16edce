"""The explorers in a page from a folder: choose, point, read the number, and find it again in the package."""

import math
import re

import pytest

import trnmodel as tm
from trnbook.report import parameters
from trnmodel.catalog import load
from trnmodel.catalog.stacks import KINDS
from trnmodel.catalog.systems import systems
from trnmodel.units import HOUR, MILLION

MOST_BYTES = 300_000
PHONE = {"width": 390, "height": 844}
TOLD = "nodes => nodes.map(node => node.getAttribute('aria-label'))"
LABELS = {name: tm.system(name).name for name in systems()}
CASES = [
    ("llama-3.1-8b", "trn1.32xlarge", "public", "BF16"),
    ("deepseek-v3", "trn3-nl72x2-pcie160", "hand-tuned", "MXFP8"),
    ("deepseek-v3", "trn2.48xlarge", "ideal", "FP8"),
]


def explorer(open_page, site, slug, control, size=None):
    """A page and its explorer: the chart with that control."""
    page = open_page()
    if size:
        page.set_viewport_size(size)
    page.goto(f"{site.as_uri()}/chapters/{slug}.html")
    chart = page.locator(f".trn-chart:has(select[name={control}])")
    chart.locator("svg.marks").wait_for()
    chart.scroll_into_view_if_needed()
    return page, chart


@pytest.fixture
def frontier(open_page, site):
    return explorer(open_page, site, "serving", "stack_kind")


@pytest.fixture
def roofline(open_page, site):
    return explorer(open_page, site, "chip-roofline", "chip")


def choose(chart, **options):
    for name, label in options.items():
        chart.locator(f"select[name={name}]").select_option(label=LABELS.get(label, label))


def told(chart, word):
    """What a screen reader reads of the lines that hold a word; waits until there are some."""
    lines = chart.locator(f"svg.marks [aria-roledescription='text mark'][aria-label*='{word}']")
    lines.first.wait_for()
    return lines.evaluate_all(TOLD)


def number(text):
    return float(text.replace(",", ""))


def shows(text, value, digits=2):
    """Whether a printed number is a value at so many digits, of a grid with four."""
    unit = 10 ** (math.floor(math.log10(value)) - digits + 1)
    return abs(number(text) - value) <= 0.5 * unit + 1e-3 * value


def point(chart):
    """The numbers of the point chosen, by name."""
    (head,) = (text for text in told(chart, "a chip") if "\n" not in text and text[0].isdigit())
    (rest,) = told(chart, "promised to a user")
    band, joules, dollars, user, chance, mapping, alone, step = rest.split("\n")
    pattern = r"TP ([\d,]+)(?: x EP ([\d,]+))?(?: x PP ([\d,]+))?(?: x CP ([\d,]+))?, batch ([\d,]+) on ([\d,]+) chips?"
    tp, ep, pp, cp, batch, chips = (number(one or "1") for one in re.fullmatch(pattern, mapping).groups())
    parts = chart.locator("svg.marks [aria-roledescription='text mark'][aria-label$=' ms']").evaluate_all(TOLD)
    low, high, basis = re.fullmatch(r"(?:([\d.,]+) to ([\d.,]+), )?(\w+)", band).groups()
    parts = [text.split()[-2] for text in parts]
    read = {
        "chip": head.split()[0],
        "joules": joules,
        "dollars": dollars,
        "low": low,
        "high": high,
        "basis": basis,
        "user": user.split()[0],
        "chance": chance.split()[3],
        "alone": alone.split()[2],
        "step": step.split()[2],
    }
    return read | {"tp": tp, "ep": ep, "pp": pp, "cp": cp, "batch": batch, "chips": chips, "parts": parts}


def plan_of(read, model, system, kind, precision):
    """The plan's own answer at the promise that was read."""
    asked = {name: one.default for name, one in parameters("serving").items()}
    request = tm.Request(asked["input_tokens"], asked["output_tokens"], tokens_per_s_per_user=number(read["user"]))
    return tm.plan(model, request, system, precision=precision.lower(), efficiencies=KINDS[kind]).best


def assert_is_a_plan(read, *case):
    """A point that was read is the answer of the plan."""
    best, system = plan_of(read, *case), case[1]
    digits = 2 if read["low"] else 3
    assert [read[name] for name in ("tp", "ep", "pp", "cp", "batch", "chips")] == [
        float(getattr(best, name)) for name in ("tp", "ep", "pp", "cp", "batch", "chips")
    ]
    assert read["basis"] == str(best.basis)
    assert shows(read["chip"], best.tokens_per_s_per_chip, digits)
    assert shows(read["alone"], best.decode_tokens_per_s_per_chip, 2)
    assert number(read["chance"]) == pytest.approx(100 * best.chance, rel=5e-3)
    e = best.energy()
    if e.valid:
        figure, unit = read["joules"].split(" ", 1)
        assert unit == "J a token at the server"
        assert shows(figure, float(e.server_j_per_token))
    else:
        assert read["joules"] == "No source has watts of this chip"
    cost = tm.tco(system)
    if cost.valid:
        figure, unit = read["dollars"].split(" ", 1)
        assert unit == "USD a million tokens (owner)"
        assert shows(figure, float(cost.usd_per_h) / best.tokens_per_s_per_chip * MILLION / HOUR)
    else:
        assert read["dollars"] == "No source prices this system"
    assert shows(read["step"], 1e3 * float(best.step.time_s), digits)
    times = [1e3 * float(getattr(best.step, f"{name}_s")) for name in ("compute", "memory", "network", "overhead")]
    assert all(
        shows(text, time, digits) if time else text == "0.00" for text, time in zip(read["parts"], times, strict=True)
    )
    assert not read["low"] or (shows(read["low"], float(best.low)) and shows(read["high"], float(best.high)))


@pytest.mark.parametrize("case", CASES)
def test_what_is_chosen_and_slid_to_is_a_plan(frontier, case):
    page, chart = frontier
    choose(chart, **dict(zip(("model", "system", "stack_kind", "precision"), case, strict=True)))
    slider = chart.locator("input[type=range]")
    seen = []
    for key in ("Home", "ArrowRight", "End"):
        slider.press(key)
        page.wait_for_timeout(100)
        seen.append(point(chart))
        assert_is_a_plan(seen[-1], *case)
    users = [number(read["user"]) for read in seen]
    assert users == sorted(users)
    assert users[0] < users[2]


def test_a_pointer_chooses_the_nearest_point_and_moves_the_slider(frontier):
    page, chart = frontier
    slider, points = chart.locator("input[type=range]"), chart.locator("svg.marks .mark-symbol path")
    n = points.count() - 1  # the last is the ring of the chosen one
    for i in (0, n - 1, n // 3):
        box = points.nth(i).bounding_box()
        page.mouse.move(box["x"] + 9, box["y"] + 14)
        page.wait_for_function("([s, n]) => s.value == n", arg=[slider.element_handle(), i + 1])
        label = points.nth(i).get_attribute("aria-label")
        user, chip = (number(one) for one in re.findall(r": ([\d.]+)", label)[:2])
        read = point(chart)
        assert shows(read["user"], user)
        assert shows(read["chip"], chip)
    page.mouse.move(1, 1)  # what was chosen stays
    assert point(chart) == read


@pytest.mark.parametrize("case", CASES[1:])
def test_the_axis_of_joules_is_the_energy_of_a_request(frontier, case):
    page, chart = frontier
    choose(chart, **dict(zip(("model", "system", "stack_kind", "precision"), case, strict=True)))
    chart.locator("input[type=range]").press("Home")
    page.wait_for_timeout(100)
    made = point(chart)
    choose(chart, measure="J a token")
    page.wait_for_timeout(300)
    assert told(chart, "Energy per token at the server [J]")
    points = chart.locator("svg.marks .mark-symbol path")
    box = points.nth(0).bounding_box()
    page.mouse.move(box["x"] + 9, box["y"] + 12)
    page.wait_for_timeout(200)
    (head,) = (text for text in told(chart, "J a token at the server") if "\n" not in text)
    band, yielded, _, user, *_ = told(chart, "promised to a user")[0].split("\n")
    e = plan_of(made, *case).energy()
    assert (yielded.split()[0], user.split()[0]) == (made["chip"], made["user"])
    assert shows(head.split()[0], float(e.server_j_per_token))
    low, high, basis = re.fullmatch(r"([\d.,]+) to ([\d.,]+), (\w+)", band).groups()
    ends = map(float, e.ends("server_j_per_token"))
    assert all(shows(text, end) for text, end in zip((low, high), ends, strict=True))
    assert basis == e.basis


@pytest.mark.parametrize("case", CASES[1:])
def test_the_axis_of_dollars_is_the_owners_cost_of_whole_requests(frontier, case):
    page, chart = frontier
    choose(chart, **dict(zip(("model", "system", "stack_kind", "precision"), case, strict=True)))
    chart.locator("input[type=range]").press("Home")
    page.wait_for_timeout(100)
    made = point(chart)
    choose(chart, measure="USD a million tokens")
    page.wait_for_timeout(300)
    assert told(chart, "Cost of a million tokens to an owner [USD]")
    (head,) = (text for text in told(chart, "USD a million tokens (owner)") if "\n" not in text)
    band, yielded, spent, *_ = told(chart, "promised to a user")[0].split("\n")
    best, cost = plan_of(made, *case), tm.tco(case[1])
    usd = float(cost.usd_per_h) / best.tokens_per_s_per_chip * MILLION / HOUR
    dear, slow = (math.log(float(cost.high) / float(cost.usd_per_h)), math.log(best.tokens_per_s_per_chip / best.low))
    cheap, fast = (math.log(float(cost.usd_per_h) / float(cost.low)), math.log(best.high / best.tokens_per_s_per_chip))
    ends = usd / math.exp(math.hypot(cheap, fast)), usd * math.exp(math.hypot(dear, slow))
    assert (yielded.split()[0], spent) == (made["chip"], made["joules"])
    assert shows(head.split()[0], usd)
    low, high, basis = re.fullmatch(r"([\d.,]+) to ([\d.,]+), (\w+)", band).groups()
    assert all(shows(text, float(end)) for text, end in zip((low, high), ends, strict=True))
    assert basis == "extrapolated"


def test_a_chip_without_watts_or_price_says_so_on_their_axes(frontier):
    _, chart = frontier
    choose(chart, model="llama-3.1-8b", system="trn1.32xlarge", stack_kind="public", precision="BF16")
    assert point(chart)["joules"] == "No source has watts of this chip"
    choose(chart, measure="J a token")
    assert told(chart, "No source has watts") == ["No source has watts of this chip"]
    assert chart.locator("svg.marks .mark-symbol path").count() == 0
    choose(chart, measure="USD a million tokens")
    assert told(chart, "No source prices") == ["No source prices this system"]
    assert chart.locator("svg.marks .mark-symbol path").count() == 0
    choose(chart, measure="tokens/s a chip")
    assert chart.locator("svg.marks .mark-symbol path").count() > 0


def test_the_keyboard_alone_asks_another_question(frontier):
    page, chart = frontier
    before, last = point(chart), chart.locator("select[name=system] option").last.inner_text()
    chart.locator("select[name=model]").focus()
    for key in ("Home", "Tab", "End", "Tab", "End"):
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    after = point(chart)
    assert (before["basis"], after["basis"]) == ("extrapolated", "ideal")
    (system,) = (name for name in LABELS if LABELS[name] == last)
    precision = chart.locator("select[name=precision]").evaluate("list => list.selectedOptions[0].innerText")
    assert_is_a_plan(after, "llama-3.1-8b", system, "ideal", precision)


def test_what_cannot_be_says_so_in_words(frontier):
    """671 billion weights of two bytes are 1,250 GiB; sixteen chips of 32 GiB hold 512."""
    _, chart = frontier
    choose(chart, model="deepseek-v3", system="trn1.32xlarge", stack_kind="ideal", precision="BF16")
    assert " ".join(told(chart, "GiB")[0].split()) == "Does not fit: 1,250 of 512 GiB"
    assert chart.locator("svg.marks .mark-symbol path").count() == 0
    assert chart.locator("svg.marks [aria-label*='tokens/s a chip']").count() == 0
    choose(chart, precision="FP8")
    assert " ".join(told(chart, "not in fp8")[0].split()).startswith(f"{tm.chip('trainium1').name} multiplies in bf16")
    choose(chart, system="trn2.48xlarge")
    assert_is_a_plan(point(chart), "deepseek-v3", "trn2.48xlarge", "ideal", "FP8")


@pytest.mark.parametrize(
    ("chapter", "control"),
    [("serving", "stack_kind"), ("chip-roofline", "chip"), ("cost", "own")],
)
def test_an_explorer_fits_a_phone(open_page, site, chapter, control):
    page, chart = explorer(open_page, site, chapter, control, PHONE)
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    rights = "nodes => Math.max(...nodes.map(node => node.getBoundingClientRect().right))"
    assert chart.locator("svg.marks text, select, input").evaluate_all(rights) <= PHONE["width"] - 10
    texts = chart.locator("svg.marks text").all_text_contents()
    assert not [text for text in texts if "\N{HORIZONTAL ELLIPSIS}" in text]


def test_the_read_outs_are_in_the_tree_of_a_screen_reader(frontier):
    page, _ = frontier
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    names = [node["name"]["value"] for node in nodes if not node["ignored"] and node.get("name", {}).get("value")]
    for word in ("tokens/s a chip", "tokens/s promised to a user", "Software", "Point, from the slowest"):
        assert any(word in name for name in names), word


def roof(chart):
    """Rate, intensity, side and ridge point as they are read."""
    (head,) = (text for text in told(chart, " TFLOP/s") if "\n" not in text)
    at, side, ridge, peak, hbm = told(chart, "HBM")[0].split("\n")
    numbers = [number(re.search(r"[\d.,]+\d|\d", text)[0]) for text in (head, at, ridge, peak, hbm)]
    return dict(zip(("rate", "at", "ridge", "peak", "hbm"), numbers, strict=True)) | {"side": side}


@pytest.mark.parametrize(("name", "dtype"), [("Trainium2", "fp8"), ("H100 SXM", "bf16"), ("Trainium3", "mxfp8")])
def test_the_roof_is_that_of_the_package_on_both_sides_of_the_ridge(roofline, name, dtype):
    page, chart = roofline
    choose(chart, chip=name, dtype=dtype.upper())
    (spec,) = [one for one in map(tm.chip, load.chips()) if one.name == name]
    peak, bandwidth = spec.peak(dtype), spec.hbm_bytes_per_s
    ridge = float(tm.roofline.ridge_point_flop_per_byte(peak, bandwidth))
    slider = chart.locator("input[type=range]")
    below = math.floor(100 * math.log10(ridge)) / 100
    for power, side in ((2.0, "memory"), (below, "memory"), (below + 0.01, "compute"), (3.0, "compute")):
        slider.fill(f"{power:.2f}")
        page.wait_for_timeout(100)
        read, intensity = roof(chart), 10 ** round(power, 2)
        rate = float(tm.roofline.attainable_flop_per_s(intensity, peak, bandwidth))
        assert read["at"] == pytest.approx(intensity, rel=1e-3)
        assert read["side"].startswith(f"{side}-bound")
        assert read["rate"] == pytest.approx(rate / 1e12, rel=1e-3)
        assert read["ridge"] == pytest.approx(ridge, rel=5e-3)
        assert (read["peak"], read["hbm"]) == pytest.approx((peak / 1e12, bandwidth / 1e12), rel=1e-3)


def test_the_slider_stands_where_the_intensity_is_on_the_axis(roofline):
    """Each step of the slider is a step of the same length along the logarithmic axis."""
    page, chart = roofline
    slider = chart.locator("input[type=range]")
    share = "s => (s.value - s.min) / (s.max - s.min)"
    for power in ("0.5", "1", "1.5", "2", "2.5", "3"):
        slider.fill(power)
        page.wait_for_timeout(100)
        rule = chart.locator("svg.marks .mark-rule line:not([stroke-width='0'])").last.bounding_box()
        left, width = chart.evaluate("""chart => {
            const { left } = chart.querySelector('svg .role-frame > g > path.background').getBoundingClientRect();
            return [left, chart.vegaView.width()];
        }""")
        assert (rule["x"] - left) / width == pytest.approx(slider.evaluate(share), abs=0.01)


def test_arrows_move_the_intensity_by_a_hundredth_of_a_power_and_a_pointer_sets_it(roofline):
    page, chart = roofline
    slider = chart.locator("input[type=range]")
    slider.fill("2")
    slider.press("ArrowRight")
    page.wait_for_timeout(100)
    assert roof(chart)["at"] == pytest.approx(10**2.01, rel=1e-3)
    assert "102" in chart.locator(".vega-bind:has(input[type=range]) output").inner_text()  # 10 to the 2.01
    box = chart.locator("svg.marks").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 150)
    page.wait_for_function("s => s.value > 3", arg=slider.element_handle())
    assert roof(chart)["side"].startswith("compute")


def test_a_chip_without_the_format_says_so(roofline):
    _, chart = roofline
    choose(chart, chip=tm.chip("trainium1").name, dtype="MXFP8")
    assert told(chart, "no peak") == ["The chip has no peak in this format"]
    assert chart.locator("svg.marks [aria-label$='TFLOP/s']").count() == 0


def test_price_watts_and_share_of_ideal_move_what_a_token_costs(open_page, site):
    """At all of ideal a token costs an owner's hour times its chip-seconds on ideal software."""
    _, chart = explorer(open_page, site, "cost", "own")
    given = {name: one.default for name, one in parameters("cost").items()}
    request = tm.Request(given["input_tokens"], given["output_tokens"], given["tokens_per_s_per_user"])
    ideal = tm.token_cost(given["model"], request, given["system"])[given["system"], "ideal"].chip_s()
    sliders = {name: chart.locator(f"input[type=range][name={name}]") for name in ("price", "watts", "share")}
    sliders["share"].press("End")
    for key in ("Home", "End"):
        for name in ("price", "watts"):
            sliders[name].press(key)
        price, power = (float(sliders[name].input_value()) / 100 for name in ("price", "watts"))
        now = tm.tco(given["system"], owner=given["owner"])
        usd = price * float(now.parts_usd["HBM"] + now.parts_usd["logic, package and margin"])
        cost = tm.tco(given["system"], owner=given["owner"], chip_usd=max(usd, 1e-6), tdp_w=power * float(now.tdp_w))
        wanted = float(cost.useful_usd_per_h) * ideal / 3.6e-3
        chart.page.wait_for_timeout(300)
        (head,) = told(chart, "per million generated tokens")
        assert shows(head.split()[0].removeprefix("$"), wanted)
        assert "on 100% of ideal" in told(chart, "of ideal")[0]
