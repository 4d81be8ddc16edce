"""What a row of another chip asks: a part of a step, a layer, a language model, or a run of wide expert parallelism."""

from __future__ import annotations

from collections.abc import Mapping

from trnmodel.arguments import shown
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.kinds import WIDE
from trnmodel.evidence.meanings_common import MEANING, SIDES, Question, no_meaning, read_as, whole, without_blanks
from trnmodel.evidence.names import model_of
from trnmodel.evidence.records import Record
from trnmodel.models.transformer import model as read_model

GPUS_OF_A_SERVER = 8  # of H100: ranks of TP beyond them lie in another
UNKNOWN_INPUT = "300"  # tokens of a chat or a question, where output alone is printed: an assumption (D)
PARTS = {"chip_matmul": "chip-matmul", "chip_elements": "chip-elements", "step_collective": "collective-in-step"}
OPERATORS = {"Q_K_V": "q|kv", "Wo_proj": "o", "W1_proj": "up", "W2_proj": "down"}
FORMATS = {"fp4": "mxfp4"}  # of a cell of the precision


def other_chip(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of another chip asks.

    Parameters
    ----------
    row : mapping of str to str
        Its cells, with `phase` as `trnmodel.evidence.spellings.spelt` has it. [-]
    record : Record
        Its typed columns. [-]

    Returns
    -------
    question : Question
        A part of a step, a layer, or a figure of a language model. [-]

    Examples
    --------
    >>> other_chip({"metric": "TPOT", "input_len": "512"}, Record(measure="token_interval"))[::2]
    ('loaded-step', 'comparator')
    """
    arguments = _software(row, record)
    if record.measure in PARTS:
        return Question(PARTS[record.measure], without_blanks(arguments | _part(record)), "")
    if record.measure == "critical_batch":
        return Question("critical-batch", without_blanks(arguments), "analytic")
    if record.layers == "one":
        return _layer(row, record, arguments)
    if record.lengths == "unknown":
        raise UnreadableRowError(f"{MEANING}: inputs are long, and their lengths are not printed; input_len would help")
    return _language(row, record, arguments)


def _software(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the arguments that every row of another chip has: its stack and its format, and no percentile."""
    arguments = read_as(record) | {"stack": "ideal" if record.analytic else "gpu-serving", "percentile": ""}
    precision = FORMATS.get(row.get("precision", ""), arguments.get("precision", ""))
    return arguments | {"precision": precision}


def _part(record: Record) -> dict[str, str]:
    """Return the sides of a product, or the message of a collective, on one chip."""
    sizes = {name: whole(getattr(record, name)) for name in (*SIDES, "ranks", "message_bytes")}
    return sizes | {"kind": record.kind_of_call}


def _language(row: Mapping[str, str], record: Record, software: Mapping[str, str]) -> Question:
    """Return what a row of a language model on another chip asks."""
    name = _question(row, record)
    loaded, arguments = name == "loaded-step", {**software, "context": "middle"}
    if loaded:
        arguments |= {"batch": "total", "engine": record.engine.lower()}
        arguments["prefill"] = "apart" if record.apart == "yes" else ""
    if name == "decode-step" and not row.get("input_len"):
        arguments |= {"input": UNKNOWN_INPUT, "context_is": "assumed"}
    replicas = record.prefill_replicas if name == "queued-prefill" else record.attention_replicas
    if replicas > 1:
        arguments["ep"] = whole(replicas)
    if name == "queued-prefill":
        arguments["clients"] = record.clients
    if record.measure == "token_interval" and not record.analytic:
        arguments["longest"] = "middle"  # pages of a cache hold the tokens that there are
    unknown = () if row.get("input_len") else ("input_tokens",)
    return Question(name, without_blanks(arguments), _use(record, name), unknown)


def _question(row: Mapping[str, str], record: Record) -> str:
    """Return the question of a language model on another chip; raises UnreadableRowError for none."""
    metric = row.get("metric", "").lower()
    if record.measure == "token_interval":
        alone = record.interval_of == "gap" or row.get("metric", "").startswith("decode")
        return "decode-step" if alone else "loaded-step"
    if record.measure == "first_token":
        return "queued-prefill" if metric.startswith("ttft") else "prefill"
    if record.measure == "request":
        return "run-of-steps"
    raise no_meaning(row, "TTFT, TPOT, ITL, request latency")


def _use(record: Record, name: str) -> str:
    """Return what a row of a language model on another chip is used for."""
    if name == "queued-prefill":
        return "GPUs, first token"
    if record.analytic:
        return "analytic"
    return "GPUs, engines of 2024" if record.day.startswith("2024") else "comparator"


def _layer(row: Mapping[str, str], record: Record, software: Mapping[str, str]) -> Question:
    """Return what a row of one layer of a model asks, and of an operator in it."""
    arguments = without_blanks({**software, "one_layer": "yes", "phase": row["phase"]})
    if record.measure == "layer":
        return Question("layer-step" if row["phase"] == "decode" else "layer-prefill", arguments, "comparator")
    if "allreduce" in record.operator.lower():
        return Question("layer-all-reduce", arguments, "library")
    if parts := OPERATORS.get(record.operator):
        return Question("layer-operators", arguments | {"parts": parts}, "comparator")
    raise UnreadableRowError(f"{MEANING}: {shown(record.operator)} is an operator that the model does not time alone")


def wide_experts(row: Mapping[str, str], record: Record) -> Question:
    """Return what a run of wide expert parallelism asks of the hand-tuned scenario: steps of workers that are apart.

    Parameters
    ----------
    row : mapping of str to str
        Its cells. [-]
    record : Record
        Its typed columns: whether prefill and decode are apart, and the replicas of attention on either side. [-]

    Returns
    -------
    question : Question
        A decode step of the decode workers, or a prefill of the others. [-]

    Examples
    --------
    >>> row = {"workload": "DeepSeek-R1", "precision": "fp4", "instance": "gb200-nvl72"}
    >>> wide_experts(row, Record(measure="first_token", apart="yes", prefill_replicas=4.0)).name
    'prefill'
    """
    if record.apart != "yes" or record.measure not in ("token_interval", "first_token"):
        raise UnreadableRowError(
            f"{MEANING}: the hand-tuned scenario is one of prefill and decode on workers of their own"
        )
    if read_model(model_of(row["workload"])).kind != "expert":
        raise UnreadableRowError(f"{MEANING}: the hand-tuned scenario is one of a model with experts")
    decode = record.measure == "token_interval"
    replicas = record.attention_replicas if decode else record.prefill_replicas
    arguments = {"stack": "hand-tuned", "context": "middle", **read_as(record), "percentile": ""}
    arguments |= {
        "precision": "w4fp8" if row.get("precision") == "fp4" else "",
        "ep": whole(replicas) if replicas > 1 else "",
        "batch": "total" if decode else "",
        "node_crossings": "2" if decode and _crosses_servers(row, record) else "",
    }
    return Question("decode-step" if decode else "prefill", without_blanks(arguments), WIDE)


def _crosses_servers(row: Mapping[str, str], record: Record) -> bool:
    """Return whether the TP group of the decode workers is wider than a server of H100."""
    return record.decode_tp > GPUS_OF_A_SERVER and "h100" in row.get("instance", "").lower()
