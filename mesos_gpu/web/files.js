// Files of a job's tasks: lists, texts and downloads, as `mesos-gpu ls`, `cat` and `cp` have them.

import { clock, h, many, save, show, table } from "./dom.js";
import { launchName, numbered } from "./logs.js";
import { DATA, ENTRY, FAULT, readRecords } from "./records.js";

const MAX_TEXT = 262144; // bytes of a file that are shown
const MAX_DOWNLOAD = 268435456; // bytes that the browser keeps in memory
const MAX_ROWS = 1000;
const SENT_AT = 946684800; // the time of files that were sent along
const OWN = ".mesos-gpu-times"; // a file of the executor
let open = null; // the view that is shown

/** A view of the files of a job's tasks, which stays while the page shows the same job. */
export function files(job, tasks) {
  if (open?.job.id !== job.id) {
    stop();
    open = made(job);
  }
  open.job = job;
  choices(open, tasks);
  return open.element;
}

/** Stop what is read. */
export function stop() {
  open?.reading?.abort();
  open = null;
}

function made(job) {
  const view = { job, reading: null, path: "" };
  view.task = h("select", { "aria-label": "Files of the task", onchange: () => list(view, "") });
  view.begin = h("button", { type: "button", onclick: () => list(view, view.path) }, "List files");
  view.said = h("p", { class: "soft", role: "status" });
  [view.above, view.list, view.text] = [h("p", { hidden: true }), h("div"), h("div", { class: "after" })];
  view.element = h("section", { key: `files ${job.id}`, keeps: true }, h("h2", {}, "Files"), h("p", { class: "filters" }, view.task, view.begin), view.said, view.above, view.list, view.text);
  return view;
}

function choices(view, tasks) {
  view.tasks = new Map(tasks.map((task) => [task.id, task]));
  const ids = [...view.tasks.keys()].join(" ");
  if (view.ids === ids) return;
  const chosen = view.task.value;
  view.ids = ids;
  view.task.replaceChildren(...numbered(tasks).reverse().map((task) => h("option", { value: task.id }, launchName(task, tasks))));
  if (view.tasks.has(chosen)) view.task.value = chosen;
}

/** Do something with the records of a path; whether all of them came. */
async function read(view, what, path, take) {
  view.reading?.abort();
  const reading = view.reading = new AbortController();
  tell(view, "reading …");
  try {
    await readRecords(view.tasks.get(view.task.value), what, path, (kind, value) => {
      if (kind === FAULT) throw Object.assign(new Error(`${[path, ...value.path].filter(Boolean).join("/") || "The sandbox"}: ${value.why}`), { refused: true });
      take(kind, value);
    }, reading.signal);
    tell(view, "");
  } catch (error) {
    if (reading.signal.aborted && reading.signal.reason !== ENOUGH) return false; // something else is read
    if (!reading.signal.aborted) {
      reading.abort();
      if (!error.refused && !error.unreached) throw error;
      tell(view, error.message, true);
      return false;
    }
    tell(view, "");
  }
  return view.reading === reading;
}

const ENOUGH = new Error("enough of the file is read");

async function list(view, path) {
  const entries = [];
  view.text.replaceChildren();
  if (!(await read(view, "list", path, (kind, value) => { if (kind === ENTRY && value.path.length) entries.push(value); }))) return;
  view.path = path;
  view.begin.textContent = "List again";
  const rows = entries.map((entry) => ({ ...entry, name: entry.path[0] })).filter((entry) => path || entry.name !== OWN)
    .sort((one, other) => (other.kind === "dir") - (one.kind === "dir") || (one.name < other.name ? -1 : 1));
  const steps = path.split("/").filter(Boolean);
  view.above.hidden = false;
  view.above.replaceChildren(step(view, "sandbox", ""), ...steps.flatMap((name, i) => [" / ", step(view, name, steps.slice(0, i + 1).join("/"))]));
  const shown = rows.slice(0, MAX_ROWS).map((entry) => row(view, entry, path ? `${path}/${entry.name}` : entry.name));
  show(view.list, table([["File"], ["Bytes", "n"], ["Changed"], ["Actions", "actions"]], shown, { caption: "Files", empty: "No files." }),
    rows.length > MAX_ROWS ? h("p", { class: "soft" }, `${rows.length - MAX_ROWS} more are not shown: mesos-gpu ls ${view.job.id}:${path}`) : null);
}

function step(view, name, path) {
  return h("button", { type: "button", class: "link", onclick: () => list(view, path) }, name);
}

function row(view, entry, path) {
  const isFile = entry.kind === "file" || entry.kind === "link", at = (entry.mtime_ns ?? 0) / 1e9;
  const name = entry.kind === "dir" ? h("button", { type: "button", class: "link", onclick: () => list(view, path) }, `${entry.name}/`)
    : isFile ? h("button", { type: "button", class: "link", onclick: () => showText(view, path) }, entry.name) : entry.name;
  return Object.assign([
    h("span", {}, name, entry.target ? ` → ${entry.target}` : ""), entry.kind === "dir" ? "" : entry.size ?? "", !at || at === SENT_AT ? "" : clock(at),
    isFile ? h("button", { type: "button", "aria-label": `Download ${entry.name}`, onclick: () => download(view, path, entry.name) }, "Download") : null,
  ], { key: path });
}

async function showText(view, path) {
  const pieces = [];
  let size = 0, bytes = 0;
  const all = await read(view, "get", path, (kind, value) => {
    if (kind === ENTRY) size = onlyFile(view, value, path);
    if (kind !== DATA) return;
    pieces.push(value.slice());
    bytes += value.length;
    if (bytes > MAX_TEXT) view.reading.abort(ENOUGH);
  });
  if (!all) return;
  const data = new Uint8Array(await new Blob(pieces).slice(0, MAX_TEXT).arrayBuffer());
  const close = h("button", { type: "button", onclick: () => view.text.replaceChildren() }, "Close");
  const content = data.includes(0) ? h("p", {}, "This is no text: download it.")
    : h("pre", { class: "logs", tabindex: "0", role: "region", "aria-label": path }, new TextDecoder().decode(data));
  const part = bytes > MAX_TEXT ? h("p", { class: "soft" }, `The first ${many(MAX_TEXT, "byte")} of ${size}: download the file for the rest.`) : null;
  view.text.replaceChildren(...[h("p", { class: "filters" }, h("strong", {}, path), close), part, content].filter(Boolean));
}

function onlyFile(view, entry, path) { // the size of what was asked for
  if (entry.kind !== "file") throw Object.assign(new Error(`${path} is a directory: mesos-gpu cp ${view.job.id}:${path} .`), { refused: true });
  return entry.size;
}

async function download(view, path, name) {
  const pieces = [];
  const all = await read(view, "get", path, (kind, value) => {
    const size = kind === ENTRY ? onlyFile(view, value, path) : 0;
    if (size > MAX_DOWNLOAD) throw Object.assign(new Error(`${path} has ${size} bytes, too many for this page: mesos-gpu cp ${view.job.id}:${path} .`), { refused: true });
    if (kind === DATA) pieces.push(value.slice());
  });
  if (all) save(name, pieces);
}

function tell(view, text, bad = false) {
  view.said.className = bad ? "bad" : "soft";
  view.said.textContent = text;
}
