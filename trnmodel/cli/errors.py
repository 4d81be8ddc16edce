"""Errors that a command tells on one line, and how a line is printed."""

from __future__ import annotations


class InputError(ValueError):
    """A chapter, parameter, file or folder as the caller named it cannot be used; the message is one line."""


class NoAnswerError(InputError):
    """The parameters of a chapter are valid, and nothing satisfies them; the message is one line."""


def printable(text: object) -> str:
    r"""Text as it may be printed: what a terminal would obey (line breaks, escapes, broken bytes) is spelled out.

    Examples
    --------
    >>> printable("a\nb"), printable("\x1b[2J"), printable("\udcff é")
    ('a\\nb', '\\x1b[2J', '\\udcff é')
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))


class ChapterError(RuntimeError):
    """Chapters failed while running, told in one line each; their error notebooks lie beside the others."""
