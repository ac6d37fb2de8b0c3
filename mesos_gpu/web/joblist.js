// The list of jobs, and tables of jobs.

import { get, mayJob, send } from "./api.js";
import { action } from "./dialog.js";
import { badge, h, link, span, table, to } from "./dom.js";
import { PAGE, pageIn, pages, searchBox, sortedBy, sorting } from "./lists.js";

const ENDED = new Set(["finished", "failed", "killed"]);
const STATES = ["all", "active", "running", "pending", "finished", "failed", "killed"];

export const list = {
  title: () => "Jobs",
  async load({ query }) {
    const asked = new URLSearchParams({ order: "activity", limit: PAGE, skip: PAGE * (pageIn(query) - 1) });
    if (query.get("instances") !== "true") asked.set("no_instances", "true");
    asked.set("fold_arrays", "true");
    if (query.get("q")) asked.set("search", query.get("q"));
    if (query.get("state")) asked.set("state", query.get("state"));
    return { jobs: await get(`/v1/jobs?${asked}`) };
  },
  view({ jobs }, { query, turn }) {
    const choose = STATES.map((state) => {
      const on = (query.get("state") ?? "all") === state;
      return h("button", { type: "button", "aria-pressed": String(on), onclick: () => turn({ state: state === "all" ? null : state, page: null }) }, state);
    });
    return [h("h2", { key: "head" }, "Jobs"),
      h("div", { class: "filters", key: "filters" },
        searchBox("Search jobs", query, turn), h("div", { role: "group", "aria-label": "Which jobs" }, choose),
        h("label", { class: "choice" }, h("input", { type: "checkbox", checked: query.get("instances") === "true", onchange: (event) => turn({ instances: event.target.checked ? "true" : null, page: null }) }), " instances of apps too")),
      jobTable(jobs.jobs, query, turn),
      pages(jobs.total, pageIn(query), turn)];
  },
};

const KEYS = {
  Job: (job) => job.name, State: (job) => job.state, Owner: (job) => job.owner, Queue: (job) => job.queue, GPUs: gpusOf,
  Host: (job) => job.hostnames[0], Age: (job) => -job.submitted_at, Ran: (job) => (job.started_at === null ? null : (job.ended_at ?? Date.now() / 1000) - job.started_at),
};

/** How many GPUs a job asks for, as limits of queues count them: an exact share is a part of them. */
export function gpusOf(job) {
  if (job.gpu_compute_pct === null) return job.tasks * job.gpus;
  const part = Math.max(job.gpu_compute_pct / 100, job.gpus < 1 ? job.gpus : 0);
  return Math.round(job.tasks * Math.ceil(job.gpus) * part * 1000) / 1000;
}

export function jobTable(jobs, query, turn) {
  const now = Date.now() / 1000;
  const rows = sortedBy(jobs, KEYS, query).map((job) => Object.assign([
    h("span", {}, link(to.job(job.id), job.name, { title: job.id }), job.app ? h("span", { class: "soft" }, ` of ${job.app}`) : null, job.array ? h("span", { class: "soft" }, `[${job.array}]`) : null),
    job.array_counts ? h("span", {}, badge(job.state), " ", ended(job.array_counts)) : badge(job.state, job.state + (job.exit_code ? ` (${job.exit_code})` : "")),
    job.owner ?? "", link(to.queue(job.queue), job.queue), job.tasks > 1 ? `${job.tasks}×${gpusOf(job) / job.tasks}` : gpusOf(job),
    job.hostnames.join(" "), span(now - job.submitted_at), job.started_at === null ? "" : span((job.ended_at ?? now) - job.started_at),
    plain(job) ? "" : h("div", { class: "lines", title: job.message }, job.message), killOf(job),
  ], { key: job.id }));
  return h("div", { key: "jobs" }, table([["Job", "cut"], ["State"], ["Owner"], ["Queue"], ["GPUs", "n"], ["Host"], ["Age", "n"], ["Ran", "n"], ["Message", "message"], ["Actions", "actions"]],
    rows, { caption: "Jobs", empty: "No jobs.", ...sorting(KEYS, query, turn) }));
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

/** A button that kills a job; null if it has ended or who looks may not kill it. */
export function killOf(job) {
  if (ENDED.has(job.state) || job.kill_requested || !mayJob("kill", job)) return null;
  return action("Kill", { title: `Kill ${job.name}?`, text: `${job.id} ends, with all its tasks.`, danger: true, act: () => send("DELETE", `/v1/jobs/${encodeURIComponent(job.id)}`), done: `${job.id} is asked to end.` });
}
