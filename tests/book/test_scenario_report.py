"""`trnmodel report`: one frame behind page, tables, workbook, JSON and limits; whatever goes wrong is one line."""

import ast
import csv
import io
import json
import shutil
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import nbformat
import openpyxl
import pandas as pd
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnbook.report import answers, book, bundle, chapter, execute, limits, serving, training
from trnmodel.catalog import plain_yaml
from trnmodel.cli import plugins
from trnmodel.cli.app import app
from trnmodel.cli.errors import InputError

SERVED = """\
model: llama-3.1-8b
request: {input_tokens: 1024, output_tokens: 256, tokens_per_s_per_user: 50}
systems: [trn2.48xlarge, trn2.3xlarge, hgx-h100]
load: {users: 500}
"""
TRAINED = "model: llama-3.1-8b\nsystems: [trn2.48xlarge, hgx-h100]\ntraining: {tokens: 1T, chips: 64}\n"
HOSTILE = "=cmd|' /C calc'!A0<script>alert(1)</script>"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder as the working folder, in which the command `report` is installed."""
    point = EntryPoint("report", "trnbook.commands:report_scenarios", plugins.GROUP)
    monkeypatch.setattr(plugins, "installed", lambda: {"report": point})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(home, monkeypatch):
    """The same, where notebooks are executed in this process."""
    monkeypatch.setattr(bundle, "execute", lambda jobs, **_: [executed(job) for job in jobs])
    monkeypatch.setattr(bundle, "inputs", lambda: "")
    return home


def executed(job):
    """Run the code of a notebook here, and write it with the answer as its last output."""
    notebook = job.notebook()
    scope = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            *body, last = ast.parse(cell.source).body
            exec(compile(ast.Module(body, []), job.slug, "exec"), scope)
            if isinstance(last, ast.Expr):
                result = eval(compile(ast.Expression(last.value), job.slug, "eval"), scope)
            else:
                exec(compile(ast.Module([last], []), job.slug, "exec"), scope)
            scope.update(job.parameters)
    data = json.loads(json.dumps(result._repr_mimebundle_(), allow_nan=False))
    cell.outputs = [nbformat.v4.new_output("display_data", data)]
    nbformat.write(notebook, job.path)
    return SimpleNamespace(path=job.path)


def call(*args):
    """Status, standard output and standard error of `trnmodel report args`."""
    result = CliRunner().invoke(app, ["report", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def summary(kind="serving"):
    return json.loads(Path(f"reports/{kind}.json").read_text(encoding="utf-8"))


def test_the_command_is_installed_with_the_package(root):
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"][plugins.GROUP]
    module, _, function = points["report"].partition(":")
    assert (module, function) == ("trnbook.commands", "report_scenarios")


def test_every_file_has_the_numbers_of_the_library(here):
    (here / "a.yaml").write_text(SERVED)
    status, out, errors = call("serving", "a.yaml", "--no-pdf")
    assert (status, errors) == (0, "")
    made = [*(f"serving{end}.{kind}" for end in ("-sides", "") for kind in ("csv", "parquet")), "serving.html"]
    made += ["serving.json", "serving.xlsx", "serving-notebooks/a.ipynb"]
    assert names(here / "reports") == sorted(made)
    assert set(out.splitlines()[1:]) == {f"reports/{name}" for name in made}
    case = tm.scenario("a.yaml")
    plan, cost = case.plan(), tm.token_cost(case.model, case.plan().request, case.systems)
    table = pd.read_csv("reports/serving.csv")
    assert table.system.tolist() == [c.place for c in (*plan.choices, *plan.gpus)]
    for c, row in zip(plan.choices, table.itertuples(), strict=True):
        size = plan.capacity_of(c)
        assert row.tokens_per_s_per_chip == float(c.tokens_per_s_per_chip)
        assert (row.ttft_s_low, row.ttft_s_high) == tuple(map(float, c.ends("ttft_s")))
        assert row.usd_per_mtoken == pytest.approx(float(cost[c.place, "public"].generated_usd_per_mtoken), rel=1e-12)
        assert row.server_j_per_token == float(size.energy.server_j_per_token)
        assert (row.instances, row.chance) == (size.instances, c.chance)
    stored = pd.read_parquet("reports/serving.parquet")
    sheet = pd.read_excel("reports/serving.xlsx", sheet_name="all systems")
    plain = pd.DataFrame(summary()["scenarios"][0]["systems"])
    for name in ("tokens_per_s_per_chip", "usd_per_mtoken_high", "server_j_per_token_low", "instances"):
        for other in (stored, plain):
            assert other[name].tolist() == table[name].tolist(), name
        assert sheet[name].tolist() == pytest.approx(table[name].tolist(), rel=1e-15, nan_ok=True)
    sides = pd.read_csv("reports/serving-sides.csv").set_index("side")
    assert {answers.TRAINIUM, answers.GPU} <= set(sides.index)
    assert sides.system[answers.GPU] == "hgx-h100"
    page = (here / "reports" / "serving.html").read_text()
    for row in answers.sides(answers.read(here / "reports" / "serving-notebooks" / "a.ipynb")):
        for figure in serving.FIGURES:
            assert f"<td>{answers.escape(answers.cell(row, figure))}</td>" in page


def test_the_page_needs_nothing_else(here):
    (here / "a.yaml").write_text(SERVED)
    call("serving", "a.yaml", "--no-pdf")
    page = (here / "reports" / "serving.html").read_text()
    assert not [text for text in ("<script", "<link", "<img", " src=", "url(", "http://", "https://") if text in page]
    head, _, _ = page.partition("Side by side")
    assert '<p class="verdict">For llama-3.1-8b, ' in head
    assert "the best GPU system." in head


def test_a_scenario_that_names_one_kind_of_chip_has_the_other_beside_it(here):
    case = tm.scenario({**_plain(SERVED), "systems": ["trn2.3xlarge"]})
    plan = case.plan()
    rival = serving.rival_plan(case, plan)
    assert {c.system.chip.core for c in rival.choices} == {None}
    answer = serving.answered(case, plan, rival)
    assert answer.side(answers.GPU)["system"] == rival.best.place
    alone = tm.scenario({**_plain(SERVED), "systems": ["hgx-h100"]})
    assert serving.rival_plan(alone, alone.plan()).best.system.chip.core is not None
    both = tm.scenario(_plain(SERVED))
    assert serving.rival_plan(both, both.plan()) is None


def _plain(text):
    return plain_yaml.read(text)


def test_ties_are_called_ties():
    plan = tm.plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=50), ["trn2.48xlarge", "trn2.3xlarge"])
    assert plan.same
    case = tm.scenario({**_plain(SERVED), "load": {}, "systems": ["trn2.48xlarge", "trn2.3xlarge"]})
    lines = serving.answered(case, plan).verdict
    assert any(line.startswith(f"Per paid chip {plan.best.system.name} ties with ") for line in lines), lines
    first, second = ((plan, c) for c in plan.choices)
    assert serving._gap(first, second).endswith("tie: they are within 1 % of each other.")


@pytest.mark.parametrize("more", [{"load": {"site_w": 1e6}}, {"load": {"chips": 100}, "availability": 0.9999}])
def test_under_a_limit_the_verdict_is_of_what_all_instances_make(more):
    case = tm.scenario({**_plain(SERVED), **more})
    plan = case.plan()
    answer = serving.answered(case, plan)
    best, gpu = (answer.side(side) for side in (answers.TRAINIUM, answers.GPU))
    sizes = {c.place: plan.capacity_of(c) for c in plan.choices}
    for row in (best, gpu):
        size = sizes[row["system"]]
        assert (row["tokens_per_s"], row["spare_instances"]) == (size.tokens_per_s, size.spare_instances)
        assert row["usd_per_mtoken"] == size.usd_per_mtoken  # spares are paid
    assert any(line.startswith("Within the limit ") for line in answer.verdict)


def test_a_pair_of_systems_has_no_dollars_and_says_why():
    case = tm.scenario({**_plain(SERVED), "load": {}, "prefill_systems": ["trn2.48xlarge"]})
    answer = serving.answered(case, case.plan())
    (pair, *_) = [row for row in answer.rows if "prompts on" in row["name"]]
    assert (pair["usd_per_mtoken"], pair["usd_per_mtoken_why"]) == (
        None,
        "its parts are not counted for a pair of systems",
    )


def test_the_verdict_names_the_best_for_rent_where_the_best_is_not():
    case = tm.scenario({name: value for name, value in _plain(SERVED).items() if name != "systems"})
    plan = case.plan()
    answer = serving.answered(case, plan)
    assert answer.side(answers.TRAINIUM)["system"] == plan.best.place
    rented = answer.side(answers.RENTED, answers.TRAINIUM)
    assert rented["system"] == (plan.for_rent or plan.best).place
    assert rented["usd_per_mtoken"] > 0
    assert answer.side(answers.GPU)["system"] == plan.gpus[0].place


def test_training_has_days_energy_mfu_and_dollars(here):
    (here / "t.yaml").write_text(TRAINED)
    status, out, errors = call("training", "t.yaml", "--no-pdf")
    assert (status, errors) == (0, "")
    runs = tm.scenario("t.yaml").train_run()
    table = pd.read_csv("reports/training.csv")
    for run, row in zip(runs.runs, table.itertuples(), strict=True):
        spent = run.spending()
        assert row.calendar_days == spent["calendar_days"].value
        assert row.site_mwh * 3.6e9 == pytest.approx(spent["site_j"].value, rel=1e-12)
        assert (row.owner_usd, row.renter_usd_high) == (spent["owner_usd"].value, spent["renter_usd"].high)
        assert row.mfu == float(run.mfu)
    assert out.startswith(f"t.yaml: {runs.best.system.name} trains llama-3.1-8b, 1T tokens, in ")


def test_several_scenarios_stand_side_by_side_first(here):
    (here / "in").mkdir()
    (here / "in" / "one.yaml").write_text(SERVED)
    (here / "in" / "two.yml").write_text(SERVED.replace("users: 500", "users: 5000"))
    (here / "in" / "notes.txt").write_text("no scenario")
    status, out, _ = call("serving", "in", "--no-pdf", "-o", "out")
    assert (status, out.splitlines()[0].partition(":")[0]) == (0, "in/one.yaml")
    page = (here / "out" / "serving.html").read_text()
    assert (
        page.index("The scenarios side by side") < page.index('<section id="one">') < page.index('<section id="two">')
    )
    sides = pd.read_csv(here / "out" / "serving-sides.csv")
    assert set(sides.scenario) == {"one", "two"}
    many = sides[sides.side == answers.TRAINIUM].set_index("scenario").instances
    assert many["two"] > many["one"]


@pytest.mark.parametrize(
    ("limit", "status", "parts"),
    [
        ("usd_per_mtoken > 1e6", 0, []),
        ("usd_per_mtoken>1e-6", 4, ["a.yaml: usd_per_mtoken of trn2.", "--fail-if 'usd_per_mtoken>1e-6'"]),
        ("gpu_ttft_s_high >= 0", 4, ["a.yaml: gpu_ttft_s_high of hgx-h100 is ", "does not allow"]),
        ("chance == 7", 0, []),
        ("spares < 1", 2, ["there is no figure 'spares'", "tokens_per_s_per_chip, usd_per_mtoken, server_j_per_token"]),
    ],
)
def test_a_limit_sets_the_status(here, limit, status, parts):
    (here / "a.yaml").write_text(SERVED)
    ended, _, errors = call("serving", "a.yaml", "--no-pdf", "--fail-if", limit)
    assert ended == status, errors
    assert errors.count("\n") == bool(status)
    assert all(part in errors for part in parts), errors
    assert (here / "reports").exists() == (status != 2)
    if status == 4:
        (said,) = summary()["scenarios"][0]["limits"]
        assert said["exceeded"] is True
        value = pd.read_csv("reports/serving-sides.csv").set_index("side")
        name = limits.parse(limit, "serving")
        assert said["value"] == value.loc[said_side(name), name.name]


def said_side(limit):
    return answers.GPU if answers.GPU in limit.sides else answers.TRAINIUM


def test_a_limit_on_a_figure_that_nobody_knows_is_status_3(here):
    (here / "a.yaml").write_text(
        SERVED.replace("load: {users: 500}\n", "").replace("trn2.48xlarge, trn2.3xlarge, ", "")
    )
    announced = {**_plain(SERVED), "systems": ["trn3-nl72x2-pcie160"]}
    (here / "b.yaml").write_text(json.dumps(announced))
    status, _, errors = call("serving", "b.yaml", "--no-pdf", "--fail-if", "usd_per_mtoken > 1")
    assert status == 3
    assert "usd_per_mtoken of trn3-nl72x2-pcie160 is not known" in errors
    assert "no price is published" in errors
    status, _, errors = call("serving", "a.yaml", "--no-pdf", "--fail-if", "instances > 1", "--fail-if", "ttft_s > 0")
    assert status == 4
    assert "instances of trn" in errors
    assert "the scenario does not ask for it" in errors


@pytest.mark.parametrize(
    "text",
    [
        *("", "ttft_s", "ttft_s > ", "> 1", "ttft_s > nan", "ttft_s > inf", "ttft_s => 1", "ttft_s > 1 or 1"),
        "ttft_s = 1",
        "__import__('os').system('x') > 1",
        "ttft_s > ttft_s",
        "ttft_s > 1e999",
        "x" * 10**5,
        "basis == 1",
        "ttft_s\0> 1",
    ],
)
def test_a_limit_is_a_name_an_operator_and_a_number(text):
    with pytest.raises(InputError, match="--fail-if"):
        limits.parse(text, "serving")


@pytest.mark.parametrize("sign", limits.OPERATORS)
def test_each_operator_means_what_it_says(sign):
    row = {"side": answers.TRAINIUM, "system": "s", "mfu": 0.5}
    answer = answers.Answer("training", "", [], [row], [])
    for bound in (0.4, 0.5, 0.6):
        (one,) = limits.check([limits.parse(f"mfu {sign} {bound}", "training")], "a", answer)
        assert one.exceeded is eval(f"0.5 {sign} {bound}")


def test_what_nothing_satisfies_is_a_row_and_status_3(here):
    (here / "a.yaml").write_text(SERVED)
    (here / "b.yaml").write_text(SERVED.replace("tokens_per_s_per_user: 50", "tokens_per_s_per_user: 50000"))
    status, out, _ = call("serving", "a.yaml", "b.yaml", "--no-pdf")
    assert (status, "b.yaml: No system keeps the promise for llama-3.1-8b." in out) == (3, True)
    (here / "t.yaml").write_text(TRAINED.replace("chips: 64", "days: 0.001"))
    status, out, _ = call("training", "t.yaml", "--no-pdf")
    assert (status, "t.yaml: Nothing trains llama-3.1-8b as the scenario asks: days=0.001" in out) == (3, True)
    table = pd.read_csv("reports/training.csv")
    assert table.valid.tolist() == [False]
    assert "days=0.001" in table.reason[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "a.yaml: no such file"),
        ("model: llama-3.1-8b\n", "a.yaml: request is missing, which this question needs"),
        ("modle: llama-3.1-8b\n", "a.yaml line 1: modle: there is no such key; nearest: model"),
        (SERVED.replace("1024", "many"), "a.yaml line 2: request.input_tokens"),
        ("[", "a.yaml: "),
    ],
)
def test_a_bad_scenario_is_one_line_and_nothing_is_made(here, text, line):
    if text is not None:
        (here / "a.yaml").write_text(text)
    status, out, errors = call("serving", "a.yaml")
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(line)
    assert not (here / "reports").exists()


def test_bad_words_are_one_line(here):
    (here / "empty").mkdir()
    (here / "a.yaml").write_text(SERVED)
    (here / "b").mkdir()
    (here / "b" / "a.yaml").write_text(SERVED)
    lines = {
        ("servng", "a.yaml"): "KIND='servng': allowed are serving, training",
        ("serving", "empty"): "empty: no scenario in this folder",
        ("serving", "a.yaml", "b"): "two scenario files are called a;",
        ("serving", "a.yaml", "-o", ""): "-o: an empty name is no folder",
        ("serving", "a.yaml", "-o", "a.yaml"): "a.yaml is no folder that can be written",
    }
    for words, line in lines.items():
        status, out, errors = call(*words, "--no-pdf")
        assert (status, out, errors.count("\n")) == (2, "", 1), words
        assert errors.startswith(line), errors


def test_hostile_names_are_text_everywhere(here, monkeypatch):
    whole = serving.answered

    def hostile(*asked):
        """The answer of a machine and of a model with another name; no name of ours is like this."""
        answer = whole(*asked)
        rows = [row | {"name": HOSTILE, "mapping": HOSTILE, "reason": HOSTILE} for row in answer.rows]
        return answers.Answer("serving", HOSTILE, [HOSTILE, *answer.verdict], rows, [HOSTILE])

    monkeypatch.setattr(serving, "answered", hostile)
    file = here / "=<img src=x onerror=alert(1)>\n.yaml"
    file.write_text(SERVED)
    (here / "b.yaml").write_text(SERVED)
    status, out, errors = call("serving", file.name, "b.yaml", "--no-pdf", "--fail-if", "ttft_s > 0")
    assert (status, errors.count("\n")) == (4, 2)
    assert (out + errors).isascii()
    page = (here / "reports" / "serving.html").read_text()
    assert not [text for text in ("<script", "<img") if text in page]
    assert "=cmd|&#x27; /C calc&#x27;!A0&lt;script&gt;" in page
    text = (here / "reports" / "serving.csv").read_text(encoding="utf-8")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert [cell for cell in cells if HOSTILE in cell]
    assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "@"))]
    for sheet in openpyxl.load_workbook("reports/serving.xlsx"):
        assert not [cell.coordinate for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    assert HOSTILE in summary()["scenarios"][0]["question"]


def test_what_is_not_installed_is_left_out_and_named(here, monkeypatch):
    (here / "a.yaml").write_text(SERVED)
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)
    monkeypatch.setattr(book, "BROWSERS", ("no-such-browser",))
    status, _, errors = call("serving", "a.yaml")
    assert status == 0
    assert errors.splitlines() == [
        bundle.NO_PARQUET,
        "no PDF: printing needs one of no-such-browser on the path; --no-pdf leaves it out",
    ]
    assert not [name for name in names(here / "reports") if name.endswith((".parquet", ".pdf"))]


def test_an_interrupted_report_leaves_the_old_one_whole(here, monkeypatch):
    (here / "a.yaml").write_text(SERVED)
    call("serving", "a.yaml", "--no-pdf")
    before = {name: (here / "reports" / name).read_bytes() for name in names(here / "reports")}
    (here / "a.yaml").write_text(SERVED.replace("500", "5000"))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "page", interrupted)
        status, _, errors = call("serving", "a.yaml", "--no-pdf")
    assert (status, errors) == (130, "interrupted; the same command goes on from here\n")
    after = {name: (here / "reports" / name).read_bytes() for name in names(here / "reports")}
    assert {name for name in after if after[name] != before[name]} == {"serving-notebooks/a.ipynb"}
    assert call("serving", "a.yaml", "--no-pdf")[0] == 0
    assert (here / "reports" / "serving.html").read_bytes() != before["serving.html"]


def test_a_template_is_no_chapter():
    assert not {path.stem for path in bundle.TEMPLATES.glob("*.py")} - set(bundle.KINDS)
    for kind in bundle.KINDS:
        path = bundle.TEMPLATES / f"{kind}.py"
        cells = chapter.parsed(path.read_text()).cells
        assert [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])] == [
            'scenario: str = ""'
        ]
        assert not path.is_relative_to(chapter.CHAPTERS)


def test_figures_are_named_once():
    for figures in (serving.FIGURES, training.FIGURES):
        assert len({one.name for one in figures}) == len(figures)
        assert not [one.name for one in figures if one.name.startswith(("best_", "gpu_"))]


def test_kernels_make_the_report_and_make_it_again_only_when_due(home):
    """With papermill: the notebook is executed once, again when its scenario changes, and not for a bad question."""
    (home / "a.yaml").write_text(SERVED.replace("trn2.48xlarge, ", ""))
    notebook = home / "reports" / "serving-notebooks" / "a.ipynb"
    status, _, errors = call("serving", "a.yaml", "--no-pdf")
    assert (status, errors) == (0, "")
    stamp, first = notebook.stat().st_mtime_ns, summary()
    assert answers.read(notebook).side(answers.GPU)["system"] == "hgx-h100"
    assert call("serving", "a.yaml", "--no-pdf")[0] == 0
    assert (notebook.stat().st_mtime_ns, summary()) == (stamp, first)
    (home / "a.yaml").write_text(SERVED.replace("trn2.48xlarge, ", "").replace("500", "50000"))
    assert call("serving", "a.yaml", "--no-pdf", "--fail-if", "instances > 1")[0] == 4
    assert notebook.stat().st_mtime_ns > stamp
    (home / "a.yaml").write_text(SERVED.replace("1024", "1000000"))
    before = names(home / "reports")
    status, out, errors = call("serving", "a.yaml", "--no-pdf")
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("a.yaml: ")
    assert names(home / "reports") == before
    shutil.rmtree(home / "reports")


def test_the_digest_covers_the_files_that_a_scenario_names(home):
    (home / "a.yaml").write_text(SERVED)
    (home / "config.json").write_text("{}")
    ask = ("serving", bundle.TEMPLATES / "serving.py", "a.yaml", ["config.json"], home / "a.ipynb", "")
    first = execute.templated(*ask).digest
    (home / "config.json").write_text("{ }")
    assert execute.templated(*ask).digest != first
