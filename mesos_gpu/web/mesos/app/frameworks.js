// Frameworks, active and completed.

import { badge, clock, facts, h, link, mib, section, span, table } from "./dom.js";
import { pageOf, pages, searchBox, sortedBy, sorting } from "./lists.js";
import { number } from "./overview.js";
import { labelTable, taskTable } from "./tasks.js";

const KEYS = {
  Framework: (each) => each.name, State: (each) => each.state, User: (each) => each.user, Tasks: activeOf, GPUs: (each) => each.used.gpus ?? 0,
  CPUs: (each) => each.used.cpus ?? 0, Memory: (each) => each.used.mem ?? 0, Registered: (each) => each.registered_time,
};

export const list = {
  title: () => "Frameworks",
  view({ frameworks }, { query, turn }) {
    const wanted = (query.get("q") ?? "").toLowerCase();
    const found = frameworks.filter((each) => [each.name, each.id, each.state, each.user ?? ""].some((text) => text.toLowerCase().includes(wanted)));
    const { items, at } = pageOf(sortedBy(found, KEYS, query), query);
    const rows = items.map((each) => Object.assign([
      link(toFramework(each), each.name || each.id), badge(each.state), web(each, "open"), each.user ?? "", each.roles.join(", "), activeOf(each), number(each.used.gpus ?? 0), number(each.used.cpus ?? 0), mib(each.used.mem ?? 0), each.registered_time ? clock(each.registered_time) : "",
    ], { key: each.id }));
    return [h("h2", { key: "head" }, "Frameworks"), h("div", { class: "filters", key: "filters" }, searchBox("Search frameworks", query, turn)),
      table([["Framework"], ["State"], ["Page"], ["User"], ["Roles"], ["Tasks", "n"], ["GPUs", "n"], ["CPUs", "n"], ["Memory", "n"], ["Registered"]], rows, { caption: "Frameworks", empty: "No framework has registered.", ...sorting(KEYS, query, turn) }),
      pages(found.length, at, turn)];
  },
};

/** The address of a framework's part of the page. */
export function toFramework(framework) {
  return `#/frameworks/${encodeURIComponent(framework.id)}`;
}

function activeOf(framework) {
  return framework.tasks.filter((task) => task.group === "active").length;
}

/** A URL of a framework's own page; null if it has none that a browser may open: its name is the framework's to choose. */
export function webOf({ webui_url }) {
  const url = URL.canParse(webui_url ?? "") ? new URL(webui_url) : null;
  return url && ["http:", "https:"].includes(url.protocol) ? url.href.replace(/\/$/, "") : null;
}

function web(framework, text) {
  const url = webOf(framework);
  return url ? link(url, text ?? url, { rel: "noreferrer" }) : framework.webui_url || null;
}

export const one = {
  title: ({ ids }, cluster) => cluster?.frameworks.find((each) => each.id === ids[0])?.name || "Framework",
  view({ frameworks }, { ids, query, turn }) {
    const framework = frameworks.find((each) => each.id === ids[0]);
    if (!framework) return [h("h2", {}, "The master has no such framework"), h("p", {}, link("#/frameworks", "to the frameworks"))];
    const time = (moment) => (moment ? clock(moment) : null), { used } = framework;
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, framework.name || framework.id, " ", badge(framework.state))),
      section("About", facts([
        ["Page", web(framework)], ["Id", framework.id], ["User", framework.user], ["Principal", framework.principal], ["Roles", framework.roles.join(", ")], ["Host", framework.hostname],
        ["In use", `${number(used.gpus ?? 0)} GPUs, ${number(used.cpus ?? 0)} CPUs, ${mib(used.mem ?? 0)}`], ["Registered", time(framework.registered_time)], ["Registered again", time(framework.reregistered_time)], ["Ended", time(framework.unregistered_time)],
        ["Failover timeout", framework.failover_timeout === undefined ? null : span(framework.failover_timeout)], ["Checkpoints", framework.checkpoint ? "yes" : "no"], ["Capabilities", framework.capabilities?.join(" ")],
      ])),
      framework.labels?.length ? section("Labels", labelTable(framework.labels.map(({ key, value }) => [key, value ?? ""]))) : null,
      section("Tasks", ...taskTable(framework.tasks, query, turn, { without: "Framework" })),
    ];
  },
};
