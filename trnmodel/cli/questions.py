"""Commands that ask one public call: what `--help` says of a flag is what the call declares of its argument."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from trnmodel.cli import scenarios
from trnmodel.cli.terminal import ARGUMENTS


def question(name: str) -> type[TyperCommand]:
    """Return the class of a command that asks the public call of this name.

    A flag without a text of its own takes it from the argument behind it, and each of them unit and range, when the
    help is printed, for reading the declarations loads the library. The numbers of a request have flags of their own.
    A command whose arguments a scenario states takes the file by `--scenario`.
    """

    class Question(TyperCommand):
        """A command whose flags are explained by the declarations of a public call."""

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.params += scenarios.options(str(self.name))

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Read the flags, with those of a scenario in place of what is not typed."""
            scenarios.before(ctx, args)
            return super().parse_args(ctx, args)

        def invoke(self, ctx: Any) -> Any:
            """Answer the question, or that of each scenario."""
            return scenarios.each(self, ctx, super().invoke)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Write the help, with what the public call declares."""
            from trnmodel.calls import arguments_of

            arguments = arguments_of(name)
            arguments = arguments | (arguments_of("Request") if "request" in arguments else {})
            named = {flag: argument for argument, flag in ARGUMENTS.items() if argument in arguments}
            for parameter in self.params:
                argument = arguments.get(named.get(str(parameter.name), str(parameter.name)))
                text = getattr(parameter, "help", None)
                if argument and argument.range not in (text or ""):
                    parameter.help = f"{text or argument.help}  {argument.range}"  # type: ignore[attr-defined]
                elif argument:
                    parameter.help = text or argument.help  # type: ignore[attr-defined]
            super().format_help(ctx, formatter)

    return Question
