// One run: what it is, how it ended, and its output as it comes.

import { address, path, read, send, text } from "./api.js";
import { ago, button, facts, h, optional, remote, report, section, sync } from "./dom.js";
import { pause } from "./live.js";
import { canaryOf, cancel, duration, over, stateOf } from "./runs.js";
import { lines } from "./words.js";

// Characters of output that are shown; the beginning goes first.
const most = 200_000;

// colours and the like, which terminals obey and this page does not; \r alone ends a line as well.
const sequences = /\u001b\[[0-?]*[ -/]*[@-~]/g;
const unfinished = /(\u001b(\[[0-?]{0,32}[ -/]{0,4})?|\r)$/;

// An outputBox shows text that goes on. It stays at the end until its reader scrolls away from there.
function outputBox(id) {
  const box = h("pre", { class: "output", tabindex: "0", role: "region", "aria-label": "Output" });
  const cut = h("p", { class: "hint", hidden: true }, "The beginning is not shown.");
  const full = h("a", { href: address(path("runs", id, "output")) }, "Output as text");
  const toggle = button("Follow the end", () => follow(!following), { class: "quiet", "aria-pressed": "true" });
  const empty = h("p", { class: "empty" }, "No output yet.");
  let following = true;
  let shown = 0;
  let rest = "";

  function follow(on) {
    following = on;
    toggle.ariaPressed = on;
    if (on) box.scrollTop = box.scrollHeight;
  }
  box.addEventListener("scroll", () => follow(box.scrollHeight - box.scrollTop - box.clientHeight < 24), { passive: true });

  function append(chunk, last = false) {
    let text = rest + chunk;
    rest = last ? "" : (unfinished.exec(text)?.[0] ?? "");
    text = lines(text.slice(0, text.length - rest.length).replace(sequences, "").replace(/\r\n?/g, "\n"));
    if (!text) return;
    const stay = following;
    if (box.lastChild?.length < 4096) box.lastChild.appendData(text);
    else box.append(text);
    for (shown += text.length; shown > most; cut.hidden = false) {
      const first = box.firstChild;
      const less = Math.min(first.length, shown - most);
      first.deleteData(0, less);
      if (!first.length) first.remove();
      shown -= less;
    }
    empty.hidden = true;
    if (stay) follow(true);
  }
  function clear() {
    box.replaceChildren();
    [shown, rest, cut.hidden, empty.hidden] = [0, "", true, false];
  }
  const part = section("h2", "Output", h("div", { class: "buttons" }, toggle, full), cut, empty, box);
  return { node: part.node, problem: part.problem, append, clear, ended: () => { empty.textContent = "No output."; toggle.hidden = true; } };
}

const details = (run) => facts([
  ["Run", remote(run.id, "code")],
  ["State", stateOf(run)],
  ["Type", remote(run.type)],
  ["Canary", h("a", { href: `#/runs?${new URLSearchParams({ canary: canaryOf(run) })}` }, remote(canaryOf(run), "name"))],
  ["Phase", optional(run.phase)],
  ["Revision", run.checksum && remote(run.checksum, "code")],
  ["Created", ago(run.created)],
  ["Duration", duration(run)],
  ["Exit code", run.exitCode],
  ["Started by", optional(run.actor)],
  ["Verdict", over(run) && run.waits && (run.delivered ? "received by a caller" : "not received by a caller yet")],
]);

// runView shows the run of that id.
export function runView(app, id) {
  const about = h("div", { class: "card" });
  const part = section("h2", "About", about);
  const box = outputBox(id);
  const heading = h("h1", { tabindex: "-1" }, "Run ", remote(id, "code"));
  let run = null;
  let stream = null;
  let complete = false;

  const card = () => h("div", { class: "stack" }, details(run),
    run.reason && h("p", { class: over(run) && run.state !== "succeeded" ? "verdict" : "hint" }, h("bdi", null, lines(run.reason))),
    run.metadata && [h("h3", null, "Metadata"), h("dl", { class: "metadata" }, Object.entries(run.metadata).sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => h("div", null, h("dt", null, remote(name, "code")), h("dd", null, h("bdi", { class: "code" }, lines(value))))))],
    !over(run) && (app.session.readOnly ? h("p", { class: "hint" }, "You may look, not cancel.")
      : h("div", { class: "buttons" }, button("Cancel the run", () => cancel(app, run, () => heading), { class: "danger", "data-action": "cancel" }))));

  function draw(fresh) {
    if (run && over(run) && !over(fresh)) return; // a notice that came late
    run = { ...run, ...fresh, output: undefined };
    heading.replaceChildren(`${run.type} of `, remote(canaryOf(run), "name"));
    sync(about, [run], () => id, card, heading);
    if (over(run)) box.ended();
  }
  const refresh = async () => draw(await read(path("runs", id)));

  // copy shows the output until the run has ended. A stream that broke begins
  // anew: it has all that is kept.
  async function copy() {
    stream?.abort();
    const { signal } = (stream = new AbortController());
    for (let failures = 0; !signal.aborted && !complete; ) {
      try {
        box.clear();
        for await (const chunk of text(await send("GET", address(path("runs", id, "output"), { follow: "true" }), { signal, accept: "text/plain" }))) box.append(chunk);
        box.append("", true);
        complete = true;
        report(box.problem, null);
        await refresh();
      } catch (error) {
        if (signal.aborted || app.refused(error)) return;
        report(box.problem, error);
        if (error.status === 404 || error.status === 403) return;
        await pause(Math.min(30_000, 1000 * 2 ** failures++));
      }
    }
  }
  const close = () => stream?.abort();
  return {
    title: "Run",
    nodes: [h("p", { class: "trail" }, h("a", { href: "#/runs" }, "Runs")), heading, part.node, box.node],
    notice: (change) => change.run?.id === id && draw(change.run),
    load: () => {
      app.attempt(part, refresh());
      if (!stream) copy();
    },
    visible: () => { if (document.hidden) close(); else if (!complete) copy(); },
    close,
  };
}
