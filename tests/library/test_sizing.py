"""What memory holds, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.search import sizing
from trnmodel.search.sizing import largest_batch, smallest
from trnmodel.steps.deployment import Deployment


def test_the_fewest_chips_by_hand():
    """70.6e9 parameters of 2 B are 141 GB: two chips of 96 GiB, each four ranks of two cores, so TP 8."""
    found = smallest(["llama-3.1-70b"], ["trn2.48xlarge"], ["bf16"], 1, 8192).iloc[0]
    assert (found.chips, found.tp, found.floor_chips) == (2, 8, 2)


def place(fit, **more):
    """A deployment whose memory is what `fit` says."""
    d = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "precision": "bf16", "mapping": tm.Mapping(tp=4, ep=2)}
    return SimpleNamespace(**d | {"fit": fit} | more)


@pytest.mark.parametrize(("taken", "batch"), [(10.0, 20), (7.0, 26), (0.5, 362), (0.0, 2)])
def test_the_largest_batch_by_hand(taken, batch):
    """Two sequences, one on each rank of experts, leave 90: 9 more of 10 B, 12 of 7, 180 of half a byte, none of 0."""

    def fit(sequences, contexts, tp):
        room = np.full(len(contexts), 90.0 + taken - taken * sequences / 2)
        return SimpleNamespace(room_bytes=room, valid=contexts < 5000, stack=SimpleNamespace(id="e"), basis="ideal")

    table = largest_batch(place(fit), [1, 4096, 131_072, 131_073], [4, 7])
    assert table[["tp", "context", "batch"]].values.tolist() == [
        [tp, context, held] for tp in (4, 7) for context, held in ((1, batch), (4096, batch), (131_072, 0))
    ]
    assert (table.batch / table.batch_per_chip).dropna().tolist() == [2, 2, 4, 4]  # 4 x 2 and 7 x 2 ranks, 4 on a chip
    with pytest.raises(ValueError, match="contexts="):
        largest_batch(place(fit), [0.9], [4])


def test_the_longest_context_of_a_prompt():
    asked = []

    def fit(batch, contexts, prompt, tp):
        asked.append(prompt)
        return SimpleNamespace(valid=contexts * batch < 1000, basis="ideal")

    table = sizing.longest_context(place(fit), [1, 2], [4], input_tokens=1)
    assert table.context.tolist() == [768, 256]
    assert set(asked[0]) == {1}
    with pytest.raises(ValueError, match="input_tokens="):
        sizing.longest_context(place(fit), [1], [4], input_tokens=0.9)


def test_each_system_and_precision_has_a_row():
    d = Deployment(model="llama-3.1-8b", system="trn2.48xlarge", mapping=tm.Mapping(tp=4))
    table = sizing.across(d, ["trn2.48xlarge", "hgx-h200"], ["bf16", "fp8"], [4096])
    assert table.index.tolist() == [0, 1, 2, 3]
    assert table.tp.tolist() == [4, 4, 1, 1]  # one chip of each


@pytest.mark.parametrize(
    ("needed", "batch", "chips", "tp", "ep"),
    [(32, 4, 8, 8, 4), (32, 3, 8, 16, 2), (3, 4, 1, 1, 4), (128, 4, np.nan, np.nan, np.nan)],
)
def test_the_fewest_ranks_of_all_degrees(needed, batch, chips, tp, ep):
    """Of 64 ranks, four on a chip; groups of experts have a sequence each; of as many ranks those of the least TP."""

    def fit(batch, context, tp, ep):
        ranks = np.broadcast_to(np.asarray(tp * ep), np.broadcast_shapes(tp.shape, ep.shape))
        held = {"first_rank_total_bytes": 3.0 * ranks, "first_rank_capacity_bytes": 4.0 * ranks}
        return SimpleNamespace(valid=ranks >= needed, stack=SimpleNamespace(id="e"), basis="ideal", **held)

    found = sizing._smallest(place(fit, model="qwen3-30b-a3b"), batch, 1)
    np.testing.assert_equal([found[name] for name in ("chips", "tp", "ep")], [chips, tp, ep])
    np.testing.assert_equal(found["fill"], np.nan if np.isnan(chips) else 0.75)
    dense = sizing._smallest(place(fit), batch, 1)
    np.testing.assert_equal(dense["tp"], {32: 32, 3: 4}.get(needed, np.nan))


def test_a_batch_and_a_context_of_one_at_least():
    assert smallest(["llama-3.1-8b"], ["trn2.48xlarge"], ["bf16"], 1, 1).chips.tolist() == [1]
    for wrong in ((0.9, 1), (1, 0.9)):
        with pytest.raises(ValueError, match=r"(batch|context)=0\.9"):
            smallest(["llama-3.1-8b"], ["trn2.48xlarge"], ["bf16"], *wrong)


def test_degrees_that_hold_a_model_in_words(monkeypatch):
    for ep, told in ((1.0, "tp = 4 holds it"), (2.0, "tp = 4 with ep = 2 holds it")):
        monkeypatch.setattr(sizing, "_smallest", lambda *asked, ep=ep: {"chips": 2.0, "tp": 4.0, "ep": ep})
        assert sizing.remedy(None, 1, 1) == told


def test_a_cache_is_keys_values_and_states(monkeypatch):
    """Three sequences of 5 tokens of 10 B and a state of 7 B: 171 B."""
    model = {"kv_bytes": lambda context, kv: 10.0 * context, "state_bytes": lambda: 7.0, "weight_bytes": lambda p: 1e3}
    monkeypatch.setattr(sizing, "read_model", lambda name: SimpleNamespace(**model))
    assert sizing.needed_bytes(place(None), 3, 5) == {"weights": 1000.0, "cache": 171.0}
