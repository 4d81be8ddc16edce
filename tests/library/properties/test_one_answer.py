"""Where two public routes can be asked the same question, they give the same number."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.steps.deployment import Deployment

MODELS = st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b"])
SYSTEMS = st.sampled_from(["trn1.32xlarge", "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h100"])
TP = st.sampled_from([4, 8, 16])
BATCH = st.sampled_from([1, 7, 64])
CONTEXT = st.integers(64, 16384)
PLANNED = st.sampled_from([("llama-3.1-8b", "trn2.48xlarge"), ("qwen3-30b-a3b", "trn3-nl72x2-pcie160")])
SPEED = st.sampled_from([15.0, 40.0])


def same9(one, other):
    np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-9)


few = settings(max_examples=8)
fewer = settings(max_examples=3)


def same(one, other):
    np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-12, equal_nan=True)


@few
@given(model=MODELS, system=SYSTEMS, tp=TP, batch=BATCH, context=CONTEXT)
def test_memory_of_a_step_and_of_a_fit(model, system, tp, batch, context):
    """Both count the cache of a decode step at the length that it is compiled for."""
    mapping = tm.Mapping(tp=tp)
    step = tm.decode_step(model, system, mapping, batch=batch, context=context)
    fit = tm.memory_fit(model, system, mapping, batch=batch, context=step.compiled_tokens, input_tokens=batch)
    if step.valid and fit.valid:
        same(step.memory_bytes_per_rank, fit.total_bytes)


@few
@given(model=MODELS, system=SYSTEMS, tp=TP, batch=BATCH, context=CONTEXT)
def test_a_deployment_and_the_calls(model, system, tp, batch, context):
    mapping = tm.Mapping(tp=tp)
    placed = Deployment(model=model, system=system, mapping=mapping)
    step = tm.decode_step(model, system, mapping, batch=batch, context=context)
    same(placed.decode(batch=batch, context=context).time_s, step.time_s)
    first = tm.prefill(model, system, mapping, input_tokens=context)
    same(placed.prefill(input_tokens=context).time_s, first.time_s)


@few
@given(model=MODELS, system=SYSTEMS, batch=BATCH, context=CONTEXT)
def test_a_mapping_that_is_legal_and_a_step_that_is(model, system, batch, context):
    """A step is refused for a rule exactly where `tm.legal` refuses the mapping at that length."""
    mapping = tm.Mapping(tp=np.array([1.0, 3.0, 8.0, 64.0, 1000.0]))
    step = tm.decode_step(model, system, mapping, batch=batch, context=context)
    legal = tm.legal(model, system, mapping, context=context)
    refused = {rule for text in np.ravel(legal.reason) for rule in text.split("; ")} - {""}
    for place, text in enumerate(np.ravel(step.reason)):
        said = {rule for rule in str(text).split("; ") if rule in refused}
        assert bool(said) == (not np.ravel(legal.valid)[place])


@few
@given(system=SYSTEMS, tp=TP, context=st.lists(CONTEXT, min_size=2, max_size=4, unique=True))
def test_a_sweep_and_one_call_over_an_array(system, tp, context):
    def time_s(context):
        return tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=tp), batch=4, context=context)

    table = tm.sweep(time_s, {"context": context}, progress=False)
    same(table.sort_values("context", kind="stable").time_s, time_s(np.sort(np.array(context, float))).time_s)


@few
@given(system=SYSTEMS, tp=TP, batch=BATCH, context=CONTEXT)
def test_the_terminal_and_the_library(system, tp, batch, context):
    typed = ["decode", "llama-3.1-8b", system, "--tp", tp, "--batch", batch, "--context", context, "--json"]
    done = CliRunner().invoke(app, list(map(str, typed)))
    step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=tp), batch=batch, context=context)
    assert done.exit_code == (0 if step.valid else 3)
    if step.valid:
        same(json.loads(done.stdout)["time_s"], float(f"{float(step.time_s):.12f}"))


@fewer
@given(of=PLANNED, speed=SPEED)
def test_a_plan_and_the_step_that_it_chose(of, speed):
    """What a plan says of its best point is what the calls say of that point."""
    model, system = of
    best = tm.plan(model, tm.Request(1024, 256, tokens_per_s_per_user=speed), system).best
    step = best.step
    again = tm.decode_step(
        model,
        system,
        best.degrees,
        batch=best.batch,
        context=1024 + 256 / 2,
        max_context=1024 + 256,
        precision=best.precision,
        efficiencies=best.stack,
        new_tokens=1 + best.option.draft_tokens,
    )
    same(step.time_s, again.time_s)
    if best.valid:  # prompts take a share of the time, and steps what is left
        same(best.tokens_per_s_per_user, (1 - best.prefill_utilisation) / best.times.decode_s)


RATE = st.sampled_from([None, 0.2, 50.0])


@fewer
@given(of=PLANNED, speed=SPEED, rate=RATE)
def test_a_token_cost_and_the_plan(of, speed, rate):
    """A cost is the price times the paid chip-seconds of what a plan chooses, and its band is that of the plan."""
    model, system = of
    request = tm.Request(1024, 256, tokens_per_s_per_user=speed, requests_per_s=rate)
    found, best = tm.token_cost(model, request, system, pricing=10.0), tm.plan(model, request, system)
    dearer = found.priced(25.0)
    for planned in (best.best, *best.other_software):
        one = found[system, planned.stack.kind]
        assert one.reason == planned.reason
        if not planned.valid:
            continue
        usd_per_chip_s = 10.0 / tm.units.HOUR * tm.units.MILLION
        same9(one.generated_usd_per_mtoken, usd_per_chip_s / planned.tokens_per_s_per_chip)
        same9(one.generated_usd_per_mtoken, usd_per_chip_s * planned.request_chip_s / 256)
        same9(one.prefill_usd_per_mtoken, usd_per_chip_s * planned.prompt_chip_s / 1024)
        same9(one.blended_usd_per_mtoken, usd_per_chip_s * planned.request_chip_s / 1280)
        same9(one.ends(one.FIGURE), usd_per_chip_s / 256 * np.array(planned.ends("request_chip_s")))
        same9(one.ends(one.FIGURE), usd_per_chip_s / np.array(planned.ends("tokens_per_s_per_chip"))[::-1])
        same9(one.ends("prefill_usd_per_mtoken"), usd_per_chip_s / 1024 * np.array(planned.ends("prompt_chip_s")))
        same9(dearer[system, planned.stack.kind].generated_usd_per_mtoken, 2.5 * one.generated_usd_per_mtoken)
        assert one.chance == planned.chance
        assert str(one.basis) == str(planned.basis)
        assert one.choice.mapping == planned.mapping


@fewer
@given(chips=st.sampled_from([64, 128]))
def test_a_training_run_and_its_step(chips):
    run = tm.train_run("llama-3.1-8b", "trn2.48xlarge", tokens=1e11, chips=chips, global_batch=256, seq=4096)
    days = run.tokens / (256 * 4096) * float(run.step.time_s) / tm.units.DAY
    same(run.days, days)


@few
@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
    system=SYSTEMS,
    size=st.sampled_from([2**16, 2**28]),
)
def test_ranks_and_chips_of_a_collective(kind, system, size):
    """All ranks of so many chips are a group of those chips."""
    where = tm.system(system)
    chips = min(4, int(where.chips))
    ranks = chips * where.chip.cores // where.chip.lnc_default if where.chip.core else chips
    same(tm.collective(kind, size, system, chips=chips).time_s, tm.collective(kind, size, system, ranks=ranks).time_s)


@few
@given(system=SYSTEMS, tp=TP, batch=BATCH, context=CONTEXT)
def test_energy_of_a_step_and_of_its_deployment(system, tp, batch, context):
    """A request's joules are those of its prefill and of its decode steps."""
    placed = Deployment(model="llama-3.1-8b", system=system, mapping=tm.Mapping(tp=tp))
    request = tm.energy(placed, batch=batch, request=tm.Request(context, 128))
    decode = tm.energy(request.decode.step)
    same(request.decode.server_j_per_token, decode.server_j_per_token)


@pytest.mark.parametrize("system", ["trn2.48xlarge", "hgx-h100"])
def test_an_owner_s_hour_in_a_token_cost(system):
    cost = tm.tco(system)
    request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    owned = tm.token_cost("llama-3.1-8b", request, system, pricing=cost)
    priced = tm.token_cost("llama-3.1-8b", request, system, pricing=float(cost.useful_usd_per_h))
    for one, other in zip(owned.lines, priced.lines, strict=True):
        same(one.generated_usd_per_mtoken, other.generated_usd_per_mtoken)
