// The files of a task. They are at its agent, whose answers come through a frame: see reader.js.

import { clock, h, link, show, table } from "./dom.js";
import { pageOf, pages } from "./lists.js";

const LIMIT_MS = 10000; // an answer of an agent must have come by then
const PIECE = 65536; // bytes that an agent sends at most
const MOST = 400000; // characters of a file that are kept
const PAUSE_MS = 2000;
let open = null; // the view that is shown

/** The sandbox of a task, which stays while the page shows the same task. `secured`: whether the cluster asks for names. */
export function sandbox(task, context) {
  const key = `${task.framework.id} ${task.agent_id} ${task.id}`;
  if (open?.key !== key) {
    close();
    open = made(key, task);
  }
  const { query } = context;
  Object.assign(open, { task, context });
  const directory = query.get("dir") ?? "", file = query.get("file");
  if (!task.agent) tell(open, "Its agent is not in the cluster any more, and with it went the files.");
  else if (open.directory !== directory || open.file !== file) go(open, directory, file);
  else if (open.listing) draw(open);
  return open.element;
}

/** Stop reading. */
export function close() {
  open?.reader?.close();
  open = null;
}

function made(key, task) {
  const view = { key, listing: null, turn: 0, reader: task.agent && new Reader(task.agent), root: rootOf(task) };
  view.said = h("div", { role: "status" });
  view.list = h("div");
  view.text = h("div");
  view.element = h("section", { key: `sandbox ${key}`, keeps: true }, h("h2", {}, "Sandbox"), view.said, view.list, view.text);
  return view;
}

/** The virtual path at which an agent has the files of an executor's latest run. */
function rootOf(task) {
  return `/frameworks/${task.framework.id}/executors/${task.executor}/runs/latest`;
}

async function go(view, directory, file) {
  const turn = ++view.turn;
  Object.assign(view, { directory, file });
  view.text.replaceChildren();
  if (!(await list(view, turn))) return;
  if (file !== null && turn === view.turn) await follow(view, turn);
}

async function list(view, turn) {
  const listing = await view.reader.ask("browse", { path: pathOf(view, view.directory) });
  if (turn !== view.turn) return false;
  if (!Array.isArray(listing)) {
    view.listing = null;
    view.list.replaceChildren();
    tell(view, ...unread(view));
    return false;
  }
  view.listing = listing.filter((each) => typeof each?.path === "string").map((each) => ({ ...each, name: each.path.slice(each.path.lastIndexOf("/") + 1), folder: String(each.mode).startsWith("d") }));
  tell(view);
  draw(view);
  return true;
}

function pathOf(view, ...names) {
  return [view.root, ...names.filter(Boolean)].join("/");
}

function tell(view, ...content) {
  show(view.said, ...content.map((each) => (typeof each === "string" ? h("p", { class: "message" }, each) : each)));
}

/** What to do where an agent does not answer this browser, which does not say why. */
function unread({ task, reader, context, root }) {
  const address = reader.addresses[0], at = (call, file) => `${address}/files/${call}?${new URLSearchParams({ path: file ? `${root}/${file}` : root })}`;
  return [
    `The agent ${task.host} sends this browser no files: it is not reached at ${address}, or it refuses, or the files are removed.`,
    context.secured ? "This cluster asks for a name and a secret, and browsers give an agent those of its own pages only: follow a link below, and give the name operator and its secret." : null,
    h("ul", { class: "notes" },
      h("li", {}, link(at("browse"), "the list of files, as JSON", { rel: "noreferrer" })), h("li", {}, "download ", link(at("download", "stdout"), "stdout", { rel: "noreferrer" }), " or ", link(at("download", "stderr"), "stderr", { rel: "noreferrer" })),
      context.job ? h("li", {}, "the page of its job, which shows what it prints: ", context.job) : null,
      h("li", {}, h("button", { type: "button", onclick: () => again() }, "Try again"))),
  ].filter(Boolean);
}

function again() {
  const { directory, file } = open;
  open.directory = null;
  go(open, directory, file);
}

function draw(view) {
  const { listing, directory, task, context: { query, turn } } = view;
  const { items, at } = pageOf(listing, query), base = location.hash.split("?")[0];
  const to = (where, file) => `${base}?${new URLSearchParams({ ...(where ? { dir: where } : {}), ...(file ? { file } : {}) })}`;
  const above = directory.split("/").filter(Boolean).map((name, i, all) => [" / ", link(to(all.slice(0, i + 1).join("/")), name)]);
  const rows = items.map((each) => {
    const inside = [directory, each.name].filter(Boolean).join("/");
    return Object.assign([
      link(each.folder ? to(inside) : to(directory, each.name), each.folder ? `${each.name}/` : each.name), each.folder ? "" : Number(each.size), String(each.mode), `${each.uid}:${each.gid}`, Number.isFinite(each.mtime) ? clock(each.mtime) : "",
      each.folder ? null : link(view.reader.url("download", { path: pathOf(view, inside) }), "download", { rel: "noreferrer" }),
    ], { key: each.name });
  });
  show(view.list, h("p", { key: "above" }, link(to(""), `sandbox on ${task.host}`), above),
    table([["File"], ["Bytes", "n"], ["Mode"], ["Owner"], ["Changed"], ["Actions", "actions"]], rows, { caption: "Files", empty: "No files." }), listing.length > rows.length ? pages(listing.length, at, turn) : null);
}

/** Show the end of a file, and what comes after it while its task runs. */
async function follow(view, turn) {
  const path = pathOf(view, view.directory, view.file), pre = h("pre", { class: "logs", tabindex: "0", role: "region", "aria-label": view.file });
  const said = h("p", { class: "soft" }), earlier = h("button", { type: "button", hidden: true }, "Show what is before");
  view.text.replaceChildren(h("h3", {}, view.file), h("p", {}, earlier), pre, said);
  const stands = () => turn === view.turn && open === view;
  let begin = null, end = null;
  const piece = async (offset, length) => String((await view.reader.ask("read", { path, offset, length }))?.data ?? "");
  earlier.addEventListener("click", async () => {
    const from = Math.max(0, begin - PIECE), text = await piece(from, begin - from);
    if (!stands()) return;
    pre.prepend(text);
    begin = from;
    earlier.hidden = begin === 0;
  });
  while (stands()) {
    const size = document.hidden ? end : (await view.reader.ask("read", { path, offset: -1 }))?.offset;
    if (!stands()) return;
    if (size === undefined && end === null) {
      said.textContent = "The agent does not send this file: only files can be read.";
      return;
    }
    if (Number.isFinite(size)) {
      if (end === null || size < end) { // the first look, or it was written anew
        pre.replaceChildren();
        begin = end = Math.max(0, size - PIECE);
      }
      earlier.hidden = begin === 0;
      while (end < size) {
        const text = await piece(end, Math.min(PIECE, size - end));
        if (!stands()) return;
        const low = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
        pre.append(text);
        end = Math.min(size, end + PIECE);
        while (pre.textContent.length > MOST && pre.childNodes.length > 1) pre.firstChild.remove(), earlier.remove();
        if (low) pre.scrollTop = pre.scrollHeight;
      }
      said.textContent = size === 0 ? "It is empty." : "";
    }
    if (view.task.group !== "active") return;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** Reads an agent's files. */
class Reader {
  constructor(agent) {
    const at = (host) => `${location.protocol}//${host}:${agent.port}`;
    this.addresses = [...new Set([agent.host, agent.ip].filter((host) => /^[\w.-]+$/.test(host ?? "")).map(at))]; // the first one that answers stays
    this.asked = new Map();
    this.count = 0;
    this.frame = h("iframe", { sandbox: "allow-scripts", src: "app/reader.html", hidden: true, title: "Answers of an agent" });
    this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
    this.hear = ({ source, data }) => source === this.frame.contentWindow && this.asked.get(data?.id)?.(data.value);
    addEventListener("message", this.hear);
    document.body.append(this.frame);
  }

  url(call, values) {
    return `${this.addresses[0]}/files/${call}?${new URLSearchParams(values)}`;
  }

  /** The answer to a call, whatever the agent has put there; null: none has come. */
  async ask(call, values) {
    await this.ready;
    for (const address of [...this.addresses]) {
      const value = await this.answer(`${address}/files/${call}?${new URLSearchParams(values)}`);
      if (value === null || value === undefined) continue;
      this.addresses = [address, ...this.addresses.filter((each) => each !== address)];
      return value;
    }
    return null;
  }

  answer(url) {
    const id = ++this.count;
    return new Promise((resolve) => {
      const late = setTimeout(() => resolve(null), LIMIT_MS);
      this.asked.set(id, (value) => (clearTimeout(late), resolve(value)));
      this.frame.contentWindow?.postMessage({ id, url }, "*");
    }).finally(() => this.asked.delete(id));
  }

  close() {
    removeEventListener("message", this.hear);
    this.frame.remove();
  }
}
