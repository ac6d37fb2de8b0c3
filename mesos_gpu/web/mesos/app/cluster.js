// The master's JSON, and the agents, frameworks and tasks that it describes.

const LIMIT_MS = 30000; // an answer must have come by then
const ENDED = new Set(["TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR", "TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_GONE_BY_OPERATOR"]);
export const LEADING = "redirect"; // a master leads who asks for it to the one that leads

/** A refusal, or no answer. `kind`: unreached, standby, unnamed, forbidden, leaderless or broken; `remedy`: a sentence. */
export class Trouble extends Error {
  constructor(kind, message, remedy = "") {
    super(message);
    Object.assign(this, { kind, remedy });
  }
}

const REFUSED = {
  401: ["unnamed", "This master asks for a name and a secret.", "Give the name operator and its secret: `mesos-gpu up --secure` prints the file that has them, and `mesos-gpu install secrets` writes it into its directory operator."],
  403: ["forbidden", "This name has no right to see the cluster.", "The master's access control lists (--acls) name who has."],
  503: ["leaderless", "No master leads now.", "Masters elect a leader as soon as more than half of them reach ZooKeeper and each other."],
};

async function get(path) {
  let response;
  try {
    response = await fetch(path, { redirect: "manual", cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
  } catch (error) {
    throw new Trouble("unreached", error.name === "TimeoutError" ? `The master has not answered within ${LIMIT_MS / 1000} s.` : "The master does not answer.");
  }
  if (response.type === "opaqueredirect") throw new Trouble("standby", "This master does not lead.");
  if (response.ok) return response.json();
  throw new Trouble(...(REFUSED[response.status] ?? ["broken", `The master answers ${path} with status ${response.status}.`]));
}

/** The cluster as it is now. Raises `Trouble`. */
export async function ask() {
  const state = await get("state"); // first: a refusal of this one says why
  return clusterOf(state, await get("metrics/snapshot"));
}

/** The cluster that /state and /metrics/snapshot describe. Of tasks, those that run come first, the newest first. */
export function clusterOf(state, metrics) {
  const agents = new Map(state.slaves.map((slave) => [slave.id, agentOf(slave)]));
  for (const slave of state.recovered_slaves ?? []) if (!agents.has(slave.id)) agents.set(slave.id, agentOf({ ...slave, recovered: true }));
  const frameworks = [
    ...state.frameworks.map((each) => frameworkOf(each, false)),
    ...(state.completed_frameworks ?? []).map((each) => frameworkOf(each, true)),
  ];
  const tasks = frameworks.flatMap((framework) => framework.tasks);
  for (const task of tasks) {
    task.agent = agents.get(task.agent_id) ?? null;
    task.host = task.agent?.host ?? task.agent_id;
    task.agent?.tasks.push(task);
  }
  for (const list of [tasks, ...frameworks.map((each) => each.tasks), ...[...agents.values()].map((each) => each.tasks)]) list.sort(newestFirst);
  return { about: state, metrics, agents: [...agents.values()].sort((a, b) => compared(a.host, b.host)), frameworks, tasks };
}

function compared(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

const ORDER = { active: 0, unreachable: 1, completed: 2 };

function newestFirst(a, b) {
  return ORDER[a.group] - ORDER[b.group] || (b.began_at ?? 0) - (a.began_at ?? 0) || compared(a.id, b.id);
}

function agentOf(slave) {
  const [, ip, port] = /@(.*):(\d+)$/.exec(slave.pid ?? "") ?? [];
  return {
    ...slave, host: slave.hostname, state: agentState(slave), ip: ip ?? null, port: Number(port ?? slave.port),
    total: slave.resources ?? {}, used: slave.used_resources ?? {}, offered: slave.offered_resources ?? {}, tasks: [],
  };
}

function agentState(slave) {
  if (slave.recovered) return "recovered";
  if (slave.drain_info) return String(slave.drain_info.state).toLowerCase(); // draining or drained
  if (slave.deactivated) return "deactivated";
  return slave.active ? "active" : "disconnected";
}

function frameworkOf(given, completed) {
  const framework = { ...given, state: completed ? "completed" : frameworkState(given), roles: given.roles ?? (given.role ? [given.role] : []), used: given.used_resources ?? {} };
  framework.tasks = [["active", given.tasks], ["unreachable", given.unreachable_tasks], ["completed", given.completed_tasks]]
    .flatMap(([group, tasks]) => (tasks ?? []).map((task) => taskOf(task, group, framework)));
  return framework;
}

function frameworkState(given) {
  if (given.active) return "active";
  return given.recovered ? "recovered" : given.connected ? "inactive" : "disconnected";
}

function taskOf(given, group, framework) {
  const statuses = given.statuses ?? [], labels = new Map((given.labels ?? []).map(({ key, value }) => [key, value ?? ""]));
  const ended = ENDED.has(given.state);
  const began = statuses.find((each) => each.state === "TASK_RUNNING") ?? statuses[0];
  return {
    ...given, framework, group, labels, statuses, agent_id: given.slave_id,
    executor: given.executor_id || given.id, // Mesos names the executor of a command so
    state: wordOf(given.state), gpus: given.resources?.gpus ?? 0, cpus: given.resources?.cpus ?? 0, mem_mib: given.resources?.mem ?? 0,
    began_at: began?.timestamp ?? null, ended_at: ended ? statuses.at(-1)?.timestamp ?? null : null, ...cardsOf(labels),
  };
}

/** A state in words: TASK_GONE_BY_OPERATOR is "gone by operator". */
export function wordOf(state) {
  return state.replace(/^TASK_/, "").replaceAll("_", " ").toLowerCase();
}

/** What the labels of mesos_gpu say: the UUIDs of a task's cards, and its share of each. */
function cardsOf(labels) {
  const cards = (labels.get("mesos_gpu.gpus") || labels.get("mesos_gpu.gpu") || "").split(",").filter(Boolean);
  return { cards, share: labels.get("mesos_gpu.share") || null };
}

/** The total of one kind of resource, as "gpus". `amounts`: which of an agent's, as "used". */
export function sumOf(agents, amounts, kind) {
  return agents.reduce((so_far, agent) => so_far + (agent[amounts][kind] ?? 0), 0);
}
