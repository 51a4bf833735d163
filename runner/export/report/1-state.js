"use strict";
// One script, in parts that are joined in the order of their names: elements, the data, the state, long lists.

const SEVERITIES = ["blocker", "major", "minor", "nit"];
const HOLDINGS = ["conceded", "deferred", "rejected"];
const LABELS = ["CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT"];
const CAUSES = {
  measured: "measured", reply: "from the reply; not measured", close: "two labels too near to call",
  engine: "the engine gave no usable answer", human: "judged by a person",
};
const PRINT_MAX = 400;
const app = document.getElementById("app");

// Foreign text only ever becomes a text node.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (key === "css") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const percent = (p) => `${Math.round(p * 100)} %`;
const time = (s) => (s >= 5400 ? `${(s / 3600).toFixed(1)} h` : s >= 90 ? `${Math.round(s / 60)} min` : `${s.toFixed(s < 10 ? 1 : 0)} s`);
const sev = (s) => el("span", { class: `sev ${s}` }, s);
const verd = (c) => el("span", { class: `verd ${c.hold}`, title: c.verdict || "no verdict" },
  c.verdict === "CONCEDE-IN-PART" ? "conceded in part" : c.verdict === "unjudged" ? "stands" : c.verdict ? c.hold : "no verdict");

async function load() {
  const script = document.getElementById("data");
  if (!script.dataset.packed) return JSON.parse(script.textContent);
  const bytes = Uint8Array.from(atob(script.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

let data, items, claims, state, shown, listed, chosen = 0, lists = [];
let view = { head: null, bar: null, main: null };

function prepare() {
  items = data.items;
  claims = [];
  items.forEach((item, n) => item.findings.forEach((c) => {
    c.item = n;
    c.key = c.fp.slice(0, 12) + c.fp.slice(c.fp.indexOf(":"));
    c.text = [c.problem, c.quote, c.reason, c.id, c.by, item.path, item.title].join("\n").toLowerCase();
    claims.push(c);
  }));
  claims.sort((a, b) => HOLDINGS.indexOf(a.hold) - HOLDINGS.indexOf(b.hold) ||
    SEVERITIES.indexOf(a.sev) - SEVERITIES.indexOf(b.sev) || a.item - b.item || (a.id < b.id ? -1 : 1));
}

// ---- the state is the hash, so a link is a view
function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const words = (key, all) => (given.get(key) || "").split(".").filter((w) => all.includes(w));
  const usual = claims.length === 0 && items.length === 1 ? "details" : items.length > 1 ? "overview" : "claims";
  return {
    view: ["overview", "claims", "details"].includes(given.get("view")) ? given.get("view") : usual,
    sev: words("sev", SEVERITIES), v: words("v", HOLDINGS), who: given.get("who") || "", kind: given.get("kind") || "",
    a: given.get("a") || "", q: given.get("q") || "", c: given.get("c") || "",
  };
}
function link(changes) {
  const next = { ...state, ...changes };
  const out = new URLSearchParams();
  for (const [key, value] of Object.entries(next)) {
    const text = Array.isArray(value) ? value.join(".") : value;
    if (text) out.set(key, text);
  }
  return "#" + out.toString();
}
function go(changes, replace) {
  const hash = link(changes);
  if (hash === location.hash) return;
  if (replace) { history.replaceState(null, "", hash); render(); } else location.hash = hash;
}

const matches = (c, s) => (!s.sev.length || s.sev.includes(c.sev)) && (!s.v.length || s.v.includes(c.hold)) &&
  (!s.who || c.by === s.who) && (!s.kind || c.kind === s.kind) && (!s.a || items[c.item].path === s.a) &&
  s.q.toLowerCase().split(/\s+/).every((w) => c.text.includes(w));
function filter() {
  shown = claims.filter((c) => matches(c, state));
  const narrowed = state.sev.length || state.v.length || state.who || state.kind || state.q || state.a;
  const hit = new Set(shown.map((c) => c.item));
  const words = state.q.toLowerCase();
  const plain = !(state.sev.length || state.v.length || state.who || state.kind);
  listed = items.map((_, n) => n).filter((n) => !narrowed || hit.has(n) ||
    (plain && (!state.a || items[n].path === state.a) && (items[n].path + "\n" + items[n].title).toLowerCase().includes(words)));
}

// ---- lists draw only the rows that can be seen
function virtual(host, rows, height, draw) {
  host.style.height = `${rows.length * height}px`;
  let from = -1, to = -1;
  const update = (force) => {
    const top = host.getBoundingClientRect().top;
    const a = Math.max(0, Math.floor((-top - 300) / height)), b = Math.min(rows.length, Math.ceil((innerHeight - top + 300) / height));
    if (!force && a === from && b === to) return;
    from = a; to = b;
    host.replaceChildren(...rows.slice(a, b).map((row, n) => {
      const node = draw(row, a + n);
      node.style.top = `${(a + n) * height}px`;
      node.style.height = `${height}px`;
      return node;
    }));
  };
  const list = { update, show: (n) => {
    const y = host.getBoundingClientRect().top + n * height, under = (getComputedStyle(view.bar).position === "sticky" ? view.bar.offsetHeight : 0) + 8;
    if (y < under) scrollBy(0, y - under); else if (y + height > innerHeight) scrollBy(0, y + height - innerHeight);
    update(true);
  } };
  lists.push(list);
  return list;
}
