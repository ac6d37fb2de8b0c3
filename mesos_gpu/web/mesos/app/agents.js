// Agents, and what of each is in use.

import { badge, clock, facts, h, link, mib, section, table } from "./dom.js";
import { pageOf, pages, searchBox, sortedBy, sorting } from "./lists.js";
import { number, placeOf } from "./overview.js";
import { taskTable, toTask } from "./tasks.js";

const KEYS = {
  Agent: (agent) => agent.host, State: (agent) => agent.state, "GPUs in use": (agent) => agent.used.gpus ?? 0, GPUs: (agent) => agent.total.gpus ?? 0,
  "CPUs in use": (agent) => agent.used.cpus ?? 0, "Memory in use": (agent) => agent.used.mem ?? 0, Tasks: activeOf, Registered: (agent) => agent.registered_time ?? null,
};

export const list = {
  title: () => "Agents",
  view({ agents }, { query, turn }) {
    const wanted = (query.get("q") ?? "").toLowerCase();
    const found = agents.filter((agent) => [agent.host, agent.id, agent.state, attributesOf(agent)].some((text) => text.toLowerCase().includes(wanted)));
    const { items, at } = pageOf(sortedBy(found, KEYS, query), query);
    const rows = items.map((agent) => Object.assign([
      link(toAgent(agent), agent.host), badge(agent.state), number(agent.used.gpus ?? 0), number(agent.total.gpus ?? 0), `${number(agent.used.cpus ?? 0)} of ${number(agent.total.cpus ?? 0)}`,
      `${mib(agent.used.mem ?? 0)} of ${mib(agent.total.mem ?? 0)}`, activeOf(agent), agent.registered_time ? clock(agent.registered_time) : "", attributesOf(agent),
    ], { key: agent.id }));
    return [h("h2", { key: "head" }, "Agents"), h("div", { class: "filters", key: "filters" }, searchBox("Search agents", query, turn)),
      table([["Agent"], ["State"], ["GPUs in use", "n"], ["GPUs", "n"], ["CPUs in use", "n"], ["Memory in use", "n"], ["Tasks", "n"], ["Registered"], ["Attributes", "message"]], rows, { caption: "Agents", empty: "No agents: start one with --master and this master's address.", ...sorting(KEYS, query, turn) }),
      pages(found.length, at, turn)];
  },
};

/** The address of an agent's part of the page. */
export function toAgent(agent) {
  return `#/agents/${encodeURIComponent(agent.id)}`;
}

function activeOf(agent) {
  return agent.tasks.filter((task) => task.group === "active").length;
}

function attributesOf(agent) {
  return Object.entries(agent.attributes ?? {}).map(([name, value]) => `${name}=${value}`).join(" ");
}

export const one = {
  title: ({ ids }, cluster) => cluster?.agents.find((each) => each.id === ids[0])?.host ?? "Agent",
  view({ agents }, { ids, query, turn }) {
    const agent = agents.find((each) => each.id === ids[0]);
    if (!agent) return [h("h2", {}, "The master has no such agent"), h("p", {}, "It was removed or is unreachable: ", link("#/agents", "to the agents"))];
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, agent.host, " ", badge(agent.state))),
      section("GPUs", gpus(agent)),
      section("Resources", resources(agent)),
      section("About", facts([
        ["Id", agent.id], ["Address", agent.pid], ["Version", agent.version], ["Registered", agent.registered_time ? clock(agent.registered_time) : null], ["Registered again", agent.reregistered_time ? clock(agent.reregistered_time) : null],
        ["Attributes", attributesOf(agent)], ["Region and zone", placeOf(agent.domain)], ["Drained", agent.drain_info ? drained(agent.drain_info) : null], ["Capabilities", agent.capabilities?.join(" ")],
      ])),
      section("Tasks", ...taskTable(agent.tasks, query, turn, { without: "Agent" })),
    ];
  },
};

function drained({ state, config }) {
  const limit = config?.max_grace_period ? `; tasks are killed after ${config.max_grace_period.nanoseconds / 1e9} s` : "";
  return `${String(state).toLowerCase()}${limit}${config?.mark_gone ? "; removed when all tasks have ended" : ""}`;
}

/** Who holds GPUs of an agent. Mesos counts them; labels of mesos_gpu name the cards. */
function gpus(agent) {
  const total = agent.total.gpus ?? 0;
  if (!total) return h("p", { class: "empty" }, "This agent has no GPUs.");
  const rows = agent.tasks.filter((task) => task.group === "active" && (task.gpus || task.cards.length)).map((task) => Object.assign([
    link(toTask(task), task.name || task.id), task.share ? `${task.share} of ${task.cards.length}` : number(task.gpus), task.cards.join(", ") || "not said",
  ], { key: task.id }));
  return [h("p", { key: "sum" }, `${number(agent.used.gpus ?? 0)} of ${number(total)} in use`, agent.attributes?.gpu_model ? ` · ${agent.attributes.gpu_model}` : ""),
    table([["Task"], ["GPUs", "n"], ["Cards", "message"]], rows, { caption: "Tasks that hold GPUs", empty: "No task holds one." })];
}

function resources(agent) {
  const kinds = Object.keys(agent.total).sort(), reserved = Object.entries(agent.reserved_resources ?? {});
  const words = (kind, amount) => (amount === undefined || amount === 0 || amount === "" ? "" : ["mem", "disk"].includes(kind) ? mib(amount) : typeof amount === "number" ? number(amount) : String(amount));
  const rows = kinds.map((kind) => Object.assign([
    kind, words(kind, agent.total[kind]), words(kind, agent.used[kind]), words(kind, agent.offered[kind]),
    reserved.filter(([, amounts]) => amounts[kind]).map(([role, amounts]) => `${role}: ${words(kind, amounts[kind])}`).join("; "),
  ], { key: kind }));
  return table([["Resource"], ["Total", "message"], ["In use", "message"], ["Offered", "message"], ["Reserved", "message"]], rows, { caption: "Resources" });
}
