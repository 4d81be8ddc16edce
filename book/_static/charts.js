// Draws every chart of a page in its typeface and the colours of the theme, and again when those or its width change.
(() => {
  const root = document.documentElement;
  const MENU = 48; // over the right end of a title. [px]
  const NARROW = 500; // of a phone. [px]
  const IN_TWO = "split(replace(datum.label, regexp('^(.{10,21}) (.{4,})$'), '$1|$2'), '|')"; // lines of a long name
  const SHORT = 190; // of the names beside an axis or in a legend there. [px]
  const LINES = { step: 34, inner: 17 }; // of a bar there, or of one in a group, beside a name of two lines. [px]
  const LIGHT = 0.4; // of a colour on a dark page, at least, of white
  const actions = { export: true, source: false, compiled: false, editor: false };
  const options = { actions, mode: "vega-lite", renderer: "svg", ast: true }; // expressions are interpreted, never evaluated as code
  const ruler = document.createElement("canvas").getContext("2d");
  const LEGENDS = ".role-legend-label text, .role-legend-symbol path";

  // Lines as long as their place is wide.
  function wrapped(lines, font, width) {
    ruler.font = font;
    return lines.flatMap((line) => line.split(" ").reduce((found, word) => {
      const longer = found.length ? `${found[found.length - 1]} ${word}` : word;
      return ruler.measureText(longer).width < width && found.length ? [...found.slice(0, -1), longer] : [...found, word];
    }, []));
  }

  // On a phone names take two lines, and a legend stands above the lines that it would cover.
  function forPhone(chart) {
    const { height, encoding } = chart;
    const least = encoding?.yOffset ? LINES.inner : LINES.step;
    const taller = height?.step && { height: { ...height, step: Math.max(height.step, least) } };
    const above = (channel) => (channel?.legend?.orient === "bottom-right" ? { ...channel, legend: { ...channel.legend, orient: "top", columns: 2 } } : channel);
    const channels = encoding && { encoding: Object.fromEntries(Object.entries(encoding).map(([name, channel]) => [name, above(channel)])) };
    return { ...chart, ...taller, ...channels };
  }

  // A slider of powers of ten shows the number.
  function powers(chart, view) {
    for (const input of chart.querySelectorAll("input[type=range][name$=_power]")) {
      const [name, shown] = input.parentElement.querySelectorAll("span");
      name.textContent = name.textContent.replace(", power of ten", "");
      const number = shown.parentElement.appendChild(document.createElement("output"));
      shown.hidden = true;
      const told = (_, power) => (number.textContent = Number((10 ** power).toPrecision(3)).toLocaleString("en-US"));
      view.addSignalListener(input.name, told);
      told(input.name, Number(input.value));
    }
  }

  // A chart without a width of its own fills its column; a map of panels and a drawn network keep theirs.
  function filled(chart, { title: look, font }, width, steps) {
    const { text, subtitle, ...rest } = chart.title;
    const free = width - MENU;
    const under = chart.usermeta?.under ?? [subtitle ?? []].flat();
    const grey = subtitle && { subtitle: wrapped(under, `${look.subtitleFontSize}px ${font}`, free) };
    const title = { ...rest, text: wrapped([[text].flat().join(" ")], `600 ${look.fontSize}px ${font}`, free), ...grey };
    const kept = (steps ? "width" in chart : chart.width && !chart.width.step) || (steps && chart.encoding?.row);
    const own = kept ? {} : { width: chart.encoding?.row ? width - 80 : "container" };
    if (width < NARROW && chart.height > width) own.height = 0.9 * width;
    const labels = { limit: Math.max(130, 0.3 * width), ...(width < NARROW && { fontSize: 12 }) };
    const layer = chart.layer?.map((one) => (one.mark?.lineBreak ? { ...one, mark: { ...one.mark, ...labels } } : one));
    return { ...(width < NARROW ? forPhone(chart) : chart), ...own, ...(layer && { layer: width < NARROW ? layer.map(forPhone) : layer }), title };
  }

  function inTheme(spec, style, width, steps) {
    const text = { labelColor: style.color, titleColor: style.color };
    const { $schema, config, ...chart } = spec; // Vega-Lite 6 draws 5, and warns
    const { axis, legend, title } = config;
    const muted = style.getPropertyValue("--pst-color-text-muted").trim();
    const heading = { ...title, color: style.color, ...(muted && { subtitleColor: muted }), fontWeight: 600, ...(width < NARROW && { fontSize: 15 }) };
    const fit = width < NARROW && { columns: 1 };
    const short = width < NARROW && { labelLimit: SHORT, labelSeparation: 6 };
    const own = width < NARROW && { axisX: { titleAnchor: "end" }, axisYDiscrete: { labelExpr: IN_TWO } }; // a title is longer than the axis beside long names
    const look = { ...config, ...own, font: style.fontFamily, axis: { ...axis, ...text, ...short }, header: { ...config.header, ...text }, legend: { ...legend, ...text, ...fit }, title: heading };
    return { ...filled(chart, look, width, steps), background: "transparent", config: look };
  }

  // What a click does at a name in a legend or at the end of a line, Enter does too.
  function names(chart, picked) {
    if (!picked) return;
    for (const name of chart.querySelectorAll(picked.bind ? LEGENDS : ".mark-text.role-mark text")) {
      name.setAttribute("tabindex", name.matches("path") ? -1 : 0);
      name.setAttribute("role", "button");
    }
  }

  // What the pointer does with Ctrl: + and - look closer and back, arrows move, 0 shows all.
  const MOVES = { "+": [0.8, 0, 0], "=": [0.8, 0, 0], "-": [1.25, 0, 0], ArrowLeft: [1, -0.1, 0], ArrowRight: [1, 0.1, 0], ArrowUp: [1, 0, -0.1], ArrowDown: [1, 0, 0.1] };

  function pressed(chart, event) {
    if (event.target.closest("[role=button]") && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      event.target.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: event.shiftKey }));
    }
    const move = event.key === "0" ? [] : MOVES[event.key];
    if (event.target !== chart || !chart.dataset.zoom || !move || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const view = chart.vegaView;
    for (const { field, channel } of view.signal("zoom_tuple_fields")) {
      const scale = view.scale(channel);
      const [start, end] = scale.range();
      const [share, ...shift] = move;
      const by = (channel === "x" ? shift[0] : shift[1]) * Math.abs(end - start);
      const ends = [start, end].map((at) => scale.invert((start + end) / 2 + (at - (start + end) / 2) * share + by));
      view.signal(`zoom_${field.replace(/\W/g, "_")}`, move.length ? ends : null);
    }
    view.runAsync();
  }

  // A colour that is too dark to be read on a dark page, lighter.
  function onDark(colour) {
    const parts = /^#[0-9a-f]{6}$/i.test(colour) ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : null;
    if (!parts) return colour;
    const light = (0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2]) / 255;
    const white = Math.max(0, (LIGHT - light) / (1 - light));
    return `rgb(${parts.map((part) => Math.round(part + (255 - part) * white)).join(", ")})`;
  }

  function specified(chart) {
    const dark = root.dataset.theme === "dark";
    const lighter = (key, value) => (dark && key === "range" && Array.isArray(value) ? value.map(onDark) : value);
    return JSON.parse(chart.querySelector("script").textContent, lighter);
  }

  async function draw(chart, steps = true) {
    const spec = specified(chart);
    const place = chart.querySelector("div") ?? chart.appendChild(document.createElement("div"));
    const themed = inTheme(spec, getComputedStyle(chart), chart.clientWidth, steps);
    const { view } = await vegaEmbed(place, themed, options);
    chart.vegaView = view;
    if (steps && spec.width?.step && chart.scrollWidth > chart.clientWidth) return draw(chart, false); // too many bars for their width
    if (spec.params?.some((param) => param.name === "zoom")) {
      chart.dataset.zoom = "Ctrl and wheel, or + and -: closer; Ctrl and drag, or arrows: move; double click, or 0: all";
      chart.tabIndex = 0;
      chart.setAttribute("role", "figure");
    }
    powers(chart, view);
    names(chart, spec.params?.find((param) => param.name === "picked"));
    chart.onkeydown = (event) => pressed(chart, event);
  }

  let drawn;
  async function drawAll() {
    const charts = [...document.querySelectorAll(".trn-chart")];
    const now = `${root.dataset.theme} ${charts[0].clientWidth}`;
    if (drawn === now) return;
    drawn = now;
    await document.fonts.load(`16px ${getComputedStyle(charts[0]).fontFamily}`).catch(() => {}); // by which text is measured
    const away = new Map(charts.map((chart) => [chart, Math.abs(chart.getBoundingClientRect().top)]));
    for (const chart of charts.sort((one, other) => away.get(one) - away.get(other))) {
      if (drawn !== now) return;
      await draw(chart);
      await new Promise((next) => setTimeout(next)); // a page answers while it draws
    }
  }

  addEventListener("trn-changed", (event) => draw(event.target), true); // the rows of a chart are others now

  new ResizeObserver(drawAll).observe(document.querySelector(".trn-chart"));
  new MutationObserver(drawAll).observe(root, { attributeFilter: ["data-theme"] });
  drawAll();
})();
