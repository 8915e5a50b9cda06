// The tree of modules of one step, coloured by what it says of them.

// "grad:layers.0.weight" -> "layers.0"; a tap that belongs to no module (the loss) -> "".
function moduleOfTap(tap) {
  const match = /^(?:grad|given|update|state|buffer|out):(.+)$/.exec(tap);
  if (!match) return "";
  const parts = match[1].split(".");
  const known = /^(weight|bias|exp_avg(_sq)?|momentum_buffer|square_avg|step|running_(mean|var)|max_exp_avg_sq)$/;
  while (parts.length && known.test(parts[parts.length - 1])) parts.pop();
  return parts.join(".");
}

function newNode(path, label) {
  return { path, label, children: new Map(), share: 0, margin: NaN, worst: "", coverage: "", operations: 0, places: [],
    taps: [], hazards: [] };
}

// The node of a path, made with its ancestors; "" is the root.
function nodeAt(root, path) {
  let node = root;
  if (!path) return node;
  const parts = path.split(".").slice(0, 64);
  parts.forEach((part, i) => {
    if (!node.children.has(part)) node.children.set(part, newNode(parts.slice(0, i + 1).join("."), part));
    node = node.children.get(part);
  });
  return node;
}

function moduleTree(verdict) {
  const root = newNode("", "the whole step");
  for (const contributor of verdict.contributors || []) {
    const p = contributor.place || {};
    const node = nodeAt(root, p.module);
    node.places.push([number(contributor.share), p]);
    node.share += number(contributor.share);
  }
  for (const tap of verdict.taps || []) nodeAt(root, moduleOfTap(tap.name || "")).taps.push(tap);
  for (const hazard of verdict.hazards || []) nodeAt(root, (hazard.place || {}).module).hazards.push(hazard);
  const coverage = verdict.coverage || {};
  for (const module of coverage.audited_modules || []) {
    const node = nodeAt(root, module.path);
    node.coverage = "audited";
    node.operations = number(module.operations);
  }
  for (const path of coverage.left_out || []) nodeAt(root, path).coverage = "left out";
  if (!coverage.partial) root.coverage = number(coverage.opaque) ? "opaque operations" : "audited";
  gather(root, root.coverage);
  return root;
}

// Shares add up, the worst outcome and the largest margin count, coverage comes from above where nothing else is said.
// Depth is bounded by nodeAt().
function gather(node, coverage) {
  node.coverage = node.coverage || coverage;
  for (const tap of node.taps) {
    const margin = number(tap.margin);
    if (!(node.margin >= margin)) node.margin = Number.isNaN(margin) ? node.margin : margin;
    node.worst = worse(node.worst, tap.outcome);
  }
  for (const child of node.children.values()) {
    gather(child, node.coverage);
    node.share += child.share;
    if (!(node.margin >= child.margin)) node.margin = Number.isNaN(child.margin) ? node.margin : child.margin;
    node.worst = worse(node.worst, child.worst);
  }
}

function worse(a, b) {
  for (const outcome of ["TYPE_II", "INCONCLUSIVE", "TYPE_I"]) if (a === outcome || b === outcome) return outcome;
  return a || b || "";
}

const TREE_VIEWS = {
  contribution: { title: "Share of what rounding could have done", of: (node) => [node.share, percent(node.share), ""] },
  margin: { title: "Largest deviation over what rounding allows", of: (node) => Number.isNaN(node.margin) ?
    [0, "no tap", ""] : [node.worst === "TYPE_II" ? 1 : node.margin, `${figure(node.margin)}, ${node.worst}`,
      node.worst === "TYPE_II" ? "beyond" : node.worst === "TYPE_I" ? "" : "none"] },
  coverage: { title: "What was audited", of: (node) => [node.coverage === "audited" ? 1 : node.coverage === "left out" ?
    0 : 0.5, node.coverage || "not stated", node.coverage === "audited" ? "" : "none"] },
};

function moduleView(verdict) {
  const root = moduleTree(verdict);
  let view = number(root.share) ? "contribution" : "margin";
  const out = h("div", { class: "tree" });
  function draw() {
    const choice = (each) => h("button", { type: "button", "aria-pressed": String(each === view),
      onclick: () => { view = each; draw(); } }, each);
    out.replaceChildren(
      h("div", { class: "choices", role: "group", "aria-label": "Colour by" }, Object.keys(TREE_VIEWS).map(choice),
        h("span", { class: "soft" }, TREE_VIEWS[view].title)),
      h("ul", {}, h("li", {}, nodeView(root, view, true))));
  }
  draw();
  return out;
}

function nodeView(node, view, open) {
  const [share, text, kind] = TREE_VIEWS[view].of(node);
  const fill = h("i", { class: kind });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  const line = [h("code", {}, name(node.label)), h("span", { class: "bar", "aria-hidden": "true" }, fill),
    h("span", { class: "figure" }, text), node.hazards.length ? ` ⚠ ${node.hazards.length}` : ""];
  const details = h("details", { open }, h("summary", {}, line));
  // What is below is made when it is looked at: a model may have thousands of modules.
  let made = false;
  function make() {
    if (made || !details.open) return;
    made = true;
    const children = [...node.children.values()].sort((a, b) => TREE_VIEWS[view].of(b)[0] - TREE_VIEWS[view].of(a)[0]);
    details.append(nodeFacts(node), children.length ? h("ul", {}, children.map((child) =>
      h("li", {}, nodeView(child, view, false)))) : "");
  }
  details.addEventListener("toggle", make);
  make();
  return details;
}

function nodeFacts(node) {
  const places = node.places.sort((a, b) => b[0] - a[0]).slice(0, 8)
    .map(([share, p]) => h("div", {}, `${percent(share)} `, place({ ...p, module: "" })));
  const taps = node.taps.filter((tap) => tap.outcome !== "TYPE_I").slice(0, 8)
    .map((tap) => h("div", {}, outcome(tap.outcome), " ", h("code", {}, name(tap.name)), ` deviation ${figure(tap.deviation)},`
      + ` allowed ${figure(tap.envelope)}`));
  const hazards = node.hazards.slice(0, 8).map((hazard) => h("div", {}, `⚠ ${words(hazard.kind)}: `,
    printable(hazard.sentence)));
  const passed = node.taps.filter((tap) => tap.outcome === "TYPE_I").length;
  return h("div", { class: "facts" }, places, taps, hazards,
    passed ? h("div", { class: "soft" }, `${passed} taps passed`) : "");
}
