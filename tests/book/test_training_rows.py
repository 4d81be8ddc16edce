"""A printed uptime beside that of the model."""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from trnbook.chapters import goodput_uptimes as uptimes

JOB = {"running_share": (0.9, (0.8, 0.95)), "useful_share": (0.7, (0.6, 0.75))}


@pytest.mark.parametrize(
    ("cells", "inside", "lost_ratio", "fair"),
    [
        ({"share": 0.85, "printed": "85%"}, True, 0.1 / 0.15, True),
        ({"share": 0.8, "printed": "80%"}, True, 0.1 / 0.2, True),
        ({"share": 0.95, "printed": "95%"}, True, 0.1 / 0.05, True),
        ({"share": 0.79, "printed": "79%"}, False, 0.1 / 0.21, True),
        ({"share": 0.96, "printed": "96%"}, False, 0.1 / 0.04, True),
        ({"share": 0.79, "printed": "over 79%"}, True, np.nan, True),
        ({"share": 0.96, "printed": "over 96%"}, False, np.nan, True),
        ({"share": 0.5, "printed": "50%", "measure": "useful"}, False, 0.3 / 0.5, True),
        ({"share": 0.6, "printed": "60%", "measure": "useful"}, True, 0.3 / 0.4, True),
        ({"share": 0.85, "printed": "85%", "chips": 4095.0}, True, 0.1 / 0.15, False),
        ({"share": 0.85, "printed": "85%", "measure": "by hand"}, True, 0.1 / 0.15, False),
        ({"share": 0.85, "printed": "85%", "used_for": "its restarts"}, True, 0.1 / 0.15, False),
    ],
)
def test_a_printed_uptime_beside_the_model(cells, inside, lost_ratio, fair):
    """90 % running, 80 to 95; 70 % useful, 60 to 75; a fair prediction is of 4,096 chips or more."""
    plain = {"chips": 4096.0, "measure": "running", "used_for": ""}
    row = msgspec.structs.replace(uptimes.rows()[0], **plain | cells)
    job = SimpleNamespace(**{name: value for name, (value, _) in JOB.items()}, ends=lambda name: JOB[name][1])
    (found,) = uptimes.uptimes([row], [job]).to_dict("records")
    assert (bool(found["inside"]), bool(found["fair"])) == (inside, fair)
    assert found["lost_ratio"] == pytest.approx(lost_ratio, nan_ok=True)
    value, ends = JOB["useful_share" if cells.get("measure") == "useful" else "running_share"]
    assert (found["predicted"], found["predicted_low"], found["predicted_high"]) == (value, *ends)
