"""Words of the book are links: terms at first use, metrics in every heading of a table."""

import os
import re
import subprocess
import sys

import pytest
from docutils.nodes import make_id

PAGE = """# A page

A decode step has a TTFT and a TPOT, the first token among them; busbw too. TPOT again, and its throughput.

On trn3-nl72x2-pcie160 (L445, then L314-316), beside `trn3-nl72x2-pcie160` and L2.

    trnmodel decode llama-3.1-8b trn3-nl72x2-pcie160

| Chips | Tokens/s a chip | Speed wanted for a user [tokens/s] | TTFT p50 |
|---|---|---|---|
| 1 | 2 | TPOT | 4 |

```{raw} html
<table><thead><tr><th>Longest ITL [ms]</th><th>First token &lt; x</th><th>Chips</th></tr></thead>
<tbody><tr><td>TPOT</td></tr></tbody></table>
```
"""


def sections(root):
    """Ids of the sections of the page that explains metrics."""
    text = (root / "notebooks" / "py" / "metrics.py").read_text()
    return [make_id(title) for title in re.findall(r"^# #{2,3} (.+)$", text, re.MULTILINE)]


def test_every_metric_of_the_glossary_has_a_section(root):
    named = re.findall(r"\(chapters/metrics\.ipynb#([\w-]+)\)", (root / "book" / "glossary.md").read_text())
    assert len(named) == len(set(named)) == 8
    assert set(named) <= set(sections(root))


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """The article of `PAGE` as the configuration of the book makes it, beside the glossary and the page of metrics."""
    from trnbook.report.chapter import ROOT

    source = tmp_path_factory.mktemp("book")
    (source / "chapters").mkdir()
    (source / "glossary.md").write_text((ROOT / "book" / "glossary.md").read_text())
    titles = "".join(f"## {name}\n\nText.\n\n" for name in sections(ROOT))
    (source / "chapters" / "metrics.md").write_text(f"# Words\n\n{titles}")
    (source / "chapters" / "page.md").write_text(PAGE)
    (source / "index.md").write_text("# Book\n\n```{toctree}\nchapters/page\nchapters/metrics\nglossary\n```\n")
    # the page of metrics is Markdown here, a notebook in the book
    text = (source / "glossary.md").read_text().replace("metrics.ipynb", "metrics.md")
    (source / "glossary.md").write_text(text)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", os.fspath(ROOT / "book")]
    done = subprocess.run([*command, source, source / "html"], capture_output=True, text=True, check=True)
    assert "WARNING" not in done.stderr
    return (source / "html" / "chapters" / "page.html").read_text().partition("<article")[2].partition("</article")[0]


def links(html):
    return re.findall(r'<a class="trn-term[^"]*" href="([^"]+)"[^>]*>(?:<span[^>]*>)?([^<]+)', html)


def test_prose_links_at_first_use_and_headings_always(html):
    assert links(html) == [
        ("metrics.html#decode-step", "decode step"),
        ("metrics.html#ttft", "TTFT"),
        ("metrics.html#tpot", "TPOT"),
        ("../glossary.html#term-algbw-busbw", "busbw"),
        ("metrics.html#throughput", "throughput"),
        ("metrics.html#throughput", "Tokens/s a chip"),
        ("metrics.html#interactivity", "Speed wanted for a user"),
        ("metrics.html#ttft", "TTFT"),
        ("metrics.html#itl", "ITL"),
        ("metrics.html#ttft", "First token"),
    ]


def test_systems_go_by_their_names_but_in_code(html):
    assert "On Trainium3 NL72x2 Switched (line 445, then lines 314 to 316)" in html
    assert html.count("trn3-nl72x2-pcie160") == 2
    assert "and L2." in html


def test_a_link_says_what_the_metric_counts_and_nothing_else_changes(html):
    assert 'title="from sending a request to its first token, the queue included"' in html
    assert "First token</a> &lt; x</th>" in html
    assert "<th>Chips</th>" in html
    assert "<td>TPOT</td>" in html
