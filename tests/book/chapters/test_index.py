"""The first page: its rows are those of `tm.plan`, its lines at the terminal answer, and it lists every chapter."""

import os
import re
import shlex
from dataclasses import replace

import nbformat
import pandas as pd
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnbook.chapters import index, index_hand, index_site
from trnbook.report import chapter, chapters, form, notebooks
from trnmodel.arguments import UnanswerableError
from trnmodel.cli.app import app
from trnmodel.models.shipped import MODELS
from trnmodel.units import GB

SPEED = 50.0


@pytest.fixture(scope="module")
def page(root):
    return nbformat.read(root / "notebooks" / "index.ipynb", 4)


def row(model, system, speed=SPEED):
    request = tm.Request(4096, 512, tokens_per_s_per_user=speed)
    best = tm.plan(model, request, systems=system).best
    cost = tm.token_cost(model, request, system, pricing=tm.tco(system))
    return index.answer(best, "announced", cost[best.system.id, best.stack_kind])


def test_a_row_is_worked_out_by_hand():
    """Dollars are the owner's hour times the paid chip time of a request, for each of its 512 tokens."""
    found, hour = row("llama-3.3-70b", "trn2.48xlarge"), float(tm.tco("trn2.48xlarge").useful_usd_per_h)
    per_token = hour / 3600 / found["tokens_per_s_per_chip"]
    assert found["generated_usd_per_mtoken"] == pytest.approx(1e6 * per_token, rel=1e-9)
    assert found["server_j_per_token_low"] < found["server_j_per_token"] < found["server_j_per_token_high"]


def test_a_speed_that_no_system_keeps_has_no_energy_and_no_cost():
    assert "server_j_per_token" not in row("llama-3.1-8b", "trn2.48xlarge", 1e6)


def test_the_sums_of_the_page_are_worked_out_by_hand():
    """From the parts of a choice: 2.9 TB/s and 1,299 TFLOP/s for each chip, a plan's step, and the rent of an hour."""
    request = tm.Request(4096, 512, tokens_per_s_per_user=SPEED)
    c = tm.plan("llama-3.3-70b", request, "trn2.48xlarge").best
    cost = tm.token_cost("llama-3.3-70b", request, "trn2.48xlarge", pricing="capacity-block")
    found = index_hand.sums(c, cost["trn2.48xlarge", "public"]).answer.tolist()
    moved = float(c.step.moved_bytes_per_rank) * c.degrees.ranks
    step_s = float(c.step.memory_s + c.step.network_s + c.step.overhead_s)  # it computes beside the reading
    assert c.chips == 1
    times = (moved / 2.9e12, float(c.step.memory_s), step_s, step_s / (c.batch * 3.656))
    assert found[:4] == [f"{1e3 * s:.3g} ms" for s in times]
    flop = float(c.first.work_flop_per_rank) * c.degrees.ranks
    assert 0.9 < flop / (2 * 70.6e9 * 4096) < 1.05  # two for each parameter and token, but the output head's
    assert found[4] == f"{1e3 * flop / 1299e12:.3g} ms"
    assert found[5] == f"{1e3 * c.prompt_chip_s / 512:.3g} ms"
    assert found[7] == f"{c.tokens_per_s_per_user:.3g}"  # what a user gets between the prompts of others
    assert found[8] == f"{c.tokens_per_s_per_chip:.3g}"
    usd = float(tm.rent("trn2.48xlarge").usd_per_chip_h) / 3600 / c.tokens_per_s_per_chip * 1e6
    assert found[9] == f"${usd:.3g}"


def test_half_the_hbm_rate_changes_a_row():
    spec = tm.system("trn2.48xlarge")
    slow = replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=spec.chip.hbm_bytes_per_s / 2))
    before, after = (row("llama-3.3-70b", it, 20.0) for it in (spec, slow))
    assert after["tokens_per_s_per_chip"] < before["tokens_per_s_per_chip"]
    assert after["generated_usd_per_mtoken"] > before["generated_usd_per_mtoken"]


def test_the_table_has_the_bill_of_the_plan_and_what_is_left_without_drafts():
    request = tm.Request(4096, 512, tokens_per_s_per_user=SPEED)
    plan, sized = tm.plan("llama-3.3-70b", request), tm.plan("llama-3.3-70b", request, users=1000)
    roles = index.roles_of(plan, sized)
    bills = {c.place: float(sized.capacity_of(c).usd_per_month) for c in sized.gpus if c.valid}
    lowest = min((name for name, bill in bills.items() if bill == bill), key=bills.__getitem__)
    gpus = {lowest: "GPU", plan.gpus[0].place: "GPU, most per chip"}
    assert roles == {sized.for_rent.place: "for rent", plan.best.place: "announced"} | gpus
    assert index.pair(roles) == [sized.for_rent.place, lowest]
    plain = tm.plan("llama-3.3-70b", request, sized.for_rent.system, efficiencies="no-speculation").best
    held = sized.capacity_of(sized.for_rent)
    line = index.row("for rent", sized.for_rent, plain, held)
    assert line["chance"] == f"{sized.for_rent.chance:.0%}"
    assert line["without drafts"] == tm.units.format_digits(plain.tokens_per_s_per_chip, 2)
    assert line["instances"] == f"{held.instances:.0f}"
    assert line["rent [thousand $/month]"] == f"{held.usd_per_month / 1000:.0f}"
    said = index.bills(sized, index.pair(roles)).splitlines()
    assert said[0].startswith(f"- **trn2.48xlarge:** {held.instances:.0f} instances for \\$")
    assert len(said) == 2


def test_headlines_are_those_of_their_chapters(page, root):
    """The same texts stand in the cards of training, goodput and power."""
    shown = headlines(page)
    cards = {
        slug: (root / "notebooks" / "digest" / f"{slug}.txt").read_text() for slug in ("training", "goodput", "power")
    }
    days = re.search(r"\*\*(\d+) days\*\* (\([\d.]+ to [\d.]+)", cards["training"])
    useful = re.search(r"\*\*(\d+)%\*\* (\(\d+ to \d+)", cards["goodput"])
    racked = re.search(r"A rack of 72 chips is provisioned at (\d+) kW", cards["power"])
    trained = next(row for row in shown if row.startswith("Days"))
    assert f"{days[1]} {days[2]})" in trained
    kept = next(row for row in shown if row.startswith("Time that is useful"))
    assert f"{useful[1]} {useful[2]})" in kept
    assert f"{racked[1]}, 72 chips" in next(row for row in shown if row.startswith("Power provisioned for a rack"))


def headlines(page):
    """Return the rows of the three tables on power, training and failures, as text."""
    shown = "".join(
        "".join(output.data["text/html"])
        for cell in page.cells
        for output in cell.get("outputs", ())
        if "site-" in "".join(output.get("data", {}).get("text/html", ""))
    )
    return [" ".join(re.findall(r">([^<>]+)<", row)).strip() for row in re.findall(r"<tr>.*?</tr>", shown, re.DOTALL)]


def test_what_a_site_needs_is_what_the_public_calls_say():
    """Megawatt-hours are joules per token at the site times the tokens of a month; the rest is of the plan."""
    ask = ("llama-3.3-70b", tm.Request(4096, 512, tokens_per_s_per_user=SPEED), "trn3-nl72x2-pcie160")
    best, size = tm.plan(*ask).best, tm.plan(*ask, users=1000).capacity
    spared = tm.plan(*ask, users=1000, availability=0.9999).capacity
    found = index_site.serving(size)
    mwh = float(best.energy().facility_j_per_token) * 1000 * SPEED * 730.5 * 3600 / 3.6e9
    assert found["Energy at the site [MWh per month]"] == f"{mwh:.3g}"
    assert found["Power provisioned at the site [kW]"] == f"{size.provisioned_site_w / 1000:.3g}"
    assert found["Instances for 1,000 users"] == f"{size.instances:.0f}"
    job = {swap: tm.goodput(ask[2], 16384, model="llama-3.1-405b", swap=swap) for swap in ("hot", "drain")}
    draws = tm.sensitivity(
        lambda fleet: tm.goodput(ask[2], 16384, model="llama-3.1-405b", fleet=fleet),
        {"fleet": tm.fleet("borrowed")},
        draws=500,
    )
    failing = index_site.failures(size, spared, job["hot"], job["drain"], draws)
    lost_h = (1 - size.availability_without_spares) * 8766
    assert float(failing["Some replica is out without a spare [hours per year]"]) == pytest.approx(lost_h, rel=0.03)
    assert failing["Spare instances, so that all replicas run 99.99% of the time"] == "1"
    drained = failing["The same if the whole rack is drained for a repair [%]"]
    assert drained == f"{100 * float(job['drain'].goodput):.2g}"


@pytest.mark.parametrize(("domain", "most", "chips"), [(16, 2048, 2048), (144, 2048, 2016), (64, 10, 64)])
def test_chips_of_a_run_fill_whole_domains(domain, most, chips):
    assert index_site.whole_domains(domain, most) == chips


@pytest.mark.parametrize(("models", "speeds"), [(["a"], [1.0, 2.0]), (["a", "b", "c"], [1.0, 2.0])])
def test_speeds_that_belong_to_no_model_are_refused(models, speeds):
    with pytest.raises(UnanswerableError, match=r"tokens_per_s_per_user holds 2 speeds for \d models?; give one speed"):
        index.paired(models, speeds)


def test_the_page_lists_every_chapter_by_its_part(page):
    parts = {part: [f"chapters/{slug}" for slug in slugs] for part, slugs in chapter.parts().items()}
    listed = form.listing(nbformat.from_dict(page), parts).cells[-1].source
    assert re.findall(r"^chapters/(\S+)$", listed, re.MULTILINE) == chapters()
    assert re.findall(r"^:caption: (.+)$", listed, re.MULTILINE) == list(chapter.parts())
    assert notebooks() == ["index", *chapters()]


def lines(page):
    """Command lines of the page."""
    texts = (cell.source for cell in page.cells if cell.cell_type == "markdown")
    return [
        line
        for text in texts
        for block in re.findall(r"```console\n(.*?)\n```", text, re.DOTALL)
        for line in block.splitlines()
    ]


def test_every_line_of_the_page_answers(page):
    found = [shlex.split(line) for line in lines(page)]
    assert sum(words[:2] == ["trnmodel", "plan"] for words in found) == 2
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
    """The best system of the table, beside what the first command prints."""
    (line, *_) = lines(page)
    printed = CliRunner().invoke(app, shlex.split(line)[1:]).stdout
    number = re.search(r"([\d,.]+) tokens/s per (?:paid )?chip \(([\d,.]+ to [\d,.]+)", printed)
    (shown,) = [
        "".join(output.data["text/html"])
        for cell in page.cells
        for output in cell.get("outputs", ())
        if "what-to-use.csv" in "".join(output.get("data", {}).get("text/html", ""))
    ]
    assert f"{number[1]} ({number[2]}" in shown  # of an unmeasured chip "or wider" follows


def test_the_chips_are_as_printed():
    """AWS's pages: 190, 667 and 671 TFLOP/s in BF16, 2.52 PFLOP/s in MXFP8; 32, 96, 144 GiB at 0.82, 2.9, 4.9 TB/s."""
    rows = [index.chip(tm.chip(name), tm.topology(system)) for name, system in index.LARGEST.items()]
    found = pd.DataFrame(rows).set_index("chip")
    assert found["BF16 peak [TFLOP/s]"].tolist() == ["190", "667", "671"]
    assert (found.hbm_bytes / 2**30).tolist() == [32, 96, 144]
    assert (found.hbm_bytes_per_s / 1e12).tolist() == [0.82, 2.9, 4.9]
    assert found["8-bit peak [TFLOP/s]"].tolist() == ["190", "1,299", "2,517"]
    assert found["8-bit format"].tolist() == ["cFP8", "FP8", "MXFP8"]
    assert found.domain_chips.tolist() == [16, 64, 144]
    assert found.links_bytes_per_s_per_dir["Trainium3"] == 144 * 8 * GB  # lanes of PCIe Gen6
