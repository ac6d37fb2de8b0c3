// What is asked before something is changed.

import { h } from "./dom.js";

/** Ask; the values of `fields` by name, or null: it was called off. `fields`: {name, label, …attributes of an input}. */
export function confirm(title, { text, fields = [], button = "Do it", danger = false } = {}) {
  const dialog = h("dialog", { "aria-labelledby": "asked" });
  const form = h("form", { method: "dialog" },
    h("h3", { id: "asked" }, title),
    text ? h("p", {}, text) : null,
    fields.map(({ name, label, ...rest }) => h("label", {}, label, h("input", { name, ...rest }))),
    h("p", { class: "buttons" },
      h("button", { value: "do", class: danger ? "danger" : "main" }, button),
      h("button", { value: "", formnovalidate: true, autofocus: danger && !fields.length }, "Cancel")));
  dialog.append(form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "do" ? Object.fromEntries(new FormData(form)) : null);
    });
    dialog.showModal();
  });
}

/** Show a text to copy. `more`: elements below it. */
export function read(title, text, ...more) {
  const shown = h("pre", { class: "line", tabindex: "0" }, text), dialog = h("dialog", { "aria-labelledby": "shown" });
  const copy = h("button", { type: "button", class: "main", onclick: async () => {
    getSelection().selectAllChildren(shown);
    if (navigator.clipboard) await navigator.clipboard.writeText(text); // not over http from another host
    copy.textContent = navigator.clipboard ? "Copied" : "Selected: press Ctrl+C";
  } }, "Copy");
  dialog.append(h("form", { method: "dialog" }, h("h3", { id: "shown" }, title), shown, more.filter(Boolean), h("p", { class: "buttons" }, copy, h("button", {}, "Close"))));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

/** Say what became of something; it goes away by itself. */
export function tell(text, bad = false) {
  const note = h("p", { class: bad ? "bad" : "" }, text);
  document.getElementById("told").replaceChildren(note);
  setTimeout(() => note.remove(), bad ? 20000 : 6000);
}

/** A button that asks, acts and says what became of it. `quiet`: one of many, which is dangerous only once it asks. */
export function action(label, { title, act, done, quiet = false, ...asked }) {
  return h("button", {
    type: "button",
    class: quiet ? "quiet" : asked.danger ? "danger" : "",
    onclick: async (event) => {
      event.stopPropagation();
      const values = title ? await confirm(title, { button: label, ...asked }) : {};
      if (values === null) return;
      try {
        await act(values);
        tell(done);
      } catch (error) {
        tell(`${label}: ${error.message}`, true);
      }
      document.dispatchEvent(new Event("changed")); // what is shown is asked for anew
    },
  }, label);
}
