// ---- how it ran
const card = (title, ...children) => el("div", { class: "card" }, el("h2", {}, title), children);
const wide = (node) => { node.classList.add("wide"); return node; };
const texts = (all) => el("ul", {}, all.map((t) => el("li", { dir: "auto" }, t)));
const facts = (pairs) => el("dl", {}, pairs.filter((p) => p[1] !== null && p[1] !== undefined && p[1] !== "").map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
function steps(some) {
  const sum = new Map();
  some.forEach((i) => i.run.steps.forEach((s) => {
    const old = sum.get(s[0]) || [s[0], 0, 0, 0, 0, 0];
    sum.set(s[0], [s[0], ...old.slice(1).map((v, n) => v + s[n + 1])]);
  }));
  const rows = [...sum.values()], most = Math.max(1, ...rows.map((r) => r[2]));
  if (!rows.length) return null;
  return wide(card("Time and tokens", el("div", { class: "steps num" }, rows.map((r) => [el("span", {}, r[0]),
    el("span", {}, el("span", { class: "bar2", css: { display: "block", width: `${100 * r[2] / most}%` } })),
    el("span", { class: "soft small" }, `${time(r[2] / 1000)} · ${plural(r[1], "call")} · ${(r[3] - r[4]).toLocaleString("en")} in + ${r[4].toLocaleString("en")} shared · ${r[5].toLocaleString("en")} out`)]))));
}
function coverage(item) {
  const c = item.run.coverage;
  if (!c) return null;
  if (c.files) return card("What was read", el("ul", {}, c.files.map((f) => el("li", {}, `${f[0]}: ${f[2]} of ${f[1]} bytes`, f[3] ? ` — ${f[3]}` : ""))));
  if (!c.personas.length) return null;
  return wide(card("What was read", el("div", { class: "steps" }, c.personas.map(([name, spans]) => {
    const n = spans.reduce((s, [a, b]) => s + b - a, 0);
    return [el("span", {}, name), el("span", { class: "strip" }, spans.map(([a, b]) => el("i", { css: { left: `${100 * a / (c.bytes || 1)}%`, width: `${100 * (b - a) / (c.bytes || 1)}%` } }))),
      el("span", { class: "soft small num" }, `${n.toLocaleString("en")} of ${(c.bytes || 0).toLocaleString("en")} bytes`)];
  })), c.context.length ? el("p", { class: "small soft" }, `Beside it: ${c.context.join(", ")}`) : null));
}
function models(some) {
  const seen = new Map();
  some.forEach((i) => i.run.models.forEach((m) => seen.set(JSON.stringify(m), m)));
  if (!seen.size) return null;
  return card("Models", [...seen.values()].map((m) => facts([[m.role || "", m.name + (m.quantisation ? ` (${m.quantisation})` : "")],
    ["sha256", m.sha256 ? el("code", {}, m.sha256) : null], ["manifest", m.manifest_sha256 ? el("code", {}, m.manifest_sha256) : null]])));
}
function debate(item) {
  const d = item.debate;
  if (!d) return [];
  if (item.schema === "brief/1") return [d.consensus ? card("Consensus", el("p", {}, d.consensus)) : null, d.action_items && d.action_items.length ? card("Action items", texts(d.action_items)) : null, d.dissent && d.dissent.length ? card("Dissent", texts(d.dissent)) : null];
  const s = d.synthesis, out = [];
  out.push(wide(card("Question", el("p", { dir: "auto" }, d.question), el("p", { class: "small soft" }, `${d.format} (${d.why}) · ended: ${d.ended}`))));
  if (s) out.push(wide(card("Synthesis", facts([["if forced to pick", `${s.pick} (confidence: ${s.confidence})`], ["because", s.why], ["strongest counter", s.counter]]),
    s.tensions.length ? [el("h3", {}, "Key tensions"), el("ul", {}, s.tensions.map((t) => el("li", {}, el("b", {}, t.name), ` — ${t.seats[0]}: ${t.side_a} / ${t.seats[1]}: ${t.side_b}`)))] : null,
    s.agreement.length ? [el("h3", {}, "Points of agreement"), texts(s.agreement)] : null,
    s.strongest.length ? [el("h3", {}, "Strongest arguments"), el("ul", {}, s.strongest.map((x) => el("li", {}, el("b", {}, x[0]), `: ${x[1]} — ${x[2]}`)))] : null)));
  d.seats.forEach((seat) => out.push(card(seat.name, el("p", { class: "small soft" }, seat.given), seat.rounds.map((t) => [t.position ? el("p", { dir: "auto" }, t.position) : null, t.status === "done" ? texts(t.arguments) : el("p", { class: "flag" }, `no usable answer: ${t.cause}`)]))));
  return out;
}
function details() {
  const some = listed.map((n) => items[n]), item = some.length === 1 ? some[0] : null, r = item && item.run;
  const cards = item ? [
    ...debate(item),
    card("This review", facts([["document", item.path], ["round", item.round], ["opened", item.at], ["mode", r.mode], ["status", item.status + (item.why ? `: ${item.why}` : "")], ["engine", r.engine],
      ["temperature", r.sampling && r.sampling.temperature], ["seed", r.sampling && r.sampling.seed], ["margin", r.margin], ["made by", `debate-runner ${r.version || data.version}`]])),
    models(some),
    r.personas.length ? card("Reviewers", el("ul", {}, r.personas.map((p) => el("li", {}, p.name, p.failed ? el("span", { class: "flag" }, ` failed: ${p.cause}`) : "", el("span", { class: "soft small" }, ` ${p.source}`))), (r.skipped || []).map((n) => el("li", { class: "soft" }, `${n}: skipped this round`)))) : null,
    steps(some), coverage(item),
    item.gaps.length ? card("Not done", texts(item.gaps.map((g) => g[1]))) : null,
    item.warnings.length ? card("Warnings", texts(item.warnings)) : null,
    r.diagnostics && r.diagnostics.length ? card("Diagnostics", texts(r.diagnostics)) : null,
    r.synthesis ? wide(card("Synthesis", r.synthesis.themes.map((t) => [el("h3", {}, t.title), el("p", { dir: "auto" }, t.text), el("p", { class: "small soft" }, t.claims.join(", "))]), r.synthesis.tensions.length ? texts(r.synthesis.tensions) : null)) : null,
    ...r.personas.filter((p) => p.observations.length || p.questions.length).map((p) => card(p.name, p.observations.length ? texts(p.observations) : null, p.questions.length ? [el("h3", {}, "Open questions"), texts(p.questions)] : null)),
  ] : [
    card("All of it", facts([["documents", some.length], ["complete", some.filter((i) => i.complete && i.schema).length], ["skipped", some.filter((i) => i.status === "skipped").length], ["failed or partial", some.filter((i) => !i.complete).length],
      ["engine", [...new Set(some.map((i) => i.run.engine).filter(Boolean))].join(", ")], ["made by", `debate-runner ${data.version}`]])), steps(some), models(some),
    some.some((i) => i.warnings.length) ? card("Warnings", texts([...new Set(some.flatMap((i) => i.warnings))].slice(0, 50))) : null,
    el("p", { class: "soft small" }, "Choose one document above to see its own round."),
  ];
  return { node: el("div", { class: "wrap" }, el("div", { class: "grid" }, cards)), list: null, keys: { length: 0 } };
}
