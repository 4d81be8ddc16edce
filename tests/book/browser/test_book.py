"""The book works offline, over http and from a folder, light and dark."""

import statistics

import pytest

from trnbook.report import book

pytestmark = pytest.mark.chapters
MOST_SCREENS, SCREEN = 12, {"width": 1440, "height": 1000}
DRAWN = """() => [...document.querySelectorAll('.trn-chart')].every(chart => {
    const drawing = chart.querySelector('.vega-embed svg.marks');
    return drawing && drawing.getBoundingClientRect().width > 100 && drawing.getBoundingClientRect().height > 100;
})"""


def chapter(base, slug):
    return f"{base}/chapters/{slug}.html"


def visit(page, url):
    page.goto(url)
    page.wait_for_function(DRAWN)
    return page


@pytest.mark.slow  # the tests below open every chapter in light, once
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_loads_and_every_chart_is_drawn_and_half_of_the_chapters_are_short(
    site, request, open_page, scheme, capsys
):
    """Light from a server, dark from a folder: no page asks where it comes from when it chooses its colours."""
    base = request.getfixturevalue("http_base") if scheme == "light" else site.as_uri()
    page = open_page(scheme)
    page.set_viewport_size(SCREEN)
    pages = sorted(path.relative_to(site) for path in site.rglob("*.html") if "_static" not in path.parts)
    assert pages
    screens = {}
    for path in pages:
        visit(page, f"{base}/{path}")
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        if path.parts[0] == "chapters":
            screens[path.stem] = page.evaluate("document.documentElement.scrollHeight") / SCREEN["height"]
    with capsys.disabled():
        print("\n", book.page_sizes(site), {slug: round(n, 1) for slug, n in screens.items()})  # noqa: T201
    assert statistics.median(screens.values()) < MOST_SCREENS


def test_every_page_is_light(site):
    assert max(path.stat().st_size for path in site.glob("chapters/*.html")) < book.MAX_PAGE_BYTES


def test_a_chapter_has_charts_tables_mathematics_downloads_and_folded_answers(desk, slug):
    assert desk.locator(".trn-chart").count() >= 1
    assert desk.locator(".trn-table table").count() >= 1
    desk.wait_for_selector("mjx-container svg")
    assert desk.locator(f"a[href$='_sources/chapters/{slug}.ipynb']").count() == 1
    with desk.expect_download() as csv:
        desk.locator(".trn-csv:visible").first.click()
    assert csv.value.path().read_text(encoding="utf-8").count("\n") > 1
    answer = desk.locator("details.dropdown").first
    assert not answer.locator("p").first.is_visible()
    answer.locator("summary").click()
    assert answer.locator("p").first.is_visible()
    answer.locator("summary").click()


def test_slider_moves_a_chart(base, open_page):
    page = visit(open_page(), chapter(base, "chip-roofline"))
    chart = page.locator(".trn-chart:has(input[type=range])").first
    before = chart.locator("svg.marks").inner_html()
    chart.locator("input[type=range]").first.press("Home")
    page.wait_for_function(
        "([chart, before]) => chart.querySelector('svg.marks').innerHTML !== before",
        arg=[chart.element_handle(), before],
    )


def test_charts_follow_a_change_of_theme(base, open_page):
    page = visit(open_page(), chapter(base, "chip-roofline"))
    ink = "() => document.querySelector('.trn-chart .role-axis-label text').getAttribute('fill')"
    light = page.evaluate(ink)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"light => ({ink})() !== light", arg=light)


def test_search_finds(base, open_page):
    page = open_page()
    page.goto(f"{base}/search.html?q=Trainium")
    page.wait_for_selector("ul.search li a")
