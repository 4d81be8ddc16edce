"""What the tests of the lab can ask for."""

import pytest

from trnlab.table import accuracy_table


@pytest.fixture(scope="session")
def accuracies(made_once, validated):
    """The accuracy table of the measured rows; nobody changes it."""
    return made_once("accuracies", lambda: accuracy_table(validated))
