"""Fits, votes, verdicts and lines of tables by hand: what a group takes, when fits settle, how wide a bracket is."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.evidence import fit, ledger, search, table, wide_experts
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COLUMNS

NAN = math.nan
ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "3",
    "seq_len": "2048",
    "tp": "16",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}


@pytest.mark.parametrize(
    ("groups", "moves", "calls"),
    [(["decode"], 9, 1), (["decode", "prefill"], 3, 2 * 3), (["decode", "prefill"], 99, 24)],
)
def test_fits_go_round_until_none_moves(groups, moves, calls, monkeypatch):
    """One group once; two until a round changes nothing, here the third; twelve rounds at most."""
    seen = []

    def one(some, group, found):
        seen.append(group)
        return {"value": min(len(seen) // len(groups), moves - 1)}

    monkeypatch.setattr(fit, "fit", one)
    fit._fit_all(dict.fromkeys(groups, ()))
    assert len(seen) == calls


@pytest.mark.parametrize(
    ("change", "group", "belongs"),
    [
        ({}, "decode", True),
        ({}, "prefill", False),
        ({}, "expert-decode", False),
        ({"percentile": "99"}, "decode", False),
        ({"stack": "ideal"}, "decode", False),
        ({"use": "comparator"}, "decode", False),
        ({"use": "comparator"}, "comparator", True),
        ({"meaning": "decode-throughput"}, "decode", True),
        ({"meaning": "run-per-token"}, "decode", True),
        ({"model": "qwen3-30b-a3b"}, "decode", False),
        ({"model": "qwen3-30b-a3b"}, "expert-decode", True),
        ({"model": "jamba-v0.1"}, "expert-decode", True),
        ({"meaning": "run-per-token"}, "expert-decode", False),
        ({"meaning": "one-prefill"}, "prefill", True),
        ({"meaning": "forward"}, "encoder", True),
        ({"meaning": "forward", "model": "bert-large-uncased"}, "encoder", True),
        ({"meaning": "forward", "model": "qwen3-30b-a3b"}, "encoder", False),
        ({"meaning": "loaded-step"}, "server", True),
        ({"meaning": "loaded-step", "model": "qwen3-30b-a3b"}, "server", False),
    ],
)
def test_the_group_that_a_row_belongs_to(change, group, belongs):
    assert fit._belongs(replace(reading(ROW), **change), group) is belongs


def test_rows_of_one_question_are_one_vote(monkeypatch):
    """The middle of 11, 15 and 40 ms with the largest of their weights; of kernels that compete the least."""
    rows = pd.DataFrame([ROW | {"value": value} for value in ("15", "11", "40")] + [ROW | {"batch": "4"}])
    found = fit.cases(rows, "decode")
    assert [(case.measured, case.weight) for case in found] == [(0.015, 1.0), (0.015, 1.0)]
    assert [case.reading.batch for case in found] == [3, 4]
    monkeypatch.setattr(fit, "FASTEST", {"decode"})
    assert [case.measured for case in fit.cases(rows, "decode")] == [0.011, 0.015]
    monkeypatch.undo()
    (first,) = list(fit.readable([ROW | {"id": "x", "source": "a page @12ab"}]))
    assert (first.measured, first.weight, first.source, first.id) == (0.015, 1.0, "a page", "x")
    assert (first.model, first.family) == ("llama-3.1-70b", "trn2")
    shape = replace(
        first, reading=replace(first.reading, model="", asked=(("m", 2.0), ("n", 3.0)), where="trn1n.32xlarge")
    )
    assert (shape.model, shape.family) == ("m=2.0 n=3.0", "trn1")


def test_labels_of_a_case_by_hand():
    """TP 16 of two cores on one replica; three sequences in a batch compiled for five; measured in seconds."""
    (case,) = fit.cases(pd.DataFrame([ROW]), "decode")
    row = replace(case.reading, compiled_batch=5.0, context=777.0, prompt=555.0)
    (found,) = pd.DataFrame(fit.labels([replace(case, reading=row)])).to_dict("records")
    by_hand = {
        "meaning": "decode-step",
        "model": "llama-3.1-70b",
        "where": "trn2.48xlarge",
        "stack": row.stack,
        "tp": 16,
        "batch": 5.0,
        "context": 777.0,
        "prompt": 555.0,
        "measured": 0.015,
        "source": "somebody's table",
    }
    assert found.items() >= by_hand.items()


def test_logarithms_and_fitted_errors_by_hand():
    """Predicted over measured; without cases to learn from as shipped."""
    of = fit.cases(pd.DataFrame([ROW, ROW | {"batch": "4", "value": "9"}]), "decode")
    steps = [
        float(
            tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2), batch=batch, context=2048).time_s
        )
        for batch in (3, 4)
    ]
    by_hand = [math.log(steps[0] / 0.015), math.log(steps[1] / 0.009)]
    assert fit.log_errors(of) == pytest.approx(by_hand, rel=1e-9)
    assert fit.fitted_errors("decode")([], of) == pytest.approx(np.exp(by_hand) - 1, rel=1e-9)
    learned = fit.fitted_errors("decode")(of[:1], of[:1])
    assert abs(learned[0]) < abs(math.exp(by_hand[0]) - 1) / 2  # its own row fits better than before


def test_what_no_case_moves_stays():
    """A fit on one dense row of Trainium2 leaves parameters of other stacks where they are in force."""
    of = fit.cases(pd.DataFrame([ROW]), "decode")
    found = fit.fit(of, "decode")
    assert set(found) == set(fit.parameters("decode"))
    moved = {p for p, value in found.items() if abs(value / fit._in_force(p) - 1) > 1e-3}
    mine = {p for i, p in enumerate(found) if i in fit._moved_by(of[0], list(found))}
    assert moved
    assert moved <= mine
    assert mine < set(found)


def test_a_line_of_different_weights_is_that_of_numpy():
    x, y, w = [1.0, 2.0, 4.0, 7.0], [3.0, 2.0, 9.0, 5.0], [1.0, 4.0, 9.0, 16.0]
    slope, base = np.polyfit(x, y, 1, w=np.sqrt(w))
    assert search.line(x, y, w) == pytest.approx((base, slope))


def test_constants_stay_within_their_ends():
    """e^3 of where they start, or what is given; a share ends at one; a zero stays."""
    assert search.constants(lambda c: np.log(c / 1e4), [1.0])[0] == pytest.approx(math.exp(3), rel=1e-3)
    assert search.constants(lambda c: np.log(c / 1e-4), [1.0])[0] == pytest.approx(math.exp(-3), rel=1e-3)
    assert search.constants(lambda c: np.log(c / 9.0), [1.0], high=1.0)[0] == pytest.approx(math.e, rel=1e-3)
    assert search.constants(lambda c: np.log(c / 0.1), [1.0], low=-1.0)[0] == pytest.approx(1 / math.e, rel=1e-3)
    assert search.constants(lambda c: np.log((c + 1) / [3.0, 3.0]), [1.0, 0.0]).tolist() == [2.0, 0.0]
    assert search.room(["a_share", "b_overlap", "c_s", "d_share"], [0.5, 0.25, 0.5, 1e-9]) == pytest.approx(
        [math.log(2), math.log(4), 3.0, 3.0]
    )


def test_far_errors_count_by_their_size():
    """Soft L1 at a tenth, four rows at 1 and one at e: by SciPy's minimum of sum of sqrt(1 + (e / 0.1)^2)."""
    from scipy.optimize import minimize_scalar

    y = np.array([1.0, 1.0, 1.1, 1.2, math.e])
    best = minimize_scalar(lambda x: np.sqrt(1 + ((x - np.log(y)) / 0.1) ** 2).sum(), bounds=(-1, 2), method="bounded")
    assert search.constants(lambda c: np.log(c / y), [1.0])[0] == pytest.approx(math.exp(best.x), rel=5e-4)


def test_a_form_is_chosen_by_errors_of_at_most_a_half():
    """Form "wild" is exact but for one row that it misses by 9; form "flat" is 0.2 off each: 0.1 is less than 0.2."""
    names, off = [*"abcde"], {"wild": [0, 0, 0, 9.0, 0], "flat": [0.2] * 5}
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["wild"] * 5
    off = {"wild": [0, 0.9, 0.9, 0.9, 0], "flat": [0.4] * 5}  # two or three of four are a half: 0.25 or 0.375
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["wild"] * 5
    off["flat"] = [0.3] * 5
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["flat", "wild", "wild", "wild", "flat"]


@pytest.mark.parametrize(
    ("errors", "width"),
    [
        # t(0.95) of 1, 4 and 1 degrees of freedom: 6.3138, 2.1318, 6.3138; the spread of one more error
        ([0.1, -0.2, 0.3], 6.3138 * (0.14 / 1) ** 0.5 * (1 + 1 / 3) ** 0.5),
        ([0.1, -0.2, 0.3, -0.4, 0.5, 0.6], 2.1318 * (0.91 / 4) ** 0.5 * (1 + 1 / 6) ** 0.5),
        ([0.3], 6.3138 * 0.3 * 2**0.5),
    ],
)
def test_half_of_an_interval_by_student(errors, width):
    assert wide_experts._half_width(np.array(errors)) == pytest.approx(width, rel=1e-4)


def test_a_bracket_by_the_errors_of_its_kind():
    """Of a step the errors of steps, of a first token those of first tokens, under the fit without the run."""
    of, found = wide_experts.runs(), wide_experts.brackets()
    for place in (0, 4):
        run, row = of[place], found.iloc[place]
        constants = (row.expert_s, row.service_s, row.wave)
        alike = [one for one in of if one is not run and wide_experts.first(one) == wide_experts.first(run)]
        errors = np.array([np.log(wide_experts.predicted_s(one, *constants) / one.measured) for one in alike])
        half = wide_experts._half_width(errors)
        assert row.centre_s == pytest.approx(wide_experts.predicted_s(run, *constants))
        assert np.log([row.centre_s / row.low_s, row.high_s / row.centre_s]) == pytest.approx([half, half])
        assert row.inside == (row.low_s <= run.measured <= row.high_s)
    assert (found.what == "first token").sum() == 7


def test_a_step_among_servers_crosses_them():
    """60 us for each crossing of each of 61 layers of DeepSeek-V3; the line of a layer with experts beside."""
    run = wide_experts.runs()[0]
    layers = tm.model(run.reading.model).n_layers
    crossings = float(dict(run.reading.asked).get("node_crossings", 0.0))
    plain = replace(run, reading=replace(run.reading, asked=()))
    more = replace(run, reading=replace(run.reading, asked=(("node_crossings", crossings + 3),)))
    none_s, some_s = (wide_experts.predicted_s(one, 50e-6, 9.0, 9.0) for one in (plain, more))
    assert some_s - none_s == pytest.approx((crossings + 3) * layers * 60e-6)
    first = wide_experts.runs()[1]
    few = replace(first, reading=replace(first.reading, batch=0.0))
    assert wide_experts.predicted_s(few, 0.0, 0.0, 1.0) == wide_experts.predicted_s(few, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ((100.0, 100.0), "agrees"),
        ((100.9, 100.4), "agrees"),
        ((101.0, 100.0), "disagrees"),
        ((99.0, 100.0), "disagrees"),
        ((1.5, 1.0, 0.5), "agrees"),
        ((0.5, 1.0, 0.5), "agrees"),
        ((1.51, 1.0, 0.5), "disagrees"),
        ((0.49, 1.0, 0.5), "disagrees"),
        ((None, 1.0), "not derivable"),
    ],
)
def test_verdicts_by_hand(figures, said):
    assert ledger.verdict(*figures) == said


@pytest.mark.parametrize(
    ("phase", "length", "cached"), [("decode", 1, 2), ("prefill", 1, 1), ("decode", 3, 4), ("prefill", 4096, 4096)]
)
def test_work_a_byte_by_hand(phase, length, cached):
    """Llama 3.1 8B, three sequences: 2 FLOP for each of 7.50e9 weights but norms, and 4 for each pair and width.

    The bytes are those of the weights, of a row of the table a token, and of the cache: 131,072 a token, written or
    read; a step of decode reads its own, too. Of a prompt the last token alone has logits.
    """
    words = f"llama-3.1-8b trn1x1 {phase} B=3 S/C={length} W=bf16 KV=bf16 compute=bf16"
    weights, head = 8_030_261_248 - 128_256 * 4096, 128_256 * 4096
    new = length if phase == "prefill" else 1
    pairs = new * (new + 1) / 2 if phase == "prefill" else length
    flop = 3 * (2 * ((weights - 65 * 4096 - head) * new + head) + 32 * 4 * 4096 * pairs)
    moved = 2 * weights + 3 * new * 2 * 4096 + 3 * cached * 131_072
    assert ledger._intensity(words) == pytest.approx(flop / moved, rel=1e-9)


def test_attention_of_a_chunk_by_hand():
    """2,048 tokens see 6,144 and 1 to 2,048: of each pair 4 x 32 heads x 128 FLOP in 32 layers, but for themselves."""
    pairs = 2048 * 6144 + 2048 * 2049 / 2
    found = ledger._chunk_attention(tm.model("llama-3.1-8b"))
    assert found == pytest.approx(4 * 32 * 128 * 32 * pairs, rel=1e-3)
    # 61 layers of 128 heads: keys of 192 and values of 128, as no prompt absorbs its latents
    pairs = 2048 * 6144 + 2048 * 2049 // 2
    assert ledger._chunk_attention(tm.model("deepseek-v3")) == pytest.approx(61 * 2 * 128 * 320 * pairs, rel=1e-12)


def test_figures_of_others_together():
    rows = pd.DataFrame({"figure": [*"bba"], "model": ["x", "x", "y"], "error": [0.0, -0.2, 0.1]})
    found = ledger.agreement(rows).set_index("figure")
    assert found.loc["b"].to_dict() == {"rows": 2, "models": 1, "exact": 1, "worst_error": 0.2}
    assert found.loc["a"].to_dict() == {"rows": 1, "models": 1, "exact": 0, "worst_error": 0.1}
    assert found.index.tolist() == ["b", "a"]


def test_what_a_headline_rests_on():
    """Nothing of ours, one sentence, or a fold that counts figures and stacks; the ideal stack has no rows."""
    hop = "latency of one hop of a link, 1-2 us (assumed: AWS's hop of a ring)"
    assert ledger.rests_on() == ledger.rests_on("mine") == ""
    assert ledger.rests_on("trainium3/hop_s/project") == f"Under it, of our own estimate (D): {hop}."
    both = ledger.rests_on("trainium3/hop_s/project", "vllm-neuron-2026")
    assert "(D): 1 figure and 1 stack of software " in both
    own = [
        row
        for row in load.facts_rows().values()
        if row.confidence == "D" and row.entity in ("vllm-neuron-2026", load.entities()["vllm-neuron-2026"].base)
    ]
    assert f"- {len(own)} constants and policies of the software vllm-neuron-2026, fitted or assumed" in both
    assert f"- {hop}" in both
    figures = ledger.rests_on("trainium3/hop_s/project", "trainium3/hop_s/project")
    assert "(D): 2 figures \N{BLACK DOWN-POINTING SMALL TRIANGLE}<" in figures
    assert ledger.shortened("123456789", "hbm_bytes_per_s") == "123.5 MB/s"
    assert ledger.shortened("12345678", "hbm_bytes_per_s") == "12345678"


@pytest.mark.parametrize(
    ("use", "about", "line"),
    [
        ("tuned-nki", "kernel", "tuned kernels, Trainium3"),
        ("tuned-gemm", "kernel", "tuned kernels, Trainium3"),
        ("framework-compile", "kernel", "products, torch.compile"),
        ("framework-trace", "kernel", "products, torch trace"),
        ("compiler", "kernel", "other kernels"),
        ("model", "collective", "collectives, machine stated"),
        ("platform not stated", "collective", "collectives, platform not stated"),
    ],
)
def test_the_line_of_a_machine(use, about, line):
    assert table._machine(use, about, "trainium3") == line


@pytest.mark.parametrize(
    ("meaning", "model", "line"),
    [
        ("decode-step", "llama-3.1-8b", "dense decode"),
        ("decode-step", "", "dense decode"),
        ("decode-throughput", "qwen3-30b-a3b", "MoE and hybrid decode"),
        ("prefill", "jamba-v0.1", "TTFT of MoE and hybrids"),
        ("prefill", "llama-3.1-8b", "TTFT"),
        ("forward", "bert-large-uncased", "encoders, latency"),
        ("loaded-step", "qwen3-30b-a3b", "TPOT under load"),
        ("served-requests", "llama-3.1-8b", ""),
    ],
)
def test_the_line_of_a_fitted_group(meaning, model, line):
    assert table._fitted(meaning, model) == line


def test_errors_by_regime_by_hand(monkeypatch):
    """Up to and above 1, 8 and 64 sequences, 2,048 and 8,192 tokens of context or prompt, 8, 16 and 32 ranks."""
    rows = pd.DataFrame({"where": ["trn2.48xlarge", "trn2n.48xlarge", "inf2.xlarge", "trn1.32xlarge"],
                         "batch": [1.0, 8, 64, 65], "context": [2048.0, NAN, 8192, 9000], "prompt": [1.0, 2049, 1, 1],
                         "tp": [8, 16, 32, 33], "error": [0.1, 0.3, -0.2, 0.4]})  # fmt: skip
    monkeypatch.setattr(table, "_of", lambda group: rows)
    found = table.by_regime("dense decode").set_index("regime")
    counts = {
        "system inf2": 1,
        "system trn1": 1,
        "system trn2": 2,
        "batch up to 1": 1,
        "batch up to 8": 1,
        "batch up to 64": 1,
        "batch above 64": 1,
        "context up to 2048": 1,
        "context up to 8192": 2,
        "context above 8192": 1,
        "tp up to 8": 1,
        "tp up to 16": 1,
        "tp up to 32": 1,
        "tp above 32": 1,
    }
    assert found.configurations.to_dict() == counts
    assert found.loc["system trn2", ["error", "error_low", "error_high"]].tolist() == pytest.approx([0.2, 0.15, 0.25])
    assert found.loc["context up to 8192", ["error_low", "error_high"]].tolist() == pytest.approx([-0.075, 0.175])


def test_points_of_a_chart_by_hand():
    """Of a rate the time of a step, 3 / 200 s, with the ends of the prediction."""
    rows = pd.DataFrame([ROW, ROW | {"metric": "throughput", "unit": "tokens/s", "value": "200"}])
    judged = tm.validate(rows)
    found = table.points(judged).set_index("label")
    assert len(found) == 2
    measured, predicted = found.measured_s.tolist(), found.predicted_s.tolist()
    assert sorted(measured) == pytest.approx([0.015, 0.015])
    step = float(
        tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2), batch=3, context=2048).time_s
    )
    assert predicted == pytest.approx([step, step])
    assert (found.group == "dense decode").all()
    assert found.index[0] == "llama-3.1-70b, trn2.48xlarge, TP 16, batch 3"
    ends = found[["predicted_s_low", "predicted_s_high"]].to_numpy()
    assert (ends[:, 0] < step).all()
    assert (ends[:, 1] > step).all()


def test_rounding_of_printed_times(monkeypatch):
    """15 ms to half a millisecond are 14.5 to 15.5; 200 tokens/s to two are 3 / 202 to 3 / 198 s."""
    rows = tm.validate(pd.DataFrame([ROW, ROW | {"metric": "throughput", "unit": "tokens/s", "value": "200"}]))
    rounded = {"15": 0.5, "200": 2.0}
    monkeypatch.setattr(table, "reading", lambda cells: replace(reading(cells), rounding=rounded[cells["value"]]))
    found = table.points(rows).sort_values("measured_s_low")[["measured_s_low", "measured_s", "measured_s_high"]]
    wanted = sorted([[0.0145, 0.015, 0.0155], [3 / 202, 0.015, 3 / 198]])
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-9)


BODY, HEAD, PAIR = 8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096, 128_256 * 4096, 4 * 4096 * 32  # of Llama 3.1 8B


@pytest.mark.parametrize(
    ("figure", "by_hand"),
    [
        # parameters with and without the table of words; FLOP of 2,048 and 32,768 tokens, of one after 8,191 others
        ("P", 8_030_261_248),
        ("PB", 8_030_261_248 - HEAD),
        ("PA", 8_030_261_248),
        ("F_full", 2 * 2048 * (BODY + HEAD) + PAIR * 2048**2),
        ("F_caus", 2 * (2048 * BODY + HEAD) + PAIR * 2048 * 2049 / 2),
        ("F_c32k", 2 * (32_768 * BODY + HEAD) + PAIR * 32_768 * 32_769 / 2),
        ("F_dec", 2 * (BODY + HEAD) + PAIR * 8192),
        ("F_train", 3 * (2 * 2048 * (BODY + HEAD) + PAIR * 2048**2)),
        ("KV1", 131_072),
        ("KVC", 131_072 * 32_768),
        ("W64", 2 * (8_030_261_248 - HEAD + 64 * 4096)),
    ],
)
def test_figures_of_a_model_by_hand(figure, by_hand):
    assert float(ledger.FIGURES[figure][1](tm.model("llama-3.1-8b"))) == pytest.approx(by_hand, rel=1e-9)
