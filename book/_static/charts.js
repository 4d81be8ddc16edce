// Draws every chart of a page in the colours of the theme, and again when that or the width of its column changes.
(() => {
  const root = document.documentElement;
  const MENU = 48; // beside a chart. [px]
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
  function filled(chart, width, steps) {
    const { text, subtitle, ...rest } = chart.title;
    const grey = subtitle && { subtitle: wrapped(chart.usermeta?.under ?? [subtitle].flat(), 6.6, width) };
    const title = { ...rest, text: wrapped([[text].flat().join(" ")], 8.9, width), ...grey };
    const kept = (steps ? "width" in chart : chart.width && !chart.width.step) || (steps && chart.encoding?.row);
    const own = kept ? {} : { width: chart.encoding?.row ? width - 80 : "container" };
    const layer = chart.layer?.map((one) => (one.mark?.type === "text" ? { ...one, mark: { ...one.mark, limit: Math.max(130, 0.3 * width), fontSize: width < 500 ? 11 : 12 } } : one));
    return { ...chart, ...own, ...(layer && { layer }), title };
  }

  function inTheme(spec, ink, width, steps) {
    const text = { labelColor: ink, titleColor: ink };
    const { $schema, config: { axis, legend, title, ...config }, ...chart } = spec; // Vega-Lite 6 draws 5, and warns
    if (width < 500) legend.columns = 1;
    return {
      ...filled(chart, width, steps),
      background: "transparent",
      config: { ...config, axis: { ...axis, ...text }, legend: { ...legend, ...text }, title: { ...title, color: ink } },
    };
  }

  function draw(chart, steps = true) {
    const spec = JSON.parse(chart.querySelector("script").textContent);
    const place = chart.querySelector("div") ?? chart.appendChild(document.createElement("div"));
    const themed = inTheme(spec, getComputedStyle(chart).color, place.clientWidth - MENU, steps);
    vegaEmbed(place, themed, { actions, mode: "vega-lite", renderer: "svg" }).then(({ view }) => {
      chart.vegaView = view;
      if (steps && spec.width?.step && chart.scrollWidth > chart.clientWidth) draw(chart, false); // too many bars for their width
    });
  }

  let drawn;
  function drawAll() {
    const charts = document.querySelectorAll(".trn-chart");
    const now = `${root.dataset.theme} ${charts[0].clientWidth}`;
    if (drawn === now) return;
    drawn = now;
    charts.forEach((chart) => draw(chart));
  }

  new ResizeObserver(drawAll).observe(document.querySelector(".trn-chart"));
  new MutationObserver(drawAll).observe(root, { attributeFilter: ["data-theme"] });
  drawAll();
})();
