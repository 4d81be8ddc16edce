"""The command line: one clear line and a status for whatever goes wrong, and nothing left behind."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import trnmodel
from trnmodel.cli.app import app


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_version():
    assert call("--version") == (0, f"trnmodel {trnmodel.__version__}\n", "")


PLAN = ["plan", "llama-3.1-8b", "--speed", "50", "--in", "1024", "--out", "256", "--systems", "trn2.48xlarge"]
COST = ["cost", "llama-3.1-8b", "hgx-h200", "--speed", "40", "--in", "2048", "--out", "512"]


def test_plan_prints_an_answer_of_twelve_lines_at_most_and_its_data():
    status, out, error = call(*PLAN, "--systems", "trn1.32xlarge,trn2.3xlarge")
    lines = out.splitlines()
    assert (status, error) == (0, "")
    assert len(lines) <= 12
    heads = [line.split()[0] for line in lines]
    assert heads[:6] == ["llama-3.1-8b,", "Best:", "Ties", "Configuration:", "Quality:", "A"]
    assert heads[-3:] == ["Other", "Runner-up:", "NEURON_LOGICAL_NC_CONFIG=2"]
    assert "tokens/s per paid chip (" in lines[1]
    assert lines[-1].startswith("NEURON_LOGICAL_NC_CONFIG=2 vllm serve")
    data = json.loads(call(*PLAN, "--json")[1])
    best = trnmodel.plan("llama-3.1-8b", trnmodel.Request(1024, 256, tokens_per_s_per_user=50), "trn2.48xlarge")
    assert data["best"]["tokens_per_s_per_chip"] == pytest.approx(best.best.tokens_per_s_per_chip)
    assert data["command"] == best.command
    assert (data["best"]["option"], data["next_mapping"][0]["option"]) == (
        best.best.option.id,
        best.second[0].option.id,
    )
    assert [one["stack_kind"] for one in data["other_software"]] == ["hand-tuned", "ideal"]
    assert data["best"]["status"] == "for rent"


def test_plan_takes_an_option_of_software_by_name():
    """Case aside; and of another model's option it says what the option is documented for."""
    data = json.loads(call(*PLAN, "--stack", "Neuron Async", "--json")[1])
    assert {one["choice"]["option"] for one in data["choices"]} == {"neuron-async"}
    status, out, error = call(*PLAN, "--stack", "neuron-eagle3-gpt-oss-120b")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("--stack='neuron-eagle3-gpt-oss-120b': it is documented for gpt-oss-120b on trainium2")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("decode llama-3.1-8b trn1.32xlarge --tp 2 --context 2048 --stack ideal", "time 18.63 ms (ideal), "),
        ("roofline trainium2 --intensity 100", "290 TFLOP/s (ideal), memory-bound"),  # 100 x 2.9 TB/s
        ("roofline trainium2 --intensity 1e4", "667 TFLOP/s (ideal), compute-bound"),
        ("collective all_reduce 64MB trn2.48xlarge --chips 16", "time "),
        ("prefill llama-3.1-8b trn2.3xlarge --tp 4 --in 1000", "time "),
    ],
)
def test_a_question_is_answered_in_a_line(args, line):
    said_in_a_line(0, args, line)


@pytest.mark.parametrize(
    ("command", "asked", "sizes"),
    [
        ("decode", "--context 4352 --batch 4", {"context": 4352, "batch": 4}),
        ("prefill", "--in 4096", {"input_tokens": 4096}),
        ("power", "--context 4352 --batch 4", {"context": 4352, "batch": 4}),
    ],
)
def test_graphs_are_compiled_for_the_longest_context_that_is_asked(command, asked, sizes):
    """As the call: a graph for 4,608 tokens reads a shorter cache than the power of two that the software pads to."""
    args = f"{command} llama-3.3-70b trn2.48xlarge --tp 4 --precision fp8 {asked} --max-context 4608 --json".split()
    step = (trnmodel.prefill if command == "prefill" else trnmodel.decode_step)(
        "llama-3.3-70b", "trn2.48xlarge", trnmodel.Mapping(tp=4), precision="fp8", max_context=4608, **sizes
    )
    row = json.loads(call(*args)[1])
    assert row["tokens_per_s_per_chip"] == pytest.approx(float(step.tokens_per_s_per_chip))
    if command != "prefill":
        padded = json.loads(call(*args[:-3], "--json")[1])
        assert padded["tokens_per_s_per_chip"] < 0.95 * row["tokens_per_s_per_chip"]
    refused = call(*args[:-3], "--max-context", "1000")
    assert (refused[0], refused[1]) == (2, "")
    assert refused[2].startswith("--max-context=1000: allowed are at least ")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("decode llama-3.1-405b trn2.3xlarge", "llama-3.1-405b cannot run on trn2.3xlarge on one rank with "),
        ("power llama-3.1-405b trn2.3xlarge", "llama-3.1-405b cannot run on trn2.3xlarge on one rank with "),
        ("power llama-3.1-8b trn1.32xlarge --tp 2", "cannot exist: no source has watts of the chip"),
        ("fit llama-3.1-405b trn2.3xlarge --tp 4 --stack ideal", "llama-3.1-405b cannot run on trn2.3xlarge at TP 4 "),
    ],
)
def test_a_question_that_nothing_satisfies_is_answered_in_a_line_too(args, line):
    said_in_a_line(3, args, line)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ("qwen2.5-7b trn2.48xlarge --tp 16", ["vllm-neuron-2026", "TP 16", "28 attention heads", "4 KV heads"]),
        ("mixtral-8x7b-v0.1 trn2.48xlarge --tp 4 --ep 3", ["TP 4 x EP 3", "8 experts"]),
        ("jamba-v0.1 hgx-h100 --tp 3", ["TP 3", "32 and 8,192 attention heads"]),
        ("qwen2.5-7b trn2.48xlarge --tp 4 --context 33k", ["TP 4", "32,768 tokens"]),
        ("llama-3.1-405b trn2.3xlarge", ["memory"]),
    ],
)
@pytest.mark.parametrize("command", ["decode", "fit", "power"])
def test_a_point_that_no_software_runs_is_told_with_what_the_model_has(command, args, parts):
    status, out, error = call(command, *args.split())
    assert (status, error, out.count("\n")) == (3, "", 1)
    for part in (*args.split()[:2], *parts):
        assert part in out
    assert ("layers" in out) == ("memory" not in parts)  # a model is described where a rule forbids to cut it so
    assert len(out) < 500


def said_in_a_line(ended, args, line):
    status, out, error = call(*args.split())
    assert (status, error, out.count("\n")) == (ended, "", 1)
    assert out.startswith(line)
    figures = json.loads(call(*args.split(), "--json")[1])
    assert isinstance(figures, dict)
    assert "NaN" not in json.dumps(figures)


def test_power_is_joules_at_the_server_with_band_and_basis():
    """Watts over rate: 8 x H100 run a server of no more than 1.029 x 700 + 226.5 = 947 W a chip."""
    args = "power llama-3.1-70b hgx-h100 --tp 8 --batch 64 --context 2048".split()
    said, row = call(*args)[1], json.loads(call(*args, "--json")[1])
    assert re.match(
        r"[\d.]+ J/token at the server \([\d.]+ to [\d.]+; \w+\), power per chip \d+ W \(.*\) of a TDP of 700 W\n", said
    )
    assert row["server_w"] <= 1.029 * 700 + 226.5
    assert row["server_j_per_token"] == pytest.approx(row["server_w"] / row["tokens_per_s_per_chip"])
    assert row["low"] < row["server_j_per_token"] < row["high"]
    chilled = json.loads(call(*args, "--facility", "aws-chilled", "--json")[1])
    assert chilled["facility_w"] / row["facility_w"] == pytest.approx(1.25 / 1.14)


def test_goodput_is_a_share_with_band_and_basis():
    """Llama 3's own rate: 419 interruptions of 16,384 GPUs in 54 days are one in 54 x 24 / 419 = 3.1 h."""
    args = "goodput llama-3.1-405b hgx-h100 --chips 16384 --fleet llama-3-h100".split()
    said, row = call(*args)[1], json.loads(call(*args, "--json")[1])
    assert re.fullmatch(
        r"\d+% \(\d+ to \d+; extrapolated\) of the time is useful, 3.1 h between interruptions, "
        r"restarting takes most \([\d.]+%\)\n",
        said,
    )
    assert sum(share for name, share in row.items() if name.endswith("_lost")) + row["goodput"] == pytest.approx(1)
    assert row["low"] < row["goodput"] < row["high"] < 1
    drained = json.loads(call(*args, "--swap", "drain", "--interval", "60", "--spares", "0", "--json")[1])
    assert (drained["interval_s"], drained["spare_lost"]) == (60, 0)


def test_cost_stands_on_every_kind_of_software_with_the_age_of_its_price():
    """p5e and p5en: the newest prices of capacity blocks are of 2026-07-22."""
    args = "cost llama-3.1-8b hgx-h200 trn3-nl72x2-pcie160 --speed 40 --in 2048 --out 512".split()
    said, rows = call(*args)[1], json.loads(call(*args, "--json")[1])
    number = r"[\d.]+ \([\d.]+ to [\d.]+; \w+\)"
    told = rf"hgx-h200: public {number}, hand-tuned {number}, ideal {number}; .* of 2026-07-22, \d+ days old\n"
    assert re.search(told, said)
    assert "no price is published of trn3-nl72x2-pcie160" in said
    assert re.search(r"trn3-nl72x2-pcie160 ties with hgx-h200 at these \$ per chip-hour: public [\d.]+ \(", said)
    assert re.search(r"trn3-nl72x2-pcie160: public .* per chip-hour .*, owned by a hyperscaler\n", said)
    assert [row["stack_kind"] for row in rows] == 4 * ["public", "hand-tuned", "ideal"]
    assert [row["who"] for row in rows] == 6 * ["renter"] + 6 * ["owner"]
    assert [row["blended_usd_per_mtoken"] is None for row in rows] == 3 * [False] + 3 * [True] + 6 * [False]
    busy = json.loads(call(*args[:3], *args[4:], "--price", "2", "--requests", "1", "--duty", "0.5", "--json")[1])
    assert all(row["at_load_usd_per_mtoken"] == pytest.approx(8 * 2 / 3600 / 0.5 / 512 * 1e6) for row in busy[:3])


def test_units_of_bytes_are_those_asked_for():
    sizes = {"64MB": 64e6, "64000000": 64e6, "1GiB": 2.0**30, "1.5KiB": 1536.0}
    for text, size in sizes.items():
        assert json.loads(call("collective", "all_reduce", text, "trn2.48xlarge", "--json")[1])["message_bytes"] == size


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([*PLAN[:3], "-5", *PLAN[4:]], "--speed=-5.0: allowed are numbers from 1e-30 to 1e+30"),
        ([*PLAN, "--stack", "gpu-serving"], "--stack='gpu-serving': gpu-serving does not run on trainium2"),
        ([*PLAN, "--systems", "trn9"], "'trn9' is unknown; nearest"),
        (["plan", "/dev/null", *PLAN[2:]], "/dev/null"),
        (["decode", "bert-base-uncased", "trn2.3xlarge"], "an encoder has no decode step"),
        (["decode", "llama-3.1-8b", "trn2.3xlarge", "--batch", "nan"], "--batch='nan'"),
        (["power", "llama-3.1-8b", "hgx-h100", "--facility", "<b>"], "facility='<b>' is unknown"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--swap", "warm"], "swap='warm'"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--chips", "0"], "--chips=0.0: allowed are whole numbers from 1"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--fleet", "<b>"], "fleet='<b>' is unknown"),
        ([*COST, "--duty", "0"], "duty=0.0: allowed are numbers from 1e-30 to 1"),
        ([*COST, "--pricing", "lease"], "pricing='lease': allowed are capacity-block"),
        ([*COST, "--against", "hgx-h100"], "against='hgx-h100'"),
        (["power", "bert-base-uncased", "hgx-h100"], "an encoder has no decode step"),
        (["fit", "llama-3.1-8b", "<b>"], "'<b>' is unknown"),
        (
            ["collective", "all_reduce", "64XB", "trn2.48xlarge"],
            "BYTES='64XB': allowed are numbers with or without a unit",
        ),
        (["collective", "all_reduce", "9" * 5000, "trn2.48xlarge"], "BYTES='999"),
        (["collective", "all_reduce", "1..2MB", "trn2.48xlarge"], "BYTES='1..2MB'"),
        (["collective", "gossip", "1MB", "trn2.48xlarge"], "KIND='gossip' is unknown; nearest: "),
        (["roofline", "trainium2", "--intensity", "-1"], "--intensity=-1.0"),
        (
            ["roofline", "trainium2", "--intensity", "1", "--dtype", "mxfp8"],
            "dtype='mxfp8': trainium2 has no",
        ),
    ],
)
def test_a_question_that_has_no_answer_is_one_line_and_status_2(args, line):
    status, out, error = call(*args)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert line in error
    assert len(error) < 1001


def test_the_version_loads_nothing_that_takes_time():
    heavy = ("numpy", "pandas", "jupytext", "papermill")
    listed = f"import sys, trnmodel.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
