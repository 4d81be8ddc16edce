"""Experts on racks: bytes by hand, printed capacities, how a public model grew, and a verdict that can be followed."""

import json

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.shared import domain_sizes, placements
from trnmodel.models import synthetic as synthetic_models
from trnmodel.units import GB, GIB

SMALL, LARGE = domain_sizes.PAIR
OVER_BOTH, TP_ACROSS, CP_ACROSS = "EP of the pair", *list(placements.PLACEMENTS)[:2]


def sent(table, place):
    rows = table[(table.placement == place) & (table.bytes_per_token > 0)]
    return {(row.what, row.tier): row.bytes_per_token for row in rows.itertuples()}


def test_bytes_of_a_token_by_hand():
    """8 experts of 7,168 elements in two bytes are 114,688 B each way: 31/32 leave a chip, half the rack of two."""
    table = placements.traffic("deepseek-v3", SMALL)
    whole = 8 * 7168 * 2
    assert sent(table, TP_ACROSS) == {
        ("dispatch", "rack"): whole * 31 / 32,
        ("combine", "rack"): whole * 31 / 32,
        ("sums of TP", "pair"): 2 * 2 * 7168 * 2,  # two sums a layer, each of two racks sends the buffer once
    }
    assert sent(table, OVER_BOTH) == {
        (what, tier): whole * share
        for what in ("dispatch", "combine")
        for tier, share in (("rack", 1 / 2 - 1 / 64), ("pair", 1 / 2))
    }
    assert sent(table, CP_ACROSS)["partial attention", "pair"] == 2 * 128 * 512 * 2  # 128 heads of a latent of 512
    assert sent(table, CP_ACROSS)["dispatch", "rack"] == 2 * whole * 31 / 32  # both racks run every token


def test_one_copy_for_each_rack_crosses_less():
    """8 of 256 experts all lie in one of two racks with chance 2 * prod (128-i)/(256-i), so 1.99 racks are reached."""
    one_rack = np.prod([(128 - i) / (256 - i) for i in range(8)])
    table = placements.traffic("deepseek-v3", SMALL, "rack")
    assert sent(table, OVER_BOTH)["dispatch", "pair"] == pytest.approx(2 * (1 - one_rack) / 2 * 7168 * 2)
    few = 64 * (1 - np.prod([(252 - i) / (256 - i) for i in range(8)]))  # of 64 chips with 4 experts each
    assert sent(table, OVER_BOTH)["dispatch", "rack"] == pytest.approx(few * (1 - 2 / 64) * 7168 * 2)
    with pytest.raises(ValueError, match="copies='token'"):
        placements.traffic("deepseek-v3", SMALL, "token")


def test_steps_charge_the_bytes_of_the_table():
    """Without latency the network of EP over both racks is bound by what crosses: bytes x tokens x layers over AEC."""
    step = placements.steps("deepseek-v3", [SMALL], [256], context=1024, stack="ideal").set_index("placement")
    crossing = sum(
        value
        for (_, tier), value in sent(placements.traffic("deepseek-v3", SMALL), OVER_BOTH).items()
        if tier == "pair"
    )
    assert step.network_s[OVER_BOTH] == pytest.approx(58 * 256 * crossing / (16 * 8 * GB))


def test_exchange_of_experts_by_hand():
    """One token of DeepSeek-V3 on 32 chips: 8 of 256 experts hit d chips; 7,168 elements, 1 B out and 2 B back."""
    rows = placements.exchanges("deepseek-v3", [SMALL], [1]).set_index("experts_over")
    missed = np.prod([(248 - i) / (256 - i) for i in range(8)])
    one_way = 32 * (1 - missed) * (31 / 32) * 7168
    assert rows.dispatch_bytes["rack"] == pytest.approx(one_way)
    assert rows.layer_s["rack"] == pytest.approx(2 * 3.115e-6 + 3 * one_way / (31 * 512 * GB / 30))
    assert rows.step_s["rack"] == pytest.approx(58 * rows.layer_s["rack"])
    assert rows.chips.to_dict() == {"rack": 32, "twins": 2, "world": 64}


def test_the_share_of_latency_is_that_of_the_algorithm_taken():
    """Torus of 4 x 4 x 2 chips: the direct exchange starts once, 5 hops of 1.5 us a pass: 15 us of a layer for both.

    The phased one starts on each axis and takes less when empty: its time over a layer of the other is no share.
    """
    table = placements.exchanges("deepseek-v3", ["trn3-nl32x2-torus", SMALL, LARGE], 2.0 ** np.arange(0, 12))
    assert table.latency_share.between(0, 1).all()
    rack = table[(table.system == "trn3-nl32x2-torus") & (table.experts_over == "rack")].set_index("tokens_per_chip")
    assert rack.latency_share[32] == pytest.approx(2 * 5 * 1.5e-6 / rack.layer_s[32])
    assert rack.latency_share[2048] < 0.02


ON_LINKS = {"in_graph": True, "rate_share": 1.0}  # fabrics alone


@pytest.mark.parametrize("tokens", [1.0, 32.0, 512.0])
def test_latency_and_its_share_by_the_public_call(tokens):
    """The two passes again by `tm.collective`, its own choice of algorithm at each size, and that one when empty."""
    spec, chips = tm.system("trn3-nl32x2-torus"), 64
    row = placements.exchanges("deepseek-v3", [spec], [tokens]).set_index("experts_over").loc["world"]
    out = row.dispatch_bytes / (1 - 1 / chips)  # in one byte an element; two on the way back
    passes = [tm.collective("all_to_all", size, spec, chips, lnc=8, **ON_LINKS) for size in (out, 2 * out)]
    empty = [tm.collective("all_to_all", 0.0, spec, chips, str(one.algorithm), lnc=8, **ON_LINKS) for one in passes]
    assert row.layer_s == pytest.approx(sum(float(one.time_s) for one in passes))
    assert row.latency_share == pytest.approx(sum(float(one.time_s) for one in empty) / row.layer_s)


def test_a_switched_rack_beats_the_torus_in_the_rack():
    rows = placements.exchanges("deepseek-v3", [SMALL, "trn3-nl32x2-torus"], [256]).set_index(
        ["system", "experts_over"]
    )
    assert rows.layer_s["trn3-nl32x2-torus", "rack"] > 2 * rows.layer_s[SMALL, "rack"]


def test_a_large_exchange_of_the_world_is_the_golden_bound(root):
    """Half the send buffer over 128 GB/s of cables; the golden's bound for NL72x2."""
    rows = pd.read_csv(root / "tests" / "golden" / "fabric_all_to_all.csv")
    row = rows[rows.topology == "Trn3-NL72x2"].iloc[0]
    spec = tm.system(LARGE)
    found = tm.collective("all_to_all", row.S_bytes, spec, ranks=144, lnc=8, alpha_s=0.0, **ON_LINKS)
    assert float(found.time_s) * 1e6 == pytest.approx(float(row.time_us), rel=1e-6)


def test_dense_models_have_no_experts_to_place():
    for ask in (placements.traffic, lambda m, s: placements.exchanges(m, [s], [1])):
        with pytest.raises(ValueError, match="no routed experts"):
            ask("llama-3.1-70b", SMALL)


@pytest.mark.parametrize("rule", synthetic_models.growth())
def test_every_rule_starts_at_the_public_model(rule):
    public = tm.model("deepseek-v3")
    assert synthetic_models.synthetic(public.total_params, rule).total_params == public.total_params == 671026404352


@pytest.mark.parametrize("rule", synthetic_models.growth())
def test_sizes_are_reached(rule):
    made = synthetic_models.family([rule], [1e12, 3e12, 8e12])
    assert made.total_params.to_numpy() == pytest.approx([1e12, 3e12, 8e12], rel=0.01)
    assert (made.top_k == 8).all()


def test_more_experts_alone_is_how_kimi_k2_grew():
    """Kimi-K2 is DeepSeek-V3 with 384 experts, two more layers of them and half the heads: the rule asks for 395."""
    kimi = tm.model("kimi-k2-instruct")
    made = synthetic_models.family(["experts"], [kimi.total_params]).iloc[0]
    assert made.experts == pytest.approx(384, rel=0.04)
    assert made.active_params == pytest.approx(kimi.active_params(), rel=0.16)


def test_rules_need_the_keys_of_the_base():
    with pytest.raises(ValueError, match=r"base='llama-3\.1-8b'"):
        synthetic_models.synthetic(1e12, "together", "llama-3.1-8b")


def test_capacity_is_as_printed():
    """9,216 and 20,736 GiB a domain; DeepSeek-V3 in BF16 is 1.342 TB."""
    table = domain_sizes.capacity([tm.model("deepseek-v3")], domain_sizes.PAIR, ["bf16"])
    assert table.hbm_bytes.tolist() == [9216 * GIB, 20736 * GIB]
    assert table.weight_bytes.tolist() == pytest.approx([2 * 671026404352] * 2)
    assert table.rack_share.tolist() == pytest.approx((2 * table.domain_share).tolist())


def test_walls_by_hand():
    """64 x 4.9 TB/s in 20 ms are 6.272 TB: 3.136T in BF16; 144 chips stream 7.056T."""
    walls = domain_sizes.walls(domain_sizes.PAIR, ["bf16"], [50])
    assert walls.streams_params.tolist() == pytest.approx([3.136e12, 7.056e12])
    assert walls.fits_params.tolist() == pytest.approx([9216 * GIB / 2, 20736 * GIB / 2])


def best(model, system, rates):
    """Yields at users' rates at 8,192 tokens, and their places."""
    return domain_sizes.best(tm.model(model), tm.system(system), np.asarray(rates), [8192], "mxfp8", "exposed")


def test_best_is_no_worse_than_any_placement_of_the_text():
    named = placements.steps("kimi-k2-instruct", [LARGE], [4, 16, 64], context=8192).dropna()
    found, _ = best("kimi-k2-instruct", LARGE, named.tokens_per_s_per_user.to_numpy())
    assert (found >= 0.99 * named.tokens_per_s_per_chip.to_numpy()).all()


@pytest.mark.parametrize("system", domain_sizes.PAIR)
def test_degrees_use_every_chip(system):
    found = domain_sizes.placed(tm.system(system)).iloc[best("deepseek-v3", system, [10, 50, 100, 200])[1][0]]
    assert (found[["tp", "cp", "ep", "dp"]].prod(axis=1) == tm.system(system).chips).all()


def claimed(ratios):
    sizes = [2e12, 3e12, 4e12, 8e12]
    case = {"software": "x", "precision": "x", "context": 1, "tokens_per_s_per_user": 1, "rule": "x"}
    return pd.DataFrame({"total_params": sizes, "ratio": ratios}).assign(**case)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.0, 1.05, 1.2, np.inf], "agrees"),
        ([1.0, 1.5, 1.6, 2.0], "earlier"),
        ([1.0, 1.0, 1.0, 1.6], "later"),
        ([1.0, 1.0, 1.2, np.nan], "agrees"),
        ([1.0, np.nan, np.nan, np.nan], "no rate"),
    ],
)
def test_verdicts(ratios, verdict):
    found = domain_sizes.verdicts(claimed(ratios), 1.1, 3e12, 4e12).iloc[0]
    assert found.verdict == verdict


def test_the_claim_holds_for_bf16_at_a_slow_rate_and_not_for_four_bits():
    ask = {"rates": [20], "precisions": ["bf16", "w4a8"], "contexts": [8192]}
    table = domain_sizes.ratios(["together"], [2e12, 3e12, 4e12, 6e12], **ask)
    found = domain_sizes.verdicts(table, 1.1, 3e12, 4e12).set_index("precision").verdict
    assert found.to_dict() == {"bf16": "agrees", "w4a8": "later"}


def test_finer_batches_change_little(monkeypatch):
    coarse, _ = best("deepseek-v3", SMALL, [20, 50, 100])
    monkeypatch.setattr(domain_sizes, "BATCHES", 400)
    fine, _ = best("deepseek-v3", SMALL, [20, 50, 100])
    assert coarse == pytest.approx(fine, rel=0.01)


def test_what_rests_on_an_announced_logical_core_says_so():
    """A rank of a whole Trainium3 is LNC 8, which the SDK does not allow; Trainium2's exchanges are those of LNC 2."""
    steps = placements.steps("deepseek-v3", ["trn3-nl32x2-pcie160"], [16], context=8192)
    assert steps.announced.all()
    sent = placements.exchanges("deepseek-v3", ["trn3-nl32x2-pcie160", "trn2-ultraserver"], [16])
    assert sent.groupby("system").announced.all().to_dict() == {"trn2-ultraserver": False, "trn3-nl32x2-pcie160": True}
    grown = domain_sizes.ratios(["experts"], [1e12], rates=[20], precisions=["bf16"], contexts=[8192])
    assert grown.announced.all()
    ask = {"x": "experts_over", "y": "layer_s", "color": "system"}
    drawn = [
        charts.bars(table, **ask, caption="Dispatch and combine").to_dict() for table in (sent, sent[sent.announced])
    ]
    notes = [chart["title"]["subtitle"] for chart in drawn]
    assert notes == [[f"{how}: announced, not supported today"] for how in ("hollow", "all of it")]
    assert ["datum.announced" in json.dumps(chart) for chart in drawn] == [True, False]
    today = sent[~sent.announced]
    assert "subtitle" not in charts.bars(today, **ask, caption="Today").to_dict()["title"]
