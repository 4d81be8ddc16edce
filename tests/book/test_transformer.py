"""Operators of an encoder as a chapter lists them."""

import numpy as np

from trnbook.shared.operators import step_operators


def test_operators_of_an_encoder_have_no_cache_to_read():
    """BERT large: 24 layers of 1,024 keep nothing, so that FLOP of scores meet no byte; up is 1,024 x 4,096."""
    table = step_operators("bert-large-uncased", "prefill", 3, 100, 0, "bf16").set_index("operator")
    scores, up = table.loc["bidirectional attention"], table.loc["up"]
    assert (scores.layers, scores.flop, scores.weight_bytes + scores.cache_bytes) == (24, 24 * 3 * 100**2 * 4 * 1024, 0)
    assert np.isnan(scores.intensity_flop_per_byte)
    assert scores.unfused_flop_per_byte == scores.flop / scores.activation_bytes
    weights, ins_and_outs = 24 * 2 * (1024 * 4096 + 4096), 24 * 2 * 300 * (1024 + 4096)  # and a bias a column
    assert (up.flop, up.weight_bytes, up.activation_bytes) == (24 * 300 * 2 * 1024 * 4096, weights, ins_and_outs)
    assert up.intensity_flop_per_byte == up.flop / weights
    assert up.unfused_flop_per_byte == up.flop / (weights + ins_and_outs)
    assert np.isnan(table.loc["embedding"].intensity_flop_per_byte)  # rows that are looked up are no work
