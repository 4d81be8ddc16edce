"""The command line: ask a question, run a chapter with parameters, list the chapters, build the book."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import trnmodel
from trnmodel import report
from trnmodel.report import answers

MAX_ERROR = 1000

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
Model = Annotated[str, typer.Argument(help="Id or name of a model, or the path of a config.json.")]
Where = Annotated[str, typer.Argument(metavar="SYSTEM", help="Id or name of a system, such as trn2.48xlarge.")]
In = Annotated[float, typer.Option("--in", help="Tokens of a prompt.")]
Out = Annotated[float, typer.Option("--out", help="Tokens of an answer.")]
Batch = Annotated[float, typer.Option(help="Sequences of a replica.")]
Context = Annotated[float, typer.Option(help="Tokens in the cache.")]
Tp = Annotated[int, typer.Option(help="Tensor-parallel ranks.")]
Ep = Annotated[int, typer.Option(help="Expert-parallel ranks.")]
Dtypes = Annotated[str, typer.Option("--precision", help="bf16, fp8, mxfp8, ...")]
Stack = Annotated[
    str | None, typer.Option(help="Software: ideal, hand-tuned, or an id; default the chip's public one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]
OutDir = Annotated[str, typer.Option("-o", "--out-dir", metavar="FOLDER", help="Folder for what is made.")]


def _folder(text: str) -> Path:
    if not text.strip():
        raise report.InputError("-o: an empty name is no folder; the one you are in is .")
    return Path(text)


def _say(text: object, *, error: bool = False) -> None:
    """Print lines of which a terminal obeys nothing but their ends; those of errors up to 1,000 letters long."""
    lines = (report.printable(line) for line in str(text).split("\n"))
    typer.echo("\n".join(line[:MAX_ERROR] if error else line for line in lines), err=error)


@contextmanager
def _plain_errors(refusal: type[ValueError] | None = None) -> Iterator[None]:
    """One line and status 2 for input that is refused, 1 for a failing chapter, 130 for an interrupt."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    refused = refusal or report.InputError
    try:
        yield
    except report.ChapterError as error:
        status, text = 1, str(error)
    except BrokenPipeError:
        raise  # the reader has left; typer ends quietly
    except (refused, OSError) as error:
        status, text = 2, " ".join(str(error).split())
    except KeyboardInterrupt:
        status, text = 130, "interrupted; the same command goes on from here"
    else:
        return
    finally:
        signal.signal(signal.SIGTERM, former)
    _say(text, error=True)
    raise typer.Exit(status)


def _pairs(assignments: list[str]) -> dict[str, str]:
    """`name=value` texts as a dict."""
    for text in assignments:
        if "=" not in text:
            raise report.InputError(f"-p {text}: expected name=value")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in assignments)}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trnmodel {trnmodel.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Trainium from first principles: how fast, on how many chips, with a source behind every number."""


def _print(line: str, frame: Any, as_json: bool) -> None:
    """The answer on a line, or the rows of its table as JSON, in which nothing is NaN."""
    if as_json:
        rows = json.loads(frame.to_json(orient="records", double_precision=12))
        typer.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
    else:
        _say(line)


def _bytes(text: str) -> float:
    """A number of bytes, with or without a unit.

    Examples
    --------
    >>> _bytes("64MB"), _bytes("1.5 GiB"), _bytes("1e6")
    (64000000.0, 1610612736.0, 1000000.0)
    """
    from trnmodel import units

    scales = {"": 1.0, "B": 1.0} | {
        name: getattr(units, name.upper()) for name in ("KB", "MB", "GB", "KiB", "MiB", "GiB")
    }
    found = re.fullmatch(r"\s*(\d[\d.]*(?:e[+-]?\d+)?)\s*([A-Za-z]*)\s*", text[:40])
    if not found or found[2] not in scales or found[1].count(".") > 1:
        raise report.InputError(f"BYTES={text[:40]!r}: allowed are numbers with or without {', '.join(scales)[2:]}")
    return float(found[1]) * scales[found[2]]


@app.command()
def plan(
    model: Model,
    speed: Annotated[float, typer.Option(help="Tokens a second that each user gets at least.")],
    given: In,
    output: Out,
    system: Annotated[list[str], typer.Option(help="A system; several times for several. Default all Trainium.")] = [],  # noqa: B006
    precision: Annotated[str | None, typer.Option(help="Default the best of bf16, fp8 and mxfp8.")] = None,
    stack: Stack = None,
    name: Annotated[str | None, typer.Option(help="What a model of your own, from a file, is called.")] = None,
    as_json: Json = False,
) -> None:
    """What serves a model best at a user's speed: system, precision, mapping, batch, the runner-up and the command."""
    with _plain_errors(ValueError):
        ask = {"tokens_per_s_per_user": speed, "input_tokens": given, "output_tokens": output}
        asked = model if name is None else trnmodel.model(model, called=name)
        found = trnmodel.plan(asked, system or None, precision=precision, efficiencies=stack, **ask)
        frame = found.to_frame(bands=as_json)
        _print("\n".join(found.card()), frame.assign(command=[found.command, *[""] * (len(frame) - 1)]), as_json)


@app.command()
def decode(
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    as_json: Json = False,
) -> None:
    """Time of one decode step."""
    with _plain_errors(ValueError):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        found = trnmodel.decode_step(model, system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        _print(answers.rated(found), found.to_frame(bands=True), as_json)


@app.command()
def power(
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    facility: Annotated[str, typer.Option(help="Site, for its PUE: aws-air or aws-chilled.")] = "aws-air",
    as_json: Json = False,
) -> None:
    """Joules a token of a decode step at the server, and the watts of a chip."""
    with _plain_errors(ValueError):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        step = trnmodel.decode_step(model, system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        found = trnmodel.energy(step, facility=facility)
        _print(answers.spent(found), found.to_frame(bands=True), as_json)


@app.command()
def goodput(
    model: Model,
    system: Where,
    chips: Annotated[float | None, typer.Option(help="Chips of the job; default those of one system.")] = None,
    swap: Annotated[
        str, typer.Option(help="hot: trays are swapped while the rack runs; drain: it is emptied.")
    ] = "hot",
    spares: Annotated[float | None, typer.Option(help="Chips that stand by; default the fewest that do.")] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between checkpoints; default the best.")] = None,
    fleet: Annotated[str, typer.Option(help="What fails: borrowed, llama-3-h100, rsc-1-a100, ...")] = "borrowed",
    as_json: Json = False,
) -> None:
    """Useful share of the time of a training job's chips, and what takes most of the rest."""
    with _plain_errors(ValueError):
        ask = {"model": model, "swap": swap, "spare_chips": spares, "interval_s": interval, "fleet": fleet}
        found = trnmodel.goodput(system, chips, **ask)
        _print(answers.useful(found), found.to_frame(bands=True), as_json)


@app.command()
def train(
    model: Model,
    system: Where,
    tokens: Annotated[str, typer.Option(help="Tokens to be seen: 15T, 300B, 1e12.")],
    chips: Annotated[int, typer.Option(help="Chips of the job, in whole scale-up domains.")] = 8192,
    seq: Annotated[int | None, typer.Option(help="Tokens of a sequence; default 8192.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Sequences of a step; default as many as hold 16 Mi tokens.")
    ] = None,
    precision: Dtypes = "bf16",
    stack: Annotated[
        str | None, typer.Option(help="Training software: public (default), hand-tuned, ideal, or an id.")
    ] = None,
    owner: Annotated[
        str, typer.Option(help="Who owns in the line of dollars: hyperscaler or neocloud.")
    ] = "hyperscaler",
    way: Annotated[
        str, typer.Option(help="How it is rented: on-demand, capacity-block, market, ...")
    ] = "capacity-block",
    as_json: Json = False,
) -> None:
    """Days of a training run on the best mapping: what bounds it, what loses, what constraints cost, and dollars."""
    from trnmodel.planner import train_words

    with _plain_errors(ValueError):
        ask: dict[str, Any] = {
            "tokens": train_words.tokens_of(tokens),
            "chips": chips,
            "seq": seq,
            "global_batch": batch,
        }
        run = trnmodel.train_run(model, system, precision=precision, efficiencies=stack, **ask)
        told = [] if as_json else train_words.lines(run, owner, way)
        _print("\n".join(told), train_words.frame(run, owner, way) if as_json else None, as_json)


@app.command()
def cost(
    model: Model,
    system: Annotated[
        list[str], typer.Argument(metavar="SYSTEM...", help="What is rented; of several, beside each other.")
    ],
    speed: Annotated[float, typer.Option(help="Tokens a second that each user gets at least.")],
    given: In,
    output: Out,
    way: Annotated[
        str, typer.Option(help="on-demand, capacity-block, reserved-1y, spot, market, ...")
    ] = "capacity-block",
    price: Annotated[float | None, typer.Option(help="USD a chip-hour of your own instead.")] = None,
    region: Annotated[str | None, typer.Option(help="Region or seller; default all that are published.")] = None,
    owner: Annotated[str, typer.Option(help="Who owns in the last lines: hyperscaler or neocloud.")] = "hyperscaler",
    against: Annotated[str | None, typer.Option(help="System whose cost the others are to tie with.")] = None,
    requests: Annotated[
        float | None, typer.Option(help="Requests a second; default what whole instances serve.")
    ] = None,
    duty: Annotated[float, typer.Option(help="Share of the rented time in which they come.")] = 1.0,
    spares: Annotated[int, typer.Option(help="Instances that stand by.")] = 0,
    precision: Annotated[str | None, typer.Option(help="Default the best of bf16, fp8 and mxfp8.")] = None,
    as_json: Json = False,
) -> None:
    """What a million tokens cost the one who rents and the one who owns, by kind of software, and where systems tie."""
    from trnmodel.result import stacked

    with _plain_errors(ValueError):
        ask = {"tokens_per_s_per_user": speed, "input_tokens": given, "output_tokens": output, "precision": precision}
        ask |= {"requests_per_s": requests, "duty": duty, "spare_instances": spares, "region": region}
        found = trnmodel.token_cost(model, system, way=way if price is None else price, **ask)
        owned = found.priced({name: trnmodel.tco(name, owner=owner) for name in found.systems})
        lines = [*found.card(against), *(line for name in owned.systems for line in owned.told(name))]
        _print(
            "\n".join(lines),
            stacked({"renter": found.to_frame(as_json), "owner": owned.to_frame(as_json)}, "who"),
            as_json,
        )


@app.command()
def prefill(
    model: Model,
    system: Where,
    given: In,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    as_json: Json = False,
) -> None:
    """Time of a prefill: until the first token, without a queue."""
    with _plain_errors(ValueError):
        ask = {"batch": batch, "input_tokens": given, "precision": precision, "efficiencies": stack}
        found = trnmodel.prefill(model, system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        _print(answers.rated(found), found.to_frame(bands=True), as_json)


@app.command()
def fit(
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    as_json: Json = False,
) -> None:
    """Bytes that a rank stores, and whether they fit."""
    with _plain_errors(ValueError):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        found = trnmodel.memory_fit(model, system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        from trnmodel.units import format_quantity

        held = found.in_words("total_bytes", "B", str(found.basis))
        of = format_quantity(float(found.capacity_bytes), "B", 3)
        _print(f"{'fits' if found.valid else found.reason}: {held} of {of} a rank", found.to_frame(bands=True), as_json)


@app.command()
def collective(
    kind: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or p2p.")],
    size: Annotated[str, typer.Argument(metavar="BYTES", help="The full buffer on a rank: 64MB, 1GiB, 65536.")],
    system: Where,
    ranks: Annotated[int | None, typer.Option(help="Ranks; default all.")] = None,
    chips: Annotated[int | None, typer.Option(help="Whole chips instead of ranks.")] = None,
    algorithm: Annotated[str, typer.Option(help="One by name; default the fastest.")] = "best",
    as_json: Json = False,
) -> None:
    """Time of a collective and its bus bandwidth."""
    with _plain_errors(ValueError):
        found = trnmodel.collective(kind, _bytes(size), system, ranks=ranks, chips=chips, algorithm=algorithm)
        told = f"{found.card()[0].removeprefix('Collective: ')}, busbw {found.in_words('busbw_bytes_per_s', 'B/s')}"
        _print(f"{told}, {found.algorithm}", found.to_frame(bands=True), as_json)


@app.command()
def roofline(
    chip: Annotated[str, typer.Argument(help="Id or name of a chip.")],
    intensity: Annotated[float, typer.Option(help="FLOP for each byte of HBM.")],
    dtype: Annotated[str, typer.Option(help="Of the matrices.")] = "bf16",
    as_json: Json = False,
) -> None:
    """Rate that a chip's printed peak and HBM bandwidth allow: nothing is lost."""
    with _plain_errors(ValueError):
        from trnmodel.result import tidy
        from trnmodel.units import format_quantity

        spec = trnmodel.chip(chip)
        peak, stream = spec.peak(dtype), spec.hbm_bytes_per_s
        rate = float(trnmodel.roofline.attainable_flop_per_s(intensity, peak, stream))
        ridge = float(trnmodel.roofline.ridge_point_flop_per_byte(peak, stream))
        row = {"chip": spec.id, "dtype": dtype, "intensity_flop_per_byte": intensity, "attainable_flop_per_s": rate,
               "peak_flop_per_s": peak, "ridge_point_flop_per_byte": ridge, "basis": "ideal"}  # fmt: skip
        bound = "memory" if intensity < ridge else "compute"
        line = f"{format_quantity(rate, 'FLOP/s', 3)} (ideal), {bound}-bound, {spec.id} in {dtype}"
        _print(f"{line}, ridge at {ridge:.3g} FLOP/byte", tidy([row]), as_json)


@app.command()
def run(
    chapter: Annotated[str, typer.Argument(help="A chapter as `trnmodel list` prints it.")],
    parameter: Annotated[list[str], typer.Option("-p", "--parameter", metavar="NAME=VALUE")] = [],  # noqa: B006
    file: Annotated[Path | None, typer.Option("-f", "--file", help="YAML mapping of parameters; -p wins.")] = None,
    out_dir: OutDir = "reports",
    page: Annotated[bool, typer.Option(help="Make an HTML page of it too.")] = True,
) -> None:
    """Execute a chapter with your parameters into a report of your own.

    The report is FOLDER/CHAPTER.ipynb, with a page in FOLDER/CHAPTER/. It is made again only when something that it
    is made from has changed. One with other parameters in its place is replaced, which is said; name another folder to
    keep both. One run at a time may write into a folder.
    """
    with _plain_errors():
        folder = _folder(out_dir)
        given = (report.read_parameters(file) if file else {}) | _pairs(parameter)
        report.check_parameters(chapter, given)
        with report.claimed(folder):
            if page:
                report.require_place(folder / chapter)
            for outcome in report.run([chapter], given, folder):
                _say(f"{outcome.path}{'' if outcome.ran else ' (up to date)'}")
                if outcome.replaced:
                    former = ", ".join(f"{name} = {value!r}" for name, value in outcome.replaced.items())
                    _say(f"it replaces a report with {former}; -o FOLDER keeps both", error=True)
                html = report.build_page(outcome.path) if page else None
                if html:
                    _say(html)


@app.command("list")
def list_chapters() -> None:
    """List the chapters and their parameters with types and defaults."""
    with _plain_errors():
        for slug in report.notebooks():
            _say(slug)
            for name, declared in report.parameters(slug).items():
                _say(f"    {name + ': ' + declared.type_name:<40} = {declared.default!r}")


@app.command()
def book(
    out_dir: OutDir = "build",
    pdf: Annotated[bool, typer.Option("--pdf", help="Print the book to one PDF instead.")] = False,
) -> None:
    """Execute the chapters that changed and build the book into FOLDER/html; the old one stays until it is whole."""
    with _plain_errors():
        _say(report.build_book(_folder(out_dir), pdf=pdf))


@app.command()
def notebooks(out_dir: OutDir = "build") -> None:
    """Execute the chapters with their defaults and refresh the committed notebooks."""
    with _plain_errors():
        for path in report.write_reference_notebooks(_folder(out_dir)):
            _say(path)


if __name__ == "__main__":
    app()
