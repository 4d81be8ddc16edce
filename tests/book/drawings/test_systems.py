"""The drawing of what the first page compares shows as many chips as the systems have."""

import pytest
from looks import faults

from trnbook.drawings import systems


@pytest.mark.parametrize(("domain", "chips"), [("trn3-nl72x2-pcie160", 144), ("trn3-nl32x2-pcie160", 64)])
def test_each_chip_is_a_square(domain, chips):
    """16 chips of an instance and one beside it are of Trainium2, the others of the domain."""
    drawing = systems.compared(domain=domain)
    assert not faults(drawing)
    drawn = drawing._repr_html_().partition("<svg")[2]
    assert (drawn.count('class="box-a"'), drawn.count('class="box-b"')) == (17, chips)
    assert f"{chips} chips in 2 racks" in drawing.alt
