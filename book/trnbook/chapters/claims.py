"""Whether printed claims hold: counts of verdicts, the claims that matter most, and a list of all with derivations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import msgspec

from trnbook.chapters import common
from trnmodel.arguments import shown
from trnmodel.catalog import load
from trnmodel.catalog.tables import read_csv
from trnmodel.evidence.claims import TOPICS, VERDICTS, Claim, ClaimRow, Claims, claim_rows
from trnmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

PARAGRAPHS = load.DATA / "evidence" / "paragraphs.csv"
TREATMENTS = (
    "computed",
    "input",
    "not derivable",
    "stated",
    "left out",
)  # what a paragraph comes to, the strongest first
EVERY = "all"
TEN = ("NC147", "NC148", "NC149", "NC150", "NC153", "NC009", "NC142", "NC141", "NC057", "NC118")
CHOICES = ("verdict", "topic", "source")  # what a reader filters claims by


class Paragraph(msgspec.Struct, frozen=True):
    """A line of `data/evidence/paragraphs.csv`: lines of a source, and the claims in them or why they have none."""

    source: str
    lines: str
    about: str
    claims: str
    why: str


def unknown(topic: str) -> str:
    """Return why a topic is none of the claims; empty where it is one.

    Examples
    --------
    >>> unknown("memory"), unknown("x")[:35]
    ('', "topic = 'x' is none; these are: all")
    """
    known = (EVERY, *TOPICS)
    return "" if topic in known else f"topic = {shown(topic)} is none; these are: {', '.join(known)}"


def none_with(result: Claims, topic: str, verdict: str) -> str:
    """Return why no claim of a topic has a verdict; empty where one has."""
    some = any(one.verdict == verdict and topic in (EVERY, one.topic) for one in result.rows)
    return "" if some else f"no claim of topic {shown(topic)} has the verdict {shown(verdict)}"


def answer(result: Claims) -> str:
    """Return the card that opens the chapter: how many computed claims agree, and what the others are."""
    agree, differ = (result.of(verdict, "computed") for verdict in VERDICTS[:2])
    inputs = sum(one.kind == "input" for one in result.rows)
    missing, plain = result.of("not derivable"), result.of("stated")
    sure = (
        "**How sure?** A verdict is arithmetic with figures of the sources, within the rounding of the printed digits. "
        f"Another {counted(inputs, 'claim')} cannot be tested, because the book reads them as inputs. For {missing} "
        f"a figure is missing, and {plain} have no number."
    )
    return common.card(
        f"{agree} of {agree + differ}",
        "printed claims follow from the specifications",
        mark="",
        rival=f"{differ} do not. Each of them names the reading under which it would, where there is one",
        rank="In comparison",
        proof="Check: totals that AWS prints",
        more=sure,
    )


def by_topic(result: Claims) -> pd.DataFrame:
    """Return how many claims of each topic have each verdict, in long form, the topic with the most claims first.

    Returns
    -------
    table : pandas.DataFrame
        topic, verdict, claims. Sets of statements are left out, since their claims are counted. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> sorted(set(by_topic(tm.claims(topic="memory")).topic))
    ['memory']
    """
    import pandas as pd

    counts = Counter((one.topic, one.verdict) for one in result.rows if one.kind != "set")
    many = Counter(one.topic for one in result.rows if one.kind != "set")
    rows = [
        {"topic": topic, "verdict": verdict, "claims": counts[topic, verdict]}
        for topic, _ in many.most_common()
        for verdict in VERDICTS
    ]
    return pd.DataFrame(rows, columns=["topic", "verdict", "claims"])


def chosen(result: Claims, *names: str) -> Claims:
    """Return the claims of these ids, in their order."""
    return Claims(rows=tuple(map(result.claim, names)))


def table(result: Claims, *more: str) -> pd.DataFrame:
    """Return claims as a table: what is printed, what is computed, the verdict, and further columns by name.

    Examples
    --------
    >>> import trnmodel as tm
    >>> table(tm.claims(topic="scale-up")).columns.tolist()
    ['id', 'claim', 'printed', 'computed', 'verdict']
    """
    import pandas as pd

    names = ["id", "claim", "printed", "computed", "verdict", *more]
    return pd.DataFrame([{name: getattr(one, name) for name in names} for one in result.rows], columns=names)


def touching(result: Claims) -> pd.DataFrame:
    """Return statements with their topic, the call or chapter that each touches, and why; the largest topic first.

    Examples
    --------
    >>> import trnmodel as tm
    >>> touching(tm.claims(verdict="stated")).columns.tolist()
    ['claim', 'topic', 'touches', 'why']
    """
    table = result.to_frame()[["claim", "topic", "touches", "why"]]
    order = table.topic.value_counts(sort=False).sort_values(ascending=False, kind="stable").index
    return table.sort_values(
        "topic", key=lambda column: column.map(list(order).index), kind="stable", ignore_index=True
    )


def sources(result: Claims) -> pd.DataFrame:
    """Return publisher, title, date and address of the sources of claims."""
    return common.bibliography(result.to_frame().source)


def _treatment(row: ClaimRow) -> str:
    """Return what a claim comes to: a set is computed, and a claim without a formula is not derivable."""
    if row.kind in ("input", "stated"):
        return row.kind
    return "computed" if row.formula else "not derivable"


def paragraphs() -> pd.DataFrame:
    """Return every paragraph of the five texts with its claims, and what it comes to: the most that one of them is.

    Returns
    -------
    table : pandas.DataFrame
        source, lines, about, treatment (one of `TREATMENTS`), claims (their ids), why. [-]
    """
    import pandas as pd

    kinds = {row.id: _treatment(row) for row in claim_rows()}
    rows = []
    for row in read_csv(PARAGRAPHS, Paragraph):
        there = {kinds[name] for name in row.claims.split()}
        treatment = next((word for word in TREATMENTS if word in there), TREATMENTS[-1])
        rows.append({**msgspec.structs.asdict(row), "treatment": treatment})
    return pd.DataFrame(rows)[["source", "lines", "about", "treatment", "claims", "why"]]


def coverage() -> pd.DataFrame:
    """Return how many paragraphs of each text are computed, read as inputs, not derivable, stated, or left out.

    Examples
    --------
    >>> coverage().columns.tolist()
    ['text', 'computed', 'input', 'not derivable', 'stated', 'left out', 'paragraphs']
    """
    import pandas as pd

    table = paragraphs()
    counts = pd.crosstab(table.source, table.treatment).reindex(columns=TREATMENTS, fill_value=0)
    counts = counts.assign(paragraphs=counts.sum(axis=1)).sort_values("paragraphs", ascending=False, kind="stable")
    counts.insert(0, "text", [load.sources()[source].title for source in counts.index])
    return counts.reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Derivations:
    """A list of claims, of which each opens to its derivation; a page filters it by verdict, topic and source."""

    claims: Claims
    caption: str

    def _repr_html_(self) -> str:
        finds = len(self.claims.rows) > len(TEN)
        choices = f' data-choices="{" ".join(CHOICES)}"' if finds else ""
        place = "trn-table trn-find" if finds else "trn-table"
        items = "\n".join(_folded(one, f' id="{one.id}"' if finds else "") for one in self.claims.rows)
        title = f'<p class="trn-caption">{escape(self.caption)}</p>'
        return f'<div class="{place}"{choices}>{title}\n<div class="trn-folds">\n{items}\n</div></div>'

    def __repr__(self) -> str:
        return f"{self.caption}: {', '.join(one.id for one in self.claims.rows[: len(TEN)])} of {len(self.claims.rows)}"


def _folded(one: Claim, address: str) -> str:
    """Return a claim that opens to its derivation, as HTML; a page links to it by its address."""
    data = " ".join(f'data-{name}="{escape(getattr(one, name))}"' for name in CHOICES)
    head = (
        f'<summary><b>{one.id}</b> {escape(one.claim)} <span class="trn-judged">{escape(one.verdict)}</span></summary>'
    )
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in _terms(one))
    return f"<details{address} {data}>{head}<dl>{terms}</dl></details>"


def _terms(one: Claim) -> Iterator[tuple[str, str]]:
    """Yield the parts of a derivation by name, as HTML; what is empty is left out."""
    source = load.sources()[one.source]
    who = escape(source.publisher)
    link = f'<a href="{escape(source.url)}">{who}</a>' if source.url.startswith("https://") else who
    within = f", within {one.tolerance:g}" if one.tolerance and one.printed_low == one.printed_low else ""
    texts = {
        "Printed": escape(f"{one.printed}{within}") if one.value_printed else "",
        "Beside it": escape(one.also),
        "Formula": f"<code>{escape(one.formula)}</code>" if one.formula else "",
        "Computed": escape(one.computed),
        "Another reading": escape(one.reading),
        "Why": escape(one.why),
        "Touches": f"<code>{escape(one.touches)}</code>" if one.touches else "",
        "Source": f"{link}, {escape(one.locator)}",
    }
    yield from ((name, text) for name, text in texts.items() if text)
