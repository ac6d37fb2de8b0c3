// Nodes and their cards.

import { get, getIf, has, send } from "./api.js";
import { past, use } from "./charts.js";
import { ago, badge, clock, facts, h, link, mib, section, table, to } from "./dom.js";
import { action } from "./dialog.js";
import { changed, changesOf } from "./jobs.js";
import { PAGE, pageIn, pages, searchBox, sorting } from "./lists.js";

export const REASON = { name: "reason", label: "Reason", required: true, maxlength: 200 };
export const DEADLINE = { name: "hours", label: "Hours until jobs are ended (empty: they may run on)", type: "number", min: 0, step: "any" };

const ORDERS = { Node: "hostname", State: "state", GPUs: "gpus", Allocated: "used", "Not healthy": "sick", Tasks: "tasks" };
export const list = {
  title: () => "Nodes",
  async load({ query }) {
    const asked = new URLSearchParams({ limit: PAGE, skip: PAGE * (pageIn(query) - 1) });
    if (query.get("q")) asked.set("search", query.get("q"));
    if (query.get("sort") in ORDERS) asked.set("order", ORDERS[query.get("sort")]);
    if (query.get("down") === "true") asked.set("descending", "true");
    return { listed: await get(`/v1/nodes?${asked}`) };
  },
  view({ listed: { nodes, total } }, { query, turn }) {
    const rows = nodes.slice(0, PAGE).map((node) => Object.assign([ // an earlier scheduler answers with all
      link(to.node(node.hostname), node.hostname), badge(stateOf(node)), node.gpus_total, node.gpus_used, node.gpus_sick || "", node.tasks, node.driver_version ?? "", problemOf(node), buttons(node),
    ], { key: node.agent_id }));
    return [h("h2", { key: "head" }, "Nodes"), h("div", { class: "filters", key: "filters" }, searchBox("Search nodes", query, turn)),
      table([["Node"], ["State"], ["GPUs", "n"], ["Allocated", "n"], ["Not healthy", "n"], ["Tasks", "n"], ["Driver"], ["Remarks", "message"], ["Actions", "actions"]], rows, { caption: "Nodes", sparse: true, empty: query.get("q") ? "No node matches the search." : ["No nodes yet: no agent with GPUs has registered. Check a host: ", h("code", {}, "mesos-gpu doctor")], ...sorting(ORDERS, query, turn) }),
      pages(total ?? nodes.length, pageIn(query), turn)];
  },
};

function stateOf(node) {
  return node.drain && node.state === "up" ? "drained" : node.state;
}

function problemOf(node) {
  return [
    node.drain && `drained${node.drain.by && ` by ${node.drain.by}`}: ${node.drain.reason}`,
    node.volume_problem && `no driver volume: ${node.volume_problem}`,
    node.isolation === "off" && "isolation is OFF: tasks there can use every GPU of the host",
    node.control_ports === "off" && "control ports are open to tasks",
  ].filter(Boolean).join("; ");
}

function buttons(node) {
  if (!has("node:drain")) return null;
  const path = `/v1/nodes/${encodeURIComponent(node.hostname)}/drain`;
  return node.drain
    ? action("Undrain", { title: `Give ${node.hostname} back?`, text: `It was drained: ${node.drain.reason}`, act: () => send("DELETE", path), done: `${node.hostname} takes work again.` })
    : action("Drain", { title: `Drain ${node.hostname}`, text: "No new job starts there.", fields: [REASON, DEADLINE], danger: true, act: (values) => send("POST", path, drainOf(values)), done: `${node.hostname} is drained.` });
}

/** The body of a request for a drain. */
export function drainOf({ reason, hours }) {
  return { reason, deadline_s: hours === "" ? null : Number(hours) * 3600 };
}

export const one = {
  title: ({ id }) => id,
  async load({ id }) {
    const name = encodeURIComponent(id);
    const [{ nodes }, gpus, tasks, used] = await Promise.all([
      get(`/v1/nodes/${name}`), getIf("gpu:see", `/v1/gpus?node=${name}`), getIf("job:see", `/v1/tasks?node=${name}`), has("gpu:see") ? past(`/v1/nodes/${name}/use`) : null,
    ]);
    if (nodes[0].hostname !== id) return one.load({ id: nodes[0].hostname }); // it was called by another name
    return { nodes, gpus: gpus?.gpus ?? [], tasks: tasks?.tasks ?? [], used };
  },
  view({ nodes, gpus, tasks, used }) {
    const node = nodes[0];
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, node.hostname, " ", badge(stateOf(node))), buttons(node)),
      problemOf(node) ? h("p", { class: "message", key: "message" }, problemOf(node)) : null,
      section("Cards", cardTable(gpus)),
      gpus.some((gpu) => gpu.use) ? use(used, { memory_mib: sum(gpus, (gpu) => gpu.memory_mib), power_w: sum(gpus, (gpu) => gpu.use?.power_limit_mw) / 1000 }) : null,
      section("About", facts([
        ["Agents", nodes.map((each) => each.agent_id).join(" ")], ["GPUs", `${node.gpus_used} of ${node.gpus_total} allocated`], ["Driver", node.driver_version], ["CUDA", node.cuda_version],
        ["Driver volume", node.volume], ["Isolation", node.isolation], ["Region and zone", [node.region, node.zone].filter(Boolean).join(", ")],
        ["Attributes", Object.entries(node.attributes).map(([name, value]) => `${name}=${value}`).join(" ")], ["Last report", node.reported_at ? clock(node.reported_at) : null],
        ["Drained since", node.drain ? clock(node.drain.since) : null], ["Jobs are ended at", node.drain?.deadline_at ? clock(node.drain.deadline_at) : null],
      ])),
      section("Tasks", table([["Task", "cut"], ["Name"], ["State"], ["GPUs", "n"], ["Runs for", "n"]], tasks.map((task) => Object.assign([
        task.job_id ? link(to.job(task.job_id), task.id) : task.id, task.name, badge(task.state), task.gpu_ids.length || "", task.started_at ? ago(task.started_at) : "",
      ], { key: task.id })), { caption: "Tasks", empty: "No tasks on this node." })),
    ];
  },
};

function cardTable(gpus) {
  const rows = gpus.map((gpu) => Object.assign([
    link(to.card(gpu.uuid), gpu.index == null ? "absent" : String(gpu.index)), badge(gpu.health), gpu.model, mib(gpu.memory_mib), holders(gpu), busy(gpu.use?.busy_pct), memoryOf(gpu), gpu.use?.temperature_c == null ? "" : `${gpu.use.temperature_c} °C`, [gpu.reason, ...gpu.warnings].filter(Boolean).join("; "),
  ], { key: gpu.uuid }));
  return table([["Index", "named"], ["Health"], ["Model"], ["Memory", "n"], ["Allocated to"], ["Utilization", "n"], ["Memory used", "n"], ["Temperature", "n"], ["Remarks", "message"]], rows, { caption: "Cards", sparse: true, empty: "No GPUs reported yet." });
}

/** A card as HOST:INDEX; one that its driver does not list now, by its UUID. */
function named(gpu) {
  return gpu.index == null ? `${gpu.hostname} ${gpu.uuid}` : `${gpu.hostname}:${gpu.index}`;
}

function sum(all, of) {
  return all.reduce((so_far, each) => so_far + (of(each) ?? 0), 0);
}

function busy(percent) {
  return percent == null ? "" : `${Math.round(percent)} %`;
}

function memoryOf({ use, memory_mib }) {
  return use?.memory_used_mib == null ? "" : h("span", { title: `of ${mib(memory_mib)}` }, mib(use.memory_used_mib));
}

function meters(gpu) { // what its host saw last; null: it does not say
  const now = gpu.use, amount = (value, unit, scale = 1) => (value == null ? null : `${Math.round(value / scale)} ${unit}`);
  if (!now) return null;
  const power = amount(now.power_mw, "W", 1000), clocks = [amount(now.sm_clock_mhz, "MHz"), amount(now.memory_clock_mhz, "MHz, memory")].filter(Boolean).join("; ");
  return facts([
    ["Utilization, last minute", busy(now.busy_pct)], ["Memory used", memoryOf(gpu) || null], ["Power", power && now.power_limit_mw ? `${power} of ${amount(now.power_limit_mw, "W", 1000)}` : power],
    ["Temperature", [amount(now.temperature_c, "°C"), amount(now.memory_temperature_c, "°C, memory")].filter(Boolean).join("; ")], ["Clocks", clocks], ["Processes", now.processes], ["Last XID", now.xid],
    ["PCIe", now.pcie_tx_kib_s == null ? null : `${now.pcie_tx_kib_s} KiB/s out, ${now.pcie_rx_kib_s ?? "?"} in`], ["Rows remapped", now.uncorrectable_rows == null ? null : `${now.correctable_rows ?? "?"} correctable, ${now.uncorrectable_rows} not`],
  ]);
}

function holders(gpu) {
  if (!gpu.sharing) return gpu.job_id ? jobLink(gpu) : gpu.task_id ?? (gpu.health === "ok" ? "free" : "nobody");
  const free = `${gpu.sharing.free_compute_pct} % free${gpu.sharing.state === "uncovered" ? ", uncovered" : ""}`;
  return h("span", {}, gpu.shares.map((share) => [jobLink(share), ` ${share.compute_pct} %, `]), free);
}

function jobLink(held) {
  return held.job_id === "***" || !held.job_id ? held.job_name ?? "somebody else" : link(to.job(held.job_id), held.job_name ?? held.job_id);
}

const notes = new Map(); // what is on record of a card, by its id and its history's length

export const card = {
  title: ({ id }) => `Card ${id}`,
  async load({ id }) {
    const path = `/v1/gpus/${encodeURIComponent(id)}`, [gpu, used] = await Promise.all([get(path), past(`${path}/use`)]), key = `${gpu.uuid} ${gpu.history.length}`;
    if (!notes.has(key)) {
      notes.clear();
      notes.set(key, await changesOf(path));
    }
    return { gpu, changes: notes.get(key), used };
  },
  view({ gpu, changes, used }) {
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, `${named(gpu)} `, badge(gpu.health)), cardButtons(gpu)),
      gpu.reason ? h("p", { class: "message", key: "message" }, gpu.reason) : null,
      section("About", facts([
        ["UUID", gpu.uuid], ["Model", gpu.model], ["Memory", mib(gpu.memory_mib)], ["Node", link(to.node(gpu.hostname), gpu.hostname)], ["Allocated to", holders(gpu)],
        ["Index", gpu.index], ["Minor", gpu.minor], ["Bus id", gpu.pci_bus_id], ["NUMA node", gpu.numa_node], ["Compute capability", gpu.compute_capability], ["Since", gpu.since ? clock(gpu.since) : null],
        ["Its node says", gpu.node_health === gpu.health ? null : `${gpu.node_health}${gpu.node_reason ? `: ${gpu.node_reason}` : ""}`], ["Warnings", gpu.warnings.join("; ")],
        ["Reset", gpu.reset ? `asked ${ago(gpu.reset.since)} ago: ${gpu.reset.reason}` : null], ["Jobs are ended at", gpu.drain?.deadline_at ? clock(gpu.drain.deadline_at) : null],
      ])),
      gpu.shares.length ? shares(gpu) : null,
      gpu.use ? section("Meters", meters(gpu)) : null,
      gpu.use ? use(used, { memory_mib: gpu.memory_mib, power_w: gpu.use.power_limit_mw === null ? null : gpu.use.power_limit_mw / 1000 }) : null,
      section("History", table([["At"], ["Was"], ["Became"], ["Reason", "message"]], [...gpu.history].reverse().map((each) => [clock(each.at), badge(each.old), badge(each.new), each.reason]), { caption: "History of its health", empty: "No change is known." })),
      changed(changes),
    ];
  },
};

function shares(gpu) {
  const rows = gpu.shares.map((share) => Object.assign([
    jobLink(share), `${share.compute_pct} %`, `${share.memory_mib} MiB`, share.used?.memory_mib === null || !share.used ? "not known" : `${share.used.memory_mib} MiB`,
    share.method, `memory ${share.guarantee.memory}, compute ${share.guarantee.compute}, faults ${share.guarantee.faults}`, share.used?.problem ?? "",
  ], { key: share.task_id }));
  return section("Shares", table([["Job"], ["Compute", "n"], ["Memory", "n"], ["Uses", "n"], ["Method"], ["Enforced by", "message"], ["Problem", "message"]], rows, { caption: "Shares" }));
}

function cardButtons(gpu) {
  const path = `/v1/gpus/${encodeURIComponent(gpu.uuid)}`, name = named(gpu);
  const drained = gpu.drain && gpu.drain.target === "gpu";
  return h("span", { class: "buttons" },
    has("gpu:drain") && drained ? action("Undrain", { title: `Give ${name} back?`, text: `It was drained: ${gpu.drain.reason}`, act: () => send("DELETE", `${path}/drain`), done: `${name} takes work again.` }) : null,
    has("gpu:drain") && !gpu.drain ? action("Drain", { title: `Drain ${name}`, text: "It gets no new work.", fields: [REASON, DEADLINE], danger: true, act: (values) => send("POST", `${path}/drain`, drainOf(values)), done: `${name} gets no new work.` }) : null,
    has("gpu:reset") && !gpu.reset && !gpu.task_id && !gpu.shares.length ? action("Reset", { title: `Reset ${name}?`, text: "Its node resets the card; no job may hold it.", fields: [REASON], danger: true, act: ({ reason }) => send("POST", `${path}/reset`, { reason }), done: "Its node is asked to reset it." }) : null);
}
