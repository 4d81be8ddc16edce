"""A language model's operators: parameters, FLOP, cache and bytes by phase, for scalars or arrays of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog import load
from trnmodel.catalog.load import DATA, nearest, read_csv
from trnmodel.catalog.specs import Precision
from trnmodel.workloads.blocks import Attention, Layer, Numeric, Part, Phase
from trnmodel.workloads.config import read_fields, read_json
from trnmodel.workloads.encoders import ARCHITECTURES

ExpertRead = Literal["distinct", "per_token", "all"]
EXPERT_READS: tuple[str, ...] = get_args(ExpertRead)
LOGITS, MASKS, PHASES = ("last", "all", "none"), ("causal", "full"), ("prefill", "decode")
BACKWARD_OVER_FORWARD = 2  # gradients of inputs and of weights: two products for one


class ModelRow(msgspec.Struct, frozen=True):
    """One shipped configuration and where its figures were read."""

    id: str
    file: str
    aliases: str
    publisher: str
    source: str
    locator: str
    published_params: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One operator of one kind of layer, over all its layers, the batch and the tokens of a step."""

    name: str
    layer: str
    part: Part | None
    attention: Attention | None
    count: int
    rows_in: NDArray
    flop: NDArray
    weight_bytes: NDArray
    cache_read_bytes: NDArray
    cache_write_bytes: NDArray
    activation_bytes: NDArray


def _numbers(name: str, value: Numeric, low: float = 0) -> NDArray:
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: allowed are numbers from {low}") from None
    if not np.all((numbers >= low) & (numbers < np.inf)):
        raise ValueError(f"{name}={value!r}: allowed are finite numbers from {low}")
    return numbers


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: allowed are {allowed}")
    return value


def _logit_rows(tokens: NDArray, logits: str) -> NDArray:
    return {"last": np.minimum(tokens, 1), "all": tokens, "none": np.zeros(())}[logits]


def _element_bytes(dtype: str) -> float:
    if dtype not in load.dtypes():
        raise ValueError(f"dtype={dtype!r} is unknown; allowed are {sorted(load.dtypes())}")
    return load.dtypes()[dtype]


def _expert_copies(copies: int, active: int, tokens: NDArray, expert_read: str) -> Numeric:
    """Experts that a step of so many tokens reads in a layer, under uniform routing."""
    if expert_read == "all":
        return copies
    if expert_read == "per_token":
        return tokens * active
    return copies * (1 - (1 - active / copies) ** tokens)


@dataclass(frozen=True, kw_only=True, eq=False)
class Transformer:
    """A model as its configuration describes it. All FLOP and cache figures are for one sequence.

    FLOP count 2 per multiply-accumulate; lookups, norms, softmax and gates count nothing. Layers that are alike are
    counted, not looped over. Multi-token-prediction layers of a checkpoint are in `prediction` only; of a multimodal
    file the language model alone is read.

    Examples
    --------
    >>> import trnmodel as tm
    >>> llama = tm.model("llama-3.1-8b")
    >>> llama.total_params, llama.kv_bytes_per_token("bf16")
    (8030261248, 131072.0)
    """

    id: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_context: int
    layers: tuple[Layer, ...]
    outer: tuple[Part, ...]
    prediction: tuple[Layer, ...] = ()

    def __repr__(self) -> str:
        return f"Transformer(id={self.id!r}, architecture={self.architecture!r}, total_params={self.total_params})"

    @cached_property
    def n_layers(self) -> int:
        """Layers that run, of all kinds."""
        return sum(layer.count for layer in self.layers)

    @cached_property
    def total_params(self) -> int:
        """All parameters, tied tables once."""
        return sum(layer.params for layer in self.layers) + sum(part.params for part in self.outer)

    @property
    def generates(self) -> bool:
        """Whether the model has a decode step; an encoder has none."""
        return any("decode" in layer.phases for layer in self.layers)

    @property
    def reads_source(self) -> bool:
        """Whether an encoder reads a source that decode steps attend to."""
        return any(attention.kind == "cross" for attention, _ in self._attentions("decode"))

    def active_params(self, input_embedding: bool = True) -> int:
        """Parameters that one token uses.

        Parameters
        ----------
        input_embedding : bool
            Whether the token table counts; a tied table stays in both counts, for it is the head too. [-]

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.model("qwen3-30b-a3b").active_params(input_embedding=False)
        3041867776
        """
        active = sum((layer.stored or layer.count) * sum(p.active_params for p in layer.parts) for layer in self.layers)
        tables = sum(part.params for part in self.outer if part.name == "embedding")
        return active + sum(part.active_params for part in self.outer) - (0 if input_embedding else tables)

    def _parts(self, phase: str) -> Iterator[tuple[int, str, Part]]:
        """Parts that run in a phase, each with its layer count and the name of its layer."""
        for layer in self.layers:
            yield from ((layer.count, layer.name, part) for part in layer.parts if phase in part.phases)
        yield from ((1, "", part) for part in self.outer if phase in part.phases)

    def _attentions(self, phase: str) -> Iterator[tuple[Attention, int]]:
        for layer in self.layers:
            if phase in layer.phases:
                yield from ((attention, layer.count) for attention in layer.attentions)

    @cached_property
    def _linear_flop(self) -> dict[str, tuple[int, int]]:
        """Work per token and per row of logits, by phase, attention aside."""
        recurrent = sum(layer.count * layer.recurrence.flop_per_token for layer in self.layers if layer.recurrence)
        sums = {}
        for phase in ("prefill", "decode"):
            parts = [(count * part.flop_per_token, part.group == "head") for count, _, part in self._parts(phase)]
            sums[phase] = (recurrent + sum(f for f, is_head in parts if not is_head), sum(f for f, is_head in parts if is_head))
        return sums

    def prefill_flop(self, tokens: Numeric, past: Numeric = 0, attention: str = "causal", logits: str = "last") -> NDArray:
        """Work of `tokens` new tokens of one sequence.

        Parameters
        ----------
        tokens : numeric
            New tokens of the sequence; the source's tokens for an encoder. [token]
        past : numeric
            Tokens cached before, by earlier chunks or by a shared prefix. [token]
        attention : str
            "causal" (each token sees itself, what came before and no more than its window) or "full" (the whole square,
            windows and mask ignored, as MFU is often defined). Encoders always see all. [-]
        logits : str
            Rows of logits: "last", "all" or "none". [-]

        Returns
        -------
        work_flop : numeric
            Work of one sequence; broadcast shape of tokens and past. [FLOP]

        Notes
        -----
        Chunks add up to the whole, but for logits. Latent attention (MLA) expands the new tokens' latents alone:
        software that expands cached latents again in every chunk does more.

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("llama-3.1-8b").prefill_flop(2048))
        29688401494016.0
        """
        tokens, past = _numbers("tokens", tokens), _numbers("past", past)
        causal = _one_of("attention", attention, MASKS) == "causal"
        rows = _logit_rows(tokens, _one_of("logits", logits, LOGITS))
        per_token, per_row = self._linear_flop["prefill"]
        core = sum(
            count * a.flop_per_pair(absorbed=False) * a.pairs(tokens, past, causal)
            for a, count in self._attentions("prefill")
        )
        return (per_token * tokens + per_row * rows + core)[()]

    def decode_flop(self, context: Numeric, tokens: Numeric = 1, source: Numeric = 0) -> NDArray:
        """Work of one decode step of one sequence, all its logits included.

        Parameters
        ----------
        context : numeric
            Tokens at the end of the step, the new ones included. [token]
        tokens : numeric
            New tokens of the step; more than one where a draft is verified. [token]
        source : numeric
            Encoded tokens that an encoder-decoder attends to. [token]

        Returns
        -------
        work_flop : numeric
            Work of one sequence; broadcast shape of the arguments. [FLOP]

        Notes
        -----
        Latent attention (MLA) is absorbed: queries meet the cached latents directly.

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("deepseek-v3").decode_flop(8192))
        212432977920.0
        """
        self._require_decoder()
        tokens, source = _numbers("tokens", tokens, 1), _numbers("source", source)
        context = self._context(context, tokens)
        per_token, per_row = self._linear_flop["decode"]
        work = (per_token + per_row) * tokens
        for a, count in self._attentions("decode"):
            pairs = tokens * source if a.kind == "cross" else a.pairs(tokens, context - tokens, causal=True)
            work = work + count * a.flop_per_pair(absorbed=True) * pairs
        return work[()]

    def train_flop(self, seq: Numeric, attention: str = "full") -> NDArray:
        """Model FLOP of forward and backward over one sequence, all logits; recomputation is not model work.

        Parameters
        ----------
        seq : numeric
            Tokens of the sequence. [token]
        attention : str
            "full" as Megatron-LM defines MFU, or "causal". [-]

        Returns
        -------
        work_flop : numeric
            Work of one sequence. [FLOP]
        """
        if self.reads_source:
            raise ValueError(f"{self.id}: training work of an encoder-decoder is not defined by one sequence length")
        return (1 + BACKWARD_OVER_FORWARD) * self.prefill_flop(seq, attention=attention, logits="all")

    def _require_decoder(self) -> None:
        if not self.generates:
            raise ValueError(f"{self.id}: an encoder ({self.architecture}) has no decode step")

    def _context(self, context: Numeric, tokens: NDArray) -> NDArray:
        numbers = _numbers("context", context, 1)
        if not np.all(numbers >= tokens):
            raise ValueError(f"context={context!r}: must count the new tokens, tokens={tokens}")
        return numbers

    def kv_bytes_per_token(self, dtype: str = "bf16") -> float:
        """Cache that one token adds over all layers, before any window is full. [B]"""
        elements = sum(count * a.cached_elements for a, count in self._attentions("decode"))
        return elements * _element_bytes(dtype)

    def kv_bytes(self, context: Numeric, dtype: str = "bf16", source: Numeric = 0) -> NDArray:
        """Cache of one sequence, windows and latents honoured; recurrent states are in `state_bytes`.

        Parameters
        ----------
        context : numeric
            Tokens of the sequence. [token]
        dtype : str
            Storage of the cache, of the closed list of dtypes. [-]
        source : numeric
            Encoded tokens that an encoder-decoder attends to. [token]

        Returns
        -------
        cache_bytes : numeric
            Keys and values, or latents, of all layers. [B]

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("gpt-oss-120b").kv_bytes(32768, "bf16"))
        1212678144.0
        """
        context, source = _numbers("context", context), _numbers("source", source)
        elements = np.zeros(np.broadcast_shapes(context.shape, source.shape))
        for a, count in self._attentions("decode"):
            elements = elements + count * a.cached_elements * (source if a.kind == "cross" else a.visible(context))
        return (elements * _element_bytes(dtype))[()]

    def state_bytes(self, dtype: str = "fp32", conv_dtype: str = "bf16") -> float:
        """Recurrent states and convolution tails of one sequence, whatever its length. [B]"""
        kinds = [(layer.count, layer.recurrence) for layer in self.layers if layer.recurrence]
        state = sum(count * recurrence.state_elements for count, recurrence in kinds)
        tail = sum(count * recurrence.conv_elements for count, recurrence in kinds)
        return state * _element_bytes(dtype) + tail * _element_bytes(conv_dtype)

    def weight_bytes(self, precision: str | Precision = "bf16", prediction: bool = False) -> float:
        """All weights in storage: matrices in the precision's format, head, tables, routers, norms and biases wide.

        Parameters
        ----------
        precision : str or Precision
            Preset or object; "wide" is its activation dtype. [-]
        prediction : bool
            Whether multi-token-prediction layers, which a checkpoint may hold, are added. [-]

        Returns
        -------
        stored_bytes : float
            Bytes of all parameters. [B]
        """
        per_element = _storage(precision)
        layers = self.layers + (self.prediction if prediction else ())
        stored = [(layer.stored or layer.count, part) for layer in layers for part in layer.parts]
        stored += [(1, part) for part in self.outer]
        return sum(
            count * (part.matrix_params * per_element[part.store] + part.copies * part.extra * per_element["wide"])
            for count, part in stored
        )

    def weight_bytes_read(
        self,
        batch: Numeric,
        precision: str | Precision = "bf16",
        expert_read: ExpertRead = "distinct",
        phase: Phase | None = None,
    ) -> NDArray:
        """Weights that one step over `batch` tokens reads from memory, each once.

        Parameters
        ----------
        batch : numeric
            Tokens of the step: sequences of a decode step, or all tokens of a prefill. [token]
        precision : str or Precision
            Preset or object. [-]
        expert_read : str
            Experts read in a layer of E, k used by a token: "distinct" E(1-(1-k/E)^batch), expected under uniform
            routing; "per_token" k times batch, nothing shared; "all" E. [-]
        phase : str
            "prefill" or "decode"; they differ for encoders alone. [-]

        Returns
        -------
        read_bytes : numeric
            Weights, with one row of the token table for each token. [B]

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("llama-3.1-70b").weight_bytes_read(64, "bf16"))
        139007115264.0
        """
        tokens = _numbers("batch", batch)
        _one_of("expert_read", expert_read, EXPERT_READS)
        parts = self._parts(phase or ("decode" if self.generates else "prefill"))
        return _weights_read([(count, part) for count, _, part in parts], tokens, precision, expert_read)[()]

    def operators(
        self,
        phase: Phase,
        *,
        batch: Numeric = 1,
        tokens: Numeric = 1,
        past: Numeric = 0,
        source: Numeric = 0,
        precision: str | Precision = "bf16",
        expert_read: ExpertRead = "distinct",
        attention: str = "causal",
        logits: str = "all",
    ) -> tuple[Operator, ...]:
        """Every operator of a step, each over its layers, the batch and the new tokens.

        Parameters
        ----------
        phase : str
            "prefill" or "decode"; a decode step at context c has past = c - tokens. [-]
        batch : numeric
            Sequences. [-]
        tokens : numeric
            New tokens of each sequence. [token]
        past : numeric
            Cached tokens of each sequence. [token]
        source : numeric
            Encoded tokens that an encoder-decoder attends to. [token]
        precision, expert_read, attention, logits : str
            As in the methods that sum these operators. [-]

        Returns
        -------
        operators : tuple of Operator
            Their sums are the figures of `prefill_flop` or `decode_flop`, `weight_bytes_read`, `kv_bytes`. Activation
            bytes are inputs and outputs of each matrix, unfused.
        """
        if _one_of("phase", phase, PHASES) == "decode":
            self._require_decoder()
        step = _Step(
            batch=_numbers("batch", batch),
            tokens=_numbers("tokens", tokens),
            past=_numbers("past", past),
            source=_numbers("source", source),
            precision=load.precision(precision),
            absorbed=phase == "decode",
            causal=_one_of("attention", attention, MASKS) == "causal",
            logits=_one_of("logits", logits, LOGITS),
        )
        _one_of("expert_read", expert_read, EXPERT_READS)
        matrices = [self._matrix(entry, step, expert_read) for entry in self._parts(phase)]
        cores = [_core(a, layer, step) for layer in self.layers if phase in layer.phases for a in layer.attentions]
        states = [_scan(layer, step) for layer in self.layers if layer.recurrence]
        return (*matrices, *cores, *states)

    def _matrix(self, entry: tuple[int, str, Part], step: _Step, expert_read: str) -> Operator:
        count, layer, part = entry
        rows = step.batch * (_logit_rows(step.tokens, step.logits) if part.group == "head" else step.tokens)
        width = 0 if part.lookup else part.active * (part.rows + part.cols)
        nothing = np.zeros(rows.shape)
        return Operator(
            name=part.name,
            layer=layer,
            part=part,
            attention=None,
            count=count,
            rows_in=rows,
            flop=count * part.flop_per_token * rows,
            weight_bytes=_weights_read([(count, part)], step.batch * step.tokens, step.precision, expert_read),
            cache_read_bytes=nothing,
            cache_write_bytes=nothing,
            activation_bytes=count * width * rows * step.precision.storage_bytes("activations"),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """The checked arguments of one step."""

    batch: NDArray
    tokens: NDArray
    past: NDArray
    source: NDArray
    precision: Precision
    absorbed: bool
    causal: bool
    logits: str


def _core(a: Attention, layer: Layer, step: _Step) -> Operator:
    """Scores and weighted values of one kind of attention."""
    cross = a.kind == "cross"
    pairs = step.tokens * step.source if cross else a.pairs(step.tokens, step.past, step.causal)
    seen = step.source if cross else a.visible(step.past + step.tokens if step.absorbed else step.past)
    per_token = layer.count * a.cached_elements * step.precision.storage_bytes("kv")
    rows = step.batch * step.tokens
    return Operator(
        name=f"{a.kind} attention",
        layer=layer.name,
        part=None,
        attention=a,
        count=layer.count,
        rows_in=rows,
        flop=layer.count * a.flop_per_pair(step.absorbed) * pairs * step.batch,
        weight_bytes=np.zeros(rows.shape),
        cache_read_bytes=per_token * seen * step.batch,
        cache_write_bytes=per_token * rows * (0 if cross else 1),
        activation_bytes=layer.count * a.heads * (a.qk_dim + a.v_dim) * rows * step.precision.storage_bytes("activations"),
    )


def _scan(layer: Layer, step: _Step) -> Operator:
    """Update and reading of a recurrent state, which is read and written once a step."""
    recurrence = layer.recurrence
    assert recurrence is not None
    rows = step.batch * step.tokens
    state = layer.count * recurrence.state_elements * _element_bytes("fp32")
    tail = layer.count * recurrence.conv_elements * step.precision.storage_bytes("activations")
    return Operator(
        name=f"{recurrence.kind} scan",
        layer=layer.name,
        part=None,
        attention=None,
        count=layer.count,
        rows_in=rows,
        flop=layer.count * recurrence.flop_per_token * rows,
        weight_bytes=np.zeros(rows.shape),
        cache_read_bytes=(state + tail) * step.batch,
        cache_write_bytes=(state + tail) * step.batch,
        activation_bytes=np.zeros(rows.shape),
    )


def _weights_read(
    parts: list[tuple[int, Part]], tokens: NDArray, precision: str | Precision, expert_read: str
) -> NDArray:
    """Bytes of parts that a step reads: dense ones once, a row of each table for a token, experts by their policy."""
    per_element = _storage(precision)
    fixed, per_token = 0.0, 0.0
    routed: dict[tuple[int, int], float] = defaultdict(float)
    for count, part in parts:
        one_copy = count * (part.rows * part.cols * per_element[part.store] + part.extra * per_element["wide"])
        if part.lookup:
            per_token += count * part.cols * per_element["wide"]
        elif part.group == "experts":
            routed[part.copies, part.active] += one_copy
        else:
            fixed += one_copy
    read = fixed + per_token * tokens
    for (copies, active), one_copy in routed.items():
        read = read + one_copy * _expert_copies(copies, active, tokens, expert_read)
    return np.asarray(read)


def _storage(precision: str | Precision) -> dict[str, float]:
    """Bytes of an element by kind of storage; what no format narrows has the activations' width."""
    chosen = load.precision(precision)
    return {
        "weights": chosen.storage_bytes("weights"),
        "experts": chosen.storage_bytes("experts"),
        "wide": chosen.storage_bytes("activations"),
    }


@cache
def _catalog() -> dict[str, ModelRow]:
    return {row.id: row for row in read_csv(DATA / "models.csv", ModelRow)}


@cache
def _aliases() -> dict[str, str]:
    table = {alias.strip().lower(): row.id for row in _catalog().values() for alias in row.aliases.split(";") if alias}
    return table | {name: name for name in _catalog()}


def models() -> list[str]:
    """Ids of all shipped models."""
    return list(_catalog())


@cache
def _shipped(model_id: str) -> Transformer:
    return _read(DATA / "models" / _catalog()[model_id].file, model_id)


def _read(path: Path, model_id: str) -> Transformer:
    origin = model_id if model_id in _catalog() else str(path)
    fields = read_fields(read_json(path), origin)
    plan = ARCHITECTURES[fields.model_type](fields)
    return Transformer(
        id=model_id,
        architecture=fields.model_type,
        hidden_size=plan.hidden,
        vocab_size=plan.vocabulary,
        max_context=plan.max_context,
        layers=plan.layers,
        outer=plan.outer,
        prediction=plan.prediction,
    )


def model(name: str | Path | Transformer) -> Transformer:
    """A model by id, by any of its names, or from a Hugging Face `config.json`; a `Transformer` is given back as it is.

    Parameters
    ----------
    name : str, Path or Transformer
        "llama-3.1-70b", "Qwen/Qwen3-32B", "path/to/config.json" or a folder that holds one. [-]

    Returns
    -------
    model : Transformer
        Frozen; shipped models are read once.

    Raises
    ------
    ValueError
        Unknown name (with the nearest), unknown architecture, or a file that is damaged, contradictory or hostile.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.model("meta-llama/Llama-3.1-70B").total_params
    70553706496
    """
    if isinstance(name, Transformer):
        return name
    if not isinstance(name, (str, Path)) or not str(name).strip() or "\0" in str(name):
        raise ValueError(f"model={name!r}: expected an id, a name or the path of a config.json")
    known = _aliases().get(str(name).strip().lower())
    if known and not isinstance(name, Path):
        return _shipped(known)
    path = Path(name)
    if isinstance(name, Path) or path.suffix == ".json" or path.is_dir():
        return _read(path, path.parent.name if path.name == "config.json" else path.stem)
    raise ValueError(f"model={name!r} is unknown; nearest: {', '.join(nearest(str(name), _aliases()))}")
