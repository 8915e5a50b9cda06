// The steps of a job: their columns as rows, timelines, and the table.

// Columns of client/page/page.proto as one object a step; `text` columns are looked up.
function rowsOf(steps) {
  const texts = steps.texts || [];
  const text = ["run", "verdict", "grade", "cause", "sentence", "reference", "deciding_tap"];
  const plain = ["rank", "time", "surprise", "deviation", "envelope", "margin", "math_resolution", "exec_resolution",
    "drift", "audit_seconds", "operations", "audited", "opaque", "modules", "modules_audited", "hazards"];
  return (steps.step || []).map((step, i) => {
    const row = { step: String(step), at: Number(step) };
    for (const column of text) row[column] = texts[steps[column][i]];
    for (const column of plain) row[column] = number(steps[column][i]);
    return row;
  });
}

function idOf(summary, row) {
  return [summary.project, summary.job, row.run, row.rank, row.step].join("/");
}

// One mark a verdict; equal neighbours are one rectangle. TYPE_II stands taller, so that colour is not all.
function timeline(outcomes, label) {
  const n = Math.max(outcomes.length, 1);
  const picture = svg("svg", { class: "timeline", viewBox: `0 0 ${n} 28`, preserveAspectRatio: "none", role: "img",
    "aria-label": label });
  for (let i = 0, end; i < outcomes.length; i = end) {
    for (end = i + 1; end < outcomes.length && outcomes[end] === outcomes[i]; ++end);
    const kind = GLYPHS[outcomes[i]] ? outcomes[i] : "INCONCLUSIVE";
    const height = { TYPE_I: 10, INCONCLUSIVE: 18, TYPE_II: 28 }[kind];
    picture.append(svg("rect", { class: kind, x: i, y: 28 - height, width: end - i, height }));
  }
  return picture;
}

function counts(outcomes) {
  const of = (kind) => outcomes.filter((each) => each === kind).length;
  return `${outcomes.length} steps: ${of("TYPE_II")} TYPE_II, ${of("INCONCLUSIVE")} INCONCLUSIVE, ${of("TYPE_I")} TYPE_I`;
}

const ROWS_AT_ONCE = 50;

const STEP_COLUMNS = [["step", "number"], ["verdict", ""], ["surprise", "number"], ["deviation", "number"],
  ["rounding allows", "number"], ["drift", "number"], ["resolution: mathematics", "number"],
  ["resolution: execution", "number"], ["operations audited", "number"], ["hazards", "number"], ["says", "wide"]];

// A column that says nothing of any step is not shown.
function stepColumns(rows) {
  const said = [true, true, true, true, true, rows.some((r) => !Number.isNaN(r.drift)),
    rows.some((r) => !Number.isNaN(r.math_resolution)), rows.some((r) => !Number.isNaN(r.exec_resolution)), true,
    rows.some((r) => r.hazards > 0), true];
  return said.map((shown, i) => (shown ? i : -1)).filter((i) => i >= 0);
}

function stepCells(row, open) {
  const label = h("button", { type: "button", class: "link", onclick: () => open(row) }, row.step);
  return [label, [outcome(row.verdict), ` ${words(row.grade)}, ${words(row.cause)}`], figure(row.surprise),
    figure(row.deviation), figure(row.envelope), figure(row.drift), figure(row.math_resolution),
    figure(row.exec_resolution), `${row.audited} of ${row.operations}`, String(row.hazards), row.sentence];
}

// What is not TYPE_I first where the reader does not choose otherwise. `open`: called with the row that was chosen.
function stepTable(rows, open) {
  const kinds = ["TYPE_II", "INCONCLUSIVE", "TYPE_I"].filter((kind) => rows.some((row) => row.verdict === kind));
  let kind = kinds.length > 1 && kinds[0] !== "TYPE_I" ? kinds[0] : "all";
  let shown = ROWS_AT_ONCE;
  const out = h("div", {});
  const shownColumns = stepColumns(rows);
  const columns = shownColumns.map((i) => STEP_COLUMNS[i]);

  function choose(next) {
    kind = next;
    shown = ROWS_AT_ONCE;
    draw();
  }
  function draw() {
    const chosen = rows.filter((row) => kind === "all" || row.verdict === kind).reverse();
    const choice = (each) => h("button", { type: "button", "aria-pressed": String(each === kind),
      onclick: () => choose(each) }, each === "all" ? `all ${rows.length}` : each);
    const body = chosen.slice(0, shown).map((row) => {
      const cells = stepCells(row, open);
      return tableRow(columns, shownColumns.map((i) => cells[i]), { "data-step": row.step });
    });
    out.replaceChildren(
      kinds.length > 1 ? h("div", { class: "choices", role: "group", "aria-label": "Verdicts shown" },
        [...kinds, "all"].map(choice)) : "",
      table("Steps, the latest first", columns, body),
      chosen.length > shown ? h("button", { type: "button", onclick: () => { shown *= 4; draw(); } },
        `${chosen.length - shown} more`) : "");
  }
  draw();
  return out;
}
