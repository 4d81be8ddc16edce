"""What tests of the library can ask for."""

import shutil

import pytest

from trnmodel.catalog import load

DATA = load.DATA


def forget():
    """Empty every cache of the packages."""
    load.forget("trnmodel", "trnbook", "trnlab")


@pytest.fixture
def forget_data():
    """A function that empties every cache of what was read from `data/`."""
    return forget


@pytest.fixture
def copied_data(tmp_path, monkeypatch):
    """A copy of `data/` that is the data until the test ends; who changes a file in it calls `forget_data`."""
    copy = tmp_path / "data"
    shutil.copytree(DATA, copy, ignore=shutil.ignore_patterns("trnlab", "evidence"))
    monkeypatch.setattr(load, "DATA", copy)
    forget()
    yield copy
    monkeypatch.undo()
    forget()
