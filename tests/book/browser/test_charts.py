"""What a reader does with a chart: point, look closer, single out a line; by keyboard too."""

import pytest

pytestmark = pytest.mark.chapters

FAMILIES = """() => [...document.querySelectorAll('article :is(h1, h2, p, td, .trn-chart svg text)')].map(
    shown => getComputedStyle(shown).fontFamily)"""
LOADED = "() => [...document.fonts].filter(font => font.status === 'loaded').map(font => [font.family, font.weight])"
TICKS = "chart => [...chart.querySelectorAll('.role-axis-label text')].map(text => text.textContent).sort()"
RINGS = """chart => [...chart.querySelectorAll('.mark-symbol path')].map(path => path.__data__).filter(
    item => item.size === 130).map(item => [item.x, item.y, item.opacity])"""
LINES = "chart => [...chart.querySelectorAll('.mark-line path')].map(line => Number(line.getAttribute('opacity') ?? 1))"
STILL = ":not(:has(.vega-bindings :is(input, select)))"  # a chart that no control moves
ZOOMED = f"[data-zoom]{STILL}"
DRAWN = "() => [...document.querySelectorAll('.trn-chart')].every(chart => chart.querySelector('svg.marks'))"


def visit(page, url):
    page.goto(url)
    page.wait_for_function(DRAWN)
    return page


def await_ticks(chart, ticks, sign):
    """Wait until the words of the axes of a chart are (===) or are not (!==) these."""
    chart.page.wait_for_function(
        f"([chart, ticks]) => String(({TICKS})(chart)) {sign} String(ticks)", arg=[chart.element_handle(), ticks]
    )


@pytest.fixture
def chart_with(base, open_page, slugs):
    """The page and the first chart of the book that has what a selector finds."""

    def found(selector):
        page = open_page()
        for slug in slugs:
            visit(page, f"{base}/chapters/{slug}.html")
            chart = page.locator(f".trn-chart:has(.mark-line){selector}").first
            if chart.count():
                chart.scroll_into_view_if_needed()
                return page, chart
        pytest.fail(f"no chart has {selector}")

    return found


def box(chart):
    """Left, top, width and height of what the axes of a chart enclose. [px]"""
    return chart.evaluate("""chart => {
        const { left, top } = chart.querySelector('svg .role-frame > g > path.background').getBoundingClientRect();
        return [left, top, chart.vegaView.width(), chart.vegaView.height()];
    }""")


def test_text_and_charts_share_a_typeface_that_the_book_brings(site, base, open_page):
    page = visit(open_page(), f"{base}/chapters/memory-fit.html")
    families = set(page.evaluate(FAMILIES))
    assert len(families) == 1
    assert families.pop().startswith('"Source Sans Pro"')
    assert {"100 500", "600 900"} <= {weight for family, weight in page.evaluate(LOADED) if "Source Sans" in family}
    assert "SIL Open Font License" in (site / "_static" / "SourceSansPro-LICENSE.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("across", "up"), [(0.03, 0.03), (0.5, 0.9), (0.97, 0.5)])
def test_pointing_anywhere_tells_the_nearest_datum(chart_with, across, up):
    page, chart = chart_with(STILL)
    left, top, width, height = box(chart)
    page.mouse.move(left + width / 3, top + height / 3)
    page.mouse.move(left + across * width - 1, top + up * height)
    page.wait_for_timeout(300)
    page.mouse.move(left + across * width, top + up * height)
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert page.locator("#vg-tooltip-element td.value").count() >= 2
    rings = chart.evaluate(RINGS)
    away = [(x - across * width) ** 2 + (y - up * height) ** 2 for x, y, _ in rings]
    (shown,) = {(x, y) for x, y, opacity in rings if opacity == 1}
    assert away[[(x, y) for x, y, _ in rings].index(shown)] == min(away)


def test_keys_look_closer_and_set_back(chart_with):
    page, chart = chart_with(ZOOMED)
    ticks = chart.evaluate(TICKS)
    chart.focus()
    for key in ("+", "+", "+", "ArrowRight"):
        page.keyboard.press(key)
    await_ticks(chart, ticks, "!==")
    page.keyboard.press("0")
    await_ticks(chart, ticks, "===")


def test_the_hint_of_keys_appears_under_the_chart_and_covers_nothing(chart_with):
    page, chart = chart_with(ZOOMED)
    hint = """chart => {
        const { visibility, height } = getComputedStyle(chart, '::after');
        return [visibility, parseFloat(height)];
    }"""
    lowest = """chart => [chart.getBoundingClientRect().bottom,
        ...[...chart.querySelectorAll('svg.marks text')].map(text => text.getBoundingClientRect().bottom)]"""
    page.mouse.move(1, 1)
    hidden, _ = chart.evaluate(hint)
    before = chart.bounding_box()
    chart.hover()
    shown, height = chart.evaluate(hint)
    bottom, *texts = chart.evaluate(lowest)
    assert (hidden, shown) == ("hidden", "visible")
    assert height > 5
    assert max(texts) <= bottom - height
    assert chart.bounding_box() == before


def test_the_wheel_scrolls_the_page_and_with_ctrl_the_chart(chart_with):
    page, chart = chart_with(ZOOMED)
    ticks = chart.evaluate(TICKS)
    left, top, width, height = box(chart)
    page.mouse.move(left + width / 2, top + height / 2)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_function("before => scrollY > before", arg=before)
    assert chart.evaluate(TICKS) == ticks
    page.keyboard.down("Control")
    page.mouse.wheel(0, -600)
    page.keyboard.up("Control")
    await_ticks(chart, ticks, "!==")


@pytest.mark.parametrize(
    ("kind", "names"),
    [(":has([class*=pathgroup])", ".role-legend-label [role=button]"), (ZOOMED, ".mark-text.role-mark [role=button]")],
)
def test_a_name_singles_out_its_line_by_keyboard(chart_with, kind, names):
    page, chart = chart_with(f"{kind}:has({names})")
    assert set(chart.evaluate(LINES)) == {1}
    chart.locator(names).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"chart => ({LINES})(chart).some(opacity => opacity < 0.2)", arg=chart.element_handle())
    assert max(chart.evaluate(LINES)) == 1
