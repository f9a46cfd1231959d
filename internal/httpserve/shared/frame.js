// The frame around the views of a page.

import { button, h, report, tick } from "./dom.js";
import { every, follow } from "./live.js";
import * as sessions from "./session.js";
import { trouble } from "./words.js";

const element = (id) => document.getElementById(id);
const main = element("main");

// frame starts a page. The comment of Page in package httpserve documents app and views.
export function frame(app, views) {
  document.querySelector("#views ul").append(...views.filter(([, , , title]) => title)
    .map(([first, , , title]) => h("li", null, h("a", { href: `#/${first}` }, title))));
  let streams = new AbortController();

  const setState = (name) => {
    const live = element("live");
    live.dataset.state = name;
    live.textContent = name;
    app.state?.(name);
  };
  const notice = (change) => {
    app.noticed?.(change);
    app.view?.notice?.(change);
  };
  const refresh = () => {
    app.refresh?.();
    app.view?.load?.();
  };

  function show(next) {
    app.view?.close?.();
    app.view = next;
    main.replaceChildren(...next.nodes.filter(Boolean));
    for (const link of document.querySelectorAll("#views a")) {
      const at = location.hash.split("?")[0] || "#/";
      link.ariaCurrent = at === link.hash || (link.hash !== "#/" && at.startsWith(`${link.hash}/`)) ? "page" : null;
    }
    app.setTitle();
    next.load?.();
  }

  // route shows the view of the URL. It moves the focus to the heading, unless the page was just loaded.
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

  // connect follows changes while the page is visible. A hidden page has no stream, because browsers limit
  // the connections to one server.
  function connect() {
    streams.abort();
    if (!app.session) return;
    streams = new AbortController();
    const { signal } = streams;
    if (document.hidden) {
      setState("paused");
      app.paused?.(signal);
      return;
    }
    every(120_000, signal, refresh); // the stream does not report everything
    follow({ signal, opened: refresh, notice, state: setState, failed: app.refused });
  }

  function signIn(error) {
    app.session = null;
    app.ended?.();
    streams.abort();
    document.body.classList.add("signed-out");
    element("session").replaceChildren();
    show({ title: "Sign in", nodes: [sessions.login(begin, error)] });
    main.querySelector("input").focus();
  }

  function begin(session) {
    app.session = session;
    document.body.classList.remove("signed-out");
    element("session").replaceChildren(...sessions.status(session, start));
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

  Object.assign(app, {
    notice,
    announce: (words) => { element("announcements").textContent = words; },
    setTitle: () => { document.title = `${(app.session && app.mark?.()) || ""}${app.view ? `${app.view.title} · ` : ""}headgate`; },
    // refused shows the login if error says that the user is not signed in.
    refused: (error) => {
      if (error.status === 401) signIn(error);
      return error.status === 401;
    },
    // attempt shows the error of work, if it fails, in a part of a view.
    attempt: (part, work) => work.then(() => report(part.problem), (error) => app.refused(error) || report(part.problem, error)),
  });
  addEventListener("hashchange", () => { if (/^#?(\/|$)/.test(location.hash)) route(true); });
  document.addEventListener("visibilitychange", () => { connect(); app.view?.visible?.(); });
  element("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
  start();
}
