"""The sizing call: it equals single calls tried one by one, every cell computes again, and odd questions are told."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, permutations, product

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import systems as catalog
from trnmodel.models.shipped import MODELS
from trnmodel.search import grid as tried
from trnmodel.search.plan import SAME, plan
from trnmodel.search.single import TIED

CHAT = tm.Request(1024, 256, tokens_per_s_per_user=40)
MIDDLE, LONGEST = 1024 + 256 / 2, 1024 + 256
PLAIN = "vllm-neuron-2026"  # Neuron's public server, without a documented option


def moved(name: str, **shares: float) -> tm.System:
    """A system whose chip has so many times a number, its peaks among them."""
    spec = tm.system(name)
    now = {one: getattr(spec.chip, one) for one in shares}
    values = {
        one: {kind: share * x for kind, x in now[one].items()} if hasattr(now[one], "items") else share * now[one]
        for one, share in shares.items()
    }
    return replace(spec, chip=replace(spec.chip, **values))


def paid(system: tm.System, chips: float) -> float:
    """Chips that are paid for a replica: a domain's over the replicas that it holds, or whole domains."""
    held = system.chips // chips
    return system.chips / held if held else np.ceil(chips / system.chips) * system.chips


def waits(busy, service_s, quantile):
    """The wait for prompts of fixed time: that of those that wait is exponential, with the mean s / (2 (1 - rho))."""
    return service_s / (2 * (1 - busy)) * np.log(busy / (1 - quantile)) if busy > 1 - quantile else 0.0


def one_by_one(model, system, request, precision, stack, shapes, batches):
    """The most that single calls make of a paid chip, with the mapping and batch: lambda = B / (o t + B P)."""
    best, spec, e = (0.0, ()), tm.system(system), tm.efficiencies(tm.system(system).chip, stack)
    o, v = request.output_tokens, request.tokens_per_s_per_user
    prompt, context, longest = request.input_tokens, request.input_tokens + o / 2, request.input_tokens + o
    ask = {"precision": precision, "efficiencies": stack}
    for tp, ep, pp, cp in shapes:
        mapping = tm.Mapping(tp=tp, ep=ep, pp=pp, cp=cp)
        groups = ep * pp
        own = tm.prefill(model, system, mapping, input_tokens=prompt, batch=groups, max_context=longest, **ask)
        if not own.valid:
            continue
        p = float(own.time_s) / groups
        for batch in batches * ep:
            held = {"context": longest, "input_tokens": prompt, "prompts": min(groups, batch), "batch": batch}
            step = tm.decode_step(model, system, mapping, batch=batch, context=context, max_context=longest, **ask)
            if not (step.valid and tm.memory_fit(model, system, mapping, **held, **ask).valid):
                continue
            t = float(step.time_s)
            rate = batch / (o * t + batch * p)
            if e.batch_bucket == "maximum":  # a graph of B sequences takes t, however many are active
                rate = min(rate, (1 - v * t) / p)
            elif 1 / (t + batch * p / o) < v:
                continue
            made = rate * o / paid(spec, float(step.occupied_chips))
            best = max(best, (made, (tp, ep, pp, cp, float(batch))))
    return best


SMALL = [
    ("llama-3.1-8b", "trn2.3xlarge", CHAT, "bf16", PLAIN),
    ("qwen3-30b-a3b", "trn2.3xlarge", CHAT, "fp8", PLAIN),
    ("qwen3-30b-a3b", "trn2.3xlarge", tm.Request(2000, 100, tokens_per_s_per_user=15), "fp8", "hand-tuned-neuron"),
    ("llama-3.1-8b", "trn2.3xlarge", tm.Request(4096, 64, tokens_per_s_per_user=25), "fp8", "ideal"),
    ("mixtral-8x7b", "trn2.3xlarge", tm.Request(512, 512, tokens_per_s_per_user=30), "fp8", "ideal"),
]


@pytest.mark.parametrize(("model", "system", "request_", "precision", "stack"), SMALL)
def test_a_plan_is_the_best_of_single_calls(model, system, request_, precision, stack):
    e = tm.efficiencies(tm.system(system).chip, stack)
    sizes = [1.0, 2.0, 4.0]
    more = [1.0] if e.kind == "public" else sizes
    experts = sizes if tm.model(model).outline().experts else [1.0]
    shapes = [one for one in product(sizes, experts, more, more) if np.prod(one) <= 4]  # of a chip at LNC 2
    batches = tried.PER_RANK if e.kind == "public" else tried.PER_RANK[::3]
    made, place = one_by_one(model, system, request_, precision, e, shapes, batches)
    best = plan(model, request_, system, precision=precision, efficiencies=e).best
    assert made > 0
    if e.kind == "public":
        assert (best.tp, best.ep, best.pp, best.cp, best.batch) == place
        assert best.tokens_per_s_per_chip == pytest.approx(made, rel=1e-9)
    else:  # a third of the batches: none of them makes more than the plan's
        assert made * (1 - 1e-9) <= best.tokens_per_s_per_chip
        again = one_by_one(
            model,
            system,
            request_,
            precision,
            e,
            [(best.tp, best.ep, best.pp, best.cp)],
            np.array([best.batch / best.ep]),
        )
        assert best.tokens_per_s_per_chip == pytest.approx(again[0], rel=1e-9)


def test_the_best_of_several_systems_and_precisions_is_the_best_of_plans_of_each():
    systems, precisions = ["trn1.32xlarge", "trn2.48xlarge", "trn3-nl16-torus"], ("bf16", "fp8", "mxfp8")
    alone = {
        (name, one): plan("llama-3.1-8b", CHAT, name, precision=one).best.tokens_per_s_per_chip
        for name in systems
        for one in precisions
        if tried.computes(name, one)
    }
    answer = plan("llama-3.1-8b", CHAT, systems)
    for c in answer.choices:
        assert c.tokens_per_s_per_chip == max(made for (name, _), made in alone.items() if name == c.system.id)
    assert answer.best.tokens_per_s_per_chip >= (1 - TIED) * max(alone.values())


def test_the_best_option_is_the_best_of_options_that_are_named():
    each = {
        name: plan("llama-3.1-8b", CHAT, "trn2.3xlarge", efficiencies=name).best.tokens_per_s_per_chip
        for name in (PLAIN, "neuron-async", "neuron-eagle3-llama-3.1-8b")
    }
    best = plan("llama-3.1-8b", CHAT, "trn2.3xlarge").best
    assert best.tokens_per_s_per_chip == max(each.values())
    assert each[best.option.id] == max(each.values())
    assert each["neuron-async"] > each[PLAIN]


def test_every_cell_is_read_from_single_calls():
    answer = plan("llama-3.3-70b", CHAT, ["trn2.48xlarge", "trn3-nl72x2-pcie160"], efficiencies=PLAIN)
    frame = answer.to_frame(bands=True)
    assert set(frame.role) == {"best", "system", "mapping"}
    for line in frame.itertuples():
        ask = {"precision": line.precision, "efficiencies": line.stack, "max_context": LONGEST}
        mapping = tm.Mapping(tp=line.tp, ep=line.ep, pp=line.pp, cp=line.cp)
        step = tm.decode_step(answer.model, line.system, mapping, batch=line.batch, context=MIDDLE, **ask)
        first = tm.prefill(answer.model, line.system, mapping, input_tokens=1024, **ask)
        t, p = float(step.time_s), float(first.time_s)
        rate = min(line.batch / (256 * t + line.batch * p), (1 - 40 * t) / p)
        assert (line.ep, line.pp) == (1, 1)
        assert line.requests_per_s_per_replica == pytest.approx(rate)
        assert line.tokens_per_s_per_user == pytest.approx((1 - rate * p) / t)
        assert line.tokens_per_s_per_user >= 40 * (1 - 1e-12)
        assert line.tokens_per_s_per_chip == pytest.approx(rate * 256 / line.paid_chips)
        assert line.request_chip_s == pytest.approx(line.paid_chips / rate)
        assert line.prompt_chip_s == pytest.approx(p * line.paid_chips)
        assert line.decode_tokens_per_s_per_chip == pytest.approx(line.batch / t / line.chips)
        assert line.sequences_in_flight == pytest.approx(rate * 256 * t / (1 - rate * p))
        assert line.prefill_utilisation == pytest.approx(rate * p)
        server = step.stack.server_first_token_s
        assert line.ttft_s == pytest.approx(server + p + t / 2 + waits(rate * p, p, 0.99))  # half a step is under way
        assert line.low <= line.tokens_per_s_per_chip <= line.high


@pytest.mark.parametrize("percentile", [99.0, 50.0, 90.0])
def test_a_limit_of_the_first_token_by_hand(percentile):
    """At the best batch the load rises until the percentile of the wait and the prompt meet the limit."""
    limit = 0.3
    request = tm.Request(1024, 256, tokens_per_s_per_user=20, ttft_s=limit, ttft_percentile=percentile)
    best = plan("llama-3.1-8b", request, "trn2.3xlarge", precision="bf16", efficiencies=PLAIN).best
    ask = {"precision": "bf16", "efficiencies": PLAIN, "max_context": LONGEST}
    mapping = tm.Mapping(tp=best.tp)
    p = float(tm.prefill("llama-3.1-8b", "trn2.3xlarge", mapping, input_tokens=1024, **ask).time_s)
    t = float(tm.decode_step("llama-3.1-8b", "trn2.3xlarge", mapping, batch=best.batch, context=MIDDLE, **ask).time_s)
    shares = np.linspace(0, 0.999, 100_001)
    first = tm.efficiencies("trainium2", PLAIN).server_first_token_s + p + t / 2
    within = [busy for busy in shares if first + waits(busy, p, percentile / 100) <= limit]
    busy = min(max(within), best.batch * p / (256 * t + best.batch * p), 1 - 20 * t)
    assert best.prefill_utilisation == pytest.approx(busy, abs=2e-5)
    assert best.ttft_s <= limit * (1 + 1e-9)
    free = plan(
        "llama-3.1-8b", replace(request, ttft_s=None), "trn2.3xlarge", precision="bf16", efficiencies=PLAIN
    ).best
    assert best.tokens_per_s_per_chip <= free.tokens_per_s_per_chip


def test_a_limit_costs_more_the_more_requests_it_holds_for():
    made = []
    for percentile in (50, 90, 99, 99.9):
        request = tm.Request(1024, 256, tokens_per_s_per_user=20, ttft_s=0.3, ttft_percentile=percentile)
        made.append(plan("llama-3.1-8b", request, "trn2.3xlarge").best.tokens_per_s_per_chip)
    assert made == sorted(made, reverse=True)
    assert made[0] > made[-1]


def test_a_cached_prefix_is_a_shorter_prompt_after_past_tokens():
    request = tm.Request(4096, 256, tokens_per_s_per_user=20, prefix_share=0.75)
    best = plan("llama-3.1-8b", request, "trn2.3xlarge", precision="bf16", efficiencies=PLAIN).best
    where = ("llama-3.1-8b", "trn2.3xlarge", tm.Mapping(tp=best.tp))
    ask = {"precision": "bf16", "efficiencies": PLAIN, "max_context": 4352}
    p = float(tm.prefill(*where, input_tokens=1024, past=3072, **ask).time_s)
    t = float(tm.decode_step(*where, batch=best.batch, context=4224, **ask).time_s)
    rate = min(best.batch / (256 * t + best.batch * p), (1 - 20 * t) / p)
    assert best.tokens_per_s_per_chip == pytest.approx(rate * 256 / best.paid_chips, rel=1e-9)
    whole = plan("llama-3.1-8b", replace(request, prefix_share=0), "trn2.3xlarge", precision="bf16", efficiencies=PLAIN)
    assert best.tokens_per_s_per_chip > whole.best.tokens_per_s_per_chip


@pytest.mark.parametrize(("model", "system"), [("llama-3.3-70b", "trn3-nl32x2-pcie160"), ("llama-3.1-8b", "hgx-h100")])
def test_a_longer_cached_prefix_never_makes_less(model, system):
    """Where all of a prompt is cached, software that drafts is tried as before: its drafts are of the answer.

    The few tokens that are left fill a block of 128, so that more of them in the cache is a little more to read.
    """
    made = []
    for share in (0.0, 0.5, 0.99, 0.9999, 1.0):
        request = tm.Request(4096, 512, tokens_per_s_per_user=50, prefix_share=share)
        made.append(plan(model, request, system).best.tokens_per_s_per_chip)
    assert all(more >= less * (1 - 1e-3) for less, more in pairwise(made)), made
    assert made[-1] > 1.2 * made[0]


@pytest.mark.parametrize("rate", [0.01, 3.0, 70.0, 1000.0])
def test_a_rate_pays_whole_replicas_on_whole_systems(rate):
    """A hundredth of a request a second pays one system; a thousand pay as many as hold the replicas."""
    request = tm.Request(1024, 256, tokens_per_s_per_user=40, requests_per_s=rate)
    best = plan("llama-3.1-8b", request, "trn2.48xlarge").best
    replicas = np.ceil(rate / best.requests_per_s_per_replica - 1e-9)
    systems = np.ceil(replicas / (16 // best.chips))
    assert best.tokens_per_s_per_chip == pytest.approx(rate * 256 / (16 * systems))


def test_chips_that_a_mapping_leaves_idle_are_paid():
    """A replica on 64 of 144 chips fits twice and pays 72; one on 16 chips fits nine times and pays 16; 32: 36."""
    best = plan("deepseek-v3", CHAT, "trn3-nl72x2-pcie160", efficiencies="hand-tuned").best
    held = 144 // best.chips
    assert best.paid_chips == 144 / held
    made = best.requests_per_s_per_replica * 256 / best.paid_chips
    assert best.tokens_per_s_per_chip == pytest.approx(made)
    for chips, each in ((16, 16), (32, 36), (64, 72), (128, 144), (288, 288), (150, 288)):
        assert paid(tm.system("trn3-nl72x2-pcie160"), chips) == each
        assert tried.paid_chips(tm.system("trn3-nl72x2-pcie160"), np.array(float(chips))) == each


MOVED = ("hbm_bytes_per_s", "peak_flop_per_s", "hbm_bytes", "scaleup_bytes_per_s_per_dir")
WIDER = [("llama-3.1-8b", "trn2.3xlarge", "ideal"), ("qwen3-30b-a3b", "trn2.48xlarge", "hand-tuned")]
WIDER += [("llama-3.3-70b", "hgx-h100", "public"), ("deepseek-v3", "trn3-nl32x2-pcie160", "hand-tuned")]


@pytest.mark.parametrize(("model", "system", "kind"), WIDER)
@pytest.mark.parametrize("name", MOVED)
def test_more_of_a_chip_never_makes_less(model, system, kind, name):
    """Its software stays what it is, so that the same share of a faster chip is more."""
    spec = tm.system(system)
    e, request = tm.efficiencies(spec.chip, kind), tm.Request(1024, 256, tokens_per_s_per_user=20)
    made = []
    for share in (0.7, 1.0, 1.1, 2.0):
        best = plan(model, request, moved(system, **{name: share}), efficiencies=e).best
        made.append(best.tokens_per_s_per_chip if best and best.valid else 0.0)
    assert all(more >= less * (1 - 1e-9) for less, more in pairwise(made)), made


@pytest.mark.parametrize(("model", "kind"), [("llama-3.3-70b", "public"), ("deepseek-v3", "hand-tuned")])
def test_more_chips_never_make_less_in_all(model, kind):
    """A torus of 16 chips, and one to eight of them: what all chips make with the best plan."""
    request, total = tm.Request(1024, 256, tokens_per_s_per_user=20), []
    for count in (1, 2, 4, 8):
        spec = tm.system("trn2.48xlarge", count=count)
        best = plan(model, request, spec, efficiencies=kind).best
        total.append(best.tokens_per_s_per_chip * spec.chips if best and best.valid else 0.0)
    assert all(more >= less * (1 - 1e-9) for less, more in pairwise(total)), total
    assert total[-1] > 0


def test_half_the_hbm_rate_changes_the_answer():
    request = tm.Request(1024, 256, tokens_per_s_per_user=25)
    for model, name in (("llama-3.3-70b", "trn2.48xlarge"), ("deepseek-v3", "trn3-nl72x2-pcie160")):
        whole, half = (
            plan(model, request, one, efficiencies="hand-tuned") for one in (name, moved(name, hbm_bytes_per_s=0.5))
        )
        assert half.best.tokens_per_s_per_chip < 0.95 * whole.best.tokens_per_s_per_chip


def test_the_default_is_what_is_on_offer():
    answer = plan("llama-3.1-8b", CHAT)
    named = {c.system.id for c in answer.choices} | set(answer.refused)
    assert named == set(catalog.on_offer())
    assert {tm.system(name).status for name in named} <= {"for rent", "announced"}
    assert set(answer.why) == named - {answer.best.system.id}
    assert all(answer.why.values())
    assert [b.stack.kind for b in answer.other_software] == ["hand-tuned", "ideal"]
    assert answer.best.stack.kind == "public"
    assert answer.best.tokens_per_s_per_chip < answer.other_software[1].tokens_per_s_per_chip
    assert answer.runner_up.system.id != answer.best.system.id


def test_systems_that_do_the_same_are_told_as_such():
    answer = plan("llama-3.1-8b", CHAT, ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"])
    assert (answer.best.system.id, answer.same) == ("trn3-nl32x2-pcie160", ["trn3-nl72x2-pcie160"])
    assert answer.why == {"trn3-nl72x2-pcie160": SAME}
    assert "trn3-nl72x2-pcie160" in repr(answer)


def test_of_those_that_tie_the_one_for_rent_comes_first():
    """A rack of a caller's own of the same chips is for rent where it says so."""
    spec = tm.system("trn3-nl32x2-pcie160")
    rented = replace(spec, id="z-rented", status="for rent")
    answer = plan("llama-3.1-8b", CHAT, [spec, rented])
    assert (answer.best.system.id, answer.same) == ("z-rented", ["trn3-nl32x2-pcie160"])


def test_another_reading_is_never_the_runner_up():
    answer = plan("llama-3.1-8b", CHAT, ["trn3-nl72x2-pex90144", "trn3-nl72x2-pcie160", "trn2.48xlarge"])
    assert tm.system("trn3-nl72x2-pex90144").alternative_of == "trn3-nl72x2-pcie160"
    assert answer.best.system.id == "trn3-nl72x2-pcie160"
    assert answer.runner_up.system.id == "trn2.48xlarge"
    assert answer.why["trn3-nl72x2-pex90144"].startswith("another reading of trn3-nl72x2-pcie160: ")


def test_a_system_of_unpublished_links_plans_within_one_chip():
    assert np.isnan(tm.system("mi210-4").chip.scaleup_bytes_per_s_per_dir)
    answer = plan("llama-3.1-8b", CHAT, "mi210-4", precision="fp16")
    assert (answer.best.chips, answer.best.tp) == (1, 1)
    with pytest.raises(ValueError, match=r"systems=\['mi210-4'\]: computes in none of bf16, fp8, mxfp8;.* fp16"):
        plan("llama-3.1-8b", CHAT, "mi210-4")


def test_a_speed_out_of_reach_names_the_fastest():
    systems = ["trn1.2xlarge", "trn2.3xlarge"]
    answer = plan("llama-3.1-8b", replace(CHAT, tokens_per_s_per_user=1e6), systems, efficiencies="public")
    assert not answer.reached
    assert not answer.best.valid
    assert "too slow for a user at any load, at most" in answer.card()[1]
    assert answer.command == ""
    plain = plan("llama-3.1-8b", replace(CHAT, tokens_per_s_per_user=1e6), "trn2.3xlarge", efficiencies=PLAIN)
    ask = {"context": MIDDLE, "max_context": LONGEST, "efficiencies": PLAIN}
    steps = [
        tm.decode_step("llama-3.1-8b", "trn2.3xlarge", tm.Mapping(tp=tp), batch=1, precision=precision, **ask)
        for tp in (1, 2, 4)
        for precision in ("bf16", "fp8")
    ]
    assert plain.best.tokens_per_s_per_user == max(float(step.tokens_per_s_per_user) for step in steps)


@pytest.mark.parametrize(
    ("model", "systems", "promise"),
    [
        ("llama-3.1-8b", ["trn1.2xlarge", "trn2.3xlarge"], {"tokens_per_s_per_user": 1e6}),
        ("llama-3.1-8b", ["trn2.3xlarge"], {"tokens_per_s_per_user": 20, "ttft_s": 1e-3}),
        ("llama-3.1-8b", ["hgx-h100"], {"tokens_per_s_per_user": 1e5, "ttft_s": 0.2}),
        ("qwen3-30b-a3b", ["hgx-h100", "trn2.48xlarge"], {"tokens_per_s_per_user": 1e5}),
    ],
)
def test_the_nearest_promise_holds_and_one_a_hundredth_harder_does_not(model, systems, promise):
    """The words name a speed or a first token, and a system; asked for, it is kept there, and no more anywhere."""
    asked = tm.Request(1024, 256, **promise)
    answer = plan(model, asked, systems)
    line = next(one for one in answer.card() if one.startswith("Nearest that works: "))
    words = line.removeprefix("Nearest that works: ").removesuffix(".").split(", or ")[0].split()
    if words[1:3] == ["tokens/s", "per"]:
        value, name, harder = float(words[0].replace(",", "")), "tokens_per_s_per_user", 1.01
    else:
        value, name, harder = float(words[4]), "ttft_s", 0.98
    assert plan(model, replace(asked, **{name: value}), words[-1]).reached
    assert not plan(model, replace(asked, **{name: harder * value}), systems).reached


def test_two_promises_that_each_fail_are_named_without_the_other():
    answer = plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=1e5, ttft_s=1e-3), "trn2.3xlarge")
    assert "tokens/s per user without a limit of the first token on trn2.3xlarge" in answer.nearest
    assert plan("llama-3.1-8b", CHAT, "trn2.3xlarge").nearest == ""


def test_a_model_that_fits_nowhere_says_by_how_much_and_where_it_fits():
    answer = plan("llama-3.1-405b", CHAT, ["trn2.3xlarge", "inf2.xlarge"])
    assert (answer.best, answer.runner_up, answer.choices, answer.command) == (None, None, (), "")
    weights = tm.model("llama-3.1-405b").weight_bytes("fp8") / 2**30
    words = answer.why["trn2.3xlarge"].split()
    assert words[:3] + words[4:] == ["does", "not", "fit:", "of", "96", "GiB"]  # a Trainium2 has 96 GiB
    assert weights < float(words[3].replace(",", "")) < 1.3 * weights
    assert answer.to_frame().role.tolist() == ["refused"] * 2
    assert "96 GiB" in repr(answer)
    precision, _, system = answer.nearest.partition(",")[0].partition(" on ")
    assert plan("llama-3.1-405b", CHAT, system, precision=precision).best is not None


def test_a_chip_without_the_precision_says_what_it_computes_in():
    answer = plan("llama-3.1-8b", CHAT, ["trn2.48xlarge", "trn3-nl16-torus"], precision="mxfp8")
    assert answer.best.system.id == "trn3-nl16-torus"
    assert answer.refused["trn2.48xlarge"].startswith("computes in bf16, fp16")
    with pytest.raises(ValueError, match="precision='mxfp8': no chip asked computes in it; they compute in bf16, fp16"):
        plan("llama-3.1-8b", CHAT, "trn2.48xlarge", precision="mxfp8")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"request": tm.Request(131_072, 256)},
            r"request=131328: llama-3.1-8b has contexts of up to 131,072",
        ),
        ({"request": None}, "request=None: allowed is a Request"),
        ({"request": (1024, 256)}, r"request=\(1024, 256\): allowed is a Request"),
        ({"request": {"input_tokens": 1024}}, "request=.*: allowed is a Request"),
        ({"request": tm.Request}, "request=.*: allowed is a Request"),
        ({"request": tm.Request([64, 128], 64)}, r"request=.*: allowed is one request, not an array of \(2,\)"),
        ({"systems": []}, r"systems=\[\]: allowed is a list of at least one"),
        ({"systems": "trn9"}, "'trn9' is unknown; nearest"),
        ({"systems": [3]}, "systems=3: allowed is an id or a System"),
        ({"precision": "fp5"}, "precision='fp5' is unknown"),
        ({"systems": "hgx-h200", "efficiencies": "nxd-inference"}, "nxd-inference does not run on h200"),
        ({"efficiencies": "neuron-asink"}, "efficiencies='neuron-asink' is unknown; nearest: neuron-async"),
        (
            {"efficiencies": "trtllm-mtp3"},
            "efficiencies='trtllm-mtp3': it is documented for .*allowed for .*neuron-async",
        ),
        ({"efficiencies": 3}, "efficiencies=3: allowed is"),
        ({"efficiencies": float("nan")}, "efficiencies=nan: allowed is"),
    ],
)
def test_a_question_out_of_range_is_refused_by_name(changes, line):
    ask = {"request": CHAT, "systems": "trn2.3xlarge"} | changes
    with pytest.raises(ValueError, match=line) as raised:
        plan("llama-3.1-8b", **ask)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("input_tokens", x) for x in (0, -1, float("nan"), "many", None, [], 0.5)),
        *(("output_tokens", x) for x in (0, 0.5, float("inf"), True)),
        *(("tokens_per_s_per_user", x) for x in (0, -20, float("nan"), "20", [20, "a"], True)),
        *(("ttft_s", x) for x in (0, -1, float("inf"))),
        *(("ttft_percentile", x) for x in (0, 100, None, float("nan"))),
        *(("prefix_share", x) for x in (-0.1, 1.1, None, "all")),
        *(("requests_per_s", x) for x in (0, 1e10, float("nan"))),
    ],
)
def test_a_number_that_no_request_has_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}=") as raised:
        tm.Request(**{"input_tokens": 1024, "output_tokens": 256, name: value})
    assert "\n" not in str(raised.value)


class Words(HTMLParser):
    """Tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)


def test_an_own_config_answers_as_the_shipped_one_and_its_name_is_no_html(tmp_path):
    folder = tmp_path / "<img src=x>"
    folder.mkdir()
    (folder / "config.json").write_text((MODELS / "llama-3.1-8b.json").read_text())
    own, shipped = (plan(name, CHAT, "trn2.3xlarge", efficiencies=PLAIN) for name in (str(folder), "llama-3.1-8b"))
    assert own.best.tokens_per_s_per_chip == shipped.best.tokens_per_s_per_chip
    named = replace(own, model=replace(own.model, id="a<script>b"))
    page = Words()
    page.feed(named._repr_html_())
    assert page.tags == {"div", "b", "br"}


def config_of(command: str) -> dict:
    return json.loads(command.partition("--additional-config ")[2].strip("'"))


def test_the_command_is_in_the_words_of_the_software():
    stacks = {"trn2.48xlarge": PLAIN, "trn1.32xlarge": "public"}
    new, old = (plan("llama-3.1-8b", CHAT, name, precision="bf16", efficiencies=e) for name, e in stacks.items())
    for answer, lnc in ((new, 2), (old, 1)):
        words = answer.command.split()
        assert words[:4] == [f"NEURON_LOGICAL_NC_CONFIG={lnc}", "vllm", "serve", "meta-llama/Llama-3.1-8B"]
        flags = dict(zip(words[4::2], words[5::2], strict=False))
        assert (float(flags["--tensor-parallel-size"]), float(flags["--max-num-seqs"])) == (
            answer.best.tp,
            answer.best.batch,
        )
        assert flags["--max-model-len"] == "1280"
    assert config_of(new.command)["neuron_config"]["num_batched_tokens_buckets"] == [1024]
    assert config_of(new.command)["neuron_config"]["num_seqs_buckets"] == [int(new.best.batch)]
    assert config_of(old.command)["override_neuron_config"]["context_encoding_buckets"] == [1024]
    assert config_of(old.command)["override_neuron_config"]["logical_nc_config"] == 1
    assert plan("llama-3.1-8b", CHAT, "trn2.48xlarge", efficiencies="ideal").command == ""
    assert "neuron" not in plan("llama-3.1-8b", CHAT, "hgx-h200").command


def test_experts_are_shared_out_over_groups():
    answer = plan("deepseek-v3", CHAT, "trn3-nl32x2-pcie160", efficiencies="hand-tuned")
    assert answer.best.ep > 1
    assert answer.best.batch % answer.best.ep == 0
    assert answer.best.tokens_per_s_per_chip < answer.best.decode_tokens_per_s_per_chip


def test_a_search_has_no_loop_over_its_points(monkeypatch):
    """Few calls for each of two precisions and three stacks with their options, and those of what is shown."""
    calls = []
    tried._grid.cache_clear()
    for name in ("decode_step", "memory_fit", "prefill"):
        whole = getattr(tm, name)
        counted = lambda *args, whole=whole, name=name, **more: (calls.append(name), whole(*args, **more))[1]  # noqa: E731
        monkeypatch.setattr(f"trnmodel.search.grid.{name}", counted)
    plan("llama-3.3-70b", CHAT, "trn2.48xlarge")
    assert len(calls) <= 4 * 2 * 9 + 4 * 4


def test_a_plan_does_not_depend_on_the_order_in_which_systems_are_given():
    """Two racks within 1 % of each other, and one of a caller's own that is alike but for its name."""
    own = replace(tm.system("trn3-nl32x2-pcie160"), id="another-rack")
    names = ["trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", own]
    request = tm.Request(1024, 256, tokens_per_s_per_user=40)
    first, *others = (plan("llama-3.1-8b", request, list(order)) for order in permutations(names))
    assert first.same, "no two of these systems tie: the order could not matter"
    for answer in others:
        assert answer.card() == first.card()
        pd.testing.assert_frame_equal(answer.to_frame(), first.to_frame())


def test_two_systems_of_one_name_are_refused_in_either_order():
    one, other = tm.system("trn2.48xlarge"), tm.system("trn2.48xlarge", count=4)
    for order in ([one, other], [other, one]):
        with pytest.raises(ValueError, match=r"systems='trn2\.48xlarge': two different systems have this id"):
            plan("llama-3.1-8b", CHAT, order)
    assert len(plan("llama-3.1-8b", CHAT, [one, "trn2.48xlarge"]).choices) == 1
