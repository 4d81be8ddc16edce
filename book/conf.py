"""The static book: chapters that papermill executed, readable offline, over http and from a folder."""

from importlib import metadata
from pathlib import Path

import vl_convert

project = "trnmodel"
author = "The trnmodel authors"
copyright = "The trnmodel authors, Apache-2.0"
release = metadata.version("trnmodel")

extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton", "sphinx.ext.mathjax"]
exclude_patterns = ["_static"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
copybutton_selector = "div.cell_input pre, div.highlight-console pre, div.highlight-python pre"

MATHJAX = metadata.distribution("sphinx-mathjax-offline").locate_file(
    "sphinx-mathjax-offline/static/mathjax/tex-svg.js"
)
mathjax_path = MATHJAX.name

html_theme = "sphinx_book_theme"
html_title = "Trainium from first principles"
html_static_path = ["_static", str(MATHJAX)]
html_css_files = ["book.css"]
html_favicon = "_static/icon.svg"
html_js_files = ["answers.js"]
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
    """Vega as a plain script: a browser refuses a module to a page from a folder."""
    if app.builder.format == "html":
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "vega.js").write_text(f"(() => {{{script}}})();\n", encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    """Load Vega on pages that have charts."""
    if 'class="trn-chart"' in context.get("body", ""):
        app.add_js_file("vega.js", loading_method="defer")
        app.add_js_file("charts.js", loading_method="defer")


def setup(app):
    app.connect("builder-inited", write_bundle)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
