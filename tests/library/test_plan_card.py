"""What a plan says: at most twelve lines that a reader can act on, with the promise kept, out of reach, and on GPUs."""

import re
from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.search import plan_card
from trnmodel.search.plan import Plan

GPUS = ["trn3-nl32x2-pcie160", "hgx-h200", "gb200-nvl72"]
LLAMA, SEEK = "llama-3.3-70b", "deepseek-v3"
PLANS = {
    "llama": (LLAMA, tm.Request(4096, 512, 50)),
    "deepseek": (SEEK, tm.Request(4096, 512, 20)),
    "llama and GPUs": (LLAMA, tm.Request(4096, 512, 50), GPUS),
    "deepseek and GPUs": (SEEK, tm.Request(4096, 512, 20), GPUS),
    "a first token": (LLAMA, tm.Request(4096, 512, 50, ttft_s=1.0, ttft_percentile=95)),
    "no promise": ("llama-3.1-8b", tm.Request(4096, 512), "trn2.3xlarge"),
    "too slow": (LLAMA, tm.Request(4096, 512, 500)),
    "too late": (LLAMA, tm.Request(4096, 512, 20, ttft_s=0.01)),
    "too slow and late": (LLAMA, tm.Request(4096, 512, 500, ttft_s=0.01)),
    "fits nowhere": ("llama-3.1-405b", tm.Request(4096, 512, 20), "trn2.3xlarge"),
}
MADE: dict[str, Plan] = {}


def made(name: str) -> Plan:
    """A plan, which several tests read."""
    return MADE.setdefault(name, tm.plan(*PLANS[name]))


def line(name: str, head: str) -> str:
    """The line of a plan that begins so; empty where there is none."""
    return next((one for one in made(name).card() if one.startswith(head)), "")


@pytest.mark.parametrize("name", PLANS)
def test_a_card_has_twelve_lines_at_most_that_fit_a_terminal(name):
    """But for the command, which is copied, and for the names of what is run, which are long by themselves."""
    card = made(name).card()
    assert len([one for one in card if not one.startswith("GPUs")]) <= 12
    assert card[0].startswith(f"{PLANS[name][0]}, {PLANS[name][1].describe()}")
    sentences = card[:-1] if made(name).command else card
    assert all(len(one) <= 225 and one.endswith(".") for one in sentences)
    assert not re.search(r"prompts takes|\bnan\b|\binf\b|  ", "\n".join(sentences))


@pytest.mark.parametrize("name", [name for name in PLANS if name not in ("fits nowhere",)])
def test_a_card_names_the_status_of_what_it_recommends(name):
    found = made(name)
    best, after = found.best, found.runner_up
    card = "\n".join(found.card())
    assert f"{best.system.id} ({best.system.status})" in card
    assert f"Runner-up: {after.system.id} ({after.system.status})" in card
    apart = f" at {after.mapping}" if after.system is best.system else f" with {after.option.id}"
    assert (apart in card) is (after.system is best.system or after.option.id != best.option.id)
    assert all(f"{name} (" in line("llama", "Ties") for name in made("llama").same)
    assert ("Ties" in card) is bool(found.same)


def test_the_best_has_its_figures_with_bands_its_chance_and_its_option():
    found = made("llama")
    c = found.best
    assert line("llama", "Best: ") == (
        f"Best: {c.system.id} (announced) with public software makes "
        f"{c.in_words('tokens_per_s_per_chip', 'tokens/s per paid chip', str(c.basis))}; "
        f"the promise holds in {100 * c.chance:.0f} % of the draws."
    )
    assert c.option.name in line("llama", "Configuration")
    assert "(documented on trainium2)" in line("llama", "Configuration")
    user = line("llama", "A user gets")
    assert c.in_words("tokens_per_s_per_user", "tokens/s") in user
    assert c.in_words("decode_tokens_per_s_per_chip", "tokens/s per chip") in user
    assert "95 % of first tokens within" in line("a first token", "A user gets")
    assert "the promise" not in line("no promise", "Best: ")


def test_a_step_that_is_one_fitted_constant_is_called_so():
    """Routing in an expert layer, on Trainium; on GPUs no constant is most of a step."""
    assert line(
        "deepseek", "63 % of a decode step is one fitted constant: the time that routing, selection and waiting"
    )
    assert not any("fitted constant" in one for one in made("deepseek and GPUs").card())


def test_a_command_or_the_page_that_documents_the_option():
    said = line("llama", "No start command")
    assert said == 'No start command: documented on trainium2 alone, by AWS: "Tutorial: Llama-3.3-70B on Trn2".'
    assert (made("llama").command, made("llama").no_command) == ("", said.partition(": ")[2].removesuffix("."))
    for name in ("deepseek", "deepseek and GPUs"):
        assert made(name).card()[-1] == made(name).command != ""
        assert made(name).no_command == ""
    ideal = tm.plan("llama-3.1-8b", tm.Request(1024, 256, 20), "trn2.3xlarge", efficiencies="ideal")
    assert (ideal.command, ideal.no_command) == ("", "")
    assert (made("too slow").command, made("too slow").no_command) == ("", "")


@pytest.mark.parametrize("name", ["too slow", "too late", "too slow and late"])
def test_where_no_system_keeps_the_promise_the_nearest_that_works_does(name):
    """A plan that is asked for each nearest promise keeps it: another speed, or another first token."""
    model, request = PLANS[name]
    assert not made(name).reached
    assert line(name, "No system keeps the promise: ")
    said = line(name, "Nearest that works: ").removesuffix(".")
    named = [
        *(
            ("tokens_per_s_per_user", *one)
            for one in re.findall(
                r"([\d.,]+) tokens/s per user(?: without a limit of the first token)? on (\S+?)(?:,|$)", said
            )
        ),
        *(("ttft_s", *one) for one in re.findall(r"first token within ([\d.,]+) s on (\S+?)(?:,|$)", said)),
    ]
    assert named
    for promise, value, system in named:
        eased = replace(request, **{promise: float(value.replace(",", ""))})
        eased = replace(eased, ttft_s=None) if "without a limit" in said else eased
        assert tm.plan(model, eased, system).reached, (promise, value, system)


def test_the_nearest_promise_holds_at_the_rate_that_was_asked():
    """Several replicas share the requests."""
    asked = tm.Request(4096, 512, 500, requests_per_s=0.001)
    said = tm.plan(LLAMA, asked, "trn2.3xlarge").nearest
    speed = float(re.match(r"[\d.]+", said)[0])
    assert tm.plan(LLAMA, replace(asked, tokens_per_s_per_user=speed), "trn2.3xlarge").reached


def test_the_others_are_grouped_by_how_far_behind_they_are():
    said = line("llama", "Others: ")
    assert "trn2.48xlarge, trn2-ultraserver (38 % less)" in said
    assert "trn1.2xlarge (does not fit: " in said
    assert re.search(r"trn1n.32xlarge, trn1.32xlarge \(too slow, \d+ tokens/s per user at most\)", said)
    assert "(first token after" in line("too late", "Others: ")
    names = plan_card._listed(["a", "b", "c", "d", "e"]), plan_card._listed(["a", "b"])
    assert names == ("a, b, c and 2 more", "a, b")


def test_a_frame_has_the_option_and_the_status_of_each_system():
    found = made("llama and GPUs")
    frame = found.to_frame().set_index("system")
    for c in found.choices:
        row = frame.loc[[c.system.id]].iloc[0]
        assert (row.option, row.status) == (c.option.id, c.system.status)
    refused = made("fits nowhere").to_frame()
    assert refused.role.tolist() == ["refused"]


def test_reasons_are_grammatical():
    found = made("llama")
    assert re.search(r"38 % less with overlapping bands: prompts take [\d.]+ ms", found.reason(found.runner_up))
    late = made("too late")
    assert "after" in late.reason(late.choices[-1])
    assert np.isfinite(late.best.ttft_s)
