// Tasks, those that run and those that have ended.

import { toAgent } from "./agents.js";
import { badge, clock, facts, h, link, mib, section, span, table } from "./dom.js";
import { toFramework, webOf } from "./frameworks.js";
import { pageOf, pages, searchBox, sortedBy, sorting } from "./lists.js";
import { number } from "./overview.js";
import { sandbox } from "./sandbox.js";
import { wordOf } from "./cluster.js";

const GROUPS = ["active", "unreachable", "completed", "all"];
const KEYS = {
  Task: (task) => task.name || task.id, State: (task) => task.state, Agent: (task) => task.host, GPUs: (task) => task.gpus, CPUs: (task) => task.cpus, Memory: (task) => task.mem_mib,
  Framework: (task) => task.framework.name, Started: (task) => task.began_at, Ran: (task) => ranOf(task),
};
const KINDS = { GPUs: "n", CPUs: "n", Memory: "n", Ran: "n" };

export const list = {
  title: () => "Tasks",
  view({ tasks }, { query, turn }) {
    return [h("h2", { key: "head" }, "Tasks"), ...taskTable(tasks, query, turn)];
  },
};

/** The address of a task's part of the page. */
export function toTask(task) {
  return `#/tasks/${encodeURIComponent(task.framework.id)}/${encodeURIComponent(task.id)}`;
}

function ranOf({ began_at, ended_at }) {
  return began_at === null ? null : (ended_at ?? Date.now() / 1000) - began_at;
}

/** Tasks with what chooses among them: a group of states, words, an order, a page. `without`: a column that is left out. */
export function taskTable(tasks, query, turn, { without } = {}) {
  const group = GROUPS.includes(query.get("state")) ? query.get("state") : "active", wanted = (query.get("q") ?? "").toLowerCase();
  const counts = { all: tasks.length, active: 0, unreachable: 0, completed: 0 };
  for (const task of tasks) counts[task.group] += 1;
  const choose = GROUPS.map((each) => h("button", { type: "button", "aria-pressed": String(each === group), onclick: () => turn({ state: each === "active" ? null : each, page: null }) }, `${each} ${counts[each]}`));
  const found = tasks.filter((task) => (group === "all" || task.group === group) && [task.name, task.id, task.host, task.state, task.framework.name].some((text) => text.toLowerCase().includes(wanted)));
  const { items, at } = pageOf(sortedBy(found, KEYS, query), query);
  const columns = Object.keys(KEYS).filter((name) => name !== without);
  const rows = items.map((task) => Object.assign(columns.map((name) => CELLS[name](task)), { key: `${task.framework.id} ${task.agent_id} ${task.id} ${task.group}` }));
  return [
    h("div", { class: "filters", key: "filters" }, searchBox("Search tasks", query, turn), h("div", { role: "group", "aria-label": "Which tasks" }, choose)),
    table(columns.map((name) => [name, KINDS[name] ?? (name === "Task" ? "cut" : "")]), rows, { caption: "Tasks", empty: wanted ? "No such task." : "No tasks.", ...sorting(KEYS, query, turn) }),
    pages(found.length, at, turn),
  ];
}

const CELLS = {
  Task: (task) => link(toTask(task), task.name || task.id, { title: task.id }),
  State: (task) => stateOf(task),
  Agent: (task) => (task.agent ? link(toAgent(task.agent), task.host) : task.host),
  GPUs: (task) => gpusOf(task), CPUs: (task) => number(task.cpus), Memory: (task) => mib(task.mem_mib),
  Framework: (task) => link(toFramework(task.framework), task.framework.name || task.framework.id),
  Started: (task) => (task.began_at === null ? "" : clock(task.began_at)),
  Ran: (task) => (task.began_at === null ? "" : span(ranOf(task))),
};

function stateOf(task) {
  return badge(task.state.replaceAll(" ", "-"), task.state);
}

/** GPUs of a task: a number, or a share of cards as labels of mesos_gpu have it. */
function gpusOf({ gpus, share, cards }) {
  return gpus ? number(gpus) : share ? `${cards.length}×${share}` : "";
}

/** Labels, each with a row. `labels`: [name, value]. */
export function labelTable(labels) {
  return table([["Label"], ["Value", "message"]], labels.map(([name, value]) => Object.assign([name, value], { key: name })), { caption: "Labels" });
}

/** The page of its job in the scheduler of mesos_gpu; null for tasks of others. */
function jobOf(task) {
  const job = task.labels.get("mesos_gpu.job"), url = webOf(task.framework);
  return job && url ? link(`${url}/#/jobs/${encodeURIComponent(job)}`, job, { rel: "noreferrer" }) : null;
}

export const one = {
  title: ({ ids }, cluster) => (cluster && found(cluster, ids)?.name) || ids[1] || "Task",
  view(cluster, { ids, query, turn }) {
    const task = found(cluster, ids);
    if (!task) return [h("h2", {}, "The master has no such task"), h("p", {}, "It keeps 1,000 ended tasks of a framework (--max_completed_tasks_per_framework): ", link("#/tasks", "to the tasks"))];
    const health = task.statuses.at(-1)?.healthy;
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, task.name || task.id, " ", stateOf(task))),
      section("About", facts([
        ["Id", task.id], ["Framework", CELLS.Framework(task)], ["Job", jobOf(task)], ["Agent", CELLS.Agent(task)], ["GPUs", gpusOf(task)], ["Cards", task.cards.join(", ")], ["CPUs", number(task.cpus)], ["Memory", mib(task.mem_mib)],
        ["Ports", task.resources?.ports], ["User", task.user], ["Role", task.role], ["Executor", task.executor], ["Health", health === undefined ? null : health ? "healthy" : "unhealthy"], ["Ran", CELLS.Ran(task)],
      ])),
      sandbox(task, { query, turn, secured: cluster.about.flags?.authenticate_http_readonly === "true", job: jobOf(task) }),
      section("States", table([["State"], ["Since"]], task.statuses.map((each, i) => Object.assign([wordOf(each.state), clock(each.timestamp)], { key: String(i) })), { caption: "States", empty: "It has not started." })),
      task.labels.size ? section("Labels", labelTable([...task.labels])) : null,
    ];
  },
};

function found({ tasks }, [framework, id]) {
  return tasks.find((task) => task.id === id && task.framework.id === framework); // one that runs comes first
}
