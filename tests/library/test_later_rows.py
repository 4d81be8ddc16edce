"""The rows collected later: what twelve lines mean, whose models they name, what has a reason and no answer."""

import csv
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog.load import DATA
from trnmodel.evidence.cells import UnreadableRowError, row_id, tokens
from trnmodel.evidence.meanings import decisions
from trnmodel.evidence.names import model_of
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import LATER, MEASURED, read_rows
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import model

COPIES = re.compile(r"same run|whose middle counts")
ASKED = re.compile(
    r"^(TTFT|TPOT|ITL|TKG|CTE|decode step|plain decode|context encoding|prefill|throughput|decode thr|"
    r"(e2e|request) latency|requests per second|latency|time$|busbw|bus bandwidth|total_time|device time"
    r"|per graph|\d+ all-red)"
)


@pytest.fixture(scope="module")
def rows():
    return read_rows(LATER)


@pytest.fixture(scope="module")
def table():
    return tm.validate(LATER)


def line(rows, number_):
    """A row by its line in the file, whose header is line 1."""
    return rows[number_ - 2]


NAMED = {  # line: question, sequences that run, slots that were compiled, context
    10: (
        "decode-step",
        1,
        1,
        (2048 + 32704) / 2 + 64 / 2 + 1,
    ),  # the middle of the latencies at the middle of the inputs
    28: ("decode-step", 1, 1, 640),
    63: ("all-decode-throughput", 1, 1, 1024),
    66: ("served-throughput", 1, 32, 900 + 90 / 2 + 1),  # one client of a graph for 32
    161: ("decode-step", 1, 1, 128 + 128 / 2 + 1),
    185: ("decode-throughput", 1, 4, 128 + 128 / 2 + 1),  # one request in a graph of four slots
    208: ("decode-throughput", 1, 1, 4096),
    323: ("decode-step", 16 / 2, 16 / 2, 8192 + 256 / 2 + 1),  # 16 clients of two engines: the middle gap is a step
    354: ("decode-step", 64, 64, 8192),
    534: ("decode-step", 1, 1, 4096 + 300),  # "4k" is the one bucket that serve.sh compiles
    543: ("decode-step", 1, 1, 8192 + 300),
    812: ("decode-step", 32, 32, 1024),
}


@pytest.mark.parametrize("at", NAMED)
def test_what_a_line_means(at, rows):
    r = reading(line(rows, at))
    assert (r.meaning, r.batch, r.compiled_batch, r.context) == NAMED[at]


def test_the_rows_are_those_that_were_collected(rows):
    assert len(rows) == 1048
    assert len({row["id"] for row in [*rows, *read_rows(MEASURED)]}) == 1048 + 2398
    assert all(row["id"] == row_id(row) for row in rows)


def test_every_row_has_one_use_or_one_reason(rows):
    assert all((d.use == "") != (d.reason == "") for d in decisions(rows))


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("GLM-4.7-Flash (MoE, MLA)", "glm-4.7-flash"),
        ("GLM-4.7", "glm-4.5"),
        ("zai-org/GLM-4.5-Air", "glm-4.5-air"),
        ("GLM-5.3-Flash (FP8, 288-expert MoE)", "glm-5.3-flash"),
        ("GLM-5.2", "glm-5.2"),
        ("GLM-5", "glm-5.2"),
        ("Kimi-K2-Instruct-0905 (1T MoE, 32B active)", "kimi-k2-instruct"),
        ("Kimi-K2.6", "kimi-k2.5"),
        ("mistralai/Mistral-Small-Instruct-2409", "mistral-small-2409"),
        ("Mistral-Small-3.1-24B", "mistral-small-3.1-24b"),
        ("Qwen3-Omni-30B-A3B thinker", "qwen3-30b-a3b"),
        ("Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("Qwen3-Coder-480B-A35B", "qwen3-coder-480b-a35b"),
        ("Qwen2.5-VL-72B (text)", "qwen2.5-72b"),
        ("DeepSeek-V3.2", "deepseek-v3.2"),
        ("DeepSeek-V3-0324", "deepseek-v3"),
        ("MiMo-V2.6-Flash-RL", "mimo-v2-flash"),
        ("MiniMax-M2.5", "minimax-m2.5"),
        ("Voxtral-Mini-3B", "voxtral-mini-3b"),
        ("Qwen3.5-27B", "qwen3.5-27b"),
        ("Qwen3.5-2B", "qwen3.5-2b"),
    ],
)
def test_whose_model_a_workload_is(workload, name):
    assert catalog()[model_of(workload).id if hasattr(model_of(workload), "id") else model_of(workload)].id == name


@pytest.mark.parametrize(
    "workload", ["ZAYA1-8B", "Evo2-7B (StripedHyena2)", "GLM-5.3-Vision", "MiMo-V2-Pro", "GLM-4.8"]
)
def test_a_model_of_another_name_is_none_of_ours(workload):
    with pytest.raises(UnreadableRowError, match="no configuration of"):
        model_of(workload)


@pytest.mark.parametrize(
    ("name", "total", "active", "cache"),
    [  # what publishers print; bytes a token by hand
        ("kimi-k2.5", 1.03e12, 32e9, 61 * (512 + 64) * 2),
        ("mimo-v2-flash", 309e9, 15e9, (9 * 4 + 39 * 8) * 320 * 2),
        ("minimax-m2.5", 230e9, 10e9, 62 * 8 * 2 * 128 * 2),
        ("glm-5.2", 744e9, 40e9, (78 * 576 + 21 * 128) * 2),
        ("deepseek-v3.2", 671e9, 37e9, 61 * (576 + 128) * 2),
        ("glm-4.7-flash", 30e9, 3e9, 47 * (512 + 64) * 2),
        ("mistral-small-2409", 22.2e9, 22.2e9, 56 * 8 * 2 * 128 * 2),
        ("qwen3.5-4b", 4.2e9, 4.2e9, 8 * 4 * 2 * 256 * 2),
    ],
)
def test_totals_that_publishers_print(name, total, active, cache):
    m = model(name)
    assert m.total_params == pytest.approx(total, rel=0.015)
    assert m.active_params() == pytest.approx(active, rel=0.35 if name == "glm-4.7-flash" else 0.11)
    assert m.kv_bytes_per_token("bf16") == cache


def test_a_checkpoint_with_its_vision_tower_and_prediction_layer():
    """321.3 thousand million elements in the publisher's metadata; the tower is 24 layers of 1,024 and a merger."""
    m = model("glm-5.3-flash")
    shared = 2 * m.hidden_size * m.vocab_size  # its prediction layer uses the embedding and the head of the model
    prediction = sum(layer.params for layer in m.prediction) - shared
    tower = 24 * (4 * 1024**2 + 3 * 1024 * 4096) + 3 * 10240 * 4096
    assert m.total_params + prediction + tower == pytest.approx(321.3e9, rel=0.002)
    assert m.kv_bytes_per_token("bf16") == 11 * (512 + 128) * 2
    assert model("glm-5.2").total_params + sum(
        layer.params for layer in model("glm-5.2").prediction
    ) - 2 * 6144 * 154880 == pytest.approx(753.3e9, rel=0.001)


def test_sparse_attention_sees_what_it_selects_and_keeps_everything():
    attention, index = model("deepseek-v3.2").layers[0].attentions
    assert [float(attention.visible(c)) for c in (1000, 2048, 100_000)] == [1000, 2048, 2048]
    assert float(attention.cached_tokens(100_000)) == float(index.visible(100_000)) == 100_000
    assert float(attention.pairs(4, 0, causal=True)) == 1 + 2 + 3 + 4
    assert float(attention.pairs(3, 5000, causal=True)) == 3 * 2048
    where = {"system": "trn3-nl32x2-pcie160", "mapping": tm.Mapping(tp=64), "batch": 1, "efficiencies": "ideal"}
    grows = [
        float(
            tm.decode_step(name, context=131_072, **where).time_s / tm.decode_step(name, context=8192, **where).time_s
        )
        for name in ("glm-5.2", "deepseek-v3")
    ]
    assert 1 < grows[0] < grows[1]


def test_indexers_as_listed_or_by_the_rule_of_the_file():
    """GLM-5.2 lists its indexers; first three layers and every fourth from the seventh are what its other keys say."""
    listed = model("glm-5.2")
    kinds = Counter(len(layer.attentions) for layer in listed.layers for _ in range(layer.count))
    assert kinds == {2: 21, 1: 57}


def test_four_fifths_of_times_and_rates_are_predicted(table):
    kinds = table.kind.str.match(r"^(inference-LLM|inference-LLM-serving|collective|kernel|inference-encoder)$")
    asked = table[kinds & table.metric.map(lambda m: bool(ASKED.match(m)))]
    assert len(asked) > 750
    assert (asked.skipped == "").mean() >= 0.8
    assert table.skipped[table.predicted.isna()].str.len().min() > 5
    assert len(table[table.skipped == ""]) >= 715


def test_few_predicted_rows_are_set_aside(table):
    predicted = table[table.skipped == ""]
    aside = predicted[(predicted.weight == 0) & ~predicted.set_aside.str.contains(COPIES)]
    assert len(aside) / len(predicted) <= 0.05
    training = table[table.kind == "training"]
    assert (training.skipped == "").sum() >= 4
    told = "no length of a sequence|a mean over more than the steps|does not fit in memory"
    assert training.skipped[training.predicted.isna()].str.contains(told).all()


def test_served_runs_are_consistent_with_themselves():
    """Tokens a second are those of requests whose tokens come one inter-token latency apart after the first."""
    grid = pd.read_csv(LATER)
    grid = grid[grid.source.str.contains("qwen-small-models") & (pd.to_numeric(grid.batch) > 1)]
    keys = ["workload", "lnc", "tp", "batch", "seq_len"]
    wide = grid.assign(what=grid.metric.str[:4]).pivot_table(
        values="value", index=keys, columns="what", aggfunc=lambda v: float(v.iloc[0])
    )
    batch = wide.index.get_level_values("batch").astype(float)
    printed = batch * 300 / (wide["TTFT"] + 299 * wide["ITL "] * 1e-3) / wide["thro"]
    assert len(printed) == 60
    assert np.abs(printed - 1).max() < 0.08


def test_a_closed_loop_by_hand(rows):
    """16 clients on 16 slots in four waves: 7/8 of the prefills of 15 others between 299 tokens."""
    itl, first, rate = (reading(line(rows, at)) for at in (540, 539, 538))
    step = predict(reading(line(rows, 540) | {"metric": "decode step", "kind": "inference-LLM", "note": ""}))
    prefill = predict(reading(line(rows, 533)))
    assert (itl.batch, itl.waves, itl.output_tokens) == (16, 4, 300)
    latency, wait = step + 7 / 8 * 15 * prefill / 299, (1 + 15 / 2 / 4) * prefill + step / 2
    assert predict(itl) == pytest.approx(latency)
    assert predict(first) == pytest.approx(wait)
    assert predict(rate) == pytest.approx(16 * 300 / (wait + 299 * latency))


@pytest.mark.parametrize(
    ("note", "batch", "active", "compiled"),
    [
        ("BS32 graph, concurrency 1", "32", 1, 32),
        ("BS32 graph, concurrency 16", "32", 16, 32),
        ("vLLM max_num_seqs 32, concurrency 64", "32", 32, 32),
        ("concurrency 7", "", 7, 7),
        ("", "5", 5, 5),
        ("concurrency 0", "8", 1, 8),
    ],
)
def test_clients_against_slots(note, batch, active, compiled, rows):
    """No more run than slots were compiled; the row that nobody has seen has a slot for each client."""
    row = {**line(rows, 69), "source": "nobody", "note": note, "batch": batch, "metric": "TPOT p50", "unit": "ms"}
    r = reading(row)
    assert (r.batch, r.compiled_batch) == (active, compiled)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("4k", 4096),
        ("16K", 16384),
        ("~4k", 4096),
        ("4k (~4000)", 4000),
        ("bucket 128", 128),
        ("8K (264 pages of 32)", 8192),
        ("1294 (mean)", 1294),
        ('~6 ("The capital of France is")', 6),
        ("4kk", np.nan),
        ("k", np.nan),
        ("bucket", np.nan),
        ("256-token chunk at 8K context", np.nan),
        ("9999999999k", np.nan),
        ("-4k", np.nan),
        ("1e3k", np.nan),
    ],
)
def test_lengths_as_later_tables_print_them(cell, value):
    assert tokens(cell) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        ("trn3pd98.3xlarge", "trn3pd98.3xlarge"),
        ("trn2.48xlarge (trn2, TP64)", "trn2.48xlarge"),
        ("trn3.48xlarge", "trn3pds98.48xlarge"),
        ("trn3.3xlarge", "trn3pd98.3xlarge"),
    ],
)
def test_instances_as_later_tables_print_them(instance, said, rows):
    assert reading(line(rows, 161) | {"instance": instance}).where == said
    four = line(rows, 161) | {"instance": f"4x {instance}"}
    assert reading(four).where == said  # one of four alike
    with pytest.raises(UnreadableRowError, match="machines of their own"):
        reading(four | {"note": "prefill/decode disaggregated 3:1 boxes"})


ODD = [
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e999",
    "concurrency 99999999999999999999999",
    "moe_ep0",
    "EP999999",
    "CTE bucket 0",
    "(",
    "\x00",
    "max_num_seqs 0",
    "4k-8k",
    "🚀",
    "x" * 3000,
]


@pytest.mark.parametrize("seed", range(3))
def test_spoilt_cells_give_a_reason(seed, rows):
    """Any cell may be anything: a row keeps its answer or says why it has none, and nothing else happens."""
    rng = np.random.default_rng(seed)
    some = [dict(rows[i]) for i in rng.choice(len(rows), 250, replace=False)]
    for row in some:
        row[rng.choice([name for name in row if name != "id"])] = ODD[rng.integers(len(ODD))]
    found = tm.validate(pd.DataFrame(some).drop(columns="id"))
    assert ((found.skipped != "") != np.isfinite(found.predicted.astype(float))).all()


def test_what_was_said_before_anything_was_fitted_is_kept():
    """`blind.csv` is a record: groups of the later rows as the package of the named commit answered them."""
    with (DATA / "evidence" / "blind.csv").open(newline="") as stream:
        kept = list(csv.DictReader(stream))
    assert len({row["group"] for row in kept}) == len(kept)
    assert len({row["commit"] for row in kept}) == 1
    assert sum(int(row["rows"]) for row in kept) <= 715
    for row in kept:
        assert 0 < int(row["configurations"]) <= int(row["rows"])
        assert 0 <= float(row["median_error"]) <= float(row["p90_error"])
        assert 0 <= float(row["coverage"]) <= 1
    dense = next(row for row in kept if row["group"] == "decode, dense, Trainium2")
    assert float(dense["median_error"]) > 0.3  # what the fits started from
