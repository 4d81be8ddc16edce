"""Measured kernels as chapters show them: times and bytes apart."""

from trnbook.shared.kernels import side_by_side
from trnmodel.evidence.tables import TUNED, table


def test_a_comparison_of_kernels_in_tables():
    rows = table("kernels")
    rows = rows[rows.group.isin([TUNED, "compiler"])]
    times, sizes = (side_by_side(rows, name) for name in ("time", "bytes"))
    assert len(times) + len(sizes) == len(rows)
    assert list(times)[-1] == "bound"
    assert list(sizes)[-1] == "quantity"
    assert set(sizes.quantity) <= {"read_bytes", "write_bytes"}
    for values in (times.measured_s, times.predicted_s):
        assert values.between(1e-7, 1).all()
