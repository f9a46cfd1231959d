// Deciding about gates and rollback switches: what can be done with one, and
// the dialog that asks before it is done.

import { path, post, read } from "./api.js";
import { ask, choice, field, select } from "./dialog.js";
import { ago, button, facts, h, optional, remote, waited } from "./dom.js";
import { stateOf } from "./runs.js";
import { inline } from "./words.js";

export const gatePath = (key, ...more) => path("gates", key.kind, key.namespace, key.name, key.gate, ...more);
export const canaryOf = (gate) => `${gate.namespace}/${gate.name}`;
export const kindOf = (gate) => (gate.kind === "gate" ? "Gate" : "Rollback switch");
// awaits reports whether a gate waits for approval: it may be open for another revision.
export const awaits = (gate) => gate.kind === "gate" && Boolean(gate.waiting);
// asks reports whether it is still asked for: a wait that is stale may be over.
export const asks = (gate) => awaits(gate) && !gate.waiting.stale;
const label = (gate) => inline(`${canaryOf(gate)}, ${kindOf(gate).toLowerCase()} ${gate.gate}`);

// What can be done: by which path of the API, how its button looks, what comes of it.
const actions = {
  approve: { path: "open", title: "Approve", look: "primary", done: "approved",
    effect: "The rollout continues at its next check." },
  reject: { path: "reject", title: "Reject", look: "danger", done: "rejected",
    effect: "The gate stays closed, and the rollback switch of the canary opens for this revision: with a rollback hook it is rolled back." },
  open: { path: "open", title: "Open", done: "opened",
    effect: "Rollouts that check this gate continue." },
  rollback: { path: "open", title: "Roll back", look: "danger", done: "open",
    effect: "A canary with a rollback hook for this switch is rolled back at its next check." },
  close: { path: "close", title: "Close", done: "closed",
    effect: "Checks are refused from now on." },
};

const possible = (gate) => [
  ...(awaits(gate) ? ["approve", "reject"] : []),
  ...(gate.open ? ["close"] : gate.kind === "rollback" ? ["rollback"] : awaits(gate) ? [] : ["open"]),
];

// modes are what an opening can hold for: a certain revision only when one waits.
const modes = ({ waiting }) => [
  ...(waiting?.checksum ? [["checksum", "This revision only", "Another revision needs a new approval."]] : []),
  ["one-shot", "The next revision that checks", "Until another revision does."],
  ["sticky", "Every revision", "All later ones too, until the gate is closed."],
];

const lifetimes = [["", "none"], ["15m", "15 minutes"], ["1h", "1 hour"], ["8h", "8 hours"], ["24h", "1 day"], ["168h", "7 days"]];

let yourName = ""; // for the audit trail of a server without tokens

// visit is what is known of the check that waits.
export const visit = ({ waiting }) => (waiting ? [
  ["Phase", optional(waiting.phase)],
  ["Revision", (waiting.revision || waiting.checksum) && remote(waiting.revision || waiting.checksum, "code")],
  ["Checksum", waiting.revision && waiting.checksum && remote(waiting.checksum, "code")],
  ["Weight", waiting.weight && remote(`${waiting.weight}%`)],
  ["Step", optional(waiting.step)],
  ["Failed checks", waiting.failures && remote(waiting.threshold ? `${waiting.failures} of ${waiting.threshold}` : waiting.failures)],
  ["Waiting for", waited(waiting.since)],
  ["Asked last", waiting.stale && ago(waiting.last)],
] : []);

// verdicts are the latest runs of the revision that waits, which renew brings up to date.
export function verdicts(gate) {
  const checksum = gate.waiting?.checksum;
  if (!checksum) return null;
  const node = h("ul", { class: "verdicts", "aria-label": "Runs of this revision", "data-canary": canaryOf(gate), "data-checksum": checksum });
  node.load = async () => {
    const { runs } = await read("runs", { namespace: gate.namespace, name: gate.name, checksum, limit: "5" });
    node.replaceChildren(...(runs ?? []).map((run) => h("li", null,
      stateOf(run), " ", h("a", { href: `#/runs/${encodeURIComponent(run.id)}` }, remote(run.type)), " ", ago(run.created))));
  };
  node.load().catch(() => {}); // the rest can be decided by without them
  return node;
}

// renew brings the verdicts on the page up to date when a run of theirs changed.
export function renew(run) {
  for (const node of document.querySelectorAll(".verdicts")) {
    if (node.dataset.canary === canaryOf(run) && node.dataset.checksum === run.checksum) node.load().catch(() => {});
  }
}

// decide asks for what an action needs, and does it. current returns the gate
// as it is known at the time: when another revision waits by then, nothing is done.
function decide(app, what, gate, current, refuge) {
  const { path, title, look, done, effect } = actions[what];
  const checksum = gate.waiting?.checksum;
  return ask({
    title: `${title}: ${label(gate)}`,
    content: [
      facts([["Canary", remote(canaryOf(gate), "name")], [kindOf(gate), remote(gate.gate)], ...visit(gate)]),
      verdicts(gate),
      h("p", null, effect),
      path === "open" && [
        choice("It holds for", "mode", modes(gate)),
        field("Time limit", select("ttl", lifetimes)),
      ],
      !app.session.required && field("Your name", h("input", { name: "actor", maxlength: "200", autocomplete: "name", value: yourName })),
      field("Reason", h("textarea", { name: "reason", rows: "2", maxlength: "1000" }), "Kept in the audit trail. Optional."),
    ],
    confirm: title,
    danger: look === "danger",
    refuge,
    watch: (forbid) => {
      const timer = setInterval(() => {
        const seen = current()?.waiting?.checksum ?? checksum;
        if (checksum && seen !== checksum) forbid(`Another revision is waiting now: ${inline(seen)}. Close this dialog and look again.`);
      }, 250);
      return () => clearInterval(timer);
    },
    act: async (fields) => {
      yourName = fields.actor ?? "";
      const change = Object.entries({ ...fields, checksum: fields.mode === "checksum" || what === "reject" ? checksum : "" });
      const fresh = await post(gatePath(gate, path), Object.fromEntries(change.filter(([, value]) => value)));
      app.announce(`${label(gate)}: ${done}.`);
      app.notice({ gate: fresh });
    },
  });
}

// buttons are what can be done with a gate, or words why nothing can.
export function buttons(app, gate, current, refuge) {
  if (app.session.readOnly) return h("p", { class: "hint" }, "You may look, not decide.");
  return h("div", { class: "buttons" }, possible(gate).map((what) =>
    button(actions[what].title, () => decide(app, what, gate, current, refuge), {
      class: actions[what].look, "aria-label": `${actions[what].title} ${label(gate)}`, "data-action": what,
    })));
}
