"""What a plan picks, and what it says, of points and choices that are worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog.options import plain
from trnmodel.search import launch
from trnmodel.search import single as planner
from trnmodel.search.choice import Choice, chosen
from trnmodel.search.grid import Grid, Question
from trnmodel.search.plan import Plan
from trnmodel.serving.account import Column, Times, made_per_chip

LIKE = dict.fromkeys(("compute", "memory", "network", "overhead", "prompts"), 1.0)
TRN2 = "trn2.48xlarge"


class Stated(Choice):
    """A choice of which a test says what a plan reads of it; the rest of its fields are not there."""

    basis = chip_s = in_words = to_frame = merit = mapping = valid = low = high = system = reason = option = None
    place = systems = None

    def __init__(self, **what):
        for name, value in what.items():
            object.__setattr__(self, name, value)


def choice(name, merit=100.0, valid=True, low=90.0, high=110.0, status="for rent", reading_of="", **more):
    """A choice as far as a plan reads it: seconds of a paid chip by resource beside what it makes."""
    at = LIKE | {key: more.pop(key) for key in LIKE if key in more}
    words = lambda figure, unit="", basis="": f"{25:g} {unit}"  # noqa: E731
    system = SimpleNamespace(id=name, chips=16, status=status, alternative_of=reading_of)
    one = {"chip_s": at.__getitem__, "system": system, "in_words": words, "place": name, "systems": (system,)}
    one |= {"stack": SimpleNamespace(kind="public"), "basis": "measured", "mapping": "bf16, TP 4", "chips": 2.0}
    one |= {"reason": "" if valid else "too slow for a user at any load"}
    one["to_frame"] = lambda bands: pd.DataFrame({"x": [name], "bands": bands})
    return Stated(**one | {"merit": lambda: merit, "valid": valid, "low": low, "high": high} | more)


def plan_of(*choices, second=(), refused=None, beside=()):
    model = tm.model("llama-3.1-8b")
    request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    return Plan(model, request, choices, second, refused or {}, beside)


BEST = choice("best", memory=10.0, compute=100.0)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (choice("b", 80.0, high=95.0, memory=12.345), "20 % less with overlapping bands: memory takes 12 s"),
        (choice("b", 80.0, high=90.0, memory=10.6, compute=100.0), "20 % less: memory takes 11 s"),
        (choice("b", 80.0, high=90.0, memory=10.5, compute=100.0), "20 % less: memory takes 10.5 s"),  # 5 % more
        (choice("b", 80.0, high=90.0, memory=10.45678), "20 % less: memory takes 10.46 s"),
    ],
)
def test_what_takes_most_more_of_a_chip_is_why_it_loses(other, why):
    assert plan_of(BEST, other).reason(other) == f"{why} of chip time per token, not 10 s"


def test_other_reasons_of_a_choice():
    slow, even = choice("slow", 30.0, valid=False), choice("b", 80.0, memory=10.0, compute=100.0)
    again = choice("best", 99.7, memory=10.0, compute=100.0)
    answer = plan_of(BEST, slow, choice("c", 99.5), even, second=(again,))
    assert answer.reason(slow) == "too slow for a user at any load: at most 25 tokens/s per user"
    assert answer.reason(even) == "20 % less with overlapping bands"
    assert answer.reason(answer.choices[2]) == "the same within 1 %"


def test_a_reason_is_asked_of_a_choice_of_this_plan():
    """Of one that looks the same, but is another plan's, it says nothing; nor of what is no choice."""
    other = choice("b", 80.0, question=SimpleNamespace(model=SimpleNamespace(id="llama-3.1-8b")))
    for stranger in (other, SimpleNamespace(**vars(other)), "b", None):
        with pytest.raises(ValueError, match=r"c=.*a Choice of this plan"):
            plan_of(BEST, choice("b", 80.0)).reason(stranger)


def test_the_runner_up_is_another_system_that_does_less():
    same, less, second = choice("same", 99.5), choice("less", 98.6), choice("best", 90.0)
    reading = choice("reading", 99.0, reading_of="best")
    assert plan_of(BEST, same, less, second=(second,)).runner_up is less
    assert plan_of(BEST, same, second=(second,)).runner_up is same
    assert plan_of(BEST, reading, second=(second,)).runner_up is second
    assert plan_of(BEST, second=(second,)).runner_up is second
    assert plan_of(BEST).runner_up is None


def test_rows_of_a_plan():
    other, second = choice("b", 80.0, memory=20.0, high=85.0), choice("best", 90.0)
    table = plan_of(BEST, other, refused={"c": "w"})
    assert table.why == {"b": "20 % less: memory takes 20 s of chip time per token, not 10 s", "c": "w"}
    assert plan_of(BEST, second=(second,)).why == {}


def test_ties_go_to_what_can_be_bought_then_to_no_reading_then_to_the_fewest_chips():
    """99.1 is within 1 % of 100 and 98.9 is not; a choice that keeps no promise comes after all that do."""
    some = [choice("a", 98.9, chips=1.0), choice("b", 99.1, chips=2.0), choice("c", 100.0, chips=4.0)]
    some += [choice("d", 500.0, valid=False, chips=1.0), choice("e", 99.5, chips=4.0), choice("f", 600.0, valid=False)]
    some += [choice("g", 99.2, status="announced", chips=1.0), choice("h", 99.3, reading_of="b", chips=1.0)]
    assert [c.system.id for c in planner.ordered(some)] == ["b", "c", "e", "h", "g", "a", "f", "d"]


@pytest.mark.parametrize(("prompt", "output"), [(131_071, 1), (1, 1), (1, 131_071)])
def test_lengths_up_to_the_longest_context(prompt, output):
    asked = planner.search_for(tm.model("llama-3.1-8b"), tm.Request(prompt, output), None)
    assert (asked.request.input_tokens, asked.request.output_tokens) == (prompt, output)
    assert [one.name for one in asked.precisions] == ["bf16", "fp8", "mxfp8"]


@pytest.mark.parametrize(
    ("prompt", "output", "named"),
    [(131_071, 2, "request"), (0.99, 1, "input_tokens"), (1, 0.99, "output_tokens")],
)
def test_lengths_beyond_are_refused(prompt, output, named):
    with pytest.raises(ValueError, match=f"{named}=".replace("+", r"\+")):
        tm.plan("llama-3.1-8b", tm.Request(prompt, output))


# Points of a grid


def times(**more):
    """Steps of 0.04 s of 4 sequences and of 0.05 s of 8, and prompts of 0.1 s."""
    one = {
        "batch": np.array([4.0, 8.0]),
        "step_s": np.array([0.04, 0.05]),
        "tokens_per_step": np.asarray(1.0),
        "alone_s": np.asarray(0.1),
        "together_s": np.asarray(0.1),
        "groups": np.asarray(1.0),
        "chunks": np.asarray(1.0),
        "host_s": np.asarray(0.0),
        "compiled": False,
    }
    return Times(**one | more)


def grid_of(**more):
    """Three mappings of a replica of one chip: as above, twice as slow, and one that does not fit."""
    slow = np.array([1.0, 2.0, 0.5])
    fits = np.array([[True, True, False], [True, True, False]])
    one = {
        "mapping": tm.Mapping(tp=np.array([4.0, 2.0, 1.0]), ep=np.ones(3), pp=np.ones(3), cp=np.ones(3)),
        "times": times(
            batch=np.array([[4.0], [8.0]]) * np.ones(3), step_s=np.array([[0.04], [0.05]]) * slow, groups=np.ones(3),
            alone_s=0.1 * slow, together_s=0.1 * slow, chunks=np.ones(3),
        ),
        "chips": np.ones(3), "paid_chips": np.ones(3), "fits": fits,
        "need": np.array([[10.0, 10.0, 120.4], [10.0, 10.0, 150.0]]), "have": np.full((2, 3), 96.0),
        "why": np.full((2, 3), "too long", dtype=object),
    }  # fmt: skip
    return Grid(**one | more)


def searched(request, grid):
    q = Question(tm.model("llama-3.1-8b"), request, tm.system(TRN2), plain(tm.efficiencies("trainium2", "ideal")), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "grid", lambda asked: grid)
        return planner._searched(q)


def test_the_two_best_mappings():
    """100 tokens of 4 take 4 s, and 4 prompts 0.4: 4 / 4.4 x 100 = 90.9. Of 8: 8 / 5.8 x 100 = 137.9, at 8 / 137.9 s.

    Twice as slow is half as much. At 15 tokens/s both batches of the first keep the promise (22.7 and 17.2), and none
    of the second (11.4 and 8.6); at 20 tokens/s the small batch of the first alone.
    """
    first, second = searched(tm.Request(300, 100, tokens_per_s_per_user=15), grid_of())
    assert first.rank[:2] == (2, pytest.approx(800 / 5.8))
    assert (first.tp, float(first.times.batch), second.rank[0], second.tp) == (4.0, 8.0, 1, 2.0)
    first, second = searched(tm.Request(300, 100, tokens_per_s_per_user=20), grid_of())
    assert (first.rank[:2], float(first.times.batch)) == ((2, pytest.approx(400 / 4.4)), 4.0)
    first, second = searched(tm.Request(300, 100), grid_of())
    assert (first.rank[1], second.rank[1]) == (pytest.approx(800 / 5.8), pytest.approx(400 / 5.8))
    first, second = searched(tm.Request(300, 100, tokens_per_s_per_user=200), grid_of())
    assert [(one.rank[0], one.tp, float(one.times.batch)) for one in (first, second)] == [(1, 4.0, 4.0), (1, 2.0, 4.0)]


def test_a_compiled_batch_keeps_a_promise_at_a_part_of_its_load():
    """At 18 tokens/s a step of 0.05 s leaves a tenth for prompts: one a second; 4 sequences of 0.04 s are full."""
    grid = grid_of()
    grid = grid._replace(times=grid.times._replace(compiled=True))
    first, _ = searched(tm.Request(300, 100, tokens_per_s_per_user=18), grid)
    assert (first.rank[:2], float(first.times.batch)) == ((2, pytest.approx(100 * 0.1 / 0.1)), 8.0)


def test_why_a_point_does_not_fit():
    """Of 96 GiB 120.4 and 150 are asked for, of which 120.4 is nearer; a point that has as much fails otherwise."""
    none = np.zeros((2, 3), dtype=bool)
    first, second = searched(
        tm.Request(300, 100), grid_of(fits=none, need=np.array([[96.0, 200.0, 120.4], [300.0] * 3]))
    )
    assert (first.tp, first.rank, first.why) == (4.0, (0, -1.0, 0.0), "too long")
    assert (second.tp, second.rank, second.why) == (1.0, (0, -120.4 / 96, 0.0), "does not fit: 120 of 96 GiB")


@pytest.mark.parametrize(
    ("system", "chips", "each"), [("gb200-nvl72", 24.0, 24.0), ("gb200-nvl72", 32.0, 36.0), (TRN2, 24.0, 32.0)]
)
def test_what_is_made_of_paid_chips(system, chips, each):
    """72 chips hold 3 replicas of 24 and 2 of 32; a replica of 24 takes two machines of 16. At 2 requests/s of 100."""
    spec = tm.system(system)
    made = made_per_chip(tm.Request(300, 100), spec, np.array(2.0), np.array(chips))
    assert float(made) == pytest.approx(200 / each)
    whole = made_per_chip(tm.Request(300, 100, requests_per_s=7), spec, np.array(2.0), np.array(chips))
    replicas, held = 4, spec.chips // chips  # 7 requests/s are 3.5 of 2
    systems = np.ceil(replicas / held) if held else replicas * np.ceil(chips / spec.chips)
    assert float(whole) == pytest.approx(700 / (systems * spec.chips))


def test_draws_keep_the_promise_with_fewer_sequences():
    """Steps 1.2 times as long: 8 sequences at 0.06 + 0.008 s are too slow for 15 tokens/s, 4 at 0.048 + 0.004 not."""
    where = tm.system(TRN2)
    request = tm.Request(300, 100, tokens_per_s_per_user=15)
    end = (np.log(1.2),) * 2
    column = Column(request, where, times(), np.array([True, True]), np.array(1.0), end, (0.0, 0.0))
    z = 1.6448536269514722  # the end of a 90 % interval
    drawn = column.replay(np.array([0.0, z, 30 * z]), np.zeros(3))
    assert drawn["sequences_in_flight"][:2] == pytest.approx([8, 4])
    assert drawn["tokens_per_s_per_chip"][:2] == pytest.approx([800 / 5.8, 400 / (4.8 + 0.4)])
    assert np.isnan(drawn["tokens_per_s_per_chip"][2])


def test_a_choice_of_a_point_by_hand():
    """8 requests of 100 steps of 0.05 s and 8 prompts of 0.1 s: 8 / 5.8 a second; prompts take 0.8 / 5.8 of it."""
    first, _ = searched(tm.Request(300, 100, tokens_per_s_per_user=15), grid_of())
    one = chosen(first)
    assert one.requests_per_s_per_replica == pytest.approx(8 / 5.8)
    assert one.tokens_per_s_per_user == pytest.approx(100 / 5.8)
    assert one.prefill_utilisation == pytest.approx(0.8 / 5.8)
    assert one.decode_tokens_per_s_per_chip == pytest.approx(8 / 0.05)
    assert (one.request_chip_s, one.prompt_chip_s, one.paid_chips) == (pytest.approx(5.8 / 8), pytest.approx(0.1), 1)
    assert (bool(one.valid), one.merit()) == (True, one.tokens_per_s_per_chip)
    slow = chosen(searched(tm.Request(300, 100, tokens_per_s_per_user=200), grid_of())[0])
    assert (bool(slow.valid), slow.tokens_per_s_per_user, slow.merit()) == (False, pytest.approx(25), pytest.approx(25))
    assert "too slow" in slow.reason


def test_steps_of_a_request():
    """300 tokens in and 100 out: steps at 350, graphs and caches for 400, and prompts of 300."""
    request = tm.Request(300, 100)
    assert (float(request.mean_context), float(request.longest_context), float(request.new_tokens)) == (350, 400, 300)
    half = tm.Request(300, 100, prefix_share=0.5)
    assert (float(half.new_tokens), float(half.past_tokens)) == (150, 150)
    whole = tm.Request(300, 100, prefix_share=1)
    assert (float(whole.new_tokens), float(whole.past_tokens)) == (1, 299)  # the last token is run


def test_a_server_of_spread_experts():
    """Twelve sequences over two groups of experts are six of each."""
    step = SimpleNamespace(ep=2.0, pp=1.0, cp=1.0, batch=12.0, tp=4.0, compiled_tokens=2304.0, valid=True)
    first = SimpleNamespace(compiled_tokens=2048.0, valid=True)
    option = plain(tm.efficiencies("h200"))
    said = launch.command(tm.model("deepseek-v3"), option, step, first, tm.Precision(), 1, 2304.0)
    assert said == (
        "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel "
        "--max-model-len 2304 --max-num-seqs 6"
    )
