// Shortcut keys without a modifier, and the dialog that lists them. They can be turned off, because they get in the
// way of speech input.

import { button, h } from "./dom.js";

const all = [
  ["/", "Find a source"],
  ["j", "Next row"],
  ["k", "Previous row"],
  ["n", "Next page of the list"],
  ["p", "Previous page of the list"],
  ["r", "Reconcile the source: that of the row, or the one that is shown"],
  ["s", "Suspend or resume it"],
  ["u", "Up: to the list of sources"],
  ["?", "This list of keys"],
];

const stored = "headgate.keys";
const load = () => { try { return localStorage.getItem(stored) !== "off"; } catch { return true; } };
const save = (on) => { try { localStorage.setItem(stored, on ? "on" : "off"); } catch { /* lasts until the page is closed */ } };

function help(on, change) {
  const before = document.activeElement;
  const box = h("input", { type: "checkbox", id: "keys-on", checked: on, onchange: () => change(box.checked) });
  const dialog = h("dialog", { "aria-labelledby": "keys-title" }, h("div", { class: "stack" },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, all.map(([key, words]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, words)))),
    h("p", { class: "hint" }, "They do nothing while you write."),
    h("div", { class: "option" }, box, h("label", { for: "keys-on" }, "Use these keys")),
    h("div", { class: "buttons" }, button("Close", () => dialog.close(), { class: "primary" }))));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("button").focus();
}

// listen passes keys to the current view, which has handlers by name of the key.
export function listen(app) {
  let on = load();
  const show = () => help(on, (wanted) => save(on = wanted));
  document.getElementById("session").before(button("Keys", show, { class: "quiet", id: "keys" }));
  addEventListener("keydown", (event) => {
    if (!on || !app.session || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.target.closest?.("input, textarea, select, dialog") || document.querySelector("dialog[open]")) return;
    const act = event.key === "?" ? show : event.key === "u" ? () => { location.hash = app.list ?? "#/"; } : app.view?.keys?.[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
