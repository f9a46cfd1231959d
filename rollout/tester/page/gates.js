// Gates and rollback switches: what waits, all of them, one of them, and the
// audit trail.

import { read } from "./api.js";
import { asks, awaits, buttons, canaryOf, gatePath, kindOf, renew, verdicts, visit } from "./decide.js";
import { field } from "./dialog.js";
import { ago, badge, facts, h, listing, optional, remote, section, sync } from "./dom.js";
import { Collection, pages } from "./live.js";
import { runningSection } from "./runs.js";
import { inline } from "./words.js";

const modes = { checksum: "one revision", "one-shot": "the next revision", sticky: "every revision" };

// The key is in the order of the listing.
export const keyOf = (gate) => JSON.stringify([gate.namespace, gate.name, gate.kind, gate.gate]);
const route = (gate) => `#/gates/${[gate.kind, gate.namespace, gate.name, gate.gate].map(encodeURIComponent).join("/")}`;
const byName = (a, b) => keyOf(a).localeCompare(keyOf(b));

const gateName = (gate) => h("span", null, remote(gate.gate, "name"), gate.kind === "rollback" && " (rollback)");
const changed = (gate) => h("span", null, ago(gate.changed), gate.actor && [" by ", remote(gate.actor)]);

// approvals is the first view: what waits for approval, and what runs.
export function approvals(app) {
  const list = h("ul", { class: "cards" });
  const empty = h("p", { class: "empty" }, "Loading");
  const part = section("h1", "Pending approvals", empty, list);
  const card = (gate) => h("li", { class: `card pending${asks(gate) ? "" : " stale"}` },
    h("h2", null, h("a", { href: route(gate) }, remote(canaryOf(gate), "name"))),
    facts([["Gate", remote(gate.gate)], ...visit(gate),
      [gate.open ? "Opened" : "Closed", gate.changed && changed(gate)], ["Reason", optional(gate.reason)]]),
    verdicts(gate),
    buttons(app, gate, () => app.pending.items.get(keyOf(gate)), () => part.heading));
  const draw = () => {
    if (!app.pending.loaded) return;
    const waiting = [...app.pending.items.values()].sort((a, b) => asks(b) - asks(a) || Date.parse(a.waiting.since) - Date.parse(b.waiting.since) || byName(a, b));
    sync(list, waiting, keyOf, card, part.heading);
    empty.textContent = "Nothing is waiting for approval.";
    empty.hidden = waiting.length > 0;
  };
  const running = runningSection(app);
  draw();
  return {
    title: "Approvals",
    nodes: [readOnlyNote(app), part.node, running.node],
    pending: draw,
    notice: (change) => {
      running.notice(change);
      if (change.run) renew(change.run);
    },
    load: () => {
      app.attempt(part, app.pending.load());
      running.load();
    },
  };
}

const readOnlyNote = (app) => app.session.readOnly && h("p", { class: "note" },
  "Read-only: ", remote(app.session.actor, "actor"), " may look at everything here and change nothing.");

const stateOf = (gate) => h("span", { class: "states" },
  badge(gate.open ? "open" : "closed", gate.open ? (gate.kind === "gate" ? "good" : "bad") : "off"),
  awaits(gate) && [" ", badge("waiting", asks(gate) ? "warn" : "off")]);

// holds words what an opening is good for.
const holds = (gate) => gate.open && h("span", null, modes[gate.mode] ?? remote(gate.mode ?? ""),
  gate.checksum && [" ", remote(gate.checksum, "code")],
  gate.expires && [", closes ", ago(gate.expires)]);

// gatesView lists all gates and rollback switches.
export function gatesView(app) {
  const filter = h("input", { type: "search", autocomplete: "off", oninput: () => all.changed() });
  const part = listing({
    title: "Gates and rollback switches",
    caption: "Gates and rollback switches that were checked or changed",
    columns: ["Canary", "Gate", "State", "Holds for", "Changed", "Reason", "Action"],
    before: field("Find by name", filter),
    keyOf,
    cells: (gate) => [
      h("a", { href: route(gate) }, remote(canaryOf(gate), "name")),
      gateName(gate), stateOf(gate), holds(gate) || "",
      gate.changed ? changed(gate) : "", optional(gate.reason),
      buttons(app, gate, () => all.items.get(keyOf(gate)), () => part.heading),
    ],
  });
  const all = new Collection({
    keyOf,
    fetchAll: async () => (await read("gates", { limit: "1000" })).gates ?? [],
    changed: () => {
      const wanted = filter.value.trim().toLowerCase();
      const found = [...all.items.values()].filter((gate) => `${canaryOf(gate)} ${gate.gate}`.toLowerCase().includes(wanted)).sort((a, b) => asks(b) - asks(a) || byName(a, b));
      part.show(found, all.items.size >= 1000 ? "Only the first 1000 are here."
        : found.length ? "" : wanted ? "No gate has this name." : "There are no gates yet.");
    },
  });
  return {
    title: "Gates",
    nodes: [readOnlyNote(app), part.node],
    notice: ({ gate }) => gate && all.apply(gate),
    load: () => app.attempt(part, all.load()),
  };
}

// gateView shows one gate and its audit trail.
export function gateView(app, key) {
  const state = h("div", { class: "card" });
  const part = section("h2", "State", state);
  const trail = auditSection(app, "h2", key);
  let gate = null;
  const draw = () => {
    sync(state, [gate], keyOf, () => h("div", { class: "stack" },
      facts([
        ["State", stateOf(gate)],
        ["Holds for", holds(gate)],
        ...visit(gate),
        [gate.open ? "Opened" : "Closed", gate.changed && changed(gate)],
        ["Reason", optional(gate.reason)],
      ]),
      verdicts(gate),
      buttons(app, gate, () => gate, () => part.heading)), part.heading);
  };
  const refresh = async () => {
    gate = await read(gatePath(key));
    draw();
  };
  return {
    title: `${inline(canaryOf(key))} ${inline(key.gate)}`,
    nodes: [
      h("p", { class: "trail" }, h("a", { href: "#/gates" }, "Gates")),
      h("h1", { tabindex: "-1" }, `${kindOf(key)} `, remote(key.gate), " of ", remote(canaryOf(key), "name")),
      readOnlyNote(app), part.node, trail.node,
    ],
    notice: (change) => {
      if (change.run) renew(change.run);
      if (!change.gate || keyOf(change.gate) !== keyOf(key)) return;
      gate = change.gate;
      draw();
      trail.soon();
    },
    load: () => {
      app.attempt(part, refresh());
      trail.load();
    },
  };
}

// auditSection lists who did what, newest first.
function auditSection(app, level, key = {}) {
  const part = listing({
    level,
    title: "Audit trail",
    caption: "Who did what, newest first",
    columns: ["Time", "Action", "Canary", "Gate", "Holds for", "By", "Reason"],
    keyOf: (entry) => String(entry.id),
    cells: (entry) => [
      ago(entry.time), remote(entry.action), h("a", { href: route(entry) }, remote(canaryOf(entry), "name")), gateName(entry),
      entry.mode || entry.checksum ? h("span", null, modes[entry.mode] ?? remote(entry.mode), " ", remote(entry.checksum, "code")) : "",
      optional(entry.actor), optional(entry.reason),
    ],
  });
  const { load, soon } = pages(app, part, async (limit) => {
    const entries = (await read("audit", { ...key, limit })).entries ?? [];
    part.show(entries, entries.length ? "" : "There are no decisions yet.");
    return entries;
  });
  return { node: part.node, load, soon };
}

// auditView is the audit trail of all gates and rollback switches.
export function auditView(app) {
  const trail = auditSection(app, "h1");
  return {
    title: "Audit",
    nodes: [trail.node],
    notice: ({ gate }) => gate && trail.soon(),
    load: trail.load,
  };
}
