// Elements, names and numbers. Text from the daemon becomes text nodes alone: nothing here reads HTML from it.

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child !== undefined && child !== null && child !== "") element.append(child);
  }
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// protobuf's JSON: defaults are left out, 64-bit integers are strings, so are NaN and infinities.
function number(value) {
  return value === undefined ? 0 : Number(value);
}

// Control characters, as other outputs show them, and marks that turn the direction of what follows.
function printable(text) {
  return String(text || "").replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "?");
}

const NAME_SHOWN = 120;

// A name of the audited program, in its own direction; a long one can be opened.
function name(text) {
  const whole = printable(text);
  if (whole.length <= NAME_SHOWN) return h("bdi", {}, whole);
  const letters = Array.from(whole);
  if (letters.length <= NAME_SHOWN) return h("bdi", {}, whole);
  return h("details", { class: "name" },
    h("summary", {}, h("bdi", {}, letters.slice(0, NAME_SHOWN).join("") + "…"), ` (${letters.length} characters)`),
    h("bdi", { class: "mono" }, whole));
}

// Three significant digits, as `plumb` prints them; "–" for what was not asked.
function figure(value, digits = 3) {
  const x = number(value);
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(Number(x.toPrecision(digits)))));
  if (size < -4 || size >= Math.max(digits, 6)) {
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    return `${Number(mantissa)}e${exponent.replace("+", "")}`;
  }
  return String(Number(x.toPrecision(digits)));
}

function percent(share) {
  const x = number(share);
  if (Number.isNaN(x)) return "–";
  return x !== 0 && Math.abs(x) < 0.001 ? `${Number((100 * x).toPrecision(1))} %` : `${(100 * x).toFixed(1)} %`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function seconds(value) {
  const x = number(value);
  return x < 1 ? `${figure(1000 * x)} ms` : `${figure(x)} s`;
}

function time(text) {
  return text ? String(text).replace("T", " ").replace(/(\.\d+)?Z$/, "") + " UTC" : "–";
}

const GLYPHS = { TYPE_I: "●", TYPE_II: "▲", INCONCLUSIVE: "?" };

function outcome(text) {
  return h("span", { class: `outcome ${GLYPHS[text] ? text : ""}` }, `${GLYPHS[text] || "?"} ${printable(text)}`);
}

function words(text) {
  return printable(text).replace(/_/g, " ").toLowerCase();
}

function place(p) {
  return [h("code", {}, name(p.op)), p.source ? [" at ", h("code", {}, name(p.source))] : "",
    p.module ? [" in ", h("code", {}, name(p.module))] : "", p.format ? ` (${printable(p.format)})` : ""];
}

function facts(rows) {
  return h("dl", {}, rows.filter((row) => row).map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

// `columns`: [title, "number" | "wide" | ""]. Rows are lists of cells, or elements.
function table(caption, columns, rows) {
  const head = h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row) => (row instanceof Node ? row : tableRow(columns, row)));
  // A table that scrolls must be reachable by keyboard.
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

function tableRow(columns, cells, attributes) {
  return h("tr", attributes, cells.map((cell, i) => h("td", { class: columns[i][1] }, cell)));
}

function copyable(text, label) {
  const button = h("button", { type: "button", onclick: copy }, "Copy");
  const pre = h("pre", { tabindex: "0", "aria-label": label }, text);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {  // Not every browser lets a local file write there: the text is selected instead.
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
  }
  return h("div", { class: "command" }, pre, button);
}

function toShell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}
