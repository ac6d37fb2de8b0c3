"use strict";
// The page of one scheduler: reads /v1 and /v2 every two seconds. All text goes in by textContent, never as HTML.

const $ = (id) => document.getElementById(id);
const ENDED = new Set(["finished", "failed", "killed"]);
const rows = new Map(); // job id to {version, row}: a row that is made anew loses a click on its button
let filter = "all";
let csrf = null, who = null; // who: looks; null: it is not known yet
let statusShown = "";
let appsShown = 0, rounds = 0, pause_ms = 2000;
let nodesShown = "", most = 200, answeredAt = 0; // answeredAt: milliseconds since the epoch of the latest whole answer
const LIMIT_MS = 8000, OLD_MS = 10000; // an answer must have come by then; what is shown counts as old after

function make(tag, className, text, title) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  if (title) element.title = title;
  return element;
}

async function api(path, options) {
  const headers = { "X-Requested-With": "mesos_gpu" };
  if (csrf) headers["X-CSRF-Token"] = csrf; // no page of another origin knows it
  const response = await fetch(path, { signal: AbortSignal.timeout(LIMIT_MS), headers, ...options });
  const body = await response.json();
  if (response.status === 401) location.assign("login");
  if (!response.ok) throw Object.assign(new Error([body.error?.message ?? response.statusText, body.error?.remedy].filter(Boolean).join("; ")), { refused: true });
  return body;
}

function clock(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString();
}

function since(seconds) {
  const moment = new Date(seconds * 1000), today = moment.toDateString() === new Date().toDateString();
  return `since ${today ? moment.toLocaleTimeString() : moment.toLocaleString()}`;
}

function showAge() { // once a second, whether answers come or not
  const old = Date.now() - answeredAt > OLD_MS;
  if (!answeredAt) return;
  $("as-of").textContent = old ? `old: as of ${clock(answeredAt)}, ${span((Date.now() - answeredAt) / 1000)} ago` : `as of ${clock(answeredAt)}`;
  document.body.classList.toggle("old", old);
}

function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function showStatus(status) {
  const key = JSON.stringify(status);
  if (key === statusShown) return; // a screen reader says it at each change
  statusShown = key;
  const line = $("status");
  line.className = status.connected ? "" : "bad";
  line.replaceChildren(
    status.connected ? "connected to " : "not connected to ",
    Object.assign(make("a", "", "the Mesos master"), { href: status.master_url }),
    ` · ${status.gpus_used} of ${status.gpus_total} GPUs in use` +
      (status.gpus_sick ? ` · ${status.gpus_sick} not healthy` : "") +
      (status.gpus_drained ? ` · ${status.gpus_drained} drained` : "") +
      ` · ${status.nodes} nodes · framework ${status.framework_id ?? "not registered yet"} · version ${status.version}`,
  );
  const wrong = [
    status.open_to_all && "Whoever reaches this page over the network can do everything: there is no authentication.",
    status.tls?.problem,
  ].filter(Boolean);
  $("open-to-all").hidden = !wrong.length;
  $("open-to-all").textContent = wrong.join(" ");
  const off = status.isolation_off, open = status.control_ports_off;
  $("isolation").hidden = !off.length && !open.length;
  $("isolation").textContent = [
    off.length && `Isolation is OFF on ${off.join(", ")}: tasks there can use every GPU of the host.`,
    open.length && `The control ports are OPEN to tasks on ${open.join(", ")}: tasks there can command the cluster.`,
  ].filter(Boolean).join(" ");
}

function standing(gpu) {
  const from = gpu.since ? ` ${since(gpu.since)}` : "";
  const says = gpu.drain && gpu.node_health !== "ok" ? ` (its node says ${gpu.node_health}: ${gpu.node_reason})` : "";
  const limit = gpu.drain?.deadline_at ? `; jobs are ended at ${new Date(gpu.drain.deadline_at * 1000).toLocaleString()}` : "";
  return `${gpu.health}${from}${gpu.reason ? `: ${gpu.reason}` : ""}${says}${limit}`;
}

function shareLine(share) {
  const by = share.guarantee;
  return `${share.job_id ?? share.task_id}: ${share.compute_pct} %, ${share.memory_mib} MiB; ` +
    `memory ${by.memory}, compute ${by.compute}, faults ${by.faults === "user" ? "shared by its user's jobs" : by.faults} (${share.method})${share.used ? useLine(share.used) : ""}`;
}

function useLine(use) {
  const compute = use.compute_pct === null ? "" : `${use.compute_pct} %, `, over = use.problem ? `; ${use.problem}` : "";
  return use.memory_mib === null ? "" : `; uses ${compute}${use.memory_mib} MiB, ${use.most_memory_mib} MiB at most${over}`;
}

function holders(gpu) {
  const left = gpu.sharing;
  if (!left) return [gpu.job_id ? `held by ${gpu.job_id}` : "free"];
  const memory = left.free_memory_mib === null ? "" : `, ${left.free_memory_mib} MiB`;
  return [...gpu.shares.map(shareLine), left.state === "uncovered"
    ? "uncovered: Mesos may offer it to others, and it takes no more shares" : `free: ${left.free_compute_pct} %${memory}`];
}

function granted(gpu) { // in percent: of compute or of memory, whichever is more
  const left = gpu.sharing;
  const memory = left.memory_mib ? 100 * (1 - left.free_memory_mib / left.memory_mib) : 0;
  return Math.min(100, Math.max(100 - left.free_compute_pct, memory));
}

function gpuBox(gpu) {
  const held = gpu.task_id || gpu.shares.length;
  const used = gpu.sharing ? `shared ${gpu.sharing.state}` : held ? "used" : "free";
  const kind = gpu.health !== "ok" ? `${gpu.health} ${held ? "held" : ""}` : used;
  const lines = [gpu.uuid, `${gpu.model}, ${gpu.memory_mib} MiB, minor ${gpu.minor}`, standing(gpu)];
  lines.push(...gpu.warnings.map((text) => `warning: ${text}`));
  lines.push(...holders(gpu));
  const box = make("button", `gpu ${kind}${gpu.warnings.length ? " warned" : ""}`.replace(/ +/g, " "), gpu.minor, lines.join("\n"));
  box.type = "button";
  box.dataset.uuid = gpu.uuid;
  if (gpu.sharing) box.style.setProperty("--granted", `${granted(gpu)}%`);
  box.setAttribute("aria-label", lines.join(", "));
  box.addEventListener("click", () => showDetails(`${gpu.hostname}:${gpu.minor}`, lines.join("\n")));
  return box;
}

function gpuNotes(gpus) {
  const list = make("ul", "notes");
  for (const gpu of gpus) {
    const withNode = gpu.drain?.target === "node" && gpu.node_health === "ok"; // said once, of the node
    const says = gpu.health === "ok" || withNode ? [] : [standing(gpu)];
    says.push(...gpu.warnings.map((text) => `warning: ${text}`));
    if (gpu.sharing?.state === "uncovered") says.push("its shares are uncovered in Mesos");
    if (says.length) list.append(make("li", gpu.health, `${gpu.minor}: ${says.join("; ")}`, gpu.uuid));
  }
  return list;
}

function showNodes(nodes, gpus) {
  const key = JSON.stringify([nodes.map((node) => ({ ...node, reported_at: null })), gpus]);
  if (key === nodesShown) return; // what is made anew loses the keyboard's focus
  nodesShown = key;
  const focused = document.activeElement?.dataset?.uuid;
  $("nodes").replaceChildren(...nodes.map((node) => {
    const card = make("div", `node ${node.state}`);
    const head = make("h3", "", node.hostname);
    head.append(make("span", "", node.gpus_total ? `${node.gpus_used} / ${node.gpus_total}` : "no GPUs"));
    const own = gpus.filter((gpu) => gpu.agent_id === node.agent_id);
    const models = [...new Set(own.map((gpu) => gpu.model))].join(", ");
    const about = [node.state, models, node.driver_version && `driver ${node.driver_version}`,
      node.cuda_version && `CUDA ${node.cuda_version}`, node.volume && `volume ${node.volume}`,
      node.isolation && `isolation ${node.isolation}`,
      node.control_ports === "off" && "control ports open"].filter(Boolean).join(" · ");
    const boxes = make("div", "gpus");
    boxes.append(...own.map(gpuBox));
    card.append(head, make("p", "", about, `agent ${node.agent_id}`), boxes);
    if (node.volume_problem) card.append(make("p", "problem", `no driver volume: ${node.volume_problem}`));
    if (node.drain) card.append(make("p", "drain", `drained${node.drain.by && ` by ${node.drain.by}`}: ${node.drain.reason}`));
    card.append(gpuNotes(own));
    return card;
  }));
  if (focused) document.querySelector(`[data-uuid="${CSS.escape(focused)}"]`)?.focus();
}

function showDetails(title, text) {
  const dialog = $("details");
  dialog.querySelector("h3").textContent = title;
  dialog.querySelector("pre").textContent = text;
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  dialog.querySelector("h3").focus(); // not the button: that would scroll what is said out of sight
}

async function showWhy(job) {
  const why = await api(`/v1/why/${encodeURIComponent(job.id)}`);
  const nodes = why.nodes.map((node) => `${node.hostname}: ${node.reasons.join("; ") || "it would fit here"}`);
  const funnel = why.funnel.map((stage) => `${stage.reason}: ${stage.removed} out, ${stage.left} left`);
  const place = why.queue_position === null ? [] : [`place in the queue: ${why.queue_position + 1}`];
  showDetails(job.id, [why.summary, ...place, "", ...funnel, "", ...nodes].join("\n"));
}

function counted(job) { // its GPUs as limits of queues count them: an exact share is a part of them
  if (job.gpu_compute_pct === null) return job.gpus;
  const part = Math.max(job.gpu_compute_pct / 100, job.gpus < 1 ? job.gpus : 0);
  return Math.round(Math.ceil(job.gpus) * part * 1000) / 1000;
}

function about(job) {
  const facts = [["state", job.state + (job.exit_code === null ? "" : `, exit code ${job.exit_code}`)], ["message", job.message],
    ["image", job.image], ["command", job.command ?? (job.argv ?? job.args ?? []).join(" ")], ["hosts", job.hostnames.join(" ")],
    ["GPUs", job.gpu_ids.join("\n  ")], ["share", job.share && shareLine({ ...job.share, job_id: "of each" })], ["submitted", new Date(job.submitted_at * 1000).toLocaleString()]];
  return facts.filter(([, value]) => value).map(([name, value]) => `${name}: ${value}`).join("\n");
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

function fits(patterns, text) { // a * stands for anything
  const words = (pattern) => pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return patterns.some((pattern) => new RegExp(`^${words(pattern).join(".*")}$`, "s").test(text));
}

function may(right, job) { // whether a button is of use; the scheduler decides when it is pressed
  if (who.proof === "open") return true;
  return who.rights.some((held) => held.name === `job:${right}` && (!held.own || job.owner === who.name) && fits(held.queues, job.queue)) ||
    (job.app !== null && who.rights.some((held) => held.name === (right === "kill" ? "app:write" : `app:${right}`)));
}

function action(label, act, job) {
  const button = make("button", "", label);
  button.type = "button";
  button.addEventListener("click", () => act(job).catch((error) => showDetails(job.id, String(error))));
  return button;
}

function message(text) { // three lines of it; all in the title, and of a job in its details
  const cell = make("td", "message", null, text);
  cell.append(make("div", "", text));
  return cell;
}

function labelled(row, table) { // on a narrow screen each cell stands below the last, with its column's name
  const heads = $(table).closest("table").querySelectorAll("th");
  [...row.children].forEach((cell, i) => { cell.dataset.label = heads[i].textContent; });
  return row;
}

function jobRow(job) {
  const row = make("tr");
  const buttons = make("td", "actions");
  const name = make("td", "cut", null, [job.id, job.image, job.command || (job.argv || []).join(" ")].filter(Boolean).join("\n"));
  name.append(action(job.id, (each) => Promise.resolve(showDetails(each.id, about(each))), job));
  name.firstChild.className = "link";
  if (job.state === "pending") buttons.append(action("why", showWhy, job), " ");
  const shared = may("run", job); // a queue may show what its jobs print to those who run jobs in it
  if (job.launches && (may("output", job) || shared)) buttons.append(action("logs", showLogs, job), " ");
  if (!ENDED.has(job.state) && may("kill", job)) buttons.append(action("kill", kill, job));
  row.append(
    name,
    make("td", `state ${job.state}`, job.state + (job.exit_code ? ` (${job.exit_code})` : "")),
    make("td", "", job.queue + (job.priority ? ` (${job.priority})` : "")),
    make("td", "n", job.tasks > 1 ? `${job.tasks}\u00d7${counted(job)}` : counted(job), job.gpu_ids.join("\n")),
    make("td", "", job.hostnames.join(" ")),
    make("td", "n age"),
    make("td", "n ran"),
    message(job.message),
    buttons,
  );
  return labelled(row, "jobs");
}

function rowOf(job, now) {
  if (rows.get(job.id)?.version !== job.version) rows.set(job.id, { version: job.version, row: jobRow(job) });
  const row = rows.get(job.id).row;
  row.querySelector(".age").textContent = span(now - job.submitted_at);
  row.querySelector(".ran").textContent = job.started_at === null ? "" : span((job.ended_at ?? now) - job.started_at);
  return row;
}

function showJobs(jobs, total) {
  $("hidden").hidden = total <= jobs.length;
  $("hidden-count").textContent = `${jobs.length} of ${total} jobs are shown: what runs before what waits before what has ended. `;
  const now = Date.now() / 1000;
  const wanted = jobs.map((job) => rowOf(job, now));
  const shown = $("jobs").children;
  if (wanted.length !== shown.length || wanted.some((row, i) => row !== shown[i])) $("jobs").replaceChildren(...wanted);
  const ids = new Set(jobs.map((job) => job.id));
  for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
  $("empty").hidden = jobs.length > 0;
}

function countedOf(app) { // the same of an instance; a label is for clients that send whole numbers only
  const share = app.gpus === 1 ? Number(app.labels?.GPU_SHARE) || 1 : app.gpus;
  return counted({ gpus: share, gpu_compute_pct: app.gpu?.compute_pct ?? null });
}

function appRow(app, deployments) {
  const row = make("tr");
  const changing = deployments.filter((each) => each.affectedApps.includes(app.id));
  const words = changing.map((each) => `step ${each.currentStep} of ${each.totalSteps}` +
    (each.waiting[app.id] ? `: ${each.waiting[app.id]}` : ""));
  const runs = app.container?.docker?.image ?? app.cmd ?? (app.args || []).join(" ");
  const checked = (app.healthChecks || []).length > 0;
  const whole = app.tasksRunning === app.instances && (!checked || app.tasksHealthy === app.instances);
  row.append(
    make("td", "", app.id, app.version),
    make("td", `state ${whole ? "running" : "pending"}`, `${app.tasksRunning} of ${app.instances}`),
    make("td", app.tasksUnhealthy ? "state failed" : "", checked ? `${app.tasksHealthy}` : "–"),
    make("td", "n", app.gpus ? `${app.instances}\u00d7${countedOf(app)}` : 0),
    make("td", "n", span((Date.now() - Date.parse(app.version)) / 1000)),
    make("td", "cut", runs, runs),
    message(words.join("; ")),
  );
  return labelled(row, "apps");
}

async function showApps() {
  if (rounds++ % (appsShown > 200 ? 10 : 1)) return; // thousands are a large answer
  const [{ apps }, deployments] = await Promise.all(
    ["/v2/apps?embed=apps.counts", "/v2/deployments?embed=waiting"].map((path) => api(path)),
  );
  appsShown = apps.length;
  $("apps-section").hidden = !apps.length;
  $("apps").replaceChildren(...apps.map((app) => appRow(app, deployments)));
}

async function showWho() { // who looks, and a way to be nobody again
  who = await api("/v1/whoami");
  csrf = who.csrf_token;
  if (!who.name && who.proof !== "open") location.assign("login");
  $("who").hidden = !who.name;
  $("who").firstChild.textContent = who.name ?? "";
  $("who").title = [`by ${who.proof}`, who.roles.length ? `roles: ${who.roles.join(", ")}` : "no roles"].join("; ");
  $("log-out").hidden = !who.session;
}

$("log-out").addEventListener("click", async () => {
  await api("/v1/session", { method: "DELETE" });
  location.assign("login");
});

async function refresh() {
  const wanted = filter;
  const state = wanted === "all" ? "" : `&state=${wanted}`;
  try {
    if (!who) await showWho();
    const [status, nodes, gpus, jobs] = await Promise.all(
      ["/v1/status", "/v1/nodes", "/v1/gpus", `/v1/jobs?order=activity&limit=${most}${state}`].map((path) => api(path)),
    );
    if (wanted !== filter) return; // another was chosen meanwhile
    showStatus(status);
    showNodes(nodes.nodes, gpus.gpus);
    showJobs(jobs.jobs, jobs.total);
    await showApps();
    answeredAt = Date.now();
    pause_ms = 2000;
    showAge();
  } catch (error) {
    statusShown = "";
    pause_ms = error.refused ? 30000 : 2000; // each refusal is on record
    const why = error.name === "TimeoutError" ? `no answer within ${LIMIT_MS / 1000} s` : error.message;
    $("status").className = "bad";
    $("status").textContent = error.refused ? why : `the scheduler does not answer: ${why}`;
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

$("more").addEventListener("click", () => {
  most *= 5;
  refresh();
});
setInterval(showAge, 1000);

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, pause_ms);
}
document.addEventListener("visibilitychange", () => document.hidden || refresh());
loop();
