// Actions on a source: reconcile, suspend, resume, copy.

import { path, post } from "./api.js";
import { ask, field } from "./dialog.js";
import { button, h } from "./dom.js";
import { keyOf, label, short } from "./sources.js";
import { inline, span, trouble } from "./words.js";

export const target = (source, ...more) => path("sources", source.kind, source.namespace, source.name, ...more);

const outcomes = { __proto__: null, stored: "a new artifact was stored", unchanged: "nothing has changed", waiting: "it waits", failed: "failed", stalled: "stalled" };

// result describes in words how a run ended.
export function result(run) {
  const words = outcomes[run.outcome] ?? inline(run.outcome);
  const more = run.error || (run.outcome === "stored" ? short(run.revision ?? "") : "") || run.why;
  return `${words} after ${span(1000 * run.took)}${more ? `: ${inline(more)}` : ""}`;
}

// settle announces how a requested run ended, once the source shows that.
export function settle(app, source) {
  const key = keyOf(source);
  if (!(source.last?.number >= app.asked.get(key))) return;
  app.asked.delete(key);
  app.announce(`${label(source)}: ${result(source.last)}.`);
  app.changed();
}

function failed(app, source, error) {
  if (!app.refused(error)) app.announce(`${label(source)}: ${trouble(error)}`);
}

export async function reconcile(app, source) {
  const key = keyOf(source);
  if (app.asked.has(key)) return;
  app.asked.set(key, Infinity);
  app.announce(`${label(source)}: reconciling.`);
  app.changed();
  try {
    const { run } = await post(target(source, "reconcile"));
    if (app.asked.has(key)) app.asked.set(key, run);
    const known = app.sources.items.get(key);
    if (known) settle(app, known.source); // it may have ended already
  } catch (error) {
    app.asked.delete(key);
    app.changed();
    failed(app, source, error);
  }
}

let yourName = ""; // sent to a server that needs no tokens

export function suspend(app, source, refuge) {
  return ask({
    title: `Suspend ${label(source)}`,
    content: [
      h("p", null, "It is not checked until it is resumed. Its artifact stays available."),
      !app.session.required && field("Your name", h("input", { name: "by", maxlength: "200", autocomplete: "name", value: yourName }), "Optional."),
      field("Reason", h("textarea", { name: "reason", rows: "2", maxlength: "1000" }), "Shown to everyone who can see the source. Optional."),
    ],
    confirm: "Suspend",
    refuge,
    act: async ({ by = "", reason }) => {
      yourName = by;
      tell(app, await post(target(source, "suspend"), { ...(by && { by }), ...(reason && { reason }) }), "suspended");
    },
  });
}

export async function resume(app, source) {
  try {
    tell(app, await post(target(source, "resume")), "resumed");
  } catch (error) {
    failed(app, source, error);
  }
}

function tell(app, source, words) {
  if (!source) return;
  app.notice({ source });
  app.announce(`${label(source)}: ${words}.`);
}

// can returns which actions are possible on a source now.
export const can = (app, source) => app.mayChange() && source.phase !== "removed" && {
  reconcile: !source.suspended,
  suspend: !source.suspended,
  resume: Boolean(source.suspension),
};

// buttons returns buttons for the possible actions; refuge returns the element that gets the focus when a focused
// button disappears.
export function buttons(app, source, busy, refuge) {
  const allowed = can(app, source);
  const make = (what, words, act, more) => allowed[what] &&
    button(words, act, { "aria-label": `${words} ${label(source)}`, "data-action": what, ...more });
  return allowed && h("div", { class: "buttons" },
    make("reconcile", busy ? "Reconciling" : "Reconcile", () => reconcile(app, source), { class: busy && "waiting", "aria-disabled": busy && "true" }),
    make("suspend", "Suspend", () => suspend(app, source, refuge)),
    make("resume", "Resume", () => resume(app, source)));
}

// toggle suspends or resumes, whichever is possible.
export function toggle(app, source, refuge) {
  const allowed = can(app, source);
  if (allowed.resume) resume(app, source);
  else if (allowed.suspend) suspend(app, source, refuge);
}

// copier returns a button that copies text.
export const copier = (app, what, text) => button("Copy", async (event) => {
  const done = await copy(text);
  app.announce(done ? `The ${what} was copied.` : "This browser does not allow copying.");
  event.target.focus();
}, { class: "quiet", "aria-label": `Copy the ${what}`, "data-action": `copy ${what}` });

// copy copies text. Without TLS it falls back to the deprecated way.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
