// Long lists: search, order and pages, which stand in the address.

import { h, many } from "./dom.js";

export const PAGE = 100;

/** Which page of a list an address names, from 1. */
export function pageIn(query) {
  return Math.max(1, Number(query.get("page")) || 1);
}

/** A field that searches as one writes. */
export function searchBox(label, query, turn) {
  return h("input", { type: "search", id: "search", "aria-label": label, placeholder: `${label} (press /)`, value: query.get("q") ?? "", oninput: (event) => turn({ q: event.target.value || null, page: null }) });
}

/** The part of a list that is shown. */
export function pageOf(items, query) {
  const last = Math.max(1, Math.ceil(items.length / PAGE)), at = Math.min(pageIn(query), last);
  return { items: items.slice(PAGE * (at - 1), PAGE * at), at };
}

/** Which part of a long list is shown, and ways to others. `what`: the word for one of what is counted. */
export function pages(total, at, turn, what = "") {
  const last = Math.max(1, Math.ceil(total / PAGE));
  if (last === 1) return h("p", { class: "soft", key: "pages" }, what ? many(total, what) : `${total} in all`);
  return h("p", { class: "pages", key: "pages" },
    h("button", { type: "button", disabled: at <= 1, onclick: () => turn({ page: at - 1 }) }, "Previous"),
    ` ${PAGE * (at - 1) + 1} to ${Math.min(total, PAGE * at)} of ${what ? many(total, what) : total} `,
    h("button", { type: "button", disabled: at >= last, onclick: () => turn({ page: at + 1 }) }, "Next"));
}

/** Sorted by a column, if one was chosen. `keys`: by the name of a column, what it is sorted by. */
export function sortedBy(items, keys, query) {
  const by = query.get("sort"), down = query.get("down") === "true";
  if (!(by in keys)) return items;
  const key = keys[by], sign = down ? -1 : 1;
  const compare = (a, b) => (a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : a < b ? -sign : sign);
  return [...items].sort((a, b) => compare(key(a), key(b)));
}

export function sorting(keys, query, turn) {
  const by = query.get("sort"), down = query.get("down") === "true";
  return { sorted: { by, down }, sort: (name) => name in keys && turn({ sort: name, down: by === name && !down ? "true" : null }) };
}
