"""The face: every public name resolves, and nothing heavy loads before it is used."""

import pytest

import trnmodel as tm


@pytest.mark.parametrize("name", sorted(tm.__all__))
def test_public_names_resolve(name):
    assert getattr(tm, name) is not None


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="chop"):
        tm.chop  # noqa: B018


def test_a_room_hides_no_public_name():
    """`trnmodel.models` is a room as soon as a module of it is imported, and still lists the models."""
    assert tm.model("llama-3.1-8b").id in tm.model_ids()
