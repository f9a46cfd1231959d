// The list of all sources: filtered by text, kind, namespace and state, sorted, and shown one page at a time. The URL
// contains the filter and the order.

import { buttons, copier, reconcile, toggle } from "./actions.js";
import { field } from "./dialog.js";
import { button, h, listing, remote } from "./dom.js";
import { brief, route, short, stateOf, states, why } from "./sources.js";
import { count, number } from "./words.js";

const size = 50; // sources per page

// Columns, and their sort keys.
const columns = [
  ["Source", "name", (entry) => entry.key],
  ["State", "state", (entry) => entry.rank],
  ["Revision", "revision", (entry) => entry.source.revision ?? ""],
  ["Artifact", "artifact", (entry) => -entry.updated],
  ["Checked", "checked", (entry) => -entry.checked],
  ["Next", "next", (entry) => entry.next || Infinity],
  ["Action"],
];

// find returns the entries that match a text, kind and namespace.
function find(items, { q, kind, namespace }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return [...items.values()].filter(({ source, text }) => (!kind || source.kind === kind) &&
    (!namespace || source.namespace === namespace) && words.every((word) => text.includes(word)));
}

function order(entries, sort) {
  const by = (columns.find(([, name]) => name === sort.replace("-", "")) ?? columns[1])[2];
  const sign = sort.startsWith("-") ? -1 : 1;
  return entries.map((entry) => [by(entry), entry])
    .sort(([x, a], [y, b]) => (x < y ? -sign : x > y ? sign : a.key < b.key ? -1 : 1))
    .map(([, entry]) => entry);
}

// chooser returns a drop-down list whose options are updated by known, which keeps the chosen one.
function chooser(name, chosen, change) {
  const node = h("select", { name, onchange: change });
  let had = null;
  const offer = (values) => {
    const all = [...new Set(values).add(node.value || chosen)].filter(Boolean).sort();
    if (had === all.join("\n")) return;
    had = all.join("\n");
    const now = node.value || chosen;
    node.replaceChildren(h("option", { value: "" }, "all"), ...all.map((value) => h("option", { value }, remote(value).textContent)));
    node.value = now;
  };
  offer([]);
  return { node, offer };
}

// stateButtons returns buttons that choose a state and show the number of sources in it.
function stateButtons(wanted, choose) {
  const nodes = new Map(["", ...Object.keys(states)].map((name) => [name, button("", () => choose(name), { class: "quiet", "data-state": name })]));
  const show = (entries) => {
    const counts = Map.groupBy(entries, (entry) => entry.state);
    for (const [name, node] of nodes) {
      const n = name ? counts.get(name)?.length ?? 0 : entries.length;
      const words = `${name ? states[name][0] : "All"} ${number(n)}`;
      if (node.textContent !== words) node.textContent = words;
      node.ariaPressed = wanted.state === name;
      node.hidden = n === 0 && name !== "" && wanted.state !== name;
    }
  };
  return { node: h("div", { class: "buttons", role: "group", "aria-label": "State" }, [...nodes.values()]), show };
}

// sortable turns the column headings into buttons that sort.
function sortable(part, wanted, change) {
  const heads = [...part.node.querySelectorAll("thead th")];
  const show = () => columns.forEach(([, name], i) => {
    if (name) heads[i].ariaSort = wanted.sort === name ? "ascending" : wanted.sort === `-${name}` ? "descending" : null;
  });
  columns.forEach(([title, name], i) => {
    if (name) heads[i].replaceChildren(button(title, () => { wanted.sort = wanted.sort === name ? `-${name}` : name; show(); change(); }, { class: "sort" }));
  });
  const narrow = field("Order", h("select", { name: "sort", onchange: (event) => { wanted.sort = event.target.value; show(); change(); } },
    columns.filter(([, name]) => name).map(([title, name]) => h("option", { value: name, selected: wanted.sort === name }, title))));
  narrow.classList.add("narrow");
  show();
  return narrow;
}

function reason(source) {
  const words = why(source);
  return words && h("span", { class: "why" }, words);
}

const revisionOf = (app, { source, open }, flip) => source.revision && h("span", { class: "revision" },
  h("button", { type: "button", class: "plain code", "aria-expanded": String(open), title: remote(source.revision).textContent, "data-action": "revision", onclick: flip },
    remote(open ? source.revision : short(source.revision))),
  open && copier(app, "revision", source.revision));

// defects returns the section with the defects of documents.
function defects() {
  const list = h("ul", { class: "failures" });
  const node = h("section", { class: "problem", hidden: true, "aria-label": "Problems in documents" }, h("h2", null, "Problems in documents"), list);
  const show = (all = []) => {
    node.hidden = !all.length;
    list.replaceChildren(...all.slice(0, 20).map((text) => h("li", null, remote(text))),
      ...(all.length > 20 ? [h("li", null, `and ${count(all.length - 20, "more problem")}`)] : []));
  };
  return { node, show };
}

const busyness = ({ running, queued } = {}) => [running && `${number(running)} running`, queued && `${number(queued)} queued`].filter(Boolean).join(", ");

export function listView(app, query) {
  const asked = (name) => query.get(name) ?? "";
  const wanted = { q: asked("q"), kind: asked("kind"), namespace: asked("namespace"), state: asked("state"), sort: asked("sort") || "state", page: Number(asked("page")) || 1 };
  const opened = new Set(); // keys of the sources whose revision is shown in full
  let saving = null;

  const address = () => {
    const chosen = Object.entries(wanted).filter(([name, value]) => value && value !== { sort: "state", page: 1 }[name]);
    return `#/${chosen.length ? `?${new URLSearchParams(chosen)}` : ""}`;
  };
  // keep updates the URL after a short delay, because browsers limit the rate of changes.
  const keep = () => {
    clearTimeout(saving);
    app.list = address();
    saving = setTimeout(() => history.replaceState(null, "", app.list), 200);
  };
  const change = () => { wanted.page = 1; draw(); keep(); };
  const turn = (by) => () => { wanted.page += by; draw(); keep(); part.heading.scrollIntoView(); };

  const text = h("input", { type: "search", name: "q", value: wanted.q, autocomplete: "off", oninput: () => { wanted.q = text.value; change(); } });
  const kinds = chooser("kind", wanted.kind, () => { wanted.kind = kinds.node.value; change(); });
  const namespaces = chooser("namespace", wanted.namespace, () => { wanted.namespace = namespaces.node.value; change(); });
  const chips = stateButtons(wanted, (state) => { wanted.state = state; change(); });
  const wrong = defects();
  const filter = h("form", { class: "filter", role: "search", "aria-label": "Sources", onsubmit: (event) => event.preventDefault() },
    field("Find", text), field("Kind", kinds.node), field("Namespace", namespaces.node));
  const previous = button("Previous", turn(-1));
  const next = button("Next", turn(1));
  const where = h("span");
  const pager = h("div", { class: "buttons", role: "group", "aria-label": "Pages" }, previous, where, next);
  const activity = h("p", { class: "hint" });

  const part = listing({
    title: "Sources",
    caption: "Sources and their state",
    columns: columns.map(([title]) => title),
    before: [!app.mayChange() && readOnlyNote(app), wrong.node, filter, chips.node],
    after: [pager, activity],
    keyOf: (item) => item.key,
    cells: (item) => {
      const { source } = item;
      return [
        h("span", null, h("a", { class: "name", href: route(source) }, remote(`${source.namespace}/`), h("wbr"), remote(source.name)), h("span", { class: "kind" }, remote(source.kind))),
        h("span", null, stateOf(source), reason(source)),
        revisionOf(app, item, () => { opened.delete(item.key) || opened.add(item.key); draw(); }) || "",
        source.artifact ? brief(source.artifact.lastUpdateTime) : "",
        source.checked ? brief(source.checked) : "",
        source.next && source.phase === "idle" ? brief(source.next) : "",
        buttons(app, source, item.busy, () => part.heading) || "",
      ];
    },
  });
  filter.append(sortable(part, wanted, change));

  function draw() {
    const { items, synced } = app.sources;
    const found = find(items, wanted);
    const chosen = order(wanted.state ? found.filter((entry) => entry.state === wanted.state) : found, wanted.sort);
    const pages = Math.max(1, Math.ceil(chosen.length / size));
    if (synced) wanted.page = Math.min(Math.max(1, wanted.page), pages);
    const first = (wanted.page - 1) * size;
    const shown = chosen.slice(first, first + size);
    kinds.offer([...items.values()].map(({ source }) => source.kind));
    namespaces.offer([...items.values()].map(({ source }) => source.namespace));
    chips.show(found);
    part.show(shown.map(({ key, source }) => ({ key, source, busy: app.asked.has(key), open: opened.has(key) })), !synced ? "Loading"
      : !items.size ? "There are no sources."
        : !chosen.length ? "No source matches."
          : `${number(first + 1)} to ${number(first + shown.length)} of ${count(chosen.length, "source")}`);
    where.textContent = `Page ${number(wanted.page)} of ${number(pages)}`;
    pager.hidden = pages < 2;
    previous.disabled = wanted.page <= 1;
    next.disabled = wanted.page >= pages;
    wrong.show(app.stats?.defects);
    activity.textContent = busyness(app.stats?.phases);
  }

  const links = () => [...part.node.querySelectorAll("tbody th a")];
  const focused = () => document.activeElement.closest("tr")?.dataset.key;
  const step = (by) => () => {
    const all = links();
    const at = all.findIndex((link) => link.closest("tr").dataset.key === focused());
    all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))]?.focus();
  };
  const withRow = (act) => () => {
    const known = app.sources.items.get(focused());
    if (known) act(app, known.source, () => part.heading);
  };
  app.list = address();
  draw();
  return {
    title: "Sources",
    nodes: [part.node],
    changed: draw,
    close: () => clearTimeout(saving),
    keys: {
      "/": () => text.focus(),
      j: step(1),
      k: step(-1),
      n: () => next.disabled || turn(1)(),
      p: () => previous.disabled || turn(-1)(),
      r: withRow((_, source) => app.mayChange() && !source.suspended && reconcile(app, source)),
      s: withRow(toggle),
    },
  };
}

export const readOnlyNote = (app) => h("p", { class: "note" },
  "Read-only: ", remote(app.session.actor || "you", "actor"), " may look at sources and change nothing.");
