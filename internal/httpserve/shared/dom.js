// Functions that create and update elements. Text is never interpreted as markup.

import { exact, inline, since, trouble, when } from "./words.js";

// h creates an element. A property on… adds a listener, the value true an empty attribute, and false, null or
// undefined no attribute.
export function h(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(9).filter((child) => child != null && child !== false));
  return node;
}

export const button = (text, onclick, more) => h("button", { type: "button", onclick, ...more }, text);

// breakable lets the URLs in a text wrap after each slash. It leaves long texts alone, which could have very many slashes.
export const breakable = (text) => (text.length < 2000 && text.includes("://") ? text.split(/(?<=[^/]\/)(?!\/)/) : [text]).map((part, i) => [i > 0 && h("wbr"), part]);

// remote shows untrusted text: control characters become visible, and its direction does not affect its surroundings.
export const remote = (text, kind = "") => h("bdi", { class: kind || null }, breakable(inline(text ?? "")));

export const optional = (text) => (text ? remote(text) : "");

// Texts of times relative to now; tick updates them.
const wordings = { when, since };
const clock = (how) => (time) => h("time", { datetime: time, title: exact(time), "data-tick": how }, wordings[how](time));
export const ago = clock("when");
export const waited = clock("since");

export function tick() {
  for (const node of document.querySelectorAll("[data-tick]")) {
    const text = wordings[node.dataset.tick](node.dateTime);
    if (node.textContent !== text) node.textContent = text;
  }
}

// facts returns a list of terms and values; terms without a value are left out.
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(([, value]) => value || value === 0)
    .map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));

export const badge = (text, kind) => h("span", { class: `badge ${kind}` }, text);

// section returns a part of a view with a heading, a line for problems, and content.
export function section(level, title, ...content) {
  const problem = alertLine();
  const heading = h(level, { tabindex: "-1" }, title);
  const node = h("section", null, heading, problem, content);
  return { node, heading, problem };
}

// alertLine returns a line for problems; report shows an error in it, or hides it.
export const alertLine = () => h("p", { class: "problem", role: "alert", hidden: true });
export function report(line, error) {
  line.hidden = !error;
  line.textContent = error ? trouble(error) : "";
}

const versions = new WeakMap();
const version = (item) => JSON.stringify(item, (name, value) => (name === "last" ? undefined : value));

// sync replaces the children of parent by the elements that render returns for items. It keeps the element of an
// unchanged item. The focus stays where it was, or moves to refuge.
export function sync(parent, items, keyOf, render, refuge) {
  const focused = document.activeElement;
  const inside = parent.contains(focused);
  const holder = inside ? [...parent.children].find((child) => child.contains(focused)) : null;
  const keys = new Set(items.map(keyOf));
  const present = new Map();
  for (const child of [...parent.children]) {
    if (keys.has(child.dataset.key)) present.set(child.dataset.key, child);
    else child.remove();
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = present.get(key);
    if (!child || versions.get(child) !== version(item)) {
      const fresh = render(item);
      fresh.dataset.key = key;
      versions.set(fresh, version(item));
      child?.replaceWith(fresh);
      if (child && child === next) next = fresh;
      child = fresh;
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  if (!inside || document.activeElement === focused) return;
  const again = focused.isConnected ? focused : [...parent.children]
    .find((child) => child.dataset.key === holder.dataset.key)
    ?.querySelector(focused.dataset.action ? `[data-action="${focused.dataset.action}"]` : "a, button");
  (again ?? refuge)?.focus();
}

// listing returns a section with a table of items. Each row has the cells that cells returns; the first one is
// the row header. Explicit roles remain when narrow screens show rows as blocks.
export function listing({ level = "h1", title, caption, columns, keyOf, cells, before, after }) {
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map((name) => h("th", { scope: "col", role: "columnheader" }, name));
  const table = h("table", { role: "table", hidden: true }, h("caption", null, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body);
  const words = h("p", { class: "empty", role: "status" }, "Loading");
  const part = section(level, title, before, table, words, after);
  const row = (item) => h("tr", { role: "row" }, cells(item).map((cell, i) => (i === 0
    ? h("th", { scope: "row", role: "rowheader", "data-label": columns[i] }, cell)
    : h("td", { role: "cell", "data-label": columns[i] }, cell))));
  // show shows items in the table, with a text below.
  const show = (items, below) => {
    sync(body, items, keyOf, row, part.heading);
    table.hidden = !items.length;
    words.textContent = below;
  };
  return { ...part, show };
}
