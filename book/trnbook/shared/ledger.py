"""Other people's figures and ours, each with its verdict.

Counts of publishers and of other programs, and where one text is at odds with itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from numpy.typing import NDArray

from trnbook.shared.operators import step_operators
from trnmodel.arguments import listed
from trnmodel.catalog import load
from trnmodel.catalog.specs import Spec
from trnmodel.evidence.claims import claims_of
from trnmodel.models.blocks import Phase
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.units import counted, format_quantity

if TYPE_CHECKING:
    import pandas as pd

PRINTED = load.DATA / "evidence" / "printed_workloads.csv"
AGREES, DISAGREES, NOT_DERIVABLE = "agrees", "disagrees", "not derivable"
FORMATS: Mapping[str, str] = {"bf16": "bf16", "fp8_linear": "fp8", "mxfp8_linear": "mxfp8"}
CACHES: Mapping[str, str] = {"bf16": "", "fp8": "-kvfp8"}
CASE = re.compile(
    r"(?P<model>\S+) \S+ (?P<phase>\w+) B=(?P<batch>\d+) S/C=(?P<length>\d+) W=(?P<weights>\w+) KV=(?P<kv>\w+) .*"
)
MTP_MODEL = "deepseek-v3"
CHUNK, CHUNK_PAST, SHORT, LONG, CONTEXT, BATCH = 2048, 6144, 2048, 32768, 8192, 64


class Printed(msgspec.Struct, frozen=True):
    """A line of `data/evidence/printed_workloads.csv`: a figure of a model from another program, and its source."""

    id: str
    quantity: str
    inputs: str
    expected: float
    rel_tol: float
    evidence: str


def verdict(computed: float | None, printed: float, rel_tol: float = 0.0) -> str:
    """Return whether another's figure agrees with ours: to the unit without a tolerance, else within it.

    `None` stands for a question that no public call answers.

    Examples
    --------
    >>> verdict(70553706496, 70553706496), verdict(1.01, 1.0, 0.02), verdict(1.1, 1.0, 0.02), verdict(None, 1.0)
    ('agrees', 'agrees', 'disagrees', 'not derivable')
    """
    if computed is None:
        return NOT_DERIVABLE
    within = abs(computed - round(printed)) < 1 if rel_tol == 0 else abs(computed / printed - 1) <= rel_tol
    return AGREES if within else DISAGREES


def _chunk_attention(m: Transformer) -> float:
    """Work of attention alone in a chunk: the chunk's work less that of its tokens on their own."""
    itself = sum(layer.count * a.flop_per_pair(absorbed=False) for layer in m.layers for a in layer.attentions)
    linear = float(m.prefill_flop(1, logits="none")) - itself
    return float(m.prefill_flop(CHUNK, past=CHUNK_PAST, logits="none")) - CHUNK * linear


FIGURES: Mapping[str, tuple[str, Callable[[Transformer], NDArray | float]]] = {
    "P": ("parameters", lambda m: m.total_params),
    "PB": ("parameters", lambda m: m.active_params(input_embedding=False)),
    "PA": ("parameters", lambda m: m.active_params()),
    "F_full": ("FLOP", lambda m: m.prefill_flop(SHORT, attention="full", logits="all")),
    "F_caus": ("FLOP", lambda m: m.prefill_flop(SHORT)),
    "F_c32k": ("FLOP", lambda m: m.prefill_flop(LONG)),
    "F_dec": ("FLOP", lambda m: m.decode_flop(CONTEXT)),
    "F_train": ("FLOP", lambda m: m.train_flop(SHORT)),
    "CH1": ("FLOP", _chunk_attention),
    "KV1": ("cache bytes", lambda m: m.kv_bytes_per_token("bf16")),
    "KVC": ("cache bytes", lambda m: m.kv_bytes(LONG, "bf16")),
    "W64": ("weight bytes", lambda m: m.weight_bytes_read(BATCH, "bf16")),
    "WB": ("weight bytes", lambda m: m.weight_bytes("fp8", prediction=True)),
}


def _intensity(inputs: str) -> float:
    """FLOP per byte of weights and cache of a whole step, as a row describes the step."""
    match = CASE.match(inputs)
    assert match, inputs
    batch, length = int(match["batch"]), int(match["length"])
    tokens, past = (length, 0) if match["phase"] == "prefill" else (1, length - 1)
    precision = FORMATS[match["weights"]] + CACHES[match["kv"]]
    phase: Phase = "prefill" if match["phase"] == "prefill" else "decode"
    step = step_operators(match["model"], phase, batch, tokens, past, precision)
    return step.flop.sum() / (step.weight_bytes.sum() + step.cache_bytes.sum())


def _ours(row: Printed) -> tuple[str, str, float]:
    kind = re.match(r"RI|F_[a-z0-9]+|KV1|KVC|W64|WB|CH1|PA|PB|P", row.id)
    assert kind, row.id
    if kind[0] == "RI":
        return "intensity", row.inputs.split()[0], _intensity(row.inputs)
    name = MTP_MODEL if kind[0] == "WB" else row.inputs
    figure, compute = FIGURES[kind[0]]
    return figure, name, float(compute(read_model(name)))


def printed() -> pd.DataFrame:
    """Compare every figure of other programs with ours.

    Returns
    -------
    table : pandas.DataFrame
        figure, model, quantity, computed, printed, error (signed), tolerance (0: to the unit), agrees, evidence.

    Examples
    --------
    >>> bool(printed().agrees.all())
    True
    """
    import pandas as pd

    rows = []
    for row in load.read_csv(PRINTED, Printed):
        figure, name, value = _ours(row)
        rows.append(
            {
                "figure": figure,
                "model": name,
                "quantity": row.quantity if figure != "intensity" else row.inputs.split(" ", 1)[1],
                "computed": value,
                "printed": row.expected,
                "error": value / row.expected - 1,
                "tolerance": row.rel_tol,
                "agrees": verdict(value, row.expected, row.rel_tol) == AGREES,
                "evidence": row.evidence,
            }
        )
    return pd.DataFrame(rows)


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """Return `printed` by figure: rows, rows that agree to the unit, and the largest error."""
    flat = table.assign(exact=table.error == 0, size=table.error.abs())
    grouped = flat.groupby("figure", sort=False)
    return grouped.agg(
        rows=("size", "size"), models=("model", "nunique"), exact=("exact", "sum"), worst_error=("size", "max")
    ).reset_index()


def published_counts() -> pd.DataFrame:
    """Compare parameter counts that publishers state to the unit with ours from configuration files.

    Returns
    -------
    table : pandas.DataFrame
        model, computed, published, difference, source. [-]

    Examples
    --------
    >>> int(published_counts().difference.abs().max())
    0
    """
    import pandas as pd

    rows = []
    for entry in catalog().values():
        if entry.published_params:
            computed, published = read_model(entry.id).total_params, int(entry.published_params)
            one = {"model": entry.id, "computed": computed, "published": published, "difference": computed - published}
            rows.append({**one, "source": entry.source})
    return pd.DataFrame(rows)


def files(models: Iterable[str]) -> pd.DataFrame:
    """Return where each shipped model's configuration was read; a reader's own configuration is left out.

    Examples
    --------
    >>> files(["deepseek-v3"]).publisher.tolist()
    ['DeepSeek']
    """
    import pandas as pd

    rows = [catalog()[name] for name in listed("models", models, str) if name in catalog()]
    names = ["id", "publisher", "source", "locator", "note"]
    return pd.DataFrame([{name: getattr(row, name) for name in names} for row in rows], columns=names)


def contradictions() -> pd.DataFrame:
    """Return where a source contradicts itself or another, each with its arithmetic: the sets of `tm.claims`.

    Returns
    -------
    table : pandas.DataFrame
        id, says (with its source and line), also (likewise), arithmetic, gives, together (whether both can be true as
        they are printed), reading (under which they would be), why.

    Examples
    --------
    >>> table = contradictions().set_index("id")
    >>> table.gives["NC601"], table.together["NC601"]
    ('72 chips', 'no')
    """
    import pandas as pd

    return pd.DataFrame(
        {
            "id": one.id,
            "says": f"{one.claim} ({one.source}, {one.locator})",
            "also": one.also,
            "arithmetic": one.formula,
            "gives": one.computed,
            "together": "yes" if one.verdict == AGREES else "no",
            "reading": one.reading,
            "why": one.why,
        }
        for one in claims_of("set").rows
    )


def shortened(printed: str, quantity: str) -> str:
    """Shorten a printed figure of many digits to one with a prefix.

    Examples
    --------
    >>> shortened("0.8", "hbm_bytes_per_s"), shortened("9800000000000", "hbm_bytes_per_s")
    ('0.8', '9.8 TB/s')
    """
    return printed if len(printed) < 9 else format_quantity(float(printed), load.quantities()[quantity].unit_si)


def cited(source: str) -> str:
    """Return a source's title as a link, in Markdown.

    Examples
    --------
    >>> cited("trainium3-deep-dive").startswith("[")
    True
    """
    known = load.sources()[source]
    return f"[{known.title}]({known.url})" if known.url.startswith("https://") else known.title


def standing(rows: pd.DataFrame) -> pd.Series:
    """Return what we do with each disputed fact: "in use", "open" (an end of the band) or "set aside".

    A fact with the value of the one that a decision names is in use too.
    """
    chosen = {ruling.use for ruling in load.decisions() if ruling.use}
    facts = load.facts_rows()
    used = {facts[name].value_printed for name in chosen & set(rows.id)}
    named = rows.status.map({"open": "open", "rejected": "set aside", "chosen": "in use"})
    same = rows.status.eq("open") & (rows.id.isin(chosen) | rows.value_printed.isin(used))
    return named.mask(same, "in use")


def rests_on(*names: str) -> str:
    """Return the estimates that a headline rests on, facts by id and stacks as counts; many are folded.

    Examples
    --------
    >>> rests_on("trainium3/hop_s/project")
    "It rests on our own estimate: latency of one hop of a link, 1-2 us (assumed: AWS's hop of a ring)."
    """
    rows, said = load.facts_rows(), []
    for name in names:
        if "/" in name:
            row, meaning = rows[name], load.quantities()[rows[name].quantity].description
            printed = f"{row.value_printed} {row.unit_printed}".removesuffix(" 1")
            said.append(f"{meaning[0].lower()}{meaning[1:]}, {printed} ({row.locator})")
        elif name in load.entities():  # the ideal stack and a caller's stack have no rows
            owners = {name, load.entities()[name].base}
            values = {row.quantity for row in rows.values() if row.confidence == "D" and row.entity in owners}
            said.append(f"{len(values)} constants and policies of the software {name}, fitted or assumed")
    if len(said) < 2:
        return f"It rests on our own estimate: {said[0]}." if said else ""
    stacks = sum(one.endswith("fitted or assumed") for one in said)
    kinds = ((len(said) - stacks, "figure"), (stacks, "stack of software"))
    counts = " and ".join(counted(n, kind) for n, kind in kinds if n)
    title = f"It rests on our own estimates: {counts} \N{BLACK DOWN-POINTING SMALL TRIANGLE}"
    head = f"<details><summary>{title}</summary>"
    return "\n\n".join([head, *(f"- {one}" for one in said), "</details>"])


def estimated(spec: Spec, *fields: str) -> list[str]:
    """Return ids of the facts behind these fields of a spec that are our estimates.

    Examples
    --------
    >>> estimated(load.chip("trainium3"), "hop_s", "cores")
    ['trainium3/hop_s/project']
    """
    mine = (ids for label, ids in spec.sources.items() if label.partition("[")[0] in fields and label in spec.estimates)
    return [fact_id for ids in mine for fact_id in ids]
