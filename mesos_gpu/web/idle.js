// The idle board: jobs with idle GPUs, for how long they are idle, when they are given back, and waiting jobs.

import { get, getIf, knows, mayJob, send } from "./api.js";
import { action } from "./dialog.js";
import { badge, clock, h, link, many, section, span, table, to } from "./dom.js";
import { searchBox, sortedBy, sorting } from "./lists.js";

const LEAST_S = 600; // of cards whose jobs no rule is about
const KEYS = { Job: ({ job }) => job.name, Owner: ({ job }) => job.owner, Queue: ({ job }) => job.queue, State: ({ state }) => state, GPUs: ({ gpus }) => gpus, "Idle for": ({ idle_s: idle }) => -idle, "Given back": ({ at }) => at };

/** Jobs whose GPUs do nothing, the longest first: by what the scheduler says of each, else by what its cards show. */
export function idlers(jobs) {
  const all = jobs.map((job) => ({ job, state: job.idle ? job.idle.state : "idle", idle_s: job.idle ? job.idle.idle_s : job.use?.idle_s ?? 0, gpus: job.gpu_ids.length, at: job.idle?.policy && job.idle.policy !== "report" ? Date.now() / 1000 + Math.max(0, job.idle.return_after_s - job.idle.idle_s) : null }));
  return all.filter(({ job, state, idle_s }) => (job.idle ? state !== "active" && state !== "returned" : idle_s > LEAST_S)).sort((a, b) => b.idle_s - a.idle_s);
}

export const list = {
  title: () => "Idle GPUs",
  whole: true,
  async load() {
    const [active, queue] = await Promise.all([get("/v1/jobs?state=running&order=activity&limit=1000"), getIf("queue:see", "/v1/queue?limit=100")]);
    return { active, queue };
  },
  view({ active, queue }, { query, turn }) {
    const wanted = (query.get("q") ?? "").toLowerCase(), all = idlers(active.jobs);
    const rows = sortedBy(all.filter(({ job }) => `${job.name} ${job.owner} ${job.queue} ${job.hostnames.join(" ")}`.toLowerCase().includes(wanted)), KEYS, query).map((each) => row(each, queue));
    return [h("div", { class: "head", key: "head" }, h("h2", {}, "Idle GPUs")), tiles(all, active, queue), h("div", { class: "filters", key: "filters" }, searchBox("Search idle jobs", query, turn)),
      h("div", { key: "jobs" }, table([["Job", "cut"], ["State"], ["Owner"], ["Queue"], ["GPUs", "n"], ["Idle for", "n"], ["Given back", "message"], ["Waiting in its queue"], ["Host"], ["Actions", "actions"]], rows, { caption: "Jobs with idle GPUs", empty: "No idle GPUs.", ...sorting(KEYS, query, turn) })),
      active.total > active.jobs.length ? h("p", { class: "soft", key: "more" }, `The list has ${active.jobs.length} of ${active.total} running jobs.`) : null,
      h("p", { class: "soft", key: "words" }, "Cards without samples are not counted. Idle GPU hours by user and queue: ", h("code", {}, "mesos-gpu report idle"))];
  },
};

function tiles(all, active, queue) {
  const tile = (name, value, says) => h("div", { class: "tile", key: name }, h("dt", {}, name), h("dd", {}, value), says ? h("dd", { class: "soft" }, says) : null);
  const sum = (some) => some.reduce((so_far, { gpus }) => so_far + gpus, 0), held = active.jobs.reduce((so_far, job) => so_far + job.gpu_ids.length, 0), ends = all.filter(({ state }) => state === "warned" || state === "notice");
  const waiting = queue?.queues.reduce((so_far, each) => so_far + each.waiting, 0) ?? null, asked = queue?.jobs.reduce((so_far, job) => so_far + job.gpus, 0);
  return section("Now", h("dl", { class: "tiles" }, tile("Idle GPUs", sum(all), `of ${held} that jobs hold; ${many(all.length, "job")}`), tile("Warned, or with notice", sum(ends), many(ends.length, "job")),
    tile("Waiting jobs", waiting ?? "–", waiting ? `the first ${queue.jobs.length} for ${many(asked, "GPU")}` : null)));
}

function row({ job, state, idle_s: idle, gpus, at }, queue) {
  const now = Date.now() / 1000, use = queue?.queues.find((each) => each.name === job.queue), own = job.idle;
  const back = own?.keep_until && own.keep_until > now ? `kept until ${clock(own.keep_until)}${own.kept_by ? ` by ${own.kept_by}` : ""}`
    : job.notice && job.notice.reason === "idle" && !job.notice.recalled_at && !job.notice.warning && job.notice.until > now ? `in ${span(job.notice.until - now)}`
      : !own || own.policy === "report" ? "no: reported only" : at ? `${own.policy === "pressure" ? "if waiting jobs need them, from " : "at "}${clock(at)}` : own.policy === "pressure" ? "if waiting jobs need them" : "";
  return Object.assign([
    link(to.job(job.id), job.name, { title: job.id }), badge(state === "idle" ? "suspect" : state, state), job.owner ?? "", link(to.queue(job.queue), job.queue), gpus, h("span", { title: `since ${clock(now - idle)}` }, span(idle)), back, use?.waiting ? many(use.waiting, "job") : "", job.hostnames.join(" "), buttons(job),
  ], { key: job.id });
}

function buttons(job) {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`, kept = job.idle?.keep_until && job.idle.keep_until * 1000 > Date.now();
  const fields = [{ name: "hours", label: "Hours from now", type: "number", min: 0.1, step: "any", value: 2, required: true }];
  const mayKeep = job.idle && knows("job:keep") && mayJob("keep", job);
  return h("span", { class: "buttons" },
    mayKeep && !kept ? action("Keep", { title: `Keep the GPUs of ${job.name}?`, text: "The job keeps its idle GPUs until then, as far as its queue allows.", fields, act: ({ hours }) => send("PUT", `${path}/keep`, { for_s: Number(hours) * 3600 }), done: `${job.id} keeps its GPUs.` }) : null,
    mayKeep && kept ? action("End keep", { title: `Keep the GPUs of ${job.name} no longer?`, act: () => send("DELETE", `${path}/keep`), done: `${job.id} no longer keeps idle GPUs.` }) : null,
    mayJob("kill", job) ? action("Return", { title: `Give the GPUs of ${job.name} back?`, text: `${job.id} ends, with all its tasks.`, danger: true, act: () => send("DELETE", path), done: `${job.id} is asked to end.` }) : null);
}
