// Runs: those under way, and all of them.

import { path, post, read } from "./api.js";
import { ask, field, select } from "./dialog.js";
import { ago, badge, h, listing, optional, remote, waited } from "./dom.js";
import { Collection, pages } from "./live.js";
import { inline, span } from "./words.js";

const kinds = {
  queued: "off", running: "busy", succeeded: "good", failed: "bad", "timed-out": "bad", cancelled: "off", stopped: "off", lost: "bad",
};
const types = ["cmd", "bash", "helm", "helmv3", "kubectl", "ngrinder", "concord", "k6"];

export const over = (run) => run.state !== "queued" && run.state !== "running";
export const canaryOf = (run) => `${run.namespace}/${run.name}`;
export const stateOf = (run) => badge(inline(run.state.replace("-", " ")), kinds[run.state] ?? "off");
export const duration = (run) => (over(run) ? span(run.durationMs) : run.started ? waited(run.started) : "not started");

const route = (run) => `#/runs/${encodeURIComponent(run.id)}`;
const newest = (a, b) => Date.parse(b.created) - Date.parse(a.created) || b.id.localeCompare(a.id);

// cancel asks whether a run is to be ended, and ends it.
export function cancel(app, run, refuge) {
  return ask({
    title: `Cancel: ${run.type} of ${inline(canaryOf(run))}`,
    content: h("p", null, "Its processes are ended, and its callers are told that it was cancelled."),
    confirm: "End the run",
    danger: true,
    refuge,
    act: async () => {
      const ended = await post(path("runs", run.id, "cancel"));
      app.announce("The run was cancelled.");
      if (ended) app.notice({ run: ended });
    },
  });
}

const table = {
  columns: ["Canary", "State", "Type", "Created", "Duration", "Result"],
  keyOf: (run) => run.id,
  cells: (run) => [
    h("a", { href: route(run) }, remote(canaryOf(run), "name")),
    stateOf(run), remote(run.type), ago(run.created), duration(run), optional(run.reason?.slice(0, 200)),
  ],
};

// runningSection lists what runs now.
export function runningSection(app) {
  const part = listing({ ...table, level: "h2", title: "Running now", caption: "Runs under way", after: h("p", null, h("a", { href: "#/runs" }, "All runs")) });
  const runs = new Collection({
    keyOf: table.keyOf,
    belongs: (run) => !over(run),
    fetchAll: async () => (await Promise.all(["running", "queued"].map((state) => read("runs", { state, limit: "50" }))))
      .flatMap((page) => page.runs ?? []),
    changed: () => part.show([...runs.items.values()].sort(newest).slice(0, 50), runs.items.size ? "" : "Nothing is running."),
  });
  return {
    node: part.node,
    notice: ({ run }) => run && runs.apply(run),
    load: () => app.attempt(part, runs.load()),
  };
}

// asked is the query of the API for the query of the view's address.
function asked(query) {
  const [first, ...rest] = (query.get("canary") ?? "").split("/");
  const [namespace, name] = rest.length ? [first, rest.join("/")] : ["", first];
  return { namespace, name, type: query.get("type") ?? "", state: query.get("state") ?? "" };
}

// runsView lists runs, newest first, those that the query selects.
export function runsView(app, query) {
  const wanted = asked(query);
  const form = h("form", { class: "filter", role: "search", "aria-label": "Runs" },
    field("Canary", h("input", { name: "canary", value: query.get("canary") ?? "", autocomplete: "off", placeholder: "namespace/name" })),
    field("Type", select("type", [["", "all"], ...types.map((t) => [t, t])], wanted.type)),
    field("State", select("state", [["", "all"], ...Object.keys(kinds).map((s) => [s, s.replace("-", " ")])], wanted.state)),
    h("button", null, "Filter"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
    location.hash = `#/runs${chosen.size ? `?${chosen}` : ""}`;
  });
  const part = listing({ ...table, title: "Runs", caption: "Newest first", before: form });
  const runs = new Collection({
    keyOf: table.keyOf,
    belongs: (run) => Object.entries(wanted).every(([name, value]) => !value || run[name] === value),
    fetchAll: async (limit) => (await read("runs", { ...wanted, limit })).runs ?? [],
    changed: () => part.show([...runs.items.values()].sort(newest),
      runs.items.size ? "" : Object.values(wanted).some(Boolean) ? "No run matches." : "There are no runs yet."),
  });
  return {
    title: "Runs",
    nodes: [part.node],
    notice: ({ run }) => run && runs.apply(run),
    load: pages(app, part, (limit) => runs.load(limit)).load,
  };
}
