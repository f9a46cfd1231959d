// The page of a test runner: its views, and the approvals that wait.

import { read } from "./api.js";
import { asks, awaits } from "./decide.js";
import { h } from "./dom.js";
import { frame } from "./frame.js";
import { approvals, auditView, gateView, gatesView, keyOf } from "./gates.js";
import { Collection, every } from "./live.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { inline } from "./words.js";

const count = h("span", { class: "count", id: "count" }); // of the approvals that wait

const app = {
  pending: new Collection({
    keyOf,
    belongs: awaits,
    fetchAll: async () => (await read("gates", { kind: "gate", waiting: "true", stale: "true", limit: "1000" })).gates ?? [],
    changed: pendingChanged,
  }),
  noticed: ({ gate }) => gate && app.pending.apply(gate),
  refresh() {
    if (!app.view?.pending) app.pending.load().catch(app.refused); // a view that shows them loads them
  },
  ended: () => { known = null; },
  // so that its title stays right
  paused: (signal) => every(30_000, signal, () => app.pending.load().catch(() => {})),
  mark: () => asking().length > 0 && `(${asking().length}) `,
};

// asking are the gates that are still asked for: those that count.
const asking = () => [...app.pending.items.values()].filter(asks);

// pendingChanged keeps count and title, and says what has begun to wait, a
// moment later and in one sentence.
let known = null;
let saying;
function pendingChanged() {
  const waiting = asking();
  count.textContent = waiting.length || "";
  app.setTitle();
  app.view?.pending?.();
  known ??= new Set([...app.pending.items.values()].map(keyOf));
  clearTimeout(saying);
  saying = setTimeout(() => {
    const fresh = waiting.filter((gate) => !known?.has(keyOf(gate)));
    known = new Set([...app.pending.items.values()].map(keyOf)); // one that is asked for again is not new
    const [first] = fresh;
    if (first) {
      app.announce(fresh.length > 1 ? `${fresh.length} more approvals are pending.`
        : inline(`${first.namespace}/${first.name} waits for approval at gate ${first.gate}.`));
    }
  }, 1000);
}

// A view may have pending, called when what waits for approval changed.
frame(app, [
  ["", 0, approvals, "Approvals"],
  ["gates", 0, gatesView, "Gates"],
  ["gates", 4, (_, query, kind, namespace, name, gate) => gateView(app, { kind, namespace, name, gate })],
  ["runs", 0, runsView, "Runs"],
  ["runs", 1, (_, query, id) => runView(app, id)],
  ["audit", 0, auditView, "Audit"],
]);
document.querySelector("#views a").append(" ", count);
