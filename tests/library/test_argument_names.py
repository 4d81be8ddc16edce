"""One argument name has one meaning in every public call."""

import inspect

import pytest

import trnmodel as tm
from trnmodel.serving.server import disaggregate

OTHER_SIZES = {"n", "size", "nodes", "world_size", "devices", "gpus", "n_chips", "n_ranks", "num_chips", "num_ranks"}
CALLS = [disaggregate, *filter(inspect.isfunction, (getattr(tm, name) for name in sorted(tm._NAMES)))]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_size_is_a_count_of_systems_or_chips_or_ranks(call):
    assert not OTHER_SIZES & set(inspect.signature(call).parameters)


def test_chips_and_ranks_are_two_names_of_one_group():
    """A chip of Trn2 has four logical NeuronCores."""
    times = [tm.collective("all_reduce", 1e6, "trn2.48xlarge", **size).time_s for size in ({"chips": 2}, {"ranks": 8})]
    assert float(times[0]) == float(times[1])


def test_a_count_is_of_whole_systems():
    one, two = tm.system("trn2.48xlarge"), tm.system("trn2.48xlarge", count=2)
    assert two.chips == 2 * one.chips
    assert int(tm.collective("all_reduce", 1e6, two).ranks) == 2 * int(tm.collective("all_reduce", 1e6, one).ranks)
