// The page: the list of jobs, a job, a step. Served by `plumb ui` it asks for what is shown again; a report has it all.

const REFRESH_MS = 2000;
let page = JSON.parse(document.getElementById("data").textContent);
let chosen = null;        // The step that the reader opened: { id, step }.
let chosenRun = null;     // "run/rank" whose charts are shown.
let parts = new Map();    // What is on the screen, by key: what did not change is not drawn again.

// "#job/PROJECT/JOB[/step/RUN/RANK/STEP]"; each part as encodeURIComponent writes it.
function route() {
  const parts = location.hash.slice(1).split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  if (parts[0] !== "job" || parts.length < 3) return {};
  return { project: parts[1], job: parts[2], step: parts[3] === "step" ? [parts[1], parts[2], ...parts.slice(4)].join("/") : null };
}

function jobHash(summary, row) {
  const parts = ["job", summary.project, summary.job, ...(row ? ["step", row.run, row.rank, row.step] : [])];
  return `#${parts.map(encodeURIComponent).join("/")}`;
}

function jobsView() {
  const rows = (page.jobs || []).map(({ summary: job, recent = [] }) => [
    h("a", { href: jobHash(job) }, name(job.job)), name(job.project), timeline(recent, `The last ${counts(recent)}`),
    number(job.type_ii) ? h("span", { class: "TYPE_II outcome" }, `▲ ${job.type_ii}`) : "0", String(number(job.inconclusive)),
    String(number(job.type_i)), String(number(job.missed)), time(job.last_seen)]);
  return h("section", {}, h("h2", {}, "Jobs"),
    rows.length ? table("Jobs, the last seen first", [["job", "wide"], ["project", ""], ["last verdicts", ""], ["TYPE_II", "number"],
      ["inconclusive", "number"], ["TYPE_I", "number"], ["missed", "number"], ["last seen", ""]], rows) :
      h("p", {}, "No job has been seen yet."), leftOut(page.left_out));
}

function leftOut(sentences) {
  return (sentences || []).map((sentence) => h("p", { class: "note" }, printable(sentence)));
}

function jobHead(job, rows) {
  const s = job.summary;
  const verdicts = [["TYPE_II", s.type_ii], ["INCONCLUSIVE", s.inconclusive], ["TYPE_I", s.type_i]]
    .filter(([, n]) => number(n)).map(([kind, n], i) => [i ? ", " : "", outcome(kind), ` ${n}`]);
  return h("section", {}, h("h2", {}, name(s.job)),
    h("p", { class: "verdict-line" }, verdicts.length ? verdicts : "No step has been judged yet."),
    rows.length ? timeline(rows.map((row) => row.verdict), `The steps in order: ${counts(rows.map((row) => row.verdict))}`) : "",
    leftOut(job.left_out),
    facts([["project", name(s.project)], ["judged", plural(number(s.steps), "step")],
      number(s.missed) && ["missed", `${number(s.missed)} sampled steps that the client dropped`],
      number(s.errors) && ["refused", plural(number(s.errors), "step")], ["last seen", time(s.last_seen)], ...coverageFacts(s)]),
    refusedView(job));
}

function coverageFacts(summary) {
  return (summary.coverage || []).slice(0, 8).map((c) => ["modules audited", [`${number(c.modules_audited)} of ${number(c.modules)} in `
    + `the last ${plural(number(c.steps), "step")} of `, name(c.run), number(c.rank) ? `, rank ${c.rank}` : "", (c.left_out || []).length ?
    [h("br"), "never: ", c.left_out.map((path, i) => [i ? ", " : "", h("code", {}, name(path))])] : ""]]);
}

function refusedView(job) {
  const rows = (job.refused || []).map((r) => [name(r.run), String(number(r.rank)), String(r.step || 0),
    printable((r.status || {}).message), time(r.time)]);
  return rows.length ? h("details", {}, h("summary", {}, `${rows.length} refused steps`), table("Refused steps",
    [["run", ""], ["rank", "number"], ["step", "number"], ["why", "wide"], ["when", ""]], rows)) : "";
}

// Charts follow one run and rank: the reader's choice, else the one that was judged last.
function runView(job, rows) {
  const keys = [...new Set(rows.map((row) => `${row.run}/${row.rank}`))];
  if (!keys.includes(chosenRun)) chosenRun = keys[keys.length - 1];
  const own = rows.filter((row) => `${row.run}/${row.rank}` === chosenRun).sort((a, b) => a.at - b.at);
  const open = (row) => { location.hash = jobHash(job.summary, row); };
  const select = keys.length > 1 ? h("label", {}, "Run and rank ", h("select", { onchange: (event) => {
    chosenRun = event.target.value;
    draw();
  } }, keys.map((key) => h("option", { value: key, selected: key === chosenRun }, printable(key).slice(0, NAME_SHOWN))))) : "";
  return h("section", {}, h("h2", {}, "Steps"), select, charts(own, open),
    h("p", { class: "soft" }, "Drag over a chart to look closer, double-click for all; a click opens a step, and so does its number "
      + "below. ∞ and 0 are drawn at the border."), stepTable(own, open));
}

function fullSteps(job) {
  const full = [...(job.full || [])];
  if (chosen && chosen.step && !full.some((step) => step.verdict.id === chosen.id)) full.unshift(chosen.step);
  if (chosen) full.sort((a, b) => (b.verdict.id === chosen.id) - (a.verdict.id === chosen.id));
  return full;
}

function chosenNote(job) {
  if (!chosen || fullSteps(job).some((step) => step.verdict.id === chosen.id)) return "";
  return h("p", { class: "note" }, chosen.error ? printable(chosen.error) : page.live ? "Asking the daemon …" : ["This step is not in the "
    + "report in full: ", h("code", {}, `plumb explain ${toShell(chosen.id)}`), " explains it."]);
}

// Parts of the page: [key, what it shows, how to draw it].
function jobParts(job) {
  const rows = rowsOf(job.steps || {});
  const steps = rows.length ? fullSteps(job) : [];
  const key = (step) => `step ${step.verdict.id}`;
  return [
    ["head", [{ ...job, full: [], audits: [] }], () => jobHead(job, rows)],
    ["audits", [job.audits, (job.audits || []).length && page.made], () => auditsView(job, rows, page.made)],
    ["note", [chosen], () => chosenNote(job)],
    ...steps.slice(0, 1).map((step) => [key(step), step, () => stepView(step)]),
    ["run", [job.steps, chosenRun], () => (rows.length ? runView(job, rows) : "")],
    ...steps.slice(1).map((step) => [`folded ${key(step)}`, step, () => folded(step)]),
  ];
}

// Every further step is a line until it is opened.
function folded(step) {
  const v = step.verdict;
  const details = h("details", {}, h("summary", {}, outcome(v.verdict), ` step ${v.step || 0} of `, name(v.run), `: ${printable(v.sentence)}`));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(stepView(step));
  });
  return h("section", {}, details);
}

function draw() {
  document.getElementById("server").textContent = printable(`${page.server || ""} ${page.server_version || ""}, ${time(page.made)}${page.history ? `. ${page.history}` : ""}`);
  document.title = page.job ? `${printable(page.job.summary.job)} – Plumbline` : "Plumbline";
  const wanted = page.job ? jobParts(page.job) : [["jobs", page.jobs, jobsView]];
  const next = new Map();
  for (const [key, shows, build] of wanted) {
    const text = JSON.stringify(shows), old = parts.get(key);
    next.set(key, old && old.text === text ? old : { text, elements: [build()].flat(3).filter((each) => each) });
  }
  const elements = (all) => [...all.values()].flatMap((part) => part.elements);
  const before = elements(parts), after = elements(next);
  parts = next;
  if (before.length === after.length && before.every((element, i) => element === after[i])) return;
  const focused = document.activeElement;
  document.getElementById("main").replaceChildren(...after);
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

async function ask(path, parameters) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, { cache: "no-store" });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

async function refresh() {
  const { project, job } = route();
  try {
    const answer = await ask("page.json", job === undefined ? {} : { project, job });
    if (route().job !== job) return;  // The reader went on meanwhile.
    document.getElementById("status").textContent = "";
    page = answer;
    draw();
  } catch (error) {
    document.getElementById("status").textContent = `${printable(error.message)}. What is shown is of ${time(page.made)}.`;
  }
}

async function open() {
  const { step } = route();
  chosen = step ? { id: step } : null;
  if (page.live) {
    await refresh();
    if (step) {
      try {
        chosen.step = await ask("step.json", { id: step });
      } catch (error) {
        chosen.error = error.message;
      }
    }
  }
  draw();
  const article = step && [...document.querySelectorAll("article")].find((each) => each.dataset.id === step);
  if (article) article.focus();
}

window.addEventListener("hashchange", open);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  parts.clear();  // Charts hold colours.
  draw();
});
open();
if (page.live) setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
