"""Small functions of the chapters at values that are worked out by hand, each on both sides of where it turns."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.shared import domain_sizes, placements, rack_power
from trnmodel.steps.deployment import Deployment

AIR, WIDE, TRN2 = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn2.48xlarge"


def place(model, system, mapping, precision, stack):
    return Deployment(model=model, system=system, mapping=mapping, precision=precision, stack=stack)


def test_twins_are_a_chip_and_its_like_in_the_other_rack():
    """Two ranks, one chip of each rack of 32, eight cores of a chip in four ranks: every 128th rank."""
    table = placements.exchanges("deepseek-v3", [AIR], [16])
    twins = table[table.experts_over == "twins"].iloc[0]
    site = tm.system(AIR)
    lnc = max(site.chip.lnc_choices + site.chip.lnc_announced)
    per_chip = 8 / lnc
    # of 8 experts of 256 on two chips each holds one with 1 - (128 over 8) / (256 over 8): 2 x 0.99626 copies
    copies = 2 * (1 - np.prod([(128 - k) / (256 - k) for k in range(8)]))
    asked = {"ranks": 2, "stride": 32 * per_chip, "lnc": lnc, "in_graph": True, "rate_share": 1.0}
    seconds = [tm.collective("all_to_all", width * 16 * copies * 7168 / per_chip, AIR, **asked) for width in (1, 2)]
    assert twins.layer_s == pytest.approx(sum(float(one.time_s) for one in seconds), rel=1e-9)


def test_placements_of_a_domain_in_words():
    """The first order nests TP inside the experts, the other the experts inside."""
    table = domain_sizes.placed(tm.system(AIR))
    orders = [order[0] for order in domain_sizes.ORDERS]
    assert table.inner.drop_duplicates().tolist() == orders
    assert (table.ep * table.tp * table.cp * table.dp == 64).all()


@pytest.mark.parametrize(("name", "value"), [("contexts", [0.5]), ("sizes", [-1.0]), ("rates", [-1.0])])
def test_sizes_and_contexts_out_of_range_are_refused(name, value):
    ask = {"sizes": [1e12], "rates": [20.0], "contexts": [1.0], "precisions": ["bf16"]} | {name: value}
    with pytest.raises(ValueError, match=f"{name}="):
        domain_sizes.ratios(["experts"], **ask)


def test_a_context_of_one_token_has_an_answer():
    table = domain_sizes.ratios(["experts"], [1e12], rates=[20.0], contexts=[1.0], precisions=["bf16"])
    assert table.ratio.notna().all()


def waits(*highs):
    rows = [
        {"model": "m", "wanted_tokens_per_s_per_user": 20.0, "public": 0.04, "public_low": 0.0, "public_high": high}
        for high in highs
    ]
    return pd.DataFrame(rows).assign(**{"hand-tuned": np.nan, "ideal": np.nan})


def test_throughput_between_batches_is_linear_in_the_speed():
    """30, 20, 10 tokens/s a user make 1, 4, 9 a chip; a fourth batch does not fit. 25 lies at 2.5, below 10 is 9."""
    user, chip = np.array([[30.0, 20.0, 10.0, np.nan]]), np.array([[1.0, 4.0, 9.0, np.nan]])
    found = domain_sizes._at(np.array([40.0, 30.0, 25.0, 20.0, 12.0, 10.0, 5.0]), user, chip)
    assert found[0].tolist() == [0, 1, 2.5, 4, 8, 9, 9]
    none = np.full((1, 4), np.nan)
    assert domain_sizes._at(np.array([1.0]), none, none).tolist() == [[0]]


def test_verdicts_stand_in_the_order_of_their_cases():
    sizes = [3e12, 4e12]
    rows = [
        (name, size, ratio)
        for name, ratios in (("z", (1.0, 2.0)), ("a", (2.0, 2.0)))
        for size, ratio in zip(sizes, ratios, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["software", "total_params", "ratio"])
    table = table.assign(precision="x", context=1, tokens_per_s_per_user=1, rule="x")
    found = domain_sizes.verdicts(table, 1.1, 3e12, 4e12)
    assert found[["software", "verdict"]].values.tolist() == [["z", "agrees"], ["a", "earlier"]]
    assert found.pays_from_params.tolist() == [4e12, 3e12]
    pd.testing.assert_frame_equal(found, domain_sizes.verdicts(table, 2.0, 3e12, 4e12))  # twice is at least twice
    assert domain_sizes.verdicts(table, 2.01, 3e12, 4e12).verdict.tolist() == ["later", "later"]
    at = domain_sizes.verdicts(table, 1.1, 2.9e12, 3e12)
    assert at.verdict.tolist() == ["later", "agrees"]  # from 3e12 on, which counts


def test_walls_of_a_domain_by_hand():
    """Two bytes a parameter: HBM over 2, and what is streamed in a 40th of a second over 2."""
    spec = tm.system(AIR)
    streamed, held = 64 * spec.chip.hbm_bytes_per_s, 64 * spec.chip.hbm_bytes
    (row,) = domain_sizes.walls([AIR], ["bf16"], [40]).itertuples(index=False)
    assert row[:3] == (AIR, "bf16", 40)
    assert row[3:] == pytest.approx((streamed / 40 / 2, held / 2))
    (row,) = domain_sizes.capacity(["llama-3.1-8b"], [AIR], ["bf16"]).itertuples(index=False)
    weights = tm.model("llama-3.1-8b").total_params * 2
    assert row[1:] == pytest.approx((weights / 2, "bf16", AIR, weights, held, weights / held * 2, weights / held))


def test_a_rack_may_draw_all_that_is_provisioned(monkeypatch):
    whole = rack_power._watts
    for left, fits in ((0.0, True), (-1e-9, False)):
        monkeypatch.setattr(rack_power, "_watts", lambda *asked, left=left: whole(*asked) | {"unnamed_w": left})
        assert bool(rack_power.rack_power(AIR).valid) is fits
