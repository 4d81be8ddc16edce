"""Plans with prefill on a separate pool, against a search that asks one pair of points at a time."""

from dataclasses import replace
from itertools import product
from math import ceil, log

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.search import pairs
from trnmodel.search.grid import Question, options_of
from trnmodel.search.pairs import Pair
from trnmodel.serving.server import disaggregate

TRN2, TRN3, H100 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h100"
BATCHES = np.array([1.0, 8.0, 64.0])
CASES = {
    "dense": ("llama-3.1-8b", tm.Request(2048, 256, 40), "trn2.3xlarge", H100),
    "late": ("llama-3.1-8b", tm.Request(2048, 256, 40, ttft_s=0.8), "trn2.3xlarge", H100),
    "experts": ("gpt-oss-20b", tm.Request(2048, 256, 20), "trn2.3xlarge", H100),
    "experts, late": ("gpt-oss-20b", tm.Request(2048, 256, 20, ttft_s=1.0, ttft_percentile=90), H100, "trn2.3xlarge"),
    "cached, at a rate": (
        "gpt-oss-20b",
        tm.Request(2048, 256, 20, prefix_share=0.5, requests_per_s=50),
        "trn2.3xlarge",
        H100,
    ),
}


@pytest.fixture
def few_batches(monkeypatch):
    pairs._side.cache_clear()
    monkeypatch.setattr(pairs, "PER_RANK", BATCHES)
    yield
    pairs._side.cache_clear()


def paid(spec, chips):
    fitting = spec.chips // chips
    return spec.chips / fitting if fitting >= 1 else ceil(chips / spec.chips) * spec.chips


def whole(spec, chips, replicas):
    fitting = spec.chips // chips
    return (ceil(replicas / fitting) if fitting >= 1 else replicas * ceil(chips / spec.chips)) * spec.chips


def mappings_of(q):
    """Return the mappings of a question, one by one."""
    lnc = q.option.lnc or None
    some = pairs.mappings(q.system, q.model, q.option.efficiencies, lnc)
    several = zip(some.tp, some.ep, some.pp, some.cp, strict=True)
    return [tm.Mapping(tp=tp, ep=ep, pp=pp, cp=cp, lnc=lnc) for tp, ep, pp, cp in several]


def decodes_of(q):
    """Return batch, time of a step, and chips of each decode replica that can exist."""
    ask = {"precision": "bf16", "efficiencies": q.option.efficiencies}
    long = {"context": 2048 + 128, "max_context": 2304, "new_tokens": 1 + q.option.draft_tokens}
    rows = []
    for mapping, each in product(mappings_of(q), BATCHES):
        batch = each * float(mapping.ep)
        step = tm.decode_step(q.model, q.system, mapping, batch=batch, **long, **ask)
        fits = tm.memory_fit(q.model, q.system, mapping, batch=batch, context=2304, **ask).valid
        if step.valid and fits and batch <= q.option.most_sequences:
            rows.append((batch, float(step.time_s), float(step.occupied_chips)))
    return rows


def prefills_of(q):
    """Return the time of one prompt, of one in each group, the groups, and chips of each prefill replica."""
    ask = {"precision": "bf16", "efficiencies": q.option.efficiencies}
    new = 2048 * (1 - float(q.request.prefix_share))
    long = {"input_tokens": new, "past": 2048 - new, "max_context": 2304}
    rows = []
    for mapping in mappings_of(q):
        n = float(mapping.ep * mapping.pp)
        one, many = (tm.prefill(q.model, q.system, mapping, batch=k, **long, **ask) for k in (1, n))
        held = {"batch": n, "context": 2048, "input_tokens": new, "prompts": n}
        fits = tm.memory_fit(q.model, q.system, mapping, **held, **ask).valid
        if one.valid and many.valid and fits:
            rows.append((float(one.time_s), float(many.time_s), n, float(one.occupied_chips)))
    return rows


def busiest(request, alone, together, after):
    """Return the largest utilisation of a prefill replica at which the first token comes in time; 0 for none."""
    late = 1 - float(request.ttft_percentile) / 100

    def ttft(u):
        wait = together / (2 * (1 - u)) * log(u / late) if u > late else 0.0
        return alone + u * (together - alone) + wait + after

    if request.ttft_s is None:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if ttft(middle) <= request.ttft_s else (low, middle)
    return low if ttft(0.0) <= request.ttft_s else 0.0


def chip_s_of(request, slow, fast, chips, rates):
    """Return the chip-seconds of a request that are paid in both pools."""
    if request.requests_per_s is None:
        return sum(paid(spec, n) / rate for spec, n, rate in zip((slow, fast), chips, rates, strict=True))
    asked = float(request.requests_per_s)
    return sum(whole(*one[:2], ceil(asked / one[2])) for one in zip((slow, fast), chips, rates, strict=True)) / asked


@pytest.mark.parametrize("case", CASES)
def test_the_best_pair_is_that_of_brute_force(case, few_batches):
    """One option and one precision on each side; each pair of mappings and batches is asked by itself."""
    model, request, later, before = CASES[case]
    own, slow, fast = tm.model(model), tm.system(later), tm.system(before)
    q, p = (
        Question(own, request, spec, options_of(spec, own, request)[0], load.precision("bf16")) for spec in (slow, fast)
    )
    bytes_ = float(own.kv_bytes(2048, "bf16") + own.state_bytes())
    server_s = p.option.efficiencies.server_first_token_s
    made = []
    for (batch, step_s, chips), (alone, together, groups, first) in product(decodes_of(q), prefills_of(p)):
        network = [n * s.scaleout_bytes_per_s_per_dir for n, s in ((chips, slow), (first, fast))]
        busy = busiest(request, alone, together, bytes_ / min(network) + step_s + server_s)
        if busy > 0 and step_s <= 1 / float(request.tokens_per_s_per_user):
            rates = batch / (256 * step_s), busy * groups / together
            made.append(256 / chip_s_of(request, slow, fast, (chips, first), rates))
    best = max(made)
    assert len(made) > 20
    found = pairs.best_of(q, p)
    assert found.made == pytest.approx(best, rel=1e-9)
    choice = pairs.paired(found)
    assert choice.tokens_per_s_per_chip == pytest.approx(best, rel=1e-9)
    assert request.ttft_s is None or choice.ttft_s <= request.ttft_s * (1 + 1e-9)


@pytest.fixture(scope="module")
def plan():
    return tm.plan("llama-3.3-70b", tm.Request(4096, 512, 40), [TRN3], prefill_systems=["hgx-b200", TRN3])


def test_a_plan_names_the_prefill_side(plan):
    best = plan.best
    assert isinstance(best, Pair)
    assert best.place == f"{TRN3} with prefill on hgx-b200"
    assert best.place in "\n".join(plan.card())
    assert "prefill chips per decode chip" in best.mapping
    assert {c.place for c in plan.choices} == {TRN3, f"{TRN3} with prefill on {TRN3}", best.place}
    assert len(plan.why) == 2
    assert plan.command == ""
    made = best.question.request.output_tokens / best.request_chip_s
    assert made == pytest.approx(best.tokens_per_s_per_chip)
    assert best.energy().valid


def test_without_prefill_systems_nothing_is_paired():
    request = tm.Request(4096, 512, 40)
    alone = tm.plan("llama-3.3-70b", request, [TRN3])
    both = tm.plan("llama-3.3-70b", request, [TRN3], prefill_systems=TRN2)
    assert not any(isinstance(c, Pair) for c in alone.choices)
    (same,) = (c for c in both.choices if not isinstance(c, Pair))
    assert same.tokens_per_s_per_chip == alone.best.tokens_per_s_per_chip


def test_a_pair_is_the_account_of_disaggregate(plan):
    """At the same mappings both name the same ratio, load and time to the first token."""
    for c in (one for one in plan.choices if isinstance(one, Pair) and not one.option.speculates):
        compared = disaggregate(
            c.step.model,
            c.prefill_system,
            c.prefill_degrees,
            c.system,
            c.degrees,
            batch=c.batch,
            input_tokens=4096,
            output_tokens=512,
            precision=c.precision,
            prefill_efficiencies=c.prefill_question.option.efficiencies,
            decode_efficiencies=c.stack,
            mixed=True,
        )
        assert float(compared.prefill_replicas_per_decode_replica) == pytest.approx(
            c.prefill_replicas_per_decode_replica, rel=1e-9
        )
        assert float(compared.requests_per_s_per_decode_replica) == pytest.approx(c.requests_per_s_per_replica)
        assert float(compared.ttft_s) == pytest.approx(c.ttft_s, rel=1e-9)


def test_draws_of_a_pair_hold_the_pools(plan):
    """Draws at what is predicted give the predicted figures; slower prompts starve the decode pool."""
    c = plan.best
    still = c.column.replay([0.0], [0.0])
    assert still["tokens_per_s_per_chip"][0] >= c.tokens_per_s_per_chip * (1 - 1e-9)
    slow, fast = (c.column.replay([0.0], [z])["requests_per_s_per_replica"][0] for z in (2.0, -2.0))
    assert slow < still["requests_per_s_per_replica"][0] <= fast * (1 + 1e-9)
    assert 0 < c.chance <= 1
    assert c.low <= c.tokens_per_s_per_chip <= c.high


def test_pairs_that_cannot_be_say_why():
    request = tm.Request(4096, 512, 1e6)
    found = tm.plan("llama-3.3-70b", request, [TRN3], prefill_systems=[H100])
    assert found.why[f"{TRN3} with prefill on {H100}"] == pairs.NONE_HOLDS
    small = tm.plan("llama-3.3-70b", replace(request, tokens_per_s_per_user=20), [TRN3], prefill_systems="inf2.xlarge")
    assert small.why[f"{TRN3} with prefill on inf2.xlarge"] == "prefill fits on no mapping"


@pytest.mark.parametrize("wrong", [["no-such-system"], [], 3, [None]])
def test_wrong_prefill_systems_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match="prefill_systems"):
        tm.plan("llama-3.1-8b", tm.Request(512, 64, 20), [TRN2], prefill_systems=wrong)
