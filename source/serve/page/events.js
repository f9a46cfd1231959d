// Events of all sources, and of one source.

import { read } from "./api.js";
import { field, select } from "./dialog.js";
import { ago, badge, h, listing, remote } from "./dom.js";
import { pages } from "./live.js";
import { nameOf, route, word } from "./sources.js";
import { inline } from "./words.js";

const severities = { __proto__: null, trace: "off", info: "good", error: "bad" };

// eventSection lists the events that query selects, newest first.
export function eventSection(app, level, query, before) {
  const one = Boolean(query.name);
  const columns = ["Time", "Severity", ...(one ? [] : ["Source"]), "Reason", "Message"];
  const part = listing({
    level,
    title: "Events",
    caption: "Newest first",
    columns,
    before,
    keyOf: (event) => String(event.id),
    cells: (event) => {
      const source = event.involvedObject ?? {};
      return [
        ago(event.timestamp), badge(inline(event.severity), severities[event.severity] ?? "off"),
        ...(one ? [] : [h("a", { href: route(source) }, remote(`${source.kind} ${nameOf(source)}`, "name"))]),
        word(event.reason), h("span", { class: "why" }, remote(event.message)),
      ];
    },
  });
  const { load, soon } = pages(app, part, async (limit) => {
    const events = ((await read("events", { ...query, limit })).events ?? []).reverse();
    part.show(events, events.length ? "" : "There are no events yet.");
    return events;
  });
  return { node: part.node, load, soon };
}

// eventsView lists the events of all sources.
export function eventsView(app, query) {
  const severity = query.get("severity") ?? "";
  const choose = select("severity", [["", "all"], ...Object.keys(severities).map((name) => [name, name])], severity);
  choose.addEventListener("change", () => { location.hash = `#/events${choose.value ? `?severity=${choose.value}` : ""}`; });
  const part = eventSection(app, "h1", { severity }, field("Severity", choose));
  return { title: "Events", nodes: [part.node], load: part.load, notice: ({ source }) => source && part.soon() };
}
