"""What no rendered sentence may hold."""

import re

import pytest

THINGS = (
    "switches chips racks systems instances ranks models rows cases runs users sequences cores links lanes trays "
    "points layers machines sources prompts requests others constants tokens steps servers domains stacks facts "
    "kernels planes"
).replace(" ", "|")
ODD = {
    "not a number": r"(?<![\w./-])-?(?:nan|NaN|inf|None)(?![\w.-]*\w)",
    "an empty name": r"\*\*\s*\*\*(?!\w)|(?<!\w)\(\s*\)|\b(?:of|for|and|than|from|by) *[,;:)]"
    r"|, *[,;.]|(?<!`)`\s*`(?!`)",
    "one thing in the plural": rf"(?<![\w.,/-])1 (?:\w+ )?(?:{THINGS})\b",
    "more than 10,000 %": r"(?:\d{2,3}(?:,\d{3})+|\d{5,})(?:\.\d+)?\s?%|e\+\d+\s?%",
}


def oddities(texts):
    """What is odd in texts that a reader sees, with some words around it."""
    return [
        f"{kind}: ...{text[max(0, found.start() - 60) : found.end() + 40]}..."
        for text in texts
        for kind, pattern in ODD.items()
        for found in re.finditer(pattern, text)
    ]


@pytest.fixture(name="oddities")
def _oddities():
    return oddities
