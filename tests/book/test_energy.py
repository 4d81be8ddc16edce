"""Watts and joules as the chapter on power shows them: wrong arguments, and claims that can be true together."""

from dataclasses import replace

import pytest

import trnmodel as tm
from trnbook.chapters.power_claims import claim_sets
from trnmodel.catalog import facilities
from trnmodel.steps.deployment import Deployment

LLAMA = {"model": "llama-3.1-70b", "batch": 64, "context": 2048}


def asked(system="hgx-h100", tp=8, **more):
    return tm.energy(tm.decode_step(system=system, mapping=tm.Mapping(tp=tp), **LLAMA | more))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tm.energy("trn2"), "step='trn2': allowed is a step"),
        (lambda: tm.energy(asked().step, facility="aws"), "facility='aws' is unknown"),
        (lambda: tm.energy(Deployment(model="llama-3.1-8b", system="hgx-h100", mapping=tm.Mapping())), "request=None"),
        (lambda: claim_sets(tolerance=1.01), "tolerance=1.01"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_claims_that_can_be_true_together():
    """4.4 / (144 / 64) = 1.956 times a chip; 1 / (1 - 0.4) = 1.667 times the work for each joule.

    4.4 times compute at 4 times efficiency is 0.489 of a Trainium2's watts: 0.489 x 500 = 244 W, below any reading of
    the TDP of Trainium3; at 40 % less power it is 1.173 x 500 = 587 W.
    """
    exact = claim_sets(tolerance=0.0, reading="energy").set_index("claims")
    assert len(exact) == 31
    both = exact.loc["peak compute + efficiency"]
    assert (both.chip_w_low / 383, both.chip_w_high / 617) == pytest.approx((4.4 * 64 / 144 / 4,) * 2)
    assert both.agree
    assert not both.meets_tdp
    press = exact.loc["peak compute + power for equal work"]
    assert press.chip_w_high == pytest.approx(4.4 * 64 / 144 * 0.6 * 617)
    assert press.meets_tdp
    for pair in ("efficiency + power for equal work", "efficiency + tokens per MW"):
        assert not exact.agree[pair]
    assert not exact.agree["tokens per MW + power for equal work"]
    assert claim_sets(tolerance=0.25).set_index("claims").agree["efficiency + tokens per MW"]


def test_three_of_the_claims_are_one_if_less_power_means_watts():
    """3 / 5 = 0.6, which is 40 % less: speed, tokens per megawatt and the press say one thing, exactly.

    Read as joules, 40 % less is 1 / 0.6 = 1.67 times the work per joule, and 5 times is three times that.
    """
    three = "speed + tokens per MW + power for equal work"
    exact = claim_sets(tolerance=0.0).set_index("claims")
    assert exact.agree[three]
    assert exact.power_low[three] == exact.power_high[three] == pytest.approx(3 / 5)
    assert exact.chip_w_high[three] == pytest.approx(0.6 * 617)
    assert not exact.agree[f"efficiency + {three.split(' + ', 1)[1]}"]  # 4 is not over 5
    assert not claim_sets(tolerance=0.0, reading="energy").set_index("claims").agree[three]
    cut = replace(facilities.claims(), claimed_cut={"power for equal work": 0.5})
    less = claim_sets(tolerance=0.0, claims=cut).set_index("claims").loc[three]
    assert less.agree  # half the power at up to 3 times the speed and over 5 times the tokens: at 3, 6 times
    more = replace(facilities.claims(), claimed_cut={"power for equal work": 0.3})
    assert not claim_sets(tolerance=0.0, claims=more).set_index("claims").agree[three]  # 0.7 x 5 = 3.5 times the speed
    with pytest.raises(ValueError, match="reading"):
        claim_sets(reading="watts")
