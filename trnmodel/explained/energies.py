"""Terms of the energy of a step."""

from __future__ import annotations

from trnmodel.catalog import facilities
from trnmodel.catalog.systems import chip_of
from trnmodel.explained.steps import step_tree
from trnmodel.explained.trees import Branch, Part, Written, made, quotient, single, summed
from trnmodel.power.energy import Energy
from trnmodel.units import format_digits

CHIP_PARTS = {"idle_w": "idle power", "compute_w": "power of products", "hbm_w": "power of HBM"}


def energy_tree(one: Energy) -> Branch:
    """Return the joules of a token at the server as a tree: watts of a chip with its server, over tokens/s.

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=16, context=2048)
    >>> energy_tree(tm.energy(step)).formula
    'power of a chip with its server / tokens/s of a chip'
    """
    step, rate = step_tree(one.step), single(one.tokens_per_s_per_chip)
    made_tokens = rate * step.value

    def write(of: Written) -> str:
        numbers = "tokens of a step and chip" if of(step) == step.name else format_digits(made_tokens, 4)
        return f"{numbers} / {of(step)}"

    tokens = made("tokens/s of a chip", "token/s", rate, [Part(step, -rate / step.value)], write)
    return quotient("energy of a token", "J/token", _server_watts(one), tokens)


def _server_watts(one: Energy) -> Branch:
    """Return the watts of a server over its chips: those of a chip at the wall, and those of the host."""
    parts = [Branch(name, "", "", single(getattr(one, key)), "W") for key, name in CHIP_PARTS.items()]
    chip = summed("power of a chip", "W", parts)
    power = one.question.power or facilities.power(chip_of(one.system))
    ratio, value = single(power.server_ratio), single(one.server_w)
    host = Branch("power of the host over its chips", "", "", value - ratio * chip.value, "W")

    def write(of: Written) -> str:
        factor = "watts at the wall for each watt of a chip" if of(chip) == chip.name else format_digits(ratio, 4)
        return f"{of(chip)} x {factor} + {of(host)}"

    return made("power of a chip with its server", "W", value, [Part(chip, ratio), Part(host, 1.0)], write)
