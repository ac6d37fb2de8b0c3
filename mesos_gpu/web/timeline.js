// What befell a job, in the order of time: its launches, events, and changes on record.

import { clock, h, link, many, section, span, table, to } from "./dom.js";
import { numbered } from "./logs.js";

const MAX_ROWS = 100;
const ENDS = new Set(["finished", "failed", "killed"]);
const EVENTS = {
  notice: "Notice of the end", recall: "Notice called off", end: "Ended after its notice", idle_warning: "Warning: idle GPUs", idle_over: "No longer idle",
  kept: "Kept in spite of idle GPUs", keep_ended: "Kept no longer", checkpoint: "Checkpoint saved", started: "Started", requeued: "Queued again", unreachable: "Node unreachable",
  finished: "Finished", failed: "Failed", killed: "Killed",
};
const CLOSED = "CLOSE /v1/channels/{id}";
const CHANGES = {
  "DELETE /v1/jobs/{id}": "Kill requested", "POST /v1/jobs/{id}/checkpoint": "Checkpoint reported", "PATCH /v1/jobs/{id}": "Resize requested",
  "DELETE /v1/jobs/{id}/resize": "Resize withdrawn", "PUT /v1/jobs/{id}/keep": "Keep requested", "DELETE /v1/jobs/{id}/keep": "Keep withdrawn",
  "POST /v1/jobs/{id}/exec": "Command or terminal opened", "POST /v1/jobs/{id}/files": "Files listed or copied", "POST /v1/jobs/{id}/forward": "Port forwarded",
  [CLOSED]: "Connection closed",
};

/** A section with what befell a job. `happened`: its events and its changes. */
export function timeline(job, tasks, { events, changes }) {
  const kinds = new Set(events.map((event) => event.kind)), submitted = changes.find((change) => change.what === "POST /v1/jobs");
  const opens = changes.some((change) => /\/(exec|forward)$/.test(change.what)); // connections for files alone end unseen
  const rows = [
    { at: job.submitted_at, what: `Submitted${by(job.owner ?? submitted?.who)}`, detail: job.queue === "default" ? "" : `to queue ${job.queue}` },
    ...launches(tasks, kinds.has("started")),
    ...events.filter((event) => event.kind !== "submitted").map((event) => ({ at: event.at, what: EVENTS[event.kind] ?? event.kind.replaceAll("_", " "), detail: event.message === "running" ? "" : event.message })),
    ...changes.filter((change) => change !== submitted && (opens || change.what !== CLOSED)).map((change) => ({ at: change.at, what: `${CHANGES[change.what] ?? change.what}${by(change.who)}`, detail: detailOf(change) })),
  ];
  if (job.ended_at !== null && ![...ENDS].some((kind) => kinds.has(kind))) rows.push({ at: job.ended_at, what: EVENTS[job.state], detail: job.message });
  rows.sort((one, other) => one.at - other.at);
  const shown = rows.slice(-MAX_ROWS).map(({ at, what, detail }) => [clock(at), what, detail ?? ""]);
  return section("Timeline", table([["At"], ["What"], ["Detail", "message"]], shown, { caption: "Timeline" }),
    rows.length > MAX_ROWS ? h("p", { class: "soft" }, `${many(rows.length - MAX_ROWS, "earlier row")}: mesos-gpu events --job ${job.id}`) : null);
}

function by(who) {
  return who && who !== "anybody" ? ` by ${who}` : "";
}

function launches(tasks, isTold) {
  const rounds = [...Map.groupBy(numbered(tasks), (task) => task.number)];
  return rounds.flatMap(([number, ranks]) => {
    const hosts = [...new Set(ranks.map((task) => task.hostname))], gpus = ranks.reduce((sum, task) => sum + task.gpu_ids.length, 0);
    const on = h("span", {}, "on ", hosts.map((host, i) => [i ? ", " : "", link(to.node(host), host)]), gpus ? ` with ${many(gpus, "GPU")}` : "");
    const started = Math.max(...ranks.map((task) => task.started_at ?? 0)), row = { at: Math.min(...ranks.map((task) => task.launched_at)), what: `Launch ${number}`, detail: on };
    return isTold || !started ? [row] : [row, { at: started, what: "Started", detail: `launch ${number}` }];
  });
}

function detailOf(change) { // of the end of a connection: "exit=0 seconds=0.8 sent=28 received=0"
  const found = change.detail?.match(/^exit=(\w+) seconds=([\d.]+)/);
  return found ? `after ${span(Number(found[2]))}${found[1] === "none" ? "" : `, exit code ${found[1]}`}` : change.detail;
}
