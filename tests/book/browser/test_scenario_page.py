"""The page of `trnmodel report` in a browser: one file that asks for nothing, and its PDF."""

import shutil

import pytest
from playwright.sync_api import expect

from trnbook.report import answers, bundle

SCENARIO = """\
model: llama-3.1-8b
request: {input_tokens: 1024, output_tokens: 256, tokens_per_s_per_user: 50}
systems: [trn2.3xlarge, hgx-h100]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    for name in ("<b>one", "two"):
        (folder / f"{name}.yaml").write_text(SCENARIO)
    return bundle.make("serving", bundle.files_of([str(folder)]), folder / "out"), folder / "out"


def test_the_page_opens_alone_from_any_folder(made, open_page, tmp_path):
    _, folder = made
    alone = tmp_path / "alone" / "page.html"
    alone.parent.mkdir()
    shutil.copy(folder / "serving.html", alone)
    page = open_page(fresh=True)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(alone.as_uri())
    page.wait_for_load_state("networkidle")
    assert asked == [alone.as_uri()]
    assert page.evaluate("window.violations") == []
    expect(page.locator("caption").first).to_contain_text("The scenarios side by side")
    assert page.locator("section").count() == 2


@pytest.mark.parametrize("width", [390, 1280])
def test_the_verdict_is_on_the_first_screen_and_nothing_runs_over(made, open_page, width):
    bundled, folder = made
    page = open_page(fresh=True)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((folder / "serving.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    one = page.locator("section").first
    expect(one.locator(".verdict")).to_have_text(bundled.answered[0].answer.verdict[0])
    assert (
        one.locator(".verdict").evaluate(
            "e => e.getBoundingClientRect().top - e.closest('section').getBoundingClientRect().top"
        )
        < 200
    )
    assert answers.TRAINIUM in one.locator("thead").first.inner_text()


def test_the_pdf_is_printed_and_no_draft_is_left(made):
    bundled, folder = made
    assert bundled.missing == []
    assert (folder / "serving.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "serving.pdf").stat().st_size > 20_000
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name == "print.html"]
