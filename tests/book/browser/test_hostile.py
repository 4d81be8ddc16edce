"""A report made from hostile names: they are shown as text, no script of theirs runs, and nothing outside is asked."""

import json
import textwrap

import pytest
from playwright.sync_api import expect

from trnbook import report
from trnbook.report import chapter
from trnmodel.models.shipped import MODELS, catalog

IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = '"></title></textarea><script>window.hacked=1</script><script>alert(1)</script>'
OTHERS = [
    "<svg onload=window.hacked=1>",
    "[click](javascript:window.hacked=1)",
    "`</code><script>window.hacked=1</script>`",
    "```{raw} html\n<script>window.hacked=1</script>\n```",
    "--><script>window.hacked=1</script>",
    "]]><script>window.hacked=1</script>",
    "\\u003cscript>window.hacked=1\\u003c/script>",
    "$$\\href{javascript:window.hacked=1}{x}$$",
    "https://example.org/a.png ![x](https://example.org/b.png)",
    "{{ 7*7 }} {% raw %} %(x)s",
]

CHAPTER = """\
    # ---
    # jupyter:
    #   kernelspec: {display_name: Python 3, language: python, name: python3}
    # ---

    # %% [markdown]
    # # What is in a name?

    # %% tags=["parameters"]
    model: str = "gpt2"
    note: str = ""
    words: list[str] = []

    # %%
    import pandas as pd
    from IPython.display import Markdown

    import trnmodel as tm
    from trnbook import charts

    m = tm.model(model)
    Markdown(f"**{m.id}** has {m.total_params:,} parameters.")

    # %%
    print(note, *words, sep="\\n")

    # %%
    note, words, m

    # %%
    table = pd.DataFrame({"word": words, note: range(len(words)), "unit_s": 1.0})
    charts.table(table, caption=note, download=note)

    # %%
    charts.bars(table, x="word", y="unit_s", caption=note)

    # %%
    charts.lines(table.assign(at=range(len(words))), x="at", y="unit_s", color="word", caption=words[0])
"""


@pytest.fixture
def hostile_model(tmp_path):
    """The folder of a model under a hostile name; its path closes a script."""
    folder = tmp_path / f"{IMAGE}<" / "script><script>window.hacked=1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes((MODELS / catalog()["llama-3.1-8b"].file).read_bytes())
    return folder


@pytest.fixture
def look(open_page):
    """A function that opens a page, waits for its charts, and returns it if nothing of a name has run in it."""

    def look(path):
        page = open_page(fresh=True)
        dialogs = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
        page.goto(path.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        expect(page.locator(".trn-chart:not(:has(svg.marks))")).to_have_count(0, timeout=300_000)
        for mark in page.locator(".trn-chart svg.marks .role-mark path").all()[:12]:
            mark.hover(force=True)
        for link in page.locator("a[href^='javascript:']").all():
            link.click()
        assert page.evaluate("window.hacked") is None
        assert not dialogs
        assert not page.locator("img[onerror], svg[onload], a[href^='javascript:']").count()
        return page

    return look


def test_a_chapter_of_hostile_text_is_text(tmp_path, monkeypatch, hostile_model, look):
    folder = tmp_path / "chapters"
    folder.mkdir()
    (folder / "names.py").write_text(textwrap.dedent(CHAPTER))
    monkeypatch.setattr(chapter, "CHAPTERS", folder)
    given = {"model": str(hostile_model), "note": SCRIPT, "words": [IMAGE, SCRIPT, *OTHERS]}
    (outcome,) = report.run(["names"], given, tmp_path / IMAGE, progress=False)
    page = look(report.build_page(outcome.path))
    assert page.locator(".trn-chart").count() == 2
    page.locator("button.trn-code").first.click()  # what only replies with text is folded with its code
    text = page.locator("body").inner_text()
    assert text.count(IMAGE) >= 3
    assert text.count(SCRIPT) >= 3
    assert json.loads(outcome.path.read_bytes())["metadata"]["trnmodel"]["parameters"] == given


def test_a_chapter_of_ours_on_a_hostile_model_is_text(tmp_path, hostile_model, look):
    (outcome,) = report.run(["memory"], {"model": str(hostile_model)}, tmp_path / "out", progress=False)
    page = look(report.build_page(outcome.path))
    assert page.locator(".trn-chart").count() > 3
    assert page.locator("div.highlight", has_text="onerror").count() == 1, "the parameter is shown as code"
