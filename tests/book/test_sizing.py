"""What the chapter on memory says of batches that fit, by hand."""

import pytest

import trnmodel as tm
from trnmodel.search.sizing import largest_batch
from trnmodel.steps.deployment import Deployment


@pytest.mark.parametrize("ep", [8, 16])
def test_experts_that_are_spread_hold_a_batch_on_each_rank(ep):
    """One more sequence on every rank of experts does not fit, and a rank holds its part of the batch."""
    mapping = tm.Mapping(tp=8, ep=ep)
    d = Deployment(model="deepseek-v3", system="trn3-nl32x2-pcie160", mapping=mapping, precision="mxfp8")
    batch = float(largest_batch(d, [4096], [8]).batch.iloc[0])
    assert batch % ep == 0
    assert batch > ep
    assert [bool(d.fit(sequences, 4096).valid) for sequences in (batch, batch + ep)] == [True, False]


def test_where_no_rank_holds_a_sequence_the_batch_is_none():
    d = Deployment(model="deepseek-v3", system="trn3-nl32x2-pcie160", mapping=tm.Mapping(tp=8, ep=2), precision="mxfp8")
    assert largest_batch(d, [4096], [8]).batch.tolist() == [0]
