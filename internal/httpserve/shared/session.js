// The session of the user: signing in and out.

import { post, read, remove } from "./api.js";
import { field } from "./dialog.js";
import { alertLine, button, h, remote, report } from "./dom.js";

// load returns the session. A caller that must sign in gets a session for which missing returns true.
export async function load() {
  try {
    return await read("session");
  } catch (error) {
    if (error.status !== 401) throw error;
    return { actor: "", required: true };
  }
}

export const missing = (session) => session.required && !session.actor;

// login returns the form that asks for a token. signedIn is called with the session; error is the reason for the login.
export function login(signedIn, error) {
  const token = h("input", { type: "password", name: "token", required: true, autocomplete: "current-password" });
  const problem = alertLine();
  const enter = h("button", { class: "primary" }, "Sign in");
  const form = h("form", { class: "card login" },
    h("h1", { tabindex: "-1" }, "Sign in"),
    field("Token", token, "It is kept in a cookie until you sign out."),
    problem, h("div", { class: "buttons" }, enter));
  report(problem, error);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (enter.disabled) return;
    enter.disabled = true;
    try {
      await post("session", { token: token.value.trim() });
      const session = await load();
      if (missing(session)) throw new Error("the cookie of the session was not kept: are cookies allowed?");
      signedIn(session);
    } catch (error) {
      report(problem, error);
      if (error.status === 401 || error.status === 403) problem.textContent = "This token is not known.";
      token.value = "";
      token.focus();
    } finally {
      enter.disabled = false;
    }
  });
  return form;
}

// status shows who is signed in, with a button to sign out.
export function status(session, signedOut) {
  if (!session.required) return [];
  const hidden = location.pathname.includes("/token/"); // the token in the URL would sign in again
  const leave = button("Sign out", () => remove("session").catch(() => {}).then(signedOut), { class: "quiet", hidden });
  return [h("span", null, remote(session.actor, "actor"), session.readOnly && " (read-only)"), leave];
}
