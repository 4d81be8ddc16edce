"""The grid of frontiers: each point is the plan's own answer, and what has no points says why."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters.serving_explorer import SPEEDS, frontier_grid
from trnmodel.catalog.stacks import KINDS
from trnmodel.search.frontier import best_at

GIB = 2**30
SHORT, LONG = tm.Request(3584, 512), tm.Request(32_256, 512)
CASES = [
    ("llama-3.1-8b", "trn1.32xlarge", "public", "bf16", SHORT),
    ("llama-3.3-70b", "trn2.48xlarge", "hand-tuned", "fp8", LONG),
    ("llama-3.3-70b", "trn3-nl32x2-pcie160", "public", "mxfp8", SHORT),
    ("deepseek-v3", "trn3-nl72x2-pcie160", "public", "mxfp8", SHORT),
    ("deepseek-v3", "trn2-ultraserver", "ideal", "bf16", LONG),
]


def asks(request, speeds=SPEEDS):
    """What the chapter asks of each combination: the comparison of a system at several promises."""

    def ask(model, system, software, precision):
        return tm.compare(model, request, system, speeds=speeds, efficiencies=software, precision=precision)

    return ask


def grid(model, system, kind, precision, request, speeds=SPEEDS):
    more = {"tokens": request.longest_context, "software": [kind], "precisions": [precision]}
    return frontier_grid(asks(request, speeds), tm.tco, [model], [system], **more)


@pytest.mark.parametrize("case", CASES)
def test_each_point_is_the_answer_of_the_plan(case):
    model, system, kind, precision, request = case
    table = grid(*case)
    assert 1 <= len(table) <= len(SPEEDS)
    assert (table.why == "").all()
    for row in table.itertuples():
        asked = replace(request, tokens_per_s_per_user=row.promised_tokens_per_s_per_user)
        best = tm.plan(model, asked, system, precision=precision, efficiencies=KINDS[kind]).best
        for name in ("tp", "ep", "pp", "cp", "batch", "chips", "chance", "prefill_utilisation"):
            assert getattr(row, name) == pytest.approx(getattr(best, name), rel=1e-12)
        assert row.option == best.option.name
        made = row.tokens_per_s_per_chip, row.tokens_per_s_per_chip_low, row.tokens_per_s_per_chip_high
        assert made == pytest.approx((best.tokens_per_s_per_chip, float(best.low), float(best.high)), rel=1e-9)
        assert row.decode_tokens_per_s_per_chip == pytest.approx(best.decode_tokens_per_s_per_chip)
        assert row.time_s == pytest.approx(float(best.step.time_s))
        for part in ("compute_s", "memory_s", "network_s", "overhead_s"):
            assert getattr(row, part) == pytest.approx(float(getattr(best.step, part)))
        assert row.basis == best.basis
        e = best.energy()
        if system == "trn1.32xlarge":  # nobody has its watts
            assert np.isnan(row.server_j_per_token)
            assert row.energy_basis == ""
        else:
            joules = row.server_j_per_token, row.server_j_per_token_low, row.server_j_per_token_high
            ends = float(e.server_j_per_token), *map(float, e.ends("server_j_per_token"))
            assert joules == pytest.approx(ends, rel=1e-9)
            assert row.energy_basis == e.basis


@pytest.mark.parametrize("case", CASES)
def test_each_point_has_its_owners_hour(case):
    table, cost = grid(*case), tm.tco(case[1])
    row = table.iloc[0]
    if case[1] == "trn1.32xlarge":  # nobody prices its server
        assert table.useful_usd_per_h.isna().all()
        assert row.cost_basis == ""
    else:
        dollars = row.useful_usd_per_h, row.useful_usd_per_h_low, row.useful_usd_per_h_high
        assert dollars == pytest.approx((float(cost.usd_per_h), float(cost.low), float(cost.high)))
        assert table.useful_usd_per_h.nunique() == 1
        assert row.cost_basis == "extrapolated"


@pytest.mark.parametrize("case", CASES)
def test_a_promise_that_is_not_kept_has_no_point(case):
    model, system, kind, precision, request = case
    table, speeds = grid(*case), [10.0, 20.0, 50.0, 100.0, 200.0]
    reached = [bool(c) for c in best_at(model, request, system, speeds, [precision], KINDS[kind])]
    assert table.promised_tokens_per_s_per_user.tolist() == [v for v, r in zip(speeds, reached, strict=True) if r]
    assert table.place.tolist() == list(range(1, len(table) + 1))
    assert (np.diff(table.tokens_per_s_per_chip) <= 1e-9).all()


def test_what_is_too_large_says_by_how_much():
    """671 billion weights of two bytes are 1,250 GiB; 16 chips of 32 GiB hold 512."""
    table = grid("deepseek-v3", "trn1.32xlarge", "ideal", "bf16", SHORT)
    need, have = (float(x.replace(",", "")) for x in table.why[0].removeprefix("does not fit: ").split()[:3:2])
    assert (need >= 671e9 * 2 / GIB, have) == (True, 512)
    assert table.tokens_per_s_per_chip.isna().all()


def test_a_speed_that_nothing_reaches_says_what_does():
    """The step of the fastest mapping on an empty server is the end of all promises."""
    table = grid("llama-3.1-8b", "trn1.32xlarge", "public", "bf16", SHORT, speeds=[1e6])
    (why,) = table.why
    best = tm.plan("llama-3.1-8b", tm.Request(3584, 512, 1e6), "trn1.32xlarge", precision="bf16").best
    assert why == f"at most {best.tokens_per_s_per_user:.3g} tokens/s for a user"


def test_a_format_that_a_chip_lacks_and_a_length_that_a_model_lacks_are_refused():
    """Trainium1's page prints no FP8 peak; Llama-3.1 ends at 128 Ki tokens."""
    ask = asks(SHORT, [20.0]), tm.tco, ["llama-3.1-8b"], ["trn1.32xlarge"]
    more = {"tokens": SHORT.longest_context, "software": ["public"]}
    why = frontier_grid(*ask, **more, precisions=["bf16", "fp8"]).set_index("precision").why
    assert why["bf16"] == ""
    assert why["fp8"].endswith("not in fp8")
    long = frontier_grid(*ask, **more | {"tokens": 2**17 + 1}, precisions=["bf16"])
    assert long.why.tolist() == ["llama-3.1-8b has contexts of up to 131,072 tokens"]


def test_a_chip_without_such_software_says_so():
    table = grid("llama-3.1-8b", "tpu-v6e-pod", "hand-tuned", "bf16", SHORT)
    assert table.why.tolist() == ["no hand-tuned software of TPU v6e (Trillium) is described"]


def test_half_the_bandwidth_is_twice_the_memory_time():
    spec = tm.system("trn2.48xlarge")
    slow = replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=spec.chip.hbm_bytes_per_s / 2))
    fast, half = (grid("llama-3.1-8b", one, "ideal", "bf16", SHORT) for one in (spec, slow))
    last = half.iloc[-1]
    mapping = tm.Mapping(tp=last.tp, ep=last.ep, pp=last.pp, cp=last.cp)
    ask = {"batch": last.batch, "context": SHORT.mean_context, "efficiencies": "ideal"}
    step = tm.decode_step("llama-3.1-8b", spec, mapping, **ask)
    assert last.memory_s == pytest.approx(2 * float(step.memory_s))
    assert half.tokens_per_s_per_chip.max() < fast.tokens_per_s_per_chip.max()


def test_what_is_named_twice_stands_once_and_what_is_unknown_is_refused():
    request = tm.Request(512, 128)
    once = grid("llama-3.1-8b", "trn1.2xlarge", "public", "bf16", request)
    ask = asks(request, [*SPEEDS, *SPEEDS]), tm.tco, ["llama-3.1-8b"] * 2, ["trn1.2xlarge"] * 2
    twice = {"tokens": 640.0, "software": ["public"] * 2, "precisions": ["bf16"] * 2}
    assert len(frontier_grid(*ask, **twice)) == len(once)
    for name, value in {"software": ["fast"], "precisions": ["fp9"], "models": [], "systems": ["none"]}.items():
        known = {"models": ["llama-3.1-8b"], "systems": ["trn1.2xlarge"], "tokens": 640.0}
        with pytest.raises(ValueError, match=name.rstrip("s")):
            frontier_grid(asks(request), tm.tco, **known | {name: value})
