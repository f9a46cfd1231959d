// The sources, kept current by the stream of changes, and their descriptions in words.

import { badge, h, remote } from "./dom.js";
import { exact, inline, when } from "./words.js";

// States of a source, the worst first, with their names and styles.
export const states = {
  __proto__: null,
  stalled: ["Stalled", "stop"],
  "not-ready": ["Not ready", "bad"],
  reconciling: ["Reconciling", "busy"],
  suspended: ["Suspended", "pause"],
  removed: ["Removed", "off"],
  ready: ["Ready", "good"],
};
const ranks = Object.keys(states);

// Additional activity of a source, by its phase.
const doing = { __proto__: null, queued: ["queued", "warn"], running: ["running", "busy"], blocked: ["waits", "warn"] };

export function stateName(source) {
  if (source.phase === "removed" || source.phase === "stalled") return source.phase;
  if (source.suspended || source.phase === "suspended") return "suspended";
  return { __proto__: null, True: "ready", False: "not-ready" }[source.ready] ?? "reconciling";
}

export function stateOf(source) {
  const name = stateName(source);
  const [words, kind] = states[name];
  const more = name !== "reconciling" && doing[source.phase];
  return h("span", { class: "states" }, badge(words, kind), more && [" ", badge(...more)]);
}

export const nameOf = (source) => `${source.namespace}/${source.name}`;
export const label = (source) => inline(`${source.kind} ${nameOf(source)}`);
export const keyOf = (source) => [source.namespace, source.name, String(source.kind).replace(/^Helm/, "Pkg")].join("\n"); // sorts by namespace and name
export const route = (source) => `#/sources/${[source.kind, source.namespace, source.name].map(encodeURIComponent).join("/")}`;

// largest formats a time for a table, with its largest unit only.
const largest = (time) => when(time).replace(/(\d (day|days|h|min)) \d+ \w+/, "$1");
export const brief = (time) => h("time", { class: "brief", datetime: time, title: exact(time) }, largest(time));

export function tickBrief() {
  for (const node of document.querySelectorAll(".brief")) {
    const text = largest(node.dateTime);
    if (node.textContent !== text) node.textContent = text;
  }
}

// linkTo returns a link to KIND/NAMESPACE/NAME.
export function linkTo(words) {
  const [kind, namespace, ...name] = words.split("/");
  return h("a", { href: route({ kind, namespace, name: name.join("/") }) }, remote(words));
}

// word shows a text without spaces, which is not wrapped unless it is very long.
export const word = (text) => h("span", { class: text?.length < 40 ? "word" : null }, remote(text));

// why returns the problem of a source in one line.
export function why(source) {
  const { suspension, blockers, last } = source;
  if (suspension) return [`Suspended${suspension.by ? " by " : ""}`, remote(suspension.by), suspension.reason && [": ", remote(suspension.reason)]];
  if (source.suspended) return "Suspended by its document";
  if (source.phase === "removed") return "Its document was removed; its artifacts will be too";
  if (blockers?.length) return ["Waits for ", blockers.map((name, i) => [i > 0 && ", ", linkTo(name)])];
  if (source.ready !== "True") return remote(source.message || source.reason);
  if (source.failures && last?.error) return remote(last.error);
  return source.missing ? "Its document is missing" : "";
}

// short shortens the long hexadecimal numbers in a revision.
export const short = (revision) => revision.replace(/\b([0-9a-f]{8})[0-9a-f]{12,}\b/g, "$1…");

const time = (text) => Date.parse(text) || 0;

// entry returns a source with the keys by which it is filtered and sorted.
function entry(source) {
  const { document, conditions, ...rest } = source; // fields that only the detail view needs; it requests them itself
  const state = stateName(source);
  return {
    source: rest,
    key: keyOf(source),
    state,
    rank: ranks.indexOf(state),
    text: [source.kind, nameOf(source), source.origin, source.revision, source.message].join("\n").toLowerCase(),
    updated: time(source.artifact?.lastUpdateTime),
    checked: time(source.checked),
    next: time(source.next),
  };
}

// Sources contains the sources that the stream has reported. It batches changes: changed is called at most four times a
// second.
export class Sources {
  #told = null; // keys reported since the stream was opened; null once all were reported
  #timer = null;
  items = new Map();
  synced = false;

  constructor(changed) {
    this.changed = changed;
  }

  // begin is called when a stream was opened, which will report all sources.
  begin() {
    this.#told = new Set();
  }

  clear() {
    this.items.clear();
    this.synced = false;
  }

  apply({ source, gone, synced }) {
    if (source) {
      const fresh = entry(source);
      this.items.set(fresh.key, fresh);
      this.#told?.add(fresh.key);
    }
    if (gone) this.items.delete(keyOf(gone));
    if (synced) {
      for (const key of this.items.keys()) if (!this.#told?.has(key)) this.items.delete(key);
      this.#told = null;
      this.synced = true;
    }
    this.#timer ??= setTimeout(() => { this.#timer = null; this.changed(); }, synced ? 0 : 250);
  }

  count(state) {
    let n = 0;
    for (const item of this.items.values()) if (item.state === state) n++;
    return n;
  }
}
