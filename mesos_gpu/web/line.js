// Jobs that wait.

import { ago, h, link, many, span, table, to } from "./dom.js";

/** Jobs that wait, with the instances of one app that wait one behind the other as one: with `count`. */
export function grouped(jobs) {
  const groups = [];
  for (const job of jobs) {
    const last = groups.at(-1);
    if (job.app && last?.app === job.app && last.queue === job.queue) [last.count, last.gpus] = [last.count + 1, last.gpus + job.gpus];
    else groups.push({ ...job, count: 1 });
  }
  return groups;
}

/** What leads to a job that waits, or to the app of several. */
export function waits({ id, name, app, count }) {
  return count > 1 ? h("span", {}, link(to.app(app), app), h("span", { class: "soft" }, ` ${many(count, "instance")}`)) : link(to.job(id), name);
}

/** A table of jobs that wait, in their order. */
export function line(jobs) {
  const rows = grouped(jobs).map((job) => Object.assign([
    job.position + 1, waits(job), job.owner ?? "", link(to.queue(job.queue), job.queue), job.effective_priority, job.gpus, ago(job.submitted_at),
    job.estimate.at ? `in ${span(job.estimate.at - Date.now() / 1000)}` : "not known", h("div", { class: "lines", title: job.estimate.basis }, job.reservation?.hostname ? `room is kept on ${job.reservation.hostname}` : job.estimate.basis),
  ], { key: job.id }));
  return table([["Place", "n"], ["Job"], ["Owner"], ["Queue"], ["Priority", "n"], ["GPUs", "n"], ["Waits", "n"], ["May start"], ["Reason", "message"]], rows, { caption: "Jobs that wait, in their order", sparse: true, empty: "No job waits." });
}
