// A job.

import { get, getKnown, mayJob, send } from "./api.js";
import { past, use } from "./charts.js";
import { action } from "./dialog.js";
import { ago, badge, clock, facts, h, link, many, mib, section, span, table, to } from "./dom.js";
import { ended, gpusOf, jobTable, killOf, plain } from "./joblist.js";
import { PAGE } from "./lists.js";
import { logs, numbered } from "./logs.js";
import { shell } from "./shell.js";

function tasksOf(array, query, turn) {
  const how = ["running", "waiting", "finished", "failed", "killed"].map((word) => [word[0].toUpperCase() + word.slice(1), array[word] || null]);
  return section("Tasks", h("p", {}, ended(array.array.array_counts), ` ${array.array.message}`), facts(how), jobTable(array.jobs, query, turn),
    array.total > array.jobs.length ? h("p", { class: "soft" }, `${array.total - array.jobs.length} more are not shown.`) : null);
}

function buttons(job) {
  const kill = killOf(job), path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const keep = job.state === "running" && mayJob("checkpoint", job) ? action("Mark work as kept", {
    title: "Is its work kept up to now?", text: "If the job starts again, what came before counts as kept.", act: () => send("POST", `${path}/checkpoint`), done: "Noted.",
  }) : null;
  return kill || keep ? h("span", { class: "buttons" }, kill, keep) : null;
}

let logKept = true; // until it is known that there is no log of changes

/** The last changes on record of something with that path. */
export async function changesOf(path) {
  const found = logKept ? await getKnown(`${path}/changes`) : null;
  logKept = found !== null;
  return found?.changes ?? [];
}

let noted = { key: null, changes: [] };

export const one = {
  title: ({ id }) => id,
  async load({ id }) {
    const path = encodeURIComponent(id);
    const [job, tasks] = await Promise.all([get(`/v1/jobs/${path}`), get(`/v1/jobs/${path}/tasks`)]);
    const key = `${job.id} ${job.version}`; // the log of changes is large: it is read when the job has changed
    const [why, changes] = await Promise.all([job.state === "pending" ? get(`/v1/why/${path}`) : null, noted.key === key ? noted.changes : changesOf(`/v1/jobs/${path}`)]);
    noted = { key, changes };
    const used = tasks.tasks.some((task) => task.gpu_ids.length) ? await past(`/v1/jobs/${path}/use`) : null;
    const array = job.array_counts ? await get(`/v1/arrays/${path}?limit=${PAGE}`) : null;
    return { job, tasks: tasks.tasks, why, changes: noted.changes, used, array };
  },
  view({ job, tasks, why, changes, used, array }, { query, turn }) {
    const reads = mayJob("output", job) || mayJob("run", job); // a queue may show what its jobs print to those who run jobs in it
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, job.name, " ", badge(job.state)), buttons(job)),
      job.message && !why && !plain(job) ? h("p", { class: "message", key: "message" }, job.message) : null,
      why ? whyOf(why) : null, about(job),
      job.use || (used && used.coarse.busy_pct.some((each) => each !== null)) ? use(used) : null,
      tasks.length && reads ? logs(job, tasks) : null,
      mayJob("exec", job) && !array ? shell(job, tasks) : null,
      array ? tasksOf(array, query, turn) : history(tasks), changed(changes),
    ];
  },
};

function about(job) {
  const queue = h("span", {}, link(to.queue(job.queue), job.queue), job.priority ? `, priority ${job.priority}` : "");
  const share = job.share ? `${job.share.compute_pct} %, ${job.share.memory_mib} MiB of each (${job.share.method}); memory ${job.share.guarantee.memory}, compute ${job.share.guarantee.compute}` : null;
  const resize = job.resize && job.resize.state !== "done" ? `${job.resize.state}: ${job.resize.compute_pct} %, ${job.resize.memory_mib} MiB${job.resize.reason ? `: ${job.resize.reason}` : ""}` : null;
  return section("About", facts([
    ["Id", job.id], ["Owner", job.owner], ["Runs as", job.runs_as], ["Queue", queue], ["App", job.app?.startsWith("/") ? link(to.app(job.app), job.app) : job.app],
    ["Exit code", job.exit_code], ["Healthy", job.healthy === null ? null : job.healthy ? "yes" : "no"],
    ["Command", job.hidden ? "hidden" : job.command ?? (job.argv ?? job.args ?? []).join(" ")], ["Image", job.image],
    ["Asks for", `${job.tasks > 1 ? `${job.tasks} tasks of ` : ""}${many(gpusOf(job) / job.tasks, "GPU")}, ${many(job.cpus, "CPU")}, ${mib(job.mem_mib)}${job.gpu_model.length ? `, ${job.gpu_model.join(" or ")}` : ""}`],
    ["Hosts", job.hostnames.length ? h("span", {}, job.hostnames.map((name) => [link(to.node(name), name), " "])) : null],
    ["Cards", job.gpu_ids.length ? h("span", {}, job.gpu_ids.map((id) => [link(to.card(id), id), " "])) : null],
    ["Uses", usesOf(job.use)], ["Share", share], ["Resize", resize], ["Submitted", `${clock(job.submitted_at)}, ${ago(job.submitted_at)} ago`],
    ["Started", job.started_at ? `${clock(job.started_at)}` : null], ["Ran", job.started_at ? span((job.ended_at ?? Date.now() / 1000) - job.started_at) : null],
    ["Ended", job.ended_at ? clock(job.ended_at) : null], ["Attempt", `${Math.min(Math.max(job.attempts + (job.ended_at ? 0 : 1), 1), job.max_attempts)} of ${job.max_attempts}; ${many(job.launches, "launch", "launches")}${job.infrastructure_failures ? `, ${job.infrastructure_failures} ended by the cluster` : ""}`],
    ["Notice", job.notice && !job.notice.recalled_at ? `${job.notice.why} (${job.notice.warning ? "as things stand, at" : "until"} ${clock(job.notice.until)})` : null],
    ["Work kept up to", job.checkpoint_at ? clock(job.checkpoint_at) : null],
  ]));
}

function usesOf(use) { // of its cards, as their hosts saw it last
  if (!use) return null;
  const says = [use.busy_pct === null ? null : `${Math.round(use.busy_pct)} % at work`, use.memory_mib === null ? null : mib(use.memory_mib), use.processes === null ? null : `${use.processes} processes`].filter(Boolean).join(", ");
  return use.idle_s > 600 ? h("span", {}, says, " ", h("span", { class: "bad" }, `idle for ${span(use.idle_s)}`)) : says;
}

function whyOf(why) {
  const estimate = why.estimate ? (why.estimate.at ? `It may start in ${span(why.estimate.at - Date.now() / 1000)}` : "When it starts is not known") + (why.summary.includes(why.estimate.basis) ? "." : `: ${why.estimate.basis}`) : null;
  const place = why.queue_position === null ? null : `Place in the queue: ${why.queue_position + 1}.`;
  const nodes = why.nodes.slice(0, 50).map((node) => h("li", { key: node.agent_id }, link(to.node(node.hostname), node.hostname), `: ${node.reasons.join("; ") || "it would fit here"}`));
  return section("Why it waits", h("p", { class: "why" }, why.summary), h("p", {}, [place, estimate].filter(Boolean).join(" ")),
    why.can_ever_run === false ? h("p", { class: "bad" }, "As things stand it can never run.") : null,
    h("details", {}, h("summary", {}, `What each of ${why.agents} nodes lacks`), h("ul", {}, why.funnel.map((stage) => h("li", {}, `${stage.reason}: ${stage.removed} out, ${stage.left} left${stage.example ? ` (${stage.example})` : ""}`))), h("ul", {}, nodes)));
}

function history(tasks) {
  const rows = numbered(tasks).reverse().map((task) => Object.assign([
    task.number, task.rank, badge(task.ended_as ?? task.state), link(to.node(task.hostname), task.hostname), task.gpu_ids.length || "", clock(task.launched_at),
    task.started_at ? span((task.ended_at ?? Date.now() / 1000) - task.started_at) : "", h("div", { class: "lines", title: task.message }, task.message),
  ], { key: task.id }));
  return section("Launches", table([["Launch", "n"], ["Rank", "n"], ["State"], ["Host"], ["GPUs", "n"], ["Launched"], ["Ran", "n"], ["Message", "message"]], rows, { caption: "Launches", empty: "It has not been launched." }));
}

/** The last changes that are on record. */
export function changed(changes) {
  if (!changes.length) return null;
  return section("Changes", table([["At"], ["Who"], ["What"], ["Detail", "message"]], changes.map((each) => [clock(each.at), each.who, each.what, each.detail]), { caption: "Changes" }));
}
