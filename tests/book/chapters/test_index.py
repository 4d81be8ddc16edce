"""The first page: its cells are those of `tm.plan`, follow the machine, and lead to the chapters that derive them."""

import os
import re
import shlex
from dataclasses import replace

import nbformat
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnbook.chapters import index
from trnbook.chapters import index_cover as cover
from trnbook.report import chapter, chapters, form, notebooks
from trnmodel.cli.app import app
from trnmodel.models.shipped import MODELS
from trnmodel.units import GB

LENGTHS = {"input_tokens": 4096, "output_tokens": 512}
CHAPTERS = {
    "Tokens/s a user": "serving",
    "System": "rack",
    "Chips and mapping": "memory-fit",
    "Tokens/s a chip": "serving",
    "First token": "decode-step",
    "Energy and power at the server": "power",
    "A million tokens to their owner": "cost",
    "Other software, tokens/s a chip": "software",
}


SPENT = "Energy and power at the server"
PAID = "A million tokens to their owner"
KINDS = ("public", "hand-tuned", "ideal")


def assert_paid(cell, c, beside):
    """Dollars of a cell are those of the owner's hour times the paid chip time of a request, for each of its tokens."""
    hour = float(tm.tco(c.system).useful_usd_per_h)
    told = [float(each) for each in re.findall(r"USD ([\d.]+)", cell)]
    exact = [hour / 3600 * one.request_chip_s / LENGTHS["output_tokens"] * 1e6 for one in (c, *beside) if one.valid]
    assert told == pytest.approx(exact, rel=0.051)
    assert c.basis in cell if c.valid else cell.startswith("too slow")


def assert_trained(row):
    """Days of a row are those of one search a kind of software, and its work no less than 6 FLOP a parameter."""
    chips = float(row["Chips"].replace(",", ""))
    (system,) = (name for name in tm.systems() if tm.system(name).name == row["System"])
    runs = [tm.train_run(row["Model"], system, tokens=1e12, chips=chips, efficiencies=kind) for kind in KINDS]
    shown = [float(row[f"Days, {kind} software"].split()[0]) for kind in KINDS]
    assert shown == pytest.approx([float(run.days) for run in runs], rel=0.051)
    assert str(runs[0].basis) in row["Days, public software"]
    peak, work = runs[0].system.chip.peak("bf16"), 6 * tm.model(row["Model"]).active_params() * 1e12
    assert min(shown) * 86_400 * chips * peak > 0.99 * work


def assert_spent(cell, c):
    """Joules of a cell are those of a request, and kilowatts what its replica draws: W = J a token x tokens/s."""
    if not c.valid:
        assert cell == "too slow"
        return
    joules, low, high, basis, kilowatts, *ends = re.fullmatch(
        r"([\d.,]+) J a token \(([\d.,]+) to ([\d.,]+); (\w+)\); ([\d.,]+) kW \(([\d.,]+) to ([\d.,]+)\)", cell
    ).groups()
    e = c.energy()
    assert basis == e.basis
    told = [float(one.replace(",", "")) for one in (joules, low, high)]
    exact = [float(e.server_j_per_token), *map(float, e.ends("server_j_per_token"))]
    assert told == pytest.approx(exact, rel=0.051)
    tokens_per_s = c.requests_per_s_per_replica * LENGTHS["output_tokens"]
    watts = [float(one.replace(",", "")) * 1e3 for one in (*ends[:1], kilowatts, *ends[1:])]
    assert watts[1] == pytest.approx(exact[0] * tokens_per_s, rel=0.051)
    assert watts == sorted(watts)


@pytest.fixture(scope="module")
def page(root):
    return nbformat.read(root / "notebooks" / "index.ipynb", 4)


def said(page):
    return [
        "".join(output.data["text/markdown"])
        for cell in page.cells
        for output in cell.get("outputs", ())
        if "text/markdown" in output.get("data", {})
    ]


def table(text):
    """Cells of a Markdown table, by its heading."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"
    )
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_cell_of_the_page_is_a_plan(page):
    headline, rows = said(page)[0], table(said(page)[1])
    defaults = {name: given.default for name, given in chapter.parameters("index").items()}
    models, speeds = ("small_model", "dense_model", "experts_model"), defaults["tokens_per_s_per_user"]
    asked = [(defaults[name], speed) for name in models for speed in speeds]
    assert [(row["Model"], float(row["Tokens/s a user"])) for row in rows[:-1]] == asked
    (best,) = (
        row for row in rows if (row["Model"], row["Tokens/s a user"]) == (defaults["dense_model"], f"{max(speeds):g}")
    )
    shown = ("Model", "System", "Chips and mapping", "Tokens/s a chip", "First token", SPENT, PAID)
    for column in shown:
        assert best[column] in headline
    for (model, speed), row in zip(asked, rows, strict=False):
        found = tm.plan(model, tm.Request(**LENGTHS, tokens_per_s_per_user=speed))
        c = found.best
        assert row["System"].startswith(c.system.name)
        assert row["System"].removeprefix(c.system.name) == (f" (ties: {len(found.same)})" if found.same else "")
        assert row["Chips and mapping"] == f"{c.chips:g} chip{'s' * (c.chips > 1)}: {c.mapping}"
        if found.reached:
            made, _, kept = row["Tokens/s a chip"].partition(", promise kept in ")
            assert made == c.in_words("tokens_per_s_per_chip", "").replace(")", f"; {c.basis})")
            assert float(kept.split()[0] if kept else 100) == pytest.approx(100 * c.chance, rel=0.051)
        else:
            assert row["Tokens/s a chip"].startswith("out of reach: at most ")
        assert row["First token"] == c.in_words("ttft_s", "s").replace(")", f"; {c.basis})")
        assert_spent(row[SPENT], c)
        assert_paid(row[PAID], c, found.other_software)
        told = [f"{b.stack.kind} {b.in_words(b.FIGURE, '') if b.valid else 'too slow'}" for b in found.other_software]
        assert row["Other software, tokens/s a chip"] == "; ".join(told)
    assert {"hand-tuned", "ideal"} <= set(rows[0]["Other software, tokens/s a chip"].replace(";", "").split())


def test_every_row_of_training_is_a_run(page):
    headline, serving, trained = said(page)[0], table(said(page)[1]), table(said(page)[2])
    asked = dict.fromkeys((row["Model"], row["System"]) for row in serving[:-1])
    assert [row["Model"] for row in trained] == [
        model for model, _ in dict.fromkeys((m, s.partition(" (ties")[0]) for m, s in asked)
    ]
    assert all(any(system.startswith(row["System"]) for _, system in asked) for row in trained)
    for row in trained:
        assert_trained(row)
    model = chapter.parameters("index")["dense_model"].default
    assert any(row["Days, public software"] in headline for row in trained if row["Model"] == model)


def test_what_trains_nothing_says_so():
    found = cover.answers(["llama-3.1-8b"], [20.0], systems="inf2.48xlarge")
    assert {table(index.trainings(found))[0][f"Days, {kind} software"] for kind in KINDS} == {"no training software"}
    assert "In training" not in index.headline(found, "llama-3.1-8b", **LENGTHS)


def test_half_the_hbm_rate_changes_the_cells():
    """Of every chip of a few systems; a cell that came from anywhere else would stay."""
    specs = [tm.system(name) for name in ("trn2.48xlarge", "trn3-nl32x2-pcie160")]
    slow = [replace(it, chip=replace(it.chip, hbm_bytes_per_s=it.chip.hbm_bytes_per_s / 2)) for it in specs]
    models = ["llama-3.1-8b", "llama-3.3-70b", "deepseek-v3"]
    found = [cover.answers(models, [20.0], systems=them) for them in (specs, slow)]
    whole, half = (table(index.answers(each)) for each in found)
    for before, after in zip(whole[:-1], half[:-1], strict=True):
        for name in ("Tokens/s a chip", "Other software, tokens/s a chip", SPENT, PAID):
            assert before[name] != after[name]
    trained = [table(index.trainings(each)) for each in found]
    assert any(before != after for before, after in zip(*trained, strict=True))  # a small step waits for its products


def test_twice_the_tdp_is_more_joules_and_a_chip_without_watts_says_so():
    """The time of the step stays; beside the chip stands the server's host, so that less than twice is drawn."""
    spec = tm.system("trn2.48xlarge")
    hot = replace(spec, chip=replace(spec.chip, tdp_w=2 * spec.chip.tdp_w))
    one, two = (cover.answers(["llama-3.1-8b"], [20.0], systems=[it]) for it in (spec, hot))
    assert one.tokens_per_s_per_chip.equals(two.tokens_per_s_per_chip)
    assert 1.5 < float(two.server_j_per_token.iloc[0] / one.server_j_per_token.iloc[0]) < 2
    without, _ = table(index.answers(cover.answers(["llama-3.1-8b"], [20.0], systems="trn1.32xlarge")))
    assert without[SPENT] == "no watts known"
    assert without[PAID] == "no price known"


def test_a_model_that_fits_nothing_and_a_speed_out_of_reach_are_told():
    found = cover.answers(["llama-3.1-405b", "llama-3.1-8b"], [1e6], systems="trn2.3xlarge")
    nothing, slow, _ = table(index.answers(found))
    assert nothing["System"] == "none"
    assert nothing["Chips and mapping"].startswith("does not fit: ")
    assert nothing[SPENT] == ""
    assert slow["Tokens/s a chip"].startswith("out of reach: at most ")
    assert slow["Other software, tokens/s a chip"].startswith("hand-tuned too slow")


def test_each_column_leads_to_its_chapter():
    order = chapters()
    last = table(index.answers(cover.answers(["llama-3.1-8b"], [20.0]), chapter.called))[-1]
    assert {name: order[int(text.split()[1]) - 1] for name, text in list(last.items())[1:]} == CHAPTERS
    asked = index.questions("llama-3.1-8b", "qwen3-30b-a3b", 20.0, 20.0, called=chapter.called, **LENGTHS)
    named = [order[int(number) - 1] for number in re.findall(r"Chapter (\d+)", asked)]
    assert named == ["switch-tray", "beside-gpus", "torus-or-switch"]


def test_the_page_lists_every_chapter_by_its_part(page):
    parts = {part: [f"chapters/{slug}" for slug in slugs] for part, slugs in chapter.parts().items()}
    listed = form.listing(nbformat.from_dict(page), parts).cells[-1].source
    assert re.findall(r"^chapters/(\S+)$", listed, re.MULTILINE) == chapters()
    assert re.findall(r"^:caption: (.+)$", listed, re.MULTILINE) == list(chapter.parts())
    assert notebooks() == ["index", *chapters()]


def lines(page):
    """Command lines of the page, of its texts and of what it prints."""
    texts = [*said(page), *(cell.source for cell in page.cells if cell.cell_type == "markdown")]
    return [
        line
        for text in texts
        for block in re.findall(r"```console\n(.*?)\n```", text, re.DOTALL)
        for line in block.splitlines()
    ]


def test_every_line_of_the_page_answers(page):
    found = [shlex.split(line) for line in lines(page)]
    assert sum(words[:2] == ["trnmodel", "plan"] for words in found) == 5
    for words in found:
        if words[:2] == ["trnmodel", "run"]:
            given = dict(word.split("=") for word in words if "=" in word)
            chapter.check_parameters(words[2], given)
        elif words[0] == "trnmodel":
            asked = [
                os.fspath(MODELS / "llama-3.1-8b.json") if word == "path/to/config.json" else word for word in words[1:]
            ]
            done = CliRunner().invoke(app, asked)
            assert (done.exit_code, bool(done.stdout)) == (0, True), done.stderr
        else:
            assert words == ["make", "lab"]


def test_what_the_page_says_is_what_the_line_prints(page):
    """The first answer and the all-reduces, beside the first words of the command."""
    text = said(page)[-1]
    for words in ("trnmodel plan llama-3.3-70b", "trnmodel collective"):
        (line, *_) = [line for line in lines(page) if line.startswith(words)]
        printed = CliRunner().invoke(app, shlex.split(line)[1:]).stdout
        number = re.search(r"[\d,.]+ (?:us|tokens/s per (?:paid )?chip) \([\d,.]+ to [\d,.]+", printed)[0]
        assert number in text


def test_the_chips_are_as_printed():
    """AWS's pages: 190, 667 and 671 TFLOP/s in BF16, 2.52 PFLOP/s in MXFP8; 32, 96, 144 GiB at 0.82, 2.9, 4.9 TB/s."""
    found = index.chips().set_index("chip")
    assert (found.bf16_flop_per_s / 1e12).tolist() == [190, 667, 671]
    assert (found.hbm_bytes / 2**30).tolist() == [32, 96, 144]
    assert (found.hbm_bytes_per_s / 1e12).tolist() == [0.82, 2.9, 4.9]
    assert found.fp8_flop_per_s["Trainium3"] == 2517e12
    assert found.chips.tolist() == [16, 64, 144]
    assert found.links_bytes_per_s_per_dir["Trainium3"] == 144 * 8 * GB  # lanes of PCIe Gen6
