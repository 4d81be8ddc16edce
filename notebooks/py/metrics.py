# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 24
#     part: Words
# ---

# %% [markdown]
# # What do the words for speed mean?

# %% tags=["parameters"]
model: str = "llama-3.1-70b"
system: str = "trn2.48xlarge"
precision: str = "bf16"
stack: str = "vllm-neuron-2026"
tp: int = 64
input_tokens: int = 3584
output_tokens: int = 16
sent_s: list[float] = [0.0, 0.1, 0.5]
most_ttft_s: float = 0.8
most_tpot_s: float = 0.05

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import metrics as tables
from trnbook.shared import ledger
from trnmodel.catalog.stacks import stacks
from trnmodel.steps.deployment import Deployment
from trnmodel.units import format_quantity

m, spec = tm.model(model), tm.system(system)
guard.neuroncore(system=spec)
guard.computes(spec.chip, precision=precision)
guard.one_of(stacks(), stack=stack)
guard.generates(model=m)
guard.within(1, 1e6, tp=tp, input_tokens=input_tokens)
guard.within(2, 1000, output_tokens=output_tokens)
guard.within(0, 1e6, sent_s=sent_s)
guard.above_zero(most_ttft_s=most_ttft_s, most_tpot_s=most_tpot_s)
guard.need(len(sent_s) <= 12, f"sent_s holds {len(sent_s)} requests; the chart shows 12")
guard.spans(input_tokens + output_tokens, model=m)
ours = Deployment(model=m, system=spec.id, mapping=tm.Mapping(tp=tp), precision=precision, stack=stack)
context, together = input_tokens + output_tokens, np.arange(1, len(sent_s) + 1)
step = ours.decode(batch=together, context=context, compiled_batch=len(sent_s))
prompt = ours.prefill(input_tokens=input_tokens)
guard.valid(f"a decode step with tp = {tp}, batch = {len(sent_s)}, context = {context}", step)
guard.valid(f"a prefill with tp = {tp}, input_tokens = {input_tokens}", prompt)
s = tables.stream(np.sort(sent_s), float(prompt.time_s), np.ravel(step.time_s).tolist(), input_tokens, output_tokens)
first, chips = s.names[0], ours.chips


def time(seconds):
    return format_quantity(float(seconds), "s", 3)


# %% tags=["hide-input"]
by_tool = tables.tools(s)
per_token = {name: tables.COUNTS[name][1](s) for name in ("rest / (n - 1)", "whole / n", "gaps")}
basis = ours.basis(len(sent_s), input_tokens, context)
Markdown(
    common.card(
        time(per_token["rest / (n - 1)"]),
        f"a token of an answer, after the first, in a stream of {tm.units.counted(len(sent_s), 'request')}, as this book, vLLM, AIPerf and MLPerf count (TPOT)",
        mark=str(basis),
        rival=f"{time(per_token['whole / n'])} as LLMPerf counts, with the wait for the first of {output_tokens} tokens in",
        proof="Check: what AWS printed",
        more=f"The step that makes a token takes {time(step.time_s.flat[-1])}. Throughput counts tokens of answers alone: "
        f"{tables.tokens_per_s(s):.0f} a second here, {tables.tokens_per_s(s, prompts=True):,.0f} with those of prompts. "
        f"On {stack}.\n\n" + ledger.rests_on(ours.e.id),
    )
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(
        [
            ("n", "output_tokens", "tokens of an answer", f"{output_tokens}"),
            ("sent", "sent_s", "when a request leaves its user", ", ".join(map(time, s.sent_s))),
            ("first, last", "token_s", "when its first and its last token arrive", "table below"),
            ("rest", "", "from the first token to the last", "last - first"),
            ("whole", "e2e_s", "from sending to the last token", "last - sent"),
        ]
    ),
    caption="What this chapter calls things",
    download="notation",
)

# %% [markdown]
# ## One stream
#
# Requests reach one replica. A prompt that waits is read before the next decode step, and its end brings the first token;
# then each step brings one token to everybody who decodes. Who decodes while another's prompt is read waits.

# %%
charts.spans(
    tables.spans(s).assign(basis=basis),
    start="start_s",
    end="end_s",
    y="request",
    color="part",
    caption=f"{tm.units.counted(len(sent_s), 'request')}: queue, prompt, then a token a step",
    under=f"{m.id} in {precision.upper()} on {tm.units.counted(int(chips), 'chip')} of {spec.name}, prompts of {input_tokens:,} tokens",
)

# %% [markdown]
# Every metric below is worked out of these timestamps:

# %%
stamps = tables.timestamps(s)
charts.table(
    stamps.assign(basis=basis), caption="Timestamps of each request, and what follows from them", download="stream"
)

# %% [markdown]
# ## The words
#
# ### Decode step
#
# One run of the machine that makes one token for every sequence of the batch. It knows nothing of users: `tm.decode_step(...).time_s`.

# %%
Markdown(f"Here: {time(step.time_s.flat[-1])} for {tm.units.counted(len(sent_s), 'sequence')}.")

# %% [markdown]
# ### TTFT
#
# Time to first token, first - sent: the wait for others, the prompt, and where a client measures it the network too.
# `tm.serve(...).ttft_p50_s`.

# %%
by_hand = s.token_s[0, 0] - s.sent_s[0]
assert by_hand == tables.ttft_s(s)[0]
Markdown(f"**By hand**, {first}: {time(s.token_s[0, 0])} - {time(s.sent_s[0])} = {time(by_hand)}.")

# %% [markdown]
# ### ITL
#
# Inter-token latency, one number for each gap between two tokens of a request. Most are a decode step; one in which another's prompt
# is read is longer. Its 99th percentile shows stalls that a mean hides.

# %%
gaps = tables.itl_s(s)[0]
Markdown(
    f"**By hand**, {first}: {tm.units.counted(len(gaps), 'gap')}, shortest {time(gaps.min())}, longest {time(gaps.max())}."
)

# %% [markdown]
# ### TPOT
#
# Time per output token, one number for each request, stalls included:
#
# $$ \mathrm{TPOT} = \frac{last - first}{n - 1} . $$
#
# The first token is not in it: TTFT has it already. Where no other prompt comes between, TPOT is the decode step.

# %%
by_hand = (s.token_s[0, -1] - s.token_s[0, 0]) / (output_tokens - 1)
assert np.isclose(by_hand, gaps.mean())
Markdown(
    f"**By hand**, {first}: ({time(s.token_s[0, -1])} - {time(s.token_s[0, 0])}) / {output_tokens - 1} = {time(by_hand)}."
)

# %% [markdown]
# ### E2E latency
#
# End to end, last - sent = TTFT + (n - 1) TPOT.

# %%
by_hand = tables.ttft_s(s)[0] + (output_tokens - 1) * tables.tpot_s(s)[0]
assert np.isclose(by_hand, tables.e2e_s(s)[0])
Markdown(
    f"**By hand**, {first}: {time(tables.ttft_s(s)[0])} + {output_tokens - 1} x {time(tables.tpot_s(s)[0])} = {time(by_hand)}."
)

# %% [markdown]
# ### Interactivity
#
# Tokens a second that one user sees once the answer runs, 1 / TPOT: `tokens_per_s_per_user`. Some divide n by the whole latency
# instead, which is what a user without streaming sees.

# %%
Markdown(
    f"**By hand**, {first}: 1 / TPOT {1 / tables.tpot_s(s)[0]:.1f} tokens/s; n / E2E {output_tokens / tables.e2e_s(s)[0]:.1f} tokens/s."
)

# %% [markdown]
# ### Throughput
#
# Tokens of answers a second over the whole run, of the system or divided by its chips (`tokens_per_s_per_chip`). It is not the sum of
# interactivities: users also wait. With tokens of prompts it is another word, *total* throughput, larger by the ratio of the lengths.

# %%
whole = tables.tokens_per_s(s)
assert np.isclose(whole, len(sent_s) * output_tokens / (s.token_s.max() - s.sent_s.min()))
Markdown(
    f"**By hand**, {len(sent_s)} x {output_tokens} tokens in {time(tables.duration_s(s))}: system {whole:.1f}, a chip {whole / chips:.2f}, a request {whole / len(sent_s):.1f} tokens/s; with prompts {tables.tokens_per_s(s, prompts=True):,.0f}."
)

# %% [markdown]
# ### Goodput
#
# Requests a second that keep every limit, here on TTFT and on TPOT. A request that misses one counts nothing.

# %%
in_time = tables.in_time(s, most_ttft_s, most_tpot_s)
Markdown(
    f"**By hand**, TTFT to {time(most_ttft_s)} and TPOT to {time(most_tpot_s)}: {in_time.sum()} of {tm.units.counted(len(in_time), 'request')} in "
    f"{time(tables.duration_s(s))}, {in_time.sum() / tables.duration_s(s):.2f} a second."
)

# %% [markdown]
# ## Who counts what
#
# The same stream as each tool would print it, mean over requests:

# %%
charts.table(by_tool, caption="What tools call it, what they count, and what that is here", download="tools")

# %% [markdown]
# *Inter-token latency* is thus TPOT in AIPerf and GenAI-Perf, the mean of single gaps in vLLM, and the whole request in LLMPerf. A gap
# weighs as a gap in vLLM's ITL and as its request in the others, which is the same where all answers are equally long. AWS's guide
# divides by $n$ in its formula and by $n - 1$ in its patch of LLMPerf.
#
# ### By length of the answer
#
# Counting the first token in makes a token slower by $(\mathrm{TTFT}/\mathrm{TPOT} - 1)/n$:

# %%
mean_ttft, mean_tpot = tables.ttft_s(s).mean(), tables.tpot_s(s).mean()
longer = tables.by_length(mean_ttft, mean_tpot, 2.0 ** np.arange(1, 13))
near = longer[longer.ratio < 1.05].output_tokens
charts.lines(
    longer.assign(basis=basis),
    x="output_tokens",
    y="ratio",
    log_x=True,
    log_y=True,
    caption="A token with the first counted in, over TPOT",
    under=f"TTFT {time(mean_ttft)}, TPOT {time(mean_tpot)}; "
    + (f"within 5 % from {near.iloc[0]:,.0f} tokens on" if len(near) else "5 % apart or more at every length drawn"),
)

# %% [markdown]
# ## Check: what AWS printed
#
# AWS prints whole summaries of LLMPerf, patched, for four runs on trn2.48xlarge. Their means must obey E2E = TTFT + (n - 1) TPOT if the
# printed latency between tokens is TPOT as defined here:

# %%
seen = tables.check()
assert seen.tpot_error.abs().max() < 0.001
charts.table(
    seen, caption="Printed latency between tokens, and two ways to work it out of the other means", download="check"
)

# %% tags=["hide-input"]
worst = seen.loc[seen.with_first_error.idxmax()]
Markdown(
    f"TPOT as defined here is off by {seen.tpot_error.abs().max():.3%} at most. LLMPerf without the patch would have printed "
    f"{seen.with_first_error.min():.0%} to {seen.with_first_error.max():.0%} more, most for {worst.model} {worst.run}."
)

# %% [markdown]
# ## What moves the answer
#
# * **Prompts of others** lengthen TPOT, not the decode step: at a high rate of requests by half and more: [How fast does it serve?](serving.ipynb)
# * **The length of the answer** decides how much it matters whether the first token counts.
# * **Who holds the clock**: a client's TTFT has the network and the tokeniser, a server's has not.
#
# ## What is left out
#
# Tokens that come several to a chunk (drafts, streaming): tools that count chunks then see fewer, longer gaps. Reasoning tokens, which
# some tools count as output and others do not.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask of every number which tokens it divides by, whether the first is among them, and whether prompts count.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A tool prints 10 s end to end, 2 s to the first token, 401 tokens. What are TPOT and interactivity, and what does LLMPerf print?
#
# ```{admonition} Answer
# :class: dropdown
# 8 s / 400 = 20 ms, 50 tokens a second; 10 s / 401 = 24.9 ms, a quarter more.
# ```
#
# **2.** A server makes 2,000 tokens of answers a second from prompts four times as long as the answers. What is its total throughput?
#
# ```{admonition} Answer
# :class: dropdown
# 2,000 x (1 + 4) = 10,000 tokens a second. Comparing it with another's 2,500 output tokens a second says nothing.
# ```
#
# **3.** Steps take 20 ms, a prompt 200 ms, and during an answer of 101 tokens five other prompts are read. What are ITL and TPOT?
#
# ```{admonition} Answer
# :class: dropdown
# 95 gaps of 20 ms and five of 220 ms: median 20 ms, TPOT (100 x 20 + 5 x 200) / 100 = 30 ms, half more than the step.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
charts.table(
    common.bibliography({row.source for row in tables.counted()} | set(seen.source.str.partition(",")[0])),
    caption="Sources of the definitions and of the runs",
    download="sources",
)
