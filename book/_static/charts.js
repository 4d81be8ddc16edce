// Draws every chart of a page in the colours of the theme, and again when the theme changes.
(() => {
  const root = document.documentElement;
  const actions = { export: true, source: false, compiled: false, editor: false };

  // Lines of a title as long as the column is wide.
  function wrapped(lines, letter, width) {
    const most = Math.floor(width / letter);
    return lines.flatMap((line) => line.split(" ").reduce((found, word) => {
      const last = found[found.length - 1];
      return last !== undefined && last.length + word.length < most ? [...found.slice(0, -1), `${last} ${word}`] : [...found, word];
    }, []));
  }

  // A chart without a width of its own fills its column; a map of panels and a drawn network keep theirs.
  function filled(chart, width) {
    const { text, subtitle, ...rest } = chart.title;
    const grey = subtitle && { subtitle: wrapped([subtitle].flat(), 6.2, width) };
    const title = { ...rest, text: wrapped([[text].flat().join(" ")], 7.6, width), ...grey };
    const own = "width" in chart || chart.encoding?.row ? {} : { width: "container" };
    return { ...chart, ...own, title };
  }

  function inTheme(spec, ink, width) {
    const text = { labelColor: ink, titleColor: ink };
    const { $schema, config: { axis, legend, title, ...config }, ...chart } = spec; // Vega-Lite 6 draws 5, and warns
    if (width < 500) legend.columns = 1;
    return {
      ...filled(chart, width),
      background: "transparent",
      config: { ...config, axis: { ...axis, ...text }, legend: { ...legend, ...text }, title: { ...title, color: ink } },
    };
  }

  function draw(chart) {
    const spec = JSON.parse(chart.querySelector("script").textContent);
    const place = chart.querySelector("div") ?? chart.appendChild(document.createElement("div"));
    const ink = getComputedStyle(chart).color;
    vegaEmbed(place, inTheme(spec, ink, place.clientWidth), { actions, mode: "vega-lite", renderer: "svg" }).then(({ view }) => (chart.vegaView = view));
  }

  let drawn;
  function drawAll() {
    if (drawn === root.dataset.theme) return;
    drawn = root.dataset.theme;
    document.querySelectorAll(".trn-chart").forEach(draw);
  }

  new MutationObserver(drawAll).observe(root, { attributeFilter: ["data-theme"] });
  drawAll();
})();
