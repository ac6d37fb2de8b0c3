// A queue: what it has and is due and why, who waits for what, who was stopped for whom, its budget, limits and users.

import { get, getIf, getKnown, has, send } from "./api.js";
import * as budget from "./budget.js";
import { action } from "./dialog.js";
import { ago, badge, clock, facts, h, link, many, section, span, table, to } from "./dom.js";
import { amount, changes } from "./hours.js";
import { COUNTED, jobTable, reasonsOf } from "./joblist.js";
import { line } from "./line.js";
import { hasQuotas, legend, lineage, rowsOf, useBar } from "./tree.js";

const ANEW_MS = 10000; // what has happened is many thousands of things
const LINE = 100; // of the jobs of all queues that wait
const STOPS = 30; // rows
let happened = { at: 0, value: null };

export const one = {
  title: ({ id }) => `Queue ${id}`,
  async load({ id, fresh }) {
    const path = id.split("/").map(encodeURIComponent).join("/");
    const [why, share, spec, { shares }, queue, jobs, standings, events] = await Promise.all([
      getKnown(`/v1/queue-why/${path}`), getKnown(`/v1/queue-shares/${path}`), getKnown(`/v1/queues/${path}`), get("/v1/queue-shares"), get(`/v1/queue?limit=${LINE}`),
      getIf("job:see", `/v1/jobs?order=activity&no_instances=true&fold_arrays=true&state=active&limit=1000&queue=${encodeURIComponent(id)}`), getIf("job:see", "/v1/budgets"), stops(fresh),
    ]);
    const own = standings?.budgets.find((each) => each.queue === id && each.user === null);
    return { id, why, share, spec, shares, queue, jobs: jobs?.jobs ?? [], standings: standings?.budgets ?? [], days: own ? await budget.course(id, own) : null, events };
  },
  view({ id, why, share, spec, shares, queue, jobs, standings, days, events }, { query, turn }) {
    const parents = lineage(id).slice(0, -1), inLine = queue.jobs.filter((job) => lineage(job.queue).includes(id)), quotas = hasQuotas(shares), use = queue.queues.find((each) => each.name === id);
    const waiting = queue.queues.filter((each) => lineage(each.name).includes(id)).reduce((sum, each) => sum + each.waiting, 0);
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, "Queue ", parents.map((path) => [link(to.queue(path), path.split("/").at(-1)), "/"]), id.split("/").at(-1), spec && spec.stop !== "none" ? [" ", badge("stopped", spec.stop)] : null), buttons(id, spec)),
      spec?.stop === "hold" ? h("p", { class: "message", key: "message" }, "No job of this queue starts until it is resumed.") : spec?.stop === "drain" ? h("p", { class: "message", key: "message" }, "No job of this queue starts until it is resumed, and running jobs are ended with notice.") : null,
      !share && use ? section("GPUs", h("p", { class: "standing" }, `${many(use.used_gpus, "GPU")} allocated, ${use.limit_gpus === null ? "no limit" : `limit ${use.limit_gpus}`}.`)) : null,
      share?.steps.length ? section("GPUs", standing(id, share.steps, quotas), legend(quotas), below(id, shares, queue.queues, quotas)) : null,
      why ? waits(why, inLine) : null,
      share?.steps.length && quotas ? section("How its fair share follows", explained(id, share.steps)) : null,
      stopped(id, events),
      budget.budgets(id, standings, days), budget.above(id, standings),
      spec ? limits(spec) : null,
      share?.users.length ? users(share.users) : null,
      section("Active jobs", jobTable(jobs, query, turn, { reasons: reasonsOf(queue.jobs), empty: ["No active jobs. Run one here: ", h("code", {}, `mesos-gpu run --queue ${id} --gpus 1 -- nvidia-smi`)] }),
        h("p", { class: "soft" }, `${many(waiting, "waiting job")} in this queue. ${COUNTED} An array is one row; instances of apps are hidden.`)),
    ];
  },
};

async function stops(fresh) {
  if (!has("job:see")) return null;
  if (!fresh && Date.now() - happened.at < ANEW_MS) return happened.value;
  happened = { at: Date.now(), value: await get("/v1/events?kind=notice&kind=recall&kind=end&newest=true&limit=1000") };
  return happened.value;
}

function buttons(id, spec) {
  if (!spec || !has("queue:write")) return null;
  const set = (stop) => send("PATCH", `/v1/queues/${id.split("/").map(encodeURIComponent).join("/")}`, { stop, version: spec.version });
  return h("span", { class: "buttons" },
    spec.stop === "none" ? null : action("Resume", { title: `Resume ${id}?`, text: "Its jobs start again.", act: () => set("none"), done: `${id} is resumed.` }),
    spec.stop === "hold" ? null : action("Hold", { title: `Hold ${id}?`, text: "No job of this queue starts; running jobs go on.", act: () => set("hold"), done: `${id} is held.` }),
    spec.stop === "drain" ? null : action("Drain", { title: `Drain ${id}?`, text: "No job of this queue starts, and running jobs are ended with notice.", danger: true, act: () => set("drain"), done: `${id} is drained.` }));
}

function standing(id, steps, quotas) {
  return h("div", {}, steps.filter(({ path }) => path === id).map((step) => h("p", { class: "standing", key: step.pool },
    steps.some(({ pool }) => pool !== step.pool) ? h("strong", {}, `Pool ${step.pool}: `) : null, useBar(step, quotas), ` ${many(step.held_gpus, "GPU")} allocated`,
    quotas ? [`, quota ${step.guarantee_gpus}`, step.over_gpus ? `, ${step.over_gpus} over quota` : "", step.lent_gpus ? `, ${step.lent_gpus} lent` : "", `; fair share ${step.due_gpus}`] : "",
    step.limit_gpus === null ? "" : `, limit ${step.limit_gpus}`, step.pending_gpus ? `; ${step.pending_gpus} requested by waiting jobs` : "", ".")));
}

function below(id, shares, uses, quotas) {
  const ofQuotas = (cells) => (quotas ? cells : []);
  const rows = rowsOf(shares.filter(({ path }) => path.startsWith(`${id}/`)), uses, {}).map((row) => Object.assign([
    link(to.queue(row.path), row.path.slice(id.length + 1)), row.pool, useBar(row, quotas), row.held_gpus, ...ofQuotas([row.over_gpus || "", row.lent_gpus || "", row.due_gpus]), row.pending_gpus || "", row.since ? ago(row.since) : "",
  ], { key: `${row.path} ${row.pool}` }));
  return rows.length ? table([["Below it"], ["Pool"], ["Use", "use"], ["Allocated", "n"], ...ofQuotas([["Over quota", "n"], ["Lent", "n"], ["Fair share", "n"]]), ["Requested", "n"], ["Longest wait", "n"]], rows, { caption: "Queues below it" }) : null;
}

function waits(why, inLine) {
  const kinds = why.waits.map((each) => Object.assign([each.reason, each.jobs, each.gpus, link(to.job(each.first), each.first), each.words], { key: each.reason }));
  return section("Waiting jobs", h("p", { class: "why" }, why.summary),
    kinds.length ? table([["Reason"], ["Jobs", "n"], ["GPUs", "n"], ["First job", "cut"], ["Details", "message"]], kinds, { caption: "Reasons of waiting jobs" }) : null,
    why.first ? h("p", {}, link(to.job(why.first.job_id), why.first.job_id), `: ${why.first.summary}`) : null,
    inLine.length ? h("div", { class: "after" }, line(inLine)) : null);
}

function explained(id, steps) {
  const pools = [...new Set(steps.map(({ pool }) => pool))];
  return pools.map((pool) => h("div", { key: pool }, pools.length > 1 ? h("h3", {}, `Pool ${pool}`) : null, h("ol", { class: "steps" }, steps.filter((step) => step.pool === pool).map((step, i, all) => h("li", { key: step.path }, step.path === id ? h("strong", {}, step.path) : link(to.queue(step.path), step.path), `: ${stepOf(step, all[i - 1])}`)))));
}

/** A step to the fair share of a queue, in words. `above`: the step before; undefined: the pool itself is divided. */
export function stepOf(step, above) {
  const part = step.weights ? Math.round((100 * step.weight) / step.weights) : 0;
  return [
    `${above ? `the fair share of ${above.path}` : "the pool"}, ${many(step.given_gpus, "GPU")}, is divided. The queue gets ${step.floor_gpus} of its quota of ${step.guarantee_gpus}`,
    step.kept_gpus ? `; ${step.kept_gpus} more are reserved for it` : "",
    ` and ${step.borrowed_gpus} of the ${step.rest_gpus} GPUs that are left over${step.weights ? ` (weight ${step.weight} of ${step.weights}, ${part} %)` : ""}`,
    step.borrowed_gpus < (step.rest_gpus * part) / 100 - 0.001 ? ", as its jobs ask for no more, or may have no more" : "",
    `. Its fair share is ${step.due_gpus}${step.limit_gpus === null ? "" : `; its limit is ${step.limit_gpus}`}.`,
  ].join("");
}

/** Preemptions and other notices with their outcome, the latest first. A recall or an end names the notice that it is about. */
export function stopsOf(events) {
  const all = new Map();
  for (const { kind, at, job_id: job, queue, user, notice } of events) {
    if (!notice || notice.reason === "time_limit") continue;
    const became = { end: ["ended", at], recall: ["recalled", at], notice: ["noticed", notice.until] }[kind];
    all.set(`${job} ${notice.at}`, { job, queue, user, notice, became: became[0], at: became[1], given: notice.at });
  }
  return [...all.values()].reverse();
}

function stopped(id, events) {
  const isIn = (queue) => queue && lineage(queue).includes(id), all = stopsOf(events?.events ?? []);
  const here = all.filter((each) => isIn(each.queue)), gains = all.filter((each) => isIn(each.notice.by_queue) && !isIn(each.queue));
  if (!here.length && !gains.length) return null;
  return section("Preemptions", stopTable(here, "Preempted jobs of this queue", true), gains.length ? h("div", { class: "after" }, stopTable(gains, "Jobs of other queues that were preempted for this queue", false)) : null);
}

function stopTable(stops, caption, isHere) {
  const rows = stops.slice(0, STOPS).map(({ job, queue, user, notice, became, at, given }) => Object.assign([
    link(to.job(job), job), ...(isHere ? [] : [link(to.queue(queue), queue)]), user ?? "", became === "noticed" ? (at * 1000 > Date.now() ? `notice, ${span(at - Date.now() / 1000)} left` : "notice has passed") : `${became} ${clock(at)}`,
    notice.by ? h("span", {}, link(to.job(notice.by), notice.by), !notice.by_queue || !isHere ? null : [" of ", link(to.queue(notice.by_queue), notice.by_queue)]) : notice.reason.replace("_", " "), notice.why,
  ], { key: `${job} ${given}` }));
  return rows.length ? table([["Preempted job", "cut"], ...(isHere ? [] : [["Queue"]]), ["Owner"], ["Outcome"], ["For"], ["Reason", "message"]], rows, { caption }) : null;
}

const FIELDS = { // of a queue's document, in words
  guarantee_gpus: "Quota", borrow_limit_gpus: "Over quota at most", lend_limit_gpus: "Lent quota at most", limit_gpus: "Limit", weight: "Weight", band: "Band", reclaim: "Preempts jobs of", fence: "No preemption from or to outside",
  min_runtime_s: "Run time before preemption", patience: "Patience", order: "Order", notice_s: "Notice", borrow_for_s: "Over quota only for jobs that end within", starve_after_s: "Reservation after a wait of", pools: "Pools, the first choice first", overflow_after_s: "Goes on to the next after", idle: "Idle GPUs", default_timeout_s: "Default time limit of jobs",
  default_priority: "Default priority of jobs", max_running: "Running jobs at most", max_submitted: "Waiting and running jobs at most", max_gpus: "GPUs at once", max_gpus_per_job: "GPUs of a job", max_timeout_s: "Longest time limit", max_priority: "Highest priority",
};
const PLAIN = { weight: 1, band: 0, fence: false };

function valueOf(name, value) {
  if (value === null || value === undefined || value === PLAIN[name] || (typeof value === "object" && !Object.keys(value).length)) return null;
  if (name === "min_runtime_s") return [`${span(value.reclaim)} for the quota of another queue`, value.rebalance < 1e9 ? `${span(value.rebalance)} for fair shares over quota` : "no preemption for fair shares over quota"].join("; ");
  if (name.endsWith("_s")) return span(value);
  return value === true ? "yes" : amount(value);
}

function limits(spec) {
  const own = Object.entries(FIELDS).map(([name, words]) => [words, valueOf(name, spec[name])]);
  const users = Object.entries(spec.users ?? {}).map(([user, of]) => [user === "*" ? "Each other user" : `User ${user}`, Object.entries(of).filter(([, value]) => value !== null).map(([name, value]) => `${FIELDS[name]}: ${valueOf(name, value)}`).join("; ")]);
  const hours = (spec.hours ?? []).map((entry, i, each) => [each.length > 1 ? `Hours ${i + 1}` : "Hours", `${entry.days?.length && entry.days.length < 7 ? `${entry.days.join(" ")} ` : ""}${entry.from} to ${entry.to}, ${entry.zone}: ${changes(entry)}`]);
  const all = [...own, ...hours, ...users];
  return section("Settings", all.some(([, value]) => value) ? facts(all) : h("p", { class: "empty" }, "No settings of its own: those of the queue above it hold."));
}

function users(all) {
  const rows = all.map((each) => Object.assign([each.user || "nobody", each.rank + 1, each.shares, each.held_gpus, each.used_gpu_hours.toFixed(1)], { key: each.user }));
  return section("Users", table([["User"], ["Place", "n"], ["Shares", "n"], ["Allocated GPUs", "n"], ["Recent use, GPU hours", "n"]], rows, { caption: "Users, the next one to be served at the top" }));
}
