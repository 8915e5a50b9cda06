// Charts of a run's steps, by dygraphs. What cannot be drawn (infinite, zero on a logarithmic scale) is drawn at the
// border of the chart; the legend and the table tell the number itself.

function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// The smallest and largest finite positive numbers of some columns.
function limits(rows, columns) {
  let low = Infinity, high = 0;
  for (const row of rows) {
    for (const column of columns) {
      const x = row[column];
      if (Number.isFinite(x) && x > 0) {
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
    }
  }
  return high > 0 ? { low, high } : { low: 0.1, high: 1 };
}

function drawn(x, { low, high }, log) {
  if (Number.isNaN(x)) return null;
  if (!Number.isFinite(x)) return x > 0 ? (log ? high * 3 : high * 1.15) : low;
  return log ? Math.max(x, low / 3) : x;
}

const CHARTS = [
  { title: "Surprise: minus log10 of the chance that legal rounding deviates as much", columns: ["surprise"],
    labels: ["surprise"], from: 0, threshold: 3 },
  { title: "Deviation, and what rounding allows, of the question that decided (relative)", columns: ["envelope", "deviation"],
    labels: ["rounding allows", "deviation"], log: true, band: true },
  { title: "Resolution: the smallest relative error that would have been flagged",
    columns: ["math_resolution", "exec_resolution"], labels: ["mathematics", "execution"], log: true },
  { title: "Drift from the reference (largest of all taps, relative)", columns: ["drift"], labels: ["drift"], log: true },
  { title: "Coverage: operations audited (%)", columns: ["coverage"], labels: ["operations audited"], from: 0, to: 105 },
  { title: "Hazards", columns: ["hazards"], labels: ["hazards"], from: 0 },
];

function charts(all, select) {
  const rows = all.map((row) => ({ ...row, coverage: row.operations ? (100 * row.audited) / row.operations : NaN }));
  const wanted = CHARTS.filter((chart) => rows.some((row) => chart.columns.some((column) =>
    !Number.isNaN(row[column]) && (chart.columns[0] !== "hazards" || row[column] > 0))));
  const out = h("div", {});
  const graphs = [];
  for (const chart of wanted) out.append(...oneChart(chart, rows, graphs, select));
  return out;
}

function oneChart(chart, rows, graphs, select) {
  const legend = h("div", { class: "legend" });
  const box = h("div", { class: "chart", role: "img", "aria-label": `${chart.title}. ${summary(chart, rows)}` });
  const colours = chart.labels.length === 1 ? ["series-1"] : chart.band ? ["band", "series-2"] : ["series-1", "series-2"];
  function tell(row) {
    legend.replaceChildren(...chart.labels.flatMap((label, i) => [h("span", { class: `swatch ${colours[i]}` }),
      row ? `${label} ${figure(row[chart.columns[i]])}` : label]), row ? `  at ${chart.noun || "step"} ${row.step}` : "");
  }
  tell(null);
  // dygraphs asks for its box's size, which it has once it is in the document.
  requestAnimationFrame(() => {
    if (box.isConnected) graphs.push(makeGraph(chart, rows, box, colours, graphs, tell, select));
  });
  return [h("h3", {}, chart.title), legend, box];
}

function summary(chart, rows) {
  return chart.columns.map((column, i) => {
    const all = rows.map((row) => row[column]).filter((x) => !Number.isNaN(x));
    const least = all.reduce((a, b) => Math.min(a, b), Infinity), most = all.reduce((a, b) => Math.max(a, b), -Infinity);
    return all.length ? `${chart.labels[i]}: ${figure(least)} to ${figure(most)} over ${all.length} ${chart.noun || "step"}s` :
      `${chart.labels[i]}: not asked`;
  }).join("; ");
}

// Powers of ten, at most six of them.
function decades(low, high) {
  const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
  const stride = Math.max(1, Math.ceil((last - first + 1) / 6));
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push({ v: 10 ** power, label: figure(10 ** power) });
  return ticks;
}

function makeGraph(chart, rows, box, colours, graphs, tell, select) {
  const range = limits(rows, chart.columns);
  range.high = Math.max(range.high, chart.threshold || 0);
  const floor = range.low / 3;
  const cell = (row, column, i) => {
    const y = drawn(row[column], range, chart.log);
    if (!chart.band) return y;
    return y === null ? [null, null, null] : i === 0 ? [floor, y, y] : [y, y, y];
  };
  const data = rows.map((row) => [row.at, ...chart.columns.map((column, i) => cell(row, column, i))]);
  const top = chart.log ? range.high * 4 : range.high * 1.2;
  const graph = new Dygraph(box, data, {
    labels: ["step", ...chart.labels],
    colors: colours.map((each) => colour(`--${each}`)),
    customBars: Boolean(chart.band),
    fillAlpha: 0.3,
    logscale: Boolean(chart.log),
    valueRange: chart.log ? [floor, top] : [chart.from, chart.to || top],
    drawPoints: rows.length <= 200,
    pointSize: 2,
    strokeWidth: 1.5,
    showLabelsOnHighlight: false,
    legend: "never",
    gridLineColor: colour("--line"),
    axisLineColor: colour("--line"),
    axes: { x: { axisLabelFormatter: (x) => (Number.isInteger(x) ? String(x) : "") },
      y: { axisLabelFormatter: (y) => figure(y, 2), axisLabelWidth: 62, ...(chart.log ? { ticker: decades } : {}) } },
    highlightCallback: (event, x, points, index) => tell(rows[index]),
    unhighlightCallback: () => tell(null),
    clickCallback: (event, x, points) => { if (points.length) select(rows[points[0].idx]); },
    drawCallback: (me, initial) => {
      if (!initial) follow(me, graphs);
    },
    underlayCallback: (context, area, me) => {
      const line = (x1, y1, x2, y2, ink) => {
        context.strokeStyle = colour(ink);
        context.setLineDash([4, 4]);
        context.beginPath();
        context.moveTo(x1, y1);
        context.lineTo(x2, y2);
        context.stroke();
        context.setLineDash([]);
      };
      if (chart.threshold) {
        const y = Math.round(me.toDomYCoord(chart.threshold)) + 0.5;
        line(area.x, y, area.x + area.w, y, "--soft");
      }
      if (chart.mark) {
        const x = Math.round(me.toDomXCoord(chart.mark)) + 0.5;
        line(x, area.y, x, area.y + area.h, "--fail");
      }
    },
  });
  return graph;
}

// All charts show the same steps.
function follow(leader, graphs) {
  const window_ = leader.xAxisRange();
  for (const graph of graphs) {
    const own = graph.xAxisRange();
    if (graph !== leader && (own[0] !== window_[0] || own[1] !== window_[1])) {
      graph.updateOptions({ dateWindow: leader.isZoomed("x") ? window_ : null });
    }
  }
}
