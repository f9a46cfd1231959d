// Dialogs that ask for confirmation. Escape closes them, and the focus returns to the previous element.

import { alertLine, button, h, report } from "./dom.js";

// field returns a labelled control, with a hint below.
let serial = 0;
export function field(label, control, hint) {
  const id = `field-${++serial}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" },
    h("label", { for: id }, label),
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint),
    control);
}

// choice returns a group of radio buttons; options are [value, label, hint].
export function choice(legend, name, options) {
  return h("fieldset", null, h("legend", null, legend), options.map(([value, label, hint], i) => {
    const id = `field-${++serial}`;
    return h("div", { class: "option" },
      h("input", { type: "radio", name, value, id, checked: i === 0, "aria-describedby": `${id}-hint` }),
      h("div", null, h("label", { for: id }, label), h("p", { class: "hint", id: `${id}-hint` }, hint)));
  }));
}

// select returns a drop-down list; options are [value, label].
export const select = (name, options, value = "") =>
  h("select", { name }, options.map(([v, label]) => h("option", { value: v, selected: v === value }, label)));

// ask shows a dialog. When the user confirms, act is called with the values of the fields; if it fails, its
// error is shown and the dialog stays open. The promise resolves to whether act succeeded. watch is called
// with a function that disables the confirmation.
export function ask({ title, content, confirm, danger, act, refuge, watch }) {
  return new Promise((resolve) => {
    const problem = alertLine();
    const yes = h("button", { class: danger ? "danger" : "primary" }, confirm);
    const no = button("Cancel", () => dialog.close());
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), content, problem, h("div", { class: "buttons" }, yes, no));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    const before = document.activeElement;
    let done = false;
    let stop;

    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (yes.disabled) return;
      report(problem, null);
      yes.disabled = true;
      try {
        await act(Object.fromEntries(new FormData(form)));
        done = true;
        dialog.close();
      } catch (error) {
        report(problem, error);
        yes.disabled = false;
        yes.focus();
      }
    });
    dialog.addEventListener("close", () => {
      stop?.();
      dialog.remove();
      const target = before.isConnected && before !== document.body ? before : refuge?.();
      target?.focus();
      resolve(done);
    });
    document.body.append(dialog);
    stop = watch?.((words) => {
      yes.disabled = true;
      problem.hidden = false;
      problem.textContent = words;
    });
    dialog.showModal();
    form.querySelector("input, textarea, select")?.focus();
  });
}
