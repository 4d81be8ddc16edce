// Draws every chart of a page in the colours of the theme and as wide as its column, and again when either changes.
(() => {
  const root = document.documentElement;
  const actions = { export: true, source: false, compiled: false, editor: false };

  function inTheme(spec, ink) {
    const text = { labelColor: ink, titleColor: ink };
    const { $schema, config: { axis, legend, title, ...config }, ...chart } = spec; // Vega-Lite 6 draws 5, and warns
    return {
      ...chart,
      background: "transparent",
      config: { ...config, axis: { ...axis, ...text }, legend: { ...legend, ...text }, title: { ...title, color: ink } },
    };
  }

  const PARTS = ["hconcat", "vconcat", "concat", "facet", "repeat"];
  const LETTER = 9.6; // of a title [px]

  function wrapped(text, most) {
    const lines = [""];
    for (const word of [text].flat().join(" ").split(" ")) {
      const line = lines.at(-1);
      if (line && line.length + word.length >= most) lines.push(word);
      else lines[lines.length - 1] = line ? `${line} ${word}` : word;
    }
    return lines;
  }

  // A chart of one view fills its column; parts side by side, and cells of a fixed size, keep theirs.
  function inColumn(spec, width, steps) {
    const title = spec.title?.text ? { ...spec.title, text: wrapped(spec.title.text, width / LETTER) } : spec.title;
    const legend = { ...spec.config.legend, ...(width < 480 && { columns: 1 }) };
    const fitted = { ...spec, title, config: { ...spec.config, legend } };
    const views = [spec, ...(spec.layer ?? [])];
    const cells = ({ width, encoding }) => (steps && width?.step) || encoding?.row || encoding?.column || encoding?.facet;
    const fixed = views.some(cells);
    if (fixed || PARTS.some((part) => part in spec)) return fitted;
    return { ...fitted, width, autosize: { type: "fit-x", contains: "padding" } };
  }

  function draw(chart, _, __, steps = true) {
    const width = chart.clientWidth;
    const spec = inColumn(JSON.parse(chart.querySelector("script").textContent), width, steps);
    const place = chart.querySelector("div") ?? chart.appendChild(document.createElement("div"));
    const ink = getComputedStyle(chart).color;
    vegaEmbed(place, inTheme(spec, ink), { actions, mode: "vega-lite", renderer: "svg" }).then(({ view }) => {
      chart.vegaView = view;
      if (steps && spec.width?.step && place.scrollWidth > width) draw(chart, _, __, false); // bars too many for their width
    });
  }

  let drawn;
  function drawAll() {
    const charts = document.querySelectorAll(".trn-chart");
    const now = `${root.dataset.theme} ${charts[0].clientWidth}`;
    if (drawn === now) return;
    drawn = now;
    charts.forEach(draw);
  }

  document.querySelectorAll(".trn-chart").forEach((chart, place) => place || new ResizeObserver(drawAll).observe(chart));
  new MutationObserver(drawAll).observe(root, { attributeFilter: ["data-theme"] });
  drawAll();
})();
