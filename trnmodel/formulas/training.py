"""Training: what a rank keeps, what a pipeline waits for, what is computed twice, and what peaks are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import Numeric

RECOMPUTES = ("none", "selective", "full")


def saved_activation_bytes(
    tokens: Numeric,
    whole_bytes: Numeric,
    cut_bytes: Numeric,
    score_bytes: Numeric,
    entry_bytes: Numeric,
    tp: Numeric,
    outer_tp: Numeric,
    recompute: str,
) -> NDArray:
    r"""Activations that a layer keeps on a rank for the backward pass.

    .. math:: A = n\left(\frac{w}{t_s} + \frac{c}{t} + \frac{s}{t}\right), \qquad
              A_{sel} = n\left(\frac{w}{t_s} + \frac{c}{t}\right), \qquad A_{full} = \frac{n e}{t_s}

    Parameters
    ----------
    tokens : numeric
        Tokens of a micro-batch on a rank, n. [token]
    whole_bytes : numeric
        What a token keeps that heads and columns do not cut, w: inputs of norms and of matrices, masks. [B/token]
    cut_bytes : numeric
        What they cut, c: outputs of matrices cut by columns, inputs of those cut by rows. [B/token]
    score_bytes : numeric
        Scores, their softmax and its mask, s; nothing where attention is fused. [B/token]
    entry_bytes : numeric
        Input of the layer, e. [B/token]
    tp : numeric
        Tensor-parallel ranks, t. [-]
    outer_tp : numeric
        Ranks that cut the sequence between the matrices, ts: as many (sequence parallelism), else 1. [-]
    recompute : {"none", "selective", "full"}
        Nothing; scores again; the whole layer again.

    Returns
    -------
    saved : numeric
        Of one layer on one rank, A. [B]

    Notes
    -----
    For GPT w = 10 h, c = 24 h and s = 5 a s bytes. Limits: t = 1 gives n (w + c + s) either way.

    References
    ----------
    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, table 2.

    Examples
    --------
    >>> h, a, s = 12288, 96, 2048
    >>> float(saved_activation_bytes(s, 10 * h, 24 * h, 5 * a * s, 2 * h, 8, 8, "selective"))
    106954752.0
    """
    if recompute == "full":
        return np.divide(tokens * entry_bytes, outer_tp)
    saved = np.divide(whole_bytes, outer_tp) + np.divide(cut_bytes, tp)
    return tokens * (saved if recompute == "selective" else saved + np.divide(score_bytes, tp))


def in_flight(microbatches: Numeric, stages: Numeric, interleave: Numeric) -> NDArray:
    r"""Micro-batches whose activations the first stage of a pipeline holds at once.

    .. math:: k = \min\left(m,\; p + \frac{p - 1}{v}\,[v > 1]\right)

    Parameters
    ----------
    microbatches : numeric
        Micro-batches of a step, m. [-]
    stages : numeric
        Stages of the pipeline, p. [-]
    interleave : numeric
        Parts of the model that each stage has, v; 1 for the plain schedule. [-]

    Returns
    -------
    held : numeric
        Micro-batches of a whole stage, k. [-]

    References
    ----------
    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, sec. 4.2.3.

    Examples
    --------
    >>> float(in_flight(64, 8, 1)), round(float(in_flight(64, 8, 3)), 3), float(in_flight(2, 8, 1))
    (8.0, 10.333, 2.0)
    """
    more = np.where(np.greater(interleave, 1), (stages - 1) / interleave, 0.0)
    return np.minimum(microbatches, stages + more)[()]


def edge_bytes(tokens: Numeric, hidden: Numeric, vocabulary: Numeric, tp: Numeric, stages: Numeric) -> NDArray:
    r"""Activations of the first stage beside those of its layers, the sequence cut: embedding, output, logits.

    .. math:: A = \frac{n h}{t}\left(p + [p = 1]\; 4\left(1 + \frac{v}{h}\right)\right)

    Parameters
    ----------
    tokens : numeric
        Tokens of a micro-batch on a rank, n. [token]
    hidden : numeric
        Width of the model, h, at one byte for a mask and two for an input. [B/token]
    vocabulary : numeric
        Logits of a token, v, four bytes each. [B/token]
    tp : numeric
        Tensor-parallel ranks, t. [-]
    stages : numeric
        Stages of the pipeline, p; each has a mask of the embedding under way. [-]

    Returns
    -------
    saved : numeric
        Of the first stage, A. [B]

    References
    ----------
    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, sec. 4.3.

    Examples
    --------
    >>> float(edge_bytes(2048, 12288, 51200, 8, 8))
    25165824.0
    """
    alone = np.where(np.equal(stages, 1), 4.0, 0.0)
    return tokens * (hidden * (stages + alone) + vocabulary * alone) / tp


def state_bytes(params: Numeric, each_bytes: Numeric, ranks: Numeric) -> NDArray:
    r"""Return a state of parameters on a rank, cut over ranks that would all hold it otherwise (ZeRO).

    .. math:: M = \frac{\Psi k}{N}

    Parameters
    ----------
    params : numeric
        Parameters, as tensor, pipeline and expert parallelism cut them. [-]
    each_bytes : numeric
        Bytes of a parameter, k: of Adam in mixed precision 2, 2 and 12. [B]
    ranks : numeric
        Ranks that share it, N: the data-parallel ones for the optimizer from ZeRO-1 on, for gradients from ZeRO-2 on,
        for weights in ZeRO-3; else 1. [-]

    Returns
    -------
    held : numeric
        On a rank, M. [B]

    References
    ----------
    .. [1] S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, table 1.

    Examples
    --------
    >>> float(state_bytes(7.5e9, 4.0, 1) + state_bytes(7.5e9, 12.0, 64)) / 1e9
    31.40625
    """
    return np.multiply(params, each_bytes) / ranks


def bubble_s(stage_s: Numeric, stages: Numeric, interleave: Numeric) -> NDArray:
    r"""Time that a pipeline of one forward and one backward pass in turn fills and drains.

    .. math:: t_b = \frac{p - 1}{v}\, t_1, \qquad \frac{t_b}{m\,t_1} = \frac{p - 1}{m v}

    Parameters
    ----------
    stage_s : numeric
        Forward and backward pass of a micro-batch through a stage, t1. [s]
    stages : numeric
        Stages, p. [-]
    interleave : numeric
        Parts of the model that each stage has, v. [-]

    Returns
    -------
    time_s : numeric
        Time in which a stage waits, tb. [s]

    Notes
    -----
    Limits: one stage never waits; of the whole step the share is (p - 1) / (m v + p - 1), which is often mixed up with
    the ratio above.

    References
    ----------
    .. [1] D. Narayanan et al., Efficient large-scale language model training on GPU clusters, SC21, sec. 2.2.

    Examples
    --------
    >>> round(float(bubble_s(1.0, 35, 3)) / 280, 6)
    0.040476
    """
    return np.multiply(stages - 1.0, stage_s) / interleave


def exposed_s(network_s: Numeric, work_s: Numeric, overlap: Numeric) -> NDArray:
    r"""Return the part of an exchange's time that work does not hide.

    .. math:: t_x = t_n - o \min(t_n, t_w)

    Parameters
    ----------
    network_s : numeric
        Time of the exchange by itself, tn. [s]
    work_s : numeric
        Work that it may run beside, tw. [s]
    overlap : numeric
        Share of the shorter that hides, o. [-]

    Returns
    -------
    time_s : numeric
        Time that the step waits, tx. [s]

    Notes
    -----
    Limits: o = 0 exposes all of it, o = 1 leaves the longer of both.

    References
    ----------
    .. [1] M. Isaev et al., Calculon: a methodology and tool for high-level co-design of systems and LLMs, SC23.

    Examples
    --------
    >>> float(exposed_s(3.0, 2.0, 0.5))
    2.0
    """
    return network_s - overlap * np.minimum(network_s, work_s)


def host_wait_s(device_s: Numeric, host_s: Numeric) -> NDArray:
    r"""Return the time that a chip waits for a host that launches its work and runs ahead of it.

    .. math:: t_w = \max(t_h - t_d, 0)

    Parameters
    ----------
    device_s : numeric
        Work and exposed exchanges of a micro-batch on the chip, td. [s]
    host_s : numeric
        Time in which the host traces and launches the same micro-batch, th. [s]

    Returns
    -------
    time_s : numeric
        Time that the chip waits, tw: the micro-batch takes the longer of both. [s]

    Notes
    -----
    Assumes: the host never waits for a result of the micro-batch. On one Trainium2 a micro-batch of Llama-3.1-8B with
    adapters takes 0.58 s at 2,048 tokens and 0.56 s at 4,096, 0.39 s where no layer runs again, and 0.98 s at 8,192.

    References
    ----------
    .. [1] PyTorch/XLA, Understanding lazy tensors (tracing on the host overlaps execution on the device).

    Examples
    --------
    >>> host_wait_s([0.25, 1.0], 0.5).tolist()
    [0.25, 0.0]
    """
    return np.maximum(np.subtract(host_s, device_s), 0.0)


def library_start_s(kind: str, ranks: Numeric, servers: Numeric, near_s: Numeric, far_s: Numeric) -> NDArray:
    r"""Start-up of a collective of NCCL: steps between servers and inside of them, one after the other.

    .. math:: t_{ring} = (s - 1)\,\alpha_f + (n - s)\,\alpha_n, \qquad
              t_{all\,reduce} = \min\left(2\,t_{ring},\;
              2\left(\left(\tfrac{n}{s} - 1\right)\alpha_n + \alpha_f \log_2 s\right)\right)

    Parameters
    ----------
    kind : str
        A gather and a scatter go round in a ring, an all-reduce round twice or up and down a tree; a message between
        two ranks, and each of an all-to-all, which are sent at once, takes one step. [-]
    ranks : numeric
        Ranks, n. [-]
    servers : numeric
        Servers that they span, s. [-]
    near_s : numeric
        Start of a step inside a server, alpha_n. [s]
    far_s : numeric
        Start of a step between servers, alpha_f. [s]

    Returns
    -------
    time_s : numeric
        Time without any byte; 0 for one rank. [s]

    References
    ----------
    .. [1] NVIDIA, nccl, src/graph/tuning.cc (latencies of rings and trees).

    Examples
    --------
    >>> float(library_start_s("all_gather", 2048, 256, 1e-6, 1e-5))
    0.004342
    >>> float(library_start_s("all_reduce", 2048, 256, 1e-6, 1e-5))
    0.000174
    """
    if kind in ("p2p", "all_to_all"):
        return np.where(np.greater(servers, 1), far_s, near_s) * np.greater(ranks, 1)
    ring = np.multiply(np.subtract(servers, 1), far_s) + np.multiply(np.subtract(ranks, servers), near_s)
    if kind != "all_reduce":
        return ring
    tree = np.multiply(np.divide(ranks, servers) - 1, near_s) + np.multiply(far_s, np.log2(servers))
    return 2 * np.minimum(ring, tree)


def product_s(flop: Numeric, peak_flop_per_s: Numeric, share: Numeric, base_flop_per_s: Numeric) -> NDArray:
    r"""Time of matrix products in a number format, from the share of the peak that they reach in 16 bits.

    .. math:: t = F\left(\frac{1}{P} + \frac{1/s - 1}{P_{16}}\right)

    What products lose beside the engine's own time is as long in every format.

    Parameters
    ----------
    flop : numeric
        Work, F. [FLOP]
    peak_flop_per_s : numeric
        Peak of the format, P. [FLOP/s]
    share : numeric
        Share of the peak that products of 16 bits reach, s. [-]
    base_flop_per_s : numeric
        Peak of 16 bits, P16. [FLOP/s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Limits: s = 1 gives F / P; at P = P16 it is F / (s P). Products of 2,048 and more a side through TensorRT-LLM
    1.3.0rc20 (`aiconfigurator-perf`), medians: on H100 0.767 in BF16 give 0.622 in FP8, 0.549 are measured; on B200
    0.655 give 0.487 in FP8 and 0.322 in NVFP4, 0.455 and 0.340 are measured.

    Examples
    --------
    >>> round(1e15 / 1978e12 / float(product_s(1e15, 1978e12, 0.767, 989e12)), 3)
    0.622
    """
    return flop * (1 / peak_flop_per_s + (1 / share - 1) / base_flop_per_s)


def megatron_flop(
    sequences: Numeric, seq: Numeric, layers: Numeric, hidden: Numeric, vocabulary: Numeric, recompute: str
) -> NDArray:
    r"""Work of a step of GPT as the papers of Megatron-LM count it, with what is computed again.

    .. math:: F_{none} = 72BLsh^2\left(1 + \frac{s}{6h} + \frac{v}{12hL}\right), \quad
              F_{selective} = 72BLsh^2\left(1 + \frac{s}{3h} + \frac{v}{12hL}\right), \quad
              F_{full} = 96BLsh^2\left(1 + \frac{s}{6h} + \frac{v}{16hL}\right)

    Parameters
    ----------
    sequences : numeric
        Sequences of a step, B. [-]
    seq : numeric
        Tokens of a sequence, s. [-]
    layers : numeric
        Layers, L. [-]
    hidden : numeric
        Width, h. [-]
    vocabulary : numeric
        Vocabulary, v. [-]
    recompute : {"none", "selective", "full"}
        What is computed again.

    Returns
    -------
    flop : numeric
        Work of a step, F. [FLOP]

    Notes
    -----
    Assumes: feed-forward layers four times as wide, attention over the whole square. The selective count is that of the
    paper: it adds the attention three times over, forward and backward, where once is computed again.

    References
    ----------
    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, eq. 7 and 8.
    .. [2] D. Narayanan et al., Efficient large-scale language model training on GPU clusters, SC21, eq. 3.

    Examples
    --------
    >>> f"{float(megatron_flop(64, 2048, 96, 12288, 51200, 'none')):.5g}"
    '1.4109e+17'
    """
    passes, square, head = {"none": (72, 6, 12), "selective": (72, 3, 12), "full": (96, 6, 16)}[recompute]
    layer = passes * layers * hidden * (hidden + seq / square) + passes / head * vocabulary * hidden
    return np.multiply(sequences * seq, layer)


def model_utilisation(flop: Numeric, time_s: Numeric, ranks: Numeric, peak_flop_per_s: Numeric) -> NDArray:
    r"""Share of a printed peak that work makes use of: MFU of a model's work, HFU of all that is computed.

    .. math:: U = \frac{F}{t\, n\, P}

    Parameters
    ----------
    flop : numeric
        Work of a step, F. [FLOP]
    time_s : numeric
        Time of the step, t. [s]
    ranks : numeric
        Ranks that work, n. [-]
    peak_flop_per_s : numeric
        Dense peak of one rank as printed, P. [FLOP/s]

    Returns
    -------
    share : numeric
        U. [-]

    References
    ----------
    .. [1] A. Chowdhery et al., PaLM: scaling language modeling with pathways, 2022, sec. 4.1.

    Examples
    --------
    >>> round(float(model_utilisation(1.41091531e17, 13.75, 64, 312e12)), 4)
    0.5139
    """
    return np.divide(flop, time_s * ranks * peak_flop_per_s)


def run_s(tokens: Numeric, tokens_per_s: Numeric) -> NDArray:
    r"""Time of a run over a budget of tokens, nothing lost.

    .. math:: t = \frac{T}{r}

    Parameters
    ----------
    tokens : numeric
        Tokens to be seen, T. [token]
    tokens_per_s : numeric
        Rate of all chips, r. [token/s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    References
    ----------
    .. [1] D. Narayanan et al., Efficient large-scale language model training on GPU clusters, SC21, sec. 5.1.

    Examples
    --------
    >>> rate = 1024 * 140e12 / (8 * 174.6e9)  # FLOP of all GPUs over those of a token, layers computed again
    >>> round(float(run_s(300e9, rate)) / 86_400)
    34
    """
    return np.divide(tokens, tokens_per_s)
