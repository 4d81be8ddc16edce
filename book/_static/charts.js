// Draws every chart of a page in the colours of the theme, and again when the theme changes.
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

  function draw(chart) {
    const spec = JSON.parse(chart.querySelector("script").textContent);
    const place = chart.querySelector("div") ?? chart.appendChild(document.createElement("div"));
    const ink = getComputedStyle(chart).color;
    vegaEmbed(place, inTheme(spec, ink), { actions, mode: "vega-lite", renderer: "svg" }).then(({ view }) => (chart.vegaView = view));
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
