// What a job asks for: the fields of its request that are not as without them.

import { facts, h, link, many, mib, section, span, to } from "./dom.js";

/** A section with what was asked for. */
export function asked(job) {
  return section("Asked for", facts([
    ["Command", job.hidden ? "hidden" : job.command ?? words(job.argv ?? job.args ?? [])], ["Image", job.image ? `${job.image} (${job.container_engine})` : null], ["Image secret", job.image_secret],
    ["Tasks", job.tasks > 1 ? `${job.tasks}; if one fails, ${job.on_member_failure === "fail" ? "the job fails" : "all start again"}` : null], ["Array", job.array],
    ["GPUs", gpus(job)], ["CPUs", each(job, String(job.cpus))], ["Most CPUs", job.cpu_limit === null ? null : each(job, String(job.cpu_limit))], ["Memory", each(job, mib(job.mem_mib))], ["Disk", job.disk_mib ? each(job, mib(job.disk_mib)) : null],
    ["Time limit", job.timeout_s === null ? null : `${span(job.timeout_s)} for each attempt`], ["Notice before its end", job.notice_s === null ? null : span(job.notice_s)],
    ["Signal with the notice", job.notice_signal === "none" ? null : job.notice_signal], ["Preemptible", job.preemptible ? "yes" : null], ["Class", job.class], ["Booking", job.booking ? link(to.booking(job.booking), job.booking) : null],
    ["Labels", lines(Object.entries(job.labels).map(([key, value]) => `${key}=${value}`))], ["Environment (names)", lines(Object.keys(job.env))],
    ["Secrets", lines(Object.entries(job.secrets).map(([name, use]) => `${name} from ${use.source}${use.file ? `, as the file ${use.file}` : ""}`))],
    ["Volumes", lines(job.volumes.map(volume))], ["Fetched files", lines(job.fetch.map((one) => one.uri))], ["Code", job.upload ? `sent along (${job.upload.slice(0, 19)}…)` : null],
    ["Ports", job.ports.map((port) => port || "any").join(", ")], ["Constraints", lines(job.constraints.map((one) => one.join(" ")))], ["Near", job.near], ["Away from", job.away],
    ["Topology", job.topology ? Object.entries(job.topology).flat().join(" ") + (job.segment ? `, ${job.segment} ranks together` : "") : null], ["Placement", job.placement],
    ["Driver", job.min_driver ? `${job.min_driver} or newer` : null], ["If a GPU fails", job.on_gpu_failure === "restart" ? null : job.on_gpu_failure], ["Health checks", job.health_checks.length || null],
    ["Control access", job.control_access.join(", ")], ["Notifies", lines(job.notify)],
  ]));
}

/** Words of a command as a shell reads them. */
export function words(argv) {
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** A volume as the option --volume has it. */
export function volume(one) {
  if (typeof one === "string") return one;
  return [`name=${one.name}`, `path=${one.path}`, one.size ? `size=${one.size}` : "", one.read_only ? "ro" : ""].filter(Boolean).join(",");
}

function each(job, amount) {
  return job.tasks > 1 ? `${amount} for each task` : amount;
}

function lines(texts) {
  return texts.length ? h("span", {}, texts.map((text) => h("div", {}, text))) : null;
}

function gpus(job) {
  const parts = [
    job.gpu_model.join(" or "), job.gpu_compute_pct === null ? "" : `${job.gpu_compute_pct} % of the compute of each`,
    job.gpu_memory_mib === null ? "" : `${mib(job.gpu_memory_mib)} of each${job.gpu_compute_pct === null && Number.isInteger(job.gpus) ? " or more" : ""}`,
    job.gpu_memory_max_mib === null ? "" : `up to ${mib(job.gpu_memory_max_mib)} while others leave it`, job.isolation ? `isolation ${job.isolation}` : "",
    job.compute_capability ? `compute capability ${job.compute_capability} or newer` : "",
  ].filter(Boolean);
  return [each(job, many(job.gpus, "GPU")), ...parts].join(", ");
}
