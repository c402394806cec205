"use strict";
// Pages are whole without this. It loads parts of them anew, takes keys, and makes the map of holes a thing to walk in.
const $ = (what, within = document) => within.querySelector(what);
const here = () => location.pathname + location.search;
let asked = 0, opened = 0, underWay = 0;  // what is answered late is not shown
let pickedKey = null, mapAt = null, pressed = false;

async function page(url) {
  const answer = await fetch(url, {headers: {Accept: "text/html"}});
  if (answer.redirected && new URL(answer.url).pathname === "/login") location.assign("/login");
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// What has the focus in a part that is loaded anew gets it back: the same link, or what stands in its place.
function focus() {
  const all = () => [...$("#live").querySelectorAll("a, button, input, [tabindex]")];
  const old = document.activeElement, at = $("#live") ? all().indexOf(old) : -1, href = old?.getAttribute("href");
  return () => {
    if (at >= 0 && !old.isConnected) (all().find(each => href && each.getAttribute("href") === href) ?? all()[at])?.focus();
  };
}

async function load(url, remember) {
  const number = ++asked;
  if (remember) history.replaceState(null, "", url);
  try {
    underWay++;
    const found = await page(url);
    if (number !== asked || (held() && !remember)) return;  // nothing goes from under a finger, nor what was chosen
    const focused = focus();
    for (const id of ["live", "age", "news"]) {
      const fresh = found.getElementById(id), old = document.getElementById(id);
      if (fresh && old) old.replaceWith(fresh);
    }
    focused();
    pick(pickedKey);
    if (mapAt !== null) aim(mapAt);
  } catch {
    const age = $("#age");
    age.textContent = "the console does not answer";
    age.classList.add("away");
  } finally {
    underWay--;
  }
}

for (const [kind, down] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]])
  document.addEventListener(kind, () => { pressed = down; });
const held = () => pressed || !getSelection().isCollapsed || $(".pick input:checked");
const busy = () => underWay > 0 || document.hidden || !$("#live") || held();
setInterval(() => { if (!busy()) load(here(), false); }, 1000 * document.body.dataset.every);

// Filter
let typed;
function filtered() {
  clearTimeout(typed);
  const url = new URL(location), words = $("#filter").value;
  url.searchParams.delete("page");
  if (words) url.searchParams.set("q", words); else url.searchParams.delete("q");
  return load(url.pathname + url.search, true);
}
$("#filter")?.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(filtered, 120); });
$("form.filter")?.addEventListener("submit", async event => {
  event.preventDefault();
  $("#filter").blur();
  await filtered();
  pick(rows()[0]?.dataset.key);
});

// Rows
const rows = () => [...document.querySelectorAll("#live tbody tr[data-key]")];
function pick(key) {
  pickedKey = key ?? null;
  for (const row of rows()) row.classList.toggle("picked", row.dataset.key === pickedKey);
}
function step(by) {
  const all = rows(), at = all.findIndex(row => row.dataset.key === pickedKey);
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))];
  if (!next) return;
  pick(next.dataset.key);
  next.scrollIntoView({block: "nearest"});
}

// The map of holes
const words = {g: "deleted", d: "below mark-delete", a: "acknowledged", t: "not delivered yet", h: "unacknowledged", s: "suspect, unacknowledged"};
const plain = number => Number(number).toLocaleString("en");
const map = () => $("#map");
function aim(offset) {
  const svg = map();
  if (!svg) return null;
  const {first, last, scale, columns, cells, left} = svg.dataset;
  mapAt = Math.min(last - 1, Math.max(first, offset));
  const cell = Math.floor((mapAt - first) / scale), begin = +first + cell * scale, end = Math.min(last, begin + +scale) - 1;
  $("#cursor").setAttribute("x", cell % columns);
  $("#cursor").setAttribute("y", Math.floor(cell / columns));
  svg.classList.add("on");
  const open = +left.split(",")[cell], all = end - begin + 1, worst = words[cells[cell]];
  $("#cell").textContent = begin === end ? `offset ${plain(begin)}: ${worst}`
    : `offsets ${plain(begin)} – ${plain(end)}: ${open ? `${plain(open)} of ${plain(all)} unacknowledged; worst: ` : ""}${worst}`;
  return begin;
}
function at(event) {
  const svg = map(), point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const {first, last, scale, columns} = svg.dataset, x = Math.floor(point.x), y = Math.floor(point.y);
  const offset = +first + (y * columns + x) * scale;
  return x >= 0 && x < columns && y >= 0 && offset < +last ? offset : null;
}
function zoom(into) {
  const {scale, here, columns} = map().dataset;
  if (!into) return $("#live [data-zoom=out]")?.click();
  if (+scale === 1) return message(mapAt);
  const finer = Math.max(1, Math.floor(scale / 10));
  load(`${here}&from=${Math.max(0, mapAt - finer * columns * 4)}&scale=${finer}`, true);
}
async function message(offset) {
  const panel = $("#panel"), number = ++opened;
  const found = await page(`${map().dataset.message}&offset=${offset}`);
  if (number !== opened) return;
  panel.replaceChildren(found.getElementById("message") ?? "The message could not be loaded.");
  panel.hidden = false;
}
const open = () => $("#panel") && !$("#panel").hidden;
const close = () => { $("#panel").hidden = true; };

document.addEventListener("pointermove", event => {
  if (event.target.closest?.("#map")) { const offset = at(event); if (offset !== null) aim(offset); }
});
document.addEventListener("click", event => {
  const live = event.target.closest("a[data-live]"), copy = event.target.closest("[data-copy]");
  if (live && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    load(live.getAttribute("href"), true);
  } else if (copy) {
    navigator.clipboard?.writeText(copy.dataset.copy);
    copy.classList.add("copied");
    setTimeout(() => copy.classList.remove("copied"), 1200);
  } else if (event.target.closest("#map")) {
    const offset = at(event);
    if (offset !== null) { aim(offset); zoom(true); }
  } else if (event.target.closest(".pick")) {
    if (event.target.id === "every") for (const box of document.querySelectorAll(".pick [name=id]")) box.checked = event.target.checked;
    const chosen = document.querySelectorAll(".pick [name=id]:checked").length;
    $("#picked").textContent = chosen ? chosen : "all";
  } else if (open() && !event.target.closest("#panel")) close();
});
const moves = {ArrowLeft: -1, ArrowRight: 1, h: -1, l: 1};
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key, target = event.target;
  if (key === "Escape") {
    if (open()) close();
    else if (target.matches("input, textarea")) target.blur();
    else if (pickedKey) pick(null);
    else if ($(".crumbs a")) $(".crumbs a").click();
    return;
  }
  if (target.matches("input:not([type=checkbox]), textarea, select")) return;
  if (target.id === "map" || (map() && target === document.body && key in moves)) {
    const {scale, columns, first} = map().dataset, now = mapAt ?? +first;
    const by = moves[key] ?? {ArrowUp: -columns, ArrowDown: +columns}[key];
    if (by !== undefined) aim(now + by * scale);
    else if (key === "Enter") { aim(now); zoom(true); }
    else if (key === "+" || key === "=") { aim(now); zoom(true); }
    else if (key === "-") zoom(false);
    else return;
    event.preventDefault();
  } else if (key === "/" && $("#filter")) {
    $("#filter").focus();
    $("#filter").select();
    event.preventDefault();
  } else if (key === "j" || key === "ArrowDown") { step(1); event.preventDefault(); }
  else if (key === "k" || key === "ArrowUp") { step(-1); event.preventDefault(); }
  else if (key === "Enter" && target === document.body) rows().find(row => row.dataset.key === pickedKey)?.querySelector("a")?.click();
});
