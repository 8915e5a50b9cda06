// One step in full. For a TYPE_II: what differs, where, how sure, what it would take to be rounding, what to do.

const CAUSES = {
  ROUNDING: "Rounding explains every deviation.",
  PRECISION_POLICY: "One side casts to a format that the other side does not use.",
  RANGE: "A value left the range of its format (overflow, saturation, NaN) on one side and not on the other.",
  LEAF_MISMATCH: "The two runs were fed different data or state.",
  EXECUTION: "An operation's result lies outside of what any legal execution of it can give on the inputs it had.",
  MATHEMATICS: "The two programs compute different functions.",
  REFERENCE_AT_FAULT: "An operation of the reference gave what no legal execution of it can give.",
  INVARIANT: "A value changed between two audited steps although nothing in them wrote it.",
  REFERENCE_MISSING: "The reference's step did not arrive, or was evicted.",
  UNANSWERED: "What rounding allows is too wide to say anything, or something on the way was not audited.",
  STRUCTURE: "One program gives a gradient, update or state that the other one does not have.",
};

const GRADES = {
  MATCH: "The bits are equal.",
  PROVEN: "Proven: it holds for every legal execution under the profile.",
  EXPLAINED: "Our own rounded execution reproduces the result.",
  FIRST_ORDER: "A worst case to first order: no proof, and no legal execution is known that comes this far.",
  STATISTICAL: "By a model of rounding as chance, which errs at most with the probability that the run allows (alpha).",
};

// The questions that rounding of the run has no part in: both programs were evaluated on one copy of what they share.
const OF_MATHEMATICS = ["MATHEMATICS", "STRUCTURE", "LEAF_MISMATCH", "INVARIANT"];

function howSure(verdict) {
  const legal = verdict.surprise === undefined ? "" : number(verdict.surprise) === Infinity ?
    " No legal rounding deviates as much." :
    ` Legal rounding deviates as much with a probability of at most 10^−${figure(verdict.surprise)}.`;
  if (verdict.grade === "PROVEN" && OF_MATHEMATICS.includes(verdict.cause)) {
    return `Proven: no rounding of the two runs plays a part in the question, as both programs were evaluated on one copy of what `
      + `they share.${legal}`;
  }
  return (GRADES[verdict.grade] || "") + legal;
}

function rounding(verdict) {
  const margin = number(verdict.margin), envelope = number(verdict.envelope);
  if (OF_MATHEMATICS.includes(verdict.cause)) {
    const gap = Number.isFinite(margin) && envelope > 0 ? [`Our own evaluation errs by at most ${figure(envelope)} there; the `
      + `programs differ by ${figure(verdict.deviation)}, ${figure(margin)} times as much. `] : [];
    return [...gap, "No profile, format or order of summation makes this a rounding difference. It would need other inputs: ",
      "should the two programs not be meant to share what was taken as one (see the notes), the question was another one."];
  }
  if (!Number.isFinite(margin) || envelope === 0) {
    return ["Nothing: no legal rounding under the profile ", h("code", {}, name(verdict.profile)), " gives this value."];
  }
  return [`Every operation on the way would have to err ${figure(margin)} times as much as the profile `,
    h("code", {}, name(verdict.profile)), ` allows. It allows ${figure(envelope)} here (relative), and ${figure(verdict.deviation)} `
    + "was seen. If the device is known to be less exact, replay the step under its profile: ",
    h("code", {}, "plumb replay ID --profile NAME"), "."];
}

function sourceView(source) {
  const last = number(source.place.split(":").pop());
  const lines = (source.lines || []).map((line, i) => {
    const at = number(source.first) + i;
    return h("span", { class: at === last ? "here" : "" },
      h("span", { class: "line-number" }, `${String(at).padStart(5)}  `), printable(line.replace(/\t/g, "    ")),
      at === last ? "" : "\n");
  });
  return h("figure", {},
    h("figcaption", {}, source.reference ? "Reference: " : "Target: ", h("code", {}, name(source.place))),
    lines.length ? h("pre", { tabindex: "0", "aria-label": `Lines around ${source.place}` }, lines) :
      h("p", { class: "soft" }, ` ${printable(source.missing)}`));
}

function letter(step) {
  const v = step.verdict;
  const suspect = v.suspect;
  return [
    h("h3", {}, "What differs"),
    h("p", {}, CAUSES[v.cause] || ""),
    facts([
      v.deciding_tap && ["decided at", h("code", {}, name(v.deciding_tap))],
      ["deviation", `${figure(v.deviation)} (relative), where ${figure(v.envelope)} is allowed`],
    ]),
    suspect || (step.sources || []).length ? [h("h3", {}, "Where"),
      suspect ? h("p", {}, place(suspect), v.suspect_detail ? [": ", printable(v.suspect_detail)] : "") : "",
      h("div", { class: "sources" }, (step.sources || []).map(sourceView))] : "",
    h("h3", {}, "How sure"),
    h("p", {}, howSure(v)),
    coverageSentence(v.coverage || {}),
    v.verdict === "TYPE_II" ? [h("h3", {}, "What it would take to be rounding"), h("p", {}, rounding(v))] : "",
    (v.advice || []).length ? [h("h3", {}, "What to do"), h("ul", {}, v.advice.map((line) => h("li", {}, printable(line))))] : "",
    v.verdict === "TYPE_II" ? reproducer(step) : "",
  ];
}

function coverageSentence(c) {
  const opaque = number(c.opaque);
  return h("p", { class: "soft" }, `${number(c.audited)} of ${number(c.operations)} operations audited`,
    opaque ? [`, ${opaque} opaque (`, (c.opaque_names || []).map((each, i) => [i ? ", " : "", h("code", {}, name(each))]), ")"] :
      ", none opaque", c.partial ? `; of the model ${number(c.modules_audited)} of ${number(c.modules)} modules` : "",
    number(c.unstable) ? `; ${number(c.unstable)} of ${number(c.decisions)} decisions are within rounding of turning` : "", ".");
}

function reproducer(step) {
  const v = step.verdict;
  const command = `plumb reproduce ${toShell(v.id)} -o repro.py && python repro.py`;
  const kept = v.trace === "KEPT";
  return [h("h3", {}, "To reproduce"),
    kept ? [h("p", {}, "The step's trace is kept. The operation at fault as a script that needs PyTorch alone (it exits with 0 "
      + "where the result lies inside of what rounding allows, with 2 where it does not):"), copyable(command, "Command"),
      step.reproducer ? h("details", {}, h("summary", {}, "The script"), copyable(step.reproducer, "Script")) : ""] :
      h("p", {}, v.trace === "EVICTED" ? "The step's trace had to make room for newer ones (--trace-quota)." :
        "The step's trace was not kept.")];
}

const TAPS_AT_ONCE = 12;

// Values of both programs. Outputs of modules ("out:PATH") come in the program's order: the first of them that is not
// explained is where the two part.
function tapView(step) {
  const v = step.verdict, taps = v.taps || [];
  if (!taps.length) return "";
  const pair = taps.some((tap) => !Number.isNaN(number(tap.reference)) || !Number.isNaN(number(tap.drift)));
  const telling = taps.filter((tap) => tap.outcome !== "TYPE_I");
  const parts = taps.find((tap) => tap.outcome === "TYPE_II" && tap.name.startsWith("out:"));
  const decides = taps.find((tap) => tap.name === v.deciding_tap);
  const marked = parts || decides;
  let all = telling.length === 0, most = TAPS_AT_ONCE;
  const columns = [["tap", "wide"], ["verdict", ""], ["observed", "number"], ["reference", "number"],
    ["legal from", "number"], ["to", "number"], ["deviation", "number"], ["allowed", "number"], ["drift", "number"]];
  const cells = (tap) => [[name(tap.name), number(tap.elements) > 1 ? ` [${number(tap.worst_element)} of ${number(tap.elements)}]` : "",
    tap === parts ? h("strong", {}, " the programs part here") : tap === decides && telling.length ?
      h("strong", {}, " decides") : ""],
  [outcome(tap.outcome), ` ${words(tap.grade)}`], figure(tap.observed, 9), figure(tap.reference, 9), figure(tap.low, 9),
  figure(tap.high, 9), figure(tap.deviation), figure(tap.envelope), figure(tap.drift)];
  // A column that has nothing of any tap is not shown.
  const rows = taps.map(cells);
  const used = columns.map((_, i) => i).filter((i) => i < 2 || rows.some((row) => row[i] !== "–"));
  const out = h("div", {});
  function draw() {
    const chosen = taps.map((tap, i) => [tap, rows[i]]).filter(([tap]) => all || tap.outcome !== "TYPE_I");
    const shown = chosen.slice(0, most);
    out.replaceChildren(
      telling.length && telling.length < taps.length ? h("div", { class: "choices" },
        h("button", { type: "button", "aria-pressed": String(!all), onclick: () => { all = false; draw(); } },
          `${telling.length} not explained`),
        h("button", { type: "button", "aria-pressed": String(all), onclick: () => { all = true; draw(); } },
          `all ${taps.length}`)) : "",
      table("Taps", used.map((i) => columns[i]), shown.map(([tap, row]) => tableRow(used.map((i) => columns[i]),
        used.map((i) => row[i]), { class: tap === marked && telling.length ? "parts" : null }))),
      chosen.length > most ? h("button", { type: "button", onclick: () => { most *= 8; draw(); } },
        `${chosen.length - most} more`) : "",
      number(step.taps_left_out) ? h("p", { class: "note" },
        `${number(step.taps_left_out)} more taps are not in this page: those that passed with the least surprise first.`) : "");
  }
  draw();
  return [h("h3", {}, pair ? "Both programs, tap by tap" : "Taps"),
    h("p", { class: "soft" }, "Of a tensor its worst element is shown."), out];
}

function hazardView(v) {
  return (v.hazards || []).length ? [h("h3", {}, "Hazards: what rounding does to this training although everything is right"),
    h("ul", {}, v.hazards.map((hazard) => h("li", {}, h("strong", {}, words(hazard.kind)),
      ` in ${percent(hazard.share)} of the elements, `, hazard.place ? place(hazard.place) : "",
      hazard.sentence ? `: ${printable(hazard.sentence)}` : "", hazard.remedy ? ` ${printable(hazard.remedy)}` : "")))] : "";
}

function stepView(step) {
  const v = step.verdict;
  return h("article", { class: v.verdict === "TYPE_II" ? "accused" : "", "data-id": v.id, tabindex: "-1" },
    h("h2", {}, `Step ${v.step || 0} of `, name(v.run), number(v.rank) ? `, rank ${v.rank}` : ""),
    h("p", { class: "verdict-line" }, outcome(v.verdict), ` ${words(v.grade)}, ${words(v.cause)}`),
    h("p", {}, printable(v.sentence)),
    v.verdict === "TYPE_I" ? [h("p", {}, GRADES[v.grade] || ""), coverageSentence(v.coverage || {})] : letter(step),
    hazardView(v),
    alongView(step),
    tapView(step),
    h("h3", {}, "Modules"), moduleView(v),
    (v.notes || []).length ? [h("h3", {}, "Notes"), h("ul", {}, v.notes.map((note) => h("li", {}, printable(note))))] : "",
    h("h3", {}, "What was asked"),
    facts([["reference", h("code", {}, name(v.reference || "exact"))], ["profile", h("code", {}, name(v.profile))],
      ["audited", `${time(v.time)}, on ${printable(v.backend)}, in ${seconds(v.audit_seconds)}`],
      number(v.ranks_of_run) ? ["ranks", `${(v.ranks_here || []).join(", ")} of ${v.ranks_of_run}, judged together`]
        : number(v.ranks) > 1 && ["ranks", `${v.ranks}, judged together`],
      v.trace_id && ["trace id", h("code", {}, printable(v.trace_id))],
      ["trace", h("code", {}, printable(v.digest))], ["in the terminal", h("code", {}, `plumb explain ${toShell(v.id || "")}`)]]));
}
