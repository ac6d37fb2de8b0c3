// A queue: what it has and is due and why, who waits for what, who was stopped for whom, its budget, limits and users.

import { get, getIf, getKnown, has, send } from "./api.js";
import * as budget from "./budget.js";
import { action } from "./dialog.js";
import { ago, badge, clock, facts, h, link, many, section, span, table, to } from "./dom.js";
import { amount, changes } from "./hours.js";
import { jobTable } from "./joblist.js";
import { line } from "./line.js";
import { legend, lineage, rowsOf, useBar } from "./tree.js";

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
    const parents = lineage(id).slice(0, -1), inLine = queue.jobs.filter((job) => lineage(job.queue).includes(id));
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, "Queue ", parents.map((path) => [link(to.queue(path), path.split("/").at(-1)), "/"]), id.split("/").at(-1), spec && spec.stop !== "none" ? [" ", badge("stopped", spec.stop)] : null), buttons(id, spec)),
      spec?.stop === "hold" ? h("p", { class: "message", key: "message" }, "Nothing of it starts until it is resumed.") : spec?.stop === "drain" ? h("p", { class: "message", key: "message" }, "Nothing of it starts, and what runs is ended with notice, until it is resumed.") : null,
      share?.steps.length ? section("What it has", standing(id, share.steps), legend(), below(id, shares, queue.queues)) : null,
      why ? waits(why, inLine) : null,
      share?.steps.length ? section("Why it is due that", explained(id, share.steps)) : null,
      stopped(id, events),
      budget.budgets(id, standings, days), budget.above(id, standings),
      spec ? limits(spec) : null,
      share?.users.length ? users(share.users) : null,
      section("Active jobs", jobTable(jobs, query, turn)),
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
    spec.stop === "none" ? null : action("Resume", { title: `Serve ${id} again?`, text: "Its jobs start again.", act: () => set("none"), done: `${id} is served again.` }),
    spec.stop === "hold" ? null : action("Hold", { title: `Hold ${id}?`, text: "Nothing of it starts; what runs goes on.", act: () => set("hold"), done: `Nothing of ${id} starts.` }),
    spec.stop === "drain" ? null : action("Drain", { title: `Drain ${id}?`, text: "Nothing of it starts, and what runs is ended with notice.", danger: true, act: () => set("drain"), done: `${id} is drained.` }));
}

function standing(id, steps) {
  return h("div", {}, steps.filter(({ path }) => path === id).map((step) => h("p", { class: "standing", key: step.pool },
    steps.some(({ pool }) => pool !== step.pool) ? h("strong", {}, `Pool ${step.pool}: `) : null, useBar(step), ` holds ${many(step.held_gpus, "GPU")}, guarantee ${step.guarantee_gpus}`,
    step.over_gpus ? `, ${step.over_gpus} borrowed beyond it` : "", step.lent_gpus ? `, lends ${step.lent_gpus}` : "", `; is due ${step.due_gpus}`, step.limit_gpus === null ? "" : `, limit ${step.limit_gpus}`, step.pending_gpus ? `; waits for ${step.pending_gpus}` : "", ".")));
}

function below(id, shares, uses) {
  const rows = rowsOf(shares.filter(({ path }) => path.startsWith(`${id}/`)), uses, {}).map((row) => Object.assign([
    link(to.queue(row.path), row.path.slice(id.length + 1)), row.pool, useBar(row), row.held_gpus, row.over_gpus || "", row.lent_gpus || "", row.due_gpus, row.pending_gpus || "", row.since ? ago(row.since) : "",
  ], { key: `${row.path} ${row.pool}` }));
  return rows.length ? table([["Below it"], ["Pool"], ["Use", "use"], ["Holds", "n"], ["Borrows", "n"], ["Lends", "n"], ["Is due", "n"], ["Waits for", "n"], ["Longest wait", "n"]], rows, { caption: "Queues below it" }) : null;
}

function waits(why, inLine) {
  const kinds = why.waits.map((each) => Object.assign([each.reason, each.jobs, each.gpus, link(to.job(each.first), each.first), each.words], { key: each.reason }));
  return section(why.waits.length ? "Why its jobs wait" : "Now", h("p", { class: "why" }, why.summary),
    kinds.length ? table([["Reason"], ["Jobs", "n"], ["GPUs", "n"], ["First", "cut"], ["Words", "message"]], kinds, { caption: "What its jobs wait for" }) : null,
    why.first ? h("p", {}, link(to.job(why.first.job_id), why.first.job_id), `: ${why.first.summary}`) : null,
    inLine.length ? h("div", { class: "after" }, line(inLine)) : null);
}

function explained(id, steps) {
  const pools = [...new Set(steps.map(({ pool }) => pool))];
  return pools.map((pool) => h("div", { key: pool }, pools.length > 1 ? h("h3", {}, `Pool ${pool}`) : null, h("ol", { class: "steps" }, steps.filter((step) => step.pool === pool).map((step, i, all) => h("li", { key: step.path }, step.path === id ? h("strong", {}, step.path) : link(to.queue(step.path), step.path), `: ${stepOf(step, all[i - 1])}`)))));
}

/** A step to what a queue is due, in words. `above`: the step before; undefined: the pool itself is divided. */
export function stepOf(step, above) {
  const part = step.weights ? Math.round((100 * step.weight) / step.weights) : 0;
  return [
    `${above ? `what ${above.path} is due` : "the pool"}, ${many(step.given_gpus, "GPU")}, is divided; it gets ${step.floor_gpus} of its guarantee of ${step.guarantee_gpus}`,
    step.kept_gpus ? `; ${step.kept_gpus} more are kept idle for it` : "",
    `. ${step.rest_gpus} were left over in its turn, of which it gets ${step.borrowed_gpus}${step.weights ? ` (its weight is ${step.weight} of ${step.weights}, ${part} %)` : ""}`,
    step.borrowed_gpus < (step.rest_gpus * part) / 100 - 0.001 ? ", as it wants or may have no more" : "",
    `. So it is due ${step.due_gpus}${step.limit_gpus === null ? "" : `; its limit is ${step.limit_gpus}`}.`,
  ].join("");
}

/** Who was told to end, and what became of it: the latest first. A recall or an end says which notice it is about. */
export function stopsOf(events) {
  const all = new Map();
  for (const { kind, at, job_id: job, queue, user, notice } of events) {
    if (!notice || notice.reason === "time_limit") continue;
    const became = { end: ["ended", at], recall: ["called off", at], notice: ["told", notice.until] }[kind];
    all.set(`${job} ${notice.at}`, { job, queue, user, notice, became: became[0], at: became[1], given: notice.at });
  }
  return [...all.values()].reverse();
}

function stopped(id, events) {
  const isIn = (queue) => queue && lineage(queue).includes(id), all = stopsOf(events?.events ?? []);
  const here = all.filter((each) => isIn(each.queue)), gains = all.filter((each) => isIn(each.notice.by_queue) && !isIn(each.queue));
  if (!here.length && !gains.length) return null;
  return section("Who was stopped for whom", stopTable(here, "Jobs of it that were stopped", true), gains.length ? h("div", { class: "after" }, stopTable(gains, "Jobs of others that were stopped for it", false)) : null);
}

function stopTable(stops, caption, isHere) {
  const rows = stops.slice(0, STOPS).map(({ job, queue, user, notice, became, at, given }) => Object.assign([
    link(to.job(job), job), ...(isHere ? [] : [link(to.queue(queue), queue)]), user ?? "", became === "told" ? (at * 1000 > Date.now() ? `has notice, ${span(at - Date.now() / 1000)} left` : "its notice has passed") : `${became} ${clock(at)}`,
    notice.by ? h("span", {}, link(to.job(notice.by), notice.by), !notice.by_queue || !isHere ? null : [" of ", link(to.queue(notice.by_queue), notice.by_queue)]) : notice.reason.replace("_", " "), notice.why,
  ], { key: `${job} ${given}` }));
  return rows.length ? table([[isHere ? "Of it" : "Of others", "cut"], ...(isHere ? [] : [["Queue"]]), ["Owner"], ["What became of it"], ["For"], ["Why", "message"]], rows, { caption }) : null;
}

const FIELDS = { // of a queue's document, in words
  guarantee_gpus: "Guarantee", borrow_limit_gpus: "Borrows at most", lend_limit_gpus: "Lends at most", limit_gpus: "Limit", weight: "Weight", band: "Band", reclaim: "Whose jobs are stopped for it", fence: "Nobody outside stops its jobs, nor it theirs",
  min_runtime_s: "Runs before it may be stopped", patience: "Patience", order: "Order", notice_s: "Notice", borrow_for_s: "Borrows if it ends within", starve_after_s: "Has room kept after", pools: "Pools, the first choice first", overflow_after_s: "Goes on to the next after", idle: "Idle GPUs", default_timeout_s: "Time limit of jobs that ask for none",
  default_priority: "Priority of jobs that ask for none", max_running: "Jobs at once", max_submitted: "Jobs that wait or run", max_gpus: "GPUs at once", max_gpus_per_job: "GPUs of a job", max_timeout_s: "Longest time limit", max_priority: "Highest priority",
};
const PLAIN = { weight: 1, band: 0, fence: false };

function valueOf(name, value) {
  if (value === null || value === undefined || value === PLAIN[name] || (typeof value === "object" && !Object.keys(value).length)) return null;
  if (name === "min_runtime_s") return [`${span(value.reclaim)} for what another is owed`, value.rebalance < 1e9 ? `${span(value.rebalance)} for what is left over` : "never for what is left over"].join("; ");
  if (name.endsWith("_s")) return span(value);
  return value === true ? "yes" : amount(value);
}

function limits(spec) {
  const own = Object.entries(FIELDS).map(([name, words]) => [words, valueOf(name, spec[name])]);
  const users = Object.entries(spec.users ?? {}).map(([user, of]) => [user === "*" ? "Each other user" : `User ${user}`, Object.entries(of).filter(([, value]) => value !== null).map(([name, value]) => `${FIELDS[name]}: ${valueOf(name, value)}`).join("; ")]);
  const hours = (spec.hours ?? []).map((entry, i, each) => [each.length > 1 ? `Hours ${i + 1}` : "Hours", `${entry.days?.length && entry.days.length < 7 ? `${entry.days.join(" ")} ` : ""}${entry.from} to ${entry.to}, ${entry.zone}: ${changes(entry)}`]);
  const all = [...own, ...hours, ...users];
  return section("What its document says", all.some(([, value]) => value) ? facts(all) : h("p", { class: "empty" }, "Nothing of its own: all is as in the queue above it."));
}

function users(all) {
  const rows = all.map((each) => Object.assign([each.user || "nobody", each.rank + 1, each.shares, each.held_gpus, each.used_gpu_hours.toFixed(1)], { key: each.user }));
  return section("Its users", table([["User"], ["Place", "n"], ["Shares", "n"], ["Holds", "n"], ["Used of late, GPU hours", "n"]], rows, { caption: "Its users, who is served first at the top" }));
}
