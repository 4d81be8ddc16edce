"""What tests of the library can ask for."""

import csv
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
    shutil.copytree(DATA, copy, ignore=shutil.ignore_patterns("trnlab", "measured*", "tables"))
    monkeypatch.setattr(load, "DATA", copy)
    forget()
    yield copy
    monkeypatch.undo()
    forget()


@pytest.fixture
def changed_row(copied_data, forget_data):
    """A function that changes a cell of the first row of a table of evidence."""

    def change(file, column, value):
        with (DATA / file).open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        (copied_data / file).parent.mkdir(exist_ok=True)
        with (copied_data / file).open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows([rows[0] | {column: value}, *rows[1:]])
        forget_data()

    return change
