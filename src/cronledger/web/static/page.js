// Reads an open page again when the ledger changes, adds the viewer's zone to times, and adds keys.
// The page works without this script.
import { NOTE, update } from "./update.js";

const LIVE = "[data-live]";
const events = document.body.dataset.events;
let source = null, reading = false, again = false, lost = null, forced = null;
let known = "";  // the ETag of what the page shows; empty while a part is held

// --- refresh ---------------------------------------------------------------------------------------

function open() {
  if (source || !events || document.hidden) return;
  source = new EventSource(events);
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
    const headers = { Accept: "text/html", ...(known && { "If-None-Match": known }) };
    const response = await fetch(location.href, { headers, redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return; }  // to the sign-in
    if (response.ok) {
      const isWhole = replace(new DOMParser().parseFromString(await response.text(), "text/html"));
      known = isWhole ? response.headers.get("ETag") ?? "" : "";
    } else if (response.status === 304) {
      tick(response.headers.get("Database-Time"));
    }
    connected(response.ok || response.status === 304);
  } catch {
    connected(false);
  } finally {
    reading = false;
    if (again) { again = false; setTimeout(refresh, 1000); }
  }
}

// Returns whether the page is like `fresh` now: no part of it is held.
function replace(fresh) {
  let isWhole = true;
  localise(fresh);
  for (const part of document.querySelectorAll(LIVE)) {
    const other = fresh.getElementById(part.id);
    if (!other) continue;
    const use = update(part, other, part.id === forced);
    isWhole &&= use === null;
    note(part, use);
  }
  forced = null;
  return isWhole;
}

// Shows the database's time, if nothing else has changed.
function tick(now) {
  const time = document.querySelector("#foot time");
  if (!time || !now) return;
  const text = now.slice(0, 19).replace("T", " ");
  time.dateTime = `${now.slice(0, 19)}Z`;
  time.title = `${text} UTC`;
  time.firstChild.data = `${text} `;
  delete time.dataset.local;
  localise(time.parentElement);
}

// Shows in the heading of a part that it is held, and offers to let it go.
function note(part, use) {
  const found = part.querySelector(`.${NOTE}`);
  if (use === null) { found?.remove(); return; }
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
  part.querySelector("h2")?.append(made);
}

function connected(is) {
  const note = document.getElementById("connection");
  lost = is ? null : lost ?? Date.now();
  note.hidden = is;
  if (!is) {
    const seconds = Math.round((Date.now() - lost) / 1000);
    note.textContent = `This page cannot be read again. What you see is ${seconds} s old or older.`;
  }
}

// --- times -----------------------------------------------------------------------------------------

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function localise(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    if (time.dataset.local) continue;
    time.dataset.local = "yes";
    time.title += `\n${local.format(new Date(time.dateTime))} (yours)`;
  }
}

// --- keys ------------------------------------------------------------------------------------------

const keys = document.getElementById("keys");

function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.querySelector("a").focus();
  next?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
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
open();
