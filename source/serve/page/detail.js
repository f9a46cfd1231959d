// The view of one source: its fields, artifact, conditions, runs, events, files and document.

import { buttons, copier, reconcile, result, target, toggle } from "./actions.js";
import { read } from "./api.js";
import { ago, badge, breakable, facts, h, listing, optional, remote, section, sync } from "./dom.js";
import { eventSection } from "./events.js";
import { bytes, fileSection } from "./files.js";
import { readOnlyNote } from "./list.js";
import { pages } from "./live.js";
import { keyOf, label, linkTo, nameOf, stateOf, word } from "./sources.js";
import { inline, lines, span } from "./words.js";

const base = new URL("../", import.meta.url); // of the server

const copied = (app, what, text) => text && h("span", { class: "copied" }, remote(text, "code"), " ", copier(app, what, text));

// links returns the URLs of the artifact and of the pointer to the newest one, relative to the base URL from which
// the page was loaded: that may differ from the base of the URLs in the status.
function links({ artifact, url }) {
  const parts = artifact.path.split("/");
  const file = (url ?? "").split("/").pop();
  const at = (path) => new URL(path.map(encodeURIComponent).join("/"), base).href;
  return h("ul", { class: "buttons" },
    h("li", null, h("a", { href: at(parts), download: true }, "Artifact")),
    file && parts.length > 2 && h("li", null, h("a", { href: at([...parts.slice(0, -2), decodeURIComponent(file)]), download: true }, "Newest artifact")));
}

// Hosts with known URLs of commit pages, with the path between repository and commit.
const hosts = { __proto__: null, "github.com": "commit", "gitlab.com": "-/commit", "codeberg.org": "commit", "bitbucket.org": "commits" };

// pageOf returns the URL of the web page of a repository, "" if it is not known.
function pageOf({ kind, origin }) {
  const [, host, path] = /^(?:https|ssh):\/\/(?:[^/@]*@)?([^/:]+)\/([\w.~/-]+?)(?:\.git)?\/*$/.exec(origin) ?? [];
  return kind === "GitRepository" && host in hosts ? `https://${host}/${path}` : "";
}

const origin = (source) => {
  const page = pageOf(source);
  return page ? h("a", { href: page, rel: "noreferrer" }, remote(source.origin)) : optional(source.origin);
};

function commit(source) {
  const page = pageOf(source);
  const [, hash] = /[@:]sha1:([0-9a-f]{40})$/.exec(source.revision ?? "") ?? [];
  return page && hash && h("a", { href: `${page}/${hosts[new URL(page).host]}/${hash}`, rel: "noreferrer" }, remote(hash.slice(0, 8), "code"));
}

const about = (app, source) => facts([
  ["State", stateOf(source)],
  ["Reason", optional(source.reason)],
  ["Since", source.since && ago(source.since)],
  ["Last checked", source.checked && ago(source.checked)],
  ["Next run", source.next && source.phase === "idle" && ago(source.next)],
  ["Interval", optional(source.interval?.replace(/(?<=[hm])(0m)?0s$/, ""))],
  ["Failed runs", source.failures],
  ["Origin", origin(source)],
  ["Revision", copied(app, "revision", source.revision)],
  ["Commit", commit(source)],
  ["Webhook", source.hook && copied(app, "address of the webhook", new URL(source.hook.replace(/^\/+/, ""), base).href)],
]);

const suspension = ({ suspension: by }) => by && h("p", { class: "note" },
  "Suspended ", ago(by.since), by.by && [" by ", remote(by.by, "actor")], by.reason && [": ", remote(by.reason)]);

// troubles returns all problems of a source.
const troubles = (source) => [
  suspension(source),
  !source.suspension && source.suspended && h("p", { class: "note" }, "Suspended by its document: spec.suspend is true."),
  source.missing && h("p", { class: "note" }, "Its document is missing, and others are defective: it goes on as it was."),
  source.blockers?.length > 0 && h("p", { class: "note" }, "Waits for ", source.blockers.map((name, i) => [i > 0 && ", ", linkTo(name)])),
  source.ready !== "True" && source.message && h("p", { class: "verdict" }, h("bdi", null, breakable(lines(source.message)))),
  source.ready === "True" && source.failures > 0 && source.last?.error && h("p", { class: "verdict" }, h("bdi", null, breakable(lines(source.last.error)))),
];

const stored = (app, { artifact, ...source }) => h("div", { class: "stack" },
  facts([
    ["Stored", ago(artifact.lastUpdateTime)],
    ["Size", artifact.size && bytes(artifact.size)],
    ["Digest", copied(app, "digest", artifact.digest)],
    ["URL", copied(app, "URL", artifact.url)],
  ]),
  artifact.metadata && h("dl", { class: "metadata" }, Object.entries(artifact.metadata).sort()
    .map(([name, value]) => h("div", null, h("dt", null, remote(name, "code")), h("dd", null, remote(value))))),
  links({ artifact, ...source }));

// Condition types that are good if True; the others report activity or problems.
const wanted = ["Ready", "ArtifactInStorage", "SourceVerified"];
const truth = { __proto__: null, True: "good", False: "bad" };
const looks = ({ type, status }) => (wanted.includes(type) && truth[status]) || (/Failed$/.test(type) && status === "True" ? "bad" : "off");

function conditionSection() {
  const part = listing({
    level: "h2", title: "Conditions", caption: "Conditions of the source",
    columns: ["Type", "Status", "Reason", "Message", "Since"],
    keyOf: (condition) => condition.type,
    cells: (condition) => [
      word(condition.type), badge(inline(condition.status), looks(condition)), word(condition.reason),
      h("span", { class: "why" }, remote(condition.message)), ago(condition.lastTransitionTime),
    ],
  });
  // An ended run may leave the condition Reconciling, which is not shown then.
  const show = ({ conditions: all = [], phase }) => {
    const now = all.filter(({ type }) => type !== "Reconciling" || phase === "running");
    part.show(now, now.length ? "" : "There are none yet.");
  };
  return { node: part.node, show };
}

const outcomes = { __proto__: null, stored: "good", unchanged: "good", waiting: "warn", failed: "bad", stalled: "stop" };

function runSection(app, source) {
  const part = listing({
    level: "h2", title: "Runs", caption: "Newest first",
    columns: ["Started", "Trigger", "Outcome", "Duration", "Message"],
    keyOf: (run) => String(run.number),
    cells: (run) => [
      ago(run.started), remote(run.trigger), badge(inline(run.outcome), outcomes[run.outcome] ?? "off"), span(1000 * run.took),
      h("span", { class: "why" }, remote(run.error || run.why)),
    ],
  });
  return {
    node: part.node,
    ...pages(app, part, async (limit) => {
      const runs = ((await read(target(source, "runs"))).runs ?? []).slice(0, limit);
      part.show(runs, runs.length ? "" : "There are no runs yet.");
      return runs;
    }),
  };
}

// sourceView shows the source with the given name.
export function sourceView(app, named) {
  const key = keyOf(named);
  const heading = h("h1", { tabindex: "-1" }, remote(named.kind), " ", remote(nameOf(named), "name"));
  const card = h("div", { class: "card" });
  const box = h("div");
  const part = section("h2", "State", card);
  const artifact = section("h2", "Artifact", box);
  const conditions = conditionSection();
  const files = fileSection(app, named);
  const runs = runSection(app, named);
  const events = eventSection(app, "h2", named);
  const text = h("pre", { class: "output", tabindex: "0", role: "region", "aria-label": "Document" });
  const tools = h("div", { class: "buttons" });
  const yaml = section("h2", "Document", tools, text);
  let whole = {}; // the source with the fields that notices lack
  let digest = "";
  let timer = null;

  const current = () => ({ ...whole, ...(app.sources.items.get(key)?.source) });
  const state = (source) => h("div", { class: "stack" }, about(app, source), troubles(source),
    buttons(app, source, app.asked.has(key), () => heading));
  function draw() {
    const source = current();
    if (!source.kind) return;
    sync(card, [{ ...source, busy: app.asked.has(key) }], () => key, state, heading);
    artifact.node.hidden = files.node.hidden = !source.artifact;
    sync(box, source.artifact ? [{ artifact: source.artifact, url: source.url }] : [], () => key, (item) => stored(app, item), heading);
    if (digest !== (source.artifact?.digest ?? "")) {
      digest = source.artifact?.digest ?? "";
      files.reset();
    }
  }
  async function refresh() {
    whole = await read(target(named));
    conditions.show(whole);
    const document = lines(whole.document ?? "");
    if (text.textContent !== document) text.textContent = document;
    tools.replaceChildren(copier(app, "document", whole.document ?? ""));
    yaml.node.hidden = !document;
    draw();
  }
  const load = () => {
    app.attempt(part, refresh());
    runs.load();
    events.load();
  };
  return {
    title: label(named),
    nodes: [h("p", { class: "trail" }, h("a", { href: app.list ?? "#/" }, "Sources")), heading, !app.mayChange() && readOnlyNote(app),
      part.node, artifact.node, conditions.node, runs.node, events.node, files.node, yaml.node],
    load,
    changed: draw,
    notice: ({ source, gone }) => {
      if (keyOf(source ?? gone ?? {}) === key) timer ??= setTimeout(() => { timer = null; load(); }, 300);
    },
    close: () => clearTimeout(timer),
    keys: {
      r: () => app.mayChange() && !current().suspended && current().kind && reconcile(app, current()),
      s: () => current().kind && toggle(app, current(), () => heading),
    },
  };
}
