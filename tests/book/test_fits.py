"""What the book says of fits and of figures of others, by hand."""

import pandas as pd
import pytest

import trnmodel as tm
from trnbook.shared import ledger
from trnmodel.catalog import load


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
    assert ledger.rests_on("trainium3/hop_s/project") == f"It rests on our own estimate: {hop}."
    both = ledger.rests_on("trainium3/hop_s/project", "vllm-neuron-2026")
    assert "estimates: 1 figure and 1 stack of software " in both
    own = {
        row.quantity
        for row in load.facts_rows().values()
        if row.confidence == "D" and row.entity in ("vllm-neuron-2026", load.entities()["vllm-neuron-2026"].base)
    }
    assert f"- {len(own)} constants and policies of the software vllm-neuron-2026, fitted or assumed" in both
    assert f"- {hop}" in both
    figures = ledger.rests_on("trainium3/hop_s/project", "trainium3/hop_s/project")
    assert "estimates: 2 figures \N{BLACK DOWN-POINTING SMALL TRIANGLE}<" in figures
    assert ledger.shortened("123456789", "hbm_bytes_per_s") == "123.5 MB/s"
    assert ledger.shortened("12345678", "hbm_bytes_per_s") == "12345678"


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
