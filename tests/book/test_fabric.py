"""Where the drawing of a fabric puts a chip."""

from trnbook.shared.rack_drawing import drawing


def test_places_of_a_circle_have_three_digits():
    """The second of eight chips stands an eighth of a turn on: sin and cos of 45 degrees."""
    nodes, _ = drawing("hgx-h100")
    second = nodes.set_index("node").loc["chip1"]
    assert (second.x, second.y) == (0.707, 0.707)
