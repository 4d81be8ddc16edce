"""Rows of mutants that no test can kill name changes that the source still has."""

import csv
import importlib


def test_every_equivalent_mutant_is_a_change_of_the_source(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "tests")
    mutants = importlib.import_module("mutants")
    with (root / "tests" / "equivalent.csv").open(newline="") as stream:
        rows = [tuple(row.values())[:-1] for row in csv.DictReader(stream)]
    assert len(rows) > 100
    files = {row[0] for row in rows}
    assert [file for file in sorted(files) if not (root / file).is_file()] == []
    changes = {(*one.change, str(one.place)) for file in files for one in mutants.Source(file).mutants()}
    assert [row for row in rows if row not in changes] == []
