// The list of jobs, and tables of jobs.

import { get, getIf, mayJob, send } from "./api.js";
import { action } from "./dialog.js";
import { badge, brief, clock, h, link, many, span, table, to } from "./dom.js";
import { PAGE, pageIn, pages, searchBox, sortedBy, sorting } from "./lists.js";

const ENDED = new Set(["finished", "failed", "killed"]);
const STATES = ["all", "active", "running", "pending", "finished", "failed", "killed"];
const FILTERS = { user: "User", queue: "Queue", label: "Label" };
const LINE = 100; // jobs that wait, of which the reason is shown
const IDLE_S = 600; // without work, after which a job is marked as idle
const NAMED = 5; // jobs that the question before several are killed names
/** The command of a first job. */
export const FIRST = "mesos-gpu run --gpus 1 -- nvidia-smi";
const selected = new Set(); // ids of jobs

/** What one job is, in each number of jobs of the dashboard. */
export const COUNTED = "Each task of an array and each instance of an app counts as one job.";

export const list = {
  title: () => "Jobs",
  async load({ query }) {
    const asked = new URLSearchParams({ order: "activity", limit: PAGE, skip: PAGE * (pageIn(query) - 1), fold_arrays: "true" });
    if (query.get("instances") !== "true") asked.set("no_instances", "true");
    if (query.get("q")) asked.set("search", query.get("q"));
    for (const name of ["state", ...Object.keys(FILTERS)]) if (query.get(name)) asked.set(name, query.get(name));
    const [jobs, queue] = await Promise.all([get(`/v1/jobs?${asked}`), getIf("queue:see", `/v1/queue?limit=${LINE}`)]);
    return { jobs, reasons: reasonsOf(queue?.jobs ?? []) };
  },
  view({ jobs, reasons }, { query, turn }, status) {
    return [h("h2", { key: "head" }, "Jobs"), filters(jobs.jobs, query, turn, status.jobs),
      jobTable(jobs.jobs, query, turn, { reasons, redraw: () => document.dispatchEvent(new Event("redraw")), empty: emptyOf(query) }),
      pages(jobs.total, pageIn(query), turn, "row"),
      h("p", { class: "soft", key: "counted" }, `${COUNTED} An array is one row${query.get("instances") === "true" ? "" : "; instances of apps are hidden"}.`)];
  },
};

/** Why jobs wait, by the id of the job or of its array: of an array, why the first of its tasks does. */
export function reasonsOf(waiting) {
  const reasons = new Map();
  for (const job of waiting) {
    const id = job.array_id ?? job.id;
    if (!reasons.has(id)) reasons.set(id, job.reservation?.hostname ? `room is kept on ${job.reservation.hostname}; ${job.estimate.basis}` : job.estimate.basis);
  }
  return reasons;
}

function filters(jobs, query, turn, counts) {
  const sums = { all: Object.values(counts), active: Object.entries(counts).filter(([state]) => !ENDED.has(state)).map(([, each]) => each) };
  const filtered = ["q", ...Object.keys(FILTERS)].some((name) => query.get(name)); // the scheduler counts all jobs
  const choose = STATES.map((state) => {
    const on = (query.get("state") ?? "all") === state, number = (sums[state] ?? [counts[state] ?? 0]).reduce((sum, each) => sum + each, 0);
    return h("button", { type: "button", "aria-pressed": String(on), onclick: () => turn({ state: state === "all" ? null : state, page: null }) }, filtered ? state : `${state} ${number}`);
  });
  const known = { user: jobs.map((job) => job.owner), queue: jobs.map((job) => job.queue), label: jobs.flatMap((job) => Object.entries(job.labels).map(([name, value]) => `${name}=${value}`)) };
  return h("div", { key: "filters" },
    h("div", { class: "filters" }, searchBox("Search jobs", query, turn), Object.entries(FILTERS).map(([name, label]) => [
      h("input", { type: "search", list: `of-${name}`, size: 12, "aria-label": `${label} of the jobs`, placeholder: name === "label" ? "Label name=value" : label, value: query.get(name) ?? "", onchange: (event) => turn({ [name]: event.target.value.trim() || null, page: null }) }),
      h("datalist", { id: `of-${name}` }, [...new Set(known[name])].filter(Boolean).sort().map((value) => h("option", { value }))),
    ])),
    h("div", { class: "filters" }, h("div", { role: "group", "aria-label": "State of the jobs" }, choose),
      h("label", { class: "choice" }, h("input", { type: "checkbox", checked: query.get("instances") === "true", onchange: (event) => turn({ instances: event.target.checked ? "true" : null, page: null }) }), " instances of apps too"),
      selection(jobs)));
}

function selection(jobs) { // what is done with several jobs of this page
  const killable = jobs.filter(mayKill), chosen = killable.filter((job) => selected.has(job.id));
  if (!killable.length) return null;
  const all = (event) => {
    for (const job of killable) event.target.checked ? selected.add(job.id) : selected.delete(job.id);
    document.dispatchEvent(new Event("redraw"));
  };
  return h("span", { class: "choice" }, h("label", {}, h("input", { type: "checkbox", checked: chosen.length === killable.length, onchange: all }), " select all"), " ", chosen.length ? killSelected(chosen) : null);
}

function killSelected(jobs) {
  const names = jobs.slice(0, NAMED).map((job) => job.id).join(", "), more = jobs.length - NAMED;
  return action(`Kill ${jobs.length} selected`, {
    title: `Kill ${many(jobs.length, "job")}?`, text: `${names}${more > 0 ? ` and ${more} more` : ""}: each ends, with all its tasks.`, danger: true, button: "Kill",
    act: () => killAll(jobs), done: `${many(jobs.length, "job")} asked to end.`,
  });
}

async function killAll(jobs) { // one after the other: the scheduler bounds how many requests a caller has at a time
  const failed = [];
  for (const job of jobs) {
    try {
      await send("DELETE", `/v1/jobs/${encodeURIComponent(job.id)}`);
      selected.delete(job.id);
    } catch (error) {
      failed.push(`${job.id}: ${error.message}`);
    }
  }
  if (failed.length) throw new Error(`${failed.length} of ${many(jobs.length, "job")} not killed; ${failed.join("; ")}`);
}

function emptyOf(query) {
  const filtered = ["q", "state", ...Object.keys(FILTERS)].some((name) => query.get(name));
  return filtered ? ["No job matches these filters. ", link("#/jobs", "Show all jobs")] : ["No jobs yet. Run the first one: ", h("code", {}, FIRST)];
}

const KEYS = {
  Job: (job) => job.name, State: (job) => job.state, Owner: (job) => job.owner, Queue: (job) => job.queue, GPUs: gpusOf, Utilization: (job) => job.use?.busy_pct,
  Host: (job) => job.hostnames[0], Age: (job) => -job.submitted_at, Ran: (job) => (job.started_at === null ? null : (job.ended_at ?? Date.now() / 1000) - job.started_at),
};
const COLUMNS = [["Job", "cut"], ["State"], ["Owner"], ["Queue"], ["GPUs", "n"], ["Utilization", "n"], ["Host"], ["Age", "n"], ["Ran", "n"], ["Message", "message"], ["Actions", "actions"]];

/** How many GPUs a job asks for, as limits of queues count them: an exact share is a part of them. */
export function gpusOf(job) {
  if (job.gpu_compute_pct === null) return job.tasks * job.gpus;
  const part = Math.max(job.gpu_compute_pct / 100, job.gpus < 1 ? job.gpus : 0);
  return Math.round(job.tasks * Math.ceil(job.gpus) * part * 1000) / 1000;
}

/** A table of jobs, without the columns that are empty in all rows.
 *  `reasons`: why jobs wait, by id; `redraw`: lets jobs be selected, and is called after a change of that. */
export function jobTable(jobs, query, turn, { reasons = new Map(), redraw = null, empty = "No jobs." } = {}) {
  const now = Date.now() / 1000;
  const rows = sortedBy(jobs, KEYS, query).map((job) => Object.assign([
    named(job, redraw),
    job.array_counts ? h("span", {}, badge(job.state), " ", ended(job.array_counts)) : badge(job.state, job.state + (job.exit_code ? ` (${job.exit_code})` : "")),
    job.owner ?? "", link(to.queue(job.queue), job.queue), job.tasks > 1 ? `${job.tasks}×${gpusOf(job) / job.tasks}` : gpusOf(job), utilization(job),
    job.hostnames.join(" "), h("span", { title: clock(job.submitted_at) }, brief(now - job.submitted_at)), job.started_at === null ? "" : brief((job.ended_at ?? now) - job.started_at),
    message(job, reasons), killOf(job, true),
  ], { key: job.id }));
  return h("div", { key: "jobs", class: "jobs" }, table(COLUMNS, rows, { caption: "Jobs", empty, sparse: true, ...sorting(KEYS, query, turn) }));
}

function named(job, redraw) {
  const choose = (event) => {
    event.target.checked ? selected.add(job.id) : selected.delete(job.id);
    redraw();
  };
  return h("span", {},
    redraw ? h("input", { type: "checkbox", class: "select", "aria-label": `Select ${job.id}`, checked: selected.has(job.id), disabled: !mayKill(job), onchange: choose }) : null,
    link(to.job(job.id), job.name, { title: [job.id, ...Object.entries(job.labels).map(([name, value]) => `${name}=${value}`)].join("\n") }), job.app ? h("span", { class: "soft" }, ` of ${job.app}`) : null, job.array ? h("span", { class: "soft" }, `[${job.array}]`) : null);
}

function utilization({ use }) { // of the GPUs that it holds
  if (!use || use.busy_pct === null) return "";
  return use.idle_s > IDLE_S ? h("span", { class: "bad", title: `idle for ${span(use.idle_s)}` }, `${Math.round(use.busy_pct)} %`) : `${Math.round(use.busy_pct)} %`;
}

function message(job, reasons) {
  const text = [plain(job) ? "" : job.message, ENDED.has(job.state) ? "" : reasons.get(job.id)].filter(Boolean).join(": ");
  return text ? h("div", { class: "one-line", title: text }, text) : "";
}

/** How many tasks of an array have ended, as a bar. */
export function ended(counts) {
  const over = counts.finished + counts.failed + counts.killed, text = `${over} of ${counts.tasks} tasks have ended`;
  return h("progress", { max: counts.tasks, value: over, title: text, "aria-label": text });
}

/** Whether the message of a job follows from its state. */
export function plain(job) {
  return job.message === job.state || (job.state === "pending" && job.message === "queued");
}

function mayKill(job) {
  return !ENDED.has(job.state) && !job.kill_requested && mayJob("kill", job);
}

/** A button that kills a job; null if it has ended or who looks may not kill it. `quiet`: one of many. */
export function killOf(job, quiet = false) {
  if (!mayKill(job)) return null;
  return action("Kill", { title: `Kill ${job.name}?`, text: `${job.id} ends, with all its tasks.`, danger: true, quiet, act: () => send("DELETE", `/v1/jobs/${encodeURIComponent(job.id)}`), done: `${job.id} is asked to end.` });
}
