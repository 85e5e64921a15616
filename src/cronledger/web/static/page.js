// Reads an open page again when the ledger changes, adds the viewer's zone to times, and adds keys.
// The page works without this script.
"use strict";

const LIVE = "[data-live]";
const events = document.body.dataset.events;
let source = null, reading = false, again = false, lost = null;

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

// A part in which somebody chooses, writes or confirms is left alone.
function busy(part) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  return (active && /^(INPUT|SELECT|TEXTAREA|SUMMARY|BUTTON)$/.test(active.tagName))
    || part.querySelector("details[open], input[type=checkbox]:checked") !== null;
}

async function refresh() {
  if (document.hidden) return;
  if (reading) { again = true; return; }
  reading = true;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return; }  // to the sign-in
    if (response.ok) replace(new DOMParser().parseFromString(await response.text(), "text/html"));
    connected(response.ok);
  } catch {
    connected(false);
  } finally {
    reading = false;
    if (again) { again = false; setTimeout(refresh, 1000); }
  }
}

function replace(fresh) {
  const active = document.activeElement;
  const link = active instanceof HTMLAnchorElement ? active.getAttribute("href") : null;
  for (const part of document.querySelectorAll(LIVE)) {
    const other = fresh.getElementById(part.id);
    if (!other || busy(part) || part.isEqualNode(other)) continue;
    const focused = link !== null && part.contains(active);
    part.replaceWith(document.adoptNode(other));
    localise(other);
    if (focused) other.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
  }
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
