// The page: who looks, which view is shown, and the stream of changes.

import { read } from "./api.js";
import { awaits } from "./decide.js";
import { button, h, report, tick } from "./dom.js";
import { approvals, auditView, gateView, gatesView, keyOf } from "./gates.js";
import { Collection, follow } from "./live.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import * as sessions from "./session.js";
import { inline, trouble } from "./words.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const announcements = document.getElementById("announcements");

// Views by the first segment of their address and the number of those after it.
// A view is {title, nodes, load?, notice?, pending?, visible?, close?}.
const views = [
  ["", 0, approvals],
  ["gates", 0, gatesView],
  ["gates", 4, (app, _, kind, namespace, name, gate) => gateView(app, { kind, namespace, name, gate })],
  ["runs", 0, runsView],
  ["runs", 1, (app, _, id) => runView(app, id)],
  ["audit", 0, auditView],
];

let view = null;
let streams = new AbortController();

const app = {
  session: null,
  pending: new Collection({
    keyOf,
    belongs: awaits,
    fetchAll: async () => (await read("gates", { kind: "gate", waiting: "true", limit: "1000" })).gates ?? [],
    changed: pendingChanged,
  }),
  // notice applies a change that the page has made itself, or that it was told of.
  notice(change) {
    if (change.gate) app.pending.apply(change.gate);
    view?.notice?.(change);
  },
  announce(words) {
    announcements.textContent = words;
  },
  // refused leads to the login when error says that nobody is signed in.
  refused(error) {
    if (error.status === 401) signIn(error);
    return error.status === 401;
  },
  // attempt shows in a part of a view why work failed, if it did.
  attempt(part, work) {
    return work.then(() => report(part.problem), (error) => app.refused(error) || report(part.problem, error));
  },
};

// pendingChanged keeps count and title, and says what has begun to wait, a
// moment later and in one sentence.
let known = null;
let saying;
function pendingChanged() {
  const waiting = [...app.pending.items.values()];
  document.getElementById("count").textContent = waiting.length || "";
  setTitle();
  view?.pending?.();
  known ??= new Set(waiting.map(keyOf));
  clearTimeout(saying);
  saying = setTimeout(() => {
    const fresh = waiting.filter((gate) => !known?.has(keyOf(gate)));
    known = new Set(waiting.map(keyOf));
    if (fresh.length) {
      app.announce(fresh.length > 1 ? `${fresh.length} more approvals are pending.`
        : inline(`${fresh[0].namespace}/${fresh[0].name} waits for approval at gate ${fresh[0].gate}.`));
    }
  }, 1000);
}

function setTitle() {
  const waiting = app.session ? app.pending.items.size : 0;
  document.title = `${waiting ? `(${waiting}) ` : ""}${view ? `${view.title} · ` : ""}headgate`;
}

function show(next) {
  view?.close?.();
  view = next;
  main.replaceChildren(...next.nodes.filter(Boolean));
  for (const link of document.querySelectorAll("#views a")) {
    const at = location.hash.split("?")[0] || "#/";
    const here = link.hash === "#/" ? at === "#/" : at === link.hash || at.startsWith(`${link.hash}/`);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  setTitle();
  next.load?.();
}

// route shows the view of the address; focus goes to its heading, unless the page has just come.
function route(focus) {
  if (!app.session) return;
  const [address, query] = location.hash.replace(/^#\/?/, "").split("?");
  let next;
  try {
    const [first, ...rest] = address.split("/").map(decodeURIComponent);
    const make = views.find(([name, more]) => name === first && more === rest.length)?.[2];
    next = make?.(app, new URLSearchParams(query), ...rest);
  } catch (error) {
    if (!(error instanceof URIError || "status" in error)) throw error;
  }
  show(next ?? { title: "Not found", nodes: [h("h1", { tabindex: "-1" }, "There is nothing at this address")] });
  if (focus) {
    main.querySelector("h1")?.focus();
    scrollTo(0, 0);
  }
}

function setState(state) {
  live.dataset.state = state;
  live.textContent = state;
}

function refreshAll() {
  if (!view?.pending) app.pending.load().catch(app.refused); // a view that shows them loads them
  view?.load?.();
}

// connect follows changes while the page can be seen. A hidden page has no
// stream, for browsers have few connections to one server; it asks now and then
// so that its title stays right.
function connect() {
  streams.abort();
  if (!app.session) return;
  streams = new AbortController();
  const { signal } = streams;
  if (document.hidden) {
    setState("paused");
    const timer = setInterval(() => app.pending.load().catch(() => {}), 30_000);
    signal.addEventListener("abort", () => clearInterval(timer));
    return;
  }
  const timer = setInterval(refreshAll, 120_000); // those who stopped waiting are not always told of
  signal.addEventListener("abort", () => clearInterval(timer));
  follow({ signal, opened: refreshAll, notice: app.notice, state: setState, failed: app.refused });
}

function signIn(error) {
  app.session = null;
  known = null;
  streams.abort();
  document.body.classList.add("signed-out");
  document.getElementById("session").replaceChildren();
  show({ title: "Sign in", nodes: [sessions.login(begin, error)] });
  main.querySelector("input").focus();
}

function begin(session) {
  app.session = session;
  document.body.classList.remove("signed-out");
  document.getElementById("session").replaceChildren(...sessions.status(session, start));
  setState("connecting");
  connect();
  route(false);
}

async function start() {
  try {
    const session = await sessions.load();
    if (sessions.missing(session)) signIn();
    else begin(session);
  } catch (error) {
    show({ title: "No answer", nodes: [
      h("h1", { tabindex: "-1" }, "No answer"), h("p", { class: "problem", role: "alert" }, trouble(error)), button("Try again", start),
    ] });
  }
}

addEventListener("hashchange", () => { if (/^#?(\/|$)/.test(location.hash)) route(true); });
document.addEventListener("visibilitychange", () => { connect(); view?.visible?.(); });
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
setInterval(() => { if (!document.hidden) tick(); }, 1000);
start();
