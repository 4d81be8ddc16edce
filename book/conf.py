"""The static book: chapters that papermill executed, readable offline, over http and from a folder."""

import re
from html import escape, unescape
from importlib import metadata
from pathlib import Path

import vl_convert
from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

from trnbook.charts.language import named
from trnbook.report import entries, materials, policy

project = "trnmodel"
author = "The trnmodel authors"
copyright = "The trnmodel authors, Apache-2.0"
release = metadata.version("trnmodel")

extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton", "sphinx.ext.mathjax"]
extensions += [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "trnbook.report.entries",
]
exclude_patterns = ["_static"]
autodoc_typehints = "none"  # the list of parameters has them
autosummary_generate = False  # the pages are written by topic
numpydoc_show_class_members = False
VALIDATION = entries.validation(Path(__file__).parents[1] / "pyproject.toml")
numpydoc_validation_checks, numpydoc_validation_exclude = VALIDATION["checks"], VALIDATION["exclude"]
python_maximum_signature_line_length = 60
viewcode_line_numbers = True
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # with tables
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3  # a link may name a section
copybutton_selector = "div.cell_input pre, div.highlight-console pre, div.highlight-python pre"

MATHJAX = metadata.distribution("sphinx-mathjax-offline").locate_file(
    "sphinx-mathjax-offline/static/mathjax/tex-svg.js"
)
mathjax_path = MATHJAX.name
FONT = metadata.distribution("font-source-sans-pro").locate_file("font_source_sans_pro/files")
FACES = [FONT / name for name in ("SourceSansPro-Regular.otf", "SourceSansPro-It.otf", "SourceSansPro-Semibold.otf")]

# The newest that vl-convert carries whose tooltips name the nearest datum; those of 6.4 print "undefined".
VEGA_LITE = "6.1"

html_theme = "sphinx_book_theme"
html_title = "Trainium from first principles"
html_static_path = ["_static", str(MATHJAX), *map(str, FACES)]
html_css_files = ["book.css"]
html_favicon = "_static/icon.svg"
html_js_files = ["code.js", "answers.js", "buttons.js"]
html_context = {"default_mode": "auto"}
html_show_search_summary = False  # summaries are fetched, which a browser refuses to a page from a folder
html_sourcelink_suffix = ""
html_theme_options = {
    "home_page_in_toc": True,
    "navbar_persistent": [],  # the sidebar has the search box
    "show_navbar_depth": 1,
    "use_download_button": True,
    "use_fullscreen_button": True,
}


def write_bundle(app):
    """Vega as a plain script, as a browser refuses a module to a page from a folder, and the licence of the font."""
    if app.builder.format == "html":
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "SourceSansPro-LICENSE.txt").write_bytes((FONT / "LICENSE.txt").read_bytes())
        embed = vl_convert.get_vega_embed_version()
        names = f"Vega {vl_convert.get_vega_version()}, Vega-Lite {VEGA_LITE}, Vega-Embed {embed}"
        head = f"/*! {names}; licences: {materials.NOTICES} */"
        (static / "vega.js").write_text(f"{head}\n(() => {{{script}}})();\n", encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    """Load Vega on pages that have charts."""
    if 'class="trn-chart"' in context.get("body", ""):
        app.add_js_file("vega.js", loading_method="defer")
        app.add_js_file("charts.js", loading_method="defer")
    if 'class="trn-desk"' in context.get("body", ""):
        app.add_js_file("desk.js", loading_method="defer")


def finish(app, exception):
    """Give every page its content security policy, and the book its licences and bill of materials."""
    if app.builder.format == "html" and not exception:
        policy.protect(Path(app.outdir))
        materials.write(Path(app.outdir), Path(__file__).with_name("licences"))


GLOSSARY = "glossary"
REFERENCE = f"{entries.FOLDER}/"  # its pages call systems by their ids
COMMON = {"graph", "window", "stack", "static", "model left out"}  # terms that mostly mean what they mean everywhere
COMMON |= {"NL32x2", "NL72x2", "PCIe"}  # parts of the names of systems
OWN_PAGE = re.compile(r"\[(?P<words>.+)\]\((?P<page>[\w/-]+)\.ipynb#(?P<section>[\w-]+)\)")


def read_terms(path):
    """Page, place in it and meaning of each term of the glossary's table; one that is a link is explained there."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return {term: (*place(row[0])[:2], row[1]) for row in rows[2:] for term in place(row[0])[2] if term not in COMMON}


def place(cell):
    """Page, id and words of a glossary's cell."""
    own = OWN_PAGE.fullmatch(cell)
    return (
        (own["page"], own["section"], own["words"].split(", ")) if own else (GLOSSARY, term_id(cell), cell.split(", "))
    )


def term_id(cell):
    return nodes.make_id(f"term-{cell}")


TERMS = read_terms(Path(__file__).with_name(f"{GLOSSARY}.md"))
WORDS = {term[:1].lower() + term[1:] if term[1:].islower() else term: term for term in TERMS}
METRICS = {word.lower(): term for word, term in WORDS.items() if TERMS[term][0] != GLOSSARY}


def synonyms(term):
    """A term, and the others of a metric that are explained in the same place."""
    page, section, _ = TERMS[term]
    return {term} if page == GLOSSARY else {other for other, where in TERMS.items() if where[:2] == (page, section)}


def any_of(words):
    """A pattern of words, the longest first, each alone."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


LINKED = re.compile(
    r"(?P<chapters>\b[Cc]hapters? \d+(?:(?:, | and | or | to )\d+)*)"
    rf"|(?<![\w/.$-])(?P<term>{any_of(WORDS)})s?(?![\w/$-])"
)
HEADING = re.compile(rf"(?<![\w/.$-])(?:{any_of(METRICS)})(?![\w/$-])", re.IGNORECASE)
HTML_HEADING = re.compile(r"(?<=>)[^<]+(?=</th>)")
LOCATOR = re.compile(r"\bL(\d{2,})(?:-(\d+))?\b")  # of a saved text, as tables cite it
CODE = (nodes.literal, nodes.raw, nodes.FixedTextElement, nodes.math)
CLOSED = (nodes.reference, nodes.literal, nodes.title, nodes.raw, nodes.FixedTextElement, nodes.math, nodes.thead)
CLOSED += (addnodes.desc_signature, nodes.term, nodes.field_name, nodes.classifier)


def mark_terms(app, doctree):
    """Give each row of the glossary an address."""
    if app.env.docname == GLOSSARY:
        for row in doctree.findall(nodes.row):
            row["ids"].append(term_id(row[0].astext()))


class Linker:
    """Makes links in the text of one page."""

    def __init__(self, app, docname):
        self.builder, self.docname = app.builder, docname
        listed = app.env.toctree_includes.get(app.config.root_doc, [])
        self.chapters = [name for name in listed if name.startswith("chapters/")]
        self.known = {term for term, (page, *_) in TERMS.items() if page in app.env.all_docs and page != docname}
        self.met = set(TERMS) - self.known

    def link(self, target, text, anchor="", title=""):
        made = make_refnode(self.builder, self.docname, target, anchor, nodes.Text(text), title)
        made["classes"] += ["trn-term"] if anchor else []
        return made

    def term(self, term, text):
        page, anchor, meaning = TERMS[term]
        return self.link(page, text, anchor, meaning)

    def prose(self, text):
        """Parts of a text: each chapter is a link, and a term at first use."""
        end = 0
        for match in LINKED.finditer(text):
            term = WORDS.get(match["term"])
            if term in self.met:
                continue
            yield nodes.Text(text[end : match.start()])
            if match["chapters"]:
                yield from self.numbers(match["chapters"])
            else:
                self.met.update(synonyms(term))
                yield self.term(term, match[0])
            end = match.end()
        yield nodes.Text(text[end:])

    def numbers(self, text):
        for piece in re.split(r"(, | and | or | to )", text):
            number = int("".join(filter(str.isdigit, piece)) or 0)
            there = 0 < number <= len(self.chapters)
            yield self.link(self.chapters[number - 1], piece) if there else nodes.Text(piece)

    def heading(self, text):
        """Parts of the heading of a column: the first metric in it is a link."""
        match = HEADING.search(text)
        term = METRICS[match[0].lower()] if match else None
        if term not in self.known:
            return [nodes.Text(text)]
        link = self.term(term, match[0])
        link["classes"] += ["trn-metric"]
        return [nodes.Text(text[: match.start()]), link, nodes.Text(text[match.end() :])]

    def html_heading(self, match):
        return "".join(map(html_part, self.heading(unescape(match[0]))))


def html_part(part):
    """A text or a link as HTML."""
    text = escape(part.astext())
    if not isinstance(part, nodes.reference):
        return text
    return (
        f'<a class="{" ".join(part["classes"])}" href="{part["refuri"]}" title="{escape(part["reftitle"])}">{text}</a>'
    )


def link_words(app, doctree, docname):
    """Link "chapter 4" to the fourth chapter, a term to its page at first use, a metric in each heading of a table."""
    linker = Linker(app, docname)
    link_proof(linker, doctree)
    for text in [] if docname == GLOSSARY or docname.startswith(REFERENCE) else list(doctree.findall(nodes.Text)):
        if not within(text, CODE) and (told := person(text.astext())) != text.astext():
            text.parent.replace(text, nodes.Text(told))
    for text in list(doctree.findall(nodes.Text)):
        if in_heading(text):
            text.parent.replace(text, linker.heading(text.astext()))
        elif not in_closed(text) and LINKED.search(text):
            text.parent.replace(text, list(linker.prose(text.astext())))
    for raw in doctree.findall(nodes.raw):
        if "</th>" in raw.astext():
            raw.children = [nodes.Text(HTML_HEADING.sub(linker.html_heading, raw.astext()))]


def link_proof(linker, doctree):
    """Link what a card calls its proof to the section of that title."""
    known = {name for section in doctree.findall(nodes.section) for name in section["ids"]}
    for strong in list(doctree.findall(nodes.strong)):
        title = strong.next_node(nodes.Text, descend=False, siblings=True)
        if strong.astext() == "Proof:" and title and (anchor := nodes.make_id(title.astext())) in known:
            words = title.astext().strip()
            link = linker.link(linker.docname, words.removesuffix("."), anchor)
            link["classes"] = []
            title.parent.replace(title, [nodes.Text(" "), link, nodes.Text(words[len(link.astext()) :])])


def in_heading(node):
    """Whether a text is all of a cell in the head of a table."""
    return isinstance(node.parent.parent, nodes.entry) and isinstance(node.parent.parent.parent.parent, nodes.thead)


def person(text):
    """A sentence as a person says it: systems by their names, and the lines of a text in words."""
    return LOCATOR.sub(lambda at: f"lines {at[1]} to {at[2]}" if at[2] else f"line {at[1]}", named(text))


def in_closed(node):
    return within(node, CLOSED)


def within(node, kinds):
    while node := node.parent:
        if isinstance(node, kinds) or "toctree-wrapper" in node.get("classes", []):
            return True
    return False


def setup(app):
    app.connect("builder-inited", write_bundle)
    app.connect("doctree-read", mark_terms)
    app.connect("doctree-resolved", link_words)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
