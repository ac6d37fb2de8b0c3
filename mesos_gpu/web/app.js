"use strict";
// The page of one scheduler: reads /v1 every two seconds. All text goes in by textContent, never as HTML.

const $ = (id) => document.getElementById(id);
const ENDED = new Set(["finished", "failed", "killed"]);
let filter = "all";

function make(tag, className, text, title) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  if (title) element.title = title;
  return element;
}

async function api(path, options) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ? body.error.message : response.statusText);
  return body;
}

function span(seconds) {
  if (seconds === null || !isFinite(seconds)) return "";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function showStatus(status) {
  const line = $("status");
  line.className = status.connected ? "" : "bad";
  line.replaceChildren(
    status.connected ? "connected to " : "not connected to ",
    Object.assign(make("a", "", "the Mesos master"), { href: status.master_url }),
    ` · ${status.gpus_used} of ${status.gpus_total} GPUs in use` +
      (status.gpus_sick ? ` · ${status.gpus_sick} not healthy` : "") +
      ` · ${status.nodes} nodes · version ${status.version}`,
  );
}

function gpuBox(gpu) {
  const sick = gpu.health !== "ok";
  const kind = sick ? "sick" : gpu.task_id ? "used" : "free";
  const lines = [gpu.uuid, `${gpu.model}, ${gpu.memory_mib} MiB, minor ${gpu.minor}`, `health: ${gpu.health} ${gpu.reason}`];
  lines.push(gpu.job_id ? `held by ${gpu.job_id}` : "free");
  return make("i", `gpu ${kind}`, gpu.minor, lines.join("\n"));
}

function showNodes(nodes, gpus) {
  $("nodes").replaceChildren(...nodes.map((node) => {
    const card = make("div", `node ${node.state}`);
    const head = make("h3", "", node.hostname);
    head.append(make("span", "", node.gpus_total ? `${node.gpus_used} / ${node.gpus_total}` : "no GPUs"));
    const own = gpus.filter((gpu) => gpu.agent_id === node.agent_id);
    const models = [...new Set(own.map((gpu) => gpu.model))].join(", ");
    const about = [node.state, models, node.driver_version && `driver ${node.driver_version}`].filter(Boolean).join(" · ");
    const boxes = make("div", "gpus");
    boxes.append(...own.map(gpuBox));
    card.append(head, make("p", "", about, `agent ${node.agent_id}`), boxes);
    return card;
  }));
}

function showDetails(title, text) {
  const dialog = $("details");
  dialog.querySelector("h3").textContent = title;
  dialog.querySelector("pre").textContent = text;
  dialog.showModal();
}

async function showWhy(job) {
  const why = await api(`/v1/why/${encodeURIComponent(job.id)}`);
  const nodes = why.nodes.map((node) => `${node.hostname}: ${node.reasons.join("; ") || "it would fit here"}`);
  const place = why.queue_position === null ? [] : [`place in the queue: ${why.queue_position + 1}`];
  showDetails(job.id, [why.summary, ...place, "", ...nodes].join("\n"));
}

async function showLogs(job) {
  const parts = [];
  for (const stream of ["stdout", "stderr"]) {
    const chunk = await api(`/v1/jobs/${encodeURIComponent(job.id)}/logs?stream=${stream}&offset=-16384&length=16384`);
    parts.push(`--- ${stream}\n${chunk.data}`);
  }
  showDetails(job.id, parts.join("\n"));
}

async function kill(job) {
  if (confirm(`Kill ${job.id}?`)) {
    await api(`/v1/jobs/${encodeURIComponent(job.id)}`, { method: "DELETE" });
    await refresh();
  }
}

function action(label, act, job) {
  const button = make("button", "", label);
  button.type = "button";
  button.addEventListener("click", () => act(job).catch((error) => showDetails(job.id, String(error))));
  return button;
}

function jobRow(job, now) {
  const row = make("tr");
  const ran = job.started_at === null ? null : (job.ended_at ?? now) - job.started_at;
  const buttons = make("td");
  if (job.state === "pending") buttons.append(action("why", showWhy, job), " ");
  if (job.launches) buttons.append(action("logs", showLogs, job), " ");
  if (!ENDED.has(job.state)) buttons.append(action("kill", kill, job));
  row.append(
    make("td", "", job.id, job.command || (job.argv || []).join(" ")),
    make("td", `state ${job.state}`, job.state + (job.exit_code ? ` (${job.exit_code})` : "")),
    make("td", "n", job.gpus, job.gpu_ids.join("\n")),
    make("td", "", job.hostname),
    make("td", "n", span(now - job.submitted_at)),
    make("td", "n", span(ran)),
    make("td", "message", job.message),
    buttons,
  );
  return row;
}

function showJobs(jobs) {
  const now = Date.now() / 1000;
  $("jobs").replaceChildren(...jobs.map((job) => jobRow(job, now)));
  $("empty").hidden = jobs.length > 0;
}

async function refresh() {
  const state = filter === "all" ? "" : `&state=${filter}`;
  try {
    const [status, nodes, gpus, jobs] = await Promise.all(
      ["/v1/status", "/v1/nodes", "/v1/gpus", `/v1/jobs?limit=200${state}`].map((path) => api(path)),
    );
    showStatus(status);
    showNodes(nodes.nodes, gpus.gpus);
    showJobs(jobs.jobs);
  } catch (error) {
    $("status").className = "bad";
    $("status").textContent = `the scheduler does not answer: ${error.message}`;
  }
}

for (const button of document.querySelectorAll("[data-filter]")) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter;
    for (const other of document.querySelectorAll("[data-filter]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    refresh();
  });
}

async function loop() {
  await refresh();
  setTimeout(loop, 2000);
}
loop();
