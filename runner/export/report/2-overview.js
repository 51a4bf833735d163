// ---- head and filters
function header() {
  const done = items.filter((i) => i.schema).length, at = items.map((i) => i.at).filter(Boolean).sort().pop();
  const models = [...new Set(items.flatMap((i) => i.run.models.map((m) => m.name)))].filter(Boolean);
  const facts = [
    items.length > 1 ? `${plural(done, "document")} reviewed` : items[0] && items[0].path, plural(claims.length, "claim"),
    items.length === 1 && items[0].round ? `round ${items[0].round}` : null, models.join(", "),
    at ? at.replace("T", " ").replace("Z", " UTC") : null,
  ].filter(Boolean);
  const tab = (name, label, n) => el("a", { href: link({ view: name, c: "" }), "aria-current": state.view === name ? "page" : null }, label, n === null ? "" : el("span", { class: "n num" }, n));
  return el("div", { class: "wrap" },
    el("header", { class: "top" },
      el("div", { class: "what" }, el("h1", {}, document.title), el("p", {}, facts.join(" · "))),
      el("nav", { class: "tabs", "aria-label": "Views" }, tab("overview", items.length > 1 ? "Documents" : "Overview", items.length > 1 ? listed.length : null),
        tab("claims", "Claims", shown.length), tab("details", items.length === 1 && items[0].debate ? "The debate" : "How it ran", null), el("button", { class: "keyhint", type: "button", "aria-label": "Keys", title: "Keys", on: { click: help } }, "?"))),
    banners());
}
function banners() {
  const broken = items.filter((i) => !i.complete), out = [];
  if (items.some((i) => i.fake)) out.push(el("div", { class: "banner" }, el("b", {}, "FAKE ENGINE"), " — no model read this; every word is made up."));
  if (broken.length) {
    const lines = broken.flatMap((i) => (i.gaps.length ? i.gaps.map((g) => g[1]) : [i.why || "not reviewed"]).map((t) => (items.length > 1 ? `${i.path}: ${t}` : t)));
    out.push(el("details", { class: "banner", open: lines.length < 3 },
      el("summary", {}, el("b", {}, "INCOMPLETE"), ` — ${items.length > 1 ? `${plural(broken.length, "document")} of ${items.length.toLocaleString("en")}: ` : ""}not everything was reviewed`),
      el("ul", {}, lines.slice(0, 200).map((t) => el("li", {}, t)), lines.length > 200 ? el("li", {}, `and ${lines.length - 200} more`) : null)));
  }
  const left = items.reduce((n, i) => n + i.left, 0);
  if (left) out.push(el("div", { class: "banner" }, `${plural(left, "claim")} known before and left out of this report.`));
  return out;
}
function toggles(key, all, label) {
  const counts = Object.fromEntries(all.map((w) => [w, 0]));
  claims.forEach((c) => { if (matches(c, { ...state, [key]: [] })) counts[key === "sev" ? c.sev : c.hold] += 1; });
  const press = (w) => go({ [key]: state[key].includes(w) ? state[key].filter((x) => x !== w) : all.filter((x) => x === w || state[key].includes(x)), c: "" }, true);
  return el("span", { class: "set", role: "group", "aria-label": label }, all.map((w) =>
    el("button", { type: "button", "aria-pressed": String(state[key].includes(w)), "data-set": w, on: { click: () => press(w) } },
      key === "sev" ? sev(w) : w, el("span", { class: "n" }, counts[w]))));
}
function choice(key, values, all) {
  if (values.length < 2 && !state[key]) return null;
  const box = el("select", { "aria-label": all, "data-key": key, on: { change: (e) => go({ [key]: e.target.value, c: "" }, true) } },
    el("option", { value: "" }, all), values.map((v) => el("option", { value: v, selected: v === state[key] }, v)));
  return box;
}
function filters() {
  const names = (f) => [...new Set(claims.map(f))].sort();
  const search = el("input", { type: "search", placeholder: "Search  ( / )", "aria-label": "Search", value: state.q, spellcheck: "false" });
  search.addEventListener("input", () => {
    clearTimeout(search.timer);
    search.timer = setTimeout(() => go({ q: search.value.trim(), c: "" }, true), 80);
  });
  const any = state.sev.length || state.v.length || state.who || state.kind || state.a || state.q;
  return el("div", { class: "wrap", role: "search" }, search, toggles("sev", SEVERITIES, "Severity"), toggles("v", HOLDINGS, "Verdict"),
    choice("who", names((c) => c.by), "every reviewer"), choice("kind", names((c) => c.kind), "every kind"),
    items.length > 1 && (state.view !== "overview" || state.a) ? choice("a", items.map((i) => i.path), "every document") : null,
    el("button", { class: "btn", type: "button", hidden: !any, on: { click: clear } }, "Clear"),
    );
}
const clear = () => go({ sev: [], v: [], who: "", kind: "", a: "", q: "", c: "" });

// ---- overview
function groups() {
  const seen = new Map();
  shown.forEach((c) => {
    const key = `${c.item} ${c.cluster} ${c.hold}`, old = seen.get(key);
    if (!old || SEVERITIES.indexOf(c.sev) < SEVERITIES.indexOf(old.sev)) seen.set(key, c);
  });
  return [...seen.values()];
}
function chart() {
  const all = groups(), most = Math.max(1, ...SEVERITIES.map((s) => all.filter((c) => c.sev === s).length));
  return el("div", { class: "card" }, el("h2", {}, "Findings by severity and verdict"),
    el("div", { class: "chart" }, SEVERITIES.map((s) => {
      const of = HOLDINGS.map((h) => [h, all.filter((c) => c.sev === s && c.hold === h).length]), total = of.reduce((n, x) => n + x[1], 0);
      return [sev(s), el("div", { class: "track" }, of.filter((x) => x[1]).map(([h, n]) =>
        el("a", { class: `fill ${h}`, href: link({ view: "claims", sev: [s], v: [h], c: "" }), title: `${n} ${s}, ${h}`, "aria-label": `${n} ${s}, ${h}`, css: { width: `${100 * n / most}%` } }))),
      el("span", { class: "total" }, total)];
    })),
    el("div", { class: "legend" }, HOLDINGS.map((h) => el("span", {}, el("i", { class: `fill ${h}` }), `${h} ${all.filter((c) => c.hold === h).length}`)),
      el("span", {}, "claims that say the same count once")));
}
function tiles() {
  const tile = (n, label) => el("div", { class: "tile" }, el("b", {}, n), el("span", {}, label));
  const part = listed.map((n) => items[n]), conceded = shown.filter((c) => c.hold === "conceded");
  const sure = conceded.map((c) => c.conf).filter((p) => p !== null).sort((a, b) => a - b);
  return el("div", { class: "card" }, el("h2", {}, state.a ? "This document" : "In this view"), el("div", { class: "tiles" },
    items.length > 1 ? tile(part.filter((i) => i.schema).length.toLocaleString("en"), "documents reviewed") : null,
    tile(shown.length.toLocaleString("en"), "claims"), tile(conceded.length.toLocaleString("en"), "conceded"),
    tile(conceded.filter((c) => c.edit && !c.edit.hand).length.toLocaleString("en"), "patches that apply"),
    sure.length ? tile(percent(sure[sure.length >> 1]), "median confidence, conceded") : null,
    tile(time(part.reduce((s, i) => s + i.seconds, 0)), "of calls, added up"),
    items.length > 1 ? tile(part.filter((i) => !i.complete).length.toLocaleString("en"), "incomplete") : null));
}
function documents() {
  const host = el("div", { class: "rows", id: "documents" });
  const of = new Map(listed.map((n) => [n, []]));
  shown.forEach((c) => of.get(c.item) && of.get(c.item).push(c));
  const worst = (n) => of.get(n).filter((c) => c.hold === "conceded").reduce((s, c) => s + [1e6, 1e4, 100, 1][SEVERITIES.indexOf(c.sev)], items[n].complete ? 0 : 1e9);
  listed.sort((a, b) => worst(b) - worst(a) || a - b);
  const most = Math.max(1, ...listed.map((n) => of.get(n).length));
  const row = (n, at) => {
    const item = items[n], own = of.get(n), count = (h) => own.filter((c) => c.hold === h).length || "–";
    const flag = !item.complete ? el("span", { class: "flag", title: item.why }, item.status === "failed" ? "failed" : "incomplete") :
      item.status === "skipped" ? el("span", { class: "flag quiet", title: item.why }, "skipped") : time(item.seconds);
    return el("a", { class: "row art", href: link({ view: item.findings.length ? "claims" : "details", a: item.path, c: "" }), "aria-selected": String(at === chosen) },
      el("span", { class: "name" }, el("b", { dir: "auto" }, item.title), el("span", {}, item.path + (item.why && item.status === "skipped" ? ` — ${item.why}` : ""))),
      el("span", { class: "stack", title: SEVERITIES.map((s) => `${own.filter((c) => c.sev === s).length} ${s}`).join(", ") },
        SEVERITIES.map((s) => [s, own.filter((c) => c.sev === s).length]).filter((x) => x[1]).map(([s, k]) => el("i", { class: `fill ${s}`, css: { width: `${100 * k / most}%` } }))),
      HOLDINGS.map((h) => el("span", { class: "r" }, count(h))), el("span", { class: "r small soft" }, flag));
  };
  const list = virtual(host, listed, 54, row);
  const table = el("div", { class: "table" }, el("div", { class: "art headrow" }, ["document", "severities", ...HOLDINGS, ""].map((t) => el("span", {}, t))),
    listed.length ? host : el("p", { class: "none" }, "No document matches."));
  return { node: table, list, keys: { length: listed.length, open: (n) => go({ view: items[listed[n]].findings.length ? "claims" : "details", a: items[listed[n]].path, c: "" }) } };
}
function overview() {
  const table = documents();
  return { ...table, node: el("div", { class: "wrap" }, el("div", { class: "cards" }, tiles(), chart()), table.node) };
}
