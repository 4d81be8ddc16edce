"""Questions of finite numbers that nothing in the world can be: each is refused, or answered with NaN and a reason.

The rows of `impossible.csv` were written by thinking of what cannot be, not of what the code checks.
"""

import csv
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.result import Result
from trnmodel.search.plan import Plan
from trnmodel.search.token_cost import TokenCosts
from trnmodel.steps.answers import MemoryFit

from .calls import HELPERS
from .judge import attempt, little_memory
from .values import made

with Path(__file__).with_name("impossible.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="|"))

STEP = "model='llama-3.1-8b', system='trn2.48xlarge', mapping=tm.Mapping(tp=8)"
ASK = "request=tm.Request(512, 64, tokens_per_s_per_user=20.0)"
BASES = {
    "decode_step": f"{STEP}, batch=4, context=2048",
    "prefill": f"{STEP}, input_tokens=2048",
    "memory_fit": f"{STEP}, batch=4, context=2048",
    "serve": f"{STEP}, request=tm.Request(512, 64, requests_per_s=1), max_batch=16",
    "Request": "input_tokens=512, output_tokens=64",
    "disaggregate": "model='llama-3.1-8b', prefill_system='trn2.48xlarge', prefill_mapping=tm.Mapping(tp=8), "
    "decode_system='trn2.48xlarge', decode_mapping=tm.Mapping(tp=8), batch=4, input_tokens=1000, output_tokens=100",
    "tokens_per_step": "draft_tokens=4, acceptance=0.7",
    "plan": f"model='llama-3.1-8b', systems='trn2.3xlarge', {ASK}",
    "token_cost": f"model='llama-3.2-1b', systems='trn2.3xlarge', {ASK}",
    "goodput": "system='trn3-nl72x2-pcie160', chips=4096, model='llama-3.1-8b'",
    "tco": "system='trn3-nl32x2-pcie160'",
    "energy": "step=served(), batch=4, request=tm.Request(512, 64)",
    "train_step": "model='gpt3-6.7b', system='hgx-a100', mapping=tm.Mapping(tp=2), global_batch=8, seq=2048",
    "train_run": "model='llama-3.2-1b', systems='hgx-a100', tokens=1e12, chips=8, seq=2048, global_batch=8",
    "collective": "kind='all_reduce', message_bytes=2**20, system='trn2.48xlarge'",
    "clos": "switch_bits_per_s=25.6e12, port_bits_per_s=100e9, layers=3",
    "kernel.matmul": "chip='trainium2', m=512, n=512, k=512",
    "kernel.attention": "chip='trainium3', queries=512, keys=1024, heads=8",
    "kernel.dma": "chip='trainium2', moved_bytes=2**20, row_bytes=512",
    "kernel.host": "moved_bytes=1e9, stage_bytes_per_s=[7e9]",
    "support": "model='llama-3.1-8b', system='trn2.48xlarge'",
    "quality": "model='llama-3.1-8b', precision='fp8'",
    "system": "name='trn2.48xlarge'",
    "sensitivity": "function=lambda x: 2 * x, inputs={'x': (1.0, 2.0)}, draws=16",
}
RUN = f"tm.train_run({BASES['train_run']})"
OBJECTS = {  # on which methods are called
    "run": RUN,
    "rack": "tm.system('trn3-nl32x2-pcie160')",
    "chip": "tm.chip('trainium2')",
    "rent": "tm.rent('hgx-h100', 'on-demand')",
    "draws": f"tm.sensitivity({BASES['sensitivity']})",
    "transformer": "tm.model('llama-3.1-8b')",
}
LONGEST = 400


@pytest.fixture(autouse=True, scope="module")
def _bounded():
    with little_memory():
        yield


def code(name):
    """The code of what a row calls."""
    first, _, rest = name.partition(".")
    if first in OBJECTS:
        return f"{OBJECTS[first]}.{rest}"
    return name if name in HELPERS else f"tm.{name}"


class Asked:
    """A row as a call that the judge can attempt."""

    also: ClassVar = {"mapping": ("lnc",)}  # which a mapping holds

    def __init__(self, row):
        self.row = row

    def function(self, **arguments):
        return made(code(self.row["call"]), HELPERS)(**arguments)


@cache
def ordinary(name):
    return made(f"dict({BASES.get(name, '')})", HELPERS)


def answers(result):
    """Parts of a result that say whether they can exist."""
    if isinstance(result, TokenCosts):
        return list(result.lines)
    if isinstance(result, Plan):
        return list(result.choices)
    return [result]


def invalid(result):
    """What is wrong with a result that must be invalid at one point at least, or nothing."""
    if isinstance(result, Plan) and not result.choices:
        return "" if all(result.refused.values()) else "no reason"
    for one in answers(result):
        if not isinstance(one, Result) or np.all(one.valid):
            return "valid"
        bad = ~np.asarray(one.valid)
        if not all(np.ravel(one.reason)[np.ravel(bad)]):
            return "no reason"
        value = np.broadcast_to(np.asarray(getattr(one, one.FIGURE)), bad.shape) if hasattr(one, "FIGURE") else np.nan
        keeps = isinstance(result, Plan | MemoryFit)  # bytes that do not fit, and speeds that are too slow
        if not keeps and not np.all(np.isnan(np.broadcast_to(value, bad.shape)[bad])):
            return f"{one.FIGURE} is a number"
    return ""


@pytest.mark.one_cpu
@pytest.mark.parametrize("row", ROWS, ids=[f"{row['call']}({row['arguments']})" for row in ROWS])
def test_what_cannot_be_is_refused_or_invalid(row):
    asked = Asked(row)
    arguments = ordinary(row["call"]) | made(f"dict({row['arguments']})", HELPERS)
    names = [name.split("=")[0].strip() for name in row["arguments"].split(",") if "=" in name]
    spoiled = dict.fromkeys([name for name in names if name in arguments], row["verdict"] == "refused")
    fault = attempt(asked, arguments, spoiled)
    if row["verdict"] == "invalid":
        fault = fault or invalid(asked.function(**arguments))
    assert not fault


def test_the_corpus_is_large_and_of_every_public_question():
    assert len(ROWS) >= 200
    assert all(row["why"] and row["verdict"] in ("refused", "invalid") for row in ROWS)
    questions = {
        "decode_step",
        "prefill",
        "memory_fit",
        "Request",
        "serve",
        "plan",
        "token_cost",
        "goodput",
        "tco",
        "energy",
        "train_step",
        "train_run",
        "collective",
        "clos",
        "sensitivity",
        "system",
        "Mapping",
    }
    assert questions <= {row["call"] for row in ROWS}


@pytest.mark.parametrize("name", BASES)
def test_the_same_questions_are_answered_where_nothing_is_impossible(name):
    result = made(f"{code(name)}({BASES[name]})", HELPERS)
    assert all(np.all(one.valid) or "price" in str(one.reason) for one in answers(result) if isinstance(one, Result))


def test_a_half_of_a_spare_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"^spare_chips=0.5: allowed are whole numbers"):
        tm.goodput("hgx-h100", 8, model="llama-3.2-1b", spare_chips=0.5)
