// The desk of the first page. Its answers were computed by the library; here they are multiplied with prices, whole
// instances are counted, and systems are put in order.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".trn-desk");
  if (!place) return;
  const data = JSON.parse(place.querySelector("script").textContent);
  const HOURS = data.month_h;
  const TIED = data.tied; // of a figure, up to which two systems do the same
  const [SURE, LIKELY] = [0.95, 0.75]; // shares of the draws
  const DRAWN = 10; // quantiles that are stored of a price
  const SIDES = ["Trainium", "GPU"];
  const CHEAPEST = "cheapest"; // of the GPUs, by their bill
  const SCOPES = { rent: "for rent today", announced: "announced", all: "all" };
  const PAID = { rent: "rented from AWS", market: "rented at market", own: "owned" };
  const PUBLIC = ["documented", "no drafts"]; // software that somebody ships
  const SOFTWARE = { documented: "documented", "no drafts": "documented, no drafts", "hand-tuned": "hand-tuned (a scenario)", ideal: "ideal (a limit)" };
  const MEASURES = { perM: "$ per million tokens", made: "tokens/s per chip", joule: "J per token" };
  const TITLES = { perM: "What a million tokens cost at each promised speed", made: "What a chip makes at each promised speed", joule: "What a token takes at each promised speed" };
  const SVG = "http://www.w3.org/2000/svg";

  // Text ------------------------------------------------------------------------------------------------------------

  const rounded = (value, digits) => Number(value.toPrecision(digits));
  const plain = (value, digits) => rounded(value, digits).toLocaleString("en-US", { maximumFractionDigits: 6 });
  const number = (value, digits = 3) => (value === null || !Number.isFinite(value) ? "–" : plain(value, digits));
  const dollars = (value, digits) => (value >= 1e6 ? `$${plain(value / 1e6, digits)}M` : `$${plain(value, digits)}`);
  const usd = (value, digits = 3) => (Number.isFinite(value) && value !== null ? dollars(value, digits) : "–");
  const of100 = (share) => `${Math.round(100 * share)} of 100 draws`;

  function element(name, text, more = {}) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(more)) made.setAttribute(key, value);
    return made;
  }

  // State -----------------------------------------------------------------------------------------------------------

  const named = ([prompt, answer]) => `${prompt},${answer}`;
  const inWords = ([prompt, answer]) => `${prompt.toLocaleString("en-US")} in, ${answer.toLocaleString("en-US")} out`;
  const options = (values, words = (value) => value) => values.map((value) => [String(value), words(value)]);
  const CONTROLS = [ // name, label, and the values to choose from, or the ends of a number
    ["model", "Model", options(data.models)],
    ["speed", "Promised tokens/s per user", options(data.speeds)],
    ["length", "Tokens of prompt and answer", data.lengths.map((one) => [named(one), inWords(one)])],
    ["ttft", "First token", [["", "no limit"], ...data.limits.map((limit) => [String(limit), `within ${limit} s`])]],
    ["users", "Users at once", [1, 1e6]],
    ["paid", "Chips are", Object.entries(PAID)],
    ["scope", "Trainium that counts", Object.entries(SCOPES)],
    ["software", "Software", options(data.software, (one) => SOFTWARE[one] ?? one)],
    ["trainium", "Own price, Trainium [$/chip-hour]", [0.001, 1000]],
    ["gpu", "Own price, GPU [$/chip-hour]", [0.001, 1000]],
    ["electricity", "Electricity [$/kWh]", [0, 10]],
    ["beside", "Beside it", [[CHEAPEST, "the cheapest GPU"], ...data.systems.map(({ id, name }) => [id, name])]],
    ["measure", "Axis", Object.entries(MEASURES)],
  ];
  const { chosen } = data;
  const FIRST = {
    model: chosen.model, speed: String(chosen.tokens_per_s_per_user), length: named([chosen.input_tokens, chosen.output_tokens]), ttft: "",
    users: String(chosen.users), scope: "rent", software: "documented", paid: "rent", trainium: "", gpu: "", electricity: "", beside: CHEAPEST, measure: "perM",
  };
  const state = { ...FIRST };

  // A value that a control can have; anything else in an address is left out.
  function allowed(name, text) {
    const [, , values] = CONTROLS.find(([one]) => one === name);
    if (Array.isArray(values[0])) return values.some(([value]) => value === text);
    if (text === "") return FIRST[name] === "";
    const value = Number(text);
    return Number.isFinite(value) && value >= values[0] && value <= values[1];
  }

  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!CONTROLS.some(([name]) => asked.has(name))) return false;
    for (const [name] of CONTROLS) state[name] = asked.has(name) && allowed(name, asked.get(name)) ? asked.get(name) : FIRST[name];
    return true;
  }

  function writeAddress() {
    const changed = Object.entries(state).filter(([name, value]) => name === "model" || value !== FIRST[name]);
    history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
  }

  // The state as if some controls stood otherwise.
  function asIf(changes, ask) {
    const now = { ...state };
    try {
      Object.assign(state, changes);
      return ask();
    } finally {
      Object.assign(state, now);
    }
  }

  // Answers ---------------------------------------------------------------------------------------------------------

  const ofHundredths = (stored) => stored?.map((one) => one / 100);

  // The price of a chip-hour with its quantiles; null where nobody publishes one.
  function price(system) {
    const own = state[system.gpu ? "gpu" : "trainium"];
    if (own !== "") return { usd: Number(own), drawn: Array(DRAWN).fill(Number(own)) };
    const as = state.paid === "market" && !system.prices.market ? "rent" : state.paid; // AWS alone rents its chips out
    const stored = system.prices[as];
    if (!stored) return null;
    const [middle, ...ratios] = stored;
    let more = 0;
    if (state.paid === "own" && state.electricity !== "" && system.electricity) {
      const [usual, kwh] = system.electricity;
      more = (Number(state.electricity) - usual) * kwh;
    }
    return { usd: middle + more, drawn: ofHundredths(ratios).map((ratio) => ratio * middle + more), as: more ? null : as };
  }

  // Whole instances that serve a rate of requests, from the largest load that so many of them serve together.
  const instances = (loads, rate) => Math.min(...loads.map(([several, load]) => several * Math.ceil((rate / load) * (1 - 1e-12))));

  const quantile = (sorted, share) => {
    const at = share * (sorted.length - 1);
    const low = Math.floor(at);
    return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  };
  const ends = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    return [quantile(sorted, 0.05), quantile(sorted, 0.95)];
  };

  function rate(speed = state.speed) {
    const [, answer] = state.length.split(",").map(Number);
    return (Number(state.users) * Number(speed)) / answer;
  }

  // Whether the limit of the first token is computed for the lengths and the software.
  const limited = () => state.ttft !== "" && state.software === "documented" && `${state.model},${state.length},documented,${state.ttft}` in data.points;

  // What is shown of a system at a speed; null where the model does not fit.
  function answered(at, speed) {
    const of = (kind) => data.points[`${state.model},${state.length},${kind}`]?.[String(at)];
    // A state has rows of its own where they are others than those of the one that it is a part of.
    const rows = (limited() && of(`documented,${state.ttft}`)) || of(state.software) || (state.software === "no drafts" && of("documented"));
    const row = data.rows[rows?.[data.speeds.indexOf(Number(speed))]];
    if (!row) return null;
    const system = data.systems[at];
    if (row.length === 1) return { system, at, fast: false, reached: row[0] };
    const [made, ttft, joule, degrees, batch, loads, basis, chance, hundredths, madeEnds, ttftEnds, costs, partsUs, chipUs, replica] = row;
    const drawn = ofHundredths(hundredths);
    const paid = price(system);
    const count = instances(loads, rate(speed));
    const found = {
      system, at, fast: true, made, ttft, joule, paid, loads, chance, drawn, madeEnds, ttftEnds, parts: partsUs?.map((us) => us / 1e6), chipS: chipUs / 1e6,
      mapping: data.texts[degrees].replace("batch #", `batch ${batch}`), batch, replica,
      basis: basis === undefined ? "" : data.texts[basis],
      instances: count,
      chips: count * system.chips,
      kw: joule === null ? null : (joule * Number(state.users) * Number(speed)) / 1000,
      siteKw: system.site_kw === null ? null : count * system.site_kw,
      perM: paid ? (paid.usd / 3600 / made) * 1e6 : null,
      bill: paid ? count * system.chips * paid.usd * HOURS : null,
    };
    if (drawn?.length) {
      found.counts = drawn.map((ratio) => instances(loads.map(([several, load]) => [several, load * ratio]), rate(speed)));
      found.countEnds = [Math.min(count, ...found.counts), Math.max(count, ...found.counts)];
      found.siteKwEnds = found.countEnds.map((n) => n * system.site_kw);
      if (paid) {
        const stored = paid.as && costs[data.paid.indexOf(paid.as)];
        found.perMEnds = stored || ends(paid.drawn.flatMap((one) => drawn.map((ratio) => (one / 3600 / (made * ratio)) * 1e6)));
        found.bills = paid.drawn.flatMap((one) => found.counts.map((n) => n * system.chips * one * HOURS));
        const [low, high] = ends(found.bills);
        found.billEnds = [Math.min(low, found.bill), Math.max(high, found.bill)];
      }
    }
    return found;
  }

  const counts = (system) => system.gpu || state.scope === "all" || system.status === (state.scope === "rent" ? "for rent" : "announced");
  const all = (speed) => data.systems.map((_, at) => answered(at, speed)).filter((one) => one && counts(one.system));

  // The systems of a side, the best first: by the bill where one is known, else by the chips. Ties go to what can be
  // rented, to fewer instances, then to the order of the catalog.
  function ordered(side, speed = state.speed) {
    const mine = all(speed).filter((one) => one.system.gpu === (side === "GPU") && one.fast);
    const priced = mine.filter((one) => one.bill !== null);
    const some = priced.length ? priced : mine;
    const figure = priced.length ? "bill" : "chips";
    some.sort((one, other) => one[figure] - other[figure]);
    if (!some.length) return { best: null, tied: [] };
    const least = some[0][figure];
    const tied = some.filter((one) => one[figure] <= least * (1 + TIED));
    tied.sort((one, other) => (one.system.status === "announced") - (other.system.status === "announced") || one.instances - other.instances || one.at - other.at);
    return { best: tied[0], tied: tied.slice(1) };
  }

  // The share of the draws in which the first of two is less, of those in which both keep the promise. Software of one
  // chip is the same draw on both systems; other draws are taken as independent.
  function lessOfKept(one, other, drawn) {
    const before = (a, b) => (a < b ? 1 : a > b ? 0 : 0.5);
    const [ours, theirs] = [drawn(one), drawn(other)];
    const same = one.system.chip === other.system.chip;
    const pairs = same ? ours.map((a, i) => before(a, theirs[i])) : ours.flatMap((a) => theirs.map((b) => before(a, b)));
    return pairs.reduce((sum, pair) => sum + pair, 0) / pairs.length;
  }

  // The share of all draws in which the first of two is less. Who breaks the promise loses; if both do, each has half.
  function less(one, other, drawn) {
    const [ours, theirs] = [one.chance, other.chance];
    const both = one.system.chip === other.system.chip ? Math.min(ours, theirs) : ours * theirs;
    return both * lessOfKept(one, other, drawn) + (ours - both) + (1 - ours - theirs + both) / 2;
  }

  const cheaper = (one, other) => less(one, other, ({ bills }) => bills);
  const faster = (one, other) => less(one, other, ({ drawn, made }) => drawn.map((ratio) => -ratio * made));

  // Who of two has the lower bill, by the share of draws in which the first one has; 0 for a tie. Neither is safe where
  // both break the promise in more draws than a verdict allows.
  function ahead(one, other) {
    const share = Math.round(100 * cheaper(one, other)) / 100; // as it is printed
    const unsafe = Math.max(one.chance, other.chance) < LIKELY;
    const who = unsafe ? 0 : share >= LIKELY ? 1 : share <= 1 - LIKELY ? -1 : 0;
    return { share, who, unsafe, sure: Math.max(share, 1 - share) >= SURE };
  }

  const billed = (...pair) => pair.every((one) => one.bills);

  const besideAt = () => data.systems.findIndex(({ id }) => id === state.beside);

  // What stands beside the chosen Trainium: the GPUs with the lowest bill, or the system that is asked for.
  function rival(speed = state.speed) {
    if (state.beside === CHEAPEST) return ordered("GPU", speed).best;
    const found = answered(besideAt(), speed);
    return found?.fast ? found : null;
  }

  const couple = (speed) => [ordered("Trainium", speed).best, rival(speed)];

  // Systems that count and have no price, although they make more than the chosen one.
  function unpriced(one) {
    if (!one || one.bill === null) return [];
    return all(state.speed).filter((other) => other.fast && other.bill === null && other.system.gpu === one.system.gpu && other.made > one.made * (1 + TIED));
  }

  const tiePrice = (one, other) => (other.paid ? (other.paid.usd * one.made) / other.made : null);

  // The verdict -----------------------------------------------------------------------------------------------------

  function lacking(side) {
    if (side === "GPU" && state.beside !== CHEAPEST) {
      const at = besideAt();
      const slow = answered(at, state.speed);
      if (slow && slow.reached >= Number(state.speed)) return `${data.systems[at].name} breaks the promise: prompts or the first token take too long.`;
      return slow ? `${data.systems[at].name} gives a user at most ${number(slow.reached, 2)} tokens/s.` : `${state.model} does not fit ${data.systems[at].name}.`;
    }
    const slow = all(state.speed).filter((one) => one.system.gpu === (side === "GPU"));
    const scope = side === "GPU" || state.scope === "all" ? "" : ` that is ${SCOPES[state.scope]}`;
    if (!slow.length) return `${state.model} fits no ${side} system${scope}.`;
    const nearest = slow.reduce((best, one) => (one.reached > best.reached ? one : best));
    if (nearest.reached >= Number(state.speed)) return `No ${side} system${scope} keeps the promise: prompts or the first token take too long.`;
    return `No ${side} system${scope} gives a user ${state.speed} tokens/s: ${nearest.system.name} comes nearest with ${number(nearest.reached, 2)}.`;
  }

  const differs = (one, other) => !one?.fast || one.made !== other.made;

  // Which of two systems count on drafts.
  function drafting(pair) {
    if (state.software !== "documented") return [];
    return pair.filter((one) => differs(asIf({ software: "no drafts" }, () => answered(one.at, state.speed)), one));
  }

  // What the verdict would be if one thing that is asked for stood otherwise.
  function turns(pair) {
    if (!pair.every(Boolean) || state.software !== "documented" || state.beside !== CHEAPEST) return [];
    const limit = String(data.limits[0]);
    const cases = [
      [`First tokens within ${limit} s`, { ttft: limit }, state.ttft === "" && asIf({ ttft: limit }, limited)],
      ["GPUs at market rents", { paid: "market" }, state.paid === "rent" && state.trainium === "" && state.gpu === ""],
      ["No drafts", { software: "no drafts" }, !limited() && drafting(pair).length > 0],
    ];
    const same = (one, now) => one && now.at === one.at && Math.abs(one.bill / now.bill - 1) <= TIED;
    return cases.filter(([, , there]) => there).map(([words, changes]) => asIf(changes, () => {
      const [ours, gpu] = couple();
      if (same(ours, pair[0]) && same(gpu, pair[1])) return null;
      if (!ours || !gpu) return `${words}: ${lacking(ours ? "GPU" : "Trainium")}`;
      if (!billed(ours, gpu)) return null;
      const { share, who, unsafe, sure } = ahead(ours, gpu);
      const low = ours.bill <= gpu.bill ? ours : gpu;
      const first = who > 0 ? ours : who < 0 ? gpu : low;
      const verdict = unsafe ? "neither is safe" : who === 0 ? "a tie" : `${first.system.name} ${sure ? "costs" : "probably costs"} less`;
      const high = low === ours ? gpu : ours;
      const often = unsafe ? "" : ` (${first.system.name} is cheaper in ${of100(first === ours ? share : 1 - share)})`;
      return `${words}: ${verdict}, ${usd(low.bill)} on ${low.system.name} against ${usd(high.bill)} on ${high.system.name}${often}.`;
    })).filter(Boolean);
  }

  const served = (one) => `${number(one.instances, 6)} ${one.instances === 1 ? "instance" : "instances"} of ${one.system.name} ${one.instances === 1 ? "costs" : "cost"} ${usd(one.bill)} per month`;

  const UNPRICED = { rent: "AWS publishes no rent of", market: "No seller publishes a rent of", own: "Nobody publishes a price of the chips of" };

  // A heading, and the sentences below it.
  function verdict(ours, gpu) {
    if (!ours || !gpu) return ["No comparison.", [ours ? "" : lacking("Trainium"), gpu ? "" : lacking("GPU")].filter(Boolean).join(" ")];
    const names = [ours.system.name, gpu.system.name];
    const tie = tiePrice(ours, gpu);
    const tied = tie === null ? "" : `A token costs the same on both if an hour of a ${names[0]} chip costs ${usd(tie)}.`;
    if (!PUBLIC.includes(state.software)) return ["No verdict.", `Nobody ships such software. ${tied}`];
    const rare = [ours, gpu].filter(({ chance }) => Math.round(100 * chance) < 100 * SURE).map((one) => `${one.system.name} keeps it in ${Math.round(100 * one.chance)}`);
    const broken = rare.length ? ` A system that breaks the promise in a draw loses that draw: ${rare.join(", and ")} of 100.` : "";
    if (!billed(ours, gpu)) {
      const none = ours.bill === null ? ours : gpu;
      const makes = `A chip of ${names[0]} makes ${number(ours.made / gpu.made, 2)} times the tokens of a chip of ${names[1]}, and more of them in ${of100(faster(ours, gpu))}.`;
      return ["No price, no verdict.", `${UNPRICED[state.paid]} ${none.system.name}, so the bills cannot be compared. ${makes}${broken} ${ours.bill === null ? tied : ""}`];
    }
    const { share, who, unsafe, sure } = ahead(ours, gpu);
    const [low, high] = ours.bill <= gpu.bill ? [ours, gpu] : [gpu, ours];
    const bills = `${served(low)}, and ${served(high)}.`;
    const first = who > 0 ? ours : who < 0 ? gpu : low;
    if (unsafe) return ["Neither is safe.", `Each breaks the promise in many of the draws of what nobody publishes: ${rare.join(", and ")} of 100. ${bills} Promise less, or measure first.`];
    const often = `We varied what nobody publishes about software and prices a thousand times: ${first.system.name} is cheaper in ${of100(first === ours ? share : 1 - share)}.`;
    const some = drafting([ours, gpu]).map(({ system }) => system.name).join(" and ");
    const drafts = some ? ` The figures of ${some} count on drafts: a small model proposes tokens, and the large one checks them. No draw varies their gain, which is that of a published run.` : "";
    const heading = who === 0 ? `A tie: what nobody knows outweighs the difference.` : `${first.system.name} ${sure ? "costs" : "probably costs"} less.`;
    return [heading, `${bills} ${often}${broken}${drafts}`];
  }

  // What sellers of the model by the token ask.
  function hostedPrices() {
    const [prompt, answer] = state.length.split(",").map(Number);
    const asked = data.hosted[state.model].map(([seller, date, paidIn, paidOut]) => `${seller} asks ${usd((paidIn * prompt) / answer + paidOut, 3)} (${date})`);
    return asked.length ? [`Outside prices: per million generated tokens with their prompts, ${asked.join(", and ")}. They promise no speed, so that they may fill larger batches.`] : [];
  }

  // What would change it: prices, speeds, and software.
  function flips(ours, gpu) {
    const found = [];
    if (!ours || !gpu) return found;
    const tie = tiePrice(ours, gpu);
    if (tie !== null) {
      const now = ours.paid ? ` instead of ${usd(ours.paid.usd)}` : "";
      found.push(`Price: at ${usd(tie)} per chip-hour${now}, a token on ${ours.system.name} costs what it costs on ${gpu.system.name}.`);
    }
    if (PUBLIC.includes(state.software) && billed(ours, gpu)) {
      const other = state.beside === CHEAPEST ? "a GPU" : gpu.system.name;
      const signs = data.speeds.map((speed) => {
        const [one, beside] = couple(speed);
        if (!one && !beside) return null;
        if (!one || !beside) return one ? `${other} is too slow` : "no Trainium is fast enough";
        if (!billed(one, beside)) return "a price is missing";
        const { who, unsafe, sure } = ahead(one, beside);
        if (unsafe) return "neither is safe";
        return [`${other} SURE costs less`, "a tie", `${state.beside === CHEAPEST ? "Trainium" : one.system.name} SURE costs less`][who + 1].replace("SURE ", sure ? "" : "probably ");
      });
      const runs = [];
      signs.forEach((sign, i) => (sign && sign === runs[runs.length - 1]?.sign ? (runs[runs.length - 1].to = data.speeds[i]) : sign && runs.push({ sign, from: data.speeds[i], to: data.speeds[i] })));
      found.push(`Speed: ${runs.map(({ sign, from, to }) => `${sign} at ${from === to ? from : `${from} to ${to}`}`).join("; ")} tokens/s per user.`);
      const [one, rest] = asIf({ software: "ideal" }, () => couple());
      if (one && rest && one.bill !== null && rest.bill !== null) found.push(`Software: if all of it were ideal, the cheapest systems would be ${one.system.name} at ${usd(one.bill)} per month and ${rest.system.name} at ${usd(rest.bill)}.`);
    }
    return found;
  }

  // Pictures and tables ---------------------------------------------------------------------------------------------

  function shape(name, more) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(more)) made.setAttribute(key, value);
    return made;
  }

  // A value with its range, on an axis of powers that both cells of a row share; dashed where it may be wider.
  function whisker(value, range, [least, most], open) {
    const picture = shape("svg", { viewBox: "0 0 200 12", class: `trn-whisker${open ? " trn-open-range" : ""}`, "aria-hidden": "true" });
    const x = (at) => 4 + (192 * Math.log(at / least)) / Math.log(most / least || 1) || 4;
    if (range) picture.append(shape("line", { x1: x(range[0]), x2: x(range[1]), y1: 6, y2: 6 }));
    picture.append(shape("circle", { cx: x(value), cy: 6, r: 4 }));
    return picture;
  }

  const RESTS = { measured: "published runs lie at this point", interpolated: "published runs lie near", extrapolated: "no published run lies near", ideal: "nothing is lost" };
  const FIGURES = [ // heading, value, range, text
    ["Bill per month", "bill", "billEnds", usd],
    ["$ per million tokens, prompts paid", "perM", "perMEnds", usd],
    ["Instances", "instances", "countEnds", number],
    ["Tokens/s per chip", "made", "madeEnds", number],
    ["First token, 99 of 100 within [s]", "ttft", "ttftEnds", number],
    ["J per token at the server", "joule", "", number],
    ["Mean power of the servers [kW]", "kw", "", number],
    ["Provisioned at the site [kW]", "siteKw", "siteKwEnds", number],
  ];

  // Whether nobody has measured a server of the chip, so that the drawn range may be too narrow.
  const unserved = ({ system }) => data.measured[system.chip][2] === 0;

  const times = (count, one, many) => (count === 0 ? `no ${many}` : `${plain(count, 4)} ${count === 1 ? one : many}`);

  // On how many measured configurations of its chip the range of a system rests.
  function rests({ system, basis }) {
    const [steps, , served] = data.measured[system.chip];
    const word = basis.split(" ")[0];
    return `${basis}: ${RESTS[word] ?? ""}. Measured on this chip: ${times(steps, "step or prompt", "steps and prompts")}, ${times(served, "run of a server", "runs of servers")}.`;
  }

  // A range in words.
  function inBrackets(one, value, [low, high], text) {
    const few = rounded(low, 2) > one[value] || rounded(high, 2) < one[value] ? 3 : 2; // digits, so that the value lies inside
    return `${text(low, few)} to ${text(high, few)}${unserved(one) ? " or wider" : ""}`;
  }

  // Where most of the chip time goes.
  function bounds(one) {
    if (!one?.parts) return "–";
    const all = one.parts.map((value, i) => [value, data.parts[i]]).sort((a, b) => b[0] - a[0]);
    return all.slice(0, 2).map(([value, part]) => `${part} (${Math.round((100 * value) / one.chipS)} %)`).join(", ");
  }

  function sides(pair) {
    const table = element("table", undefined, { class: "trn-sides" });
    const users = `${plain(Number(state.users), 7)} ${state.users === "1" ? "user" : "users"}`;
    table.createCaption().textContent = state.beside === CHEAPEST ? `The Trainium and the GPU system with the lowest bill for ${users}` : `The Trainium with the lowest bill for ${users}, and what you chose`;
    const head = table.createTHead().insertRow();
    head.append(element("td", ""), ...pair.map((one, i) => {
      const cell = element("th", one ? one.system.name : `no ${i && state.beside !== CHEAPEST ? "answer" : SIDES[i]}`, { scope: "col", "data-system": one?.system.id ?? "" });
      if (one) cell.append(element("small", one.system.is));
      return cell;
    }));
    const body = table.createTBody();
    for (const [title, value, range, text] of FIGURES) {
      const known = pair.filter((one) => one && Number.isFinite(one[value]) && one[value] > 0);
      const spread = known.flatMap((one) => [one[value], ...(one[range] ?? [])]).filter((at) => at > 0);
      const axis = [Math.min(...spread), Math.max(...spread)];
      const row = body.insertRow();
      row.dataset.figure = value;
      row.append(element("th", title, { scope: "row" }));
      for (const one of pair) {
        const cell = row.insertCell();
        if (!known.includes(one)) {
          cell.textContent = one && value === "bill" ? "no price published" : "–";
          continue;
        }
        const drawn = one[range]?.every((end) => end !== null);
        const within = drawn ? ` (${inBrackets(one, value, one[range], text)})` : "";
        cell.dataset.value = one[value];
        cell.append(element("b", text(one[value])), element("span", within), ...(drawn ? [whisker(one[value], one[range], axis, unserved(one))] : []));
      }
    }
    const kept = body.insertRow();
    kept.append(element("th", "The promise holds in", { scope: "row" }), ...pair.map((one) => element("td", one && one.chance !== undefined ? of100(one.chance) : "–")));
    const hour = body.insertRow();
    const paidBy = (one) => (one.system.prices[state.paid] ? state.paid : "rent");
    const SOLD = { rent: "AWS Capacity Blocks, ", market: "" }; // instances that AWS rents out by the day
    const dated = (one) => (state[one.system.gpu ? "gpu" : "trainium"] !== "" ? "your own" : state.paid === "own" ? "our estimate" : `${SOLD[paidBy(one)]}${one.system.dates[paidBy(one)]}`);
    hour.append(element("th", "Price of a chip-hour", { scope: "row" }), ...pair.map((one) => element("td", one?.paid ? `${usd(one.paid.usd)} (${dated(one)})` : "–")));
    const most = body.insertRow();
    most.append(element("th", "Most chip time goes to", { scope: "row" }), ...pair.map((one) => element("td", bounds(one), { class: "trn-mapping" })));
    const how = body.insertRow();
    const words = element("th", "How it is served", { scope: "row" });
    words.append(element("small", "TP: cores or GPUs that share a layer; batch: sequences at once"));
    how.append(words, ...pair.map((one) => element("td", one?.mapping ?? "–", { class: "trn-mapping" })));
    const ground = body.insertRow();
    ground.append(element("th", "What it rests on", { scope: "row" }), ...pair.map((one) => element("td", one?.basis ? rests(one) : "–", { class: "trn-mapping" })));
    return table;
  }

  function chipTime(pair) {
    const some = pair.filter((one) => one?.parts);
    if (!some.length) return element("p", "The chip time of a token is taken apart for documented software only.");
    const most = Math.max(...some.flatMap((one) => one.parts));
    const table = element("table", undefined, { class: "trn-parts" });
    table.createCaption().textContent = "Where the chip time of a generated token goes [ms]";
    const head = table.createTHead().insertRow();
    head.append(element("td", ""), ...some.map((one) => element("th", one.system.name, { scope: "col" })));
    const body = table.createTBody();
    data.parts.forEach((part, i) => {
      if (some.every((one) => one.parts[i] === 0 && i < data.parts.length - 1)) return;
      const row = body.insertRow();
      row.append(element("th", part, { scope: "row" }));
      for (const one of some) {
        const before = one.parts.slice(0, i).reduce((sum, value) => sum + value, 0);
        const total = Math.max(...some.map((each) => each.parts.reduce((sum, value) => sum + value, 0)), most);
        const picture = shape("svg", { viewBox: "0 0 200 12", class: "trn-part", "aria-hidden": "true" });
        picture.append(shape("rect", { x: (200 * before) / total, width: Math.max(0.5, (200 * one.parts[i]) / total), y: 1, height: 10 }));
        const cell = row.insertCell();
        cell.append(element("span", number(1000 * one.parts[i], 2)), picture);
      }
    });
    const sum = (one) => one.parts.reduce((total, value) => total + value, 0);
    const rest = body.insertRow();
    rest.append(element("th", "less what runs side by side", { scope: "row" }), ...some.map((one) => element("td", number(1000 * Math.min(one.chipS - sum(one), 0), 2))));
    const whole = body.insertRow();
    whole.append(element("th", "together", { scope: "row" }), ...some.map((one) => element("td", number(1000 * one.chipS, 3))));
    const taken = document.createDocumentFragment();
    taken.append(table, element("p", data.residual, { class: "trn-sure" }));
    return taken;
  }

  function everySystem() {
    const some = all(state.speed);
    const base = rival();
    const table = element("table", undefined, { class: "trn-every" });
    table.createCaption().textContent = `All systems at ${state.speed} tokens/s per user, the lowest bill first${base?.fast ? `, compared with ${base.system.name}` : ""}`;
    const heads = ["System", "$ per month", "$ per million tokens", "Instances", "Tokens/s per chip", base?.fast ? `times ${base.system.name}` : "compared", "J per token", "First token [s]", "Status"];
    table.createTHead().insertRow().append(...heads.map((head) => element("th", head, { scope: "col" })));
    const body = table.createTBody();
    const order = (one) => (!one.fast ? [2, -one.reached] : one.bill === null ? [1, -one.made] : [0, one.bill]); // those without a bill by what they make
    const before = ([kind, figure], [other, its]) => kind - other || figure - its;
    for (const one of some.sort((a, b) => before(order(a), order(b)))) {
      const row = body.insertRow();
      const texts = one.fast
        ? [usd(one.bill), usd(one.perM), number(one.instances, 6), number(one.made), base?.fast ? `${number(one.made / base.made, 2)} ×` : "–", number(one.joule), number(one.ttft), one.system.status]
        : [one.reached < Number(state.speed) ? `too slow: ${number(one.reached, 2)} tokens/s per user` : "breaks the promise: prompts or the first token take too long", ...Array(6).fill("–"), one.system.status];
      const title = one.billEnds ? { title: `bill per month: ${inBrackets(one, "bill", one.billEnds, usd)}` } : {};
      row.append(element("th", one.system.name, { scope: "row" }), ...texts.map((text, i) => element("td", text, i === 0 ? title : {})));
    }
    return table;
  }

  // Names at the ends of the lines, those of the pair first; a name that would lie on another one is left to the pointer.
  const [PLOT, GAP, LONG, ROOM] = [260, 13, 0.6, 2.4]; // height of the plot and of a name [px]; length of a name and room on the right, in speeds
  function nameEnds(rows, others) {
    const spread = rows.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]).map(Math.log);
    const gap = (GAP * (Math.max(...spread) - Math.min(...spread))) / PLOT;
    const ends = rows.filter((row, i) => rows[i + 1]?.system !== row.system);
    const [chosen, rest] = [ends.filter(({ line }) => line !== others), ends.filter(({ line }) => line === others)];
    const placed = [];
    const near = (row, y) => placed.filter((one) => Math.abs(Math.log(row.speed / one.speed)) < LONG && Math.abs(y - one.y) < gap);
    const name = (row, y) => {
      placed.push({ speed: row.speed, y });
      Object.assign(row, { name: row.system, name_at: Math.exp(y) });
    };
    for (const row of chosen.sort((a, b) => a.value - b.value)) name(row, Math.max(Math.log(row.value), ...near(row, Math.log(row.value)).map(({ y }) => y + gap)));
    for (const row of rest) if (!near(row, Math.log(row.value)).length) name(row, Math.log(row.value));
  }

  // The chart that follows reads its rows from here, and is drawn again.
  function drawFrontier(pair) { // the chosen pair is drawn last, over its twins
    const chart = place.closest(".cell")?.parentElement?.querySelector(".trn-chart") ?? document.querySelector(".trn-chart");
    const script = chart?.querySelector("script");
    if (!script) return;
    const spec = JSON.parse(script.textContent);
    if (spec.usermeta?.desk !== true) return;
    const rows = [];
    const scale = spec.layer[0].encoding.color.scale;
    const others = scale.domain[scale.domain.length - 1]; // as `charts.desk` names them
    const colours = chart.pairColours ??= scale.range;
    const chosen = pair.filter(Boolean).filter((one, i, every) => every.findIndex(({ at }) => at === one.at) === i);
    const shown = { domain: [...chosen.map(({ system }) => system.name), others], range: [...chosen.map((one) => colours[pair.indexOf(one)]), colours[colours.length - 1]] };
    for (const { encoding } of spec.layer) if (encoding?.color) Object.assign(encoding.color.scale, shown);
    data.systems.forEach((system, at) => {
      if (!counts(system)) return;
      const mine = data.speeds.map((speed) => [speed, answered(at, speed)]).filter(([, one]) => one?.fast && Number.isFinite(one[state.measure]) && one[state.measure] !== null);
      mine.forEach(([speed, one]) => {
        const named = chosen.some((each) => each.at === at);
        const within = one[`${state.measure}Ends`];
        const bound = one.parts ? data.parts[one.parts.indexOf(Math.max(...one.parts))] : "";
        rows.push({
          system: system.name, line: named ? system.name : others, speed, value: one[state.measure],
          low: named && within ? within[0] : null, high: named && within ? within[1] : null,
          mapping: one.mapping, bound, basis: one.basis, band: within?.every((end) => end !== null) ? inBrackets(one, state.measure, within, state.measure === "perM" ? usd : number) : "none drawn",
        });
      });
    });
    nameEnds(rows, others);
    if (rows.length) rows.push({ ...rows[0], value: null, low: null, high: null, name: null, chosen: true, speed: Number(state.speed) });
    for (const { encoding } of spec.layer) if (encoding?.x) encoding.x.axis = { ...encoding.x.axis, values: data.speeds.filter((speed) => [1, 2, 5].includes(speed / 10 ** Math.floor(Math.log10(speed)))) };
    for (const { encoding } of spec.layer) if (encoding?.x) encoding.x.scale = { ...encoding.x.scale, domain: [data.speeds[0], ROOM * data.speeds[data.speeds.length - 1]] };
    rows.sort((a, b) => (a.line === others ? 0 : 1) - (b.line === others ? 0 : 1));
    spec.title.text = TITLES[state.measure];
    spec.datasets = undefined;
    spec.data = { name: "desk", values: rows };
    for (const { encoding } of spec.layer) {
      if (encoding?.y && "title" in encoding.y) encoding.y.title = MEASURES[state.measure];
      for (const shown of encoding?.tooltip ?? []) if (shown.field === "value") shown.title = MEASURES[state.measure];
    }
    const under = `${state.model}, ${inWords(state.length.split(",").map(Number))}, ${SOFTWARE[state.software] ?? state.software} software`;
    spec.usermeta.under = [under];
    script.textContent = JSON.stringify(spec);
    chart.dispatchEvent(new Event("trn-changed"));
  }

  // The lines at the terminal: what each chip of a pair makes, and the bill of the first.
  function commands(pair) {
    const [prompt, answer] = state.length.split(",");
    const software = state.software === "documented" ? "" : ` --stack ${state.software.replace("no drafts", "no-speculation")}`;
    const asked = `--speed ${state.speed} --in ${prompt} --out ${answer}${state.ttft ? ` --ttft ${state.ttft}` : ""}${software}`;
    const ids = pair.filter(Boolean).map(({ system }) => system.id);
    const bill = `trnmodel plan ${state.model} ${asked} --users ${state.users}`;
    return ids.length ? [`trnmodel compare ${state.model} ${ids.join(" ")} ${asked}`, `${bill} --systems ${ids[0]}`] : [bill];
  }

  // The page --------------------------------------------------------------------------------------------------------

  const form = element("form", undefined, { "aria-label": "What is asked" });
  const inputs = new Map();
  const later = new Set(["measure"]);
  const FEW = new Set(["model", "speed", "length", "ttft", "users", "paid"]); // the rest is folded
  const bar = element("div", undefined, { class: "trn-controls trn-axis" });
  const more = element("details", undefined, { class: "trn-more" });
  const wrong = element("p", "", { class: "trn-wrong", role: "alert" });
  const rest = element("div", undefined, { class: "trn-controls" });
  const few = element("div", undefined, { class: "trn-controls" });
  more.append(element("summary", "More: software, announced systems, another rival, your own prices"), rest);
  for (const [name, label, values] of CONTROLS) {
    const whole = element("label");
    whole.append(element("span", label));
    const listed = Array.isArray(values[0]);
    const input = element(listed ? "select" : "input", undefined, { name });
    if (listed) input.append(...values.map(([value, text]) => element("option", text, { value })));
    else Object.assign(input, { type: "number", min: values[0], max: values[1], step: "any", inputMode: "decimal", placeholder: FIRST[name] || "published" });
    input.addEventListener("input", () => {
      const fine = allowed(name, input.value);
      input.setAttribute("aria-invalid", String(!fine));
      wrong.textContent = fine ? "" : `${label}: allowed is a number from ${number(values[0])} to ${number(values[1], 7)}. The answer is still the one for ${state[name] || "the published price"}.`;
      if (!fine) return;
      state[name] = input.value;
      writeAddress();
      show();
    });
    whole.append(input);
    inputs.set(name, input);
    (later.has(name) ? bar : FEW.has(name) ? few : rest).append(whole);
  }
  form.append(few, more, wrong);
  form.addEventListener("submit", (event) => event.preventDefault());
  const said = element("p", "", { class: "trn-verdict", role: "status" });
  const ties = element("ul", undefined, { class: "trn-ties" });
  const reading = element("details", undefined, { class: "trn-reading" });
  const rules = element("ul", undefined, { class: "trn-ties" });
  reading.append(element("summary", "How to read these figures: ranges, chances, drafts and names"), rules);
  const turn = element("div", undefined, { class: "trn-turn" });
  const sure = element("p", undefined, { class: "trn-sure" });
  const beside = element("div", undefined, { class: "trn-beside" });
  const why = element("details", undefined, { class: "trn-why", open: "" });
  why.append(element("summary", "Why, and what would change it"));
  const reasons = element("div");
  why.append(reasons);
  const asked = element("p");
  place.querySelector(".trn-without").remove();
  place.append(form, said, turn, sure, beside, ties, reading, why, asked);
  const chart = [...document.querySelectorAll(".trn-chart")].find((one) => one.querySelector("script")?.textContent.includes('"desk":true'));
  const below = element("div", undefined, { class: "trn-desk trn-below" });
  chart?.before(bar);
  chart?.after(below);

  // The GPU that is cheaper per token than the one with the lowest bill, whose whole instances fit the users better.
  function cheaperPerToken(gpu) {
    if (!gpu || state.beside !== CHEAPEST || gpu.perM === null) return [];
    const priced = all(state.speed).filter((one) => one.system.gpu && one.fast && one.perM !== null);
    const least = priced.reduce((best, one) => (one.perM < best.perM ? one : best), gpu);
    if (least.perM >= gpu.perM * (1 - TIED)) return [];
    return [`We show the GPU with the lowest whole bill. ${least.system.name} costs less per token, ${usd(least.perM)} per million, but its whole instances cost ${usd(least.bill)} per month.`];
  }

  // How the figures of a pair are to be read.
  function howToRead(pair) {
    const rules = [];
    if (PUBLIC.includes(state.software)) {
      rules.push("The bold figure is our best estimate, and not the median of the draws.");
      rules.push(`Brackets and bars hold nine in ten of the draws in which the promise is kept, on logarithmic axes. A dashed bar may be too short, because nobody has measured a server of that chip.`);
      rules.push(`A system is cheaper in a draw if its bill is lower or the other one breaks the promise; a draw in which both break it counts half for each. We call it a tie below ${100 * LIKELY} of 100 draws, and say "probably" below ${100 * SURE}. Neither is safe if both keep the promise in fewer than ${100 * LIKELY}.`);
    }
    const most = pair.map((one) => one && data.drafting[state.model][one.system.chip]);
    if (state.software === "documented" && pair.every(Boolean) && most.some(Boolean)) rules.push(`We count drafts only up to the batch that a published page documents: ${pair.map((one, i) => `${most[i] ? (most[i] >= 1e6 ? "any" : number(most[i])) : "none"} on ${one.system.name}`).join(", ")}. We take their gain as printed, so that the ranges do not contain what is unsure of it.`);
    rules.push("The first token comes in 99 of 100 cases within the time shown. The queue behind other prompts is counted, the wait for a free place in a batch is not.");
    rules.push("TP is the number of GPUs, or of logical cores of Trainium, that share each layer. LNC is how many physical cores make a logical one. EP is the number of groups among which the experts are shared out. Batch is the number of sequences of a replica.");
    rules.push("Capacity Blocks are instances that AWS rents out by the day, booked ahead. Power is provisioned for the hottest day.");
    return rules;
  }

  // By hand ---------------------------------------------------------------------------------------------------------

  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  function time(seconds) {
    const [unit, name] = UNITS.find(([least]) => rounded(seconds, 3) >= least) ?? (seconds > 0 ? UNITS[3] : UNITS[0]);
    return `${plain(seconds / unit, 3)} ${name}`;
  }

  // The way from the bytes of a step to dollars, as `index_hand.sums` has it: a sum and its answer in each row.
  function sums(one) {
    const [chips, movedGb, tflop] = one.replica;
    const answer = Number(state.length.split(",")[1]);
    const [, k] = drafts(one) ?? [0, 1];
    const fitting = Math.floor(one.system.chips / chips);
    const paid = fitting >= 1 ? one.system.chips / fitting : Math.ceil(chips / one.system.chips) * one.system.chips;
    const [reads, computes, exchanges, residual, drafting, promptS] = one.parts;
    const ofStep = (one.batch * k) / paid;
    const idle = one.parts[one.parts.length - 1];
    const decode = one.chipS - promptS - idle;
    const beside = Math.max(reads + computes + exchanges + residual + drafting - decode, 0);
    const drafted = drafting > 0 ? ` + ${time(drafting * ofStep)} drafting` : "";
    const least = movedGb / chips / one.system.hbm_tb_per_s / 1000;
    const peak = data.peaks[one.system.chip][one.mapping.split(",")[0]];
    return [
      [`${plain(movedGb, 3)} GB / (${plain(chips, 4)} x ${plain(one.system.hbm_tb_per_s, 4)} TB/s)`, time(least)],
      [`${time(least)} / ${plain((100 * least) / (reads * ofStep), 2)} %`, time(reads * ofStep)],
      [`${[reads, computes, exchanges, residual].map((part) => time(part * ofStep)).join(" + ")}${drafted} - ${time(beside * ofStep)} side by side`, time(decode * ofStep)],
      [`${time(decode * ofStep)} x ${plain(paid, 4)} / (${plain(one.batch, 6)} x ${plain(k, 3)})`, time(decode)],
      [`${plain(tflop, 3)} TFLOP / ${plain(peak, 4)} TFLOP/s`, time(tflop / peak)],
      [`${time(promptS * answer)} / ${answer} tokens of the answer`, time(promptS)],
      [`${time(decode)} + ${time(promptS)} + ${time(idle)} idle`, time(one.chipS)],
      [`${plain(k, 3)} / ${time(decode * ofStep)} x (1 - ${plain((100 * promptS) / one.chipS, 3)} %)`, number((k / (decode * ofStep)) * (1 - promptS / one.chipS))],
      [`1 / ${time(one.chipS)}`, number(one.made)],
      ...(one.paid ? [[`${usd(one.paid.usd, 4)} / 3,600 s x ${time(one.chipS)} x 10^6`, usd(one.perM)]] : []),
    ];
  }

  // Drafted tokens, tokens of a step, and the sequences at which they were measured; undefined without drafts.
  const drafts = (one) => Object.entries(data.options).find(([name]) => one.mapping.endsWith(name))?.[1];

  // Why a step makes more than one token of a sequence.
  function drafted(one) {
    const found = drafts(one);
    if (!found) return " Each makes one token per step.";
    const [proposed, k, sequences] = found;
    const at = sequences === null ? "" : ` of ${times(sequences, "sequence", "sequences")}`;
    return ` A small model drafts ${times(proposed, "token", "tokens")} per step. A published run${at} gives ${plain(k, 3)} tokens of a sequence per step with them. We assume the same here.`;
  }

  // The table by hand follows the controls; without parts there is none.
  function byHand(one) {
    const link = document.querySelector('a[download="by-hand.csv"]');
    const table = link?.closest(".trn-table")?.querySelector("table");
    if (!table) return;
    table.replaceChildren();
    table.classList.add("trn-hand");
    table.createCaption().textContent = one ? `From bytes to dollars: ${state.model} on ${one.system.name} at ${state.speed} tokens/s per user` : "The way from bytes to dollars is here for documented software only.";
    link.hidden = !one;
    const [head, body] = [table.createTHead().insertRow(), table.createTBody()];
    if (!one) return;
    const rows = sums(one).map(([sum, answer], i) => [data.hand[i][0], `${data.hand[i][1]}${i === 3 ? drafted(one) : ""}`, sum, answer]);
    head.append(...["Sum", "How", "Answer"].map((text) => element("th", text, { scope: "col" })));
    for (const [name, reason, sum, answer] of rows) {
      const title = element("th", name, { scope: "row" });
      title.append(element("small", reason));
      body.insertRow().append(title, element("td", sum, { "data-head": "How" }), element("td", answer, { "data-head": "Answer" }));
    }
    const quoted = [["what", "why", "of", "answer"], ...rows].map((row) => row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(","));
    link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(`${quoted.join("\n")}\n`)}`;
  }

  function show() {
    for (const [name, input] of inputs) if (document.activeElement !== input) input.value = state[name];
    const found = [ordered("Trainium"), state.beside === CHEAPEST ? ordered("GPU") : { tied: [] }];
    const pair = couple();
    const [heading, sentences] = verdict(...pair);
    said.replaceChildren(element("strong", heading), ` ${sentences}`);
    const turned = turns(pair);
    turn.replaceChildren(...(turned.length ? [element("strong", "If one thing were different"), element("ul")] : []));
    turn.querySelector("ul")?.append(...turned.map((text) => element("li", text)));
    const far = pair.some((one) => one?.basis.startsWith("extrapolated"));
    const near = far ? " No published run lies near this case, so that it may be further off." : "";
    sure.hidden = !PUBLIC.includes(state.software);
    sure.replaceChildren(`How sure is it? ${data.sure}${near} `, element("a", "How sure can you be?", { href: "chapters/how-sure.html" }));
    if (rest.contains(document.activeElement) || [...rest.querySelectorAll("[name]")].some(({ name }) => state[name] !== FIRST[name])) more.open = true;
    beside.replaceChildren(sides(pair));
    const notes = [...cheaperPerToken(pair[1])];
    notes.push(...found.flatMap(({ best, tied }) => (tied.length ? [`The same bill within 1 % as ${best.system.name}: ${tied.map((one) => one.system.name).join(", ")}.`] : [])));
    const missing = pair.flatMap((one) => (one && state.beside === CHEAPEST ? unpriced(one) : []));
    if (missing.length) notes.push(`Left out, because ${UNPRICED[state.paid][0].toLowerCase().replace("a", "A")}${UNPRICED[state.paid].slice(1)} them, though a chip makes more: ${missing.map((one) => `${one.system.name} (${number(one.made)} tokens/s)`).join(", ")}.`);
    for (const chip of new Set(pair.filter(Boolean).map(({ system }) => system.chip))) {
      if (data.unmeasured[chip]) notes.push(`${data.unmeasured[chip]} The figures are extrapolated: ${times(data.measured[chip][0], "step or prompt was", "steps and prompts were")} measured on it.`);
      if (data.unlisted[state.model].includes(chip)) notes.push(`No release of documented software lists ${state.model} on ${pair.find((one) => one?.system.chip === chip).system.name}: the figures say what that software would make.`);
    }
    if (pair.some((one) => one?.system.status === "announced")) notes.push("An announced system stands in no list of EC2 and has no published rent.");
    if (state.ttft && !limited()) notes.push(`The limit on the first token is left out: the page has it for ${inWords([chosen.input_tokens, chosen.output_tokens])} with documented software. Add --ttft ${state.ttft} to the line below.`);
    ties.replaceChildren(...notes.map((text) => element("li", text)));
    rules.replaceChildren(...howToRead(pair).map((text) => element("li", text)));
    const list = element("ul");
    list.append(...[...flips(...pair), ...hostedPrices()].map((text) => element("li", text)));
    reasons.replaceChildren(chipTime(pair), list);
    byHand(pair.find((one) => one?.parts));
    const lines = commands(pair).flatMap((line, i) => [i ? " and " : " ", element("code", line)]);
    asked.replaceChildren("The same at the terminal, per chip and as a bill under each way to pay:", ...lines);
    below.replaceChildren(everySystem());
    drawFrontier(pair);
  }

  addEventListener("hashchange", () => readAddress() && show());
  readAddress();
  show();
});
