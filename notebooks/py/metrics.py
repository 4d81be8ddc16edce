# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 25
#     part: Words
# ---

# %% [markdown]
# # What do the words for speed mean?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
precision: str = "fp8"
stack: str = "vllm-neuron-2026"
tp: int = 4
slots: int = 4  # sequences that the graph is compiled for
max_context: int = 4608  # and the longest context
input_tokens: int = 4096
output_tokens: int = 16
sent_s: list[float] = [0.0, 0.1, 0.5]
most_ttft_s: float = 2.5
most_tpot_s: float = 0.25

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import metrics as tables
from trnbook.shared import case

m, spec = tables.check(model, system, precision, stack, tp, input_tokens, output_tokens)
guard.within(input_tokens + output_tokens, 1e7, max_context=max_context), guard.spans(max_context, model=m)
guard.within(len(sent_s), 1e4, slots=slots)
guard.within(0, 1e6, sent_s=sent_s)
guard.above_zero(most_ttft_s=most_ttft_s, most_tpot_s=most_tpot_s)
guard.need(len(sent_s) <= 12, f"sent_s holds {len(sent_s)} requests; the chart shows 12")
ask = {"mapping": tm.Mapping(tp=tp), "precision": precision, "efficiencies": stack, "max_context": max_context}

# %% tags=["hide-input"]
sequences, context = np.arange(1, len(sent_s) + 1), input_tokens + output_tokens
step = tm.decode_step(m, spec, batch=sequences, context=context, compiled_batch=slots, **ask)
prompt = tm.prefill(m, spec, input_tokens=input_tokens, **ask)
guard.valid(f"a decode step with tp = {tp}, slots = {slots}, context = {context}", step)
guard.valid(f"a prefill with tp = {tp}, input_tokens = {input_tokens}", prompt)
s = tables.stream(np.sort(sent_s), float(prompt.time_s), np.ravel(step.time_s).tolist(), input_tokens, output_tokens)
Markdown(tables.answer(s, step, stack, f"`{m.id}` on {spec.id}"))

# %% tags=["hide-input"]
charts.spans(
    tables.spans(s),
    start="start_s",
    end="end_s",
    y="request",
    color="part",
    caption="A request waits, its prompt is read, then tokens come",
    under="one server that reads a waiting prompt before the next decode step",
)

# %% [markdown]
# **Words on this page:** [decode step](#decode-step), [TTFT](#ttft), [ITL](#itl), [TPOT](#tpot), [E2E latency](#e2e-latency),
# [interactivity](#interactivity), [throughput](#throughput), [goodput](#goodput).
#
# ## Why words decide
#
# Two tools can measure the same server and print the two times of the answer above. Neither is wrong. One counts the wait for the
# first token, the other does not. We invented the stream, with short answers, so that you can check each word by hand. On a real
# server answers are longer, and the two tools differ less.
#
# The next cell asks the model for the two times that the stream is made of: a decode step, and the prefill of a prompt. A
# compiled graph always runs all of its slots and its whole length. A step therefore takes the same time for one sequence as for
# several.

# %%
counted = [f"decode step with {tm.units.counted(int(n), 'sequence')}" for n in sequences]
times = dict(zip(counted, map(float, np.ravel(step.time_s)), strict=True))
times["prefill of a prompt"] = float(tm.prefill(m, spec, input_tokens=input_tokens, **ask).time_s)
charts.table(
    pd.DataFrame({"what": times.keys(), "time_s": times.values()}), caption="What a stream is made of", download="times"
)

# %% [markdown]
# ## The words
#
# For each request, $t_0$ is the moment at which it is sent, and $t_1, \dots, t_n$ are the moments at which its $n$ tokens arrive.
#
# ### Decode step
#
# One run of the model, which makes one token for every sequence of the batch. `tm.decode_step` returns its time.
#
# ### TTFT
#
# The time to first token holds the wait for others, the prompt, and, where a client measures it, the network:
#
# $$ \mathrm{TTFT} = t_1 - t_0 . $$
#
# ### ITL
#
# The inter-token latency is one number for each gap between two tokens. Most gaps are a decode step. A gap in which the prompt of
# another user is read is longer, and the 99th percentile shows it:
#
# $$ \mathrm{ITL}_i = t_{i+1} - t_i . $$
#
# ### TPOT
#
# The time per output token is one number for each request, with its stalls. The first token is not in it, because TTFT has it already:
#
# $$ \mathrm{TPOT} = \frac{t_n - t_1}{n - 1} . $$
#
# ### E2E latency
#
# From sending to the last token:
#
# $$ \mathrm{E2E} = t_n - t_0 = \mathrm{TTFT} + (n - 1)\,\mathrm{TPOT} . $$
#
# ### Interactivity
#
# The speed that one user sees once the answer runs, in tokens per second. Some tools divide $n$ by the whole latency instead:
#
# $$ u = \frac{1}{\mathrm{TPOT}} . $$
#
# ### Throughput
#
# Tokens of answers per second over the whole run, of the system or per chip. Adding up the interactivities would give more,
# because it leaves out the time in which users wait for their first token. With $R$ requests throughput is
#
# $$ T = \frac{\sum_{r=1}^{R} n_r}{\max t_n - \min t_0} . $$
#
# Counting the tokens of prompts too gives *total* throughput, which is larger.
#
# ### Goodput
#
# Requests per second that keep every limit, here one on TTFT and one on TPOT. A request that misses one of them counts nothing. In training the same word
# means the share of the time whose work is kept.
#
# ## By hand, on the stream
#
# The table applies each definition to the first request, with the moments that the stream gives. The cell asserts the identity between E2E, TTFT and TPOT
# for all requests.

# %%
assert np.allclose(tables.e2e_s(s), tables.ttft_s(s) + (s.output_tokens - 1) * tables.tpot_s(s))
worked_out = tables.by_hand(s, float(np.ravel(step.time_s)[-1]), step.occupied_chips, most_ttft_s, most_tpot_s)
charts.table(worked_out, caption="Each word for the first request, or for all", download="words")

# %% [markdown]
# ## The words in the running case
#
# The plans of the running case state the same quantities for a server at its capacity: the decode step, the speed of a user with the prompts of
# others counted, and the time to the first token at the 99th percentile, with its wait for other prompts.

# %%
rows = []
for name in case.PROMISES:
    for where in case.SYSTEMS:
        best = tm.plan(name, case.request(name), systems=where).best
        rows.append(tables.of_case(best))
charts.table(pd.DataFrame(rows), caption="One decode step is not one token of a user", download="words-of-the-case")

# %% [markdown]
# Prompts of others interrupt the steps, so a user's token takes longer than a step. Drafts work the other way. A small model
# guesses several tokens, and one step of the large model can confirm them all. Each user then gets more than one token per step.
#
# ## Under load
#
# With a single user, TTFT is the prefill, half a step and the server's own time, which the stream above leaves out. TPOT is the decode step. As the rate
# of requests grows, TPOT gets longer, because each step may wait for a prompt. The median of TTFT stays while prompts take less than half of
# the time, since most requests then find no other prompt. Its 99th percentile grows. TTFT counts the wait for other prompts and not the wait for a free
# slot: [How fast does it serve?](serving.ipynb) A rate beyond what the server takes has no row, because its queue would grow for ever.

# %%
load = tm.Request(input_tokens, 512, requests_per_s=np.array([0.001, 0.02, 0.05, 0.08, 0.11, 0.14]))
graph = ask | {"max_context": max(max_context, load.longest_context)}
served = tm.serve(m, load, spec, max_batch=slots, **graph).to_frame().query("valid")
charts.table(served[tables.SERVED], caption="Time to first token and per token over the rate", download="load")

# %% [markdown]
# ## Who counts what
#
# The same stream as each tool would print it, as a mean over the requests:

# %% tags=["hide-input"]
charts.table(tables.tools(s), caption="What tools call it, and what that is here", download="tools")

# %% [markdown]
# A mean of $1/\mathrm{TPOT}$ is more than one over the mean TPOT, because the fastest request weighs most in it.
# *Inter-token latency* is thus TPOT in AIPerf and GenAI-Perf, the mean of single gaps in vLLM, and the whole request in LLMPerf. AWS's guide divides by
# $n$ in its formula and by $n - 1$ in its patch of LLMPerf.
#
# ## Check: what AWS printed
#
# AWS prints whole summaries of a patched LLMPerf for four runs on trn2.48xlarge. If the printed latency between tokens is TPOT as defined here, the
# other means must give it.

# %% tags=["hide-input"]
seen = tables.printed()
assert seen.tpot_error.abs().max() < 0.001
charts.table(seen, caption="Printed latency, and two ways to get it from the other means", download="check")

# %% [markdown]
# The definition of this page gives the printed values to the last digits. Counting the first token in would not. These are means. The gain of
# drafts in this book comes from the median of the same run, 5.39 ms.
#
# ## What moves the answer, and what is left out
#
# * **Prompts of others** lengthen TPOT and not the decode step: [How fast does it serve?](serving.ipynb)
# * **The length of the answer** decides how much it matters whether the first token counts.
# * **Who holds the clock**: a client's TTFT has the network and the tokeniser, a server's has not.
#
# Tokens that come several to a chunk are left out: tools that count chunks then see fewer and longer gaps. So are reasoning tokens, which some tools
# count as output and others do not.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask of every number which tokens it divides by, whether the first is among them, and whether prompts count.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A tool prints 10 s from end to end, and 2 s to the first token. The answer has 401 tokens. What are TPOT and interactivity, and what does
# LLMPerf print?
#
# ```{admonition} Answer
# :class: dropdown
# TPOT is $8/400 = 20$ ms, so the user sees 50 tokens/s. LLMPerf divides the whole by all tokens: $10/401 = 24.9$ ms.
# ```
#
# **2.** A server makes 2,000 tokens of answers per second from prompts four times as long as the answers. What is its total throughput?
#
# ```{admonition} Answer
# :class: dropdown
# $2{,}000 \times (1 + 4) = 10{,}000$ tokens/s. It must not be compared with the output tokens of another server.
# ```
#
# **3.** Steps take 20 ms and a prompt 200 ms. During an answer of 101 tokens five other prompts are read. What are ITL and TPOT?
#
# ```{admonition} Answer
# :class: dropdown
# Of 100 gaps five are longer by a prompt, so the median ITL is 20 ms. TPOT is $(100 \times 20 + 5 \times 200)/100 = 30$ ms.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
charts.table(tables.timestamps(s), caption="Timestamps of each request", download="stream", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
charts.table(
    common.bibliography({row.source for row in tables.counted()} | set(seen.source.str.partition(",")[0])),
    caption="Sources of the definitions and of the runs",
    download="sources",
)
