// The page of a server of sources: its views, the current sources, and whether they are up to date.

import { settle } from "./actions.js";
import { read } from "./api.js";
import { sourceView } from "./detail.js";
import { eventsView } from "./events.js";
import { frame } from "./frame.js";
import { listen } from "./keys.js";
import { listView } from "./list.js";
import { every, pause } from "./live.js";
import { Sources, tickBrief } from "./sources.js";
import { exact } from "./words.js";

const live = document.getElementById("live");
const patience = 15_000; // milliseconds without a connection after which the page counts as outdated

let heard = 0; // when the stream was last open

const app = {
  sources: new Sources(() => {
    app.setTitle();
    app.view?.changed?.();
  }),
  asked: new Map(), // numbers of requested runs, by the key of their source
  stats: null,
  mayChange: () => app.session.may?.includes("change") ?? false,
  changed: () => app.view?.changed?.(),
  noticed(change) {
    app.sources.apply(change);
    if (change.source) settle(app, change.source);
  },
  refresh: () => loadStats().catch(app.refused),
  state(name) {
    if (name === "live") {
      heard = 0;
      app.sources.begin();
      if (app.asked.size) app.asked.clear(); // a restarted server numbers runs anew
    } else if (name === "reconnecting") {
      heard ||= Date.now();
      grow(heard);
    }
  },
  ended() {
    app.sources.clear();
    app.asked.clear();
    app.stats = null;
    heard = 0;
  },
  mark() {
    const bad = app.sources.count("not-ready") + app.sources.count("stalled");
    return bad > 0 && `(${bad}) `;
  },
};

// grow shows after a while since when the page is outdated.
async function grow(since) {
  await pause(Math.max(0, since + patience - Date.now()));
  if (heard !== since || !app.session) return;
  live.dataset.state = "stale";
  live.textContent = `stale since ${exact(since)}`;
}

async function loadStats() {
  app.stats = await read("stats");
  app.changed();
}

const always = new AbortController().signal;
every(1000, always, () => document.hidden || tickBrief());
every(10_000, always, () => app.session && !document.hidden && !heard && app.refresh()); // the stream does not report defects
listen(app);
frame(app, [
  ["", 0, listView, "Sources"],
  ["events", 0, eventsView, "Events"],
  ["sources", 3, (_, query, kind, namespace, name) => sourceView(app, { kind, namespace, name })],
]);
