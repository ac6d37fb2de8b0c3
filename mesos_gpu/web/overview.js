// The first page: trouble, all cards as a map, how full the cluster is, who is next.

import { getIf, has, who } from "./api.js";
import { clusterUse, latest, past, watts } from "./charts.js";
import { CRASHING, crashWords, withLines } from "./crash.js";
import { ago, badge, h, link, section, span, table, to } from "./dom.js";
import { COUNTED, FIRST } from "./joblist.js";
import { grouped, waits } from "./line.js";

const WORDS = { f: "free", u: "allocated", s: "shared", p: "suspect", k: "sick", l: "lost", y: "dirty", d: "drained", n: "unknown" };
const SIGNS = { f: "", u: "", s: "½", p: "?", k: "!", l: "×", y: "~", d: "–", n: "?" }; // not by colour alone
const SICK = new Set(["p", "k", "l", "y", "n"]);
const MOST_TROUBLE = 12, OWN = 50; // entries, and jobs of who looks that are looked at
const ORDER = ["sick", "lost", "dirty", "unknown", "suspect", "failed", "pending", "drained"];
const CANNOT_START = new Set([126, 127]); // exit codes of a shell whose command is mistyped or is no program
const NEXT = 5, LOOKED_AT = 50; // rows of who is next, and jobs of which they are made: instances of an app are one row
let byOwner = false;
let drawn = { cards: null, byOwner: null, map: null };

const MANY = 200; // nodes, of whose answers all but the map are asked for in every third round only
let rest = null, rounds = 0;

export async function load({ fresh }) {
  const many = (drawn.cards?.nodes.length ?? 0) > MANY;
  if (fresh || !many || !rest || rounds++ % 3 === 0) rest = others();
  try {
    const [cards, [queue, failed, mine, deployments, active, crashed, used]] = await Promise.all([getIf("gpu:see", "/v1/cards"), rest]);
    return { cards, queue, failed: failed?.jobs ?? [], mine: mine?.jobs ?? [], deployments, active, crashed, used };
  } catch (error) {
    rest = null;
    throw error;
  }
}

function others() {
  const jobs = (asked) => getIf("job:see", `/v1/jobs?no_instances=true&fold_arrays=true&${asked}`), own = who.name ? `user=${encodeURIComponent(who.name)}` : null;
  return Promise.all([
    getIf("queue:see", `/v1/queue?limit=${LOOKED_AT}`), jobs("state=failed&limit=3"), own ? jobs(`${own}&state=failed&state=active&limit=${OWN}`) : null,
    getIf("app:see", "/v2/deployments?embed=waiting"), jobs("state=active&order=activity&limit=8"),
    getIf("app:see", CRASHING).then((found) => withLines(found?.apps ?? [])), has("gpu:see") ? past("/v1/use") : null,
  ]);
}

export function view({ cards, queue, failed, mine, deployments, active, crashed, used }, _context, status) {
  return [
    troubles(status, cards, [...mine, ...failed], deployments, crashed),
    cards ? numbers(cards, queue, used, status) : null,
    used ? section("Last 24 hours", clusterUse(used) ?? h("p", { class: "empty" }, "No samples yet. The first one comes within a minute after a node reports its GPUs.")) : null,
    cards ? mapOf(cards) : null,
    queue ? next(queue) : null,
    active ? running(active) : null,
  ];
}

function troubles(status, cards, jobs, deployments, crashed) {
  const told = [];
  if (!status.connected) told.push(["sick", "Not connected to the Mesos master: nothing is launched.", null]);
  if (status.unsaved) told.push(["sick", `The state cannot be written: ${status.unsaved}`, null]);
  if (status.tasks_unknown) told.push(["sick", `${status.tasks_unknown} tasks run that the scheduler does not know: mesos-gpu tasks unknown`, null]);
  for (const node of cards?.nodes ?? []) {
    if (node.lost) told.push(["lost", `Node ${node.hostname} is lost`, to.node(node.hostname)]);
    else if (node.drained) told.push(["drained", `Node ${node.hostname} is drained`, to.node(node.hostname)]);
    [...node.cards].forEach((letter, i) => {
      const state = letter.toLowerCase(), name = `${node.hostname}:${node.indexes[i] ?? "absent"}`;
      if (SICK.has(state) && !node.lost) told.push([WORDS[state], `Card ${name} is ${WORDS[state]}${letter === state ? "" : ", and a task holds it"}`, toCard(node, i)]);
      else if (state === "d" && !node.drained) told.push(["drained", `Card ${name} is drained`, toCard(node, i)]);
    });
  }
  for (const each of deployments ?? []) {
    for (const [app, why] of Object.entries(each.waiting)) told.push([each.overdue?.includes(app) ? "failed" : "pending", `Deployment of ${app}: ${why}`, to.app(app)]);
  }
  for (const app of crashed) told.push(["failed", crashWords(app), to.app(app.id), `app ${app.id}`]);
  told.sort((a, b) => ORDER.indexOf(a[0]) - ORDER.indexOf(b[0]));
  const of_jobs = [...new Map(jobs.map((job) => [job.id, job])).values()].map(troubleOf).filter(Boolean);
  const all = [...of_jobs.filter(({ mine }) => mine), ...told.map(([kind, text, where, key]) => ({ kind, text, where, key })), ...of_jobs.filter(({ mine }) => !mine)];
  const more = all.length - MOST_TROUBLE;
  return section("Trouble", all.length ? h("ul", { class: "trouble" },
    all.slice(0, MOST_TROUBLE).map(({ kind, text, where, key }) => h("li", { class: kind, key: key ?? text }, badge(kind), " ", where ? link(where, text) : text)),
    more > 0 ? h("li", {}, `and ${more} more: see the `, link("#/nodes", "nodes"), ", the ", link("#/jobs?state=failed", "failed jobs"), " and the ", link("#/apps", "apps")) : null) : h("p", { class: "empty" }, "No trouble: no sick GPUs, lost nodes, crashing apps or lately failed jobs."));
}

/** The trouble of a job, or null: its notice, or that it failed; that of others, and a command that cannot start, only for an hour. */
function troubleOf(job) {
  const mine = who.name !== null && job.owner === who.name, whose = mine ? "Your job" : "Job", ago_s = Date.now() / 1000 - job.ended_at;
  if (job.notice && !job.notice.recalled_at && !job.notice.warning && job.notice.until > Date.now() / 1000) {
    return mine ? { mine, kind: "notice", text: `${whose} ${job.name} is to end in ${span(job.notice.until - Date.now() / 1000)}: ${job.notice.why}`, where: to.job(job.id), key: job.id } : null;
  }
  const shortly = mine ? false : who.name !== null || CANNOT_START.has(job.exit_code);
  if (job.state !== "failed" || ago_s > (shortly ? 3600 : 86400)) return null;
  return { mine, kind: "failed", text: `${whose} ${job.name} failed ${span(ago_s)} ago: ${job.message}`, where: to.job(job.id), key: job.id };
}

function count(cards) {
  const sum = { total: 0, free: 0, used: 0, sick: 0, drained: 0, most: 0, whole: 0 };
  for (const node of cards.nodes) {
    let free = 0;
    for (const letter of node.cards) {
      const state = letter.toLowerCase();
      sum.total += 1;
      if (letter === "f") free += 1;
      if (letter === "u" || letter === "s" || letter !== state) sum.used += 1;
      if (SICK.has(state)) sum.sick += 1;
      if (state === "d") sum.drained += 1;
    }
    if (node.lost || node.drained) continue;
    sum.free += free;
    sum.most = Math.max(sum.most, free);
    if (free && free === node.cards.length) sum.whole += 1;
  }
  return sum;
}

function numbers(cards, queue, used, { jobs }) {
  const sum = count(cards), waiting = jobs.pending ?? 0, busy = used ? latest(used.busy_pct) : null, power = used ? latest(used.power_w) : null;
  const part = sum.total ? Math.round((100 * sum.used) / sum.total) : 0;
  // Of the free cards those that the fullest choice of one node leaves out.
  const scattered = sum.free ? Math.round(100 * (1 - sum.most / sum.free)) : 0;
  const tile = (name, value, says) => h("div", { class: "tile", key: name }, h("dt", {}, name), h("dd", {}, value), says ? h("dd", { class: "soft" }, says) : null);
  return section("Now", h("dl", { class: "tiles" },
    tile("Allocated", `${part} %`, `${sum.used} of ${sum.total} GPUs`),
    tile("Utilization", busy === null ? "–" : `${Math.round(busy)} %`, busy === null ? "no samples in the last minutes" : "mean of all GPUs in the last minutes"),
    tile("Power", power === null ? "–" : watts(power), power === null ? "no samples in the last minutes" : "of all GPUs"),
    tile("Free", sum.free, `${sum.most} at most on one node; ${sum.whole} whole nodes`),
    tile("Fragmentation", `${scattered} %`, "of the free GPUs are not on the freest node"),
    tile("Not healthy", sum.sick, `${sum.drained} drained`),
    tile("Waiting jobs", link("#/jobs?state=pending", waiting), queue?.jobs.length ? `the first for ${ago(queue.jobs[0].submitted_at)}` : null),
    tile("Running jobs", link("#/jobs?state=running", jobs.running ?? 0), jobs.starting ? `${jobs.starting} more are starting` : null)),
    h("p", { class: "soft", key: "counted" }, COUNTED));
}

function hue(text) {
  let sum = 7;
  for (const letter of text) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return sum;
}

function mapOf(cards) {
  const legend = h("p", { class: "legend" }, Object.entries(WORDS).map(([letter, word]) => h("span", {}, h("i", { class: `cell ${word.replace(" ", "-")}`, "aria-hidden": "true" }, SIGNS[letter]), " ", word)),
    h("span", {}, h("i", { class: "cell drained held", "aria-hidden": "true" }, "–"), " and held by a task"));
  const how = h("label", { class: "choice" }, h("input", { type: "checkbox", checked: byOwner, onchange: (event) => { byOwner = event.target.checked; document.dispatchEvent(new Event("redraw")); } }), " colour allocated GPUs by owner");
  if (drawn.cards !== cards || drawn.byOwner !== byOwner) drawn = { cards, byOwner, map: drawMap(cards) };
  return section("Cards", how, cards.nodes.length ? drawn.map : h("p", { class: "empty" }, "No node has reported a GPU yet: see mesos-gpu nodes, and mesos-gpu doctor on the host."), legend);
}

function drawMap(cards) {
  const map = h("div", { class: cards.nodes.length > 60 ? "map small" : "map", key: `map ${byOwner}`, onkeydown: walk, role: "group", "aria-label": "All cards by node; arrow keys go from card to card" });
  let first = true;
  for (const node of cards.nodes) {
    const free = [...node.cards].filter((letter) => letter === "f").length;
    const cells = h("div", { class: "cells" });
    [...node.cards].forEach((letter, i) => {
      cells.append(cell(node, i, letter, cards.jobs, first));
      first = false;
    });
    const state = node.lost ? "lost" : node.drained ? "drained" : "";
    map.append(h("div", { class: `host ${state}`, key: node.agent_id },
      h("p", {}, link(to.node(node.hostname), node.hostname), " ", h("span", { class: "soft" }, state || `${free} free`)), cells));
  }
  return map;
}

function toCard(node, i) { // a card that its driver does not list now has no index
  return node.indexes[i] === null ? to.node(node.hostname) : to.card(`${node.hostname}:${node.indexes[i]}`);
}

function cell(node, i, letter, jobs, first) {
  const state = letter.toLowerCase(), held = letter !== state, name = `${node.hostname}:${node.indexes[i] ?? "absent"}`;
  const number = node.held_by[i], job = number === null ? null : jobs[number];
  const whose = number === null ? "" : job ? `, ${job.name}${job.owner ? ` of ${job.owner}` : ""}` : ", of somebody else";
  const vars = byOwner && job && letter === "u" ? { background: `hsl(${hue(job.owner ?? job.name)} 55% 45%)` } : null;
  const says = `${name} ${WORDS[state]}${held ? ", held" : ""}${whose}`;
  return h("a", { class: `cell ${WORDS[state].replace(" ", "-")}${held ? " held" : ""}`, href: toCard(node, i), title: says, "aria-label": says, tabindex: first ? "0" : "-1", vars }, SIGNS[state]);
}

function walk(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches(".cell")) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll("a.cell")];
  const at = all.indexOf(event.target);
  const next = event.key === "ArrowRight" || event.key === "ArrowLeft" ? all[at + step] : nextHost(event.target, step);
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function nextHost(from, step) {
  const host = from.closest(".host");
  return (step > 0 ? host.nextElementSibling : host.previousElementSibling)?.querySelector("a.cell");
}

function next(queue) {
  const rows = grouped(queue.jobs).slice(0, NEXT).map((job) => Object.assign([
    waits(job), job.owner ?? "", link(to.queue(job.queue), job.queue), job.gpus, ago(job.submitted_at),
    job.estimate.at ? `in ${span(job.estimate.at - Date.now() / 1000)}` : h("span", { title: job.estimate.basis }, "not known"),
  ], { key: job.id }));
  return section("Next in the queue", table([["Job"], ["Owner"], ["Queue"], ["GPUs", "n"], ["Waits", "n"], ["May start"]], rows, { caption: "Next in the queue", sparse: true, empty: "No job waits." }));
}

function running(active) {
  const rows = active.jobs.filter((job) => job.state !== "pending").map((job) => Object.assign([
    link(to.job(job.id), job.name), badge(job.state), job.owner ?? "", job.gpu_ids.length || job.gpus, job.use?.busy_pct == null ? "" : `${Math.round(job.use.busy_pct)} %`, job.hostnames.join(" "), job.started_at ? ago(job.started_at) : "",
  ], { key: job.id }));
  return section("Running", table([["Job"], ["State"], ["Owner"], ["GPUs", "n"], ["Utilization", "n"], ["Host"], ["Runs for", "n"]], rows, { caption: "Running jobs", sparse: true, empty: ["No job runs. Run one: ", h("code", {}, FIRST)] }),
    active.total > rows.length ? h("p", {}, link("#/jobs?state=active", "all active jobs")) : null);
}
