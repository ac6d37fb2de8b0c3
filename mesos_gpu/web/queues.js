// Queues: what each is due, holds and waits for.

import { get, getIf, getKnown } from "./api.js";
import { ago, h, link, many, section, span, table, to } from "./dom.js";
import { jobTable, searchBox, sortedBy, sorting } from "./jobs.js";

const KEYS = { Queue: (each) => each.path, Holds: (each) => each.held_gpus, "Is due": (each) => each.due_gpus, "Waits for": (each) => each.pending_gpus };

export const list = {
  title: () => "Queues",
  whole: true,
  async load() {
    const [queue, shares] = await Promise.all([get("/v1/queue?limit=100"), get("/v1/queue-shares")]);
    return { queue, shares: shares.shares };
  },
  view({ queue, shares }, { query, turn }) {
    const wanted = (query.get("q") ?? "").toLowerCase();
    const ordered = [...shares].sort((a, b) => (key(a) < key(b) ? -1 : 1));
    const tree = sortedBy(ordered.filter((each) => each.path.toLowerCase().includes(wanted)), KEYS, query).slice(0, 500);
    const isTree = !wanted && !query.get("sort");
    const rows = tree.map((each) => Object.assign([
      named(each.path, isTree), each.pool, bar(each.held_gpus, each.limit_gpus ?? Math.max(each.guarantee_gpus, each.held_gpus)), each.guarantee_gpus, each.limit_gpus ?? "none", each.due_gpus, each.lent_gpus || "", each.pending_gpus || "",
    ], { key: `${each.path} ${each.pool}` }));
    const plain = queue.queues.filter((each) => !shares.some((share) => share.path === each.name)).map((each) => Object.assign([
      link(to.queue(each.name), each.name), each.used_gpus, each.limit_gpus ?? "none", each.waiting,
    ], { key: each.name }));
    return [h("h2", { key: "head" }, "Queues"), h("div", { class: "filters", key: "filters" }, searchBox("Search queues", query, turn)),
      shares.length ? h("div", { key: "tree" }, table([["Queue"], ["Pool"], ["Holds", "n"], ["Guarantee", "n"], ["Limit", "n"], ["Is due", "n"], ["Lends", "n"], ["Waits for", "n"]], rows, { caption: "Queues", ...sorting(KEYS, query, turn) })) : null,
      plain.length ? h("div", { key: "plain" }, table([["Queue"], ["GPUs in use", "n"], ["Limit", "n"], ["Jobs that wait", "n"]], plain, { caption: "Queues outside of the tree" })) : null,
      shares.length || plain.length ? null : h("p", { class: "empty" }, "No queue has a limit or a job that waits."),
      section("Jobs that wait", line(queue.jobs))];
  },
};

function named(path, isTree) { // below the queue that it is part of
  const depth = isTree ? path.split("/").length - 1 : 0;
  return h("span", { class: depth ? "below" : "", vars: depth ? { "--depth": depth } : null }, link(to.queue(path), isTree ? path.split("/").at(-1) : path, { title: path }));
}

function key({ path, pool }) { // what is below a queue comes right after it
  return `${path.replaceAll("/", "\0")}\0\0${pool}`;
}

function bar(value, most) {
  return h("span", {}, `${value} `, h("meter", { min: 0, max: most || 1, value, "aria-label": `${value} of ${most}` }));
}

/** Jobs that wait, with the instances of one app that wait one behind the other as one: with `count`. */
export function grouped(jobs) {
  const groups = [];
  for (const job of jobs) {
    const last = groups.at(-1);
    if (job.app && last?.app === job.app && last.queue === job.queue) [last.count, last.gpus] = [last.count + 1, last.gpus + job.gpus];
    else groups.push({ ...job, count: 1 });
  }
  return groups;
}

/** What leads to a job that waits, or to the app of several. */
export function waits({ id, name, app, count }) {
  return count > 1 ? h("span", {}, link(to.app(app), app), h("span", { class: "soft" }, ` ${many(count, "instance")}`)) : link(to.job(id), name);
}

function line(jobs) {
  const rows = grouped(jobs).map((job) => Object.assign([
    job.position + 1, waits(job), job.owner ?? "", link(to.queue(job.queue), job.queue), job.effective_priority, job.gpus, ago(job.submitted_at),
    job.estimate.at ? `in ${span(job.estimate.at - Date.now() / 1000)}` : "not known", h("div", { class: "lines", title: job.estimate.basis }, job.reservation?.hostname ? `room is kept on ${job.reservation.hostname}` : job.estimate.basis),
  ], { key: job.id }));
  return table([["Place", "n"], ["Job"], ["Owner"], ["Queue"], ["Priority", "n"], ["GPUs", "n"], ["Waits", "n"], ["May start"], ["Because", "message"]], rows, { caption: "Jobs that wait, in their order", empty: "Nothing waits." });
}

export const one = {
  title: ({ id }) => `Queue ${id}`,
  async load({ id }) {
    const path = id.split("/").map(encodeURIComponent).join("/");
    const [why, share, jobs] = await Promise.all([
      getKnown(`/v1/queue-why/${path}`), getKnown(`/v1/queue-shares/${path}`), getIf("job:see", `/v1/jobs?order=activity&no_instances=true&fold_arrays=true&state=active&limit=1000&queue=${encodeURIComponent(id)}`),
    ]);
    return { id, why, share, jobs: jobs?.jobs ?? [] };
  },
  view({ id, why, share, jobs }, { query, turn }) {
    const parents = id.split("/").slice(0, -1).map((_, i, all) => all.slice(0, i + 1).join("/"));
    return [
      h("h2", { key: "head" }, "Queue ", parents.map((path) => [link(to.queue(path), path.split("/").at(-1)), "/"]), id.split("/").at(-1)),
      why ? section(why.waits.length ? "Why its jobs wait" : "Now", h("p", { class: "why" }, why.summary), why.waits.length ? table([["Reason"], ["Jobs", "n"], ["GPUs", "n"], ["First"], ["Words", "message"]], why.waits.map((each) => Object.assign([each.reason, each.jobs, each.gpus, link(to.job(each.first), each.first), each.words], { key: each.reason })), { caption: "What its jobs wait for" }) : null) : null,
      share ? shareOf(share) : null,
      section("Active jobs", jobTable(jobs, query, turn)),
    ];
  },
};

function shareOf(share) {
  const rows = share.steps.map((each) => Object.assign([link(to.queue(each.path), each.path), each.pool, each.guarantee_gpus, each.held_gpus, each.due_gpus, each.limit_gpus ?? "none", each.lent_gpus, each.borrowed_gpus, each.pending_gpus], { key: `${each.path} ${each.pool}` }));
  const users = share.users.map((each) => Object.assign([each.user || "nobody", each.rank, each.held_gpus, each.used_gpu_hours], { key: each.user }));
  return section("What it is due", table([["Queue"], ["Pool"], ["Guarantee", "n"], ["Holds", "n"], ["Is due", "n"], ["Limit", "n"], ["Lends", "n"], ["Borrows", "n"], ["Waits for", "n"]], rows, { caption: "Step by step" }),
    users.length ? table([["User"], ["Rank", "n"], ["Holds", "n"], ["Used, GPU hours", "n"]], users, { caption: "Its users" }) : null);
}
