# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which system serves this scenario best?
#
# A report of `trnmodel report serving`. Change the scenario file and run all cells again, or change a cell and see the answer move.

# %% tags=["parameters"]
scenario: str = ""

# %%
import trnmodel as tm
from trnbook.report import answers, serving

case = tm.scenario(scenario)
case

# %% [markdown]
# `tm.plan` finds the system, precision, mapping and batch that make most of whole requests per paid chip, with the promises kept.

# %%
plan, why = answers.possible(case.plan)
plan

# %% [markdown]
# If the scenario names no GPU, those that can be rented stand on the other side. If it names no Trainium, those on offer do.

# %%
rival = serving.rival_plan(case, plan) if plan else None

# %% [markdown]
# ## The verdict

# %%
serving.answered(case, plan, rival) if plan else serving.refused(case, why)
