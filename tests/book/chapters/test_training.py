"""The chapter on training: days by hand, systems beside each other, memory by hand, measured steps, odd cases."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import training as tables
from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.search.trainings import published, question

GPU, AIR, OLD, AMD = "hgx-h100", "trn3-nl32x2-pcie160", "trn2-ultraserver", "mi355x-8"
DENSE, EXPERTS = "llama-3.1-8b", "qwen3-30b-a3b"
JOB = {"tokens": 1e12, "seq": 8192, "global_batch": 512}
CHIPS = 256


def run_on(system, precision="bf16", model=DENSE, **ask):
    chips = tables.whole_domains(system, CHIPS)
    return tm.train_run(model, system, chips=chips, precision=precision, **{**JOB, **ask})


@pytest.fixture(scope="module")
def runs():
    return tables.each(run_on, [AIR, OLD, GPU, AMD], "bf16")


def test_days_are_work_over_rate(runs):
    """Days x 86,400 s x chips x 671 TFLOP/s x MFU is the work; 6 FLOP per token and parameter, and attention's."""
    run = runs[AIR, "bf16"]
    work = float(run.days) * 86400 * 256 * 671e12 * float(run.mfu)
    assert work == pytest.approx(float(run.step.model_flop) * 1e12 / (512 * 8192), rel=1e-9)
    assert 1 < work / (6 * 8.03e9 * 1e12) < 1.35  # 32 layers x 12 x 8,192 x 4,096 of the whole square are a quarter


def test_work_of_the_largest_llama_is_that_of_its_paper():
    """3.8e25 FLOP for 15.6T tokens (Llama 3, section 3.1), which counts 6 per token and parameter."""
    run = tm.train_run("llama-3.1-405b", GPU, tokens=15.6e12, seq=8192, global_batch=2048)
    work = float(run.step.model_flop / (run.step.global_batch * run.step.seq)) * 15.6e12
    square = 126 * 12 * 8192 * 16384 * 15.6e12  # attention, which MFU counts
    assert work - square == pytest.approx(3.8e25, rel=0.02)


def test_chips_are_those_of_the_nearest_whole_domains():
    """Domains of 144, 64, 16 and 8 chips; at least one of them."""
    names = ("trn3-nl72x2-pcie160", OLD, "trn2.48xlarge", GPU)
    assert [tables.whole_domains(name, 2048) for name in names] == [14 * 144, 2048, 2048, 2048]
    assert [tables.whole_domains(name, 1) for name in names] == [144, 64, 16, 8]


def test_systems_stand_in_both_formats_and_those_that_cannot_run_are_left_out(runs):
    """Nobody trains on the fourth in public."""
    assert [*runs] == [
        (AIR, "bf16"),
        (AIR, "mxfp8"),
        (OLD, "bf16"),
        (OLD, "fp8"),
        (GPU, "bf16"),
        (GPU, "fp8"),
    ]
    assert all(run.valid for run in runs.values())
    for narrow, wide in (((AIR, "mxfp8"), (AIR, "bf16")), ((OLD, "fp8"), (OLD, "bf16"))):
        assert runs[narrow].days < runs[wide].days


def test_better_software_takes_fewer_days_and_none_is_faster_than_its_peak():
    name = "llama-3.1-405b"
    days = [
        float(tm.train_run(name, OLD, chips=8192, efficiencies=kind, **question(name)).days)
        for kind in ("public", "hand-tuned", "ideal")
    ]
    assert days == sorted(days, reverse=True)
    assert days[-1] > 6 * 405.85e9 * 15e12 / (8192 * 667e12) / 86_400


def test_the_card_has_days_energy_and_the_next_system(runs):
    run = runs[OLD, "bf16"]
    said = tables.answer(run, runs)
    days, low, high = run.calendar_days()[:3]
    assert said.startswith(f"> **{tm.units.format_within(days, low, high, 'days').partition(' (')[0]}** (")
    assert "MWh at the site." in said
    assert f"MFU of {float(run.mfu):.0%}" in said
    assert "Nobody publishes a rent" in said
    assert rf"They cost their owner \${tm.units.format_digits(run.owner_usd().value / 1e6, 2)} million (" in said
    peers = {name: one.calendar_days().value for (name, dtype), one in runs.items() if dtype == "bf16" and name != OLD}
    assert f"{tm.units.format_digits(min(peers.values()), 2)} days on 256 chips." in said
    assert "no other system was asked about that can run it" in tables.answer(run, {(OLD, "bf16"): run})
    old = run_on("trn1.32xlarge")
    assert "their power is not published." in tables.answer(old, runs)


def test_bars_of_days_begin_at_zero_and_say_the_mfu(runs):
    run = runs[OLD, "bf16"]
    gap = tm.training_gap(DENSE, OLD, chips=CHIPS, **JOB)
    chart = tables.waterfall(gap, run).to_dict()
    (rows,) = chart["datasets"].values()
    last = rows[-1]
    assert (last["before"], last["which"]) == (0, f"public software, MFU {float(run.mfu):.0%}")
    assert last["label"].endswith(" days")
    assert chart["layer"][0]["encoding"]["x"]["scale"]["domain"][0] == 0
    assert "without failures" in str(chart["title"])


def test_why_a_range_is_wide():
    assert tables.reasons("") == ""
    assert tables.reasons("chips: rows reach to 64") == (
        " No step on more than 64 chips is behind its constants, so the range is wide."
    )


def test_what_is_spent(runs):
    """A dash has no price; MWh are joules of the site over 3.6e9; an own MFU is a share of the peak."""
    table = tables.spent(runs, "hyperscaler", "capacity-block").set_index(["system", "in"])
    assert table["rented [million $]"][AIR, "BF16"] == "–"
    run = runs[GPU, "fp8"]
    row = table.loc[(GPU, "FP8")]

    def middle(text):
        return float(text.split(" (")[0].replace(",", ""))

    assert middle(row.days) == pytest.approx(run.calendar_days().value, rel=0.06)
    assert middle(row.MWh) == pytest.approx(run.site_j().value / 3.6e9, rel=0.06)
    assert middle(row["rented [million $]"]) == pytest.approx(run.renter_usd("capacity-block").value / 1e6, rel=0.06)
    assert f"{float(run.mfu):.0%}" == row.MFU


def test_memory_by_hand(runs):
    """BF16 weights are 2 B per parameter, FP32 gradients 4, Adam's states 12, shared out by ZeRO 1."""
    run = runs[AIR, "bf16"]
    again = tm.train_step(DENSE, run.system, run.mapping, zero=run.step.zero, recompute="none", **tables.sizes(run))
    assert again.time_s == run.step.time_s
    policies = [(0, "none"), (1, "none"), (3, "none"), (1, "full")]
    steps = [
        tm.train_step(DENSE, run.system, run.mapping, zero=zero, recompute=how, **tables.sizes(run))
        for zero, how in policies
    ]
    none, one, three, full = steps
    parts = float(run.step.tp * run.step.pp)
    assert none.weight_bytes / 2 >= tm.model(DENSE).total_params / parts * (1 - 1e-9)  # the fullest rank
    assert none.gradient_bytes == pytest.approx(2 * none.weight_bytes)
    assert none.optimizer_bytes == pytest.approx(6 * none.weight_bytes)
    assert one.optimizer_bytes == pytest.approx(none.optimizer_bytes / (run.step.dp * run.step.ep * run.step.cp))
    assert three.weight_bytes < one.weight_bytes
    assert full.activation_bytes < one.activation_bytes
    table = tables.policies(steps)
    assert table.policy.tolist() == [
        "ZeRO 0, no recompute",
        "ZeRO 1, no recompute",
        "ZeRO 3, no recompute",
        "ZeRO 1, full recompute",
    ]
    assert [float(x) for x in table.optimizer] == [round(float(x.optimizer_bytes) / 2**30, 1) for x in steps]
    assert table.MFU.tolist() == [f"{float(x.mfu):.0%}" if x.valid else "does not fit" for x in steps]


def test_measured_steps_stand_beside_predictions():
    """Errors are predicted over measured, less one: of the rows of `residuals_runs.csv`."""
    table, rows = tables.measured(), pd.read_csv(tables.ERRORS)
    rows = rows[rows.group.str.startswith("training") & rows.split.isin(["model left out", "outside the fits"])]
    assert len(table) == len(rows) == rows.id.nunique()
    assert (table.predicted_s / table.measured_s - 1).tolist() == pytest.approx(rows.error.tolist())
    assert set(table.chip) >= {"Trainium1", "Trainium2", "H100 SXM"}
    off = tables.of_chip(table, "Trainium2")
    assert len(off) == 26
    errors = tables.errors().set_index("group")
    assert off.median() == pytest.approx(errors.left_out_median["finetune-trn2"], abs=1e-3)
    assert off.mean() == pytest.approx(errors.left_out_mean["finetune-trn2"], abs=1e-3)


def test_whole_runs_are_those_of_their_authors():
    """30.84 million hours over 16,384 chips are 78.4 days; 430 of 989 TFLOP/s are an MFU of 43 %."""
    large = tm.train_run("llama-3.1-405b", GPU, tokens=15e12, chips=16384, global_batch=2048)
    few = tm.train_run("llama-3.1-405b", GPU, tokens=15e12, chips=8192, global_batch=2048)
    table = tables.whole_runs({"llama-405b-whole": large, "llama-405b-8192": few}).set_index("run")
    assert table.printed["llama-405b-whole"] == pytest.approx(30.84e6 / 16384 / 24)
    printed = published("llama-3.1-405b", ["public"]).set_index("id")
    for name in table.index:
        assert table.printed[name] == pytest.approx(printed.days[name])
        assert table.run_days[name] == pytest.approx(printed.predicted_days[name])
    said = tables.compared(table.reset_index()).data
    assert said.count("The run of `llama-3.1-405b` took") == 2
    assert "took **78 days**" in said
    assert (table.calendar_days > table.run_days).all()


def test_mappings_that_lose_take_longer(runs):
    table = tables.losing(runs[AIR, "bf16"])
    assert table.longer[0] == "0.0%"
    assert (np.diff(table.days.astype(float)) >= 0).all()
    assert (table["because of"][1:] != "").all()


def test_a_constraint_costs_and_what_costs_most_stands_first(runs):
    table = tables.binding(runs[AIR, "bf16"])
    costs = pd.to_numeric(table["times the best"], errors="coerce").dropna()
    assert costs.is_monotonic_decreasing
    assert float(table.set_index("constraint")["times the best"]["memory sets no limit"]) <= 1


def test_claimed_efficiencies_by_hand(runs):
    """At 43 % of 256 x 671 TFLOP/s."""
    run = runs[AIR, "bf16"]
    table = tables.claims({(AIR, "bf16"): run}).set_index("scenario")
    work = float(run.step.model_flop / (run.step.global_batch * run.step.seq)) * 1e12
    assert table.days["trn3-dense-compiler"] == pytest.approx(work / (256 * 671e12 * 0.43) / 86400)
    assert table.days["derived"] == float(run.days)
    assert tables.claims({(GPU, "bf16"): runs[GPU, "bf16"]}).scenario.tolist() == ["derived"]


def test_errors_are_those_of_the_evidence():
    errors = tables.errors()
    table = tables.accuracy(errors)
    assert len(table) == len(errors)
    assert (table.target.str.contains("met") == errors.met.eq(True)).all()
    assert not table.isna().any().any()


def test_what_does_not_fit_and_what_cannot_be_asked_is_refused_in_a_line():
    """A model of 405 billion parameters on eight GPUs; AMD without public software; sequences that are too long."""
    with pytest.raises(
        ImpossibleError, match=r"does not fit in memory; the fullest rank lacks [\d.e+]+ GiB"
    ) as refused:
        tables.first(lambda name: tm.train_run("llama-3.1-405b", name, chips=8, **JOB), GPU)
    assert "\n" not in str(refused.value)
    with pytest.raises(UnanswerableError, match="system = 'mi355x-8'"):
        tables.first(run_on, AMD)
    model = tm.model(DENSE)
    with pytest.raises(UnanswerableError, match="tokens = 1 are fewer than the 4,194,304 of one step"):
        tables.check(model, **JOB | {"tokens": 1.0})
    with pytest.raises(UnanswerableError, match="ends at 131072 tokens; 200000 are asked for"):
        tables.check(model, 1e12, 200_000, 1)
    with pytest.raises(UnanswerableError, match="owner = 'x' must be one of"):
        tables.owned_and_rented("x", "spot")


def test_experts_alone_and_few_tokens():
    """A mixture of experts as the only model, and one step of tokens: days are the time of a step."""
    run = tm.train_run(EXPERTS, AIR, chips=64, tokens=512 * 4096.0, seq=4096, global_batch=512)
    assert float(run.days) * 86400 == pytest.approx(float(run.step.time_s * 512 / run.step.global_batch))
    assert tables.first(lambda name: run, AIR) is run


def test_a_figure_without_a_price_is_a_dash():
    assert tables._banded(SimpleNamespace(why="no price")) == "–"
    assert tables._banded(SimpleNamespace(why="", value=2e6, low=1e6, high=4e6), 1e6) == "2 (1 to 4)"
    assert not math.isnan(float(tables._banded(SimpleNamespace(why="", value=3.0, low=3.0, high=3.0))))
