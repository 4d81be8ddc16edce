"""Training runs side by side, sized by chips, days or dollars, against searches and draws that are written out here."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.arguments import ImpossibleError
from trnmodel.cli.app import app
from trnmodel.draws import TAIL, deviations
from trnmodel.search import train_report
from trnmodel.search.train_size import MOST

DENSE, GPU, RACK, TRN3, TRN2 = "llama-3.1-8b", "hgx-h100", "gb200-nvl72", "trn3-nl72x2-pcie160", "trn2-ultraserver"
ONE = {"recompute": ["none"], "zero": [1], "sequence_parallel": [True], "best": 1}  # policy, for a quick search
ASK = {"tokens": 1e12, "seq": 2048, "global_batch": 512} | ONE


@pytest.fixture(scope="module")
def three():
    return tm.train_run(DENSE, [TRN2, GPU, TRN3], tokens=1e12, chips=576, seq=2048, global_batch=512)


def test_each_run_is_the_answer_of_one_system(three):
    for run in three.runs:
        alone = tm.train_run(DENSE, run.system.id, tokens=1e12, chips=576, seq=2048, global_batch=512)
        assert isinstance(alone, tm.TrainRun)
        assert float(alone.days) == float(run.days)
        assert alone.configuration == run.configuration
    days = [run.calendar_days().value for run in three.runs]
    assert days == sorted(days)
    assert three.best is three.runs[0]


def test_the_order_of_the_systems_changes_nothing(three):
    again = tm.train_run(DENSE, (TRN3, TRN2, GPU), tokens=1e12, chips=576, seq=2048, global_batch=512)
    assert again.card() == three.card()
    assert again.leads == three.leads


def test_who_is_first_in_the_draws_by_brute_force(three):
    """Each draw by itself: a run is longer by its software, and by what fails, which is one cause for all."""
    names, rows = [run.system.id for run in three.runs], []
    for run in three.runs:
        useful = run.goodput()
        fast, slow = (float(width) for width in run.widths("days"))
        less, more = float(np.log(useful.goodput / useful.low)), float(np.log(useful.high / useful.goodput))
        software = deviations(f"training of {run.stack.id} on {run.system.chip.id}")
        failing = deviations("failures of borrowed")
        value = float(run.days) * (1 - float(useful.spare_lost)) / float(useful.goodput)
        row = []
        for a, b in zip(software.tolist(), failing.tolist(), strict=True):
            longer = np.exp(a / TAIL * (slow if a > 0 else fast)) * np.exp(b / TAIL * (less if b > 0 else more))
            row.append(value * longer)
        rows.append(row)
    alone, tied = dict.fromkeys(names, 0), 0
    for days in zip(*rows, strict=True):
        first = [name for name, one in zip(names, days, strict=True) if 1 / one >= 0.99 / min(days)]
        tied += len(first) > 1
        for name in first:
            alone[name] += len(first) == 1
    assert three.leads.tied == pytest.approx(tied / 1000)
    assert dict(three.leads.alone) == pytest.approx({name: n / 1000 for name, n in alone.items()})
    gap = three.difference(names[1], names[0])
    ratio = np.sort(np.array(rows[1]) / np.array(rows[0]) - 1)
    assert gap.value == pytest.approx(three.runs[1].calendar_days().value / three.runs[0].calendar_days().value - 1)
    assert (gap.low, gap.high) == pytest.approx((ratio[int(0.05 * 999)], ratio[int(np.ceil(0.95 * 999))]))


def test_what_two_systems_share_cancels():
    """The same chip and software on two fabrics: either is open by tens of per cent, and their difference is not."""
    both = tm.train_run(DENSE, [TRN3, "trn3-nl72x2-pex90144"], tokens=1e12, chips=144, seq=2048, global_batch=512)
    first, second = (run.system.id for run in both.runs)
    gap, run = both.difference(second, first), both.runs[0]
    assert float(run.high / run.low) > 1.5
    assert gap.high - gap.low < 0.05


def test_an_equal_twin_ties():
    twin = replace(tm.system(GPU), id="my-twin")
    both = tm.train_run(DENSE, [twin, GPU], chips=64, **ASK)
    assert both.ties == ["my-twin"]
    assert both.best.system.id == GPU  # the catalog's comes first
    assert both.leads.tied == 1
    assert both.to_frame().role.tolist() == ["first", "tie"]
    assert f"{GPU} ties by days with my-twin" in both.card()[1]


RATES = ("interruptions_per_chip_s", "lane_failures_per_s", "cable_failures_per_s", "switch_failures_per_s")
NOTHING = replace(tm.fleet(), id="nothing", ranges={}, **dict.fromkeys(RATES, 0.0))  # fails


def test_energy_by_hand():
    """1,730 W are provisioned per H100; training servers draw 51.5 to 76 % of that, 63.75 % in the middle; PUE 1.14."""
    run = tm.train_run(DENSE, GPU, chips=64, **ASK)
    calm = run.goodput(fleet=NOTHING)
    joules = float(run.days) * 86_400 * 64 * 1730 * 0.6375 * 1.14
    assert run.site_j(useful=calm).value == pytest.approx(joules, rel=1e-6)
    usual = run.site_j()
    assert usual.value == pytest.approx(joules / float(run.goodput().goodput), rel=1e-9)
    assert usual.low < usual.value < usual.high
    assert run.site_j(facility="aws-chilled").value / usual.value == pytest.approx(
        tm.energy(tm.decode_step(DENSE, GPU, tm.Mapping(tp=8), batch=1, context=8), facility="aws-chilled").facility_w
        / tm.energy(tm.decode_step(DENSE, GPU, tm.Mapping(tp=8), batch=1, context=8)).facility_w
    )


@pytest.mark.parametrize("system", [GPU, TRN3])
def test_energy_is_what_the_owner_pays_for(system):
    run = tm.train_run(DENSE, system, chips=144, **ASK)
    hour = run.owned_hour()
    paid = float(hour.energy_usd_per_h * run.chip_hours / run.goodput().goodput)
    assert run.site_j().value * hour.owner.electricity_usd_per_j == pytest.approx(paid, rel=1e-9)


def test_energy_of_a_chip_without_watts_has_a_reason():
    run = tm.train_run(DENSE, "trn1.32xlarge", chips=64, **ASK)
    assert np.isnan(run.site_j().value)
    assert "no watts of the chip are known" in run.site_j().describe("J")


def brute(system, most, **limits):
    """Every number of domains by itself: chips, days with failures, and dollars to the owner."""
    size, rows = tm.system(system).domain_chips, []
    for count in range(1, most + 1):
        try:
            run = tm.train_run(DENSE, system, chips=count * size, bill="owned", **ASK)
        except ValueError:
            continue
        rows.append((run.chips, run.calendar_days().value, run.owner_usd().value))
    return rows


def test_the_fewest_chips_that_end_in_time_by_brute_force():
    every = brute(RACK, 40)
    for days in (12.0, 5.0, 2.2):
        least = min(chips for chips, lasting, _ in every if lasting <= days)
        run = tm.train_run(DENSE, RACK, days=days, **ASK)
        assert run.calendar_days().value <= days
        assert run.chips == least


def test_the_first_run_to_end_on_a_budget_by_brute_force():
    every = brute(RACK, 64)
    cheapest = min(usd for _, _, usd in every)
    for factor in (1.02, 1.1, 1.3):
        budget = cheapest * factor
        least = min(lasting for _, lasting, usd in every if usd <= budget)
        run = tm.train_run(DENSE, RACK, usd=budget, bill="owned", **ASK)
        assert run.owner_usd().value <= budget * (1 + 1e-9)
        assert run.calendar_days().value <= least * 1.03  # a number of 64 blocks is tried


def test_fewer_days_take_more_chips_and_not_many_more_chip_days():
    """Thousands of domains are not all tried; 2,142 of 8 GPUs share out the largest batch, 2,048 sequences x 1.05."""
    ask = {"tokens": 15e12, "best": 1}
    chips = [tm.train_run("llama-3.1-405b", GPU, days=days, **ask).chips for days in (63, 90, 120, 240)]
    assert chips[0] == 2142 * 8
    assert chips == sorted(chips, reverse=True)
    for days, many in zip((63, 90, 120, 240), chips, strict=True):
        assert many * days < 1.5 * chips[-1] * 240


def test_dollars_order_runs_that_days_size():
    runs = tm.train_run(DENSE, [GPU, TRN3, RACK], days=30, bill="owned", **ASK)
    assert runs.ranked_by == "owner_usd"
    paid = [run.owner_usd().value for run in runs.runs]
    assert paid == sorted(paid)
    assert all(run.calendar_days().value <= 30 for run in runs.runs)
    rented = tm.train_run(DENSE, [GPU, TRN3, RACK], days=30, **ASK)
    assert rented.ranked_by == "renter_usd"
    assert [run.system.id for run in rented.runs][-1] == TRN3  # nobody publishes a rent of it
    assert TRN3 not in rented.ties
    assert np.isnan(rented.drawn[TRN3]).all()


def test_prices_at_which_runs_are_drawn_lie_between_the_published_ones():
    runs = tm.train_run(DENSE, [GPU, RACK], days=30, pricing="market", **ASK)
    for run in runs.runs:
        price = tm.rent(run.system, "market")
        low, high = (end / price.usd_per_chip_h for end in price.range("usd_per_chip_h"))
        drawn = runs.drawn[run.system.id] / run.renter_usd().value
        assert np.percentile(drawn, 1) > 0.9 * low * float(run.low / run.days) * 0.8
        assert np.percentile(drawn, 99) < 1.1 * high * float(run.high / run.days) * 1.3


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"days": 0.001}, "days=0.001: hgx-h100 takes at least"),
        ({"usd": 5.0}, r"usd=5: hgx-h100 costs at least about \$"),
        ({"usd": 5.0, "bill": "owned"}, "usd=5: hgx-h100 costs at least .* owned"),
        ({"chips": 64, "days": 1.0}, "days=1: 64 chips of hgx-h100 take"),
        ({"chips": 64, "usd": 10.0}, r"usd=10: 64 chips of hgx-h100, rented: \$"),
        ({"days": 30.0, "usd": 10.0}, r"usd=10: .* chips of hgx-h100, rented: \$"),
    ],
)
def test_what_nothing_satisfies_is_impossible_and_says_what_comes_nearest(limit, why):
    with pytest.raises(ImpossibleError, match=f"^{why}"):
        tm.train_run(DENSE, GPU, **ASK | limit)


def test_a_budget_for_chips_that_nobody_rents_out_says_so():
    with pytest.raises(ImpossibleError, match=f"^usd=1000000000: no price is published of {TRN3} under any pricing"):
        tm.train_run(DENSE, TRN3, usd=1e9, **ASK)
    with pytest.raises(ImpossibleError, match=r"^usd=1000000000: no source prices the server"):
        tm.train_run(DENSE, "trn1.32xlarge", usd=1e9, bill="owned", **ASK)


def test_a_model_that_fits_on_no_number_of_chips():
    spec = tm.system(GPU)
    tiny = replace(spec, id="tiny", chip=replace(spec.chip, hbm_bytes=1e6))
    with pytest.raises(ImpossibleError, match=r"^days=9: llama-3.1-8b does not fit on up to 1,048,576 chips of tiny"):
        tm.train_run(DENSE, tiny, days=9, **ASK)
    assert MOST == 2**20


def test_a_limit_that_holds_changes_nothing():
    run = tm.train_run(DENSE, GPU, chips=64, **ASK)
    held = tm.train_run(DENSE, GPU, chips=64, days=1e4, usd=1e9, **ASK)
    assert float(held.days) == float(run.days)
    edge = run.calendar_days().value
    assert tm.train_run(DENSE, GPU, chips=64, days=edge, **ASK).chips == 64


def test_a_system_that_cannot_is_refused_and_the_others_answer():
    some = tm.train_run(DENSE, [GPU, "mi300x-8", TRN3], days=30, **ASK)
    assert list(some.refused) == ["mi300x-8"]
    assert "has no public training stack" in some.refused["mi300x-8"]
    assert some.refused["mi300x-8"] in some.card()[-1]
    assert some.to_frame(True).role.tolist()[-1] == "refused"
    with pytest.raises(ImpossibleError, match=f"^days=0.001: {TRN3} takes at least .*; {GPU} takes at least"):
        tm.train_run(DENSE, [TRN3, GPU], days=0.001, **ASK)


def test_a_run_that_does_not_fit_stands_behind_those_that_do():
    runs = tm.train_run("llama-3.1-405b", [GPU, RACK], tokens=1e12, chips=72)
    assert [bool(run.valid) for run in runs.runs] == [True, False]
    assert runs.runs[1].reason == "does not fit in memory"
    assert "does not fit in memory" in runs.card()[-1]
    assert runs.leads.alone[GPU] == 0
    nothing = tm.train_run("llama-3.1-405b", [GPU, "hgx-h200"], tokens=1e12, chips=8)
    assert nothing.best is None
    assert nothing.leads.none == 1
    assert nothing.ties == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"systems": []}, "systems="),
        ({"systems": None}, "systems=None"),
        ({"systems": [GPU, 3]}, "systems=3"),
        ({"systems": ["no-such"]}, "systems='no-such'"),
        ({"systems": [GPU, replace(tm.system(GPU), status="analyst")]}, "systems='hgx-h100'"),
        ({"days": 0}, "days=0"),
        ({"days": float("nan")}, "days=nan"),
        ({"usd": -1}, "usd=-1"),
        ({"usd": "much"}, "usd='much'"),
        ({"bill": "leased"}, "bill='leased'"),
        ({"pricing": "barter"}, "pricing='barter'"),
        ({"region": "mars"}, "region='mars'"),
        ({"owner": "nobody"}, "owner='nobody'"),
        ({"owner": 3}, "owner=3"),
        ({"chips": 10**9}, "chips=1000000000"),
        ({"chips": 100, "systems": [TRN2, RACK]}, "chips=100: .* near are 64 and 128; .* near are 72 and 144"),
        ({"seq": 10**6}, "seq=1000000"),
    ],
)
def test_bad_questions_are_refused_by_name(changed, named):
    with pytest.raises(ValueError, match=named):
        tm.train_run(**{"model": DENSE, "systems": [GPU]} | ASK | changed)


def test_what_cannot_be_asked_of_runs(three):
    for call, named in (
        (lambda: three["hgx-h200"], "system='hgx-h200'"),
        (lambda: three.difference(GPU, "hgx-h200"), "b="),
        (lambda: three.difference(3, GPU), "a=3"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
    assert three["HGX H100"] is three[GPU]


def command(*words):
    return CliRunner().invoke(app, ["train", DENSE, "--tokens", "1T", "--seq", "2048", "--batch", "512", *words])


def test_the_command_says_who_is_first_and_json_has_every_figure(three):
    asked = "--systems", f"{TRN2}, {GPU},{TRN3},HGX-H100", "--chips", "576"
    assert command(*asked).stdout.splitlines()[-len(three.card()) :] == three.card()
    done = command(*asked, "--json")
    rows = json.loads(done.stdout)
    runs = [row for row in rows if row["what"] == "run"]
    assert [row["system"] for row in runs] == [run.system.id for run in three.runs]
    assert [row["role"] for row in runs] == ["first", "system", "system"]
    for row, run in zip(runs, three.runs, strict=True):
        for name in ("calendar_days", "owner_usd", "site_j"):
            assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
        assert row["site_j"] == pytest.approx(run.site_j().value)
    assert {row["system"] for row in rows if row["what"] == "degrees"} == {run.system.id for run in three.runs}
    assert len(three.card()) <= 16  # one screen


def test_one_system_has_its_own_report():
    run = tm.train_run(DENSE, GPU, tokens=1e12, chips=64, seq=2048, global_batch=512)
    said = command("--systems", GPU, "--chips", "64").stdout.splitlines()
    assert said == train_report.lines(run)
    assert any(line.startswith("energy at the site: ") and "MWh" in line for line in said)


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["--systems", GPU, "--days", "0.001"], 3, "--days=0.001: hgx-h100 takes at least"),
        (["--systems", f"{GPU},{RACK}", "--usd", "10"], 3, "--usd=10: hgx-h100 costs at least"),
        (["--systems", TRN3, "--usd", "10M"], 3, "--usd=10000000: no price is published"),
        (["--systems", f"{GPU},nowhere"], 2, "--systems='nowhere' is unknown"),
        (["--systems", f"{GPU},"], 2, "--systems=''"),
        (["--systems", GPU, "--bill", "leased"], 2, "--bill='leased': allowed are owned, rented"),
        (["--systems", GPU, "--region", "mars"], 2, "--region='mars'"),
        (["--systems", GPU, "--days", "0"], 2, "--days=0.0"),
        (["--systems", f"{TRN2},{RACK}", "--chips", "100"], 2, "--chips=100: trn2-ultraserver comes in domains"),
    ],
)
def test_bad_commands_end_in_one_line_and_a_status(words, status, line):
    done = command(*words)
    assert (done.exit_code, done.stdout) == (status, "")
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
