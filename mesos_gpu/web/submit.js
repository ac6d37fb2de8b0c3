// A job from a form.

import { has, send } from "./api.js";
import { h, to } from "./dom.js";
import { tell } from "./dialog.js";

const TEMPLATES = {
  "One GPU": { name: "job", command: "nvidia-smi", gpus: 1, tasks: 1 },
  "Training on one node": { name: "train", command: "torchrun --standalone --nproc-per-node 2 train.py", gpus: 2, cpus: 8, mem_mib: 32768, tasks: 1, max_attempts: 3 },
  "Training on several nodes": { name: "ddp", command: "torchrun --nnodes $MESOS_GPU_TASKS --node-rank $MESOS_GPU_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node 1 train.py", gpus: 1, cpus: 4, mem_mib: 16384, tasks: 2, max_attempts: 3 },
  "A quarter of a GPU": { name: "notebook", command: "jupyter lab --no-browser --ip 127.0.0.1", gpus: 0.25, cpus: 2, mem_mib: 8192, tasks: 1 },
};
const FIELDS = [
  ["name", "Name", { required: true, maxlength: 64 }], ["command", "Command (a shell's)", { required: true }], ["image", "Image (empty: the host's files)", {}],
  ["gpus", "GPUs of each task", { type: "number", min: 0, step: "any", value: 1 }], ["gpu_model", "GPU models (comma between; empty: any)", {}],
  ["tasks", "Tasks", { type: "number", min: 1, value: 1 }], ["cpus", "CPUs of each task", { type: "number", min: 0.001, step: "any", value: 1 }], ["mem_mib", "Memory of each task, MiB", { type: "number", min: 32, value: 1024 }],
  ["queue", "Queue (empty: default)", {}], ["priority", "Priority", { type: "number", value: 0 }], ["max_attempts", "Attempts", { type: "number", min: 1, value: 1 }], ["timeout_s", "Time limit, s (empty: none)", { type: "number", min: 1 }],
];
const NUMBERS = new Set(["gpus", "tasks", "cpus", "mem_mib", "priority", "max_attempts", "timeout_s"]);

export const page = {
  title: () => "Submit",
  load: async () => ({}),
  view() {
    if (!has("job:run")) return [h("h2", {}, "Submit a job"), h("p", {}, "This needs the right job:run.")];
    const form = h("form", { class: "submit", key: "form", keeps: true, onsubmit: submitted }, FIELDS.map(([name, label, more]) => h("label", {}, label, h("input", { name, ...more }))), h("p", { class: "buttons" }, h("button", { class: "main" }, "Submit")));
    const fill = h("label", { key: "fill", keeps: true, class: "fill" }, "Start from ", h("select", { onchange: (event) => filled(document.querySelector("form.submit"), TEMPLATES[event.target.value]) }, h("option", { value: "" }, "nothing"), Object.keys(TEMPLATES).map((name) => h("option", {}, name))));
    return [h("h2", { key: "head" }, "Submit a job"), fill, form, h("p", { class: "soft" }, "All fields: mesos-gpu run --help. Services: mesos-gpu template list.")];
  },
};

function filled(form, values) {
  form.reset();
  for (const [name, value] of Object.entries(values ?? {})) form.elements[name].value = value;
}

async function submitted(event) {
  event.preventDefault();
  const body = {};
  for (const [name, text] of new FormData(event.target)) {
    if (text === "") continue;
    body[name] = NUMBERS.has(name) ? Number(text) : name === "gpu_model" ? text.split(",").map((each) => each.trim()) : text;
  }
  try {
    const job = await send("POST", "/v1/jobs", body);
    tell(`${job.id} is submitted.`);
    location.hash = to.job(job.id);
  } catch (error) {
    tell(error.message, true);
  }
}
