"""Every page, opened once from a folder: its policy holds, its controls work, and the pointer names every datum."""

import re

import pytest

DRAWN = "() => [...document.querySelectorAll('.trn-chart')].every(chart => chart.querySelector('svg.marks'))"

# Vega itself writes each tooltip: it evaluates the words of an item, and shows them when a pointer moves over it.
HOVER = r"""charts => [...document.querySelectorAll(charts)].map(chart => {
    const wrong = /\b(undefined|NaN|null|Infinity)\b/, problems = new Set(), fields = {};
    JSON.parse(chart.querySelector('script').textContent, (key, value) => {
        if (key === 'tooltip' && Array.isArray(value)) {
            for (const { title, field } of value) fields[title ?? field] = field;
        }
        return value;
    });
    let tooltips = 0;
    for (const node of chart.querySelectorAll('svg.marks .role-mark *')) {
        const item = node.__data__;
        if (!item?.mark || item.tooltip == null) continue;
        tooltips += 1;
        node.dispatchEvent(new PointerEvent('pointermove', { bubbles: true }));
        const datum = item.isVoronoi ? item.datum.datum : item.datum;
        const rows = [...document.querySelectorAll('#vg-tooltip-element.visible tr')].map(row =>
            [...row.cells].map(cell => cell.textContent.trim()));
        if (rows.length !== Object.keys(fields).length) problems.add(`${rows.length} rows`);
        for (const [name, value] of rows) {
            const own = datum[fields[name]];
            if (!name || !value || wrong.test(`${name} ${value}`)) problems.add(`${name} is "${value}"`);
            if (own == null) problems.add(`${name} is unknown, and reads "${value}"`);
            const words = typeof own === 'string' ? own.trim() : value;
            if (words !== value) problems.add(`${name} is ${words}, and reads "${value}"`);
        }
    }
    const texts = [...chart.querySelectorAll('svg.marks text')].map(text => text.textContent);
    const labels = [...chart.querySelectorAll('svg.marks [aria-label]')].map(one => one.ariaLabel);
    for (const text of [...texts, ...labels]) if (wrong.test(text)) problems.add(text);
    return [chart.ariaLabel.slice(0, 60), Object.keys(fields).length, tooltips, [...problems].slice(0, 5)];
})"""

# Each value of each list and button, and both ends of each slider.
CONTROLS = """async () => {
    const dead = [];
    for (const chart of document.querySelectorAll('.trn-chart')) {
        const drawing = () => chart.querySelector('svg.marks').innerHTML;
        for (const control of chart.querySelectorAll('.vega-bind')) {
            const [first, ...rest] = control.querySelectorAll('input, select');
            const seen = new Set([drawing()]);
            const values = first.options ? [...first.options].map(option => option.value) : [first.min, first.max];
            const radio = first.type === 'radio';
            for (const value of radio ? [first, ...rest] : values) {
                if (radio) value.click();
                else {
                    first.value = value;
                    first.dispatchEvent(new Event(first.options ? 'change' : 'input', { bubbles: true }));
                }
                await new Promise(resolve => setTimeout(resolve, 60));
                await chart.vegaView.runAsync();
                seen.add(drawing());
            }
            if (seen.size < 2) dead.push(control.textContent.slice(0, 60));
        }
    }
    return dead;
}"""


def visit(page, url):
    page.goto(url)
    page.wait_for_function(DRAWN)
    return page


@pytest.mark.few("chip-roofline", "cost", "index", "rack", "serving", "software", "torus-or-switch")
def test_a_page_keeps_its_policy_while_its_charts_name_data_and_its_controls_work(open_page, folder, slug):
    page = visit(open_page(), f"{folder}/{slug if slug == 'index' else f'chapters/{slug}'}.html")
    charts = page.evaluate(HOVER, ".trn-chart")
    assert charts
    assert [chart for chart in charts if chart[3] or bool(chart[1]) != bool(chart[2])] == []
    assert page.evaluate(CONTROLS) == []
    assert [chart for chart in page.evaluate(HOVER, ".trn-chart:has(.vega-bind)") if chart[3]] == []
    assert page.evaluate("violations") == []


def test_the_other_pages_keep_their_policy(open_page, site, slugs):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts and path.stem not in slugs]
    assert {"search", "genindex", "glossary"} <= {path.stem for path in pages}
    page = open_page()
    for path in pages:
        visit(page, path.as_uri())
        assert page.evaluate("violations") == []


def test_the_policy_is_strict(site):
    """Nothing is loaded from outside, and no text becomes a script: neither as an element, an attribute nor by eval."""
    for path in site.rglob("*.html"):
        if "_static" in path.parts:
            continue
        page = path.read_text(encoding="utf-8")
        (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"', page)
        directives = dict(one.split(maxsplit=1) for one in policy.split("; "))
        assert directives["default-src"] == "'none'"
        assert re.fullmatch(r"'self'( 'sha256-[A-Za-z0-9+/=]{44}')+", directives["script-src"])
        assert not re.search(r"https?:|\*|unsafe-eval", policy)
        assert page.index("Content-Security-Policy") < page.index("<script")


@pytest.mark.parametrize(
    "text",
    [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        "<script>eval('window.hacked = 1')</script>",
        "<object data='data:text/html,x'></object><script src='data:text/javascript,window.hacked = 1'></script>",
    ],
)
def test_a_script_in_a_chapter_would_not_run(site, open_page, tmp_path, text):
    """Were a text to reach a page as HTML, the policy would still stop it."""
    page = open_page(ours=False)
    glossary = (site / "glossary.html").read_text(encoding="utf-8")
    assert "</article>" in glossary
    changed = tmp_path / "glossary.html"
    changed.write_text(glossary.replace("</article>", f"{text}</article>"), encoding="utf-8")
    page.goto(changed.as_uri())
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("violations")


def test_the_buttons_of_the_page_work(open_page, folder):
    page = visit(open_page(), f"{folder}/chapters/rack.html")
    page.evaluate("window.print = () => { window.printed = true; }")
    page.locator("[data-press=fullscreen]").first.click()
    page.wait_for_function("() => document.fullscreenElement")
    page.evaluate("document.exitFullscreen()")
    page.locator("[data-press=print]").first.evaluate("button => button.click()")
    assert page.evaluate("window.printed")
    chart = page.locator(".trn-chart").first
    chart.hover()
    chart.locator("summary").click()
    with page.expect_download() as image:
        chart.get_by_text("Save as PNG").click()
    assert image.value.path().read_bytes()[:4] == b"\x89PNG"
    assert page.evaluate("violations") == []
