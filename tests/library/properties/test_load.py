"""More load never shortens a wait, fewer slots never raise throughput, and rows of a loaded server ask `tm.serve`.

Waits and rates are compared along ladders of rates, slots and clients. A row of an open loop is asked by `tm.validate`
and by `tm.serve`; neither calls the other.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import stacks
from trnmodel.evidence.cells import texts
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading

SERVERS = [
    ("llama-3.1-8b", "trn2.48xlarge", {"tp": 8}),
    ("qwen3-30b-a3b", "trn3-nl72x2-pcie160", {"tp": 4}),
    ("mistral-7b-v0.3", "inf2.48xlarge", {"tp": 8}),
    ("gpt-oss-120b", "trn2.48xlarge", {"tp": 8, "ep": 2}),
    ("llama-3.1-8b", "hgx-h100", {"tp": 1}),
]
RATES = np.geomspace(0.01, 100, 60)
SLOTS = np.array([1.0, 2, 3, 4, 8, 16, 17, 32, 64])
EXACT = 1e-9
ROW = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 32, "input_len": 1024, "value": 1}
ROW |= {"output_len": 256}
CLOSED = "vllm bench serve, max concurrency {}"
METRICS = {"TTFT p50": "s", "TPOT mean": "s", "throughput (output)": "tokens/s", "request latency": "s"}


def rises(values):
    known = values[~np.isnan(values)]
    assert known.size
    return bool(np.all(known[1:] >= known[:-1] * (1 - EXACT)))


@pytest.mark.parametrize(("model", "system", "degrees"), SERVERS)
def test_more_load_never_shortens_a_wait(model, system, degrees):
    served = tm.serve(model, tm.Request(1024, 256, requests_per_s=RATES), system, tm.Mapping(**degrees), max_batch=64)
    for name in ("ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "batch", "request_s"):
        assert rises(np.asarray(getattr(served, name))), name


@pytest.mark.parametrize(("model", "system", "degrees"), SERVERS)
@pytest.mark.parametrize("limit_s", [None, 2.0])
def test_more_slots_hold_no_less_when_they_may_be_left_empty(model, system, degrees, limit_s):
    """Of a server that may leave slots empty, so that a slot is room and no work."""
    request = tm.Request(1024, 256, 20.0, limit_s)
    served = tm.serve(model, request, system, tm.Mapping(**degrees), max_batch=SLOTS, compiled=False)
    assert rises(np.nan_to_num(np.asarray(served.tokens_per_s)))


def rows(note, **cells):
    return pd.DataFrame(
        [ROW | {"metric": metric, "unit": unit, "note": note} | cells for metric, unit in METRICS.items()]
    )


def asked(note, **cells):
    found = tm.validate(rows(note, **cells))
    assert not found.skipped.any(), found.skipped.tolist()
    return found.set_index("metric").predicted.astype(float)


@pytest.mark.parametrize("rate", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("dp", [1, 2])
def test_a_row_of_an_open_loop_and_the_server_agree(rate, dp):
    row = asked(f"vllm bench serve, request rate {rate}", dp=dp)
    request = tm.Request(1024, 256, requests_per_s=rate)
    served = tm.serve("llama-3.1-8b", request, "trn2.48xlarge", tm.Mapping(tp=8, dp=dp), max_batch=32)
    of_server = [served.ttft_p50_s, served.tpot_mean_s, served.tokens_per_s, served.request_s]
    np.testing.assert_allclose(row.to_numpy(), [float(x) for x in of_server], rtol=EXACT)


def test_a_row_with_more_arrivals_than_a_server_makes_has_a_throughput_alone():
    found = tm.validate(rows("vllm bench serve, request rate 1000")).set_index("metric")
    request = tm.Request(1024, 256)
    full = tm.serve("llama-3.1-8b", request, "trn2.48xlarge", tm.Mapping(tp=8), max_batch=32)
    assert float(found.predicted["throughput (output)"]) == pytest.approx(float(full.tokens_per_s))
    for metric in ("TTFT p50", "TPOT mean", "request latency"):
        assert "1000 requests/s are more than a replica makes" in found.skipped[metric]


def test_more_clients_never_shorten_a_wait_nor_lower_what_is_made():
    """Up to the slots each has one; beyond them requests wait, and the server makes what its slots make."""
    found = pd.concat([asked(CLOSED.format(clients)) for clients in (1, 2, 8, 32, 33, 64, 512)], axis=1)
    for metric in METRICS:
        assert rises(found.loc[metric].to_numpy()), metric
    full, beyond = found.iloc[:, 3], found.iloc[:, -1]
    assert beyond["throughput (output)"] == pytest.approx(full["throughput (output)"])
    assert beyond["TPOT mean"] == pytest.approx(full["TPOT mean"])


def test_a_client_without_a_slot_waits_by_little_law():
    """512 clients of 32 slots in eight waves: each stays 512 / 32 times as long, less half of a first wave's wait."""
    waited, full = asked(CLOSED.format(512)), asked(CLOSED.format(32))
    stays_s = full["request latency"] * (1 + (512 / 32 - 1) * (1 - 1 / 16))
    assert waited["request latency"] == pytest.approx(stays_s)
    assert waited["TTFT p50"] - full["TTFT p50"] == pytest.approx(stays_s - full["request latency"])


def test_llmperf_counts_the_first_token_in_its_interval():
    """What it prints is a request over its tokens: where half a minute is waited, that is no step."""
    row = rows("LLMPerf, max concurrency 512").assign(metric="inter-token latency mean", unit="s").head(1)
    per_token_s = float(tm.validate(row).predicted[0])
    assert per_token_s * 256 == pytest.approx(asked("LLMPerf, max concurrency 512")["request latency"])


def test_a_server_adds_to_a_first_token_once_and_to_no_step():
    stack = tm.efficiencies("trainium2")
    without = replace(stack, server_first_token_s=0.0)
    request = tm.Request(1024, 256, requests_per_s=1.0)
    ask = {"system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "max_batch": 32}
    more, less = (tm.serve("llama-3.1-8b", request, **ask, efficiencies=e) for e in (stack, without))
    for name in ("ttft_p50_s", "ttft_p99_s", "request_s"):
        assert getattr(more, name) - getattr(less, name) == pytest.approx(stack.server_first_token_s), name
    for name in ("tpot_mean_s", "tokens_per_s", "prefill_s", "step_s", "batch"):
        assert getattr(more, name) == pytest.approx(getattr(less, name)), name


def test_a_server_adds_nothing_to_a_row_of_a_bare_engine():
    cells = {**ROW, "metric": "TTFT", "unit": "s", "kind": "inference-LLM", "phase": "prefill", "batch": 1}
    bare, served = (
        predict(reading(texts(pd.DataFrame([cells | {"note": note}]))[0]))
        for note in ("NxD Inference", "vLLM, vllm bench serve, max concurrency 1")
    )
    assert served - bare == pytest.approx(tm.efficiencies("trainium2").server_first_token_s)


@pytest.mark.parametrize("stack", stacks())
def test_a_server_takes_no_time_back(stack):
    e = tm.efficiencies("trainium2", stack)
    assert e.server_first_token_s >= 0
    if "server_first_token_s" in e.ranges:
        low, high = e.ranges["server_first_token_s"]
        assert 0 <= low <= e.server_first_token_s <= high
