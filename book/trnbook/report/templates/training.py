# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How long does this training run take, and what does it cost?
#
# A report of `trnmodel report training`. Change the scenario file and run all cells again, or change a cell and see the answer move.

# %% tags=["parameters"]
scenario: str = ""

# %%
import trnmodel as tm
from trnbook.report import answers, training

case = tm.scenario(scenario)
case

# %% [markdown]
# `tm.train_run` tries every legal mapping on the chips of the scenario, and adds what failures take.

# %%
runs, why = answers.possible(case.train_run)
runs

# %% [markdown]
# ## The verdict

# %%
training.answered(case, runs) if runs else training.refused(case, why)
