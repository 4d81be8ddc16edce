"""Every call that takes `efficiencies` takes the same words, an id or an object, and refuses others in one way."""

import importlib
import inspect
import pkgutil

import pandas as pd
import pytest

import trnmodel
import trnmodel as tm
from trnmodel.catalog.options import options
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.search import train_search
from trnmodel.search.frontier import best_at, frontiers
from trnmodel.search.grid import options_of
from trnmodel.search.single import best_choice, candidates, options_for, questions_of
from trnmodel.serving.server import disaggregate
from trnmodel.training import rank

MODEL, SYSTEM, MAPPING = "llama-3.2-1b", "trn2.48xlarge", tm.Mapping(tp=4)
STEP = {"model": MODEL, "system": SYSTEM, "mapping": MAPPING}
LENGTHS = {"input_tokens": 1000, "output_tokens": 100}
SIDES = {"prefill_system": SYSTEM, "prefill_mapping": MAPPING, "decode_system": SYSTEM, "decode_mapping": MAPPING}
CELLS = {"instance": SYSTEM, "workload": MODEL, "tp": 4, "batch": 4, "seq_len": 1000}
ROWS = pd.DataFrame([CELLS | {"metric": "TPOT", "value": 9, "unit": "ms"}])
CALLS = {
    "tm.collective": (tm.collective, {"kind": "all_reduce", "message_bytes": 1e6, "system": SYSTEM, "ranks": 8}),
    "tm.decode_step": (tm.decode_step, {**STEP, "batch": 4, "context": 1000}),
    "tm.prefill": (tm.prefill, {**STEP, "input_tokens": 1000}),
    "tm.memory_fit": (tm.memory_fit, {**STEP, "batch": 4, "context": 1000}),
    "tm.legal": (tm.legal, STEP),
    "tm.support": (tm.support, {"model": MODEL, "system": SYSTEM}),
    "tm.legal, training": (tm.legal, {**STEP, "system": "hgx-h100", "training": True}),
    "tm.serve": (tm.serve, {**STEP, "request": tm.Request(**LENGTHS, requests_per_s=1.0), "max_batch": 8}),
    "disaggregate": (disaggregate, {"model": MODEL, **SIDES, **LENGTHS, "batch": 4, "mixed": True}),
    "tm.plan": (tm.plan, {"model": MODEL, "request": tm.Request(**LENGTHS), "systems": SYSTEM}),
    "tm.compare": (tm.compare, {"model": MODEL, "request": tm.Request(**LENGTHS), "systems": [SYSTEM]}),
    "tm.token_cost": (tm.token_cost, {"model": MODEL, "request": tm.Request(**LENGTHS), "systems": SYSTEM}),
    "tm.validate": (tm.validate, {"rows": ROWS}),
    "frontiers": (frontiers, {"model": MODEL, "request": tm.Request(**LENGTHS), "systems": [SYSTEM]}),
    "tm.train_step": (
        tm.train_step,
        {"model": MODEL, "system": "hgx-h100", "mapping": tm.Mapping(dp=8), "global_batch": 8, "seq": 1024},
    ),
    "tm.train_run": (
        tm.train_run,
        {"model": MODEL, "systems": "hgx-h100", "tokens": 1e9, "chips": 8, "global_batch": 8, "recompute": ["none"]},
    ),
    "tm.efficiencies": (tm.efficiencies, {"chip": "trainium2"}),
}
PASS_ON = {train_search.grid, rank.rank}  # what the calls of training take, inside of these
PASS_ON |= {
    best_at,
    best_choice,
    candidates,
    options_for,
    options_of,
    questions_of,
}  # what searches take, inside of `tm.plan` and its kin
PASS_ON |= {options}  # takes options too, and lists of them: `test_options.py`
WORDS = ("public", "hand-tuned", "ideal")
SEARCHES = ("tm.plan", "tm.compare", "frontiers")  # whose "public" is the stack with every documented option
OF_OPTIONS = (*SEARCHES, "tm.serve")
ALLOWED = (
    r"allowed is (the id of a stack, the path of its file, or a stack itself"
    r"|the id of a training stack, or a training stack itself"
    r'|"public", "no-speculation", "hand-tuned", "ideal", the id of a stack or of an option, a list of these, or a set)'
)


def arguments(call):
    """Return the arguments of a call that take efficiencies."""
    names = [name for name in inspect.signature(call).parameters if name.endswith("efficiencies")]
    return names or ["stack"]  # of `tm.efficiencies`


CASES = [(name, argument) for name, (call, _) in CALLS.items() for argument in arguments(call)]


def own(name, word):
    """Return the object that a word means in a call."""
    if "train" in name:
        return trainer(tm.chip("h100"), word)
    return find(tm.chip("trainium2"), word, "efficiencies")


def test_no_call_that_takes_efficiencies_is_forgotten():
    public = set()
    for module in pkgutil.walk_packages(trnmodel.__path__, "trnmodel."):
        if not module.name.endswith("__main__"):
            for call in vars(importlib.import_module(module.name)).values():
                if inspect.isfunction(call) and call.__name__[0] != "_" and call.__module__ == module.name:
                    names = inspect.signature(call).parameters
                    public |= {call for name in names if name.endswith("efficiencies")}
    assert public == ({call for call, _ in CALLS.values()} | PASS_ON) - {tm.efficiencies}


def table(answer):
    return vars(answer) if isinstance(answer, Efficiencies) else answer if hasattr(answer, "equals") else frame(answer)


def frame(answer):
    return answer.to_frame()


def same(one, other):
    return one.equals(other) if hasattr(one, "equals") else one == other


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_word_an_id_and_an_object_are_the_same_question(name, argument, word):
    call, ask = CALLS[name]
    stack = own(name, word)
    answers = [table(call(**ask, **{argument: e})) for e in (word, word.upper(), stack.id, stack)]
    assert same(answers[0], answers[1])
    assert same(answers[2], answers[3])
    with_options = name in (*SEARCHES, "tm.token_cost") and word != "ideal"
    assert same(answers[0], answers[2]) or with_options


@pytest.mark.parametrize("name", OF_OPTIONS)
def test_a_list_of_one_is_that_one_and_no_word_is_public(name):
    call, ask = CALLS[name]
    answers = [call(**ask, **more) for more in ({}, {"efficiencies": "public"})]
    assert same(*(table(one.best if name == "tm.plan" else one) for one in answers))  # a plan has others beside it
    for word in (*WORDS, "neuron-async"):
        assert same(*(table(call(**ask, efficiencies=e)) for e in ([word], word)))


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_an_unknown_word_is_refused_with_the_nearest_names(name, argument):
    call, ask = CALLS[name]
    for word, near in (("publik", "public"), ("hand-tund", "hand-tuned"), ("idea", "ideal")):
        with pytest.raises(ValueError, match=rf"^{argument}='{word}' is unknown; nearest: (.*, )?{near}"):
            call(**ask, **{argument: word})


@pytest.mark.parametrize(("name", "argument"), CASES)
@pytest.mark.parametrize("wrong", [3, ["ideal"], True, tm.Mapping()], ids=str)
def test_what_names_no_stack_is_refused(name, argument, wrong):
    call, ask = CALLS[name]
    if wrong == ["ideal"] and name in OF_OPTIONS:
        pytest.skip("takes a list")
    with pytest.raises(ValueError, match=rf"^{argument}=.*: {ALLOWED}"):
        call(**ask, **{argument: wrong})


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_stack_of_the_other_kind_is_refused(name, argument):
    call, ask = CALLS[name]
    other = Efficiencies(id="mine") if "train" in name else Trainer(id="mine")
    with pytest.raises(ValueError, match=rf"^{argument}=.*: {ALLOWED}"):
        call(**ask, **{argument: other})
