"""Small functions of the searches at values that are worked out by hand, each on both sides of where it turns."""

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.catalog.options import plain
from trnmodel.cost import tco as cost
from trnmodel.power import energy as power
from trnmodel.reliability import redundancy
from trnmodel.search import deployments, launch, plan, sizing, train_report, train_run, trainings
from trnmodel.search.sensitivity import Sensitivity, Uncertain
from trnmodel.steps.deployment import Deployment

AIR, WIDE, TRN2 = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn2.48xlarge"


def place(model, system, mapping, precision, stack):
    return Deployment(model=model, system=system, mapping=mapping, precision=precision, stack=stack)


def test_a_draft_by_hand():
    d = place("llama-3.3-70b", AIR, tm.Mapping(tp=8, ep=1), "bf16", "hand-tuned")
    table = deployments.drafts(d, "llama-3.1-8b", 3, 4096, [4], [0.5]).iloc[0]
    verify = float(d.decode(batch=3, context=4096, new_tokens=5).time_s)
    draft = float(replace(d, model="llama-3.1-8b").decode(batch=3, context=4096).time_s)
    assert table.step_s == pytest.approx(verify + 4 * draft, rel=1e-12)
    assert table.tokens_per_step == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625)
    plain = float(d.decode(batch=3, context=4096).time_s)
    assert table.speedup == pytest.approx(1.9375 * plain / table.step_s, rel=1e-12)


def test_a_draft_model_has_the_sequences_of_one_group_and_at_least_one():
    """Five sequences over four groups of experts: each group drafts for 1.25; one sequence over four for one."""
    d = place("deepseek-v3", WIDE, tm.Mapping(tp=8, ep=64), "mxfp8", "ideal")
    small = place("llama-3.1-8b", WIDE, tm.Mapping(tp=8), "mxfp8", "ideal")
    for batch, own in ((640, 10), (64, 1)):
        table = deployments.drafts(d, "llama-3.1-8b", batch, 4096, [3], [1.0]).iloc[0]
        verify = float(d.decode(batch=batch, context=4096, new_tokens=4).time_s)
        draft = float(small.decode(batch=own, context=4096).time_s)
        assert table.step_s == pytest.approx(verify + 3 * draft, rel=1e-12)


def test_prefill_apart_is_one_line_a_system():
    d = place("llama-3.1-8b", AIR, tm.Mapping(tp=8), "bf16", "ideal")
    table = deployments.split_phases(d, [TRN2, "hgx-h200"], 16, 2048, 256)
    assert table.prefill_system.tolist() == [TRN2, "hgx-h200"]


@pytest.mark.parametrize(
    ("given", "system", "said"),
    [
        (5e5, "hgx-h200", "its price is given with the call"),
        (None, "hgx-h200", "of servers as sold, taken to another year"),
        (None, AIR, "nobody publishes one of trainium3; its parts are counted and estimated"),
    ],
)
def test_what_a_cost_rests_on(given, system, said):
    found = tm.tco(system, server_usd=given) if given else tm.tco(system)
    assert said in str(found.judge())
    assert found.judge().word == "extrapolated"


def test_where_a_break_even_is_looked_for():
    """Between cheap and dear of its kind: a chip, its watts, a switch lane, a server."""
    assert cost.BREAK_EVENS == {
        "chip_usd": (1e3, 1e4),
        "tdp_w": (100, 1000),
        "switch_usd_per_lane": (1, 100),
        "server_usd": (1e3, 1e5),
    }


def test_only_8_bit_caches_are_asked_of_a_server():
    m, mapping = tm.model("llama-3.1-8b"), tm.Mapping(tp=1)
    for kv, asked in (("fp8", True), ("bf16", False)):
        dtypes = tm.Precision(kv=kv)
        step = tm.decode_step(m, "hgx-h200", mapping, batch=4, context=2048, precision=dtypes)
        first = tm.prefill(m, "hgx-h200", mapping, input_tokens=1900, precision=dtypes)
        told = launch.command(m, plain(step.stack), step, first, dtypes, 1, 2304)
        assert ("--kv-cache-dtype fp8" in told) is asked
    assert launch.BUCKET == 128


def test_replicas_and_instances_are_whole():
    """A replica of 32 chips takes two machines of 16, one of 4 has four in a machine."""
    found = tm.plan("llama-3.3-70b", tm.Request(512, 128, tokens_per_s_per_user=20), TRN2, precision="bf16")
    best = found.best
    assert best.instances == np.ceil(best.chips / 16)
    assert best.replicas_per_instance == 16 // best.chips
    many = tm.plan("deepseek-v3", tm.Request(512, 128, tokens_per_s_per_user=5), "hgx-h200", precision="bf16")
    for one in many.choices:
        assert one.instances == np.ceil(one.chips / 8)
        assert one.replicas_per_instance == 8 // one.chips


def test_watts_rest_on_rows_of_the_chip_alone_where_it_has_an_idle_share():
    """H100 has a fitted idle share with a range; Trainium has no row, a chip of others none of its own."""

    def basis(system, **ask):
        step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=1), batch=8, context=1024)
        return tm.energy(step, **ask).judge()

    assert "watts" not in str(basis("hgx-h100"))
    assert "for none is published" in str(basis("trn2.48xlarge"))
    own = facilities.power(tm.chip("h100"))
    assert "are given with the call" in str(basis("hgx-h100", power=own))


def test_bars_of_a_joule_by_hand():
    """The error of the fit moves the chip's watts by its width both ways, up to its TDP, times the server's ratio."""
    step = tm.decode_step("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1), batch=64, context=2048)
    e, own = tm.energy(step), facilities.power(tm.chip("h100"))
    table = power.one_at_a_time(e).set_index("which")
    watts, width, value = float(e.chip_w), float(own.chip_width), float(e.server_j_per_token)
    low = value * (1 - own.server_ratio * watts * (1 - np.exp(-width)) / float(e.server_w))
    up = min(watts * np.exp(width), 700.0) - watts
    high = value * (1 + own.server_ratio * up / float(e.server_w))
    fit = table.loc["error of the fit"]
    assert (fit.server_j_per_token_low, fit.server_j_per_token_high) == (pytest.approx(low), pytest.approx(high))


def test_percentiles_from_the_least_to_the_largest():
    law = Uncertain(0.0, 5.0, 10.0, "uniform")
    values = {"answer": np.array([4.0, 1.0, np.nan, 3.0])}
    found = Sensitivity(
        seed=0,
        draws=4,
        inputs={"x": law},
        values=values,
        bars={"answer": np.array([2.0, 1.0, 3.0])},
        reason_mask=np.zeros(()),
    )
    row = found.percentiles([0, 50, 100]).iloc[0]
    assert row.tolist() == ["answer", 2.0, pytest.approx(8 / 3), 1.0, 3.0, 4.0, 0.25]
    with pytest.raises(ValueError, match=r"at=\[101\]: allowed are numbers from 0 to 100"):
        found.percentiles([101])


def test_the_longest_context_is_the_last_step_that_fits():
    """Of 131,072 tokens in steps of 128 x 4 or so: the largest of the contexts that `memory_fit` lets in."""
    d = place("llama-3.1-8b", TRN2, tm.Mapping(tp=4), "bf16", "ideal")
    table = sizing.longest_context(d, [1, 64, 100_000], [4]).set_index("batch")
    step = sizing.FIRST_BUCKET * np.ceil(131_072 / sizing.FIRST_BUCKET / sizing.MOST_CONTEXTS)
    assert step == 128 * np.ceil(1024 / sizing.MOST_CONTEXTS)
    for batch in (1, 64):
        context = float(table.context[batch])
        assert bool(d.fit(batch, context).valid)
        assert context == 131_072 or (context % step == 0 and not bool(d.fit(batch, context + step).valid))
    assert 0 < table.context[64] < 131_072
    assert table.context[100_000] == 0


def test_a_step_of_training_is_that_of_llama_3():
    """arXiv 2407.21783, table 4: 16 million tokens of sequences of 8,192 through most of the run, 2,048 sequences."""
    assert (train_run.BATCH_TOKENS, train_run.SEQ) == (16 * 2**20, 8192)


def test_a_run_at_another_share_of_the_peak():
    """Ten days at 40 % are 4 at all of it, and no machine has more."""
    run = SimpleNamespace(days=10.0, mfu=0.4)
    assert float(train_run.TrainRun.days_at(run, 1.0)) == 4
    for wrong in (1.001, 0.0):
        with pytest.raises(ValueError, match="mfu="):
            train_run.TrainRun.days_at(run, wrong)


def test_ends_are_columns_where_they_are_asked_for():
    request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    for found in (tm.plan("llama-3.1-8b", request, TRN2), tm.token_cost("llama-3.1-8b", request, [TRN2])):
        assert set(found.to_frame(bands=True).columns) - set(found.to_frame().columns) == {"low", "high"}


def test_dollars_of_an_owner_are_high_where_the_hour_and_the_days_are():
    run = tm.train_run("llama-3.1-8b", AIR, tokens=1e12, chips=64)
    useful = run.goodput()
    hour = tm.tco(AIR, owner="hyperscaler", goodput=useful)
    (fast, slow), (cheap, dear) = run.widths("days"), hour.widths("useful_usd_per_h")
    paid = run.owner_usd(useful=useful)
    assert cheap != dear
    assert paid.high / paid.value == pytest.approx(float(np.exp(np.hypot(slow, dear))), rel=1e-9)
    assert paid.low / paid.value == pytest.approx(float(np.exp(-np.hypot(fast, cheap))), rel=1e-9)


def test_a_tdp_that_is_given_makes_the_watts_of_the_rack():
    found, own = tm.tco("hgx-h100", tdp_w=300.0), facilities.power(tm.chip("h100"))
    assert float(found.all_in_w) == pytest.approx(300 * own.all_in_ratio)
    assert float(found.mean_w) == pytest.approx(float(found.all_in_w) * found.owner.mean_load_share)


def test_parts_of_a_guard():
    """A plane of 18 chips is 18 links of 8 lanes to a switch; 3 lanes, a cable and 2 switches: 3 x 5 + 11 + 2 x 7."""
    switch, cable = redundancy.guards(WIDE)
    assert (switch.groups, switch.parts, switch.lanes, switch.cables, switch.switches) == (8, 10, 144, 0, 1)
    assert (cable.groups, cable.parts, cable.spares, cable.lanes, cable.cables, cable.switches) == (1, 72, 0, 0, 1, 0)
    fleet = SimpleNamespace(lane_failures_per_s=5.0, cable_failures_per_s=11.0, switch_failures_per_s=7.0)
    assert switch._replace(lanes=3, cables=1, switches=2).failures_per_s(fleet) == 40.0


@pytest.mark.parametrize(
    ("weights", "context", "longest", "more"),
    [
        ("bf16", 256, 300, {"decode_context_length_buckets": [256]}),
        ("bf16", 256, 256, {}),
        ("bf16", 200, 300, {}),
        ("mxfp8", 200, 300, {"quantization": "mxfp8"}),
    ],
)
def test_options_of_vllm_neuron(weights, context, longest, more):
    found = launch._neuron(tm.Precision(weights=weights), 4, 1024, context, longest)
    sampling = {"on_device_sampling_config": {"all_greedy": True}}
    assert found == {"num_batched_tokens_buckets": [1024], "num_seqs_buckets": [4]} | sampling | more


def test_the_older_server_has_its_buckets_switched_on():
    m, mapping, ask = tm.model("llama-3.1-8b"), tm.Mapping(tp=8), {"max_context": 2304}
    step = tm.decode_step(m, "trn1.32xlarge", mapping, batch=4, context=2048, **ask)
    first = tm.prefill(m, "trn1.32xlarge", mapping, input_tokens=1900, **ask)
    told = launch.command(m, plain(step.stack), step, first, tm.Precision(), 1, 2304)
    config = json.loads(shlex.split(told)[-1])["override_neuron_config"]
    assert config.pop("context_encoding_buckets") == [int(first.compiled_tokens)]
    assert config.pop("token_generation_buckets") == [int(step.compiled_tokens)]
    assert config == {"logical_nc_config": 1, "enable_bucketing": True}


def test_a_stack_runs_where_the_chip_s_own_software_does():
    bare = replace(tm.chip("trainium3"), default_stack="", hand_tuned_stack="")
    assert launch.runs(tm.efficiencies("h200"), bare)
    assert launch.runs(tm.efficiencies("h200", "ideal"), tm.chip("trainium3"))
    assert not launch.runs(tm.efficiencies("h200"), tm.chip("trainium3"))


def test_a_choice_in_words_has_the_degrees_that_cut():
    request = tm.Request(512, 128, tokens_per_s_per_user=20)
    best = tm.plan("llama-3.1-8b", request, TRN2, precision="bf16", efficiencies="vllm-neuron-2026").best
    assert best.mapping == f"bf16, TP {best.tp:g}, LNC 2, batch {best.batch:g}"
    experts = replace(best, ep=2.0)
    assert experts.mapping == f"bf16, TP {best.tp:g} x EP 2, LNC 2, batch {best.batch:g}"
    ideal = tm.plan("llama-3.1-8b", request, "hgx-h100", precision="bf16", efficiencies="ideal").best  # no NeuronCores
    assert f"bf16, TP {ideal.tp:g}, batch {ideal.batch:g}" in ideal.mapping


def test_systems_that_do_what_the_best_does():
    choices = [
        SimpleNamespace(valid=True, merit=lambda merit=merit: merit, place=name)
        for name, merit in (("a", 100.0), ("b", 99.1), ("c", 98.9), ("d", 98.4))
    ]
    assert plan.Plan.same.fget(SimpleNamespace(choices=choices, merit=lambda c: c.merit())) == ["b"]
    slow = SimpleNamespace(valid=False, merit=lambda: 100.0, place="e")
    assert plan.Plan.same.fget(SimpleNamespace(choices=[choices[0], slow], merit=lambda c: c.merit())) == []


def test_how_much_may_be_drawn():
    draw = {"function": lambda x: x, "inputs": {"x": (1, 9)}}
    assert tm.sensitivity(**draw, draws=2, seed=2**32 - 1).seed == 2**32 - 1
    for wrong, most in (({"draws": 10**7 + 1}, 10**7), ({"draws": 2, "seed": 2**32}, 2**32 - 1)):
        with pytest.raises(ValueError, match=f"{most}|{most:g}"):
            tm.sensitivity(**draw, **wrong)


def test_a_short_run_is_told_in_hours():
    run = tm.train_run("llama-3.1-8b", TRN2, tokens=1e6, chips=16, global_batch=4)
    assert run.days < 1 / 24
    assert run.describe().startswith(f"{float(run.days) * 24:.2g} h (")
    with pytest.raises(ValueError, match="chips=1048577"):
        tm.train_run("llama-3.1-8b", TRN2, tokens=1e6, chips=2**20 + 1)


def test_what_a_run_says_of_lost_time_and_of_stated_shares():
    run = tm.train_run("llama-3.1-8b", AIR, tokens=1e12, chips=64)
    useful, rows = run.goodput(), trainings.at_stated_mfu(run)
    told = train_report._spent(run)[0]
    assert told.endswith(f", {100 * float(useful.goodput):.3g} % of the time of chips and spares is useful")
    said = "".join(train_report._stated(run))
    assert said.count("%") == len(rows) - 1 > 0
    assert f"at {100 * rows.mfu[1]:.3g} % ({rows.software[1]})" in said
    assert train_run.domains(AIR, 64).count == 1
    assert (train_run.domains(AIR, 127).chips, train_run.domains(AIR, 122).chips) == (128, 128)  # 64 x 2, 4.9 % more
    with pytest.raises(ValueError, match="near are 64 and 128"):
        train_run.domains(AIR, 121)


def test_what_a_chip_of_a_step_does():
    """Four ranks a chip and 64 chips are 256 ranks. An all-reduce over n sends 2 (n - 1) / n of 7 B, 11 times."""
    message = SimpleNamespace(kind="all_reduce", group="tp", message_bytes=7.0, count=11.0, parts=1)
    plain = {
        "pp": 1.0,
        "ep": 1.0,
        "cp": 1.0,
        "dp": 1.0,
        "ranks_per_chip": 4.0,
        "time_s": 2.0,
        "messages": (message,),
        "work_flop_per_rank": 3.0,
        "moved_bytes_per_rank": 5.0,
        "system": tm.system(AIR),
    }

    def of(tp, **more):
        return power._amounts(SimpleNamespace(**plain | {"tp": float(tp)} | more))

    for tp, within, beyond in (
        (4, False, False),
        (5, True, False),
        (8, True, False),
        (256, True, False),
        (257, False, True),
    ):
        assert (bool(of(tp).within), bool(of(tp).beyond)) == (within, beyond)
    assert of(4)[:4] == pytest.approx((2, 12, 20, 4 * 1.5 * 77))
    assert of(2)[:4] == pytest.approx((2, 6, 10, 2 * 77))  # half a chip, and with copies all of it
    assert of(2, dp=3.0)[:4] == pytest.approx((2, 12, 20, 4 * 77))
    many = {"pp": 3.0, "ep": 5.0, "cp": 7.0}
    assert [bool(x) for x in of(2, **many)[4:]] == [True, False]  # 210 ranks are 53 chips
    assert [bool(x) for x in of(3, **many)[4:]] == [False, True]  # 315 are 79
    bare = replace(tm.chip("trainium3"), scaleup_domain_chips=np.nan)
    assert [bool(x) for x in of(8, system=bare)[4:]] == [False, True]
    assert of(2, messages=()).sent_bytes == 0


def test_watts_of_a_chip_from_its_parts():
    """In 2 s at 0.5 pJ 200 TFLOP are 50 W, at 32 pJ 2 TB 32 W, 0.2 TB at 50 and 200 pJ 5 and 20 W; 175 W are static."""
    chip, shares = tm.chip("h100"), facilities.power(tm.chip("h100"))
    joules_ = {"hbm": 30e-12, "sbuf": 2e-12, "backplane": 50e-12, "network": 200e-12}
    shares = replace(shares, static_share=0.25, flop_j={"bf16": 0.5e-12}, byte_j=joules_)

    def watts(flop=200e12, within=False, beyond=False):
        amounts = power.Amounts(2.0, flop, 2e12, 0.2e12, np.array(within), np.array(beyond))
        return power.chip_watts(amounts, chip, "bf16", shares, power.MIDDLE)

    for medium, links in ({}, 0.0), ({"within": True}, 5.0), ({"beyond": True}, 20.0):
        found = watts(**medium)
        parts = [float(found[name]) for name in ("static_w", "operations_w", "memory_w", "links_w", "bottom_up_w")]
        assert parts == pytest.approx([175, 50, 32, links, 257 + links])
    assert watts(flop=2000e12)["bottom_up_w"] == 700  # 175 and 500 are less, with memory's 32 more than the TDP
    assert watts()["compute_utilisation"] == pytest.approx(200 / 2 / 989)
    assert watts()["hbm_utilisation"] == pytest.approx(1 / 3.35)


def test_a_useful_share_is_as_wide_as_its_ends():
    below, above = train_run._shares(SimpleNamespace(goodput=0.9, ends=lambda name: (0.8, 0.95)))
    assert np.exp([below, above]) == pytest.approx([9 / 8, 19 / 18])
