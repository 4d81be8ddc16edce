"""Trainium beside GPUs and TPUs: three orders of one plan, equal terms, common draws, arithmetic by hand."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import beside_gpus as tables
from trnbook.shared import case
from trnmodel.arguments import UnanswerableError
from trnmodel.search.frontier import formats

SYSTEM, MODEL = "trn3-nl32x2-pcie160", "llama-3.3-70b"
SYSTEMS = [SYSTEM, "trn2.48xlarge", "hgx-h100", "hgx-h200", "gb200-nvl72", "tpu-v6e-pod"]


@pytest.fixture(scope="module")
def side():
    return tm.compare(MODEL, case.request(MODEL), SYSTEMS, baseline=SYSTEM)


@pytest.fixture(scope="module")
def costs():
    return tm.token_cost(MODEL, case.request(MODEL), SYSTEMS, pricing={name: tm.tco(name) for name in SYSTEMS})


@pytest.fixture(scope="module")
def found(side, costs):
    return tables.measures(side, costs, {c.system.id: c.energy() for c in side.at()})


@pytest.fixture(scope="module")
def runs():
    return tm.validation(), tm.validate(tables.GPU_ROWS)


def test_each_chip_takes_the_first_format_that_it_computes_in():
    chosen = formats([*SYSTEMS, "hgx-a100", "trn1.32xlarge"], ["mxfp8", "fp8", "bf16"])
    assert list(chosen.values()) == ["mxfp8", *["fp8"] * 5, "bf16", "bf16"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"systems": [SYSTEM]}, "must hold a GPU or a TPU"),
        ({"models": {"model": MODEL, "experts_model": MODEL}}, "model and experts_model are both 'llama-3.3-70b'"),
        ({"lengths": (500_000, 512)}, "model = 'llama-3.3-70b' ends at 131072 tokens; 500512 are asked for"),
        ({"models": {"model": "bert-base-cased", "experts_model": MODEL}}, "model = 'bert-base-cased' is an encoder"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_its_parameter(given, said):
    usual = {"system": SYSTEM, "systems": SYSTEMS, "models": {"model": MODEL, "experts_model": "deepseek-v3"}}
    usual |= {"lengths": (4096, 512), "speeds": {"one": 50.0, "two": 20.0}}
    with pytest.raises(UnanswerableError, match=re.escape(said)):
        tables.check(**usual | given)


def test_a_model_that_the_compared_system_does_not_hold_is_refused():
    sides = {"llama-3.1-405b": tm.compare("llama-3.1-405b", tm.Request(512, 64), ["trn2.3xlarge", "hgx-h200"])}
    with pytest.raises(UnanswerableError, match=r"on system = 'trn2\.3xlarge': does not fit"):
        tables.must_fit(sides, "trn2.3xlarge")


def test_the_three_measures_are_those_of_one_plan_and_follow_by_hand(found):
    """A million tokens cost the price of an hour over what a chip makes in it."""
    for row in found.to_dict("records"):
        best = tm.plan(MODEL, case.request(MODEL), row["system"]).best
        assert row[tables.CHIP] == pytest.approx(best.tokens_per_s_per_chip, rel=1e-12)
        usd = float(tm.tco(row["system"]).useful_usd_per_h)
        by_hand = usd * 1e6 / (3600 * row[tables.CHIP])
        assert row[tables.DOLLAR] == pytest.approx(by_hand, nan_ok=True)
        joules = best.energy().server_j_per_token
        assert row[tables.JOULE] == pytest.approx(float(joules), nan_ok=True)
    made = found.set_index("system")[tables.CHIP]
    for name in set(case.SYSTEMS) & set(made.index):
        line = next(one for one in case.LINES if one.name == "Throughput per chip")
        assert made[name] == case.value(line, MODEL, name)


def test_every_figure_lies_between_its_ends(found):
    for name in tables.MEASURES:
        rows = found.dropna(subset=name)
        assert len(rows) > 3
        assert (rows[f"{name}_low"] <= rows[name]).all()
        assert (rows[name] <= rows[f"{name}_high"]).all()


def test_advantages_are_over_the_best_rival_in_each_measure():
    table = pd.DataFrame({"system": ["trn2.48xlarge", "hgx-h100", "hgx-h200", "trn2-ultraserver"]})
    table = table.assign(
        **{tables.CHIP: [2.0, 4.0, 1.0, 9.0], tables.DOLLAR: [3.0, 6.0, 9.0, 1.0], tables.JOULE: np.nan}
    )
    ahead = tables.advantage(table, "trn2.48xlarge")
    assert (ahead[tables.CHIP], ahead[tables.DOLLAR]) == (0.5, 2.0)
    assert np.isnan(ahead[tables.JOULE])


def test_the_drawing_has_each_column_in_its_own_order(found):
    class Texts(HTMLParser):
        said, place = [], None

        def handle_starttag(self, tag, attrs):
            self.place = dict(attrs) if tag == "text" else None

        def handle_data(self, data):
            if self.place:
                self.said.append((float(self.place["x"]), float(self.place["y"]), data))

    reader = Texts()
    reader.feed(tables.orders({MODEL: found})._repr_html_())
    for x, name in zip((tables.LEFT, (tables.LEFT + tables.RIGHT) / 2, tables.RIGHT), tables.MEASURES, strict=True):
        column = [
            text.removesuffix(" =").strip("$") for at, y, text in sorted(reader.said, key=lambda one: one[1]) if at == x
        ][1:]
        values = [float(text.replace(",", "")) for text in column if text != "–"]
        assert len(column) == len(found)
        assert values == sorted(values, reverse=name == tables.CHIP)


def test_a_rent_at_a_tie_makes_both_cost_the_same(side, found):
    """At 7.9 dollars per chip-hour Trainium3 costs per token what H200 costs at its rent."""
    table = tables.money(side.break_even(), found).set_index("system")
    made = found.set_index("system")[tables.CHIP]
    for name in ("hgx-h200", "gb200-nvl72"):
        row = table.loc[name]
        assert row.tie_usd_per_h / made[SYSTEM] == pytest.approx(row.rent_usd_per_h / made[name])
        assert row.tie_usd_per_h_low < row.tie_usd_per_h < row.tie_usd_per_h_high
    known = table.owner_usd_per_mtoken.dropna()
    assert known.is_monotonic_increasing
    assert SYSTEM not in table.index


def test_terms_are_ratios_of_plans_on_equal_terms(side):
    request = case.request(MODEL)
    ideal = tm.compare(MODEL, request, SYSTEMS, efficiencies="ideal").at()
    plain = [tm.plan(MODEL, request, s, efficiencies=e).best for s, e in tables.undrafted(MODEL, request, SYSTEMS)]
    asked = {(MODEL, "as asked"): side.at(), (MODEL, "ideal"): ideal, (MODEL, "plain"): plain, (MODEL, "none"): []}
    table = tables.terms(asked, SYSTEM).set_index("terms")
    assert list(table.index) == ["as asked", "ideal", "plain"]
    made = {c.system.id: c.tokens_per_s_per_chip for c in side.at()}
    rival = table.rival["as asked"]
    assert table[tables.TIMES]["as asked"] == pytest.approx(made[SYSTEM] / made[rival])
    assert made[rival] == max(made[name] for name in tables.rivals(made))
    assert not any(c.option.speculates for c in plain)
    low, value, high = (table.loc["ideal", f"{tables.TIMES}{end}"] for end in ("_low", "", "_high"))
    assert low == value == high
    assert tables.terms({}, SYSTEM).empty


def test_like_for_like_two_chips_of_one_bandwidth_are_one_speed():
    """8 x 4.9 and 8 x 4.8 TB/s read 70.6 GB of weights within 3 % of each other where nothing is lost."""
    ask = {"batch": 1, "context": 128, "precision": "fp8", "efficiencies": "ideal"}
    ours = tm.decode_step("llama-3.1-70b", "trn3-nl72x2-pcie160", tm.Mapping(tp=32), **ask).time_s
    other = tm.decode_step("llama-3.1-70b", "hgx-h200", tm.Mapping(tp=8), **ask).time_s
    assert ours / other == pytest.approx(4.8 / 4.9, rel=0.03)


def test_the_curves_show_what_keeps_the_promise_and_bands_of_some(side):
    curve = tm.compare(MODEL, case.request(MODEL), ["hgx-h200", SYSTEM], speeds=[20, 1e6])
    table = tables.points({MODEL: curve}, [SYSTEM])
    assert table.promised_tokens_per_s_per_user.tolist() == [20.0, 20.0]
    assert table.system.iloc[-1] == SYSTEM  # drawn over the grey ones
    assert table.set_index("system")[f"{tables.CHIP}_low"].notna().to_dict() == {"hgx-h200": False, SYSTEM: True}
    assert tables.points({}, []).empty
    assert tables.best_rival(side) in tables.rivals(SYSTEMS)


def test_measured_steps_are_those_of_the_sources(runs):
    """A step is in seconds, and its error is that of the validation."""
    steps = tables.measured_steps(*runs)
    assert set(steps.of) == {tables.NEURON, tables.OTHERS}
    assert ((steps.predicted_s / steps.measured_s - 1) - steps.error).abs().max() < 1e-9
    counts = steps.groupby("of").size()
    assert counts[tables.OTHERS] > 200
    assert counts[tables.NEURON] > 400
    assert not set(steps.chip[steps.of == tables.OTHERS]) & {"trainium1", "trainium2", "trainium3", "inferentia2"}
    assert steps.measured_s.between(1e-3, 60).all()


def test_no_measured_step_of_a_gpu_is_faster_than_the_ideal_machine(runs):
    from trnmodel.evidence import tables as evidence

    rows = evidence.table("other_chips")
    rows = rows[rows.question.isin(tables.STEPS) & (rows.reason == "") & ~rows.analytic & (rows.software == "ideal")]
    assert len(rows) >= 13
    assert (rows.error < 0).all()


def test_one_page_ran_both_chips(runs):
    """At two chips and 20 requests it made 564 tokens/s on Trainium2 and 939 on H100."""
    both = tables.one_author(runs[0])
    at = both[(both.chips == "2") & (both.batch == "20")].iloc[0]
    assert at.measured_ratio == pytest.approx(564.49 / 938.63)
    assert (both.predicted_ratio / both.measured_ratio).between(0.8, 1.3).all()


def test_grounds_say_who_leads_and_what_was_measured(side, runs):
    steps = tables.measured_steps(*runs)
    table = tables.grounds(side, {c.system.id: c.energy() for c in side.at()}, steps, "dense").set_index("system")
    lead = side.leads[50.0]
    assert table.share_of_draws["hgx-h200"] == lead.alone["hgx-h200"] + lead.shared["hgx-h200"]
    all_steps = table["steps of this kind of model"] + table["of other kinds"]
    assert all_steps["hgx-h100"] == (steps.chip == "h100").sum() > 100
    assert all_steps["tpu-v6e-pod"] == 0
    assert table["steps of this kind of model"][SYSTEM] == 0 < table["of other kinds"][SYSTEM]  # experts alone
    assert table.watts["tpu-v6e-pod"] == "not published"
    assert table.watts["hgx-h100"] == "of this chip"


def test_standings_hold_the_ratio_and_say_what_drafts_do(side, costs, found):
    """With one draw for all the range per dollar is the ratio, and without drafts Trainium makes less."""
    joules = {c.system.id: c.energy() for c in side.at()}
    pairs = tables.undrafted(MODEL, case.request(MODEL), SYSTEMS)
    plain = [tm.plan(MODEL, case.request(MODEL), s, efficiencies=e).best for s, e in pairs]
    asked = {(MODEL, "per chip"): side.at(), (MODEL, tables.NO_DRAFTS): plain}
    same = {name: np.full(3, float(costs[name, "public"].generated_usd_per_mtoken)) for name in SYSTEMS}
    table = tables.standing(asked, {MODEL: same}, {MODEL: joules}, {MODEL: found}, SYSTEM).set_index("terms")
    ahead = tables.advantage(found, SYSTEM)
    assert table[tables.TIMES]["per joule"] == pytest.approx(ahead[tables.JOULE])
    assert table[f"{tables.TIMES}_low"]["per joule"] < ahead[tables.JOULE] < table[f"{tables.TIMES}_high"]["per joule"]
    dollar = table.loc["per owner's dollar", [tables.TIMES, f"{tables.TIMES}_low", f"{tables.TIMES}_high"]]
    assert dollar.astype(float).to_numpy() == pytest.approx(ahead[tables.DOLLAR])
    assert table[tables.TIMES][tables.NO_DRAFTS] < table[tables.TIMES]["per chip"]
    shown = tables.shown_standing(table.reset_index())
    assert shown.count("\n") == 5
    said = tables.answer(table.reset_index(), {MODEL: side, "other": side}, SYSTEM)
    assert "if neither runs drafts" in said
    assert "no comparison" in tables.answer(table.reset_index()[:0], {MODEL: side, "other": side}, SYSTEM)


def test_four_systems_at_most_are_drawn(side):
    shown = tables.few(side, SYSTEM)
    assert shown[0] == SYSTEM
    assert shown[1] == "trn2.48xlarge"
    assert tables.best_rival(side) in shown
    assert shown[-1] == "tpu-v6e-pod"


def test_grounds_say_from_where_drafts_are_taken_over(side, runs):
    steps = tables.measured_steps(*runs)
    drafts = (
        tables.grounds(side, {c.system.id: c.energy() for c in side.at()}, steps, "dense").set_index("system").drafts
    )
    assert drafts[SYSTEM] == "yes, from Trainium2"
    assert drafts["trn2.48xlarge"] == "yes, its own"
    assert drafts["gb200-nvl72"] == "no, faster without"
    assert drafts["tpu-v6e-pod"] == "none documented"
