// ---- one claim
const where = (c) => (c.lines ? (c.lines[0] === c.lines[1] ? `line ${c.lines[0]}` : `lines ${c.lines[0]}–${c.lines[1]}`) :
  c.anchor === "ambiguous" ? "its quote occurs more than once" : "its quote is not in the document");
function passage(c) {
  const [before, after] = c.ctx || ["", ""];
  const parts = [[before, "dim"], [c.quote, "mark"], [after, "dim"]];
  let number = c.lines ? c.lines[0] - (before.split("\n").length - 1) : null;
  const lines = [[]];
  parts.forEach(([text, kind]) => text.replace(/\r\n/g, "\n").split("\n").forEach((piece, n) => {
    if (n) lines.push([]);
    if (piece) lines[lines.length - 1].push(el(kind === "mark" ? "mark" : "span", { class: kind === "mark" ? null : kind }, piece));
  }));
  return el("div", { class: "doc", dir: "auto" }, lines.map((pieces) => el("div", { class: "ln" }, el("span", {}, number === null ? "" : number++), el("span", {}, pieces))));
}
// Words of two texts, aligned by their longest common sequence; too long, or too little in common: all of it changed.
function words(a, b) {
  const x = a.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [], y = b.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
  if (x.length * y.length > 400000) return [[[a, 1]], [[b, 1]]];
  const best = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--)
    best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const left = [], right = [];
  let i = 0, j = 0;
  const put = (side, word, changed) => { const last = side[side.length - 1]; if (last && last[1] === changed) last[0] += word; else side.push([word, changed]); };
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { put(left, x[i++], 0); put(right, y[j++], 0); }
    else if (j >= y.length || (i < x.length && best[i + 1][j] >= best[i][j + 1])) put(left, x[i++], 1);
    else put(right, y[j++], 1);
  }
  const kept = left.reduce((n, w) => n + (w[1] ? 0 : w[0].trim().length), 0);
  return kept * 4 < Math.min(a.length, b.length) ? [[[a, 1]], [[b, 1]]] : [left, right];
}
function diff(c) {
  const e = c.edit, old = e.old === undefined ? c.quote : e.old, [before, after] = (e.old === undefined ? c.ctx : e.ctx) || ["", ""];
  const [left, right] = words(old, e.new);
  const side = (parts, kind, tag) => el("div", { dir: "auto" }, el("span", { class: "ctx" }, before),
    el("span", { class: kind }, parts.map(([text, changed]) => (changed ? el(tag, {}, text) : text))), el("span", { class: "ctx" }, after));
  return el("div", { class: "diff" }, el("div", { class: "cap" }, "as it stands"), el("div", { class: "cap" }, e.new ? `with ${e.id}` : `with ${e.id}: taken out`), side(left, "old", "del"), side(right, "new", "ins"));
}
function verdict(c) {
  if (c.verdict === "unjudged") return null;
  const best = c.p ? c.p.indexOf(Math.max(...c.p)) : -1;
  const facts = [CAUSES[c.cause] || c.cause, c.agree === null ? null : c.agree ? "both label orders agree" : "the two label orders disagree"].filter(Boolean).join(" · ");
  return el("section", {}, el("h2", {}, "Verdict"),
    el("p", {}, verd(c), " ", c.conf === null ? el("span", { class: "soft" }, "confidence not measured") : el("b", { class: "num" }, percent(c.conf)), " ", el("span", { class: "soft small" }, facts)),
    c.p ? [el("div", { class: "prob why", role: "img", "aria-label": LABELS.map((l, n) => `${l} ${percent(c.p[n])}`).join(", ") }, c.p.map((p, n) => el("i", { class: `fill ${LABELS[n]}`, css: { width: `${p * 100}%` } }))),
      el("div", { class: "probs num" }, c.p.map((p, n) => el("span", {}, el("i", { class: `fill ${LABELS[n]}` }), n === best ? el("b", {}, `${LABELS[n]} ${percent(p)}`) : `${LABELS[n]} ${percent(p)}`)))] : null,
    c.reason ? el("p", { class: "why", dir: "auto" }, c.reason) : null);
}
function patch(c) {
  if (!c.edit) return null;
  const flags = c.edit.flags.length ? el("p", { class: "small soft" }, c.edit.flags.join(" · ")) : null;
  return el("section", {}, el("h2", {}, c.edit.hand ? `${c.edit.id} — left to you` : `Patch ${c.edit.id}`),
    c.edit.hand ? [el("p", {}, c.edit.hand), c.edit.new ? el("p", { class: "why soft", dir: "auto" }, `Proposed: ${c.edit.new}`) : null] : diff(c), flags);
}
function one(c, full) {
  const item = items[c.item], same = item.findings.filter((x) => x.cluster === c.cluster && x !== c);
  return el("article", { class: "one", "data-claim": c.id },
    el("div", { class: "facts" }, sev(c.sev), el("span", {}, c.kind), el("span", { class: "num" }, c.id), verd(c)),
    el("h3", { dir: "auto" }, c.problem),
    el("div", { class: "facts" }, el("span", {}, `raised by ${c.by}`), el("span", {}, `${c.file || item.path}, ${where(c)}`)),
    same.length ? el("p", { class: "small soft why" }, "says the same as ", same.map((x, n) => [n ? ", " : "", full ? x.id : el("a", { href: link({ c: x.key, sev: [], v: [], who: "", kind: "", q: "" }) }, `${x.id} (${x.by})`)])) : null,
    c.quote ? el("section", {}, el("h2", {}, c.ctx ? "In the document" : "Quote"), passage(c),
      item.changed && !full ? el("p", { class: "small soft why" }, "The document has changed since, or is not here, so the quote stands alone.") : null) : null,
    verdict(c), patch(c),
    full ? null : el("div", { class: "actions" }, el("a", { class: "btn back", href: link({ c: "" }) }, "← All claims"),
      el("button", { class: "btn", type: "button", on: { click: (e) => copy(e.target) } }, "Copy link"),
      items.length > 1 ? el("a", { class: "btn", href: link({ view: "details", a: item.path, c: "" }) }, "How this document was reviewed") : null));
}
function copy(button) {
  const told = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy link"; }, 1500); };
  (navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject()).then(() => told("Copied"), () => told("The address bar has it"));
}
function claimList() {
  const at = shown.findIndex((c) => c.key === state.c);
  chosen = at >= 0 ? at : Math.min(chosen, Math.max(0, shown.length - 1));
  if (at < 0 && !state.c) chosen = 0;
  const asked = at < 0 && state.c ? claims.find((c) => c.key === state.c) : null;
  const host = el("div", { class: "rows", id: "claims", role: "listbox", "aria-label": "Claims" });
  const row = (c, n) => el("a", { class: `row claim ${c.hold}`, role: "option", href: link({ c: c.key }), "aria-selected": String(n === chosen && !asked) },
    el("span", { class: "l1" }, sev(c.sev), el("span", { class: "id" }, c.id), el("span", { class: "gap" }), verd(c), el("span", { class: "num soft" }, c.conf === null ? "" : percent(c.conf))),
    el("span", { class: "l2", dir: "auto" }, c.problem), el("span", { class: "l3" }, items.length > 1 ? `${items[c.item].path} · ${c.by}` : `${c.kind} · ${where(c)} · ${c.by}`));
  const list = virtual(host, shown, 112, row);
  const current = asked || shown[chosen];
  const detail = el("div", { class: "detail", tabindex: "-1" }, current ? one(current) : el("p", { class: "none" }, "Nothing to show."));
  const nothing = claims.length ? "No claim matches these filters." : items.some((i) => i.schema) ? "Nothing was found." : "Nothing was read.";
  const split = el("div", { class: `split${state.c ? " open" : ""}` }, shown.length ? el("div", { class: "list" }, host) : el("div", { class: "list" }, el("p", { class: "none" }, nothing)), detail);
  return { node: el("div", { class: "wrap" }, split), list, keys: { length: shown.length, move: (n) => go({ c: shown[n].key }, true), open: (n) => go({ c: shown[n].key }) } };
}
