// Reads what has changed on an open page, counts ages on, shows a lamp and the viewer's zone, and adds keys.
// The page works without this script.
import { NOTE, isSelected, update } from "./update.js";

const PARTS = "[data-part]";
const { events, zone } = document.body.dataset;
const content = document.getElementById("content");
let source = null, reading = false, again = false, forced = null;
let isLost = false;  // the server does not respond
let isHeld = false;  // a part is left as it is, because somebody uses it
// The database's time at the last response, and the instant of the browser at which it came.
let clock = { text: "", time: Date.parse(document.querySelector("#database-time time")?.dateTime), at: performance.now() };

// --- refresh ---------------------------------------------------------------------------------------

function open() {
  if (source || !events || document.hidden) return;
  source = new EventSource(events);
  source.addEventListener("open", shine);
  source.addEventListener("change", refresh);
  source.addEventListener("error", () => {
    refresh();  // shows why there are no events
    if (source?.readyState !== EventSource.CLOSED) return;  // the browser connects again
    close();
    setTimeout(open, 5000);
  });
}

function close() {
  if (source) source.close();
  source = null;
}

async function refresh() {
  if (document.hidden) return;
  if (reading) { again = true; return; }
  reading = true;
  try {
    const known = [...document.querySelectorAll(PARTS)].map((part) => `${part.id}=${part.dataset.part}`);
    const headers = { Accept: "text/html", "Known-Parts": known.join(" ") };
    const response = await fetch(location.href, { headers, redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return; }  // to the sign-in
    isLost = !response.ok;
    if (response.ok) {
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      replace(fresh, response.headers.get("Sent-Parts") === "all");
      tick(response.headers.get("Database-Time"));
    }
  } catch {
    isLost = true;
  } finally {
    reading = false;
    shine();
    if (again) { again = false; setTimeout(refresh, 1000); }
  }
}

// Makes the page like `fresh`, which has the changed parts, or the whole page if it has other parts now.
function replace(fresh, isWhole) {
  localise(fresh);
  const parts = [...document.querySelectorAll(PARTS)];
  const outer = isWhole ? [...parts.filter((part) => !content.contains(part)), content] : parts;
  isHeld = false;
  for (const part of outer) {
    const other = fresh.getElementById(part.id);
    const use = other && update(part, other, part.id === forced || (isWhole && forced !== null));
    note(part, use);
    if (!use) continue;
    isHeld = true;
    for (const one of [part, ...part.querySelectorAll(PARTS)]) one.dataset.part &&= "held";  // is sent again
  }
  forced = null;
}

// Shows in the heading of a part that it is held, and offers to let it go.
function note(part, use) {
  const heading = part.querySelector(":scope > h2"), found = heading?.querySelector(`.${NOTE}`);
  if (!use || !heading) { found?.remove(); return; }
  const text = `Held while ${use}`;
  if (found) { if (found.firstChild.data !== text) found.firstChild.data = text; return; }
  const made = document.createElement("span");
  made.className = NOTE;
  made.setAttribute("role", "status");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Update";
  button.addEventListener("click", () => {
    forced = part.id;
    part.querySelector(".scroll")?.focus({ preventScroll: true });
    refresh();
  });
  made.append(text, button);
  heading.append(made);
}

// The lamp says whether the page shows the present.
function shine() {
  const lamp = document.getElementById("lamp");
  if (!lamp) return;
  const away = isLost ? "server" : document.querySelector("#database .away") ? "database" : null;
  const asOf = clock.time ? `as of ${stamp.format(clock.time).slice(11)}${zone === "UTC" ? " UTC" : ""}, ` : "";
  const text = away ? `${asOf}the ${away} is away`
    : isHeld ? "held while you choose" : "live";
  lamp.className = away ? "away" : isHeld ? "held" : "live";
  lamp.hidden = false;
  if (lamp.textContent !== text) lamp.textContent = text;
}

// --- times -----------------------------------------------------------------------------------------

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const stamp = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: zone });
const AGES = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];  // as in formats.py

function localise(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    if (time.dataset.local) continue;
    time.dataset.local = "yes";
    time.title += `\n${local.format(new Date(time.dateTime))} (yours)`;
  }
}

// Shows the database's time. If the database is away, that is the time of its last response.
function tick(now) {
  const shown = document.querySelector("#database-time time");
  if (!now || now === clock.text) return;
  clock = { text: now, time: Date.parse(now), at: performance.now() };
  if (!shown) return;
  shown.dateTime = now;
  shown.firstChild.data = `${stamp.format(clock.time)} `;
  shown.title = `${now.slice(0, 19).replace("T", " ")} UTC`;
  delete shown.dataset.local;
  localise(shown.parentElement);
}

function length(seconds) {
  const found = AGES.findIndex(([size]) => seconds >= size), at = found < 0 ? AGES.length - 1 : found;
  const [size, unit] = AGES[at];
  const rest = at < 2 ? Math.floor((seconds % size) / AGES[at + 1][0]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${AGES[at + 1][1]}` : ""}`;
}

// Counts the ages on.
function count() {
  if (document.hidden) return;
  const now = clock.time + performance.now() - clock.at;
  for (const time of document.querySelectorAll("time[data-age]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000, words = length(Math.abs(seconds));
    const text = time.dataset.age === "bare" ? words : seconds < 0 ? `in ${words}` : `${words} ago`;
    if (time.firstChild.data !== text && !isSelected(time)) time.firstChild.data = text;
  }
}

const own = document.getElementById("own-zone");
if (own) {
  const link = new URL(own.href);
  link.searchParams.set("zone", Intl.DateTimeFormat().resolvedOptions().timeZone);
  own.href = link;
  own.hidden = false;
}

// A picture that is wider than its frame opens at the present.
for (const now of document.querySelectorAll(".scroll .now")) {
  const frame = now.closest(".scroll"), left = now.getBoundingClientRect().left - frame.getBoundingClientRect().left;
  frame.scrollLeft ||= left - frame.clientWidth / 2;
}

// --- forms -----------------------------------------------------------------------------------------

// An instant is chosen or typed: to fill in one field empties the other.
function keepOnly(field) {
  for (const one of field.closest(".moment")?.querySelectorAll("input") ?? []) if (one !== field && field.value) one.value = "";
}

document.addEventListener("input", ({ target }) => keepOnly(target));
// Somebody may have typed before this script was loaded.
for (const field of document.querySelectorAll(".moment input")) if (field.value !== field.defaultValue) keepOnly(field);

// --- keys ------------------------------------------------------------------------------------------

const keys = document.getElementById("keys");

function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.querySelector("a").focus();
  next?.scrollIntoView({ block: "nearest" });
}

// The search over everything: shows the results of the page that the form would open.
const find = document.getElementById("find"), findText = document.getElementById("find-text");
const findResults = document.getElementById("find-results");
let asked = 0, typing = null;

async function search() {
  const mine = ++asked, query = new URLSearchParams({ q: findText.value });
  try {
    const response = await fetch(`${findText.form.action}?${query}`, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (!response.ok) throw new Error();
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    const found = fresh.querySelectorAll("#found > :not(h2)");
    if (mine === asked) findResults.replaceChildren(...found);
  } catch {
    if (mine === asked) findResults.textContent = "The server does not respond. Enter opens the page of results.";
  }
}

function step(by) {
  const links = [...findResults.querySelectorAll("a")], at = links.indexOf(document.activeElement) + by;
  (links[at] ?? findText).focus();
}

if (find) {
  find.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); step(by); }
    if (event.key === "Escape") { event.preventDefault(); find.close(); }  // a search field would only empty itself
  });
  findText.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 150); });
}

document.addEventListener("keydown", (event) => {
  if (find && (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (!find.open && !keys.open) { find.showModal(); findText.select(); search(); }
    return;
  }
  if (find?.open) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName) || keys.open) {
    if (event.key === "Escape") document.activeElement?.blur();
    return;
  }
  const action = {
    "/": () => document.getElementById("search")?.focus(),
    "j": () => move(1),
    "k": () => move(-1),
    "?": () => keys.showModal(),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});

const button = document.getElementById("show-keys");
button.hidden = false;
button.addEventListener("click", () => keys.showModal());

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close(); else { open(); refresh(); }
});
addEventListener("pagehide", close);
localise(document);
if (clock.time) setInterval(count, 1000);
open();
