"""The static book: chapters that papermill executed, readable offline, over http and from a folder."""

import re
from importlib import metadata
from pathlib import Path

import vl_convert
from docutils import nodes
from sphinx.util.nodes import make_refnode

project = "trnmodel"
author = "The trnmodel authors"
copyright = "The trnmodel authors, Apache-2.0"
release = metadata.version("trnmodel")

extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton", "sphinx.ext.mathjax"]
exclude_patterns = ["_static"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # with tables
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
copybutton_selector = "div.cell_input pre, div.highlight-console pre, div.highlight-python pre"

MATHJAX = metadata.distribution("sphinx-mathjax-offline").locate_file(
    "sphinx-mathjax-offline/static/mathjax/tex-svg.js"
)
mathjax_path = MATHJAX.name
FONT = metadata.distribution("font-source-sans-pro").locate_file("font_source_sans_pro/files")
FACES = [FONT / name for name in ("SourceSansPro-Regular.otf", "SourceSansPro-It.otf", "SourceSansPro-Semibold.otf")]

html_theme = "sphinx_book_theme"
html_title = "Trainium from first principles"
html_static_path = ["_static", str(MATHJAX), *map(str, FACES)]
html_css_files = ["book.css"]
html_favicon = "_static/icon.svg"
html_js_files = ["code.js", "answers.js"]
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
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "SourceSansPro-LICENSE.txt").write_bytes((FONT / "LICENSE.txt").read_bytes())
        (static / "vega.js").write_text(f"(() => {{{script}}})();\n", encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    """Load Vega on pages that have charts."""
    if 'class="trn-chart"' in context.get("body", ""):
        app.add_js_file("vega.js", loading_method="defer")
        app.add_js_file("charts.js", loading_method="defer")


GLOSSARY = "glossary"
COMMON = {"graph", "window", "stack", "static", "model left out"}  # terms that mostly mean what they mean everywhere


def read_terms(path):
    """Id and meaning of each term of the glossary's table, by term."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return {term: (term_id(row[0]), row[1]) for row in rows[2:] for term in row[0].split(", ") if term not in COMMON}


def term_id(cell):
    return nodes.make_id(f"term-{cell}")


TERMS = read_terms(Path(__file__).with_name(f"{GLOSSARY}.md"))
WORDS = {term[:1].lower() + term[1:] if term[1:].islower() else term: term for term in TERMS}
TERM = "|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True))
LINKED = re.compile(
    r"(?P<chapters>\b[Cc]hapters? \d+(?:(?:, | and | or | to )\d+)*)"
    rf"|(?<![\w/.$-])(?P<term>{TERM})s?(?![\w/$-])"
)
CLOSED = (nodes.reference, nodes.literal, nodes.title, nodes.raw, nodes.FixedTextElement, nodes.math, nodes.thead)


def mark_terms(app, doctree):
    """Give each row of the glossary an address."""
    if app.env.docname == GLOSSARY:
        for row in doctree.findall(nodes.row):
            row["ids"].append(term_id(row[0].astext()))


def link_words(app, doctree, docname):
    """Link "chapter 4" to the fourth chapter, and a term to the glossary where a page uses it first."""
    listed = app.env.toctree_includes.get(app.config.root_doc, [])
    chapters = [name for name in listed if name.startswith("chapters/")]
    met = set(TERMS) if docname == GLOSSARY or GLOSSARY not in app.env.all_docs else set()

    def link(target, text, anchor="", title=""):
        known = make_refnode(app.builder, docname, target, anchor, nodes.Text(text), title)
        known["classes"] += ["trn-term"] if anchor else []
        return known

    def parts(text):
        end = 0
        for match in LINKED.finditer(text):
            term = WORDS.get(match["term"])
            if match["chapters"]:
                yield nodes.Text(text[end : match.start()])
                yield from chapter_links(match["chapters"])
            elif term not in met:
                met.add(term)
                anchor, meaning = TERMS[term]
                yield nodes.Text(text[end : match.start()])
                yield link(GLOSSARY, match[0], anchor, meaning)
            else:
                continue
            end = match.end()
        yield nodes.Text(text[end:])

    def chapter_links(text):
        for piece in re.split(r"(, | and | or | to )", text):
            number = int("".join(filter(str.isdigit, piece)) or 0)
            known = 0 < number <= len(chapters)
            yield link(chapters[number - 1], piece) if known else nodes.Text(piece)

    for text in list(doctree.findall(nodes.Text)):
        if not in_closed(text) and LINKED.search(text):
            text.parent.replace(text, list(parts(text.astext())))


def in_closed(node):
    while node := node.parent:
        if isinstance(node, CLOSED) or "toctree-wrapper" in node.get("classes", []):
            return True
    return False


def setup(app):
    app.connect("builder-inited", write_bundle)
    app.connect("doctree-read", mark_terms)
    app.connect("doctree-resolved", link_words)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
