// The page of one scheduler: which part of it the address names, and what is shown anew every few seconds.

import { get, has, learnWho, send, standby, who } from "./api.js";
import * as apps from "./apps.js";
import * as calendar from "./calendar.js";
import { clock, h, link, show, span } from "./dom.js";
import * as files from "./files.js";
import * as idle from "./idle.js";
import * as joblist from "./joblist.js";
import * as jobs from "./jobs.js";
import * as logs from "./logs.js";
import * as nodes from "./nodes.js";
import * as overview from "./overview.js";
import * as queue from "./queue.js";
import * as queues from "./queues.js";
import * as shell from "./shell.js";
import * as submit from "./submit.js";

const $ = (id) => document.getElementById(id);
const OLD_MS = 4900; // without a whole answer, what is shown counts as old: people see it within 5 s
const LEAST_PAUSE_MS = 2000, MOST_PAUSE_MS = 3500, REFUSED_PAUSE_MS = 30000; // each refusal is on record
const SHARE = 20; // a page spends at most this part of the time on answers
const PARTS = [ // [name, right or rights of which one is enough, page of all, page of one]
  ["jobs", "job:see", joblist.list, jobs.one], ["apps", "app:see", apps.list, apps.one], ["nodes", "node:see", nodes.list, nodes.one],
  ["cards", "gpu:see", null, nodes.card], ["queues", "queue:see", queues.list, queue.one], ["calendar", ["booking:see", "queue:see"], calendar.list, calendar.one],
  ["idle", "job:see", idle.list, null], ["submit", ["job:run", "app:write"], submit.page, null],
];

let shown = null; // {page, context, data}
let answeredAt = 0, aging = null, turnNumber = 0, timer = null, statusShown = "";

/** What an address names: {page, part, id, query}. */
function place() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
  const [part, id] = path.split("/").map(decodeURIComponent), query = new URLSearchParams(text);
  const found = PARTS.find(([name]) => name === part);
  const page = !path ? { title: () => "Overview", ...overview } : id ? found?.[3] : found?.[2];
  return { address: location.hash || "#/", page: page ?? { title: () => "Not found", load: async () => ({}), view: () => [h("h2", {}, "Page not found"), h("p", {}, "No page has this address. ", link("#/", "Go to the overview"))] }, part: part || "overview", id, query };
}

function context(at) {
  return { ...at, turn(changes) {
    const query = new URLSearchParams(at.query);
    for (const [name, value] of Object.entries(changes)) value === null ? query.delete(name) : query.set(name, value);
    const tail = query.size ? `?${query}` : "";
    history.replaceState(null, "", `#/${at.part}${at.id ? `/${encodeURIComponent(at.id)}` : ""}${tail}`);
    if (at.page.whole && shown?.context.page === at.page && shown.context.id === at.id) { // all of it is here already
      shown.context = context(place());
      draw();
    }
    go();
  } };
}

async function go(moved = false) {
  const at = context(place());
  if (shown?.context.part !== at.part || shown?.context.id !== at.id) files.stop(), logs.stop(), shell.stop();
  document.title = `${at.page.title(at)} · mesos_gpu`;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.part === at.part) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  await refresh({ ...at, fresh: true }); // the next ones come by themselves
  if (moved) $("main").focus({ preventScroll: true }), scrollTo(0, 0);
}

async function refresh(at) {
  const turn = ++turnNumber, begun = performance.now();
  clearTimeout(timer);
  let pause_ms = LEAST_PAUSE_MS;
  try {
    if (!who) showWho(await learnWho());
    const [status, data] = await Promise.all([get("/v1/status"), at.page.load(at)]);
    if (turn !== turnNumber) return; // another page was chosen meanwhile
    answeredAt = Date.now();
    shown = { context: at, data, status };
    showStatus(status);
    draw();
    showAge();
    pause_ms = Math.min(MOST_PAUSE_MS, Math.max(LEAST_PAUSE_MS, SHARE * (performance.now() - begun)));
  } catch (error) {
    if (turn !== turnNumber) return;
    pause_ms = error.status === 404 ? MOST_PAUSE_MS : error.refused && error.status !== 503 ? REFUSED_PAUSE_MS : LEAST_PAUSE_MS;
    showTrouble(error, at);
  }
  showStandby();
  timer = setTimeout(() => (document.hidden ? null : refresh({ ...at, fresh: false })), pause_ms);
}

function draw() {
  show($("view"), ...shown.context.page.view(shown.data, shown.context, shown.status));
  $("view").dataset.shown = shown.context.address;
}

function showTrouble(error, at) {
  statusShown = "";
  if (!error.refused && !error.unreached) console.error(error); // a fault of this page's
  if (error.status === 404 || (error.refused && shown?.context.address !== at.address)) {
    answeredAt = Date.now();
    show($("view"), h("h2", {}, error.status === 404 ? "Not found" : "Not shown"), h("p", {}, error.message), h("p", {}, link("#/", "Go to the overview")));
    $("view").dataset.shown = at.address;
    if (!shown) $("status").textContent = "";
    showAge();
    return;
  }
  $("status").className = "bad";
  $("status").textContent = error.message;
}

function showAge() { // once a second, and when what is shown becomes old, whether answers come or not
  if (!answeredAt) return;
  clearTimeout(aging);
  if (Date.now() - answeredAt < OLD_MS) aging = setTimeout(showAge, answeredAt + OLD_MS - Date.now());
  const old = Date.now() - answeredAt >= OLD_MS || !navigator.onLine, at = clock(answeredAt / 1000);
  $("as-of").textContent = old ? `old: as of ${at}, ${span((Date.now() - answeredAt) / 1000)} ago` : `as of ${at}`;
  document.body.classList.toggle("old", old);
}

function showStatus(status) {
  const key = JSON.stringify(status);
  if (key === statusShown) return; // a screen reader says it at each change
  statusShown = key;
  const line = $("status");
  line.className = status.connected ? "" : "bad";
  line.title = `framework ${status.framework_id ?? "not registered yet"}, version ${status.version}`;
  line.replaceChildren(
    status.connected ? "connected to " : "not connected to ", h("a", { href: status.master_url }, "the Mesos master"),
    ` · ${status.gpus_used} of ${status.gpus_total} GPUs allocated` + (status.gpus_sick ? ` · ${status.gpus_sick} not healthy` : "") + (status.gpus_drained ? ` · ${status.gpus_drained} drained` : "") + ` · ${status.nodes} nodes`,
  );
  alert($("open-to-all"), [status.open_to_all && "Whoever reaches this page over the network can do everything: there is no authentication.", status.tls?.problem]);
  alert($("isolation"), [
    status.isolation_off.length && `Isolation is OFF on ${status.isolation_off.join(", ")}: tasks there can use every GPU of the host.`,
    status.control_ports_off.length && `The control ports are OPEN to tasks on ${status.control_ports_off.join(", ")}: tasks there can command the cluster.`,
  ]);
}

function showStandby() { // its leader answers what only that knows; the rest is a copy
  const leads = standby?.leader === "none" ? "no scheduler leads now" : `${standby?.leader} leads`;
  const old = standby?.age_s > 1 ? `, as it was ${span(standby.age_s)} ago at most` : "";
  alert($("standby"), [standby && `This scheduler stands by; ${leads}. Jobs and apps are shown from a copy${old}.`]);
}

function alert(element, texts) {
  const said = texts.filter(Boolean).join(" ");
  element.hidden = !said;
  element.textContent = said;
}

function showWho(who) { // who looks, and a way to be nobody again
  $("who").hidden = !who.name;
  $("who").firstChild.textContent = who.name ?? "";
  $("who").title = [`by ${who.proof}`, who.roles.length ? `roles: ${who.roles.join(", ")}` : "no roles"].join("; ");
  $("log-out").hidden = !who.session;
  for (const [name, right] of PARTS) document.querySelector(`nav [data-part="${name}"]`)?.toggleAttribute("hidden", ![right].flat().some(has));
}

$("log-out").addEventListener("click", async () => {
  await send("DELETE", "/v1/session");
  document.dispatchEvent(new Event("left"));
  location.assign("login");
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which part is shown
  $("main").focus();
});

addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const part = { o: "", j: "jobs", a: "apps", n: "nodes", q: "queues", c: "calendar", i: "idle", s: "submit" }[event.key];
  if (event.key === "/") {
    event.preventDefault();
    $("search")?.focus();
  } else if (event.key === "?") $("keys").showModal();
  else if (part !== undefined) location.hash = `#/${part}`;
});

const PART = "mesos_gpu part"; // the page to log in keeps there which part was wanted
if (sessionStorage.getItem(PART)) {
  if (!location.hash) history.replaceState(null, "", sessionStorage.getItem(PART));
  sessionStorage.removeItem(PART);
}
addEventListener("hashchange", () => go(true));
document.addEventListener("visibilitychange", () => document.hidden || go());
document.addEventListener("changed", () => go());
document.addEventListener("redraw", draw);
setInterval(showAge, 1000);
addEventListener("offline", showAge);
addEventListener("online", () => go());
go();
