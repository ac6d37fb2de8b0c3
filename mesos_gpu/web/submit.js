// A job, or an app of a template, from a form.

import { get, has, mayJob, send } from "./api.js";
import { volume, words } from "./asked.js";
import { h, link, span, to } from "./dom.js";
import { tell } from "./dialog.js";
import { codeField } from "./upload.js";

const STARTS = {
  "One GPU": { name: "job", command: "nvidia-smi", gpus: 1, tasks: 1 },
  "Training on one node": { name: "train", command: "torchrun --standalone --nproc-per-node 2 train.py", gpus: 2, tasks: 1, max_attempts: 3 },
  "Training on several nodes": { name: "ddp", command: "torchrun train.py", gpus: 1, tasks: 2, max_attempts: 3 },
  "A quarter of a GPU": { name: "notebook", command: "jupyter lab --no-browser --ip 127.0.0.1", gpus: 0.25, tasks: 1 },
};
const FIELDS = [ // [name, label, attributes of the input, unit and hint]
  ["command", "Command", {}, { hint: "a line for /bin/sh; with an image it may be empty", size: "half" }], ["name", "Name", { maxlength: 64, placeholder: "from the command" }], ["image", "Image", {}, { hint: "empty: the files of the host" }],
  ["image_secret", "Image secret", { placeholder: "of the queue" }, { hint: "path of a secret with the registry's login" }],
  ["gpus", "GPUs of each task", { type: "number", min: 0, step: "any", value: 1 }, { hint: "0.25: a share, a quarter of one GPU's memory and compute" }],
  ["gpu_model", "GPU models", {}, { hint: "as A100, RTX 4090; empty: any" }],
  ["tasks", "Tasks", { type: "number", min: 1, value: 1 }, { hint: "all start at once, or none does" }],
  ["cpus", "CPUs of each task", { type: "number", min: 0.001, step: "any", placeholder: "by its GPUs" }], ["cpu_limit", "Most CPUs of each task", { type: "number", min: 0.01, step: "any", placeholder: "as many as are idle" }], ["mem_mib", "Memory of each task", { type: "number", min: 32, placeholder: "by its GPUs" }, { unit: "MiB" }],
  ["disk_mib", "Disk of each task", { type: "number", min: 0, placeholder: "none asked for" }, { unit: "MiB" }],
  ["queue", "Queue", { placeholder: "default" }], ["priority", "Priority", { type: "number", placeholder: "of the queue, or 0" }], ["max_attempts", "Attempts", { type: "number", min: 1, value: 1 }],
  ["timeout_s", "Time limit of each attempt", { type: "number", min: 1, step: "any", placeholder: "none" }, { unit: "s" }], ["notice_s", "Notice before its end", { type: "number", min: 0, step: "any", placeholder: "of the queue" }, { unit: "s" }],
  ["gpu_compute_pct", "Share of each GPU's compute", { type: "number", min: 1, max: 100, placeholder: "whole GPUs" }, { unit: "%", hint: "with the memory of each GPU beside it" }],
  ["gpu_memory_mib", "Memory of each GPU", { type: "number", min: 1, placeholder: "any" }, { unit: "MiB", hint: "of a share: its part; else the least" }],
  ["preemptible", "Preemptible", { type: "checkbox" }, { hint: "jobs of higher priority may end it; it is queued again, without the use of an attempt" }],
];
const LINES = [ // fields with an entry in each line
  ["env", "Environment", "NAME=VALUE in each line"], ["secrets", "Secrets", "NAME=PATH, or NAME=PATH:FILE, in each line"], ["volumes", "Volumes", "HOST:PATH, or name=NAME,path=PATH,size=10GiB, in each line"], ["labels", "Labels", "KEY=VALUE in each line"],
];
const STEPS = { integer: "1", number: "any" }; // of fields of numbers, by the type of a parameter
const UNITS = { mib: "MiB", s: "s", pct: "%", seconds: "s", percent: "%" }; // by the last word of a name
const NAMED = { mem: { label: "Memory", unit: "MiB" }, disk: { label: "Disk", unit: "MiB" }, args: { label: "Arguments" } };
const CAPITALS = new Set(["api", "cpu", "cpus", "gpu", "gpus", "hf", "id", "ip", "shm", "uri", "url"]); // written in capitals
const PLAN_MS = 700; // without another key, until the scheduler is asked for a plan

let known = null; // the templates: they are those of the installation
let sending = false;
let again = { id: null, request: null }; // the job that the form begins with

export const page = {
  title: ({ query }) => query.get("from") ?? "Submit",
  whole: true,
  async load({ query }) {
    if (query.get("again") !== again.id) again = await requestOf(query.get("again"));
    if (!has("app:write")) return { templates: [], without: null };
    try {
      known ??= (await get("/v1/templates")).templates;
    } catch (error) {
      if (error.status !== 503) throw error;
      return { templates: [], without: error.message }; // jobs need none
    }
    return { templates: known, without: null };
  },
  view({ templates, without }, { query, turn }) {
    const from = query.get("from"), jobs = has("job:run"), start = jobs && from !== null && Object.hasOwn(STARTS, from) ? STARTS[from] : null;
    const template = templates.find((each) => each.name === from), head = h("h2", { key: "head" }, "Submit");
    if (!jobs && !has("app:write")) return [head, h("p", {}, "This needs the right job:run or app:write.")];
    const heads = [head, startFrom(templates, jobs, start || template ? from : "", turn), without ? h("p", { key: "without" }, without) : null];
    if (template) return [...heads, h("div", { key: `about ${from}` }, about(template)), templateForm(template)];
    if (from !== null && !start) return [...heads, h("p", {}, `There is no ${from} to start from.`)];
    return jobs ? [...heads, jobForm(from, start)] : [...heads, h("p", {}, "Choose what to start from.")];
  },
};

/** The request that submits a job again, with the values of its environment if they may be seen. */
async function requestOf(id) {
  if (id === null) return { id, request: null };
  const path = `/v1/jobs/${encodeURIComponent(id)}`, job = await get(path);
  try {
    if (mayJob("env", job)) return { id, request: (await get(`${path}/command?show_env=true`)).request };
  } catch (error) {
    if (error.status !== 403) throw error; // where nobody is asked for a name, on the scheduler's own host only
  }
  return { id, request: (await get(`${path}/command`)).request };
}

function startFrom(templates, jobs, from, turn) {
  const option = (name) => h("option", { selected: name === from }, name), of = (kind) => templates.filter((each) => each.kind === kind).map((each) => each.name);
  const groups = [["Jobs", jobs ? Object.keys(STARTS) : []], ["Apps: they are kept running", of("app")], ["Groups of apps", of("group")]];
  const select = document.querySelector("label.fill select"); // keeps what was chosen, unless the address says another
  if (select && select.value !== from) select.value = from;
  return h("label", { key: `fill ${templates.length}`, keeps: true, class: "fill" }, "Start from ", h("select", { onchange: (event) => turn({ from: event.target.value || null, again: null }) },
    h("option", { value: "" }, jobs ? "nothing" : "…"), groups.filter(([, names]) => names.length).map(([label, names]) => h("optgroup", { label }, names.map(option)))));
}

function field(name, label, more, { unit, hint, size } = {}) {
  const input = more.rows ? h("textarea", { name, autocomplete: "off", spellcheck: "false", ...more }, more.value ?? "") : h("input", { name, autocomplete: "off", ...more });
  return h("label", { class: size }, label, h("span", { class: "valued" }, input, unit ? h("span", { class: "unit" }, unit) : null),
    h("span", { class: "wrong bad" }), hint ? h("small", { class: "soft" }, hint) : null);
}

function submitForm(key, fields, button, act, ...more) {
  return h("form", { class: "submit", method: "post", key, keeps: true, onsubmit: (event) => sent(event, act) }, fields, h("p", { class: "buttons" }, h("button", { class: "main" }, button), more));
}

let built = { key: null, form: null }; // the form that is shown: it keeps the files that were chosen

function jobForm(from, start) {
  const key = `${from ?? ""} ${again.id ?? ""}`;
  if (built.key !== key || !built.form.isConnected) built = { key, form: newJobForm(from, start) };
  return built.form;
}

/** The form of a job. What the job before has and no field shows is sent along. */
function newJobForm(from, start) {
  const { id, request } = again, shown = new Set([...FIELDS, ...LINES].map(([name]) => name));
  const before = request ? texts(request) : start ?? {}, carried = Object.entries(request ?? {}).filter(([name]) => !shown.has(name) && !["argv", "upload"].includes(name));
  const code = codeField(request?.upload), said = h("p", { class: "plan wide", role: "status" });
  const about = { carried: Object.fromEntries(carried), argv: request?.argv, code, said, turn: 0 };
  const fields = FIELDS.map(([name, label, more, beside]) => {
    const value = before[name] ?? (request ? undefined : more.value);
    return field(name, label, more.type === "checkbox" ? { ...more, checked: Boolean(value) } : { ...more, value }, beside);
  });
  const lines = LINES.map(([name, label, hint]) => field(name, label, { rows: 2, value: before[name] }, { hint, size: "half" }));
  const form = submitForm(`form ${from ?? ""} ${id ?? ""}`, [
    id ? h("p", { class: "wide" }, "Filled with the fields of ", link(to.job(id), id), ".", carried.length ? ` Kept as they were: ${carried.map(([name]) => name).join(", ")}.` : "") : null,
    fields, lines, code, said,
  ], "Submit", (form) => submitJob(form, about));
  form.oninput = form.onchange = () => planSoon(form, about);
  planSoon(form, about);
  return form;
}

/** The values of a request as its fields have them. */
function texts(request) {
  const pairs = (object, write) => Object.entries(object ?? {}).map(write).join("\n");
  return {
    ...request, command: request.command ?? (request.argv ? words(request.argv) : ""), gpus: request.gpus ?? 0, gpu_model: request.gpu_model?.join(", "),
    env: pairs(request.env, ([name, value]) => (value === HIDDEN ? name : `${name}=${value}`)), labels: pairs(request.labels, ([key, value]) => `${key}=${value}`),
    secrets: pairs(request.secrets, ([name, { source, file }]) => `${name}=${source}${file ? `:${file}` : ""}`), volumes: request.volumes?.map(volume).join("\n"),
  };
}

const HIDDEN = "***"; // a value that is not shown

/** Say what would become of the job, once nothing was written for a moment. */
function planSoon(form, about) {
  const turn = ++about.turn;
  setTimeout(async () => {
    if (turn !== about.turn || !form.isConnected) return;
    const tell = (text, kind = "soft") => turn === about.turn && Object.assign(about.said, { textContent: text, className: `plan wide ${kind}` });
    if (!form.elements.command.value && !form.elements.image.value) return tell("");
    try {
      tell(...fate(await send("POST", "/v1/plan/jobs", bodyOf(form, about))));
    } catch (error) {
      if (!error.refused && !error.unreached) throw error;
      tell(`Not accepted: ${error.message}`);
    }
  }, PLAN_MS);
}

function fate({ verdict, hostnames, reliefs, why }) { // in words, and how they look
  if (verdict === "fits") return [`Fits now on ${hostnames.slice(0, 3).join(", ")}${hostnames.length > 3 ? ` and ${hostnames.length - 3} more` : ""}.`, "good"];
  const summary = why.summary.replace(/\.?$/, ".");
  if (verdict === "waits") {
    const at = why.estimate?.at;
    return [`Would wait${summary.startsWith("waits ") ? summary.slice(5) : `: ${summary}`}${at ? ` It may start in ${span(at - Date.now() / 1000)}.` : ""}`, "soft"];
  }
  const changes = reliefs.map(({ field, value }) => (value === null ? `leave out ${labelOf(field)}` : `${labelOf(field)} at most ${value}`));
  return [`Can never run: ${summary}${changes.length ? ` To fix: ${changes.join(", or ")}.` : ""}`, "bad"];
}

function labelOf(name) {
  return FIELDS.find(([each]) => each === name)?.[1] ?? name;
}

function templateForm(template) {
  const fields = Object.entries(template.parameters).map(([name, each]) => {
    const kind = STEPS[each.type] ? { type: "number", step: STEPS[each.type] } : each.secret ? { type: "password", spellcheck: "false" } : {};
    const value = each.required ? { required: true, placeholder: `as ${each.example}` } : { value: written(each.default) };
    const { label, unit } = NAMED[name] ?? named(name);
    return field(name, each.required ? `${label} (needed)` : label, { ...kind, ...value }, { unit, hint: each.description });
  });
  return submitForm(`form ${template.name}`, fields, "Start", (form) => startTemplate(form, template));
}

/** A parameter's name as words, and the unit that it ends with. */
function named(name) {
  const parts = name.split("_"), unit = parts.length > 1 ? UNITS[parts.at(-1)] : undefined;
  const written = (unit ? parts.slice(0, -1) : parts).map((part) => (CAPITALS.has(part) ? part.replace(/^[a-z]+?(?=s?$)/, (letters) => letters.toUpperCase()) : part)).join(" ");
  return { label: written[0].toUpperCase() + written.slice(1), unit };
}

function about(template) {
  return [h("p", {}, template.about), h("ul", { class: "notes" }, template.notes.map((note) => h("li", {}, worded(note))))];
}

function worded(note) { // what stands between backticks is code
  return note.split("`").map((text, i) => (i % 2 ? h("code", {}, text) : text));
}

function written(value) { // as the field has it
  return Array.isArray(value) ? value.join(",") : `${value ?? ""}`;
}

/** Do what a form is for, once at a time; what is wrong is told, and stands at its fields. */
async function sent(event, act) {
  event.preventDefault();
  const form = event.target;
  if (sending) return;
  sending = true;
  mark(form, []);
  try {
    await act(form);
  } catch (error) {
    mark(form, error.problems ?? []);
    tell(error.message, true);
  } finally {
    sending = false;
  }
}

function mark(form, problems) {
  const reasons = new Map();
  for (const { path, reason } of problems) {
    const name = path.replace(/^\/(values\/)?/, "").split("/")[0];
    reasons.set(name, [...(reasons.get(name) ?? []), reason]);
  }
  for (const input of form.querySelectorAll("input[name], textarea")) {
    const wrong = reasons.get(input.name);
    input.closest("label").querySelector(".wrong").textContent = wrong ? wrong.join("; ") : "";
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  form.querySelector("[aria-invalid]")?.focus();
}

async function submitJob(form, about) {
  const body = bodyOf(form, about), upload = await about.code.upload();
  const job = await send("POST", "/v1/jobs", upload ? { ...body, upload } : body);
  tell(`${job.id} is submitted.`);
  location.hash = to.job(job.id);
}

/** The request that a form asks for, without code. */
function bodyOf(form, { carried, argv }) {
  const body = { ...carried };
  for (const [name, , { type }] of FIELDS) {
    const input = form.elements[name], text = input.value.trim();
    if (type === "checkbox") Object.assign(body, input.checked ? { [name]: true } : {});
    else if (text !== "") body[name] = type === "number" ? Number(text) : name === "gpu_model" ? text.split(",").map((each) => each.trim()) : text;
  }
  if (argv && body.command === words(argv)) {
    delete body.command;
    body.argv = argv; // as it was: no shell in between
  }
  const read = { volumes: volumeOf, env: (line) => pairOf("env", line), labels: (line) => pairOf("labels", line), secrets: secretOf };
  for (const [name] of LINES) {
    const lines = form.elements[name].value.split("\n").filter((line) => line.trim()).map(read[name]);
    if (lines.length) body[name] = name === "volumes" ? lines : Object.fromEntries(lines);
  }
  return body;
}

function pairOf(name, line) {
  const at = line.indexOf("=");
  if (at < 1) {
    const reason = `${name === "env" ? `${line.trim()} has no value here: write NAME=VALUE` : `${line.trim()} is not KEY=VALUE`}`;
    throw Object.assign(new Error(`/${name} ${reason}`), { refused: true, problems: [{ path: `/${name}`, reason }] });
  }
  return [line.slice(0, at).trim(), line.slice(at + 1)];
}

function secretOf(line) {
  const [name, use] = pairOf("secrets", line), [source, file] = use.trim().split(":");
  return [name, file === undefined ? source : { source, file }];
}

function volumeOf(line) {
  if (!line.trim().startsWith("name=")) return line;
  return Object.fromEntries(line.trim().split(",").map((word) => (word === "ro" ? ["read_only", true] : pairOf("volumes", word))));
}

async function startTemplate(form, template) {
  const values = {};
  for (const [name, text] of new FormData(form)) {
    const each = template.parameters[name];
    if (each.required || text !== written(each.default)) values[name] = text;
  }
  const rendered = await send("POST", `/v1/templates/${encodeURIComponent(template.name)}/render`, { values });
  await send("POST", rendered.route, rendered.document);
  const id = rendered.document.id.replace(/^\/*/, "/");
  tell(`${id} is created.`);
  location.hash = template.kind === "app" ? to.app(id) : `#/apps?q=${encodeURIComponent(id)}`;
}
