// Updates a part of the page in place, so that what stays keeps its scroll, focus, selection, open details
// and entered values. Rows are recognised by `data-key`; everything else by its place.
//
// While somebody uses a part, its rows keep their places: none is added, removed or moved. The cells of the
// rows change all the same, except those of a row whose text is selected.
"use strict";

const FIELD = "input:not([type=checkbox]), select, textarea";
const FORM = "details.confirm[open]";
const TICKED = "input[type=checkbox]:checked";
export const NOTE = "held";

/**
 * Make `part` like `fresh`, whose nodes may be moved into it.
 * Returns what somebody does in `part` if something was left as it is for that reason, otherwise null.
 */
export function update(part, fresh, isForced) {
  const active = document.activeElement;
  const changes = new Changes(isForced ? null : useOf(part));
  changes.node(part, fresh);
  refocus(part, active);
  return changes.isHeld ? changes.use : null;
}

class Changes {
  constructor(use) {
    this.use = use;
    this.isHeld = false;
  }

  node(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (this.use !== null && isUnit(old) && isSelected(old)) { this.isHeld = true; return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { old.data = fresh.data; return; }
    attributes(old, fresh);
    if (keyOf(old.firstElementChild) && keyOf(fresh.firstElementChild)) this.rows(old, fresh);
    else this.children(old, fresh);
  }

  rows(old, fresh) {
    const rows = new Map([...old.children].map((row) => [keyOf(row), row]));
    const news = [...fresh.children];
    if (this.use !== null) {
      const keys = [...old.children].map(keyOf);
      this.isHeld ||= keys.length !== news.length || news.some((row, at) => keyOf(row) !== keys[at]);
      for (const row of news) if (rows.has(keyOf(row))) this.node(rows.get(keyOf(row)), row);
      return;
    }
    const wanted = new Set(news.map(keyOf));
    for (const row of [...old.children]) if (rows.get(keyOf(row)) !== row || !wanted.has(keyOf(row))) row.remove();
    let at = old.firstElementChild;
    for (const row of news) {
      const known = rows.get(keyOf(row));
      rows.delete(keyOf(row));  // a further row with this key is a new one
      if (known && known === at) at = at.nextElementSibling;
      else old.insertBefore(known ?? row, at);
      if (known) this.node(known, row);
    }
  }

  children(old, fresh) {
    const olds = [...old.childNodes].filter((node) => !isNote(node));
    const news = [...fresh.childNodes];
    const fits = olds.length === news.length && news.every((node, at) => isAlike(olds[at], node));
    if (!fits && this.use !== null && isUsed(old)) { this.isHeld = true; return; }
    let at = 0;
    for (const node of news) {
      const known = olds.findIndex((other, place) => place >= at && isAlike(other, node));
      if (known === at || (known > at && node.nodeType === Node.ELEMENT_NODE)) {
        for (; at < known; at += 1) olds[at].remove();
        at += 1;
        this.node(olds[known], node);
      } else {
        old.insertBefore(node, olds[at] ?? null);
      }
    }
    for (const node of olds.slice(at)) node.remove();
  }
}

// `open` of details belongs to the person.
function attributes(old, fresh) {
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
}

function refocus(part, active) {
  if (active === document.activeElement || !(active instanceof HTMLElement)) return;
  if (active.isConnected) { active.focus({ preventScroll: true }); return; }
  const link = active.getAttribute("href");
  if (link !== null) part.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
}

function useOf(part) {
  if (isSelected(part)) return "text is selected";
  if (part.querySelector(FORM)) return "a form is open";
  if (part.querySelector(TICKED)) return "a box is ticked";
  if (hasField(part)) return "a field is in use";
  return null;
}

function isUsed(node) {
  return isSelected(node) || node.querySelector(`${FORM}, ${TICKED}`) !== null || hasField(node);
}

function hasField(node) {
  return [...node.querySelectorAll(FIELD)].some((field) => field === document.activeElement || hasText(field));
}

// Somebody typed into a field that can be seen.
function hasText(field) {
  return field.matches("input, textarea") && field.value !== field.defaultValue && field.checkVisibility();
}

export function isSelected(node) {
  const selection = getSelection();
  return selection.rangeCount > 0 && !selection.isCollapsed && selection.containsNode(node, true);
}

// What is left as a whole while a part of it is selected. Rows without keys would become others.
function isUnit(node) {
  return node.nodeType !== Node.ELEMENT_NODE || node.matches("tr, pre, svg")
    || (node.matches("tbody") && !keyOf(node.firstElementChild));
}

function isAlike(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE
    || (old.id === fresh.id && old.getAttribute("class") === fresh.getAttribute("class"));
}

function isNote(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.classList.contains(NOTE);
}

function keyOf(element) {
  return element?.dataset?.key;
}
