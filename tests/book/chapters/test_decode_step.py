"""A decode step taken apart: sums, limits, hand-made numbers, and what the chapter says of them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnbook.chapters import decode_step
from trnbook.shared import case
from trnmodel.catalog.stacks import IDEAL
from trnmodel.cli.app import app
from trnmodel.search.sizing import remedy, shortfall
from trnmodel.steps.deployment import Deployment

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
EXPERTS = Deployment(
    model="deepseek-v3", system="trn3-nl72x2-pcie160", mapping=tm.Mapping(tp=4, ep=64), precision="mxfp8"
)
INF2 = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))
HYBRID = Deployment(model="qwen3-next-80b-a3b", system="trn2.48xlarge", mapping=tm.Mapping(tp=16))
ONE = {"batch": 64, "context": 2048}
ASKED = {"tp": 4, "ep": 1, "batch": 4, "input_tokens": 4096, "output_tokens": 512}
SET = {"model": "llama-3.3-70b", "system": "trn2.48xlarge", "precision": "fp8", "stack": "public"} | ASKED


def check(**changed):
    return decode_step.check(**SET | changed)


def parts(step):
    return decode_step.parts({"it": step}).set_index("part").time_s


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2, HYBRID])
@pytest.mark.parametrize("ideal", [False, True])
def test_parts_add_up_to_the_step_and_lie_within_its_resources(d, ideal):
    step = (d.ideal if ideal else d).decode(**ONE)
    of = parts(step)
    assert of.sum() == pytest.approx(float(step.time_s))
    assert of.weights + of.cache == pytest.approx(float(step.memory_s))
    assert of.layers == pytest.approx(float(step.overhead_s))
    assert of.exchanges <= float(step.network_s) * (1 + 1e-9)
    assert of.compute <= float(step.compute_s) * (1 + 1e-9)
    assert (of >= 0).all()


def test_compute_shows_where_reads_do_not_hide_it():
    """At 512 sequences with next to no cache Trainium2 computes longer than it reads; its ridge is 230."""
    few, many = (parts(LLAMA.ideal.decode(batch=n, context=128)) for n in (128, 512))
    assert few.compute < 1e-9
    assert many.compute > 0.5 * many.weights


def test_a_step_that_cannot_exist_has_no_parts():
    steps = {n: LLAMA.decode(batch=n, context=4096) for n in (16, 100_000)}
    assert decode_step.parts(steps).what.unique().tolist() == [16]


def test_the_step_of_the_chapter_by_hand():
    """70.6 GB at 95 % of 2.9 TB/s, 4 x 4,608 x 328 kB at 44.5 %, 160 all-reduces of 2.5 us, 80 constants of 162 us."""
    _, mapping, sizes, software = check()
    assert sizes == {"batch": 4, "context": 4352, "max_context": 4608}
    of = parts(tm.decode_step("llama-3.3-70b", "trn2.48xlarge", mapping, **sizes, **software))
    assert of.weights == pytest.approx(70.555e9 / (2.9e12 * 0.95), rel=1e-3)
    assert of.cache == pytest.approx(4 * 4608 * (2 * 80 * 8 * 128 * 2) / (2.9e12 * 0.445), rel=1e-3)
    assert of.exchanges == pytest.approx(160 * 2.5e-6, rel=0.01)
    assert of.layers == pytest.approx(80 * 161.7e-6, rel=1e-3)
    assert of.compute < 1e-9


@pytest.mark.parametrize(
    ("model", "asked", "more"),
    [
        ("llama-3.3-70b", {}, {"new_tokens": 8}),
        ("deepseek-v3", {"ep": 16, "batch": 16, "stack": "vllm-neuron-2026-async"}, {}),
    ],
)
def test_the_line_of_the_running_case_is_that_call(model, asked, more):
    _, mapping, sizes, software = check(model=model, **asked)
    step = tm.decode_step(model, "trn2.48xlarge", mapping, **sizes, **software, **more)
    (line,) = (line for line in case.LINES if line.name == "Decode step")
    assert case.value(line, model, "trn2.48xlarge") == pytest.approx(float(step.time_s), rel=1e-9)
    assert parts(step).layers / float(step.time_s) == pytest.approx({"deepseek-v3": 0.49}.get(model, 0.29), abs=0.01)


def test_the_card_says_what_the_step_of_the_case_takes_with_drafts():
    _, mapping, sizes, software = check()
    ask = {"mapping": mapping, **sizes, **software}
    step = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", **ask)
    assert "also checks 7 drafted tokens per sequence and takes 44.7 ms" in decode_step.headline(step, step).data
    larger = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", **ask | {"batch": 8})
    assert "drafted" not in decode_step.headline(larger, larger).data


@pytest.mark.parametrize("changed", [{}, {"model": "deepseek-v3", "ep": 16, "batch": 16, "stack": "ideal"}])
def test_the_printed_command_gives_the_step(changed):
    asked = check(**changed)
    line = decode_step.command(asked, (SET | changed)["stack"]).data.splitlines()[1]
    said = CliRunner().invoke(app, [*line.split()[1:], "--json"])
    step = tm.decode_step((SET | changed)["model"], "trn2.48xlarge", asked.mapping, **asked.sizes, **asked.software)
    assert json.loads(said.stdout)["time_s"] == pytest.approx(float(step.time_s))


def test_the_fastest_user_is_that_of_the_card_of_the_plan():
    best = tm.plan("deepseek-v3", tm.Request(4096, 512, 1000), "trn3-nl72x2-pcie160").best
    said = decode_step.fastest(best).data
    assert "at most **43 tokens/s per user** (" in said
    assert "It runs on 8 chips at batch 1. The mapping is TP 32." in said
    assert "One fitted constant, `expert_core_s`, takes 86% of its step." in said


def test_more_ranks_shorten_the_reads_and_leave_the_constant():
    _, _, sizes, software = check()
    few, many = (
        parts(tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=tp), **sizes, **software)) for tp in (4, 8)
    )
    assert few.weights == pytest.approx(2 * many.weights, rel=0.01)
    assert few.layers == many.layers
    assert many.exchanges > few.exchanges


def test_bars_of_the_first_chart_stand_end_to_end():
    step = LLAMA.decode(batch=16, context=4096)
    bars = decode_step.cascade(step)
    assert bars.from_s.iloc[0] == 0
    assert bars.from_s.iloc[1:].tolist() == pytest.approx(bars.time_s.iloc[:-1].tolist())
    assert bars.time_s.iloc[-1] == pytest.approx(float(step.time_s))
    assert bars.what[2] == "compute, hidden"
    assert decode_step.described(step).startswith("BF16, TP 64, compiled for 16 x 4,096 tokens; together ")
    assert len(decode_step.described(EXPERTS.decode(batch=512, context=100_000))) < 90


def test_the_card_has_the_step_its_ends_and_what_it_rests_on():
    step = LLAMA.decode(batch=16, context=4096)
    said = decode_step.headline(step, LLAMA.ideal.decode(batch=16, context=4096)).data
    low, high = (f"{1e3 * float(end):.0f}" for end in step.ends("time_s"))
    assert f"**{1e3 * float(step.time_s):.0f} ms** ({low} to {high}; {step.basis})" in said
    assert f"constant per layer takes {100 * float(step.overhead_s / step.time_s):.0f}% of the step" in said
    assert "vllm-neuron-2026" in said
    assert "drafts" not in said
    ideal = LLAMA.ideal.decode(batch=16, context=4096)
    assert "No rival" in decode_step.headline(ideal, ideal).data


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2])
def test_operators_read_what_the_ideal_step_reads(d):
    step = d.ideal.decode(**ONE)
    assert decode_step.operators(step).memory_s.sum() == pytest.approx(float(step.memory_s), rel=1e-6)


def test_weights_of_a_step_by_hand():
    """139.06 GB / 64 ranks at a quarter of 2.9 TB/s: 3.0 ms; one sequence of 1,024 tokens adds 336 MB / 64: 7 us."""
    step = LLAMA.ideal.decode(batch=1, context=1024)
    assert float(step.memory_s) == pytest.approx((139.06e9 + 1024 * 327680) / 64 / 0.725e12, rel=1e-3)


def test_every_loss_of_a_stack_has_a_source():
    lost = decode_step.efficiency_table(LLAMA.e)
    assert lost.source.ne("").all()
    assert lost["what it is"].ne("").all()
    assert decode_step.efficiency_table(IDEAL).empty


def test_ideal_machine_turns_to_compute_at_its_ridge():
    """667 TFLOP/s / 2.9 TB/s = 230 FLOP/B: with next to no cache the turn lies between a batch of 128 and 512."""
    step = LLAMA.ideal.decode(batch=np.array([128.0, 256.0]), context=128)
    assert (step.compute_s > step.memory_s).tolist() == [False, True]


def test_a_prompt_is_padded_to_a_power_of_two():
    prompts = LLAMA.prefill(input_tokens=np.array([100, 128, 129, 2100, 4096]))
    assert prompts.compiled_tokens.tolist() == [128, 128, 256, 4096, 4096]
    assert prompts.time_s[3] == pytest.approx(prompts.time_s[4], rel=0.05)


def test_shares_of_operators_are_of_the_step():
    step = LLAMA.decode(batch=16, context=4096)
    table = decode_step.operators(step)
    assert (table.longer_s > 0).all()
    assert table.share_of_step.sum() < 1
    assert table.share_of_step.tolist() == pytest.approx((table.longer_s / float(step.time_s)).tolist())
    assert not table.operator.str.contains(": ").any(), "layers that are all alike have no name"
    assert decode_step.operators(EXPERTS.decode(batch=512, context=4096)).operator.str.contains(": ").any()


def test_constants_of_layers_move_a_step_by_what_they_are():
    """80 layers of 162 us: half of the constant takes 6.5 ms away, one and a half times adds 6.5 ms."""
    today = tm.efficiencies("trainium2")
    steps = [
        tm.decode_step(
            "llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), batch=4, context=4352, precision="fp8",
            efficiencies=decode_step.with_layer_constants(today, times),
        )
        for times in (0.5, 1.0, 1.5)
    ]  # fmt: skip
    assert np.diff([float(step.time_s) for step in steps]) == pytest.approx(80 * 161.7e-6 / 2, rel=1e-3)


def test_constants_of_layers_decide_the_running_case_on_trainium3():
    """What the prose says: half of them gives more than twice the throughput, half more almost none of it."""
    today, request = tm.efficiencies("trainium3"), case.request("deepseek-v3")
    half, fitted, more = (
        tm.plan(
            "deepseek-v3", request, "trn3-nl72x2-pcie160", precision="fp8",
            efficiencies=decode_step.with_layer_constants(today, times),
        ).best.tokens_per_s_per_chip
        for times in (0.5, 1.0, 1.5)
    )  # fmt: skip
    assert half > 2 * fitted > 10 * more


def test_unexplained_times_do_not_grow_with_the_ranks():
    rest = decode_step.unexplained().query("stack == 'vllm-neuron-2026'").set_index("ranks").layer_s
    assert len(rest) > 3
    assert 0.5 < rest.iloc[-1] / rest.iloc[0] < 2
    assert rest.median() == pytest.approx(tm.efficiencies("trainium2").dense_layer_s, rel=0.3)


def test_errors_are_those_of_pages_that_the_fit_has_not_seen():
    unseen, errors = decode_step.unseen(), decode_step.wrong()
    assert unseen.predicted_s.tolist() == pytest.approx((unseen.measured_s * (1 + unseen.error)).tolist())
    assert len(unseen) > 200
    said = decode_step.medians(errors, unseen).data
    assert "**14%** for dense models" in said
    assert f"{(unseen.error < -0.5).sum()} of {len(unseen)} steps took more than twice as long" in said
    assert "They ran dense models on Inferentia2 or Trainium1" in said
    assert errors.what.tolist() == ["dense models", "mixtures and hybrids"]
    assert errors.median_error[0] == pytest.approx(unseen.error.abs().median(), abs=0.03)
    assert (errors.median_error > errors.model_left_out_error).all(), "a page is harder to leave out than a model"
    assert (errors.model_left_out_error < errors.regression_error).all()


def test_what_lacks_is_weights_and_cache_over_the_ranks():
    """405.85e9 x 2 B = 811.7 GB and 16 x 4,096 tokens of 2 x 126 x 8 x 128 x 2 B = 33.8 GB: 787.4 GiB, and buffers."""
    big = Deployment(model="llama-3.1-405b", system="trn2.48xlarge", mapping=tm.Mapping(tp=1))
    need, _, have = shortfall(big, 16, 4096).removeprefix("does not fit: ").split()[:3]
    least = (405.85e9 * 2 + 16 * 4096 * 2 * 126 * 8 * 128 * 2) / 2**30
    assert least < float(need) < 1.02 * least
    assert float(have) == 96 / 4
    held = Deployment(model=big.model, system=big.system, mapping=tm.Mapping(tp=64))
    assert (remedy(big, 16, 4096), shortfall(held, 16, 4096)) == ("tp = 64 holds it", "")
    experts = Deployment(model="deepseek-v3", system="trn3-nl32x2-torus", mapping=tm.Mapping(tp=8))
    assert " with ep = " in remedy(experts, 16, 4096)
    nowhere = Deployment(model="deepseek-v3", system="inf2.xlarge", mapping=tm.Mapping())
    assert remedy(nowhere, 1, 128) == "no tp and ep hold it there"
