// ---- drawing, keys, print
let current = null;
function render() {
  const before = state;
  state = read();
  filter();
  if (before && (before.view !== state.view)) chosen = 0;
  const at = document.activeElement, typing = at && at.type === "search" ? [at.selectionStart, at.value] : null;
  lists = [];
  current = { overview, claims: claimList, details }[state.view]();
  view.head.replaceChildren(header());
  view.bar.replaceChildren(filters());
  view.bar.hidden = !claims.length && items.length < 2;
  view.main.replaceChildren(current.node);
  if (typing) { const box = view.bar.querySelector("input"); box.value = typing[1]; box.focus(); box.setSelectionRange(typing[0], typing[0]); }
  document.documentElement.style.setProperty("--bar", `${view.bar.offsetHeight}px`);
  lists.forEach((l) => l.update(true));
  if (before && before.view !== state.view && scrollY > view.bar.offsetTop) scrollTo(0, view.bar.offsetTop);
  if (current.list && state.view === "claims" && state.c && innerWidth > 900) current.list.show(chosen);
  if (state.c && innerWidth <= 900) scrollTo(0, view.bar.offsetTop + view.bar.offsetHeight);
}
function move(step) {
  if (!current.keys.length) return;
  chosen = Math.max(0, Math.min(current.keys.length - 1, chosen + (state.view === "claims" && !state.c && step > 0 ? 0 : step)));
  if (current.keys.move) current.keys.move(chosen); else current.list.show(chosen);
}
function help() {
  const keys = [["j  k", "next, previous"], ["Enter", "open"], ["Esc", "back; then clear the filters"], ["/", "search"], ["1  2  3", "the three views"], ["?", "this"]];
  const box = el("dialog", { "aria-label": "Keys", on: { close: () => box.remove() } }, el("h1", {}, "Keys"),
    el("div", { class: "keys" }, keys.map(([k, what]) => [el("span", {}, k.split("  ").map((x) => [el("kbd", {}, x), " "])), el("span", {}, what)])),
    el("button", { class: "btn", type: "button", on: { click: () => box.close() } }, "Close"));
  document.body.append(box);
  box.showModal();
}
function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const typing = /INPUT|SELECT|TEXTAREA/.test(e.target.tagName);
  if (e.key === "Escape") {
    if (typing) e.target.blur(); else if (state.c && innerWidth <= 900) go({ c: "" }); else if (state.view === "claims" && state.c) go({ c: "" }, true); else clear();
    return;
  }
  if (typing) return;
  const act = { j: () => move(1), k: () => move(-1), "?": help, "/": () => view.bar.querySelector("input").focus(),
    Enter: () => { if (e.target === document.body && current.keys.length && current.keys.open) current.keys.open(chosen); else return true; },
    1: () => go({ view: "overview", c: "" }), 2: () => go({ view: "claims", c: "" }), 3: () => go({ view: "details", c: "" }) }[e.key];
  if (act && act() !== true) e.preventDefault();
}
function paper() {
  const box = document.getElementById("print"), some = shown.slice(0, PRINT_MAX);
  box.replaceChildren(header(), ...some.map((c) => one(c, true)), shown.length > some.length ? el("p", {}, `${shown.length - some.length} more claims are not printed; filter first.`) : "");
}

load().then((found) => {
  data = found;
  prepare();
  view = { head: el("div", {}), bar: el("div", { class: "bar" }), main: el("main", {}) };
  app.replaceChildren(view.head, view.bar, view.main);
  render();
  addEventListener("hashchange", render);
  addEventListener("scroll", () => lists.forEach((l) => l.update(false)), { passive: true });
  addEventListener("resize", () => lists.forEach((l) => l.update(false)));
  addEventListener("keydown", key);
  addEventListener("beforeprint", paper);
  addEventListener("afterprint", () => document.getElementById("print").replaceChildren());
  document.documentElement.dataset.ready = "yes";
}, () => app.replaceChildren(el("p", { class: "lost" }, "This browser is too old to read the report, or the file is damaged.")));
