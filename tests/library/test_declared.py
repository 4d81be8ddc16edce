"""Arguments are declared once: every public call says what each allows, and checks it where a user passes it."""

import inspect
import json
import pickle
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trnmodel as tm
from trnmodel import declared
from trnmodel.calls import arguments_of, calls
from trnmodel.declared import Checked, Flag, Integer, Named, Number, Numbers, Object, Text, Word, declare

STEP = ("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8))
FUNCTIONS = {name: item for name in tm.__all__ if inspect.isfunction(item := getattr(tm, name))}
PAGES = {name: page for name in tm.__all__ if isinstance(page := getattr(tm, name), types.ModuleType)}
FUNCTIONS |= {
    f"{page}.{name}": item
    for page, module in PAGES.items()
    for name in getattr(module, "__all__", vars(module))
    if inspect.isfunction(item := getattr(module, name)) and name[0] != "_"
    if hasattr(module, "__all__") or item.__module__ == module.__name__
}
WITHOUT = {
    "kernel.operator": "one word, which the table of operators refuses",
    "roofline.attainable_flop_per_s": "a formula of a line on plain arrays, which the library calls as it is",
    "roofline.ceilings_flop_per_s": "a formula on plain arrays",
    "roofline.ridge_point_flop_per_byte": "a formula of a line on plain arrays",
    "roofline.time_s": "a formula of a line on plain arrays",
    "units.parse_number": "reads text of sources, and refuses what is no number by its text",
    "units.read_number": "reads what is typed, and names the flag that it is told",
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - WITHOUT.keys()))
def test_every_public_call_declares_its_arguments(name):
    arguments = inspect.signature(FUNCTIONS[name]).parameters
    assert set(getattr(FUNCTIONS[name], "allowed", ())) == set(arguments), f"{name} lacks @declare"


def test_the_calls_without_declarations_are_public():
    assert WITHOUT.keys() <= FUNCTIONS.keys()


def test_an_argument_without_a_declaration_is_an_error():
    with pytest.raises(TypeError, match="ask: declarations and arguments differ in context"):

        @declare(batch=Numbers(1))
        def ask(batch, context):
            return batch, context


def test_a_declared_call_keeps_its_own_signature_and_docstring():
    call = tm.decode_step
    assert list(inspect.signature(call).parameters)[:4] == ["model", "system", "mapping", "batch"]
    assert inspect.signature(call).parameters["batch"].kind is inspect.Parameter.KEYWORD_ONLY
    assert call.__doc__.startswith("Time of one decode step.")
    assert (call.__name__, call.__module__) == ("decode_step", "trnmodel.steps.inference")
    assert pickle.loads(pickle.dumps(call)) is call


def test_a_user_s_arguments_are_checked_and_those_of_the_library_are_not(monkeypatch):
    asked = []
    check = Numbers.check
    monkeypatch.setattr(Numbers, "check", lambda rule, name, value: asked.append(name) or check(rule, name, value))
    tm.plan("llama-3.1-8b", tm.Request(300, 77, tokens_per_s_per_user=21.5), "trn2.3xlarge")
    assert asked == []


def test_the_mark_is_gone_after_an_answer_and_after_an_error():
    tm.decode_step(*STEP, batch=1, context=128)
    with pytest.raises(ValueError, match="system='no such system'"):
        tm.decode_step("llama-3.1-8b", "no such system", batch=1, context=128)
    with pytest.raises(ValueError, match=r"^batch=0: allowed are numbers from 1 to 1e[+]30$"):
        tm.decode_step(*STEP, batch=0, context=128)


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(1)])
def test_a_user_s_function_is_checked_as_a_user_s_call(executor):
    def ask(batch):
        return tm.decode_step(*STEP, batch=batch - 1, context=128).time_s

    with pytest.raises(ValueError, match="batch="):
        tm.sweep(ask, {"batch": [1.0]}, executor=executor, progress=False)
    with pytest.raises(ValueError, match="batch="):
        tm.sensitivity(ask, {"batch": (0.5, 1.5)}, draws=4)


def test_a_deployment_of_wrong_values_is_refused_where_it_is_asked():
    with pytest.raises(ValueError, match="mapping='tp=8'"):
        tm.Deployment(model="llama-3.1-8b", system="trn2.48xlarge", mapping="tp=8")


def test_a_default_is_handed_over_as_a_checked_value_and_cannot_be_written_to():
    @declare(batch=Numbers(1), count=Integer(), kind=Word(("ring", "tree")))
    def ask(batch=2, count=3, kind="ring"):
        return batch, count, kind

    batch, count, kind = ask()
    assert (batch.dtype, batch.flags.writeable, float(batch), count, kind) == (np.dtype(float), False, 2.0, 3, "ring")


def test_wrong_numbers_of_arguments_are_python_s_own_errors():
    @declare(batch=Numbers(1), count=Integer())
    def ask(batch, count=3):
        return batch

    for arguments, named, message in (
        ((1, 2, 3), {}, "takes from 1 to 2 positional"),
        ((1,), {"batch": 2}, "multiple values"),
        ((), {"count": 2}, "missing 1 required"),
        ((1,), {"odd": 2}, "unexpected keyword"),
    ):
        with pytest.raises(TypeError, match=message):
            ask(*arguments, **named)


@pytest.mark.parametrize(
    ("rule", "words", "note", "schema"),
    [
        (Numbers(1), "numbers from 1", "from 1", {"type": "number", "minimum": 1}),
        (Number(0, 1), "a number from 0 to 1", "from 0 to 1", {"type": "number", "minimum": 0, "maximum": 1}),
        (Number(1e-30), "a number above 0", "above 0", {"type": "number", "exclusiveMinimum": 0}),
        (Number(-np.inf, np.inf), "a number of any sign", "of any sign", {"type": "number"}),
        (Integer(0, 3), "a whole number from 0 to 3", "whole, from 0 to 3", {"type": "integer", "maximum": 3}),
        (Flag(), "True or False", "True or False", {"type": "boolean"}),
        (Text(9), "text of up to 9 characters", "text of up to 9 characters", {"type": "string", "maxLength": 9}),
        (Word(lambda: ["b", "a"]), "one of a, b", "one of a, b", {"enum": ["a", "b"]}),
        (Named("a fleet"), "the id or name of a fleet", "the id or name of a fleet", {"type": "string"}),
        (Object(dict, "a table", {"type": "object"}), "a table", "a table", {"type": "object"}),
        (Checked("a list", {"type": "array"}), "a list", "a list", {"type": "array"}),
    ],
)
def test_a_rule_says_what_it_allows_in_words_and_as_a_schema(rule, words, note, schema):
    own = rule.schema()
    assert (rule.describe(), rule.brief()) == (words, note)
    assert schema.items() <= own.get("anyOf", [own])[0].items()


FILES = {name for name, one in calls().items() if hasattr(one, "json_schema")}  # whose schema is that of a file


@pytest.mark.parametrize("name", sorted(calls().keys() - FILES))
def test_the_schema_of_a_call_has_the_arguments_of_its_signature(name):
    parameters = inspect.signature(calls()[name]).parameters
    schema = tm.schema(name)
    assert json.loads(json.dumps(schema)) == schema
    assert (schema["type"], schema["title"], schema["additionalProperties"]) == ("object", name, False)
    assert list(schema["properties"]) == list(parameters)
    assert schema["required"] == [key for key, one in parameters.items() if one.default is one.empty]
    for key, one in schema["properties"].items():
        assert set(one) <= {"type", "anyOf", "enum", "properties", "required", "title", "description", "default"} | set(
            "items minItems minLength maxLength minimum maximum exclusiveMinimum additionalProperties".split()
        )
        assert one.get("description"), f"{name}: the docstring says nothing of {key}"
        if "default" in one:
            assert one["default"] == parameters[key].default


@pytest.mark.parametrize("name", ["decode_stp", "", None, 1, ["decode_step"], {}, "__class__", "Step"])
def test_an_unknown_call_has_no_schema(name):
    with pytest.raises(ValueError, match=r"^name=.*allowed is a public call; nearest: "):
        tm.schema(name)


def test_an_argument_that_is_described_elsewhere_is_described_here():
    assert arguments_of("prefill")["max_context"].description == arguments_of("decode_step")["max_context"].description


def test_nothing_is_inside_at_the_start():
    assert declared._INSIDE.get() is False
