// The first page: trouble, all cards as a map, how full the cluster is, who is next.

import { getIf } from "./api.js";
import { CRASHING, crashWords, withLines } from "./crash.js";
import { ago, badge, h, link, section, span, table, to } from "./dom.js";
import { grouped, waits } from "./line.js";

const WORDS = { f: "free", u: "in use", s: "shared", p: "suspect", k: "sick", l: "lost", y: "dirty", d: "drained", n: "unknown" };
const SIGNS = { f: "", u: "", s: "½", p: "?", k: "!", l: "×", y: "~", d: "–", n: "?" }; // not by colour alone
const SICK = new Set(["p", "k", "l", "y", "n"]);
const MOST_TROUBLE = 12;
const NEXT = 5, LOOKED_AT = 50; // rows of who is next, and jobs of which they are made: instances of an app are one row
let byOwner = false;
let drawn = { cards: null, byOwner: null, map: null };

const MANY = 200; // nodes, of whose answers all but the map are asked for in every third round only
let rest = null, rounds = 0;

export async function load({ fresh }) {
  const many = (drawn.cards?.nodes.length ?? 0) > MANY;
  if (fresh || !many || !rest || rounds++ % 3 === 0) rest = others();
  try {
    const [cards, [queue, failed, deployments, active, crashed]] = await Promise.all([getIf("gpu:see", "/v1/cards"), rest]);
    return { cards, queue, failed, deployments, active, crashed };
  } catch (error) {
    rest = null;
    throw error;
  }
}

function others() {
  return Promise.all([
    getIf("queue:see", `/v1/queue?limit=${LOOKED_AT}`), getIf("job:see", "/v1/jobs?state=failed&no_instances=true&fold_arrays=true&limit=3"),
    getIf("app:see", "/v2/deployments?embed=waiting"), getIf("job:see", "/v1/jobs?state=active&order=activity&no_instances=true&fold_arrays=true&limit=8"),
    getIf("app:see", CRASHING).then((found) => withLines(found?.apps ?? [])),
  ]);
}

export function view({ cards, queue, failed, deployments, active, crashed }, _context, status) {
  return [
    troubles(status, cards, failed, deployments, crashed),
    cards ? numbers(cards, queue, active) : null,
    cards ? mapOf(cards) : null,
    queue ? next(queue) : null,
    active ? running(active) : null,
  ];
}

function troubles(status, cards, failed, deployments, crashed) {
  const told = [];
  if (!status.connected) told.push(["sick", "Not connected to the Mesos master: nothing is launched.", null]);
  if (status.unsaved) told.push(["sick", `The state cannot be written: ${status.unsaved}`, null]);
  if (status.tasks_unknown) told.push(["sick", `${status.tasks_unknown} tasks run that the scheduler does not know: mesos-gpu tasks unknown`, null]);
  for (const node of cards?.nodes ?? []) {
    if (node.lost) told.push(["lost", `Node ${node.hostname} is lost`, to.node(node.hostname)]);
    else if (node.drained) told.push(["drained", `Node ${node.hostname} is drained`, to.node(node.hostname)]);
    [...node.cards].forEach((letter, i) => {
      const state = letter.toLowerCase(), name = `${node.hostname}:${node.minors[i]}`;
      if (SICK.has(state) && !node.lost) told.push([WORDS[state], `Card ${name} is ${WORDS[state]}${letter === state ? "" : ", and a task holds it"}`, to.card(name)]);
      else if (state === "d" && !node.drained) told.push(["drained", `Card ${name} is drained`, to.card(name)]);
    });
  }
  for (const each of deployments ?? []) {
    for (const [app, why] of Object.entries(each.waiting)) told.push([each.overdue?.includes(app) ? "failed" : "pending", `Deployment of ${app}: ${why}`, to.app(app)]);
  }
  for (const app of crashed) told.push(["failed", crashWords(app), to.app(app.id), `app ${app.id}`]);
  const recent = (failed?.jobs ?? []).filter((job) => Date.now() / 1000 - job.ended_at < 86400);
  for (const job of recent) told.push(["failed", `Job ${job.name} failed ${ago(job.ended_at)} ago: ${job.message}`, to.job(job.id)]);
  const order = ["sick", "lost", "dirty", "unknown", "suspect", "failed", "pending", "drained"];
  told.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
  const more = told.length - MOST_TROUBLE;
  return section("Trouble", told.length ? h("ul", { class: "trouble" },
    told.slice(0, MOST_TROUBLE).map(([kind, text, where, key]) => h("li", { class: kind, key: key ?? text }, badge(kind), " ", where ? link(where, text) : text)),
    more > 0 ? h("li", {}, `and ${more} more: see the map, the jobs and the apps`) : null) : h("p", { class: "empty" }, "None."));
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

function numbers(cards, queue, active) {
  const sum = count(cards), waiting = queue ? queue.queues.reduce((all, each) => all + each.waiting, 0) : null;
  const part = sum.total ? Math.round((100 * sum.used) / sum.total) : 0;
  // Of the free cards those that the fullest choice of one node leaves out.
  const scattered = sum.free ? Math.round(100 * (1 - sum.most / sum.free)) : 0;
  const tile = (name, value, says) => h("div", { class: "tile", key: name }, h("dt", {}, name), h("dd", {}, value), says ? h("dd", { class: "soft" }, says) : null);
  return section("Now", h("dl", { class: "tiles" },
    tile("Allocated", `${part} %`, `${sum.used} of ${sum.total} GPUs in use`),
    tile("Free", sum.free, `${sum.most} at most on one node; ${sum.whole} whole nodes`),
    tile("Fragmentation", `${scattered} %`, "of the free cards are not on the freest node"),
    tile("Not healthy", sum.sick, `${sum.drained} drained`),
    tile("Waiting", waiting ?? "–", queue?.jobs.length ? `the first for ${ago(queue.jobs[0].submitted_at)}` : "jobs"),
    tile("Active jobs", active?.total ?? "–", "without instances of apps")));
}

function hue(text) {
  let sum = 7;
  for (const letter of text) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return sum;
}

function mapOf(cards) {
  const legend = h("p", { class: "legend" }, Object.entries(WORDS).map(([letter, word]) => h("span", {}, h("i", { class: `cell ${word.replace(" ", "-")}`, "aria-hidden": "true" }, SIGNS[letter]), " ", word)),
    h("span", {}, h("i", { class: "cell drained held", "aria-hidden": "true" }, "–"), " and held by a task"));
  const how = h("label", { class: "choice" }, h("input", { type: "checkbox", onchange: (event) => { byOwner = event.target.checked; document.dispatchEvent(new Event("redraw")); } }), " colour cards in use by owner");
  if (drawn.cards !== cards || drawn.byOwner !== byOwner) drawn = { cards, byOwner, map: drawMap(cards) };
  return section("Cards", how, cards.nodes.length ? drawn.map : h("p", { class: "empty" }, "No node has reported a GPU yet."), legend);
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

function cell(node, i, letter, jobs, first) {
  const state = letter.toLowerCase(), held = letter !== state, name = `${node.hostname}:${node.minors[i]}`;
  const number = node.held_by[i], job = number === null ? null : jobs[number];
  const whose = number === null ? "" : job ? `, ${job.name}${job.owner ? ` of ${job.owner}` : ""}` : ", of somebody else";
  const vars = byOwner && job && letter === "u" ? { background: `hsl(${hue(job.owner ?? job.name)} 55% 45%)` } : null;
  const says = `${name} ${WORDS[state]}${held ? ", held" : ""}${whose}`;
  return h("a", { class: `cell ${WORDS[state].replace(" ", "-")}${held ? " held" : ""}`, href: to.card(name), title: says, "aria-label": says, tabindex: first ? "0" : "-1", vars }, SIGNS[state]);
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
  return section("Next in the queue", table([["Job"], ["Owner"], ["Queue"], ["GPUs", "n"], ["Waits", "n"], ["May start"]], rows, { caption: "Next in the queue", empty: "Nothing waits." }));
}

function running(active) {
  const rows = active.jobs.filter((job) => job.state !== "pending").map((job) => Object.assign([
    link(to.job(job.id), job.name), badge(job.state), job.owner ?? "", job.gpu_ids.length || job.gpus, job.hostnames.join(" "), job.started_at ? ago(job.started_at) : "",
  ], { key: job.id }));
  return section("Running", table([["Job"], ["State"], ["Owner"], ["GPUs", "n"], ["Host"], ["Runs for", "n"]], rows, { caption: "Running jobs", empty: "No job runs. Submit one: mesos-gpu run --gpus 1 -- nvidia-smi" }),
    active.total > rows.length ? h("p", {}, link("#/jobs?state=active", `all ${active.total} active jobs`)) : null);
}
