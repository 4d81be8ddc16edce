"""Verdicts on claims, as the book words them."""

import math

from trnbook.shared.ledger import verdict


def test_verdicts():
    assert verdict(100.0, 100) == "agrees"
    assert verdict(100.6, 102) == "disagrees"
    assert verdict(math.pi, 3.14, 1e-3) == "agrees"
    assert verdict(None, 3.14) == "not derivable"
