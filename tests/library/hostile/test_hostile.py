"""No traceback, no warning, no silent nonsense: every argument of every public call meets what nobody should pass."""

import inspect
import subprocess
import sys
from contextlib import chdir
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm

from . import ordinary
from .calls import calls, parameters, public, registered
from .corpus import corpus
from .judge import insane, little_memory

CODES = sorted({call.code for call in calls() if call.kinds})
ORDINARY = sorted({call.code for call in calls() if call.ordinary})
SHOWN = 12


def of(code):
    """The calls of a code."""
    return [call for call in calls() if call.code == code]


@pytest.fixture(autouse=True, scope="module")
def _bounded(tmp_path_factory):
    """Little memory, and a folder of its own for calls that write where a hostile value says."""
    with little_memory(), chdir(tmp_path_factory.mktemp("hostile")):
        yield


@pytest.mark.one_cpu
@pytest.mark.parametrize("name", sorted(public()))
def test_every_public_argument_meets_hostile_values(name):
    item, known = public()[name], registered()
    assert not parameters(item) or item in known, f"{name} is in no row of tests/library/hostile/calls.py"
    assert parameters(item) <= known.get(item, set())


@pytest.mark.one_cpu
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize("code", CODES)
def test_hostile_values_are_refused_by_name_or_answered_with_sense(code, every):
    """Every seventh case in `make test`: hardly a pool has a multiple of seven, so that each argument meets others."""
    cases = islice((case for call in of(code) for case in corpus(call)), 0, None, every)
    found = [(case.line(), fault) for case in cases if (fault := case.fault())]
    lines = [ascii(f"{line}  ->  {fault}") for line, fault in found[:SHOWN]]
    assert not found, "\n".join([f"{len(found)} wrong answers", *lines])


def test_the_corpus_is_large():
    assert any(islice((case for call in calls() for case in corpus(call)), 2000, None))


@pytest.mark.one_cpu
@pytest.mark.parametrize("code", ORDINARY)
def test_unknown_and_missing_arguments_are_python_s_own_errors(code):
    call = of(code)[0]
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_argument'"):
        call.function(**call.arguments({}), no_such_argument=1)
    needed = [p.name for p in inspect.signature(call.function).parameters.values() if p.default is p.empty]
    for name in needed:
        arguments = call.arguments({})
        del arguments[name]
        with pytest.raises(TypeError, match=f"missing .* argument.*'{name}'"):
            call.function(**arguments)


ENDLESS = """
import os, sys, tempfile
from pathlib import Path
import trnmodel as tm

pipe = Path(tempfile.mkdtemp()) / "pipe.json"
os.mkfifo(pipe)
for path in ("/dev/zero", str(pipe), "/dev/stdin", "/proc/self/mem", "/"):
    for name, call in {"rows": tm.validate, "model": lambda path: tm.model(Path(path))}.items():
        try:
            call(path)
        except ValueError as error:
            assert len(str(error)) < 400 and str(error).isprintable(), error
        else:
            raise AssertionError(path)
"""


@pytest.mark.one_cpu
@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices as files")
def test_files_without_end_are_refused_unread():
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, said.decode()


def test_ordinary_calls_keep_their_numbers():
    rows = ordinary.rows()
    assert len(rows) == ordinary.CALLS
    assert [(row, found) for row in rows if (found := ordinary.fault(row))] == []


# A valid result of ordinary arguments is finite and not negative.

MODELS = st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "gemma-2-9b"])
SYSTEMS = st.sampled_from(["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-pcie160", "hgx-h100"])
POWERS = st.integers(0, 6).map(lambda power: 2**power)
MAPPINGS = st.builds(tm.Mapping, tp=POWERS, pp=st.integers(1, 4), dp=st.integers(1, 3), ep=POWERS, cp=st.integers(1, 4))
WHERE = {"model": MODELS, "system": SYSTEMS, "mapping": MAPPINGS}
TOKENS, SHARES = st.integers(1, 200_000), st.just(0.0) | st.floats(1e-30, 1)
WIDE = st.floats(1, 1e7)
ASK = settings(max_examples=60, deadline=None)


@ASK
@given(st.fixed_dictionaries(WHERE | {"batch": st.integers(1, 4096), "context": TOKENS}))
def test_decode_steps_and_memory_are_finite(asked):
    assert insane(tm.decode_step(**asked)) == ""
    assert insane(tm.memory_fit(**asked)) == ""


@ASK
@given(st.fixed_dictionaries(WHERE | {"batch": POWERS, "input_tokens": TOKENS, "past": st.integers(0, 100_000)}))
def test_prefills_are_finite(asked):
    assert insane(tm.prefill(**asked)) == ""


@ASK
@given(
    st.fixed_dictionaries(
        WHERE
        | {
            "request": st.builds(
                tm.Request,
                TOKENS,
                st.integers(1, 10_000),
                st.none() | st.floats(1e-3, 1e3),
                st.none() | st.floats(1e-3, 1e3),
                st.floats(1, 99.99),
                prefix_share=SHARES,
                requests_per_s=st.floats(1e-3, 1e3),
            ),
            "max_batch": st.integers(1, 256),
            "batching": st.sampled_from(["continuous", "static"]),
        }
    )
)
def test_serving_is_finite(asked):
    assert insane(tm.serve(**asked)) == ""


@ASK
@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"]),
    message_bytes=st.just(0.0) | st.floats(1e-30, 1e12),
    system=st.sampled_from(["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-pcie160"]),
    ranks=st.integers(1, 128),
)
def test_collectives_are_finite(kind, message_bytes, system, ranks):
    assert insane(tm.collective(kind, message_bytes, system, ranks=ranks)) == ""


@ASK
@given(chip=st.sampled_from(["trainium1", "trainium2", "trainium3"]), m=WIDE, n=WIDE, k=WIDE, share=SHARES)
def test_kernels_are_finite(chip, m, n, k, share):
    assert insane(tm.kernel.matmul(chip, m, n, k)) == ""
    assert insane(tm.kernel.attention(chip, min(m, n), max(m, n), heads=8)) == ""
    assert insane(tm.kernel.elementwise(chip, "softmax", m, n, hbm=share)) == ""
    assert insane(tm.kernel.dma(chip, m * n, k, queued=share)) == ""


@ASK
@given(
    switch=st.sampled_from([6.4e12, 12.8e12, 51.2e12]),
    port=st.sampled_from([50e9, 100e9, 400e9]),
    layers=st.sampled_from([2, 3]),
    oversubscription=st.floats(0.25, 8),
    planes=st.integers(1, 4),
    chips=st.integers(1, 10**6),
)
def test_networks_are_finite(switch, port, layers, oversubscription, planes, chips):
    more = {"oversubscription": oversubscription, "planes": planes, "chips": np.array([1, chips])}
    assert insane(tm.clos(switch_bits_per_s=switch, port_bits_per_s=port, layers=layers, **more)) == ""
