"""What is legal: one function, and all that asks it, against the rules that the software's documents print."""

import json
import shlex
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog.options import documented, plain
from trnmodel.search import launch
from trnmodel.steps.legal import RULES, heads_of, legal

RANKS, STAGES, EXPERTS, HEADS, KV, SHARE, DEGREE, SEQUENCE, LONGEST = RULES
LLAMA = "llama-3.1-8b"  # 32 heads, 8 KV heads, 32 layers, 131,072 positions
TRN2 = "trn2.48xlarge"  # 64 logical cores
TP8 = tm.Mapping(tp=8)
# 64, 32, 28, 40, 14 and 24 heads; experts; a latent; recurrent layers
MODELS = (
    "llama-3.3-70b",
    "llama-3.1-8b",
    "qwen2.5-7b",
    "qwen2.5-14b",
    "qwen2.5-0.5b",
    "llama-3.2-3b",
    "mixtral-8x22b-v0.1",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "jamba-v0.1",
)
SYSTEMS = ("trn1.32xlarge", "inf2.48xlarge", "trn2.3xlarge", TRN2, "trn2-ultraserver", "trn3-nl16-torus", "hgx-h100")
SYSTEMS += (
    "hgx-h200",
    "hgx-b200",
    "trn3-nl32x2-pcie160",
    "trn3-nl72x2-pcie160",
    "gb200-nvl72",
    "mi300x-8",
    "tpu-v5p-pod",
)


# ---- rules of servers, from their documents alone; `f` holds a model's config.json, `o` a command's options


def vllm_refuses(f, o):
    """ModelConfig.verify_with_parallel_config, Attention of vllm/model_executor/models, _get_and_verify_max_len."""
    tp = int(o["tensor-parallel-size"])
    yield f["heads"] % tp != 0, "Total number of attention heads must be divisible by tensor parallel size"
    if f["kv_heads"]:  # an own head for each rank, or the same number of whole heads for all
        yield (f["kv_heads"] % tp if f["kv_heads"] >= tp else tp % f["kv_heads"]) != 0, "KV heads"
    yield int(o["max-model-len"]) > f["positions"], "greater than the derived max_model_len"
    if "enable-expert-parallel" in o:
        yield f["experts"] < 1, "Number of experts must be greater than 0 when expert parallelism is enabled"
        yield tp * int(o.get("data-parallel-size", 1)) > f["experts"], "a rank without an expert"


def vllm_neuron_refuses(f, o):
    """expert_parallelism.md L26 and L359, tensor_parallelism.md L215 and L242, reference-configuration.md L48-51."""
    yield from vllm_refuses(f, o)
    tp, neuron = int(o["tensor-parallel-size"]), o["config"]["neuron_config"]
    if "enable-expert-parallel" in o:
        yield f["experts"] % (tp * int(o.get("data-parallel-size", 1))) != 0, "num_experts % ep_degree == 0"
    prompts = neuron["num_batched_tokens_buckets"]
    yield any(bucket % tp or bucket <= tp for bucket in prompts), "T > world_size and T % world_size == 0"
    yield max(prompts) != int(o["max-num-batched-tokens"]), "largest must equal max_num_batched_tokens"
    yield max(neuron["num_seqs_buckets"]) != int(o["max-num-seqs"]), "largest must equal max_num_seqs"
    yield not neuron["on_device_sampling_config"], "async scheduling and speculation require on-device sampling"
    drafts = o.get("speculative-config", {})
    yield bool(drafts) and drafts["method"] != "eagle3", "EAGLE3 only; draft models are not supported"
    yield bool(drafts) and "no-async-scheduling" in o, "a flag that drafts set by themselves"
    contexts = neuron.get("decode_context_length_buckets", [])
    yield any(c % 128 or c >= int(o["max-model-len"]) for c in contexts), "below max_model_len, divisible by 128"


def nxd_refuses(f, o, degrees):
    """feature-guide.rst L154-158, gqa.py L58-102 (heads are padded), config.py L138-201 of NxD Inference."""
    yield int(o["tensor-parallel-size"]) not in degrees, "degrees that the Neuron runtime supports"
    buckets = o.get("override-neuron-config") or o["config"]["override_neuron_config"]
    yield bool(o.get("speculative-config")) and not buckets.get("enable_fused_speculation"), "no batches over 1"
    yield max(buckets["context_encoding_buckets"]) > int(o["max-model-len"]), "max_context_length over max_length"
    yield max(buckets["token_generation_buckets"]) > int(o["max-model-len"]), "token generation bucket over max_length"
    yield int(o["max-model-len"]) > f["positions"], "positions of the model"


def trtllm_refuses(f, o):
    """Mapping of tensorrt_llm/mapping.py: experts over TP ranks; attention data parallelism keeps whole heads."""
    tp, ep = int(o["tp_size"]), int(o["ep_size"])
    yield tp % ep != 0, "tp_size must equal moe_tp_size * moe_ep_size"
    yield f["experts"] % ep != 0, "num_experts divisible by ep_size"
    yield ep > 1 and not o["settings"].get("enable_attention_dp"), "cache of a latent copied to all ranks"


def sglang_refuses(f, o):
    """Server arguments: --dp divides --tp with --enable-dp-attention, --ep-size divides --tp."""
    tp, dp, ep = int(o["tp"]), int(o.get("dp", 1)), int(o.get("ep-size", 1))
    yield tp % dp != 0 or tp % ep != 0, "tp_size must be divisible by dp_size and ep_size"
    yield dp > 1 and "enable-dp-attention" not in o, "dp would be replicas"
    yield int(o["context-length"]) > f["positions"], "longer than the model's context"
    yield int(o["max-running-requests"]) % dp != 0, "requests of a group"


DEGREES = {"trn1": (1, 2, 8, 16, 32), "inf2": (1, 2, 4, 8, 24), "trn2": (1, 2, 4, 8, 16, 32, 64)}


def options(command):
    """The options of a printed command; JSON is read."""
    settings, _, command = command.rpartition(" && ")
    words = [word for word in shlex.split(command) if not word.startswith(("NEURON_", "VLLM_"))]
    assert words[:2] == ["vllm", "serve"] or words[0] == "trtllm-serve" or words[2] == "sglang.launch_server"
    found, name = {"settings": json.loads(shlex.split(settings)[1])} if settings else {}, ""
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            found[name] = ""
        elif name:
            found[name] = json.loads(word) if word.startswith("{") else word
    found["config"] = found.get("additional-config", {})
    return found


def printed(model):
    """What the configuration of a shipped model prints."""
    from trnmodel.models.shipped import MODELS as FOLDER
    from trnmodel.models.shipped import catalog, known

    whole = json.loads((FOLDER / catalog()[known(model)].file).read_text())
    c = whole.get("text_config", whole)
    experts = next((c[n] for n in ("num_local_experts", "num_experts", "n_routed_experts") if c.get(n)), 0)
    kv = 0 if c.get("kv_lora_rank") else c.get("num_key_value_heads", c["num_attention_heads"])
    return {
        "heads": c["num_attention_heads"],
        "kv_heads": kv,
        "experts": experts,
        "positions": c["max_position_embeddings"],
    }


def refused(model, system, command):
    f, o = printed(model), options(command)
    if "neuron_config" in o["config"]:
        rules = [*vllm_neuron_refuses(f, o)]
        if system.startswith("trn2"):
            rules.append((int(o["tensor-parallel-size"]) not in DEGREES["trn2"], "degrees of the runtime"))
    elif "override_neuron_config" in o["config"] or "override-neuron-config" in o:
        rules = [*nxd_refuses(f, o, DEGREES[system[:4]])]
    elif "trtllm-serve" in command:
        rules = [*trtllm_refuses(f, o)]
    elif "sglang" in command:
        rules = [*sglang_refuses(f, o)]
    else:
        rules = [*vllm_refuses(f, o)]
    return [words for broken, words in rules if broken]


@pytest.mark.parametrize("model", MODELS)
def test_no_server_refuses_a_start_command_of_a_plan(model):
    """Prompts that are no multiple of a rank's share, too, and one that reaches the model's end."""
    wrong, commands, end = [], 0, printed(model)["positions"]
    for system, speed, prompt, output in product(SYSTEMS, (5, 60), (1000, 4095), (200,)):
        request = tm.Request(min(prompt, end - output), output, speed)
        found = tm.plan(model, request, system)
        command = found.command
        assert bool(command) == (found.reached and not found.no_command)
        if not command:
            continue
        commands += 1
        wrong += [(system, why, command) for why in refused(model, system, command)]
        c = found.best
        assert legal(model, system, c.degrees, context=float(request.longest_context)).valid, command
    assert not wrong, wrong[:3]
    assert commands >= 8


OPTIONS = [(one, model) for one in documented() if one.server for model in sorted(one.covers - {"any"})]


@pytest.mark.parametrize(("option", "model"), OPTIONS, ids=lambda one: getattr(one, "id", one))
def test_no_server_refuses_a_start_command_of_an_option(option, model):
    """Each option on the chips that its page names, at speeds that one system or another keeps."""
    commands, precision = 0, "bf16" if option.server == "nxd-inference" else None
    for system, speed in product(SYSTEMS, (5, 60)):
        if tm.system(system).chip.id not in option.documented_on:
            continue
        found = tm.plan(model, tm.Request(1000, 200, speed), system, efficiencies=option.id, precision=precision)
        command = found.command
        assert bool(command) == (found.reached and not found.no_command)
        if command:
            assert not refused(model, system, command), command
            commands += 1
    assert commands


def test_the_servers_rules_are_ones_that_a_plan_broke():
    """The start command that issue 26 found: TP 16 for 56 heads is refused by the rules above and by the function."""
    o = {"tensor-parallel-size": "16", "max-model-len": "2048"}
    broken = [words for bad, words in vllm_refuses({"heads": 56, "kv_heads": 8, "positions": 4096}, o) if bad]
    assert len(broken) == 1
    assert legal("mistral-small-2409", TRN2, tm.Mapping(tp=16)).valid  # 48 heads
    assert HEADS in legal("qwen2.5-7b", TRN2, tm.Mapping(tp=16)).reason  # 28 heads
    assert HEADS in legal("qwen2.5-14b", "hgx-h100", tm.Mapping(tp=16)).reason  # 40 heads


def test_what_is_not_legal_has_no_start_command():
    e = tm.efficiencies("trainium2")
    step = tm.decode_step(LLAMA, TRN2, tm.Mapping(tp=61), batch=1, context=2048)
    first = tm.prefill(LLAMA, TRN2, tm.Mapping(tp=61), input_tokens=2048)
    assert launch.command(tm.model(LLAMA), plain(e), step, first, tm.Precision(), 2, 2048) == ""


@pytest.mark.parametrize(("tp", "prompt", "bucket"), [(64, 2200, 2240), (64, 20, 128), (8, 2048, 2048), (1, 1, 2)])
def test_a_prompts_bucket_is_shared_out_by_its_ranks(tp, prompt, bucket):
    """More tokens than ranks, and as many for each of them."""
    step = SimpleNamespace(ep=1.0, pp=1.0, cp=1.0, batch=4.0, tp=float(tp), compiled_tokens=4096.0, valid=True)
    first = SimpleNamespace(compiled_tokens=float(prompt), valid=True)
    told = launch.command(tm.model(LLAMA), plain(tm.efficiencies("trainium2")), step, first, tm.Precision(), 2, 8192.0)
    assert options(told)["config"]["neuron_config"]["num_batched_tokens_buckets"] == [bucket]


# ---- the calls that answered what no server runs


def asked(tokens, model=LLAMA, mapping=TP8, **more):
    """All calls of a configuration whose longest sequence has so many tokens."""
    request = tm.Request(np.subtract(tokens, 8), 8, requests_per_s=1e-4)
    return {
        "decode_step": tm.decode_step(model, TRN2, mapping, batch=1, context=tokens, **more),
        "prefill": tm.prefill(model, TRN2, mapping, input_tokens=tokens, **more),
        "after a prefix": tm.prefill(model, TRN2, mapping, input_tokens=64, past=np.subtract(tokens, 64), **more),
        "memory_fit": tm.memory_fit(model, TRN2, mapping, batch=1, context=tokens, input_tokens=1, **more),
        "compiled": tm.decode_step(model, TRN2, mapping, batch=1, context=64, max_context=tokens, **more),
        "serve": tm.serve(model, request, TRN2, mapping, max_batch=1, **more),
        "static": tm.serve(model, request, TRN2, mapping, max_batch=1, batching="static", **more),
    }


@pytest.mark.parametrize("model", ["llama-2-7b", "deepseek-v2-lite", "gpt2"])
@pytest.mark.parametrize("more", [{}, {"efficiencies": "ideal"}], ids=["public", "ideal"])
def test_one_token_beyond_the_longest_context(model, more):
    end = printed(model).get("positions") if model != "gpt2" else 1024
    mapping = tm.Mapping(tp=4)
    for tokens, beyond in ((end, False), (end + 1, True), ([end, end + 1], [False, True])):
        for name, found in asked(tokens, model, mapping, **more).items():
            assert np.array_equal(np.char.find(np.asarray(found.reason, dtype=str), LONGEST) >= 0, beyond), name
            if tokens == end + 1 and hasattr(found, "time_s"):
                assert np.isnan(found.time_s), name


def test_a_training_sequence_ends_where_the_model_does():
    ask = {"mapping": tm.Mapping(tp=8), "global_batch": 8, "recompute": "full"}
    step = tm.train_step(LLAMA, TRN2, seq=[131072, 131073], **ask)
    assert (LONGEST in step.reason[0], LONGEST in step.reason[1]) == (False, True)
    assert np.isnan(step.time_s[1])
    for call in (
        lambda: tm.plan(LLAMA, tm.Request(131072, 1, 1), TRN2),
        lambda: tm.train_run(LLAMA, "hgx-h100", tokens=1e12, chips=64, seq=131073),
    ):
        with pytest.raises(ValueError, match="131,072"):
            call()


def test_a_model_without_a_stated_end_has_none():
    assert tm.model("t5-large").max_context == 0
    assert legal("t5-large", TRN2, context=10**9).valid


def test_61_ranks_do_not_share_out_32_heads():
    for found in asked(2048, mapping=tm.Mapping(tp=61)).values():
        assert HEADS in found.reason
    assert all(
        np.isnan(float(found.time_s))
        for found in asked(2048, mapping=tm.Mapping(tp=61)).values()
        if hasattr(found, "time_s")
    )
    assert asked(2048, mapping=tm.Mapping(tp=61), efficiencies="ideal")["decode_step"].valid  # it cuts through heads


def test_where_software_pads_heads_the_waste_is_costed():
    """64 heads of Llama-70B on 24 ranks are 72: the padded share of the heads' work is 3 of 64."""
    ask = {"batch": 1, "context": 4096, "efficiencies": "optimum-neuron-2025", "breakdown": True}
    step = tm.decode_step("llama-3.1-70b", "inf2.48xlarge", tm.Mapping(tp=24), **ask)
    assert step.valid  # as optimum-neuron measured it
    even = tm.decode_step("llama-3.1-70b", "inf2.48xlarge", tm.Mapping(tp=24), **ask | {"efficiencies": "ideal"})
    assert float(step.work_flop_per_rank) > 1.01 * float(even.work_flop_per_rank)


@pytest.mark.parametrize(
    ("model", "system", "mapping", "e", "rules"),
    [
        (LLAMA, TRN2, {"tp": 128}, None, {RANKS, HEADS, DEGREE}),
        (LLAMA, TRN2, {"pp": 33}, None, {STAGES}),
        (LLAMA, TRN2, {"ep": 2}, None, {EXPERTS}),
        ("mixtral-8x7b", TRN2, {"tp": 8, "ep": 2}, None, {EXPERTS}),  # 16 ranks for 8 experts
        ("mixtral-8x7b", TRN2, {"tp": 8, "ep": 2}, "ideal", set()),  # each cut over 8 of them
        ("deepseek-v3", TRN2, {"ep": 48}, None, {SHARE}),  # 256 experts
        ("deepseek-v3", "gb200-nvl72", {"ep": 72}, None, set()),  # some ranks hold four, others three
        ("mistral-small-2409", "hgx-h100", {"tp": 6}, None, {KV}),  # 48 heads, 8 KV heads
        (LLAMA, "trn1.32xlarge", {"tp": 4}, None, {DEGREE}),
        (LLAMA, "trn1.32xlarge", {"tp": 16}, None, set()),
        (LLAMA, "trn2-ultraserver", {"tp": 32, "lnc": 1}, None, set()),
        (LLAMA, "inf2.48xlarge", {"tp": 24}, "nxd-inference", set()),  # 32 heads become 48
        ("deepseek-v3", TRN2, {"tp": 64}, None, set()),  # a latent has no KV heads
        (LLAMA, TRN2, {"tp": 8, "cp": 2}, None, set()),
    ],
)
def test_each_rule(model, system, mapping, e, rules):
    found = legal(model, system, tm.Mapping(**mapping), context=2048, efficiencies=e)
    assert set(str(found.reason).split("; ")) - {""} == rules
    assert bool(found.valid) is not bool(rules)


# ---- one point and a million, small grids by brute force


def by_hand(m, stack, ranks, tp, ep, pp, tokens):
    """The rules once more, one point at a time, with whole numbers alone."""
    heads, kv, experts, layers, end = m
    yield tp * ep * pp > ranks
    yield pp > layers
    server = stack != "ideal" and ep > 1
    group = tp * ep if server else ep
    yield group > max(experts, 1)
    if stack != "ideal":
        yield heads % tp > 0
        yield kv and min(kv % tp, tp % kv) > 0
    if stack == "vllm-neuron-2026":
        yield group > 1 and group <= experts and experts % group > 0
        yield tp not in (1, 2, 4, 8, 16, 32, 64)
    yield tokens > end


GRID = {"llama-3.1-8b": (32, 8, 0, 32, 131072), "qwen2.5-7b": (28, 4, 0, 28, 32768),
        "mixtral-8x7b": (32, 8, 8, 32, 32768), "deepseek-v3": (128, 0, 256, 61, 163840)}  # fmt: skip


@pytest.mark.parametrize("model", GRID)
@pytest.mark.parametrize("stack", ["vllm-neuron-2026", "gpu-serving", "ideal"])
def test_small_grids_by_brute_force(model, stack):
    system = "hgx-h100" if stack == "gpu-serving" else TRN2
    ranks, end = 8 if stack == "gpu-serving" else 64, GRID[model][-1]
    axes = [np.arange(1, 66), [1, 2, 3, 8, 16], [1, 2, 62], [1, end, end + 1]]
    tp, ep, pp, tokens = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
    found = legal(model, system, tm.Mapping(tp=tp, ep=ep, pp=pp), context=tokens, efficiencies=stack)
    points = zip(*(x.tolist() for x in (tp, ep, pp, tokens)), strict=True)
    wanted = [not any(by_hand(GRID[model], stack, ranks, *point)) for point in points]
    assert found.valid.tolist() == wanted


@settings(deadline=None, max_examples=60)
@given(
    model=st.sampled_from(MODELS),
    system=st.sampled_from(SYSTEMS),
    e=st.sampled_from([None, "ideal"]),
    points=st.lists(
        st.tuples(*[st.integers(1, 80)] * 2, st.integers(1, 8), st.integers(1, 300_000)), min_size=2, max_size=6
    ),
)
def test_many_points_are_each_of_them(model, system, e, points):
    tp, ep, cp, tokens = map(np.array, zip(*points, strict=True))
    every = legal(model, system, tm.Mapping(tp=tp, ep=ep, cp=cp), context=tokens, efficiencies=e)
    steps = tm.decode_step(model, system, tm.Mapping(tp=tp, ep=ep, cp=cp), batch=ep, context=tokens, efficiencies=e)
    for place, (a, b, c, length) in enumerate(points):
        mapping = tm.Mapping(tp=a, ep=b, cp=c)
        one = legal(model, system, mapping, context=length, efficiencies=e)
        step = tm.decode_step(model, system, mapping, batch=b, context=length, efficiencies=e)
        assert (bool(one.valid), one.reason) == (bool(every.valid[place]), every.reason[place])
        assert step.reason == steps.reason[place]
        told = [rule for rule in RULES if rule in step.reason]
        assert told == [rule for rule in RULES if rule in one.reason]
        if not one.valid:
            assert np.isnan(step.time_s)


def test_a_million_points_at_once():
    tp = np.tile([1.0, 2.0, 61.0, 8.0], 250_000)
    tokens = np.where(np.arange(10**6) < 500_000, 2048.0, 200_000.0)
    found = legal(LLAMA, TRN2, tm.Mapping(tp=tp), context=tokens)
    assert int(found.valid.sum()) == 375_000
    step = tm.decode_step(LLAMA, TRN2, tm.Mapping(tp=tp), batch=1, context=tokens, efficiencies="ideal")
    assert int(np.isnan(step.time_s).sum()) == 500_000
    assert set(np.unique(found.reason_mask)) == {0, int(found.reason_mask[2]), 256, 256 | int(found.reason_mask[2])}


# ---- training


@pytest.mark.parametrize(("e", "parts"), [(None, 2), ("neuronx-training", 1), ("ideal", 1)])
@pytest.mark.parametrize("seq", [8192, 131_072, 3 * 2**13])
def test_cp_divides_the_sequence_as_its_software_asks(e, parts, seq):
    """Megatron-LM: seq-length is a multiple of 2 x CP; NxD Training: of CP. Of 1,152 GPUs 18 is a divisor."""
    run = tm.train_run(
        LLAMA,
        "hgx-h100",
        tokens=1e12,
        chips=1152,
        seq=seq,
        max_cp=64,
        zero=(1,),
        recompute=("full",),
        sequence_parallel=(True,),
        efficiencies=e,
    )
    cps = np.unique(run.space.cuts["cp"]).astype(int)
    assert [cp for cp in cps if cp > 1 and seq % (parts * cp)] == []
    assert run.table.cp.isin(cps).all()
    assert len(cps) > 3
    assert legal(LLAMA, "hgx-h100", run.mapping, context=seq, efficiencies=e, training=True).reason in ("", RANKS)


def test_a_step_of_training_asks_too():
    ask = {"global_batch": 64, "seq": 131_072, "recompute": "full", "count": 9}
    step = tm.train_step(LLAMA, "hgx-h100", tm.Mapping(cp=[16, 18]), **ask)
    assert (SEQUENCE in step.reason[0], SEQUENCE in step.reason[1]) == (False, True)
    step = tm.train_step(LLAMA, "hgx-h100", tm.Mapping(tp=[3, 4]), **ask | {"count": 1, "seq": 4096})
    assert (HEADS in step.reason[0], HEADS in step.reason[1]) == (True, False)
    step = tm.train_step("mixtral-8x7b", "hgx-h100", tm.Mapping(ep=[3, 4]), **ask | {"count": 9, "seq": 4096})
    assert (SHARE in step.reason[0], SHARE in step.reason[1]) == (True, False)


# ---- bad input


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"context": 0}, "context=0"),
        ({"context": "<b>"}, "context="),
        ({"context": [1, 2, 3]}, "context"),  # beside two mappings
        ({"efficiencies": "vllm"}, "efficiencies='vllm'"),
        ({"efficiencies": tm.efficiencies("h200"), "training": True}, "efficiencies"),
        ({"training": "yes"}, "training='yes'"),
        ({"mapping": (8,)}, "mapping"),
        ({"system": "trn9"}, "trn9"),
        ({"model": "llama-9"}, "llama-9"),
    ],
)
def test_bad_input(changed, named):
    ask = {"model": LLAMA, "system": TRN2, "mapping": tm.Mapping(tp=[1, 2])} | changed
    with pytest.raises(ValueError, match=named):
        legal(**ask)


def test_heads_of_each_kind():
    assert heads_of(tm.model(LLAMA), "decode") == ((32,), (8,))
    assert heads_of(tm.model("deepseek-v3"), "decode") == ((128,), ())
    assert heads_of(tm.model("bert-large-uncased"), "prefill").queries == (16,)
