"""A result knows its system, model and job: no call that takes a result combines it with those of another."""

from functools import cache
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import trnmodel as tm

RACK, OTHER = "trn2.48xlarge", "hgx-h100"
SMALL, LARGE = "llama-3.2-1b", "llama-3.1-8b"
ASK = tm.Request(512, 64, tokens_per_s_per_user=20.0)
TRAIN = {
    "tokens": 1e12,
    "seq": 2048,
    "global_batch": 64,
    "batch_slack": 0.0,
    "recompute": ["none"],
    "zero": [1],
    "sequence_parallel": [True],
}


@cache
def step(system=RACK, model=SMALL):
    return tm.decode_step(model, system, tm.Mapping(tp=8), batch=4, context=2048)


@cache
def run(system=OTHER, model=SMALL, chips=8):
    return tm.train_run(model, system, chips=chips, **TRAIN)


def saved(answer):
    """Save a plan of the rack and the small model in a folder that is removed."""
    request = {"input_tokens": 512, "output_tokens": 64, "tokens_per_s_per_user": 20.0}
    with TemporaryDirectory() as folder:
        return tm.save_plan({"model": SMALL, "systems": RACK, "request": request}, f"{folder}/plan.json", answer)


# What gives a result: of a system and a model.
GIVES = {
    "Step": step,
    "MemoryFit": lambda system, model: tm.memory_fit(model, system, tm.Mapping(tp=8), batch=4, context=2048),
    "Serving": lambda system, model: tm.serve(
        model, tm.Request(512, 64, requests_per_s=0.1), system, tm.Mapping(tp=8), max_batch=8
    ),
    "Energy": lambda system, model: tm.energy(step(system, model)),
    "Goodput": lambda system, model: tm.goodput(system, 8, model=model),
    "Cost": lambda system, model: tm.tco(system, energy=tm.energy(step(system, model))),
    "Rent": lambda system, model: tm.rent(system, "on-demand"),
    "TokenCosts": lambda system, model: tm.token_cost(model, ASK, system),
    "TokenCost": lambda system, model: tm.token_cost(model, ASK, system).lines[0],
    "Plan": lambda system, model: tm.plan(model, ASK, system),
    "Choice": lambda system, model: tm.plan(model, ASK, system).best,
    "TrainStep": lambda system, model: tm.train_step(model, system, global_batch=8, seq=2048),
    "TrainRun": lambda system, model: run(OTHER, model),
    "Collective": lambda system, model: tm.collective("all_reduce", 2**20, RACK),
    "Sensitivity": lambda system, model: tm.sensitivity(lambda x: x, {"x": (1.0, 2.0)}, draws=4),
}

# What takes one: the kinds that it takes, its own system, whether the model counts, and the call.
TAKES = {
    "tco(energy=)": ("Energy", RACK, False, lambda one: tm.tco(RACK, energy=one)),
    "tco(goodput=)": ("Goodput", RACK, False, lambda one: tm.tco(RACK, goodput=one)),
    "tco(energy, goodput=)": ("Goodput", RACK, True, lambda one: tm.tco(RACK, energy=tm.energy(step()), goodput=one)),
    "tco(goodput, energy=)": (
        "Energy",
        RACK,
        True,
        lambda one: tm.tco(RACK, goodput=tm.goodput(RACK, 8, model=SMALL), energy=one),
    ),
    "usd_per_mtoken": ("Step Energy", RACK, False, lambda one: tm.tco(RACK).usd_per_mtoken(one)),
    "mtoken_ends": ("Step Energy", RACK, False, lambda one: tm.tco(RACK).mtoken_ends(one)),
    "tco(energy).usd_per_mtoken": (
        "Step Energy",
        RACK,
        True,
        lambda one: tm.tco(RACK, energy=tm.energy(step())).usd_per_mtoken(one),
    ),
    "token_cost(pricing=)": ("Cost Rent", RACK, True, lambda one: tm.token_cost(SMALL, ASK, RACK, pricing=one)),
    "priced": ("Cost Rent", RACK, True, lambda one: tm.token_cost(SMALL, ASK, RACK).priced(one)),
    "rent(pricing=)": ("Rent", RACK, False, lambda one: tm.rent(RACK, one)),
    "calendar_days": ("Goodput", OTHER, True, lambda one: run().calendar_days(one)),
    "owner_usd(useful=)": ("Goodput", OTHER, True, lambda one: run().owner_usd(useful=one)),
    "renter_usd(useful=)": ("Goodput", OTHER, True, lambda one: run().renter_usd("market", useful=one)),
    "site_j(useful=)": ("Goodput", OTHER, True, lambda one: run().site_j(useful=one)),
    "owned_hour(useful=)": ("Goodput", OTHER, True, lambda one: run().owned_hour(useful=one)),
    "bill_usd(useful=)": ("Goodput", OTHER, True, lambda one: run().bill_usd(useful=one)),
    "renter_usd(pricing=)": ("Rent", OTHER, False, lambda one: run().renter_usd(one)),
    "energy": ("Step Serving", RACK, False, tm.energy),
    "plan.reason": ("", RACK, False, lambda one: tm.plan(SMALL, ASK, RACK).reason(one)),
    "plan.merit": ("", RACK, False, lambda one: tm.plan(SMALL, ASK, RACK).merit(one)),
    "plan.capacity_of": ("", RACK, False, lambda one: tm.plan(SMALL, ASK, RACK).capacity_of(one)),
    "plan(pricing=)": ("Rent", RACK, False, lambda one: tm.plan(SMALL, ASK, RACK, pricing=one).capacity),
    "compare(pricing=)": (
        "Rent",
        RACK,
        False,
        lambda one: tm.compare(SMALL, ASK, [RACK, OTHER], pricing={RACK: one}),
    ),
    "break_even(pricing=)": (
        "Rent",
        RACK,
        False,
        lambda one: tm.compare(SMALL, ASK, [RACK, OTHER]).break_even(pricing={RACK: one}),
    ),
    "train_run(pricing=)": (
        "Rent",
        OTHER,
        False,
        lambda one: tm.train_run(SMALL, OTHER, chips=8, pricing=one, **TRAIN),
    ),
    "save_plan(answer=)": ("Plan", RACK, True, lambda one: saved(one)),
}
FREE = ("energy",)  # takes a step or a server of any system: there is nothing else that it could differ from


@pytest.mark.parametrize("taker", TAKES)
def test_only_results_of_the_same_system_and_model_are_combined(taker):
    kinds, own, by_model, call = TAKES[taker]
    for kind, give in GIVES.items():
        for system in (RACK, OTHER):
            for model in (SMALL, LARGE):
                same = system == own and (not by_model or model == SMALL or kind == "Rent")
                if kind in kinds.split() and (same or taker in FREE):
                    call(give(system, model))
                    continue
                with pytest.raises(ValueError, match=r"^\w+='?.*allowed|^pricing=") as caught:
                    call(give(system, model))
                assert len(str(caught.value)) < 400
                assert "\n" not in str(caught.value)


def test_every_call_that_takes_a_result_is_among_the_pairs():
    """Arguments that are annotated with a result, of all public functions and of methods of all results."""
    import inspect

    from . import results
    from .calls import public

    words = (
        "Step",
        "Energy",
        "Goodput",
        "Cost",
        "Rent",
        "Plan",
        "Choice",
        "TrainRun",
        "Serving",
        "TokenCost",
        "Result",
    )
    items = dict(public())
    for kind in results.reached():
        items |= {f"{kind.__name__}.{name}": item for name, item in results.methods(kind).items()}
    found = set()
    for item in items.values():
        for name, one in inspect.signature(item).parameters.items():
            kinds = str(one.annotation).replace("[", " ").replace("]", " ").replace(",", " ").split()
            if set(kinds) & set(words):
                found.add((item.__name__, name))
    assert found == {
        ("tco", "energy"),
        ("tco", "goodput"),
        ("usd_per_mtoken", "answer"),
        ("mtoken_ends", "answer"),
        ("token_cost", "pricing"),
        ("software_gap", "pricing"),
        ("rent", "pricing"),
        ("calendar_days", "useful"),
        ("owner_usd", "useful"),
        ("renter_usd", "useful"),
        ("site_j", "useful"),
        ("owned_hour", "useful"),
        ("bill_usd", "useful"),
        ("renter_usd", "pricing"),
        ("energy", "step"),
        ("reason", "c"),
        ("merit", "c"),
        ("capacity_of", "c"),
        ("plan", "pricing"),
        ("compare", "pricing"),
        ("break_even", "pricing"),
        ("train_run", "pricing"),
        ("save_plan", "answer"),
        ("next_measurement", "decision"),
    }


def test_a_job_of_other_chips_or_of_several_is_not_this_run_s():
    for chips in (16, [8, 8]):
        with pytest.raises(ValueError, match="useful='Goodput of"):
            run().calendar_days(tm.goodput(OTHER, chips, model=SMALL))
    assert run().calendar_days(tm.goodput(OTHER, 8, checkpoint_bytes=1e12)).value > 0
    assert run().calendar_days(run().goodput(swap="drain")).value > run().days
    with pytest.raises(ValueError, match=r"^chips=16: a run sets it itself"):
        run().goodput(chips=16)


def test_a_step_on_a_bare_chip_is_priced_on_systems_of_that_chip_alone():
    bare = tm.decode_step(SMALL, tm.chip("trainium2"), tm.Mapping(tp=8), batch=4, context=2048)
    assert tm.tco(RACK).usd_per_mtoken(bare) == pytest.approx(
        float(tm.tco(RACK).usd_per_mtoken(1.0)) / float(bare.tokens_per_s_per_chip)
    )
    with pytest.raises(ValueError, match=r"answer='Step of trainium2': .* h100"):
        tm.tco(OTHER).usd_per_mtoken(bare)


def test_racks_of_one_chip_are_not_one_rack():
    """The torus and the switched rack hold the same chip at other prices."""
    torus, switched = (f"trn3-nl32x2-{fabric}" for fabric in ("torus", "pcie160"))
    with pytest.raises(ValueError, match=f"pricing='Cost of {torus}': .* {switched}"):
        tm.token_cost(SMALL, ASK, switched, pricing=tm.tco(torus))
    with pytest.raises(ValueError, match=f"answer='Step of {torus}'"):
        tm.tco(switched).usd_per_mtoken(step(torus))


def test_several_domains_of_a_system_are_that_system():
    """The cost is of a chip of a domain, however many of them the step runs on."""
    joined = tm.decode_step(SMALL, tm.system(RACK, count=2), tm.Mapping(tp=8, dp=8), batch=4, context=2048)
    assert np.isfinite(tm.tco(RACK).usd_per_mtoken(joined))
