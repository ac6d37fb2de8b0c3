// A job.

import { asked } from "./asked.js";
import { get, getIf, getKnown, has, mayJob, send } from "./api.js";
import { past, use } from "./charts.js";
import { action, read, tell } from "./dialog.js";
import { ago, badge, clock, facts, h, link, mib, section, span, table, to } from "./dom.js";
import { files } from "./files.js";
import { ended, jobTable, killOf, plain } from "./joblist.js";
import { PAGE } from "./lists.js";
import { logs, numbered } from "./logs.js";
import { shell } from "./shell.js";
import { timeline } from "./timeline.js";

function tasksOf(array, query, turn) {
  const how = ["running", "waiting", "finished", "failed", "killed"].map((word) => [word[0].toUpperCase() + word.slice(1), array[word] || null]);
  return section("Tasks", h("p", {}, ended(array.array.array_counts), ` ${array.array.message}`), facts(how), jobTable(array.jobs, query, turn),
    array.total > array.jobs.length ? h("p", { class: "soft" }, `${array.total - array.jobs.length} more are not shown.`) : null);
}

function buttons(job) {
  const kill = killOf(job), path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const keep = job.state === "running" && mayJob("checkpoint", job) ? action("Checkpoint saved", {
    title: "Has the job saved its work?", text: "If the job starts again, its work up to now counts as kept.", act: () => send("POST", `${path}/checkpoint`), done: `A checkpoint of ${job.id} is noted.`,
  }) : null;
  const again = job.hidden || job.app?.startsWith("/") ? [] : [
    has("job:run") ? link(`#/submit?again=${encodeURIComponent(job.id)}`, "Run again", { class: "button" }) : null,
    h("button", { type: "button", onclick: () => asCommand(path) }, "As a command"),
  ];
  return kill || keep || again.length ? h("span", { class: "buttons" }, again, keep, kill) : null;
}

/** Show the command line that submits a job again. */
async function asCommand(path) {
  try {
    const { command, left_out } = await get(`${path}/command`);
    const lacks = Object.entries(left_out).map(([field, why]) => h("li", {}, h("code", {}, field), `: ${why}`));
    const env = command.includes('?}"') ? h("p", { class: "soft" }, "The line takes values of the environment from variables of your shell.") : null;
    read("As a command", command, lacks.length ? [h("p", {}, "Not in the line:"), h("ul", { class: "notes" }, lacks)] : null, env);
  } catch (error) {
    if (!error.refused && !error.unreached) throw error;
    tell(error.message, true);
  }
}

let logKept = true; // until it is known that there is no log of changes

/** The last changes on record of something with that path. */
export async function changesOf(path) {
  const found = logKept ? await getKnown(`${path}/changes`) : null;
  logKept = found !== null;
  return found?.changes ?? [];
}

let noted = { key: null, happened: null };

/** What befell a job: its events, and its changes on record. */
async function happenedTo(job, path) {
  const query = new URLSearchParams({ job: job.id, limit: 200, newest: true });
  const [{ events }, changes] = await Promise.all([get(`/v1/events?${query}`), changesOf(`/v1/jobs/${path}`)]);
  return { events: events.filter((event) => event.job_id === job.id), changes };
}

const cards = new Map(); // by UUID: {hostname, index}, or null of a card that is not there any more
const MAX_HOSTS = 16; // of one request

/** Learn the hosts and the numbers of a job's cards, which never change while it holds them. */
async function learnCards(job) {
  if (job.gpu_ids.every((id) => cards.has(id))) return;
  for (let at = 0; at < job.hostnames.length; at += MAX_HOSTS) {
    const query = new URLSearchParams(job.hostnames.slice(at, at + MAX_HOSTS).map((name) => ["node", name]));
    for (const { uuid, hostname, index } of (await getIf("gpu:see", `/v1/gpus?${query}`))?.gpus ?? []) cards.set(uuid, { hostname, index });
  }
  for (const id of job.gpu_ids) if (!cards.has(id)) cards.set(id, null);
}

export const one = {
  title: ({ id }) => id,
  async load({ id }) {
    const path = encodeURIComponent(id);
    const [job, tasks] = await Promise.all([get(`/v1/jobs/${path}`), get(`/v1/jobs/${path}/tasks`)]);
    const key = `${job.id} ${job.version}`; // the log of changes is large: it is read when the job has changed
    const [why, happened] = await Promise.all([job.state === "pending" ? get(`/v1/why/${path}`) : null, noted.key === key ? noted.happened : happenedTo(job, path), learnCards(job)]);
    noted = { key, happened };
    const used = tasks.tasks.some((task) => task.gpu_ids.length) ? await past(`/v1/jobs/${path}/use`) : null;
    const array = job.array_counts ? await get(`/v1/arrays/${path}?limit=${PAGE}`) : null;
    return { job, tasks: tasks.tasks, why, happened, used, array };
  },
  view({ job, tasks, why, happened, used, array }, { query, turn }) {
    const reads = mayJob("output", job) || mayJob("run", job); // a queue may show what its jobs print to those who run jobs in it
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, job.name, " ", badge(job.state)), buttons(job)),
      job.message && !why && !plain(job) ? h("p", { class: "message", key: "message" }, job.message) : null,
      why ? whyOf(why) : null, about(job, tasks, happened.events), asked(job),
      job.use || (used && used.coarse.busy_pct.some((each) => each !== null)) ? use(used) : null,
      tasks.length && reads ? logs(job, tasks) : null,
      tasks.length && mayJob("exec", job) && !array ? files(job, tasks) : null,
      mayJob("exec", job) && !array ? shell(job, tasks) : null,
      array ? tasksOf(array, query, turn) : history(tasks), timeline(job, tasks, happened),
    ];
  },
};

function about(job, tasks, events) {
  const queue = h("span", {}, link(to.queue(job.queue), job.queue), job.priority ? `, priority ${job.priority}` : "");
  const share = job.share ? `${job.share.compute_pct} %, ${job.share.memory_mib} MiB of each (${job.share.method}); memory ${job.share.guarantee.memory}, compute ${job.share.guarantee.compute}` : null;
  const resize = job.resize && job.resize.state !== "done" ? `${job.resize.state}: ${job.resize.compute_pct} %, ${job.resize.memory_mib} MiB${job.resize.reason ? `: ${job.resize.reason}` : ""}` : null;
  return section("About", facts([
    ["Id", job.id], ["Owner", job.owner], ["Runs as", job.runs_as], ["Queue", queue], ["App", job.app?.startsWith("/") ? link(to.app(job.app), job.app) : job.app],
    ["Exit code", job.exit_code], ["Healthy", job.healthy === null ? null : job.healthy ? "yes" : "no"],
    ["Hosts", job.hostnames.length ? h("span", {}, job.hostnames.map((name) => [link(to.node(name), name), " "])) : null],
    ["GPUs", job.gpu_ids.length ? gpusHeld(job) : null],
    ["Uses", usesOf(job.use)], ["Share", share], ["Resize", resize], ["Submitted", `${clock(job.submitted_at)}, ${ago(job.submitted_at)} ago`],
    ["Started", job.started_at ? `${clock(job.started_at)}` : null], ["Ran", job.started_at ? span((job.ended_at ?? Date.now() / 1000) - job.started_at) : null],
    ["Ended", job.ended_at ? clock(job.ended_at) : null], ["Attempt", attempt(job, tasks, events)],
    ["Notice", job.notice && !job.notice.recalled_at ? `${job.notice.why} (${job.notice.warning ? "as things stand, at" : "until"} ${clock(job.notice.until)})` : null],
    ["Ends by", job.coming_end ? `${clock(job.coming_end.at)}: ${job.coming_end.why}; ${job.coming_end.then}` : null],
    ["Last checkpoint", job.checkpoint_at ? clock(job.checkpoint_at) : null],
  ]));
}

/** Cards as HOST:NUMBERS, each number a link; a card without a known number by its UUID. */
function gpusHeld(job) {
  const hosts = Map.groupBy(job.gpu_ids, (id) => (cards.get(id)?.index ?? null) === null ? "" : cards.get(id).hostname);
  return h("span", {}, [...hosts].map(([host, ids]) => [
    host ? `${host}:` : "", ids.map((id, i) => [i ? (host ? "," : " ") : "", link(to.card(id), host ? String(cards.get(id).index) : id, { title: id })]), " ",
  ]));
}

/** The attempt that a job is at, and how often it was started again without using one. */
function attempt(job, tasks, events) {
  const number = Math.min(Math.max(job.attempts + (job.ended_at ? 0 : 1), 1), job.max_attempts), again = job.launches - number;
  if (again < 1) return `${number} of ${job.max_attempts}`;
  const last = tasks.filter((task) => task.ended_at !== null && !job.task_ids.includes(task.id)).at(-1);
  const why = events.findLast((event) => event.kind === "requeued")?.message || last?.ended_as || last?.message;
  return `${number} of ${job.max_attempts}, restarted ${again === 1 ? "once" : `${again} times`}${why ? ` (${why})` : ""}`;
}

function usesOf(use) { // of its cards, as their hosts saw it last
  if (!use) return null;
  const says = [use.busy_pct === null ? null : `utilization ${Math.round(use.busy_pct)} %`, use.memory_mib === null ? null : mib(use.memory_mib), use.processes === null ? null : `${use.processes} processes`].filter(Boolean).join(", ");
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
  return section("Launches", table([["Launch", "n"], ["Rank", "n"], ["State"], ["Host"], ["GPUs", "n"], ["Launched"], ["Ran", "n"], ["Message", "message"]], rows, { caption: "Launches", empty: "Not launched yet." }));
}

/** The last changes that are on record. */
export function changed(changes) {
  if (!changes.length) return null;
  return section("Changes", table([["At"], ["Who"], ["What"], ["Detail", "message"]], changes.map((each) => [clock(each.at), each.who, each.what, each.detail]), { caption: "Changes" }));
}
