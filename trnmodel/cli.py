"""The command line: ask a question, run a chapter with parameters, list the chapters, build the book."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import trnmodel
from trnmodel import report
from trnmodel.report import answers, terminal
from trnmodel.report.terminal import Status

MAX_ERROR = 1000

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=terminal.EPILOG,
)
NUMBER: dict[str, Any] = {"parser": str, "callback": terminal.number, "metavar": "NUMBER"}
WHOLE: dict[str, Any] = {"parser": str, "callback": terminal.whole, "metavar": "NUMBER"}


def _name(kind: str, **more: Any) -> dict[str, Any]:
    """What typer is told of a parameter that names a thing of the catalogue."""
    return {"callback": terminal.identifier(kind), "autocompletion": terminal.complete(kind), **more}


Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Id or name of a model, or the path of a config.json.", **_name("model")),
]
Called = Annotated[str | None, typer.Option("--name", help="What a model of your own, from a file, is called.")]
Where = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="Id or name of a system, such as trn2.48xlarge.", **_name("system"))
]
In = Annotated[float, typer.Option("--in", help="Tokens of a prompt.", **NUMBER)]
Out = Annotated[float, typer.Option("--out", help="Tokens of an answer.", **NUMBER)]
Batch = Annotated[float, typer.Option(help="Sequences of a replica.", **NUMBER)]
Context = Annotated[float, typer.Option(help="Tokens in the cache.", **NUMBER)]
Speed = Annotated[float, typer.Option(help="Tokens a second that each user gets at least.", **NUMBER)]
Tp = Annotated[int, typer.Option(help="Tensor-parallel ranks.", **WHOLE)]
Ep = Annotated[int, typer.Option(help="Expert-parallel ranks.", **WHOLE)]
Dtypes = Annotated[str, typer.Option("--precision", help="bf16, fp8, mxfp8, ...", **_name("precision"))]
BestDtypes = Annotated[
    str | None, typer.Option("--precision", help="Default the best of bf16, fp8 and mxfp8.", **_name("precision"))
]
Stack = Annotated[
    str | None,
    typer.Option(help="Software: public (default), hand-tuned, ideal, or an id.", **_name("stack")),
]
Trainer = Annotated[
    str | None,
    typer.Option(
        "--stack", help="Training software: public (default), hand-tuned, ideal, or an id.", **_name("trainer")
    ),
]
WAYS: dict[str, Any] = {"callback": terminal.word("way"), "autocompletion": terminal.complete("way")}
Way = Annotated[str, typer.Option(help="How it is rented: on-demand, capacity-block, market, ...", **WAYS)]
Owner = Annotated[
    str, typer.Option(help="Who owns in the lines of dollars: hyperscaler or neocloud.", **_name("owner"))
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]
Filter = Annotated[str, typer.Argument(metavar="TEXT", help="Only those of which an id or a name holds this text.")]
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
def _plain_errors(ctx: typer.Context | None = None, **renamed: str) -> Iterator[None]:
    """End with one line and a status of `terminal.Status` for input that is refused, a failure, or an interrupt.

    With the context of a question, what the library refuses is told by the flags of its command; `renamed` names the
    parameters behind arguments that only this command calls otherwise.
    """
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    refused = ValueError if ctx else report.InputError
    try:
        yield
    except report.ChapterError as error:
        status, text = Status.FAULT, str(error)
    except BrokenPipeError:
        raise  # the reader has left; typer ends quietly
    except (refused, OSError) as error:
        text = " ".join(str(error).split())
        text = terminal.in_flags(text, ctx.command.params, renamed) if ctx else text
        status = Status.IMPOSSIBLE if isinstance(error, report.NoAnswerError) else Status.REFUSED
    except KeyboardInterrupt:
        status, text = Status.INTERRUPTED, "interrupted; the same command goes on from here"
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


def _rows(frame: Any) -> Any:
    """Rows of a table as JSON, in which nothing is NaN."""
    return json.loads(frame.to_json(orient="records", double_precision=12))


def _print_names(ctx: typer.Context, as_json: bool) -> None:
    """Print what names were read as; beside JSON where errors are printed."""
    for sentence in terminal.read_as(ctx):
        _say(sentence, error=as_json)


def _print(ctx: typer.Context, line: str, frame: Any, as_json: bool, results: Iterable[Any] | None = None) -> None:
    """Print the answer on lines, or the rows of its table as JSON; end with status 3 where none of `results` can exist.

    Names that were read as others come first.
    """
    _print_names(ctx, as_json)
    if as_json:
        rows = _rows(frame)
        typer.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
    else:
        _say(line)
    if results is not None and not any(one.valid.any() for one in results):
        raise typer.Exit(Status.IMPOSSIBLE)


@app.command()
def plan(
    ctx: typer.Context,
    model: Model,
    speed: Speed,
    prompt: In,
    output: Out,
    system: Annotated[
        list[str], typer.Option(help="A system; several times for several. Default all Trainium.", **_name("system"))
    ] = [],  # noqa: B006
    precision: BestDtypes = None,
    stack: Stack = None,
    called: Called = None,
    as_json: Json = False,
) -> None:
    """What serves a model best at a user's speed: system, precision, mapping, batch, the runner-up and the command."""
    with _plain_errors(ctx):
        ask = {"tokens_per_s_per_user": speed, "input_tokens": prompt, "output_tokens": output}
        found = trnmodel.plan(
            trnmodel.model(model, called), system or None, precision=precision, efficiencies=stack, **ask
        )
        frame = found.to_frame(bands=as_json)
        frame = frame.assign(command=[found.command, *[""] * (len(frame) - 1)])
        _print(ctx, "\n".join(found.card()), frame, as_json, found.choices)


@app.command()
def decode(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Time of one decode step."""
    with _plain_errors(ctx):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        found = trnmodel.decode_step(trnmodel.model(model, called), system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        _print(ctx, answers.rated(found), found.to_frame(bands=True), as_json, [found])


@app.command()
def power(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    facility: Annotated[
        str, typer.Option(help="Site, for its PUE: aws-air or aws-chilled.", **_name("facility"))
    ] = "aws-air",
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Joules a token of a decode step at the server, and the watts of a chip."""
    with _plain_errors(ctx):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        step = trnmodel.decode_step(trnmodel.model(model, called), system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        found = trnmodel.energy(step, facility=facility)
        line = answers.spent(found) if step.valid else answers.rated(step)
        _print(ctx, line, found.to_frame(bands=True), as_json, [found])


@app.command()
def goodput(
    ctx: typer.Context,
    model: Model,
    system: Where,
    chips: Annotated[
        float | None, typer.Option(help="Chips of the job; default those of one system.", **NUMBER)
    ] = None,
    swap: Annotated[
        str, typer.Option(help="hot: trays are swapped while the rack runs; drain: it is emptied.")
    ] = "hot",
    spares: Annotated[
        float | None, typer.Option(help="Chips that stand by; default the fewest that do.", **NUMBER)
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Seconds between checkpoints; default the best.", **NUMBER)
    ] = None,
    fleet: Annotated[
        str, typer.Option(help="What fails: borrowed, llama-3-h100, rsc-1-a100, ...", **_name("fleet"))
    ] = "borrowed",
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Useful share of the time of a training job's chips, and what takes most of the rest."""
    with _plain_errors(ctx):
        ask = {
            "model": trnmodel.model(model, called),
            "swap": swap,
            "spare_chips": spares,
            "interval_s": interval,
            "fleet": fleet,
        }
        found = trnmodel.goodput(system, chips, **ask)
        _print(ctx, answers.useful(found), found.to_frame(bands=True), as_json, [found])


@app.command()
def train(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tokens: Annotated[float, typer.Option(help="Tokens to be seen: 15T, 300B, 1e12.", **NUMBER)],
    chips: Annotated[int, typer.Option(help="Chips of the job, in whole scale-up domains.", **WHOLE)] = 8192,
    seq: Annotated[int | None, typer.Option(help="Tokens of a sequence; default 8192.", **WHOLE)] = None,
    batch: Annotated[
        int | None, typer.Option(help="Sequences of a step; default as many as hold 16 Mi tokens.", **WHOLE)
    ] = None,
    precision: Dtypes = "bf16",
    stack: Trainer = None,
    owner: Owner = "hyperscaler",
    way: Way = "capacity-block",
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Days of a training run on the best mapping: what bounds it, what loses, what constraints cost, and dollars."""
    from trnmodel.planner import train_words

    with _plain_errors(ctx):
        ask: dict[str, Any] = {
            "tokens": tokens,
            "chips": chips,
            "seq": seq,
            "global_batch": batch,
        }
        run = trnmodel.train_run(trnmodel.model(model, called), system, precision=precision, efficiencies=stack, **ask)
        told = [] if as_json else train_words.lines(run, owner, way)
        _print(ctx, "\n".join(told), train_words.frame(run, owner, way) if as_json else None, as_json, [run])


@app.command()
def cost(
    ctx: typer.Context,
    model: Model,
    system: Annotated[
        list[str],
        typer.Argument(metavar="SYSTEM...", help="What is rented; of several, beside each other.", **_name("system")),
    ],
    speed: Speed,
    prompt: In,
    output: Out,
    way: Way = "capacity-block",
    price: Annotated[
        float | None, typer.Option(help="Your own price of a chip-hour instead, in USD.", **NUMBER)
    ] = None,
    region: Annotated[str | None, typer.Option(help="Region or seller; default all that are published.")] = None,
    owner: Owner = "hyperscaler",
    against: Annotated[
        str | None, typer.Option(help="System whose cost the others are to tie with.", **_name("system"))
    ] = None,
    requests: Annotated[
        float | None, typer.Option(help="Requests a second; default what whole instances serve.", **NUMBER)
    ] = None,
    duty: Annotated[float, typer.Option(help="Share of the rented time in which they come.", **NUMBER)] = 1.0,
    spares: Annotated[int, typer.Option(help="Instances that stand by.", **WHOLE)] = 0,
    precision: BestDtypes = None,
    called: Called = None,
    as_json: Json = False,
) -> None:
    """What a million tokens cost the one who rents and the one who owns, by kind of software, and where systems tie."""
    from trnmodel.result import stacked

    with _plain_errors(ctx, **({} if price is None else {"way": "price"})):
        ask = {"tokens_per_s_per_user": speed, "input_tokens": prompt, "output_tokens": output, "precision": precision}
        ask |= {"requests_per_s": requests, "duty": duty, "spare_instances": spares, "region": region}
        found = trnmodel.token_cost(trnmodel.model(model, called), system, way=way if price is None else price, **ask)
        owned = found.priced({name: trnmodel.tco(name, owner=owner) for name in found.systems})
        lines = [*found.card(against), *(line for name in owned.systems for line in owned.told(name))]
        frame = stacked({"renter": found.to_frame(as_json), "owner": owned.to_frame(as_json)}, "who")
        _print(ctx, "\n".join(lines), frame, as_json, [*found.lines, *owned.lines])


@app.command()
def prefill(
    ctx: typer.Context,
    model: Model,
    system: Where,
    prompt: In,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Time of a prefill: until the first token, without a queue."""
    with _plain_errors(ctx):
        ask = {"batch": batch, "input_tokens": prompt, "precision": precision, "efficiencies": stack}
        found = trnmodel.prefill(trnmodel.model(model, called), system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        _print(ctx, answers.rated(found), found.to_frame(bands=True), as_json, [found])


@app.command()
def fit(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    called: Called = None,
    as_json: Json = False,
) -> None:
    """Bytes that a rank stores, and whether they fit."""
    with _plain_errors(ctx):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        own, mapping = trnmodel.model(model, called), trnmodel.Mapping(tp=tp, ep=ep)
        found = trnmodel.memory_fit(own, system, mapping, **ask)
        _print(ctx, answers.fitting(found, own, mapping), found.to_frame(bands=True), as_json, [found])


@app.command()
def collective(
    ctx: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or p2p.",
            **_name("collective"),
        ),
    ],
    size: Annotated[
        float,
        typer.Argument(
            metavar="BYTES", help="The full buffer on a rank: 64MB, 1GiB, 65536.", parser=str, callback=terminal.size
        ),
    ],
    system: Where,
    ranks: Annotated[int | None, typer.Option(help="Ranks; default all.", **WHOLE)] = None,
    chips: Annotated[int | None, typer.Option(help="Whole chips instead of ranks.", **WHOLE)] = None,
    algorithm: Annotated[str, typer.Option(help="One by name; default the fastest.")] = "best",
    as_json: Json = False,
) -> None:
    """Time of a collective and its bus bandwidth."""
    with _plain_errors(ctx):
        found = trnmodel.collective(kind, size, system, ranks=ranks, chips=chips, algorithm=algorithm)
        told = f"{found.card()[0].removeprefix('Collective: ')}, busbw {found.in_words('busbw_bytes_per_s', 'B/s')}"
        _print(ctx, f"{told}, {found.algorithm}", found.to_frame(bands=True), as_json, [found])


@app.command()
def roofline(
    ctx: typer.Context,
    chip: Annotated[str, typer.Argument(metavar="CHIP", help="Id or name of a chip.", **_name("chip"))],
    intensity: Annotated[float, typer.Option(help="FLOP for each byte of HBM.", **NUMBER)],
    dtype: Annotated[str, typer.Option(help="Of the matrices.", autocompletion=terminal.complete("dtype"))] = "bf16",
    as_json: Json = False,
) -> None:
    """Rate that a chip's printed peak and HBM bandwidth allow: nothing is lost."""
    with _plain_errors(ctx):
        from trnmodel.result import tidy
        from trnmodel.units import format_quantity

        spec = trnmodel.chip(chip)
        peak, stream = spec.peak(dtype), spec.hbm_bytes_per_s
        rate = float(trnmodel.roofline.attainable_flop_per_s(intensity, peak, stream))
        ridge = float(trnmodel.roofline.ridge_point_flop_per_byte(peak, stream))
        row = {
            "chip": spec.id,
            "dtype": dtype,
            "intensity_flop_per_byte": intensity,
            "attainable_flop_per_s": rate,
            "peak_flop_per_s": peak,
            "ridge_point_flop_per_byte": ridge,
            "basis": "ideal",
        }
        bound = "memory" if intensity < ridge else "compute"
        line = f"{format_quantity(rate, 'FLOP/s', 3)} (ideal), {bound}-bound, {spec.id} in {dtype}"
        _print(ctx, f"{line}, ridge at {ridge:.3g} FLOP/byte", tidy([row]), as_json)


def _list(frame: Any, shown: Any, as_json: bool, what: str) -> None:
    """Print a table of things to choose from, every column as JSON; end with status 3 where none is left."""
    if as_json:
        typer.echo(json.dumps(_rows(frame), indent=2))
    elif len(frame):
        _say(terminal.columns(shown(frame)))
    else:
        _say(f"There are no such {what}.", error=True)
    if not len(frame):
        raise typer.Exit(Status.IMPOSSIBLE)


@app.command()
def systems(text: Filter = "", as_json: Json = False) -> None:
    """List the systems: chips, fabric, memory and other names."""
    from trnmodel.catalog.systems import system_table
    from trnmodel.units import format_quantity

    def shown(frame: Any) -> Any:
        memory = [format_quantity(float(size), "B", 3) for size in frame.hbm_bytes]
        return frame[["id", "chips", "chip", "fabric"]].assign(HBM=memory, names=frame.names)

    with _plain_errors():
        _list(terminal.holding(system_table(), text), shown, as_json, "systems")


@app.command()
def models(text: Filter = "", as_json: Json = False) -> None:
    """List the models: parameters, longest context and kinds of attention."""
    from trnmodel.models.describe import model_table
    from trnmodel.units import BILLION

    def shown(frame: Any) -> Any:
        sizes = {"parameters": frame.total_params, "active": frame.active_params}
        billions = {name: [f"{size / BILLION:,.1f}B" for size in column] for name, column in sizes.items()}
        longest = [f"{tokens:,}" if tokens else "not stated" for tokens in frame.max_context]
        return frame[["id", "publisher"]].assign(**billions, context=longest, attention=frame.attention)

    with _plain_errors():
        _list(terminal.holding(model_table(), text), shown, as_json, "models")


@app.command()
def stacks(text: Filter = "", as_json: Json = False) -> None:
    """List the software stacks, of inference and of training, and the chips whose default each is."""
    from trnmodel.catalog.stacks import stack_table
    from trnmodel.catalog.trainers import trainer_table
    from trnmodel.result import stacked

    def shown(frame: Any) -> Any:
        return frame[["id", "use", "kind"]].assign(
            **{"default on": frame.public_on + frame.hand_tuned_on, "name": frame.name}
        )

    with _plain_errors():
        every = stacked({"inference": stack_table(), "training": trainer_table()}, "use")
        _list(terminal.holding(every, text), shown, as_json, "stacks")


@app.command()
def prices(
    ctx: typer.Context,
    system: Annotated[
        list[str], typer.Argument(metavar="[SYSTEM]...", help="Default every system.", **_name("system"))
    ] = [],  # noqa: B006
    way: Annotated[str | None, typer.Option(help="One way of renting; default all.", **WAYS)] = None,
    region: Annotated[str | None, typer.Option(help="One region or seller; default all.")] = None,
    superseded: Annotated[bool, typer.Option("--all", help="Prices too that are no longer in force.")] = False,
    as_json: Json = False,
) -> None:
    """List the published prices of a chip-hour: way of renting, region or seller, and date."""
    from trnmodel.catalog.rents import published
    from trnmodel.units import format_digits

    def shown(frame: Any) -> Any:
        usd = [format_digits(float(price), 4) for price in frame.usd_per_chip_h]
        table = frame[["entity", "way", "place", "date"]].rename(columns={"place": "region or seller"})
        return table.assign(**{"USD a chip-hour": usd, "source": frame.source})

    with _plain_errors(ctx):
        table = published(system or None, way, region)
        _print_names(ctx, as_json)
        _list(table if superseded else table[table.in_force], shown, as_json, "published prices")


@app.command()
def run(
    chapter: Annotated[
        str,
        typer.Argument(
            metavar="CHAPTER",
            help="A chapter as `trnmodel list` prints it.",
            autocompletion=terminal.complete("chapter"),
        ),
    ],
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


for command in app.registered_commands:
    command.epilog = terminal.EPILOG


if __name__ == "__main__":
    app()
