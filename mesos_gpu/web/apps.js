// Services: the list, and one of them with its deployments.

import { get, mayApp, send } from "./api.js";
import { crash, crashFacts, lastExit, lastLines } from "./crash.js";
import { ago, badge, clock, facts, h, link, many, mib, section, span, table, to } from "./dom.js";
import { action } from "./dialog.js";
import { pageOf, pages, searchBox, sortedBy, sorting } from "./lists.js";

const DEPLOYMENTS = "/v2/deployments?embed=waiting";

export const list = {
  title: () => "Apps",
  whole: true,
  async load() {
    const [{ apps }, deployments] = await Promise.all([get("/v2/apps?embed=apps.counts&embed=apps.ends"), get(DEPLOYMENTS)]);
    return { apps, deployments };
  },
  view({ apps, deployments }, { query, turn }) {
    const wanted = (query.get("q") ?? "").toLowerCase();
    const shown = sortedBy(apps.filter((app) => `${app.id} ${runs(app)}`.toLowerCase().includes(wanted)), KEYS, query);
    const { items, at } = pageOf(shown, query);
    const rows = items.map((app) => Object.assign([
      link(to.app(app.id), app.id), badge(whole(app) ? "running" : "pending", `${app.tasksRunning} of ${app.instances}`),
      checked(app) ? badge(app.tasksUnhealthy ? "failed" : "running", `${app.tasksHealthy} of ${app.tasksRunning}`) : "",
      crash(app) ? h("span", { class: "state failed", title: lastExit(crash(app)) }, crash(app).inARow) : "", gpusOf(app) ? `${app.instances}×${gpusOf(app)}` : "", span((Date.now() - Date.parse(app.version)) / 1000),
      h("div", { class: "lines" }, changing(app, deployments).join("; ")), h("div", { class: "lines", title: runs(app) }, runs(app)),
    ], { key: app.id }));
    return [h("h2", { key: "head" }, "Apps"), h("div", { class: "filters", key: "filters" }, searchBox("Search apps", query, turn)),
      table([["App"], ["Running"], ["Healthy"], ["Restarts", "n"], ["GPUs", "n"], ["Changed", "n"], ["Deployment", "message"], ["Runs", "message"]], rows, { caption: "Apps", empty: query.get("q") ? "No app matches the search." : ["No apps yet. Start one from a template: ", link("#/submit", "Submit"), ", or: ", h("code", {}, "mesos-gpu app create FILE")], ...sorting(KEYS, query, turn) }),
      pages(shown.length, at, turn)];
  },
};

const KEYS = { App: (app) => app.id, Running: (app) => app.tasksRunning - app.instances, Healthy: (app) => -app.tasksUnhealthy, Restarts: (app) => -(crash(app)?.inARow ?? 0), GPUs: (app) => app.instances * gpusOf(app), Changed: (app) => -Date.parse(app.version) };

const runs = (app) => app.container?.docker?.image ?? app.cmd ?? (app.args ?? []).join(" ");
const checked = (app) => (app.healthChecks ?? []).length > 0;
const whole = (app) => app.tasksRunning === app.instances && (!checked(app) || app.tasksHealthy === app.instances);

function gpusOf(app) { // as limits count them; a label is for clients that send whole numbers only
  const gpus = app.gpus === 1 ? Number(app.labels?.GPU_SHARE) || 1 : app.gpus ?? 0, percent = app.gpu?.compute_pct ?? null;
  if (percent === null) return gpus;
  return Math.round(Math.ceil(gpus) * Math.max(percent / 100, gpus < 1 ? gpus : 0) * 1000) / 1000;
}

function changing(app, deployments) {
  return deployments.filter((each) => each.affectedApps.includes(app.id)).map((each) => `step ${each.currentStep} of ${each.totalSteps}${each.waiting[app.id] ? `: ${each.waiting[app.id]}` : ""}`);
}

export const one = {
  title: ({ id }) => id,
  async load({ id }) {
    const path = `/v2/apps/${id.replace(/^\//, "").split("/").map(encodeURIComponent).join("/")}`;
    const [{ app }, { versions }, deployments] = await Promise.all([
      get(`${path}?embed=app.counts&embed=app.tasks&embed=app.lastTaskFailure&embed=app.ends`), get(`${path}/versions`), get(DEPLOYMENTS),
    ]);
    return { path, app, versions, lines: await lastLines(app), deployments: deployments.filter((each) => each.affectedApps.includes(app.id)) };
  },
  view({ path, app, versions, lines, deployments }) {
    const may = mayApp("write", app.id), failure = app.lastTaskFailure;
    return [
      h("div", { class: "head", key: "head" }, h("h2", {}, app.id, " ", badge(whole(app) ? "running" : "pending", `${app.tasksRunning} of ${app.instances} run`), " ", crash(app) ? badge("failed", `ended ${many(crash(app).inARow, "time")} in a row`) : null), may ? buttons(path, app) : null),
      deployments.length ? section("Deployments", deployments.map((each) => progress(each, app, may))) : null,
      section("About", facts([
        ["Runs", runs(app)], ["Instances", `${app.instances} wanted, ${app.tasksStaged ?? 0} starting, ${app.tasksRunning} running${checked(app) ? `, ${app.tasksHealthy} healthy, ${app.tasksUnhealthy} not` : ""}`],
        ["Each asks for", `${many(gpusOf(app), "GPU")}, ${many(app.cpus, "CPU")}, ${mib(app.mem)}`], ["User", app.user], ["Queue", app.gpu?.queue ? link(to.queue(app.gpu.queue), app.gpu.queue) : null],
        ["Changed", `${ago(Date.parse(app.version) / 1000)} ago`],
        ...crashFacts(app, lines),
        ["Last failure", failure && !crash(app) ? `${ago(Date.parse(failure.timestamp) / 1000)} ago on ${failure.host}: ${failure.message}` : null],
      ])),
      instances(app), earlier(path, app, versions, may),
    ];
  },
};

function buttons(path, app) {
  return h("span", { class: "buttons" },
    action("Scale", { title: `Scale ${app.id}`, fields: [{ name: "instances", label: "Instances", type: "number", min: 0, max: 20000, value: app.instances, required: true }], act: ({ instances }) => send("PUT", path, { instances: Number(instances) }), done: "The deployment has begun." }),
    action("Restart", { title: `Restart ${app.id}?`, text: "Its instances are replaced one after the other, as its upgrade strategy says.", act: () => send("POST", `${path}/restart`), done: "The deployment has begun." }),
    app.instances ? action("Stop", { title: `Stop ${app.id}?`, text: "It is scaled to no instance; its definition stays.", danger: true, act: () => send("PUT", path, { instances: 0 }), done: "The deployment has begun." }) : null);
}

const ACTIONS = { StartApplication: "start", ScaleApplication: "scale", RestartApplication: "replace the instances of", StopApplication: "stop" };

function progress(each, app, may) {
  const path = `/v2/deployments/${encodeURIComponent(each.id)}`, waits = each.waiting[app.id];
  return h("div", { class: "deployment", key: each.id },
    h("p", {}, each.totalSteps > 1 ? h("progress", { max: each.totalSteps, value: each.currentStep - 1, "aria-label": `Steps of the deployment` }) : null, ` step ${each.currentStep} of ${each.totalSteps}: `,
      each.currentActions.map((now) => `${ACTIONS[now.action] ?? now.action} ${now.app}`).join(", "), each.undoes ? `, which undoes deployment ${each.undoes}` : "", waits ? `; ${waits}` : "", each.overdue?.includes(app.id) ? h("span", {}, " ", badge("failed", "overdue")) : null),
    renewed(app),
    may ? h("p", { class: "buttons" },
      action("Roll back", { title: "Roll this deployment back?", text: "Another deployment returns to what was before it.", act: () => send("DELETE", path), done: "It is rolled back." }),
      action("Stop here", { title: "Stop this deployment where it is?", text: "What it has done stays; nothing more is done.", danger: true, act: () => send("DELETE", `${path}?force=true`), done: "It is stopped." })) : null);
}

function isEarlier(task, app) {
  return task.version !== app.version && task.version !== app.versionInfo?.lastConfigChangeAt;
}

function renewed(app) { // how far an upgrade has come
  const tasks = app.tasks ?? [], earlier = tasks.filter((task) => isEarlier(task, app)).length;
  if (!earlier) return null;
  const fresh = tasks.filter((task) => !isEarlier(task, app) && task.state === "TASK_RUNNING").length;
  return h("p", {}, h("progress", { max: app.instances || 1, value: fresh, "aria-label": "Instances of the new version" }), ` ${fresh} of ${app.instances} instances run the new version, ${earlier} an earlier one`);
}

function instances(app) {
  const rows = (app.tasks ?? []).map((task) => {
    const alive = (task.healthCheckResults ?? []).map((result) => result.alive);
    return Object.assign([
      link(to.job(task.id), task.id), badge(task.state === "TASK_RUNNING" ? "running" : "pending", task.state.replace("TASK_", "").toLowerCase()), link(to.node(task.host), task.host),
      alive.length ? badge(alive.every(Boolean) ? "running" : "failed", alive.every(Boolean) ? "healthy" : "not healthy") : "", (task.ports ?? []).join(" "), task.startedAt ? ago(Date.parse(task.startedAt) / 1000) : "",
      isEarlier(task, app) ? "an earlier version" : "",
    ], { key: task.id });
  });
  const ends = crash(app), latest = ends ? link(to.job(ends.last.taskId), ends.last.taskId) : null;
  const empty = ends ? ["None runs. The latest one, ", latest, `, ended ${lastExit(ends)}`] : app.instances ? "None runs yet." : "None is wanted: scale the app to start some.";
  return section("Instances", table([["Instance", "cut"], ["State"], ["Host"], ["Health"], ["Ports"], ["Runs for", "n"], ["Version"]], rows, { caption: "Instances", empty }));
}

function earlier(path, app, versions, may) {
  const rows = versions.slice(0, 20).map((version) => Object.assign([
    clock(Date.parse(version) / 1000), version === app.version ? "now" : "",
    may && version !== app.version ? action("Return to it", { title: `Return ${app.id} to its version of ${clock(Date.parse(version) / 1000)}?`, text: "A deployment replaces its instances.", act: () => send("PUT", path, { version }), done: "The deployment has begun." }) : "",
  ], { key: version }));
  return section("Versions", table([["Version"], ["In force"], ["Actions", "actions"]], rows, { caption: "Versions" }));
}
