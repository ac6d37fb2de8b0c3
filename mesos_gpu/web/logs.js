// What a job prints, as it prints it.

import { get } from "./api.js";
import { h } from "./dom.js";

const MOST = 400000; // characters that are kept of it
const FIRST = 65536; // bytes of the end that are shown at first
let open = null; // the one that is shown: {job, key, element, pre, offset, stopped}

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
  const view = { job: job.id, pre, said, offset: null, stopped: false, following: true, turn: 0 };
  const again = () => {
    view.offset = null;
    view.turn += 1;
    pre.replaceChildren();
  };
  view.task = h("select", { "aria-label": "Task", onchange: again });
  view.stream = h("select", { "aria-label": "Stream", onchange: again }, h("option", {}, "stdout"), h("option", {}, "stderr"));
  const check = h("input", { type: "checkbox", checked: true, onchange: () => { view.following = check.checked; } });
  view.element = h("section", { key: `logs ${job.id}`, keeps: true }, h("h2", {}, "Output"), h("p", { class: "filters" }, view.task, view.stream, h("label", { class: "choice" }, check, " follow")), said, pre);
  choices(view, tasks);
  return view;
}

function choices(view, tasks) {
  const ids = [...tasks].reverse().map((task) => task.id).join(" ");
  if (view.ids === ids) return;
  const newest = view.ids === undefined || view.task.selectedIndex === 0;
  const chosen = view.task.value;
  view.ids = ids;
  view.task.replaceChildren(...numbered(tasks).reverse().map((task) => h("option", { value: task.id }, `launch ${task.number}${tasks.some((each) => each.rank) ? `, rank ${task.rank}` : ""} on ${task.hostname}`)));
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
  const turn = view.turn, asked = new URLSearchParams({ stream: view.stream.value, task_id: view.task.value, offset: view.offset ?? -FIRST, length: FIRST });
  const chunk = await get(`/v1/jobs/${encodeURIComponent(view.job)}/logs?${asked}`);
  if (turn !== view.turn || view.stopped) return true; // another stream was chosen meanwhile
  if (view.offset === null && chunk.offset > 0) view.pre.append(`… ${chunk.offset} bytes before\n`);
  const atEnd = view.pre.scrollHeight - view.pre.scrollTop - view.pre.clientHeight < 40;
  const came = view.offset !== chunk.next_offset;
  view.offset = chunk.next_offset;
  view.said.textContent = chunk.next_offset ? "" : "nothing printed yet";
  if (chunk.data) view.pre.append(chunk.data);
  while (view.pre.textContent.length > MOST && view.pre.childNodes.length > 1) view.pre.firstChild.remove();
  if (atEnd) view.pre.scrollTop = view.pre.scrollHeight;
  return came && chunk.data.length > 0;
}
