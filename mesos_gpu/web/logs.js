// What a job prints, as it prints it: of one task, or of all ranks of a launch.

import { get } from "./api.js";
import { h, many, mib, save } from "./dom.js";

const MAX_KEPT = 400000; // characters that are shown
const FIRST = 65536; // bytes of the end of each output that are shown at first
const PIECE = 1 << 20, MAX_DOWNLOAD = 1 << 28; // bytes of an answer, and of all of them
const MAX_RANKS = 16; // whose output is shown at once
const encoder = new TextEncoder();
let open = null; // the one that is shown

/** A view of the output of a job's tasks, which stays while the page shows the same job. */
export function logs(job, tasks) {
  if (open?.job !== job.id) {
    stop();
    open = made(job, tasks);
    follow(open);
  }
  choices(open, tasks);
  return open.element;
}

export function stop() {
  if (open) open.stopped = true;
  open = null;
}

function made(job, tasks) {
  const pre = h("pre", { class: "logs", tabindex: "0", role: "region", "aria-label": "What it printed", keeps: true });
  const said = h("p", { class: "soft", role: "status" });
  const view = { job: job.id, pre, said, text: "", note: null, found: null, heads: new Map(), stopped: false, following: true, turn: 0 };
  const again = () => {
    Object.assign(view, { text: "", heads: new Map(), turn: view.turn + 1 });
    draw(view);
  };
  view.task = h("select", { "aria-label": "Task", onchange: again });
  view.stream = h("select", { "aria-label": "Stream", onchange: again }, h("option", {}, "stdout"), h("option", {}, "stderr"));
  view.search = h("input", { type: "search", "aria-label": "Search in the output", placeholder: "Search in the output", oninput: () => draw(view) });
  const check = h("input", { type: "checkbox", checked: true, onchange: () => { view.following = check.checked; } });
  const keep = h("button", { type: "button", onclick: () => download(view) }, "Download");
  view.element = h("section", { key: `logs ${job.id}`, keeps: true }, h("h2", {}, "Output"),
    h("p", { class: "filters" }, view.task, view.stream, view.search, h("label", { class: "choice" }, check, " follow"), keep), said, pre);
  choices(view, tasks);
  return view;
}

function choices(view, tasks) {
  view.tasks = numbered(tasks).reverse();
  const ids = view.tasks.map((task) => task.id).join(" ");
  if (view.ids === ids) return;
  const newest = view.ids === undefined || view.task.selectedIndex === 0;
  const chosen = view.task.value;
  view.ids = ids;
  const launches = Map.groupBy(view.tasks, (task) => task.number);
  view.task.replaceChildren(...[...launches].flatMap(([number, ranks]) => [
    ranks.length > 1 ? h("option", { value: `all ${number}` }, `launch ${number}, all ${ranks.length} ranks`) : null,
    ...ranks.map((task) => h("option", { value: task.id }, launchName(task, tasks))),
  ]).filter(Boolean));
  if (!newest) view.task.value = chosen;
  else if (chosen && view.task.value !== chosen) view.task.dispatchEvent(new Event("change"));
}

/** Launches, each with its number among those of its rank, from 1. */
export function numbered(tasks) {
  const counts = new Map();
  return tasks.map((task) => {
    counts.set(task.rank, (counts.get(task.rank) ?? 0) + 1);
    return { ...task, number: counts.get(task.rank) };
  });
}

/** What a launch is called in a list of them; `tasks`: all launches of its job. */
export function launchName(task, tasks) {
  return `launch ${task.number}${tasks.some((each) => each.rank) ? `, rank ${task.rank}` : ""} on ${task.hostname}`;
}

/** The tasks whose output is chosen, by rank. */
function sources(view) {
  const all = view.task.value.match(/^all (\d+)$/);
  const chosen = view.tasks.filter((task) => (all ? task.number === Number(all[1]) : task.id === view.task.value));
  return chosen.sort((one, other) => one.rank - other.rank);
}

async function follow(view) {
  while (!view.stopped) {
    let wait_ms = 1000;
    if (view.following && !document.hidden) {
      try {
        if (await more(view)) wait_ms = 50;
      } catch (error) {
        if (!error.refused && !error.unreached) throw error;
        view.said.textContent = error.message;
        wait_ms = 5000;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
  }
}

async function more(view) { // whether there may be more at once
  const { turn } = view, all = sources(view), shown = all.slice(0, MAX_RANKS), lines = [], faults = [];
  let came = false;
  for (const task of shown) {
    const head = view.heads.get(task.id) ?? { offset: null, rest: "" };
    const asked = { stream: view.stream.value, task_id: task.id, offset: head.offset ?? -FIRST, length: FIRST, ...(all.length > 1 ? { times: true } : {}) };
    let chunk;
    try {
      chunk = await get(`/v1/jobs/${encodeURIComponent(view.job)}/logs?${new URLSearchParams(asked)}`);
    } catch (error) {
      if (all.length === 1 || (!error.refused && !error.unreached)) throw error;
      faults.push(`rank ${task.rank}: ${error.message}`);
      continue;
    }
    if (turn !== view.turn || view.stopped) return true; // another output was chosen meanwhile
    if (head.offset === null && chunk.offset > 0) lines.push({ at: 0, text: `… ${chunk.offset} bytes before\n`, rank: task.rank });
    came ||= head.offset !== chunk.next_offset && chunk.data.length > 0;
    if (all.length > 1) lines.push(...linesOf(head, chunk, task));
    else lines.push({ at: 0, text: chunk.data });
    view.heads.set(task.id, { ...head, offset: chunk.next_offset });
  }
  lines.sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
  const width = String(shown.at(-1)?.rank ?? 0).length;
  const added = lines.map((line) => (all.length > 1 ? `${String(line.rank).padStart(width)} | ${line.text}` : line.text)).join("");
  const printed = [...view.heads.values()].some((head) => head.offset);
  const part = all.length > MAX_RANKS ? `ranks 0 to ${MAX_RANKS - 1} of ${all.length}` : "";
  view.note = faults[0] ?? (printed ? part : "nothing printed yet");
  add(view, added);
  return came;
}

/** The whole lines that came of a rank, each with the time at which it was written if that is known. */
function linesOf(head, chunk, task) {
  let end = chunk.offset - encoder.encode(head.rest).length;
  const texts = (head.rest + chunk.data).split("\n"), over = !chunk.data && task.ended_at !== null;
  head.rest = over ? "" : texts.pop();
  if (over && !texts.at(-1)) texts.pop();
  return texts.map((text) => {
    end += encoder.encode(text).length + 1;
    return { rank: task.rank, text: `${text}\n`, at: chunk.times?.find((time) => time.offset >= end)?.at ?? Infinity };
  });
}

function add(view, text) {
  const { pre } = view, atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  view.text += text;
  const isLong = view.text.length > MAX_KEPT;
  if (isLong) view.text = view.text.slice(-MAX_KEPT / 2).replace(/^[^\n]*\n/, "");
  if (isLong || (text && view.search.value)) draw(view);
  else if (text) pre.append(text);
  tell(view);
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}

function draw(view) {
  const wanted = view.search.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  view.found = null;
  if (!wanted) view.pre.replaceChildren(view.text);
  else {
    const lines = view.text.replace(/\n$/, "").split("\n"), pattern = new RegExp(wanted, "i"), parts = new RegExp(`(${wanted})`, "gi");
    const found = lines.filter((line) => pattern.test(line));
    view.found = `${found.length} of ${many(lines.length, "loaded line")}`;
    view.pre.replaceChildren(...found.flatMap((line) => [...line.split(parts).map((part, i) => (i % 2 ? h("mark", {}, part) : part)), "\n"]));
  }
  tell(view);
}

function tell(view) {
  view.said.textContent = [view.note, view.found].filter(Boolean).join("; ");
}

/** Keep all of the chosen output as a file. */
async function download(view) {
  const stream = view.stream.value, tasks = sources(view), parts = [];
  let bytes = 0;
  try {
    for (const task of tasks) {
      if (tasks.length > 1) parts.push(`==> rank ${task.rank} <==\n`);
      for (let offset = 0; bytes < MAX_DOWNLOAD;) {
        const asked = new URLSearchParams({ stream, task_id: task.id, offset, length: PIECE, encoding: "base64" });
        const chunk = await get(`/v1/jobs/${encodeURIComponent(view.job)}/logs?${asked}`);
        if (!chunk.data) break;
        parts.push(Uint8Array.from(atob(chunk.data), (letter) => letter.charCodeAt(0)));
        [offset, bytes] = [chunk.next_offset, bytes + chunk.next_offset - chunk.offset];
        view.said.textContent = `${mib(bytes / 1048576)} read`;
      }
    }
  } catch (error) {
    if (!error.refused && !error.unreached) throw error;
    view.said.textContent = error.message;
    return;
  }
  const rank = tasks.length === 1 && tasks[0].rank ? `.${tasks[0].rank}` : "";
  save(`${view.job}${rank}.${stream}.txt`, parts);
  view.said.textContent = bytes < MAX_DOWNLOAD ? "" : `The first ${mib(MAX_DOWNLOAD / 1048576)}: mesos-gpu logs ${view.job} has all of it.`;
}
