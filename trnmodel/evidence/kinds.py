"""Which kind of row it is: the word of its cell, or what its workload, metric, unit and phase say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.names import model_of
from trnmodel.models.transformer import model as read_model

WIDE = "wide-experts"  # rows of other chips, asked of the hand-tuned scenario
LANGUAGE, SERVED, ENCODER = "inference-LLM", "inference-LLM-serving", "inference-encoder"
KNOWN = (
    *(LANGUAGE, SERVED, "inference-LLM-profile", "inference-LLM-forward", ENCODER, "memory-footprint", "training"),
    *("kernel", "collective", "gpu-collective", "other-chip", WIDE, "energy"),
)
OTHERS = re.compile(r"vision|image|diffusion|video|speech|audio|overhead|power", re.IGNORECASE)
CALL = re.compile(
    r"\b(all[ _-]?reduce|all[ _-]?gather|reduce[ _-]?scatter|all[ _-]?to[ _-]?all|broadcast|send[ _/-]?recv)", re.I
)
WIRE = re.compile(r"\b(bus|alg)(orithm)?[ _-]?b(and)?[ _-]?w(idth)?\b", re.IGNORECASE)
OPERATOR = re.compile(
    r"(?:\b|_)(matmul|gemm|attention|sdpa|softmax|\w*norm|silu|gelu|rope|conv(olution)?\d?d?|transpose)(?:\b|_).*\d",
    re.IGNORECASE,
)
TRAINING = re.compile(r"\b(?:pre-?|post-?)?train(?:ing|er)?\b|\bfine-?tun(?:e|ing)\b|\bsft\b", re.IGNORECASE)
OF_TRAINING = re.compile(
    r"\bstep\b|\biteration|\bsamples?\b|\bseq(uence)?s?\b|\btok(en)?s?\b|throughput|\bMFU\b|\bloss\b", re.I
)
OF_SERVING = re.compile(
    r"\b(serv(e|er|ed|ing)|online|endpoint|load[ _-]?test)\b|concurren(cy|t)|\bconc\b|\b\d+ (clients|users|sessions)\b"
    r"|max[ _-]num[ _-]seqs|\barriv|\bpoisson\b|\bconstant@|\bqps\b|\brps\b|request[ _-]rate|at once"
    r"|\d ?(req(uest)?s?|r) ?/ ?(s|min|h)",
    re.IGNORECASE,
)
OF_TOKENS = re.compile(r"\btok(en)?s?\b|\bTTFT\b|\bTPOT\b|\bITL\b|\bTBT\b", re.IGNORECASE)


def kind_of(row: Mapping[str, str]) -> str:
    """Return the kind of a row whose cell says none that is known; a word for what has no question stays as it is.

    Parameters
    ----------
    row : mapping of str to str
        Its cells kind, workload, metric, unit, phase and note. [-]

    Returns
    -------
    kind : str
        One of the kinds that have questions, or the word of the cell. [-]

    Examples
    --------
    >>> row = dict.fromkeys(("kind", "workload", "metric", "unit", "phase", "note"), "")
    >>> kind_of(row | {"workload": "all-reduce 16 MB", "metric": "busbw"})
    'collective'
    >>> kind_of(row | {"workload": "bert-base-uncased", "metric": "latency"})
    'inference-encoder'
    >>> [kind_of(row | {"metric": "TPOT", "note": note, "kind": "sweep"}) for note in ("", "concurrent@16")]
    ['inference-LLM', 'inference-LLM-serving']
    """
    if row["kind"] in KNOWN or OTHERS.search(row["kind"]):
        return row["kind"]
    workload, metric = row["workload"], row["metric"].replace("_", " ")
    if CALL.search(workload) or WIRE.search(metric):
        return "collective"
    if OPERATOR.search(workload) or row["phase"].lower() == "kernel":
        return "kernel"
    said = " ".join((row["kind"], workload, metric, row["phase"])).replace("_", " ")
    if TRAINING.search(said) and OF_TRAINING.search(f"{metric} {row['unit']}"):
        return "training"
    if not OF_TOKENS.search(f"{metric} {row['unit']} {row['phase']}") and _encodes(workload):
        return ENCODER
    return SERVED if OF_SERVING.search(f"{row['phase']} {row['note']}") else LANGUAGE


def _encodes(workload: str) -> bool:
    """Return whether a workload's name means an encoder of the catalogue."""
    try:
        return read_model(model_of(workload)).kind == "encoder"
    except UnreadableRowError:
        return False
