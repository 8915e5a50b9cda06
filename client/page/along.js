// Both programs of a pair along the graph: operation beside operation, with what parts them.

const AROUND = 6;  // Operations shown on each side of where the programs part, until more are asked for.

const ALONG_CHART = { title: "Deviation of the two programs along the graph, and what rounding explains (relative)",
  columns: ["allowed", "deviation"], labels: ["rounding explains", "deviation"], log: true, band: true, noun: "operation" };

const ALONG_COLUMNS = [["", "number"], ["", ""], ["target", "operation"], ["reference", "operation"], ["deviation", "number"],
  ["rounding explains", "number"], ["target's value", "number"], ["reference's value", "number"], ["drift", "number"]];

// How the two stand to each other: [sign, word].
function stands(operation) {
  if (operation.target && operation.reference) {
    if (number(operation.allowed) === Infinity && number(operation.deviation) > 0) return ["?", "open"];
    return number(operation.deviation) <= number(operation.allowed) ? ["=", "agree"] : ["≠", "differ"];
  }
  return operation.elsewhere ? ["↷", "computed elsewhere"] : ["≠", "alone"];
}

function alongCells(operation, at, parts) {
  const side = (p) => (p ? place({ ...p, format: "" }) : h("span", { class: "soft" }, "nothing here"));
  const [sign, word] = stands(operation);
  const element = number(operation.elements) > 1 ? h("span", { class: "soft" }, ` [${number(operation.element)}]`) : "";
  const value = (x) => (Number.isNaN(number(x)) ? "–" : [figure(x, 9), element]);
  return [String(at + 1), parts ? h("strong", {}, "≠ the programs part here") : `${sign} ${word}`, side(operation.target),
    side(operation.reference), figure(operation.deviation), figure(operation.allowed),
    value(operation.target_value), value(operation.reference_value), figure(operation.drift)];
}

function alongSentence(a, parts, before) {
  const alone = [["target", a.target_alone], ["reference", a.reference_alone]].filter(([, n]) => number(n))
    .map(([whose, n]) => `, ${number(n)} ${number(n) === 1 ? "is" : "are"} the ${whose}'s alone`).join("");
  const all = `${plural(number(a.agree), "pair")} of operations agree, ${number(a.differ)} differ${alone}.`;
  return parts === undefined ? `The programs part at none of their operations. ${all}` :
    `The first place where the programs part is operation ${before + parts + 1}. ${all}`;
}

function alongView(step) {
  const a = step.verdict.alignment;
  if (!a || !(a.operations || []).length) return "";
  const before = number(a.before), rows = a.operations, parts = a.parts;
  let first = parts === undefined ? 0 : Math.max(0, parts - AROUND);
  let end = Math.min(rows.length, (parts || 0) + AROUND + 1);
  const cells = rows.map((operation, i) => alongCells(operation, before + i, i === parts));
  const used = ALONG_COLUMNS.map((_, i) => i).filter((i) => i < 6 || cells.some((row) => row[i] !== "–"));
  const out = h("div", { class: "along" });
  function more(label, then) {
    return h("button", { type: "button", onclick: () => { then(); draw(); } }, label);
  }
  function draw() {
    const columns = used.map((i) => ALONG_COLUMNS[i]);
    out.replaceChildren(
      first > 0 ? more(`${first} before`, () => { first = Math.max(0, first - 64); }) : "",
      table("Operations of both programs, side by side", columns, cells.slice(first, end).map((row, i) =>
        tableRow(columns, used.map((column) => row[column]), { class: first + i === parts ? "parts" : null,
          "data-operation": before + first + i + 1, tabindex: "-1" }))),
      end < rows.length ? more(`${rows.length - end} after`, () => { end = Math.min(rows.length, end + 64); }) : "",
      before || number(a.after) ? h("p", { class: "note" }, `Not listed: ${before} operations before these and ${number(a.after)} `
        + "after them.") : "");
  }
  function show(row) {
    first = Math.min(first, row.index);
    end = Math.max(end, row.index + 1);
    draw();
    const shown = out.querySelector(`[data-operation="${row.step}"]`);
    shown.focus();
  }
  draw();
  const drawn = rows.map((operation, index) => ({ index, at: before + index + 1, step: String(before + index + 1),
    deviation: number(operation.deviation), allowed: number(operation.allowed) }));
  const compared = drawn.some((row) => row.deviation > 0);
  return [h("h3", {}, "Both programs along the graph"),
    h("p", {}, alongSentence(a, parts, before)),
    h("p", { class: "soft" }, "Each operation's result on one copy of what both programs share, in exact arithmetic, relative to the "
      + "reference's; values at the element that differs most. Open: "
      + "of what rounding explains there is no bound. Drift is between what both held when they ran."),
    compared ? h("div", {}, oneChart({ ...ALONG_CHART, mark: parts === undefined ? null : before + parts + 1 }, drawn, [], show)) : "",
    out];
}
