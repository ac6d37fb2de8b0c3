// The page of a Mesos master: which part of it the address names, and what is shown anew every few seconds.

import { LEADING, ask, sumOf } from "./cluster.js";
import { h, link, many, section, show, span } from "./dom.js";
import * as agents from "./agents.js";
import * as frameworks from "./frameworks.js";
import * as overview from "./overview.js";
import { close } from "./sandbox.js";
import * as tasks from "./tasks.js";

const $ = (id) => document.getElementById(id);
const LEAST_PAUSE_MS = 3000, MOST_PAUSE_MS = 60000;
const SHARE = 20; // the page spends at most this part of the time on answers
const PARTS = { "": [overview], agents: [agents.list, agents.one], frameworks: [frameworks.list, frameworks.one], tasks: [tasks.list, tasks.one] };
const NONE = { title: () => "Not found", view: () => [h("h2", {}, "There is no such page"), link("#/", "to the overview")] };

let cluster = null, answeredAt = 0, failed = false, timer = null, turnNumber = 0, pathShown = location.hash.split("?")[0];

/** What the address names: {address, part, page, ids, query}. */
function place() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
  const [part, ...ids] = path.split("/").map(decodeURIComponent);
  return { address: location.hash || "#/", part, page: PARTS[part]?.[ids.length ? 1 : 0] ?? NONE, ids, query: new URLSearchParams(text), turn };
}

/** Change values of the address' query; null removes one. */
function turn(changes) {
  const [path, text] = location.hash.split("?"), query = new URLSearchParams(text);
  for (const [name, value] of Object.entries(changes)) value === null ? query.delete(name) : query.set(name, value);
  history.replaceState(null, "", `${path || "#/"}${query.size ? `?${query}` : ""}`);
  draw();
}

function draw() {
  const at = place();
  document.title = `${at.page.title(at, cluster)} · Mesos`;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.part === (at.part || "overview")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (at.part !== "tasks" || !at.ids.length) close();
  if (!cluster) return;
  show($("view"), ...at.page.view(cluster, at));
  $("view").dataset.shown = at.address;
}

async function refresh() {
  const number = ++turnNumber, begun = performance.now();
  clearTimeout(timer);
  let again = true;
  try {
    const answer = await ask();
    if (number !== turnNumber) return;
    [cluster, answeredAt, failed] = [answer, Date.now(), false];
    tellStatus();
    draw();
  } catch (error) {
    if (number !== turnNumber) return;
    if (!error.kind) throw error; // a fault of this page's
    failed = true;
    again = error.kind !== "unnamed"; // browsers ask for a name at each question
    tellTrouble(error);
  } finally {
    if (number === turnNumber && again) timer = setTimeout(() => document.hidden || refresh(), Math.min(MOST_PAUSE_MS, Math.max(LEAST_PAUSE_MS, SHARE * (performance.now() - begun))));
  }
  tellAge();
}

function tellStatus() {
  const { about, agents } = cluster, line = $("status");
  const led = about.leader_info ? `led by ${about.leader_info.hostname}:${about.leader_info.port}` : "no leader";
  line.className = "";
  line.textContent = `${led} · ${sumOf(agents, "used", "gpus")} of ${sumOf(agents, "total", "gpus")} GPUs in use · ${many(agents.length, "agent")}`;
}

const REMEDIES = {
  standby: () => h("p", {}, link(LEADING, "To the master that leads")),
  unnamed: () => h("p", {}, h("button", { type: "button", class: "main", onclick: refresh }, "Give a name")),
};

function tellTrouble(error) {
  const line = $("status");
  line.className = "bad";
  line.textContent = error.message;
  if (cluster && error.kind === "unreached") return; // what was shown stays, and its age is told
  cluster = null;
  close();
  show($("view"), section(error.message, error.remedy ? h("p", { class: "message" }, error.remedy) : null, REMEDIES[error.kind]?.()));
  $("view").dataset.shown = place().address;
}

function tellAge() { // once a second
  const old = failed && answeredAt > 0;
  if (answeredAt) $("as-of").textContent = old ? `old: as of ${new Date(answeredAt).toLocaleTimeString()}, ${span((Date.now() - answeredAt) / 1000)} ago` : `as of ${new Date(answeredAt).toLocaleTimeString()}`;
  document.body.classList.toggle("old", old);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which part is shown
  $("main").focus();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  $("search")?.focus();
});
addEventListener("hashchange", () => {
  draw();
  const path = location.hash.split("?")[0], moved = path !== pathShown;
  pathShown = path;
  if (!moved) return;
  $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(tellAge, 1000);
refresh();
