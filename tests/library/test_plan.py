"""The sizing call: it equals single calls tried one by one, every cell computes again, and odd questions are told."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.models.shipped import MODELS
from trnmodel.search import deployments, request
from trnmodel.search.plan import SAME, TIED, plan

ASK = {"tokens_per_s_per_user": 40.0, "input_tokens": 1024.0, "output_tokens": 256.0}
MIDDLE, LONGEST = 1024.0 + 256.0 / 2, 1024.0 + 256.0


def slower(name: str, share: float) -> tm.System:
    """A system whose HBM has a share of its rate."""
    spec = tm.system(name)
    return replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=share * spec.chip.hbm_bytes_per_s))


def one_by_one(model: str, system: str, speed: float, precision: str) -> tuple[float, float]:
    """The highest yield a chip, and the user's speed there, of single calls over degrees and batches."""
    found, ranks = (0.0, 0.0), 4.0  # of a chip at LNC 2
    for tp in deployments.tensor_degrees(system):
        for ep in deployments.expert_degrees(system, model):
            for batch in deployments.PER_RANK * ep:
                mapping, ask = tm.Mapping(tp=tp, ep=ep), {"precision": precision}
                step = tm.decode_step(model, system, mapping, batch=batch, context=MIDDLE, max_context=LONGEST, **ask)
                if not step.valid or step.tokens_per_s_per_user < speed:
                    continue
                fit = tm.memory_fit(model, system, mapping, batch=batch, context=LONGEST, input_tokens=1024, **ask)
                if fit.valid:
                    made = float(batch / step.time_s / np.ceil(tp * ep / ranks))
                    found = max(found, (made, float(step.tokens_per_s_per_user)))
    return found


@pytest.mark.parametrize(("model", "precision"), [("llama-3.1-8b", "bf16"), ("qwen3-30b-a3b", "fp8")])
def test_a_plan_is_the_best_of_single_calls(model, precision):
    made, user = one_by_one(model, "trn2.3xlarge", 40.0, precision)
    best = plan(model, "trn2.3xlarge", **ASK, precision=precision).best
    assert made > 0
    assert (best.tokens_per_s_per_chip, best.tokens_per_s_per_user) == pytest.approx((made, user), rel=1e-9)


def test_the_best_of_several_systems_and_precisions_is_the_best_of_plans_of_each():
    systems, precisions = ["trn1.32xlarge", "trn2.48xlarge", "trn3-nl16-torus"], ("bf16", "fp8", "mxfp8")
    alone = {
        (name, one): plan("llama-3.1-8b", name, **ASK, precision=one).best.tokens_per_s_per_chip
        for name in systems
        for one in precisions
        if deployments.computes(name, one)
    }
    found = plan("llama-3.1-8b", systems, **ASK)
    for c in found.choices:
        assert c.tokens_per_s_per_chip == max(made for (name, _), made in alone.items() if name == c.system.id)
    assert found.best.tokens_per_s_per_chip >= (1 - TIED) * max(alone.values())


def test_every_cell_is_read_from_single_calls():
    found = plan("llama-3.3-70b", ["trn2.48xlarge", "trn3-nl72x2-pcie160"], **ASK)
    frame = found.to_frame(bands=True)
    assert set(frame.role) == {"best", "system", "mapping", "beside"}
    for line in frame.itertuples():
        ask = {"precision": line.precision, "efficiencies": line.stack, "max_context": LONGEST}
        mapping = tm.Mapping(tp=line.tp, ep=line.ep)
        step = tm.decode_step(found.model, line.system, mapping, batch=line.batch, context=MIDDLE, **ask)
        first = tm.prefill(found.model, line.system, mapping, input_tokens=1024, **ask)
        assert line.tokens_per_s_per_user == float(1 / step.time_s) >= 40
        assert line.tokens_per_s_per_chip == pytest.approx(float(line.batch / step.time_s / line.chips))
        assert line.ttft_s == float(first.time_s)
        by_hand = line.batch * 256 / (256 * step.time_s + line.batch * first.time_s) / line.chips  # EP is 1
        assert (line.ep, line.with_prompts_tokens_per_s_per_chip) == (1, pytest.approx(float(by_hand)))
        assert line.low <= line.tokens_per_s_per_chip <= line.high
        low, high = step.ends("tokens_per_s_per_user")
        assert (line.low / line.tokens_per_s_per_chip, line.high / line.tokens_per_s_per_chip) == pytest.approx(
            (float(low * step.time_s), float(high * step.time_s))
        )


def test_half_the_hbm_rate_changes_the_answer():
    for model, name in (("llama-3.3-70b", "trn2.48xlarge"), ("deepseek-v3", "trn3-nl72x2-pcie160")):
        ask = ASK | {"tokens_per_s_per_user": 25, "efficiencies": "hand-tuned"}
        whole, half = plan(model, name, **ask), plan(model, slower(name, 0.5), **ask)
        assert half.best.tokens_per_s_per_chip < 0.9 * whole.best.tokens_per_s_per_chip


def test_the_default_is_every_system_of_trainium_chips():
    found = plan("llama-3.1-8b", **ASK)
    named = {c.system.id for c in found.choices} | set(found.refused)
    assert named == {name for name in tm.systems() if tm.system(name).chip.id.startswith("trainium")}
    assert set(found.why) == named - {found.best.system.id}
    assert all(found.why.values())
    assert [b.stack.kind for b in found.beside] == ["hand-tuned", "ideal"]
    assert found.best.stack.kind == "public"
    assert found.best.tokens_per_s_per_chip < found.beside[1].tokens_per_s_per_chip
    assert found.runner_up.system.id != found.best.system.id


def test_systems_that_do_the_same_are_told_as_such():
    found = plan("llama-3.1-8b", ["trn3-nl32x2-pcie160", "trn3-nl32x2-pcie320"], **ASK)
    assert (found.best.system.id, found.same) == ("trn3-nl32x2-pcie160", ["trn3-nl32x2-pcie320"])
    assert found.why == {"trn3-nl32x2-pcie320": SAME}


def test_a_speed_out_of_reach_names_the_fastest():
    found = plan("llama-3.1-8b", ["trn1.2xlarge", "trn2.3xlarge"], **ASK | {"tokens_per_s_per_user": 1e6})
    assert not found.reached
    assert not found.best.valid
    steps = [
        tm.decode_step(
            "llama-3.1-8b",
            "trn2.3xlarge",
            tm.Mapping(tp=tp),
            batch=1,
            context=MIDDLE,
            max_context=LONGEST,
            precision=precision,
        )
        for tp in (1, 2, 4)
        for precision in ("bf16", "fp8")
    ]
    assert found.best.tokens_per_s_per_user == max(float(step.tokens_per_s_per_user) for step in steps)
    assert "too slow, at most" in found.card()[0]
    assert found.command == ""


def test_a_model_that_fits_nowhere_says_by_how_much():
    found = plan("llama-3.1-405b", ["trn2.3xlarge", "inf2.xlarge"], **ASK)
    assert (found.best, found.runner_up, found.choices, found.command) == (None, None, (), "")
    weights = tm.model("llama-3.1-405b").weight_bytes("fp8") / 2**30
    words = found.why["trn2.3xlarge"].split()
    assert words[:3] + words[4:] == ["does", "not", "fit:", "of", "96", "GiB"]  # a Trainium2 has 96 GiB
    assert weights < float(words[3].replace(",", "")) < 1.3 * weights
    assert found.to_frame().role.tolist() == ["refused"] * 2
    assert "96 GiB" in repr(found)


def test_a_chip_without_the_precision_says_what_it_computes_in():
    found = plan("llama-3.1-8b", ["trn2.48xlarge", "trn3-nl16-torus"], **ASK, precision="mxfp8")
    assert found.best.system.id == "trn3-nl16-torus"
    assert found.refused["trn2.48xlarge"].startswith("computes in bf16, fp16")
    with pytest.raises(ValueError, match="precision='mxfp8': no chip asked computes in it; they compute in bf16, fp16"):
        plan("llama-3.1-8b", "trn2.48xlarge", **ASK, precision="mxfp8")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"input_tokens": 131_072},
            r"input_tokens \+ output_tokens=131328.0: llama-3.1-8b has contexts of up to",
        ),
        ({"tokens_per_s_per_user": 0}, "tokens_per_s_per_user=0: allowed are numbers from"),
        ({"tokens_per_s_per_user": [10, 20]}, "tokens_per_s_per_user=.*: allowed is one number"),
        ({"output_tokens": 0.5}, "output_tokens=0.5"),
        ({"input_tokens": "many"}, "input_tokens='many'"),
        ({"systems": []}, r"systems=\[\]: allowed is a list of at least one"),
        ({"systems": "trn9"}, "'trn9' is unknown; nearest"),
        ({"systems": [3]}, "systems=3: allowed is an id or a System"),
        ({"precision": "fp5"}, "precision='fp5' is unknown"),
        ({"systems": "hgx-h200", "efficiencies": "nxd-inference"}, "nxd-inference does not run on h200"),
    ],
)
def test_a_question_out_of_range_is_refused_by_name(changes, line):
    with pytest.raises(ValueError, match=line):
        plan("llama-3.1-8b", **{"systems": "trn2.3xlarge"} | ASK | changes)


class Words(HTMLParser):
    """Tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)


def test_an_own_config_answers_as_the_shipped_one_and_its_name_is_no_html(tmp_path):
    folder = tmp_path / "<img src=x>"
    folder.mkdir()
    (folder / "config.json").write_text((MODELS / "llama-3.1-8b.json").read_text())
    own, shipped = (plan(name, "trn2.3xlarge", **ASK) for name in (str(folder), "llama-3.1-8b"))
    assert own.best.tokens_per_s_per_chip == shipped.best.tokens_per_s_per_chip
    named = replace(own, model=replace(own.model, id="a<script>b"))
    page = Words()
    page.feed(named._repr_html_())
    assert page.tags == {"div", "b", "br"}


def config_of(command: str) -> dict:
    return json.loads(command.partition("--additional-config ")[2].strip("'"))


def test_the_command_is_in_the_words_of_the_software():
    new, old = (plan("llama-3.1-8b", name, **ASK, precision="bf16") for name in ("trn2.48xlarge", "trn1.32xlarge"))
    for found, lnc in ((new, 2), (old, 1)):
        words = found.command.split()
        assert words[:4] == [f"NEURON_LOGICAL_NC_CONFIG={lnc}", "vllm", "serve", "meta-llama/Llama-3.1-8B"]
        flags = dict(zip(words[4::2], words[5::2], strict=False))
        assert (float(flags["--tensor-parallel-size"]), float(flags["--max-num-seqs"])) == (
            found.best.tp,
            found.best.batch,
        )
        assert flags["--max-model-len"] == "1280"
    assert config_of(new.command)["neuron_config"]["num_batched_tokens_buckets"] == [1024]
    assert config_of(new.command)["neuron_config"]["num_seqs_buckets"] == [int(new.best.batch)]
    assert config_of(old.command)["override_neuron_config"]["context_encoding_buckets"] == [1024]
    assert config_of(old.command)["override_neuron_config"]["logical_nc_config"] == 1
    assert plan("llama-3.1-8b", "trn2.48xlarge", **ASK, efficiencies="ideal").command == ""
    assert "neuron" not in plan("llama-3.1-8b", "hgx-h200", **ASK).command


def test_experts_are_shared_out_over_groups():
    found = plan("deepseek-v3", "trn3-nl32x2-pcie160", **ASK, efficiencies="hand-tuned")
    assert found.best.ep > 1
    assert found.best.batch % found.best.ep == 0
    assert found.best.with_prompts_tokens_per_s_per_chip < found.best.tokens_per_s_per_chip


def test_a_search_has_no_loop_over_its_points(monkeypatch):
    calls = []
    for kept in (request.grid, request.alone):
        kept.cache_clear()
    for name in ("decode_step", "memory_fit", "prefill"):
        whole = getattr(tm, name)
        told = lambda *args, whole=whole, name=name, **more: (calls.append(name), whole(*args, **more))[1]  # noqa: E731
        monkeypatch.setattr(f"trnmodel.search.request.{name}", told)
        if name == "decode_step":
            monkeypatch.setattr(deployments, name, told)
    plan("llama-3.3-70b", "trn2.48xlarge", **ASK)
    assert len(calls) <= 3 * 2 * 3 + 3 * 4  # three calls for each of two precisions and three stacks, and those shown


def test_a_plan_does_not_depend_on_the_order_in_which_systems_are_given():
    """Two racks within 1 % of each other, a slower system, and one of a caller's own that is alike but for its name."""
    own = replace(tm.system("trn3-nl32x2-pcie160"), id="another-rack")
    names = ["trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", "trn2.48xlarge", own]
    asked = ASK | {"tokens_per_s_per_user": 50, "input_tokens": 4096, "output_tokens": 512}
    first, *others = (plan("llama-3.3-70b", list(order), **asked) for order in permutations(names))
    assert first.same, "no two of these systems tie: the order could not matter"
    for found in others:
        assert found.card() == first.card()
        pd.testing.assert_frame_equal(found.to_frame(), first.to_frame())


def test_two_systems_of_one_name_are_refused_in_either_order():
    one, other = tm.system("trn2.48xlarge"), tm.system("trn2.48xlarge", count=4)
    for order in ([one, other], [other, one]):
        with pytest.raises(ValueError, match=r"systems='trn2\.48xlarge': two different systems have this id"):
            plan("llama-3.1-8b", order, **ASK)
    assert len(plan("llama-3.1-8b", [one, "trn2.48xlarge"], **ASK).choices) == 1
