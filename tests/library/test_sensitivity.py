"""Draws of uncertain inputs: their distributions, common draws, tornado and percentiles against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.search.sensitivity import ENDS, Uncertain, spans, uniform_draws

FLEET = tm.fleet()
JOB = {"system": "trn3-nl72x2-pcie160", "chips": 16_384, "checkpoint_bytes": 6.5e12}

LAWS = {
    "uniform": stats.uniform(2, 6),
    "triangular": stats.triang(0.25, 2, 6),  # mode 3.5
    "loguniform": stats.loguniform(2, 8),
}


@pytest.mark.parametrize("name", LAWS)
def test_quantiles_are_scipy_s(name):
    u = np.linspace(0.001, 0.999, 50)
    np.testing.assert_allclose(Uncertain(2.0, 3.5, 8.0, name).at(u), LAWS[name].ppf(u), rtol=1e-12)


def test_draws_are_uniform_and_the_whole_numbers_of_pcg64():
    drawn = uniform_draws("x", 100_000)
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert np.all(drawn * 2**53 % 1 == 0)
    bits = np.random.PCG64(np.random.SeedSequence([0, 0x8CDC1683]))  # CRC-32 of "x", as zip files have it
    np.testing.assert_array_equal(drawn[:9], np.random.Generator(bits).random(9))


def test_inputs_and_seeds_have_draws_of_their_own():
    one, other, again = uniform_draws("x", 4000), uniform_draws("y", 4000), uniform_draws("x", 4000, seed=1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
    assert abs(np.corrcoef(one, again)[0, 1]) < 0.05


def test_without_a_number_of_draws_there_are_10_000():
    assert tm.sensitivity(lambda x: x, {"x": (1, 9)}).values["answer"].shape == (10_000,)


def test_what_else_is_drawn_changes_no_draw():
    alone = tm.sensitivity(lambda x: x, {"x": (1, 9)}, draws=100)
    beside = tm.sensitivity(lambda x, y: x + 0 * y, {"y": (1, 2), "x": (1, 9)}, draws=100)
    np.testing.assert_array_equal(alone.values["answer"], beside.values["answer"])


def test_percentiles_are_those_of_the_law():
    """x + y of two uniforms from 0 to 1: triangular from 0 to 2, 5th percentile sqrt(2 x 0.05) = 0.316."""
    how = {"x": "uniform", "y": "uniform"}
    row = (
        tm.sensitivity(lambda x, y: x + y, {"x": (0, 1), "y": (0, 1)}, 200_000, distributions=how).percentiles().iloc[0]
    )
    assert (row["value"], row.undefined) == (1, 0)
    assert row.p5 == pytest.approx(np.sqrt(0.1), abs=4e-3)
    assert row.p50 == pytest.approx(1, abs=4e-3)
    assert row.p95 == pytest.approx(2 - np.sqrt(0.1), abs=4e-3)


def test_bars_of_a_sum_are_its_terms():
    """3 x + y + 0 z of uniforms from 0 to 1: bars of 0.9 times 3, 1, 0; shares of variance 9/10, 1/10, 0."""
    how = dict.fromkeys("xyz", "uniform")
    table = tm.sensitivity(
        lambda x, y, z: 3 * x + y + 0 * z, dict.fromkeys("xyz", (0, 1)), 50_000, distributions=how
    ).tornado()
    assert table.input.tolist() == ["x", "y", "z"]
    np.testing.assert_allclose(table.swing, [2.7, 0.9, 0], atol=1e-12)
    np.testing.assert_allclose(table.variance_share, [0.9, 0.1, 0], atol=0.01)
    np.testing.assert_allclose(table.low, ENDS[0])


def test_what_is_compared_shares_its_draws():
    """b is a little larger than a in every draw, though the two spread over the same range."""
    found = tm.sensitivity(lambda x: {"a": x, "b": x * 1.001}, {"x": (1, 100)}, draws=1000)
    assert found.wins().set_index("answer").wins.tolist() == [0, 1]
    assert found.wins(least=True).set_index("answer").wins.tolist() == [1, 0]


def test_a_spec_is_drawn_field_by_field_through_the_public_function():
    """Every draw is what the same question answers for a fleet with these numbers."""
    found = tm.sensitivity(lambda fleet: tm.goodput(fleet=fleet, **JOB), {"fleet": FLEET}, draws=64)
    for place in (0, 17, 63):
        fields = {
            label.partition(".")[2]: float(one.at(uniform_draws(label, 64)[place]))
            for label, one in found.inputs.items()
        }
        one = tm.goodput(fleet=replace(FLEET, ranges={}, **fields), **JOB)
        assert found.values["answer"][place] == pytest.approx(float(one.goodput), rel=1e-12)
    assert set(found.inputs) == {f"fleet.{name}" for name in FLEET.open_ranges}


def test_a_stack_is_drawn_through_a_decode_step():
    e = tm.efficiencies("trainium3", "hand-tuned")
    ask = {"mapping": tm.Mapping(tp=8), "batch": 16, "context": 4096}
    found = tm.sensitivity(
        lambda e: tm.decode_step("llama-3.3-70b", "trn3-nl32x2-pcie160", efficiencies=e, **ask), {"e": e}, 500
    )
    plain = tm.decode_step("llama-3.3-70b", "trn3-nl32x2-pcie160", efficiencies=e, **ask)
    table = found.percentiles().iloc[0]
    assert table["value"] == pytest.approx(float(plain.time_s), rel=1e-12)
    assert table.p5 < plain.time_s < table.p95
    assert found.tornado().input[0] == "e.layer_s"


def test_joules_of_a_token_are_drawn_over_chip_stack_power_and_site():
    """Keys of mappings ("power.byte_j[hbm]") are drawn too; the value of each answer is that of the plain question."""
    where, ask = tm.system("trn3-nl32x2-pcie160"), {"mapping": tm.Mapping(tp=8), "batch": 32, "context": 4096}
    given = {"chip": where.chip, "stack": tm.efficiencies(where.chip, "hand-tuned")}
    given |= {"power": facilities.power(where.chip), "site": facilities.facility("aws-air")}

    def joules(chip, stack, power, site):
        step = tm.decode_step("llama-3.3-70b", replace(where, chip=chip), efficiencies=stack, **ask)
        return tm.energy(step, power=power, facility=site).facility_j_per_token

    found = tm.sensitivity(joules, given, 400)
    row = found.percentiles().iloc[0]
    assert row["value"] == pytest.approx(float(joules(**given)), rel=1e-12)
    assert row.p5 < row["value"] < row.p95
    assert {"power.byte_j[hbm]", "chip.tdp_w", "site.annual_pue", "stack.layer_s"} <= set(found.inputs)
    one = {
        name: what.moved(
            {
                label.partition(".")[2]: float(span.at(uniform_draws(label, 400)[7]))
                for label, span in found.inputs.items()
                if label.startswith(name + ".")
            }
        )
        for name, what in given.items()
    }
    assert found.values["answer"][7] == pytest.approx(float(joules(**one)), rel=1e-9)


def test_the_same_seed_is_the_same_answer():
    one, other = (
        tm.sensitivity(lambda fleet: tm.goodput(fleet=fleet, **JOB), {"fleet": FLEET}, 300, 5) for _ in range(2)
    )
    np.testing.assert_array_equal(one.values["answer"], other.values["answer"])


def test_draws_without_an_answer_are_told():
    found = tm.sensitivity(lambda x: np.where(x > 0.5, np.nan, x), {"x": (0, 1)}, 4000, distributions={"x": "uniform"})
    row = found.percentiles().iloc[0]
    assert row.undefined == pytest.approx(0.5, abs=0.03)
    assert row.p95 < 0.5


def test_rates_and_times_are_drawn_evenly_in_logarithms_and_shares_evenly():
    found = spans({"fleet": FLEET})
    assert found["fleet.restart_s"].distribution == "loguniform"
    assert found["fleet.exposed_share"].distribution == "uniform"
    assert found["fleet.checkpoint_bytes_per_param"].distribution == "triangular"
    assert spans({"wait_s": (0.0, 1.0)})["wait_s"].distribution == "uniform"  # no logarithm of 0


ODD = {
    "ends out of order": (lambda x: x, {"x": (2, 1)}, {}, "inputs: x"),
    "a value outside": (lambda x: x, {"x": (1, 5, 2)}, {}, "inputs: x"),
    "nothing uncertain": (lambda x: x, {"x": replace(FLEET, ranges={})}, {}, "inputs"),
    "an answer that does not fit": (lambda x: x[:3], {"x": (1, 2)}, {}, "ask"),
    "words": (lambda x: "many", {"x": (1, 2)}, {}, "ask"),
    "a law that is none": (lambda x: x, {"x": (1, 2)}, {"distributions": {"x": "normal"}}, "distributions"),
    "a law of nothing": (lambda x: x, {"x": (1, 2)}, {"distributions": {"y": "uniform"}}, "distributions"),
    "a logarithm of 0": (lambda x: x, {"x": (0, 2)}, {"distributions": {"x": "loguniform"}}, "distributions"),
    "one draw": (lambda x: x, {"x": (1, 2)}, {"draws": 1}, "draws"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_questions_are_refused(name):
    ask, inputs, more, named = ODD[name]
    with pytest.raises(ValueError, match=named):
        tm.sensitivity(ask, inputs, **more)


def test_the_card_tells_the_band_and_what_moves_it():
    found = tm.sensitivity(lambda fleet: tm.goodput(fleet=fleet, **JOB), {"fleet": FLEET}, draws=500)
    card = "\n".join(found.card())
    assert card.startswith("Sensitivity: answer 0.9")
    assert "500 draws, seed 0" in card
    assert "fleet.restart_s" in card
    assert set(found.to_frame().answer) == {"answer"}
