"""What a plan picks, and what it says, of points and choices that are worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from trnmodel.search.objective import REQUESTS, TOKENS
from trnmodel.search.request import Grid

import trnmodel as tm
from trnmodel.catalog.options import plain
from trnmodel.search import launch, request
from trnmodel.search import plan as planner

LIKE = dict.fromkeys(("compute", "memory", "network", "overhead"), 1.0)


def named(name: str, **more):
    return SimpleNamespace(id=name, **more)


class Told(planner.Choice):
    """A choice of which a test says what a plan tells of it; the rest of its fields are not there."""

    basis = chip_s = in_words = to_frame = merit = mapping = valid = low = high = None

    def __init__(self, **what):
        for name, value in what.items():
            object.__setattr__(self, name, value)


def choice(name: str, merit: float = 100.0, valid: bool = True, low: float = 90.0, high: float = 110.0, **more):
    """A choice as far as a plan tells of it: seconds of a chip by resource beside what it makes."""
    at = LIKE | {key: more.pop(key) for key in LIKE if key in more}
    told = {
        "tokens_per_s_per_user": "25",
        "ttft_s": "0.5",
        "with_prompts_tokens_per_s_per_chip": "90",
        "tokens_per_s_per_chip": merit,
    }
    words = lambda figure, unit="", basis="": f"{told[figure]} {unit}{basis and f' ({basis})'}".strip()  # noqa: E731
    one = {"chip_s": at.__getitem__, "system": named(name, chips=16), "in_words": words}
    one |= {"stack": SimpleNamespace(kind="public"), "basis": "measured", "mapping": "bf16, TP 4", "chips": 2.0}
    one["to_frame"] = lambda bands: pd.DataFrame({"x": [name], "bands": bands})
    return Told(**one | {"merit": merit, "valid": valid, "low": low, "high": high} | more)


def plan_of(*choices, second=(), refused=None, beside=()):
    model = tm.model("llama-3.1-8b")
    return planner.Plan(model, 20.0, 1024.0, 256.0, choices, second, refused or {}, beside)


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
    found = plan_of(BEST, slow, choice("c", 99.5), even, second=(again,))
    assert found.reason(slow) == "too slow: at most 25 tokens/s per user"
    assert found.reason(even) == "20 % less with overlapping bands"
    assert found.reason(found.choices[2]) == "the same within 1 %"
    assert found.reason(again) == "0 % less with overlapping bands"  # another mapping is never another system


def test_a_reason_is_asked_of_a_choice_of_this_plan():
    """Of one that looks the same, but is another plan's, it says nothing; nor of what is no choice."""
    other = choice("b", 80.0, step=SimpleNamespace(model=named("llama-3.1-8b")))
    for stranger in (other, SimpleNamespace(**vars(other)), "b", None):
        with pytest.raises(ValueError, match=r"c=.*a Choice of this plan"):
            plan_of(BEST, choice("b", 80.0)).reason(stranger)


def test_the_runner_up_is_another_system_that_does_less():
    same, less, second = choice("same", 99.5), choice("less", 98.6), choice("best", 90.0)
    assert plan_of(BEST, same, less, second=(second,)).runner_up is less
    assert plan_of(BEST, same, second=(second,)).runner_up is same
    assert plan_of(BEST, second=(second,)).runner_up is second
    assert plan_of(BEST).runner_up is None


def test_systems_that_lose_are_told_by_reason():
    """Three systems with a reason and three reasons are told; the runner-up has a line of its own."""
    many = {
        name: why for why, names in {"w": "abcd", "x": "efg", "y": "h", "z": "i", "v": "jk"}.items() for name in names
    }
    after = choice("best", 90.0)
    found = plan_of(BEST, second=(after,), refused=many)
    assert found._others(after) == ["others: a, b, c and 1 more (w); e, f, g (x); h (y); 3 more systems"]
    assert plan_of(BEST, refused={"a": "w"})._others(None) == ["others: a (w)"]
    assert plan_of(BEST)._others(None) == []
    other = choice("b", 80.0)
    assert plan_of(BEST, other, refused={"c": "w"})._others(other) == ["others: c (w)"]


def test_a_card_of_a_plan():
    beside = (choice("best", 120.0, stack=SimpleNamespace(kind="hand-tuned")),)
    beside += (choice("best", 130.0, valid=False, stack=SimpleNamespace(kind="ideal")),)
    other = choice("b", 80.0, memory=20.0, high=85.0)
    why = "20 % less: memory takes 20 s of chip time per token, not 10 s"
    asked = "llama-3.1-8b at 20 tokens/s per user, 1,024 tokens in and 256 out"
    found = plan_of(BEST, other, refused={"c": "w"}, beside=beside)
    assert planner.Plan.card(
        SimpleNamespace(
            **{
                name: getattr(found, name)
                for name in (
                    "best",
                    "runner_up",
                    "model",
                    "input_tokens",
                    "output_tokens",
                    "tokens_per_s_per_user",
                    "beside",
                    "reason",
                    "_others",
                )
            },
            command="vllm",
        )
    ) == [
        f"{asked}: 100.0 tokens/s per chip (measured) on best with public software",
        (
            "mapping: bf16, TP 4, 2 of 16 chips; 25 tokens/s per user, first token after 0.5 s, "
            "90 tokens/s per chip if the same chips prefill the prompts"
        ),
        "other software on it: hand-tuned 120.0 tokens/s per chip, ideal too slow",
        f"runner-up: b, bf16, TP 4; 80.0 tokens/s per chip, {why}",
        "others: c (w)",
        "vllm",
    ]
    slow = plan_of(choice("a", 30.0, valid=False), choice("b", 20.0, valid=False))
    assert slow.card()[0] == f"{asked}: too slow, at most 25 tokens/s per user (measured) on a with public software"
    assert slow.card()[2:] == ["runner-up: b, bf16, TP 4; too slow: at most 25 tokens/s per user"]
    assert plan_of(refused={"c": "w"}).card() == [f"{asked}: fits on no system", "others: c (w)"]


def test_rows_of_a_plan():
    other, second = choice("b", 80.0, memory=20.0, high=85.0), choice("best", 90.0)
    table = plan_of(BEST, other, second=(second,), refused={"c": "w"}, beside=(choice("best"),)).to_frame(bands=True)
    assert table.index.tolist() == list(range(5))
    assert table.role.tolist() == ["best", "system", "mapping", "beside", "refused"]
    why = "20 % less: memory takes 20 s of chip time per token, not 10 s"
    assert table.why.tolist() == ["", why, "", "", "w"]
    assert (table.system[4], table.valid[4]) == ("c", False)
    assert table.bands[:4].tolist() == [True] * 4
    assert plan_of(BEST).to_frame().bands.tolist() == [False]


def test_the_fewest_chips_of_those_that_do_the_same_come_first():
    """99.1 is within 1 % of 100 and 98.9 is not; a choice that is too slow comes after all that are not."""
    some = [choice("a", 98.9, chips=1.0), choice("b", 99.1, chips=2.0), choice("c", 100.0, chips=4.0)]
    some += [choice("d", 500.0, valid=False, chips=1.0), choice("e", 99.5, chips=4.0), choice("f", 600.0, valid=False)]
    assert [c.system.id for c in planner.ordered(some)] == ["b", "c", "e", "a", "f", "d"]


@pytest.mark.parametrize(("given", "output"), [(131_071, 1), (1, 1), (1, 131_071)])
def test_lengths_up_to_the_longest_context(given, output):
    asked = planner._asked(tm.model("llama-3.1-8b"), 20, given, output, None)
    assert asked.request[1:] == (given, output)
    assert (asked.wanted, [one.name for one in asked.precisions]) == (20, ["bf16", "fp8", "mxfp8"])


@pytest.mark.parametrize(
    ("given", "output", "named_"),
    [(131_071, 2, "input_tokens + output_tokens"), (0.99, 1, "input_tokens"), (1, 0.99, "output_tokens")],
)
def test_lengths_beyond_are_refused(given, output, named_):
    with pytest.raises(ValueError, match=f"{named_}=".replace("+", r"\+")):
        tm.plan("llama-3.1-8b", tokens_per_s_per_user=20, input_tokens=given, output_tokens=output)


def searched(objective=TOKENS, **changes):
    """Four mappings, two batches: fast at 20 to the letter, fast, too slow, and one that does not fit."""
    grid = Grid(
        tp=np.array([1.0, 2.0, 4.0, 8.0]),
        ep=np.array([1.0, 1.0, 1.0, 2.0]),
        batch=np.array([[3.0, 3.0, 3.0, 6.0], [5.0, 5.0, 5.0, 10.0]]),
        chips=np.array([1.0, 1.0, 1.0, 4.0]),
        request_chip_s=np.array([[0.5, 0.2, 0.1, 0.1], [0.4, 0.1, np.nan, 0.1]]),
        tokens_per_s_per_user=np.array([[20.0, 30.0, 19.0, 90.0], [10.0, 25.0, 5.0, 90.0]]),
        tokens_per_s_per_chip=np.array([[5.0, 3.0, 60.0, 90.0], [9.0, 4.0, 70.0, 90.0]]),
        fits=np.array([[True, True, True, False], [True, True, True, False]]),
        need=np.array([[10.0, 10.0, 10.0, 120.4], [10.0, 10.0, 10.0, 150.0]]),
        have=np.array([96.0, 96.0, 96.0, 96.0]) * np.ones((2, 1)),
        why=np.full((2, 4), "too long", dtype=object),
    )._replace(**changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "grid", lambda *asked: grid)
        return planner._searched(planner._Ask(None, 20.0, (), objective), None, None, "bf16")


def test_the_two_best_mappings_of_a_precision():
    """20 tokens/s are as fast as 20; of those that are, by what a chip makes, else by what a user gets."""
    first, second = searched()
    assert (first.rank, first.tp, first.batch, first.precision) == ((2, 5.0), 1.0, 3.0, "bf16")
    assert (second.rank, second.tp, second.batch) == ((2, 4.0), 2.0, 5.0)
    slow = searched(tokens_per_s_per_user=np.array([[18.0, 17.0, 19.0, 90.0], [10.0, 25.0, 5.0, 90.0]]))
    assert [(point.rank, point.tp) for point in slow] == [((2, 4.0), 2.0), ((1, 19.0), 4.0)]
    mine = searched(REQUESTS)
    assert [(point.rank, point.tp) for point in mine] == [((2, 10.0), 2.0), ((2, 2.0), 1.0)]


def test_why_a_point_does_not_fit():
    """Of 96 GiB 120.4 and 150 are asked for, of which 120.4 is nearer; a point that has as much fails otherwise."""
    none = searched(fits=np.zeros((2, 4), dtype=bool), need=np.array([[96.0, 97.0, 200.0, 120.4], [300.0] * 4]))
    assert [(point.tp, point.rank, point.why) for point in none] == [
        (1.0, (0, -1.0), "too long"),
        (2.0, (0, -97 / 96), "does not fit: 97 of 96 GiB"),
    ]
    assert searched(fits=np.array([[False] * 4] * 2))[0].why == "too long"
    far = searched(fits=np.zeros((2, 4), dtype=bool), need=np.full((2, 4), 120.4))[0]
    assert (far.batch, far.ep, far.why) == (10.0, 2.0, "does not fit: 120 of 96 GiB")


def step(**more):
    at = {f"{name}_s": 0.03 for name in LIKE}
    return SimpleNamespace(
        **at
        | {
            "time_s": 0.05,
            "occupied_chips": 24.0,
            "tokens_per_s_per_user": 20.0,
            "tokens_per_s_per_chip": 6.0,
            "compiled_tokens": 1280.0,
        }
        | more
    )


@pytest.mark.parametrize(
    ("system", "chips", "instances", "replicas"),
    [("gb200-nvl72", 24.0, 1, 3), ("gb200-nvl72", 32.0, 1, 2), ("trn2.48xlarge", 24.0, 2, 0)],
)
def test_a_choice_is_read_from_its_step_and_its_prompt(monkeypatch, system, chips, instances, replicas):
    """8 requests of 100 steps of 0.05 s and 8 prompts of 0.25 s: 8 / 7 a second, of 100 tokens each."""
    asked, made, first = [], step(occupied_chips=chips), step(time_s=0.4)
    monkeypatch.setattr(planner, "alone", lambda *ask: (asked.append(ask[3:]), (made, first, 0.25))[1])
    ask = planner._Ask(planner.Request(None, 300.0, 100.0), 20.0, ())
    point = planner._Point((2, 1.0), tm.Precision(), 4.0, 2.0, 8.0, "")
    found = planner._chosen(ask, tm.system(system), tm.efficiencies("trainium2"), point)
    assert asked == [(tm.Precision(), 4.0, 2.0, 8.0)]
    assert (found.tp, found.ep, found.batch, found.chips, found.ttft_s) == (4.0, 2.0, 8.0, chips, 0.4)
    assert (found.instances, found.replicas_per_instance) == (instances, replicas)
    assert found.with_prompts_tokens_per_s_per_chip == pytest.approx(800 / 7 / chips)
    assert bool(found.valid)  # at 20 tokens/s to the letter
    assert found.merit() == 6.0
    assert found.chip_s("memory") == pytest.approx(0.03 * chips / 8)
    slow = planner._chosen(ask._replace(wanted=20.1), tm.system(system), tm.efficiencies("trainium2"), point)
    assert (bool(slow.valid), slow.merit()) == (False, 20.0)


def test_a_figure_of_both_is_as_wide_as_the_wider_on_each_side():
    first, decode = (SimpleNamespace(widths=lambda name, pair=pair: pair) for pair in ((0.1, 0.4), (0.2, 0.3)))
    choice = SimpleNamespace(first=first, step=decode)
    for name, pair in (("ttft_s", (0.1, 0.4)), ("tokens_per_s_per_chip", (0.2, 0.3)), ("with_prompts", (0.2, 0.4))):
        assert planner.Choice._widths(choice, name) == pair


def test_which_points_a_plan_shows(monkeypatch):
    """The best of each system that fits, the next mapping of the best one, other software; all if they fit."""
    levels = {"public": [(2, 9.0), (1, 8.0), (1, 7.0)], "hand-tuned": [(2, 9.5), (1, 1.0)], "ideal": [(0, -1.2)]}

    def points(ask, spec, e):
        some = [(0, -1.5)] if spec.id == "trn2.3xlarge" else levels[e.kind]
        return [planner._Point(rank, None, 1.0, 1.0, 1.0, f"why {rank}") for rank in some]

    def chosen(ask, spec, e, point):
        return SimpleNamespace(valid=True, merit=point.rank[1], chips=1.0, system=spec, stack=e, point=point)

    monkeypatch.setattr(planner, "_points", points)
    monkeypatch.setattr(planner, "_chosen", chosen)
    ask = {"tokens_per_s_per_user": 20, "input_tokens": 1024, "output_tokens": 256}
    found = planner.plan("llama-3.1-8b", ["trn2.3xlarge", "trn2.48xlarge"], **ask)
    assert [c.system.id for c in found.choices] == ["trn2.48xlarge"]
    assert found.refused == {"trn2.3xlarge": "why (0, -1.5)"}
    assert [c.point.rank for c in found.second] == [(1, 8.0)]
    assert [(c.stack.kind, c.point.rank) for c in found.beside] == [("hand-tuned", (2, 9.5))]
    levels["public"][1:] = [(0, -1.0)]
    assert planner.plan("llama-3.1-8b", "trn2.48xlarge", **ask).second == ()
    assert planner.plan("llama-3.1-8b", "trn2.48xlarge", **ask, efficiencies="hand-tuned").beside == ()
    model, spec = tm.model("llama-3.1-8b"), tm.system("trn2.48xlarge")
    for kind, rank in (("hand-tuned", (2, 9.5)), ("ideal", None)):
        stack = tm.efficiencies("trainium2", kind)
        best = planner.served(model, spec, stack, **ask, precision=None, objective=TOKENS)
        assert (best and best.point.rank) == rank


# What a request takes


def test_steps_of_a_request(monkeypatch):
    """300 tokens in and 100 out: steps at 350, graphs and caches for 400, one prompt unless more are asked for."""
    asked = {}
    monkeypatch.setattr(request, "decode_step", lambda *spec, **ask: asked.update(decode=ask))
    monkeypatch.setattr(request, "prefill", lambda *spec, **ask: asked.update(prefill=ask))
    one = request.Request("m", 300.0, 100.0)
    one.decode("s", "mapping", "e", "bf16", 7)
    one.prefill("s", "mapping", "e", "bf16")
    how = {"precision": "bf16", "efficiencies": "e", "max_context": 400.0}
    assert asked["decode"] == how | {"batch": 7, "context": 350.0}
    assert asked["prefill"] == how | {"batch": 1, "input_tokens": 300.0}


def test_a_grid_of_requests(monkeypatch):
    """At EP 2 two prompts go together: 6 requests of 100 steps of 0.04 s and prompts of 0.25 s, 5.5 s, on 4 chips."""
    at, calls = {}, []

    def tried(model, spec, **ask):
        at["tried"] = ask
        return SimpleNamespace(
            tp=np.array([1.0, 2.0]), ep=np.array([1.0, 2.0]), batch=np.array([[3.0, 6.0]]), valid=valid[0],
            time_s=np.array([[0.03, 0.04]]), occupied_chips=np.array([1.0, 4.0]), tokens_per_s_per_user=np.ones((1, 2)),
            tokens_per_s_per_chip=np.full((1, 2), 7.0), reason=np.array([["", "why"]]),
        )  # fmt: skip

    def fit(model, spec, mapping, **ask):
        at["fit"] = ask
        held = {"first_rank_total_bytes": 2.0**30 * np.ones((1, 2)), "first_rank_capacity_bytes": 2.0**31}
        return SimpleNamespace(valid=valid[1], **held)

    def prefill(spec, mapping, e, precision, batch=1):
        calls.append(batch)
        return SimpleNamespace(valid=valid[2], time_s=np.array([0.2, 0.5]) if np.ndim(batch) else 0.2)

    monkeypatch.setattr(request, "tried", tried)
    monkeypatch.setattr(request, "memory_fit", fit)
    ask = SimpleNamespace(model="m", given=300.0, output=100.0, longest=400.0, prefill=prefill)
    for wrong in (None, 0, 1, 2):
        valid = [np.array([[True, True]]) for _ in range(3)]
        if wrong is not None:
            valid[wrong] = np.array([[False, True]])
        found = request.grid.__wrapped__(ask, "s", "e", "bf16")
        assert found.fits.tolist() == [[wrong is None, True]]
    how = {"precision": "bf16", "efficiencies": "e"}
    assert at["tried"] == how | {"context": 350.0, "max_context": 400.0}
    assert at["fit"].pop("batch").tolist() == [[3.0, 6.0]]
    assert at["fit"] == how | {"context": 400.0, "input_tokens": 300.0}
    assert calls[1].tolist() == [1.0, 2.0]
    assert found.request_chip_s.tolist() == [pytest.approx([(3.0 + 0.6) / 3, (4.0 + 6 * 0.25) / 6 * 4])]
    assert (found.need.tolist(), found.have.tolist(), found.why.tolist()) == ([[1.0, 4.0]], [[2.0, 8.0]], [["", "why"]])


@pytest.mark.parametrize(("ep", "prompts", "each"), [(1.0, [1], 0.5), (2.0, [1, 2.0], 0.5), (4.0, [1, 4.0], 0.5)])
def test_a_point_by_itself(ep, prompts, each):
    """One prompt first; where experts are spread, one for each group of them, together."""
    asked = []

    def prefill(spec, mapping, e, precision, batch=1):
        asked.append(batch)
        return SimpleNamespace(time_s=0.5 * batch)

    ask = SimpleNamespace(decode=lambda *point: point[-1], prefill=prefill)
    same = SimpleNamespace(it=None)
    step, first, prompt_s = request.alone.__wrapped__(ask, same, same, "bf16", 2.0, ep, 8.0)
    assert (step, first.time_s, prompt_s, asked) == (8.0, 0.5, each, prompts)


def test_a_server_of_spread_experts():
    """Twelve sequences over two groups of experts are six of each."""
    step = SimpleNamespace(ep=2.0, pp=1.0, batch=12.0, tp=4.0, compiled_tokens=2304.0, valid=True)
    first = SimpleNamespace(compiled_tokens=2048.0, valid=True)
    e = tm.efficiencies("h200")
    told = launch.command(tm.model("deepseek-v3"), plain(e), step, first, tm.Precision(), 1, 2304.0)
    assert told == (
        "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel "
        "--max-model-len 2304 --max-num-seqs 6"
    )
