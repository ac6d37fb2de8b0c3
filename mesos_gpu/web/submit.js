// A job, or an app of a template, from a form.

import { get, has, send } from "./api.js";
import { h, to } from "./dom.js";
import { tell } from "./dialog.js";

const STARTS = {
  "One GPU": { name: "job", command: "nvidia-smi", gpus: 1, tasks: 1 },
  "Training on one node": { name: "train", command: "torchrun --standalone --nproc-per-node 2 train.py", gpus: 2, tasks: 1, max_attempts: 3 },
  "Training on several nodes": { name: "ddp", command: "torchrun train.py", gpus: 1, tasks: 2, max_attempts: 3 },
  "A quarter of a GPU": { name: "notebook", command: "jupyter lab --no-browser --ip 127.0.0.1", gpus: 0.25, tasks: 1 },
};
const FIELDS = [
  ["name", "Name", { required: true, maxlength: 64 }], ["command", "Command (a shell's)", { required: true }], ["image", "Image (empty: the host's files)", {}],
  ["gpus", "GPUs of each task", { type: "number", min: 0, step: "any", value: 1 }], ["gpu_model", "GPU models (comma between; empty: any)", {}],
  ["tasks", "Tasks", { type: "number", min: 1, value: 1 }], ["cpus", "CPUs of each task", { type: "number", min: 0.001, step: "any", placeholder: "by its GPUs" }], ["mem_mib", "Memory of each task, MiB", { type: "number", min: 32, placeholder: "by its GPUs" }],
  ["queue", "Queue (empty: default)", {}], ["priority", "Priority", { type: "number", value: 0 }], ["max_attempts", "Attempts", { type: "number", min: 1, value: 1 }], ["timeout_s", "Time limit, s (empty: none)", { type: "number", min: 1 }],
];
const NUMBERS = new Set(["gpus", "tasks", "cpus", "mem_mib", "priority", "max_attempts", "timeout_s"]);
const STEPS = { integer: "1", number: "any" }; // of fields of numbers, by the type of a parameter

let known = null; // the templates: they are those of the installation
let sending = false;

export const page = {
  title: ({ query }) => query.get("from") ?? "Submit",
  whole: true,
  async load() {
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
    return jobs ? [...heads, jobForm(from, start), h("p", { class: "soft" }, "All fields: mesos-gpu run --help.")] : [...heads, h("p", {}, "Choose what to start from.")];
  },
};

function startFrom(templates, jobs, from, turn) {
  const option = (name) => h("option", { selected: name === from }, name), of = (kind) => templates.filter((each) => each.kind === kind).map((each) => each.name);
  const groups = [["Jobs", jobs ? Object.keys(STARTS) : []], ["Apps: they are kept running", of("app")], ["Groups of apps", of("group")]];
  const select = document.querySelector("label.fill select"); // keeps what was chosen, unless the address says another
  if (select && select.value !== from) select.value = from;
  return h("label", { key: `fill ${templates.length}`, keeps: true, class: "fill" }, "Start from ", h("select", { onchange: (event) => turn({ from: event.target.value || null }) },
    h("option", { value: "" }, jobs ? "nothing" : "…"), groups.filter(([, names]) => names.length).map(([label, names]) => h("optgroup", { label }, names.map(option)))));
}

function field(name, label, more, about) {
  return h("label", {}, label, about ? h("small", { class: "soft" }, about) : null, h("span", { class: "wrong bad" }), h("input", { name, autocomplete: "off", ...more }));
}

function submitForm(key, fields, button, act) {
  return h("form", { class: "submit", method: "post", key, keeps: true, onsubmit: (event) => sent(event, act) }, fields, h("p", { class: "buttons" }, h("button", { class: "main" }, button)));
}

function jobForm(from, start) {
  const fields = FIELDS.map(([name, label, more]) => field(name, label, { ...more, value: start?.[name] ?? more.value }));
  return submitForm(`form ${from ?? ""}`, fields, "Submit", submitJob);
}

function templateForm(template) {
  const fields = Object.entries(template.parameters).map(([name, each]) => {
    const kind = STEPS[each.type] ? { type: "number", step: STEPS[each.type] } : each.secret ? { type: "password", spellcheck: "false" } : {};
    const value = each.required ? { required: true, placeholder: `as ${each.example}` } : { value: written(each.default) };
    return field(name, each.required ? `${name} (needed)` : name, { ...kind, ...value }, each.description);
  });
  return submitForm(`form ${template.name}`, fields, "Start", (form) => startTemplate(form, template));
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
  for (const input of form.querySelectorAll("input")) {
    const wrong = reasons.get(input.name);
    input.parentElement.querySelector(".wrong").textContent = wrong ? wrong.join("; ") : "";
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  form.querySelector("[aria-invalid]")?.focus();
}

async function submitJob(form) {
  const body = {};
  for (const [name, text] of new FormData(form)) {
    if (text === "") continue;
    body[name] = NUMBERS.has(name) ? Number(text) : name === "gpu_model" ? text.split(",").map((each) => each.trim()) : text;
  }
  const job = await send("POST", "/v1/jobs", body);
  tell(`${job.id} is submitted.`);
  location.hash = to.job(job.id);
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
