"""What memory holds, by hand."""

from trnmodel.planner.sizing import smallest


def test_the_fewest_chips_by_hand():
    """70.6e9 parameters of 2 B are 141 GB: two chips of 96 GiB, each four ranks of two cores, so TP 8."""
    found = smallest(["llama-3.1-70b"], ["trn2.48xlarge"], ["bf16"], 1, 8192).iloc[0]
    assert (found.chips, found.tp, found.floor_chips) == (2, 8, 2)
