// Elements, and how what is shown becomes what is to be shown. All text goes in as text, never as HTML.

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown", "onpointermove", "onpointerleave"];
const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: its attributes; handlers by their names, `key` for one of a list, `vars` for CSS variables,
 *  `keeps`: what is in it is left alone when it is shown anew. `children`: elements, texts, lists of them; null: none. */
export function h(tag, props, ...children) {
  return made(document.createElement(tag), props, children);
}

/** An element of SVG; its arguments are those of `h`. */
export function s(tag, props, ...children) {
  return made(document.createElementNS(SVG, tag), props, children);
}

function made(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") || name === "key" || name === "keeps") element[name] = value;
    else if (name === "vars") for (const [each, to] of Object.entries(value)) element.style.setProperty(each, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Let the children of an element be those, and keep each that only changes: it has the focus, or a place scrolled to. */
export function show(into, ...wanted) {
  const nodes = wanted.flat(Infinity).filter((node) => node).map((node) => (typeof node === "string" ? document.createTextNode(node) : node));
  const keys = new Set(nodes.map((node) => node.key));
  for (const node of [...into.childNodes]) if (node.key && !keys.has(node.key)) node.remove();
  const keyed = new Map([...into.childNodes].filter((node) => node.key).map((node) => [node.key, node]));
  let at = into.firstChild;
  for (const fresh of nodes) {
    const old = fresh.key ? keyed.get(fresh.key) : at;
    const node = old && alike(old, fresh) ? become(old, fresh) : fresh;
    if (node === at) at = at.nextSibling;
    else into.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(old, fresh) {
  return old === fresh || (old.nodeName === fresh.nodeName && old.key === fresh.key);
}

function become(old, fresh) {
  if (old === fresh) return old;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  for (const { name } of [...old.attributes]) if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const name of HANDLERS) old[name] = fresh[name];
  if (old.type === "checkbox" && !fresh.keeps) old.checked = fresh.checked; // what was clicked no longer follows its attribute
  if (!fresh.keeps) show(old, ...fresh.childNodes);
  return old;
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A span of time in its largest unit, rounded down. */
export function brief(seconds) {
  const s = Math.max(0, Math.round(seconds)), [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([each]) => s >= each) ?? [1, "s"];
  return `${Math.floor(s / size)} ${unit}`;
}

export function ago(moment) {
  return span(Date.now() / 1000 - moment);
}

/** So many of something: "1 launch", "2 launches". */
export function many(number, one, more = `${one}s`) {
  return `${number} ${number === 1 ? one : more}`;
}

/** An amount of memory in MiB, in words. */
export function mib(amount) {
  return amount < 1024 ? `${Math.round(amount)} MiB` : `${Math.round(amount / 102.4) / 10} GiB`;
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });
const DATE = new Intl.DateTimeFormat("sv", { year: "numeric", month: "2-digit", day: "2-digit" }); // year-month-day

/** A moment in seconds since the epoch, by the clock and with the time zone of the browser; of today without its date. */
export function clock(moment) {
  const day = date(moment), time = TIME.format(new Date(moment * 1000));
  return day === date(Date.now() / 1000) ? time : `${day} ${time}`;
}

/** The date of a moment in seconds since the epoch, as year-month-day. */
export function date(moment) {
  return DATE.format(new Date(moment * 1000));
}

export function link(to, text, props) {
  return h("a", { href: to, ...props }, text);
}

export const to = {
  job: (id) => `#/jobs/${encodeURIComponent(id)}`,
  app: (id) => `#/apps/${encodeURIComponent(id)}`,
  node: (name) => `#/nodes/${encodeURIComponent(name)}`,
  card: (id) => `#/cards/${encodeURIComponent(id)}`,
  booking: (id) => `#/calendar/${encodeURIComponent(id)}`,
  queue: (path) => `#/queues/${encodeURIComponent(path)}`,
};

/** Let the browser keep pieces of data as a file of that name. */
export function save(name, pieces) {
  const url = URL.createObjectURL(new Blob(pieces, { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** A table; on a narrow screen each row is a card, with the names of its columns. `columns`: [name, class]; `rows`: lists
 *  of cells, each with a property `key`; `sort`: what a click on the name of a column does; `sparse`: leave out columns that
 *  are empty in all rows. */
export function table(columns, rows, { caption, sorted, sort, empty, sparse } = {}) {
  if (!rows.length && empty) return h("p", { class: "empty" }, empty);
  if (sparse) {
    const used = columns.map((_, i) => rows.some((row) => isFilled(row[i]))), kept = (cells) => cells.filter((_, i) => used[i]);
    return table(kept(columns), rows.map((row) => Object.assign(kept(row), { key: row.key })), { caption, sorted, sort });
  }
  const heads = columns.map(([name, kind]) => h("th", { class: kind, scope: "col", "aria-sort": sorted?.by === name ? (sorted.down ? "descending" : "ascending") : null },
    sort && name !== "Actions" ? h("button", { type: "button", class: "sort", onclick: () => sort(name) }, name, sorted?.by === name ? (sorted.down ? " ▾" : " ▴") : "") : name === "Actions" ? h("span", { class: "unseen" }, name) : name));
  const body = rows.map((row) => h("tr", { key: row.key }, row.map((cell, i) => {
    const filled = isFilled(cell);
    return h("td", { class: [columns[i][1], filled ? "" : "none"].filter(Boolean).join(" "), "data-label": columns[i][0] }, filled ? cell : null);
  })));
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)));
}

function isFilled(cell) {
  return cell !== null && cell !== undefined && cell !== "";
}

/** Facts of one thing: [name, value]; those without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))));
}

export function section(title, ...content) {
  return h("section", { key: title }, h("h2", {}, title), content);
}

export function badge(state, text) {
  return h("span", { class: `state ${state}` }, text ?? state);
}
