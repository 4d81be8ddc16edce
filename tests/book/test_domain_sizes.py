"""Mappings of a scale-up domain, by hand."""

from itertools import product

import trnmodel as tm
from trnbook.shared import domain_sizes


def test_all_degrees_of_a_domain_are_placed_once():
    """Groups fill tiers of 4 chips, 8 trays and 2 racks evenly; orders differ where experts are some of the ranks."""
    spec = tm.system("trn3-nl32x2-pcie160")
    table = domain_sizes.placed(spec)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    nested = [(a, b, c) for a, b, c in product(sizes, repeat=3) if b % a == 0 and c % b == 0]
    inner = {("ep", a, b // a, c // b, 64 / c) for a, b, c in nested}
    outer = {("tp", c // b, a, b // a, 64 / c) for a, b, c in nested if 1 < c // b < c}
    rows = [tuple(row) for row in table[["inner", "ep", "tp", "cp", "dp"]].itertuples(index=False)]
    assert len(rows) == len(set(rows))
    assert {row[0] for row in rows} == {"ep", "tp"}
    assert sorted(rows) == sorted(inner | outer)
