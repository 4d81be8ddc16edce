"""Tables of the first page: sizing answers, the questions that readers bring, and the chips."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

import trnmodel as tm
from trnmodel.search.plan import Choice, Plan
from trnmodel.units import KW, MB, counted, format_digits, format_within

# Columns of the table of answers, each with the chapter that derives it, for the last row.
COLUMNS = {
    "Model": "",
    "Tokens/s a user": "serving",
    "System": "rack",
    "Chips and mapping": "memory-fit",
    "Tokens/s a chip": "serving",
    "First token": "decode-step",
    "Energy and power at the server": "power",
    "A million tokens to their owner": "cost",
    "Other software, tokens/s a chip": "software",
}
LARGEST = {"trainium1": "trn1.32xlarge", "trainium2": "trn2-ultraserver", "trainium3": "trn3-nl72x2-pcie160"}
KINDS = ("public", "hand-tuned", "ideal")
RACKS, RIVALS = ("trn3-nl32x2-pcie160", LARGEST["trainium3"]), ("hgx-h200", "gb200-nvl72", "mi355x-8")
FABRICS = {"torus": "trn3-nl32x2-torus", "switches": "trn3-nl32x2-pcie160"}


def answers(table: pd.DataFrame, called: Callable[[str], str] = str) -> str:
    """Return the table of `index_cover.answers` in Markdown: a row per model and speed, then the chapters."""
    last = [called(slug) if slug else "*derived in*" for slug in COLUMNS.values()]
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_cells, table.to_dict("records")), last]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def trainings(table: pd.DataFrame) -> str:
    """Return days of training on a trillion tokens on the systems of the table, in Markdown."""
    rows = [["Model", "System", "Chips", *(f"Days, {kind} software" for kind in KINDS)]]
    rows.append(["---"] * len(rows[0]))
    for row in table[table.system != ""].drop_duplicates(["model", "system"]).to_dict("records"):
        days = [_days(row, kind) for kind in KINDS]
        rows.append([row["model"], tm.system(row["system"]).name, f"{row['train_chips']:,.0f}", *days])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def headline(table: pd.DataFrame, model: str, **lengths: int) -> str:
    """Return the answer for one model at the highest of its speeds, in bold."""
    row = table[table.model == tm.model(model).id].nlargest(1, "wanted_tokens_per_s_per_user").to_dict("records")[0]
    name, pace, system, how, made, first, spent, paid, _ = _cells(row)
    tokens = f"{lengths['input_tokens']:,} tokens in and {lengths['output_tokens']:,} out"
    question = f"{name} at {pace} tokens/s per user, {tokens}"
    if not row["system"]:
        return f"**{question}: no system of Trainium chips, {how}.**"
    if not row["reached"]:
        return f"**{question}: {made};** by {system}, {how}."
    after = "" if pd.isna(row["ttft_s"]) else f" The first token comes after {first}."
    paid = f" A million generated tokens cost who owns the chips {paid}."
    if row["train_basis"]:
        paid += f" In training a trillion tokens take {_trained(row)}."
    return f"**{question}: {system}, {how}, makes {made} tokens/s per chip.**{after} At the server: {spent}.{paid}"


def _cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of one answer, its numbers with band and basis."""
    head = [row["model"], f"{row['wanted_tokens_per_s_per_user']:g}"]
    if not row["system"]:
        return [*head, "none", row["why"], "", "", "", "", ""]

    def figure(name: str, unit: str = "", basis: str = "") -> str:
        value, low, high = (row.get(f"{name}{end}", float("nan")) for end in ("", "_low", "_high"))
        return "too slow" if pd.isna(value) else format_within(value, low, high, unit, basis)

    made = figure("tokens_per_s_per_chip", basis=row["basis"])
    if not row["reached"]:
        made = f"out of reach: at most {format_digits(row['tokens_per_s_per_user'], 2)} per user ({row['basis']})"
    elif row["chance"] < 1:
        made += f", promise kept in {format_digits(100 * row['chance'], 2)} % of the draws"
    rates = {kind: figure(f"{kind.replace('-', '_')}_tokens_per_s_per_chip") for kind in KINDS[1:]}
    other = "; ".join(f"{kind} {rate}" for kind, rate in rates.items())
    how = f"{counted(row['chips'], 'chip')}: {row['mapping']}"
    after = [figure("ttft_s", "s", row["basis"]), _spent(row), _paid(row), other]
    tied = f" (ties: {len(row['ties'].split())})" if row["ties"] else ""
    return [*head, tm.system(row["system"]).name + tied, how, made, *after]


def _paid(row: dict[str, Any]) -> str:
    """Format the owner's cost per million generated tokens, on the row's software and on both others."""
    costs = []
    for kind in ("", "hand-tuned", "ideal"):
        name = f"{kind.replace('-', '_')}{'_' if kind else ''}usd_per_mtoken"
        value, low, high = (row.get(f"{name}{end}", float("nan")) for end in ("", "_low", "_high"))
        basis = "" if kind else row["basis"]
        known = "" if pd.isna(value) else f"USD {format_within(value, low, high, basis=basis)}"
        costs.append(f"{kind} {known or 'too slow'}".strip())
    return "; ".join(costs) if not pd.isna(row.get("ideal_usd_per_mtoken", float("nan"))) else "no price known"


def _days(row: dict[str, Any], kind: str) -> str:
    """Format the days of training on a trillion tokens on one kind of software."""
    name = f"{'' if kind == 'public' else kind.replace('-', '_') + '_'}train_days"
    days, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not row["train_basis"]:
        return "no training software"
    if pd.isna(days):
        return "does not fit"
    return format_within(days, low, high, "days", row["train_basis"] if kind == "public" else "")


def _trained(row: dict[str, Any]) -> str:
    """Format the same on all kinds of software, as part of a sentence."""
    public, tuned, ideal = (_days(row, kind) for kind in KINDS)
    return f"{public} on {counted(row['train_chips'], 'chip')}; hand-tuned {tuned}; ideal {ideal}"


def _spent(row: dict[str, Any]) -> str:
    """Format joules per token and kilowatts of the deployment, with bands and basis."""
    if not row["energy_basis"]:
        return "no watts known" if row["reached"] else "too slow"

    def figure(name: str, scale: float, unit: str, basis: str = "") -> str:
        value, low, high = (row[f"{name}{end}"] / scale for end in ("", "_low", "_high"))
        return format_within(value, low, high, unit, basis)

    joules = figure("server_j_per_token", 1.0, "J a token", row["energy_basis"])
    return f"{joules}; {figure('server_w', KW, 'kW')}"


def questions(
    dense: str, experts: str, speed: float, experts_speed: float, *, called: Callable[[str], str] = str, **lengths: int
) -> str:
    """Return five questions with their answers, and the command lines that ask each again.

    `called` maps a chapter's slug to its name in the book; `lengths` go to `tm.plan`.
    """

    def planned(model: str, pace: float, systems: Iterable[str] = (), stack: str | None = None) -> Plan:
        return tm.plan(model, tm.Request(**lengths, tokens_per_s_per_user=pace), systems or None, efficiencies=stack)

    def line(model: str, pace: float, *systems: str) -> str:
        tokens = f"--in {lengths['input_tokens']} --out {lengths['output_tokens']}"
        where = f" --systems {','.join(systems)}" if systems else ""
        return f"trnmodel plan {shlex.quote(model)} --speed {pace:g} {tokens}{where}"

    best, rivals = planned(dense, speed), (LARGEST["trainium3"], *RIVALS)
    public, tuned = (planned(experts, experts_speed, RACKS, kind) for kind in (None, "hand-tuned"))
    dense_question, experts_question = (
        f"{it.model.id} at {it.request.tokens_per_s_per_user:g} tokens/s per user" for it in (best, public)
    )
    why = f"{_all_reduce()}. {called('torus-or-switch').capitalize()} says why."
    apart = f"{called('switch-tray').capitalize()} takes the racks apart."
    racks = f"Public software: {_all(public)} Hand-tuned: {_all(tuned)} {apart}"
    gpus = f"Public software: {_all(planned(dense, speed, rivals))} {called('beside-gpus').capitalize()} compares more."
    own = line("path/to/config.json", speed, "trn2.48xlarge")
    on_links = "--chips 64 --in-graph --rate-share 1"
    reduces = "\n".join(f"trnmodel collective all_reduce 64MB {name} {on_links}" for name in FABRICS.values())
    asks = [
        (f"{dense_question}?", _best(best), line(dense, speed)),
        (f"{experts_question}, on NL32x2 or NL72x2?", racks, line(experts, experts_speed, *RACKS)),
        ("A model of your own on Trainium2?", "Give the path of its `config.json`.", own),
        (f"{dense_question}, on Trainium3 or on H200, GB200, MI355X?", gpus, line(dense, speed, *rivals)),
        ("An all-reduce of 64 MB over 64 chips, on a torus or on switches?", why, reduces),
    ]
    return "\n\n".join(f"**{question}** {text}\n\n```console\n{how}\n```" for question, text, how in asks)


def _made(c: Choice) -> str:
    """Format the yield of a choice with band and basis."""
    name, unit = (
        (c.FIGURE, "tokens/s per paid chip") if c.valid else ("tokens_per_s_per_user", "tokens/s per user at most")
    )
    low, high = map(float, c.ends(name))
    chance = f", promise kept in {format_digits(100 * c.chance, 2)} % of the draws" if c.chance < 1 else ""
    return format_within(getattr(c, name), low, high, unit, str(c.basis)) + chance


def _best(plan: Plan) -> str:
    if not (c := plan.best):
        return "It fits no system of Trainium chips."
    after = f" Next is {it.system.name}: {plan.reason(it)}." if (it := plan.runner_up) else ""
    return f"{c.system.name}, {c.mapping}, on {counted(c.chips, 'chip')}: {_made(c)}.{after}"


def _all(plan: Plan) -> str:
    texts = [f"{c.system.name} {_made(c)}" for c in plan.choices]
    return "; ".join([*texts, *(f"{tm.system(name).name} {why}" for name, why in plan.refused.items())]) + "."


def _all_reduce() -> str:
    times = []
    for word, name in FABRICS.items():
        it = tm.collective("all_reduce", 64 * MB, name, chips=64, in_graph=True, rate_share=1.0)
        low, high = map(float, it.ends("time_s"))
        times.append(f"{word} {format_within(float(it.time_s), low, high, 's', str(it.basis))}")
    return f"64 Trainium3: {'; '.join(times)}"


def chips() -> pd.DataFrame:
    """Return the generations of Trainium, each with the largest system that its links join."""
    names = "chip year bf16_flop_per_s fp8_flop_per_s hbm_bytes hbm_bytes_per_s largest_system chips"
    rows = []
    for chip, net in ((tm.chip(name), tm.topology(system)) for name, system in LARGEST.items()):
        eight = max(rate for dtype, rate in chip.peak_flop_per_s.items() if "fp8" in dtype)
        row = (chip.id.capitalize(), int(chip.year), chip.peak_flop_per_s["bf16"], eight, chip.hbm_bytes)
        joined = (net.system.name, net.system.domain_chips, net.injection_bytes_per_s_per_dir)
        rows.append((*row, chip.hbm_bytes_per_s, *joined))
    return pd.DataFrame(rows, columns=[*names.split(), "links_bytes_per_s_per_dir"])
