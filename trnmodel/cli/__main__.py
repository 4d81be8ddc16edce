"""Run the command line as `python -m trnmodel.cli`."""

from trnmodel.cli.app import app

app()
