"""The Sphinx extension of the reference: a directive that writes an entry for each public name that it lists.

An entry is made by autodoc and numpydoc from the docstring. Beside it stand the table of fields of a class, the calls
that give it, and the chapters that explain it. A public name that no page lists is a warning, which fails the build.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.nodes import Node
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import trnmodel as tm
from trnbook.report import chapter, reference
from trnmodel.result import Card

FOLDER = "reference"
MOST_PARAMETERS = 12  # of the signature of a class; the table of its fields has what a longer one takes
MOST_CHAPTERS = 4
PUBLIC = re.compile(r"tm\.(?P<name>[A-Za-z_]\w*(?:\.[a-z_]\w*)*)(?:\(.*\))?")
UNIT = re.compile(r"\.? \[[^\]]*\]\.?$")
LOG = logging.getLogger(__name__)


class Entries(SphinxDirective):
    """Entries of public names, one on a line; `chapters` are those that explain all of them."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"chapters": directives.unchanged}

    def run(self) -> list[Node]:
        """Return the nodes of the summary and of all entries."""
        names = [line.strip() for line in self.content if line.strip()]
        explained = self.options.get("chapters", "").split()
        for slug in set(explained) - set(chapter.chapters()):
            raise self.error(f"chapters: there is no chapter {slug!r}")
        for name in names:
            if name not in reference.public_names():
                raise self.error(f"{name!r} is no public name of trnmodel")
        return self.parse_text_to_nodes(
            "\n".join([*summary(names), "", *(self._entry(name, explained) for name in names)])
        )

    def _entry(self, name: str, explained: list[str]) -> str:
        item = getattr(tm, name)
        known = [slug for slug in explained if f"chapters/{slug}" in self.env.found_docs]
        known += [slug for slug in reference.calling(name) if f"chapters/{slug}" in self.env.found_docs]
        chapters = list(dict.fromkeys(known))[:MOST_CHAPTERS]
        if isinstance(item, ModuleType):
            parts = [directive("autofunction", f"trnmodel.{name}.{own}") for own in reference.functions(item)]
            return "\n".join([*(inspect.getdoc(item) or "").split("\n"), "", *links(chapters), "", *parts])
        if isinstance(item, type):
            return directive("autoclass", f"trnmodel.{name}", of_class(name, item) + links(chapters))
        return directive("autofunction", f"trnmodel.{name}", links(chapters))


class Bases(SphinxDirective):
    """What every result has: entries of the classes from which results derive."""

    def run(self) -> list[Node]:
        """Return the nodes of the entries."""
        kinds = [kind for kind in reference.BASES if kind is not Card]
        texts = [directive("autoclass", f"trnmodel.result.{kind.__name__}", of_class("", kind)) for kind in kinds]
        return self.parse_text_to_nodes("\n".join(texts))


def directive(kind: str, name: str, body: list[str] | None = None) -> str:
    """Return a directive as reStructuredText.

    Examples
    --------
    >>> print(directive("autofunction", "trnmodel.chip", ["Text."]).strip())
    .. autofunction:: trnmodel.chip
    <BLANKLINE>
       Text.
    """
    return "\n".join([f".. {kind}:: {name}", "", *(f"   {line}".rstrip() for line in body or []), ""])


def summary(names: list[str]) -> list[str]:
    """Return a table of names with the first sentence of each, as reStructuredText."""
    every = []
    for name in names:
        item = getattr(tm, name)
        own = reference.functions(item) if isinstance(item, ModuleType) else []
        every += [f"trnmodel.{name}.{function}" for function in own] or [f"trnmodel.{name}"]
    return [".. autosummary::", "   :nosignatures:", "", *(f"   ~{name}" for name in every), ""]


def links(chapters: list[str]) -> list[str]:
    """Return a line that names the chapters which explain a thing, as reStructuredText."""
    return [f":Explained in: {', '.join(f':doc:`/chapters/{slug}`' for slug in chapters)}", ""] if chapters else []


def of_class(name: str, kind: type) -> list[str]:
    """Return what an entry of a class has beside its docstring: who makes it, its fields and its methods."""
    calls = ", ".join(f":py:func:`tm.{call} <trnmodel.{call}>`" for call in reference.makers().get(name, []))
    made = [f":Made by: {calls}", ""] if calls else []
    table = [".. list-table::", "   :header-rows: 1", "   :widths: 34 12 54", "   :class: trn-fields", ""]
    table += ["   * - Field", "     - Unit", "     - Meaning"]
    for row in reference.rows(kind):
        default = f" Default: ``{row.default}``." if row.default else ""
        table += [f"   * - ``{row.name}``", f"     - {row.unit or '–'}", f"     - {plain(sentence(row))}{default}"]
    parts = [line for own in reference.methods(kind) for line in directive("automethod", own).split("\n")]
    return [*made, *(table if len(table) > 8 else []), "", *parts]


def sentence(row: reference.Row) -> str:
    """Return the meaning of a field, or its title, with a full stop and without the unit, which has its own column."""
    text = UNIT.sub("", row.meaning) or row.title or row.name
    return text if text.endswith((".", "?", "!")) else f"{text}."


def plain(text: str) -> str:
    """Return a sentence whose words in single backticks are code, as reStructuredText wants them.

    Examples
    --------
    >>> plain("Parts of `time_s`.")
    'Parts of ``time_s``.'
    """
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text.replace("*", "\\*"))


def add_code(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Turn words in single backticks into code before numpydoc reads a docstring; code of examples stays."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) or ":math:" in line else _code(line) for line in lines]


def _code(line: str) -> str:
    return re.sub(r"(?<![`:\w])`([^`]+)`(?![`_])", r"``\1``", line)


def short_signature(
    app: Sphinx, what: str, name: str, item: object, options: object, signature: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Leave out the signature of a class that calls make, or that has too many fields to read in a row."""
    if isinstance(item, type) and (
        issubclass(item, reference.BASES)
        or (signature or "").count("=") + (signature or "").count(",") > 2 * MOST_PARAMETERS
    ):
        return "", None
    return None


def check_listed(app: Sphinx, env: Any) -> None:
    """Warn of every public name that no page of the reference lists, and of one that two list."""
    pages = Path(app.srcdir) / FOLDER
    if pages.is_dir():
        names = reference.listed(pages)
        for name in sorted(set(reference.public_names()) - set(names)):
            LOG.warning("trnmodel.%s is a public name that no page of the reference lists", name)
        kinds = {name: item for name, item in reference.callables().items() if isinstance(item, type)}
        for kind, name in ((kind, name) for kind, item in kinds.items() for name in reference.undescribed(item)):
            LOG.warning("trnmodel.%s.%s has no description in data/lists/fields.csv", kind, name)
        for name in sorted({name for name in names if names.count(name) > 1}):
            LOG.warning("trnmodel.%s has two entries in the reference", name)


def call_tm(app: Sphinx, doctree: nodes.document) -> None:
    """Show `tm.` before a public name, as a user writes it."""
    for prefix in doctree.findall(addnodes.desc_addname):
        text = prefix.astext()
        if text.startswith("trnmodel."):
            prefix[:] = [nodes.Text(text.replace("trnmodel.", "tm.", 1))]


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link a public name that stands as code in a text, such as `tm.plan`, to its entry."""
    objects = app.env.domains.python_domain.objects
    for literal in list(doctree.findall(nodes.literal)):
        match = PUBLIC.fullmatch(literal.astext())
        entry = objects.get(f"trnmodel.{match['name']}") if match else None
        if entry and not isinstance(literal.parent, (nodes.reference, nodes.title)):
            link = make_refnode(app.builder, docname, entry.docname, entry.node_id, literal.deepcopy())
            literal.parent.replace(literal, link)


def follow(app: Sphinx, module: str, name: str) -> str | None:
    """Return the module whose source has a public name, also one that is called by a public module's name."""
    item: object = tm
    for part in [*module.split(".")[1:], *name.split(".")]:
        item = getattr(item, part, None)
    return getattr(item, "__module__", None)


def validation(pyproject: Path) -> dict[str, set[str]]:
    """Return which docstrings numpydoc checks for what, as a `pyproject.toml` says; nothing where there is none."""
    if not pyproject.is_file():
        return {"checks": set(), "exclude": set()}  # an installed package, whose docstrings were checked before
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["numpydoc_validation"]
    return {name: set(table[name]) for name in ("checks", "exclude")}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the reference to Sphinx."""
    app.add_directive("entries", Entries)
    app.add_directive("bases", Bases)
    app.connect("autodoc-process-docstring", add_code, priority=400)  # numpydoc comes at 500
    app.connect("autodoc-process-signature", short_signature, priority=600)
    app.connect("viewcode-follow-imported", follow)
    app.connect("env-updated", check_listed)
    app.connect("doctree-read", call_tm)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
