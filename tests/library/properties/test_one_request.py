"""One request has one answer and one band: plan, server, bill, joules, frontier and sweep agree at a mapping and load.

500 questions are drawn with a fixed seed over every system, dense models, models with experts and hybrids, with and
without drafts and cached prefixes. Nothing here is computed by the function that it is compared with.
"""

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.search.frontier import best_at
from trnmodel.search.grid import computes
from trnmodel.search.single import PRECISIONS

QUESTIONS, SATISFIED, EACH = 500, 300, 10
MODELS = {
    "dense": ("llama-3.1-8b", "llama-3.1-8b", "llama-3.2-1b", "llama-3.3-70b"),  # one with drafts comes twice
    "experts": ("qwen3-30b-a3b", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v2-lite"),
    "hybrid": ("nemotron-h-8b", "qwen3.5-2b", "qwen3.5-35b-a3b", "nemotron-3-nano-30b-a3b"),
}
SPEEDS, PROMPTS, ANSWERS = (5, 10, 20, 30, 80), (128, 512, 1024, 4096), (64, 128, 256, 512)
PREFIXES, LIMITS, KINDS = (0.0, 0.5), (None, None, 20.0), (None, "ideal", "hand-tuned")
SHARED = ("tokens_per_s_per_chip", "tokens_per_s_per_user", "ttft_s", "prefill_utilisation")
SAME = {name: name for name in (*SHARED, "prefill_s")} | {  # figures of a server, and what a choice calls them
    "ttft_p99_s": "ttft_s",  # no question names another percentile
    "batch": "sequences_in_flight",
    "requests_per_s": "requests_per_s_per_replica",
}
CLOSE = 1e-9


def questions():
    """Questions in a fixed order: every system meets every kind of model."""
    draw = np.random.default_rng(28)
    pairs = itertools.cycle(itertools.product(tm.systems(), MODELS))
    for system, kind in itertools.islice(pairs, QUESTIONS):
        chip = tm.system(system).chip
        stacks = [word for word in KINDS if word != "hand-tuned" or chip.hand_tuned_stack]
        stacks = [word for word in stacks if word is not None or chip.default_stack]
        one = {
            name: values[draw.integers(len(values))]
            for name, values in (
                ("speed", SPEEDS),
                ("prompt", PROMPTS),
                ("answer", ANSWERS),
                ("prefix", PREFIXES),
                ("limit", LIMITS),
            )
        }
        models = MODELS[kind]
        yield system, kind, models[draw.integers(len(models))], stacks[draw.integers(len(stacks))], one


@cache
def answered():
    """Each question with its request and the choice of its system; None where nothing fits."""
    answers = []
    for system, kind, model, stack, one in questions():
        asked = tm.Request(one["prompt"], one["answer"], one["speed"], one["limit"], prefix_share=one["prefix"])
        precision = next(name for name in (*PRECISIONS[1:], PRECISIONS[0], "fp16") if computes(system, name))
        best = tm.plan(model, asked, system, precision=precision, efficiencies=stack).best
        answers.append((system, kind, asked, stack, best if best is not None and best.valid else None))
    return answers


def satisfied():
    return [one for one in answered() if one[-1] is not None]


@cache
def served(choice, request):
    return served_at(choice, request, choice.batch)


def served_at(choice, request, batch):
    ask = {"precision": choice.precision, "efficiencies": choice.option, "max_batch": batch}
    return tm.serve(choice.step.model, request, choice.system, choice.degrees, **ask)


def test_the_questions_reach_every_system_and_kind():
    some = satisfied()
    assert len(answered()) == QUESTIONS
    assert len(some) >= SATISFIED
    systems, kinds = Counter(one[0] for one in answered()), Counter(one[1] for one in some)
    assert set(systems) == set(tm.systems())
    assert min(systems.values()) >= EACH
    assert min(kinds.values()) >= EACH
    assert sum(choice.option.speculates for *_, choice in some) >= EACH
    assert sum(request.prefix_share > 0 for _, _, request, _, _ in some) >= EACH


def test_the_server_is_the_plan_at_its_mapping_and_load():
    for system, _, request, _, choice in satisfied():
        server = served(choice, request)
        for name in SHARED:
            value = getattr(choice, name)
            assert getattr(server, name) == pytest.approx(value, rel=CLOSE), (system, name, choice.mapping)
        assert server.keeps_promise
        rate = choice.requests_per_s_per_replica
        assert server.requests_per_s == pytest.approx(rate, rel=CLOSE)


def test_the_band_of_the_server_is_that_of_the_plan():
    wide = 0
    for system, _, request, _, choice in satisfied():
        server = served(choice, request)
        for name, own in SAME.items():
            figures = (float(getattr(server, name)), *map(float, server.ends(name)))
            expected = (getattr(choice, own), *choice.ends(own))
            assert figures == pytest.approx(expected, rel=CLOSE), (system, name, choice.mapping)
        slow, fast = choice.ends("tokens_per_s_per_user")
        assert server.ends("tpot_mean_s") == pytest.approx((1 / fast, 1 / slow), rel=CLOSE)
        ratios = np.divide(choice.ends("tokens_per_s_per_chip"), choice.tokens_per_s_per_chip)
        assert np.divide(server.ends("tokens_per_s"), server.tokens_per_s) == pytest.approx(ratios, rel=CLOSE)
        wide += server.ends("tokens_per_s_per_chip")[0] < 0.99 * server.tokens_per_s_per_chip
    assert wide >= SATISFIED // 3  # public software has a band, ideal software has none


def test_the_joules_of_the_plan_are_those_of_the_server():
    for _, _, request, _, choice in satisfied()[::3]:
        server, own = tm.energy(served(choice, request)), choice.energy()
        for name in ("chip_j_per_token", "server_j_per_token", "facility_j_per_token"):
            figures = float(getattr(server, name)), *map(float, server.ends(name))
            assert figures == pytest.approx((getattr(own, name), *own.ends(name)), rel=CLOSE, nan_ok=True)


def test_the_frontier_at_the_promised_speed_is_the_plan():
    for system, _, request, stack, choice in satisfied()[::3]:
        speed = request.tokens_per_s_per_user
        (there,) = best_at(choice.step.model, request, system, [speed], [choice.precision], stack)
        for name in (*SHARED, "request_chip_s", "prompt_chip_s", "chance"):
            assert getattr(there, name) == pytest.approx(getattr(choice, name), rel=CLOSE), (system, name)
        assert there.ends("tokens_per_s_per_chip") == pytest.approx(choice.ends("tokens_per_s_per_chip"), rel=CLOSE)


def test_a_sweep_asks_the_same_server():
    some = satisfied()[::4]
    assert len(some) >= SATISFIED // 5
    for system, _, request, _, choice in some:
        table = tm.sweep(
            lambda batch, c=choice, r=request: figures_of(served_at(c, r, batch)),
            {"batch": [choice.batch]},
            progress=False,
        )
        (row,) = table.to_dict("records")
        for name in SHARED:
            expected = getattr(choice, name), *choice.ends(name)
            assert (row[name], row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx(expected, rel=CLOSE), system


def figures_of(server):
    """What a server and a choice share, with its ends."""
    return {key: x for name in SHARED for key, x in server.banded(name).items()}


def test_a_bill_is_the_plan_times_a_price():
    asked = 0
    for system, _, request, stack, choice in satisfied()[::7]:
        costs = tm.token_cost(choice.step.model, request, system, pricing=2.0, precision=choice.precision)
        (line,) = (one for one in costs.lines if one.stack_kind == (stack or "public"))
        by_hand = 2.0 / 3600 * 1e6 / choice.tokens_per_s_per_chip
        assert line.generated_usd_per_mtoken == pytest.approx(by_hand, rel=CLOSE)
        ends = [2.0 / 3600 * 1e6 / end for end in choice.ends("tokens_per_s_per_chip")[::-1]]
        assert line.ends("generated_usd_per_mtoken") == pytest.approx(ends, rel=CLOSE)
        asked += 1
    assert asked >= 30
