"""The command line: one command for each question."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

import trnmodel
from trnmodel.cli import answers, calibrate, claims, doctor, support, terminal, validate
from trnmodel.cli.plugins import Commands
from trnmodel.cli.questions import question
from trnmodel.cli.scenarios import also, save
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=terminal.EPILOG,
)
NUMBER: dict[str, Any] = {"parser": str, "callback": terminal.number, "metavar": "NUMBER"}
WHOLE: dict[str, Any] = {"parser": str, "callback": terminal.whole, "metavar": "NUMBER"}


def _name(kind: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a parameter that takes the name of a catalogue entry."""
    return {"callback": terminal.identifier(kind), "autocompletion": terminal.complete(kind), **more}


SYSTEMS: dict[str, Any] = {
    "metavar": "SYSTEM,...",
    "callback": terminal.identifiers("system"),
    "autocompletion": terminal.complete_last("system"),
}
Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Id or name of a model, or the path of a config.json.", **_name("model")),
]
ModelName = Annotated[str | None, typer.Option("--name", help="Name of a model of your own, from a file.")]
Where = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="Id or name of a system, such as trn2.48xlarge.", **_name("system"))
]
In = Annotated[float, typer.Option("--in", help="Tokens of a prompt.", **NUMBER)]
Out = Annotated[float, typer.Option("--out", help="Tokens of an answer.", **NUMBER)]
Batch = Annotated[float, typer.Option(**NUMBER)]
Context = Annotated[float, typer.Option(**NUMBER)]
MaxContext = Annotated[
    float | None,
    typer.Option(help="Longest context that the graphs are compiled for; default as the software pads.", **NUMBER),
]
Speed = Annotated[
    float | None,
    typer.Option(
        help="Tokens/s that each user gets at least, prompts of others counted; default no promise.", **NUMBER
    ),
]
Ttft = Annotated[float | None, typer.Option(help="Longest time to the first token, in seconds.", **NUMBER)]
Percentile = Annotated[
    float, typer.Option(help="Requests for which the limit of the first token holds, in %.", **NUMBER)
]
Prefix = Annotated[float, typer.Option(help="Share of the prompt that is cached already, 0 to 1.", **NUMBER)]
Requests = Annotated[
    float | None, typer.Option(help="Requests/s that arrive; default as many as the promises allow.", **NUMBER)
]
Tp = Annotated[int, typer.Option(help="Tensor-parallel ranks.", **WHOLE)]
Ep = Annotated[int, typer.Option(help="Expert-parallel ranks.", **WHOLE)]
Dtypes = Annotated[str, typer.Option("--precision", help="bf16, fp8, mxfp8, ...", **_name("precision"))]
BestDtypes = Annotated[
    str | None, typer.Option("--precision", help="Default the best of bf16, fp8 and mxfp8.", **_name("precision"))
]
Stack = Annotated[
    str | None,
    typer.Option(
        help="Software: public (default), hand-tuned, ideal, an id, or a file of trnmodel calibrate.", **_name("stack")
    ),
]
Software = Annotated[
    str | None,
    typer.Option(
        "--stack",
        help="Software: public (default), no-speculation, hand-tuned, ideal, the id of a stack or option, or a file of "
        "trnmodel calibrate.",
        **_name("software"),
    ),
]
Trainer = Annotated[
    str | None,
    typer.Option(
        "--stack", help="Training software: public (default), hand-tuned, ideal, or an id.", **_name("trainer")
    ),
]
MW = 1e6
PRICINGS: dict[str, Any] = {"callback": terminal.word("pricing"), "autocompletion": terminal.complete("pricing")}
Pricing = Annotated[str, typer.Option(help="How it is rented: on-demand, capacity-block, market, ...", **PRICINGS)]
Owner = Annotated[
    str, typer.Option(help="Who owns in the lines of dollars: hyperscaler or neocloud.", **_name("owner"))
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Show where the number comes from: terms, facts, sources, shares, rival readings."),
]
Filter = Annotated[str, typer.Argument(metavar="TEXT", help="Only those of which an id or a name holds this text.")]


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
        say(sentence, error=as_json)


def _why_rows(why: Iterable[Any]) -> dict[str, Any]:
    """Return the rows of explanations as a part of an answer in JSON; nothing without any."""
    rows = [row for one in why for row in _rows(one.to_frame())]
    return {"explanation": rows} if rows else {}


def _why_lines(why: Iterable[Any]) -> list[str]:
    """Return the lines of explanations, with an empty one before each."""
    return [text for one in why for text in ["", *one.card()]]


def _print(
    ctx: typer.Context,
    line: str,
    frame: Any,
    as_json: bool,
    results: Iterable[Any] | None = None,
    explain: Iterable[Any] = (),
) -> None:
    """Print the answer on lines, or the rows of its table as JSON; end with status 3 where none of `results` can exist.

    Names that were read as others come first, and where the answers of `explain` come from follows.
    """
    _print_names(ctx, as_json)
    why = answers.explained(explain)
    if as_json:
        rows = _rows(frame)
        data = rows[0] if len(rows) == 1 else rows
        data = ({"answer": data} if isinstance(data, list) else data) | _why_rows(why) if why else data
        typer.echo(json.dumps(data, indent=2))
    else:
        say("\n".join([line, *_why_lines(why)]))
    if results is not None and not any(one.valid.any() for one in results):
        raise typer.Exit(Status.IMPOSSIBLE)


@app.command(cls=question("plan"))
def plan(
    ctx: typer.Context,
    model: Model,
    prompt: In,
    output: Out,
    speed: Speed = None,
    ttft: Ttft = None,
    percentile: Percentile = 99.0,
    prefix: Prefix = 0.0,
    users: Annotated[
        float | None, typer.Option(help="Users that decode at once at the promised speed.", **NUMBER)
    ] = None,
    requests: Requests = None,
    chips: Annotated[float | None, typer.Option(help="Chips that there are at most, all full.", **NUMBER)] = None,
    mw: Annotated[float | None, typer.Option(help="Megawatts that the site provisions at most.", **NUMBER)] = None,
    usd_per_month: Annotated[
        float | None, typer.Option(help="Rent per month at most, under the pricing, in USD.", **NUMBER)
    ] = None,
    availability: Annotated[
        float | None,
        typer.Option(
            help="Share of time in which all replicas run, such as 0.999, for which spares stand by.", **NUMBER
        ),
    ] = None,
    quality: Annotated[
        float | None, typer.Option(help="Most that number formats may lose of the score, in %.", **NUMBER)
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Site, for its PUE; default by the cooling of a system.", **_name("facility"))
    ] = None,
    pricing: Pricing = "capacity-block",
    owner: Owner = "hyperscaler",
    systems: Annotated[
        list[str],
        typer.Option(
            help="Systems: one, or several with commas. Default Trainium's that are for rent or announced.",
            **SYSTEMS,
        ),
    ] = [],  # noqa: B006
    prefill_systems: Annotated[
        list[str],
        typer.Option(
            help="Systems whose chips may run the prompts apart: one, or several with commas. Default none.",
            **SYSTEMS,
        ),
    ] = [],  # noqa: B006
    precision: BestDtypes = None,
    stack: Software = None,
    name: ModelName = None,
    xlsx: Annotated[
        str | None, typer.Option(help="File for a workbook of the owner's cost of the best system, with formulas.")
    ] = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Find the best system, precision, mapping and batch for a model at a given speed per user: instances and bill."""
    with plain_errors(ctx, path="xlsx"):
        request = trnmodel.Request(prompt, output, speed, ttft, percentile, prefix, requests)
        own = trnmodel.model(model, name)
        ask: dict[str, Any] = {
            "precision": precision,
            "efficiencies": stack,
            "prefill_systems": prefill_systems or None,
        }
        ask |= {"users": users, "chips": chips, "site_w": None if mw is None else mw * MW, "facility": site}
        ask |= {"usd_per_month": usd_per_month, "availability": availability, "pricing": pricing, "owner": owner}
        ask["max_loss_percent"] = quality
        asked = {"model": own, "request": request, "systems": systems or None, **ask, **also(ctx, "plan")}
        result = trnmodel.plan(**asked)
        save(ctx, result, **asked)
        if xlsx is not None:
            result.to_workbook(xlsx)
        _print_names(ctx, as_json)
        why = answers.explained([result.best] * explain)
        if as_json:
            typer.echo(json.dumps(result.to_data() | _why_rows(why), indent=2, allow_nan=False))
        else:
            say("\n".join([*result.card(), *_why_lines(why)]))
        if not any(one.valid for one in result.choices):
            raise typer.Exit(Status.IMPOSSIBLE)


@app.command(cls=question("compare"))
def compare(
    ctx: typer.Context,
    model: Model,
    systems: Annotated[
        list[str],
        typer.Argument(metavar="SYSTEM...", help="Systems that stand beside each other.", **_name("system")),
    ],
    prompt: In,
    output: Out,
    speed: Annotated[
        list[float],
        typer.Option(
            help="Tokens/s that each user gets at least: one, or several with commas; default no promise.",
            parser=str,
            callback=terminal.numbers,
            metavar="NUMBER,...",
        ),
    ] = [],  # noqa: B006
    ttft: Ttft = None,
    percentile: Percentile = 99.0,
    prefix: Prefix = 0.0,
    requests: Requests = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="System that the others are compared with; default the leader.", **_name("system")),
    ] = None,
    pricing: Pricing = "capacity-block",
    region: Annotated[str | None, typer.Option(help="Region or seller; default all that are published.")] = None,
    owner: Owner = "hyperscaler",
    precision: BestDtypes = None,
    stack: Software = None,
    name: ModelName = None,
    as_json: Json = False,
) -> None:
    """Put systems side by side for one request: who leads, how sure that is, where order and prices tie."""
    with plain_errors(ctx, speeds="speed"):
        request = trnmodel.Request(prompt, output, None, ttft, percentile, prefix, requests)
        ask: dict[str, Any] = {
            "speeds": speed or None,
            "precision": precision,
            "efficiencies": stack,
            "baseline": baseline,
        }
        ask |= {"pricing": pricing, "region": region, "owner": owner}
        result = trnmodel.compare(trnmodel.model(model, name), request, systems, **ask | also(ctx, "compare"))
        if not as_json:
            _print(ctx, "\n".join(result.card()), None, as_json, result.lines)
            return
        _print_names(ctx, as_json)
        typer.echo(json.dumps(answers.compared(result), indent=2))
        if not any(one.valid for one in result.lines):
            raise typer.Exit(Status.IMPOSSIBLE)


@app.command(cls=question("decode_step"))
def decode(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    max_context: MaxContext = None,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Time of one decode step."""
    with plain_errors(ctx):
        ask: dict[str, Any] = {"batch": batch, "context": context, "max_context": max_context}
        ask |= {"precision": precision, "efficiencies": stack}
        result = trnmodel.decode_step(trnmodel.model(model, name), system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        frame = result.to_frame(bands=True) if as_json else None  # which loads pandas
        _print(ctx, answers.rated(result), frame, as_json, [result], [result] * explain)


@app.command(cls=question("decode_step"))
def power(
    ctx: typer.Context,
    model: Model,
    system: Where,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    context: Context = 4096,
    max_context: MaxContext = None,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    facility: Annotated[
        str | None,
        typer.Option(
            help="Site, for its PUE: aws-air or aws-chilled; default by the cooling of the system.", **_name("facility")
        ),
    ] = None,
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """J/token of a decode step at the server, and W per chip."""
    with plain_errors(ctx):
        ask: dict[str, Any] = {"batch": batch, "context": context, "max_context": max_context}
        ask |= {"precision": precision, "efficiencies": stack}
        mapping = trnmodel.Mapping(tp=tp, ep=ep, **also(ctx, "Mapping"))
        step = trnmodel.decode_step(trnmodel.model(model, name), system, mapping, **ask | also(ctx, "decode_step"))
        result = trnmodel.energy(step, facility=facility)
        line = answers.spent(result) if step.valid else answers.rated(step)
        _print(ctx, line, result.to_frame(bands=True), as_json, [result], [result] * explain)


@app.command(cls=question("goodput"))
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
    name: ModelName = None,
    as_json: Json = False,
) -> None:
    """Share of chip time that a training job uses well, and the largest loss."""
    with plain_errors(ctx):
        ask = {
            "model": trnmodel.model(model, name),
            "swap": swap,
            "spare_chips": spares,
            "interval_s": interval,
            "fleet": fleet,
        }
        result = trnmodel.goodput(system, chips, **ask | also(ctx, "goodput"))
        _print(ctx, answers.useful(result), result.to_frame(bands=True), as_json, [result])


@app.command(cls=question("train_run"))
def train(
    ctx: typer.Context,
    model: Model,
    systems: Annotated[
        list[str],
        typer.Option(
            help="Systems: one, or several with commas, side by side.",
            **SYSTEMS,
        ),
    ],
    tokens: Annotated[float, typer.Option(help="Tokens to be seen: 15T, 300B, 1e12.", **NUMBER)],
    chips: Annotated[
        int | None,
        typer.Option(help="Chips of the job, in whole scale-up domains; default 8192 without days or USD.", **WHOLE),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(help="Days that the run may take, failures counted; without chips the fewest that do.", **NUMBER),
    ] = None,
    usd: Annotated[
        float | None,
        typer.Option(help="USD that the run may cost; without chips and days the run that ends first.", **NUMBER),
    ] = None,
    bill: Annotated[str, typer.Option(help="Whose USD they are: rented or owned.")] = "rented",
    seq: Annotated[int | None, typer.Option(help="Tokens of a sequence; default 8192.", **WHOLE)] = None,
    batch: Annotated[
        int | None, typer.Option(help="Sequences of a step; default as many as hold 16 Mi tokens.", **WHOLE)
    ] = None,
    precision: Dtypes = "bf16",
    stack: Trainer = None,
    owner: Owner = "hyperscaler",
    pricing: Pricing = "capacity-block",
    region: Annotated[str | None, typer.Option(help="Region or seller; default all that are published.")] = None,
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Days, dollars and energy of a training run on the best mapping: who is first, and what bounds each system."""
    from trnmodel.search import train_report

    with plain_errors(ctx):
        ask: dict[str, Any] = {
            "tokens": tokens,
            "chips": chips,
            "days": days,
            "usd": usd,
            "bill": bill,
            "pricing": pricing,
            "region": region,
            "owner": owner,
            "seq": seq,
            "global_batch": batch,
            "precision": precision,
            "efficiencies": stack,
        }
        runs = trnmodel.train_run(trnmodel.model(model, name), systems, **ask | also(ctx, "train_run"))
        lines = [] if as_json else train_report.lines(runs.runs[0]) if len(systems) == 1 else runs.card()
        frame = train_report.table(runs) if as_json else None
        _print(ctx, "\n".join(lines), frame, as_json, runs.runs, runs.runs if explain else ())


@app.command(cls=question("token_cost"))
def cost(
    ctx: typer.Context,
    model: Model,
    system: Annotated[
        list[str],
        typer.Argument(metavar="SYSTEM...", help="What is rented; of several, beside each other.", **_name("system")),
    ],
    prompt: In,
    output: Out,
    speed: Speed = None,
    ttft: Ttft = None,
    percentile: Percentile = 99.0,
    prefix: Prefix = 0.0,
    pricing: Pricing = "capacity-block",
    price: Annotated[float | None, typer.Option(help="Your own price per chip-hour instead, in USD.", **NUMBER)] = None,
    region: Annotated[str | None, typer.Option(help="Region or seller; default all that are published.")] = None,
    owner: Owner = "hyperscaler",
    against: Annotated[
        str | None, typer.Option(help="System whose cost the others are to tie with.", **_name("system"))
    ] = None,
    requests: Requests = None,
    duty: Annotated[float, typer.Option(**NUMBER)] = 1.0,
    spares: Annotated[int, typer.Option(**WHOLE)] = 0,
    precision: BestDtypes = None,
    stack: Annotated[
        str | None,
        typer.Option(
            help="One software stack, by id or by a file of trnmodel calibrate; default every kind.", **_name("stack")
        ),
    ] = None,
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Cost per million tokens for a renter and for an owner, by kind of software, and break-even prices."""
    from trnmodel.result import stacked

    with plain_errors(ctx, systems="system", **({} if price is None else {"pricing": "price"})):
        request = trnmodel.Request(prompt, output, speed, ttft, percentile, prefix, requests)
        ask = {"precision": precision, "duty": duty, "spare_instances": spares, "region": region, "efficiencies": stack}
        ask |= {"pricing": pricing if price is None else price}
        result = trnmodel.token_cost(trnmodel.model(model, name), request, system, **ask | also(ctx, "token_cost"))
        own = {name: trnmodel.tco(name, owner=owner, **also(ctx, "tco", name)) for name in result.systems}
        owned = result.priced(own)
        lines = [*result.card(against), *(line for name in owned.systems for line in owned.describe(name))]
        frame = stacked({"renter": result.to_frame(as_json), "owner": owned.to_frame(as_json)}, "who")
        _print(
            ctx,
            "\n".join(lines),
            frame,
            as_json,
            [*result.lines, *owned.lines],
            answers.public(result) if explain else (),
        )


@app.command(cls=question("prefill"))
def prefill(
    ctx: typer.Context,
    model: Model,
    system: Where,
    prompt: In,
    tp: Tp = 1,
    ep: Ep = 1,
    batch: Batch = 1,
    max_context: MaxContext = None,
    precision: Dtypes = "bf16",
    stack: Stack = None,
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Time of a prefill: until the first token, without a queue."""
    with plain_errors(ctx):
        ask: dict[str, Any] = {"batch": batch, "input_tokens": prompt, "max_context": max_context}
        ask |= {"precision": precision, "efficiencies": stack}
        result = trnmodel.prefill(trnmodel.model(model, name), system, trnmodel.Mapping(tp=tp, ep=ep), **ask)
        _print(ctx, answers.rated(result), result.to_frame(bands=True), as_json, [result], [result] * explain)


@app.command(cls=question("memory_fit"))
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
    name: ModelName = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Bytes that a rank stores, and whether they fit."""
    with plain_errors(ctx):
        ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": stack}
        own, mapping = trnmodel.model(model, name), trnmodel.Mapping(tp=tp, ep=ep)
        result = trnmodel.memory_fit(own, system, mapping, **ask)
        line = answers.fitting(result, own, mapping)
        _print(ctx, line, result.to_frame(bands=True), as_json, [result], [result] * explain)


@app.command(cls=question("collective"))
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
    in_graph: Annotated[bool, typer.Option(help="Inside a graph: no launch by the host is counted.")] = False,
    rate_share: Annotated[
        float | None,
        typer.Option(help="Share of the links' rates that the software reaches; default what was measured.", **NUMBER),
    ] = None,
    as_json: Json = False,
    explain: Explain = False,
) -> None:
    """Time of a collective and its bus bandwidth."""
    with plain_errors(ctx):
        options: dict[str, Any] = {"ranks": ranks, "chips": chips, "algorithm": algorithm}
        options |= {"in_graph": in_graph, "rate_share": rate_share}
        result = trnmodel.collective(kind, size, system, **options)
        line = f"{result.card()[0].removeprefix('Collective: ')}, busbw {result.in_words('busbw_bytes_per_s', 'B/s')}"
        line = f"{line}, algorithm {result.algorithm}"
        _print(ctx, line, result.to_frame(bands=True), as_json, [result], [result] * explain)


@app.command()
def roofline(
    ctx: typer.Context,
    chip: Annotated[str, typer.Argument(metavar="CHIP", help="Id or name of a chip.", **_name("chip"))],
    intensity: Annotated[float, typer.Option(help="FLOP for each byte of HBM.", **NUMBER)],
    dtype: Annotated[str, typer.Option(help="Of the matrices.", autocompletion=terminal.complete("dtype"))] = "bf16",
    as_json: Json = False,
) -> None:
    """Rate that a chip's printed peak and HBM bandwidth allow: nothing is lost."""
    with plain_errors(ctx):
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


@app.command()
def check(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PLAN.json", help="File that `trnmodel plan --save` wrote.")],
    as_json: Json = False,
) -> None:
    """Ask a saved plan again: which facts moved since, by how much each moves the answer, and whether a law did.

    Ends with status 5 where the answer or a fact that it stands on moved.
    """
    with plain_errors(ctx):
        result = trnmodel.check(path)
        if as_json:
            typer.echo(json.dumps(answers.checked(result), indent=2))
        else:
            say(repr(result))
        if not result.possible:
            raise typer.Exit(Status.IMPOSSIBLE)
        if result.differs:
            raise typer.Exit(Status.DIFFERS)


@app.command()
def measure(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PLAN.json", help="File that `trnmodel plan --save` wrote.")],
    folder: Annotated[
        str,
        typer.Option(
            "--folder", "-o", metavar="DIR", help="Folder for the scripts: new, empty, or written by this command."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Write benchmark scripts for a saved plan: server, its own point, what tells most beside it, and what it costs."""
    with plain_errors(ctx):
        result = trnmodel.measure(path, folder)
        _print(ctx, repr(result), result.to_frame() if as_json else None, as_json)


@app.command()
def schema(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Public call of the library, such as decode_step.")],
    answer: Annotated[bool, typer.Option("--answer", help="That of the answer; of plan alone.")] = False,
) -> None:
    """Print the JSON Schema of a question: what each argument of a public call is, its unit and what it allows."""
    with plain_errors(ctx):
        typer.echo(json.dumps(trnmodel.schema(name, answer=answer), indent=2))


def _list(frame: Any, shown: Any, as_json: bool, what: str) -> None:
    """Print a table of things to choose from, every column as JSON; end with status 3 where none is left."""
    if as_json:
        typer.echo(json.dumps(_rows(frame), indent=2))
    elif len(frame):
        say(terminal.columns(shown(frame)))
    else:
        say(f"There are no such {what}.", error=True)
    if not len(frame):
        raise typer.Exit(Status.IMPOSSIBLE)


@app.command()
def systems(text: Filter = "", as_json: Json = False) -> None:
    """List the systems: chips, fabric, whether they can be rented, memory and other names."""
    from trnmodel.catalog.systems import system_table
    from trnmodel.units import format_quantity

    def shown(frame: Any) -> Any:
        memory = [format_quantity(float(size), "B", 3) for size in frame.hbm_bytes]
        return frame[["id", "chips", "chip", "fabric", "status"]].assign(HBM=memory, names=frame.names)

    with plain_errors():
        _list(terminal.holding(system_table(roadmap=bool(text)), text), shown, as_json, "systems")


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

    with plain_errors():
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

    with plain_errors():
        every = stacked({"inference": stack_table(), "training": trainer_table()}, "use")
        _list(terminal.holding(every, text), shown, as_json, "stacks")


@app.command()
def options(
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="Only those of which an id, a name, a chip or a model holds this text."),
    ] = "",
    as_json: Json = False,
) -> None:
    """List the documented options of serving software: engine, chips, models, what each gains, and sources."""
    from trnmodel.catalog.options import option_table

    def shown(frame: Any) -> Any:
        words = {"none": "steps of {stack}", "included": "{tokens:.3g} tokens per step, drafts included"}
        gains = [
            words.get(drafting, "{tokens:.3g} tokens per step").format(tokens=tokens, stack=stack)
            for drafting, tokens, stack in zip(frame.drafting, frame.tokens_per_step, frame.base_stack, strict=True)
        ]
        table = frame[["id", "name", "engine"]].assign(chips=frame.documented_on, models=frame.covers, gain=gains)
        return table.assign(source=frame.sources)

    with plain_errors():
        every = option_table()
        _list(terminal.holding(every, text, ("documented_on", "covers")), shown, as_json, "options")


@app.command()
def prices(
    ctx: typer.Context,
    system: Annotated[
        list[str], typer.Argument(metavar="[SYSTEM]...", help="Default every system.", **_name("system"))
    ] = [],  # noqa: B006
    pricing: Annotated[str | None, typer.Option(help="One pricing; default all.", **PRICINGS)] = None,
    region: Annotated[str | None, typer.Option(help="One region or seller; default all.")] = None,
    superseded: Annotated[bool, typer.Option("--all", help="Prices too that are no longer in force.")] = False,
    as_json: Json = False,
) -> None:
    """List the published prices of a chip-hour: pricing, region or seller, and date."""
    from trnmodel.catalog.rents import published
    from trnmodel.units import format_digits

    def shown(frame: Any) -> Any:
        usd = [format_digits(float(price), 4) for price in frame.usd_per_chip_h]
        table = frame[["entity", "pricing", "place", "date"]].rename(columns={"place": "region or seller"})
        return table.assign(**{"$ per chip-hour": usd, "source": frame.source})

    with plain_errors(ctx):
        table = published(system or None, pricing, region)
        _print_names(ctx, as_json)
        _list(table if superseded else table[table.in_force], shown, as_json, "published prices")


@app.command()
def facts(
    texts: Annotated[
        list[str],
        typer.Argument(metavar="[TEXT]...", help="Only those that hold each text: entity, quantity, value or source."),
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """List the facts: what a source prints of a chip, a system or a price, and in which line."""

    def shown(frame: Any) -> Any:
        printed = frame.value_printed + " " + frame.unit_printed
        named = frame.quantity + frame.qualifier.where(frame.qualifier == "", " " + frame.qualifier)
        table = frame[["entity"]].assign(quantity=named, printed=printed, status=frame.status)
        return table.assign(source=frame.source, line=frame.locator)

    with plain_errors():
        table = trnmodel.facts()
        cells = table[["entity", "quantity", "qualifier", "value_printed", "unit_printed", "source"]]
        line = cells.astype(str).agg(" ".join, axis=1).str.lower()
        for text in texts:
            found = line.str.contains(text.lower(), regex=False)
            table, line = table[found], line[found]
        _list(table, shown, as_json, "facts")


support.register(app)
doctor.register(app)
claims.register(app)
validate.register(app)
calibrate.register(app)
for command in app.registered_commands:
    command.epilog = terminal.EPILOG
