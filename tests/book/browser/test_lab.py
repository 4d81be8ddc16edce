"""A notebook opens with its answer and folded code in JupyterLab, and runs from top to bottom; its charts are drawn."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

import trnmodel as tm
from trnbook.charts.language import called
from trnbook.workbench import ServingState, TrainingState, answers, best
from trnbook.workbench.panel import SERVING, TRAINING
from trnbook.workbench.state import software

TOKEN = "only-for-this-test"
SETTINGS = {
    "ServerApp": {"ip": "127.0.0.1", "port_retries": 0, "open_browser": False, "allow_root": True},
    "IdentityProvider": {"token": TOKEN},
    "LabApp": {
        "expose_app_in_browser": True,
        "news_url": None,
        "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    },
}
SAVE = "async () => { await window.jupyterapp.shell.currentWidget.context.save(); }"
RUN_ALL = """async () => {
    const { commands, shell } = window.jupyterapp;
    const { context } = shell.currentWidget;
    await context.ready;
    await context.sessionContext.ready;
    await commands.execute('notebook:clear-all-cell-outputs');
    await commands.execute('notebook:run-all-cells');
    return context.model.toJSON().cells;
}"""
CHART = "application/vnd.vegalite.v5+json"


@pytest.fixture(scope="module")
def checkout(git_checkout):
    """A checkout of the notebooks, which these tests may change."""
    return git_checkout("Makefile", "notebooks")


@pytest.fixture(scope="module")
def lab(checkout, tmp_path_factory):
    """The server of `make lab` on a checkout, one for all; the address of its root."""
    tmp_path = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    private = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    (tmp_path / "CONFIG").mkdir()
    settings = SETTINGS | {"ServerApp": SETTINGS["ServerApp"] | {"port": port}}
    (tmp_path / "CONFIG" / "jupyter_server_config.json").write_text(json.dumps(settings))
    command = ["make", "--old-file=.venv", "lab", f"VENV={sys.prefix}"]
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=checkout, env=os.environ | private, stdout=log, stderr=log, start_new_session=True
        )
    try:
        await_answer(f"http://127.0.0.1:{port}/api", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(300)


def await_answer(url, server, patience_s=300):
    end = time.monotonic() + patience_s
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(url).close()
            return
        except URLError:
            time.sleep(0.2)
    pytest.fail("JupyterLab does not answer; see lab.log")


@pytest.fixture
def opened(lab, open_page):
    """A function that opens a chapter and waits for its first answer."""

    def opened(slug):
        page = open_page(ours=False)  # JupyterLab logs errors of its own
        page.goto(f"{lab}/lab/tree/{slug}.ipynb?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.sessionContext")
        page.locator(".jp-CodeCell .jp-OutputArea-output").first.wait_for()
        return page

    return opened


def see_chart(page, cells):
    """The outputs of cells, none an error, the first chart of which is drawn."""
    outputs = [(index, output) for index, cell in enumerate(cells) for output in cell.get("outputs", [])]
    assert not [output for _, output in outputs if output["output_type"] == "error"]
    first = next(index for index, output in outputs if CHART in output.get("data", {}))
    page.evaluate("index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, 'center')", first)
    drawn = page.wait_for_selector(".vega-embed canvas, .vega-embed svg.marks").bounding_box()
    assert drawn["width"] > 100
    assert drawn["height"] > 100


@pytest.mark.few("index", "memory", "rack")
def test_a_chapter_opens_in_lab_with_folded_set_up_and_saves_as_it_is(opened, checkout, git_status, slug):
    page = opened(slug)
    answer = page.locator(".jp-CodeCell .jp-OutputArea-output").first
    assert answer.bounding_box()["y"] < 0.8 * page.viewport_size["height"]
    shown = page.locator(".jp-CodeCell .jp-InputArea-editor:visible").all_inner_texts()
    assert not any("import trnmodel" in code for code in shown)  # set-up is folded, parameters and model are open
    see_chart(page, page.evaluate("window.jupyterapp.shell.currentWidget.context.model.toJSON().cells"))
    page.evaluate(SAVE)
    assert git_status(checkout) == ""


@pytest.mark.parametrize(
    "chapter", [*(pytest.param(slug, marks=pytest.mark.slow) for slug in ("memory", "chip-roofline")), "rack"]
)
def test_a_chapter_runs_in_lab_and_is_saved_as_it_is_committed(opened, checkout, git_status, chapter):
    """Two with charts alone and one with a drawn fabric; what the cells of all others give is held without Lab."""
    page = opened(chapter)
    see_chart(page, page.evaluate(RUN_ALL))
    page.evaluate(SAVE)
    assert git_status(checkout) == ""


SERVER = {  # what the controls of the workbench are set to, one after another
    "model": "llama-3.1-8b",
    "system": "trn2-ultraserver",
    "precision": "bf16",
    "tp": 8,
    "ep": 2,
    "pp": 2,
    "cp": 2,
    "lnc": 2,
    "batch": 8,
    "prompt": 2048,
    "context": 3072,
    "speed": 10.0,
    "software": "neuron-async",
    "drafts": "",
}
BACK = {"ep": 1, "pp": 1, "cp": 1}  # degrees of which no server decodes with more
JOB = {
    "model": "llama-3.1-8b",
    "system": "trn2-ultraserver",
    "precision": "bf16",
    "lnc": 1,
    "tp": 8,
    "pp": 2,
    "dp": 16,
    "ep": 2,
    "cp": 2,
    "interleave": 1,
    "micro_batch": 2,
    "global_batch": 1024,
    "seq": 4096,
    "recompute": "full",
    "zero": 3,
    "tokens": 1e12,
    "software": "ideal",
}


def set_control(page, title, value, text):
    """Move a visible control of the workbench as a hand does, and wait until the answers follow."""
    named = page.locator("label", has_text=re.compile(f"^{title}$"))
    control = page.locator(".widget-inline-hbox:visible", has=named).locator("select, input")
    if control.evaluate("control => control.tagName") == "SELECT":
        control.select_option(label=text)
    else:
        control.fill(f"{value:g}" if isinstance(value, float) else str(value))
        control.press("Enter")
        control.blur()


def moved(page, tab, state, titles):
    """Set all controls of a tab to a state, one after another, until the page shows what follows from it."""
    names = {}
    for name, value in state.items():
        lists = {one: text for text, one in tab_choices(name, state).items()}
        names[name] = lists.get(value, str(value))
        set_control(page, titles[name], value, names[name])
    expected = [one.partition(" (")[0].partition(" per ")[0] for one in answers(tab(**state)).figures.said]
    visible = page.locator(".trn-wb:visible .cards").first
    expect(visible).to_contain_text(expected[0], timeout=60_000)
    for text in expected[:5]:
        expect(visible).to_contain_text(text, timeout=60_000)


def tab_choices(name, state):
    """Names in the lists of the workbench, by what they stand for."""
    if name == "system":
        return {str(called(one)): one for one in tm.systems()}
    if name == "software" and "batch" in state:
        return {text: one for one, text in software(state["model"], state["system"]).items()}
    return {"none": ""} if name == "drafts" else {}


def test_the_workbench_follows_every_control_in_lab(opened, checkout, git_status):
    """JupyterLab shows the numbers of the public calls, and a save leaves the notebook as it is committed."""
    page = opened("workbench")
    cells = page.evaluate(RUN_ALL)
    assert not [out for cell in cells for out in cell.get("outputs", []) if out["output_type"] == "error"]
    page.evaluate("document.querySelector('.widget-tab').scrollIntoView()")
    page.locator(".trn-wb .cards").first.wait_for()
    page.evaluate(SAVE)
    assert git_status(checkout) == ""
    assert set(SERVER) == set(SERVING)
    moved(page, ServingState, SERVER | BACK, SERVING)
    set_control(page, "TP", 3, "3")
    expect(page.locator(".trn-wb:visible .why")).to_contain_text("attention heads that TP divides")
    for button in ("Best mapping", "Keep"):
        page.locator(".widget-button:visible", has_text=button).click()
    found = best(ServingState(**SERVER | BACK))
    expect(page.locator(".trn-wb:visible", has_text="Side by side")).to_contain_text(f"TP {found.tp}")
    page.locator(".widget-button:visible", has_text="Save").click()
    expect(page.locator(".trn-wb-said:visible")).to_contain_text("Written to serving.yaml")
    written = checkout / "notebooks" / "serving.yaml"
    assert tm.scenario(written).step["tp"] == found.tp
    written.unlink()
    page.locator(".lm-TabBar-tab", has_text="Training step").click()
    assert set(JOB) == set(TRAINING)
    moved(page, TrainingState, JOB | {"cp": 1, "ep": 1, "lnc": 2}, TRAINING)
    page.evaluate(SAVE)
    assert git_status(checkout) == ""
