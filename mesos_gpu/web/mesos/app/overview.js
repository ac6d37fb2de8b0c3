// The whole cluster at a glance.

import { sumOf, wordOf } from "./cluster.js";
import { clock, facts, h, link, many, mib, section, table } from "./dom.js";

const NOW = ["staging", "starting", "running", "killing", "unreachable"];
const ENDED = ["finished", "failed", "killed", "lost", "error", "dropped", "gone"];

export const title = () => "Overview";

export function view({ about, metrics, agents, frameworks, tasks }) {
  const active = tasks.filter((task) => task.group === "active");
  return [
    section("Now", h("dl", { class: "tiles" },
      tile("GPUs", ...usage(agents, "gpus", number)), tile("CPUs", ...usage(agents, "cpus", number)), tile("Memory", ...usage(agents, "mem", mib)), tile("Disk", ...usage(agents, "disk", mib)),
      tile("Agents", about.activated_slaves, [about.deactivated_slaves && `${about.deactivated_slaves} inactive`, about.unreachable_slaves && `${about.unreachable_slaves} unreachable`, about.recovered_slaves?.length && `${about.recovered_slaves.length} not back yet`].filter(Boolean).join(", ") || "all are active"),
      tile("Tasks", active.length, `${many(frameworks.filter((each) => each.state === "active").length, "active framework")}`))),
    about.unreachable_slaves ? h("p", { class: "message", key: "unreachable" }, `${many(about.unreachable_slaves, "agent is", "agents are")} unreachable. The master lists no such agents; `, link("#/tasks?state=unreachable", "their tasks"), " are unreachable, too.") : null,
    section("Master", facts([
      ["Cluster", about.cluster], ["Leader", about.leader_info ? `${about.leader_info.hostname}:${about.leader_info.port}` : "none"], ["Version", about.version], ["Commit", about.git_sha?.slice(0, 12)], ["Built", about.build_time ? clock(about.build_time) : null],
      ["Started", clock(about.start_time)], ["Elected", about.elected_time ? clock(about.elected_time) : null], ["Id", about.id], ["Region and zone", placeOf(about.domain)],
      ["Registry", about.flags?.registry], ["ZooKeeper", about.flags?.zk?.replace(/\/\/[^@/]*@/, "//")], ["Asks for names", about.flags ? (about.flags.authenticate_http_readonly === "true" ? "yes" : "no") : null],
    ])),
    section("Tasks", table([["State"], ["Tasks", "n"], ["Counted"]], [...NOW.map((state) => [state, "now"]), ...ENDED.map((state) => [state, "since this master started"])]
      .map(([state, counted]) => Object.assign([wordOf(state), metrics[`master/tasks_${state}`] ?? "", counted], { key: state }))
      .filter(([, count]) => count), { caption: "Tasks by state", empty: "No task has run since this master started." })),
  ];
}

function tile(name, value, says) {
  return h("div", { class: "tile", key: name }, h("dt", {}, name), h("dd", {}, value), says ? h("dd", { class: "soft" }, says) : null);
}

function usage(agents, kind, words) {
  const total = sumOf(agents, "total", kind), used = sumOf(agents, "used", kind);
  return [words(used), `of ${words(total)} in use`];
}

/** An amount, to three decimals as Mesos counts it. */
export function number(amount) {
  return String(Math.round(amount * 1000) / 1000);
}

/** A fault domain in words; null if there is none. */
export function placeOf(domain) {
  const at = domain?.fault_domain;
  return at ? `${at.region?.name}, ${at.zone?.name}` : null;
}
