// Apps whose instances end by themselves: how often, the latest end, the next start, what it wrote to stderr.

import { get, mayApp } from "./api.js";
import { ago, h, link, span, to } from "./dom.js";

export const CRASHING = "/v2/apps?crashing=true&embed=apps.ends";
const TAIL = 4096, LINES = 5; // bytes of stderr that are read, and lines of them that are shown
const LOOKED_AT = 3; // apps of a list whose output is read
const MOST = 20; // tasks of which it is remembered
const read = new Map(); // task to its last lines: one that has ended writes no more

/** How an app's instances end, or null if they run. */
export function crash(app) {
  return app.ends?.crashing ? app.ends : null;
}

/** The last lines of stderr of the instance that ended last, or why they cannot be read; null: nobody may read them. */
export async function lastLines(app) {
  if (!crash(app) || !mayApp("read", app.id)) return null;
  const { jobId, taskId } = app.ends.last;
  if (!read.has(taskId)) read.set(taskId, await linesOf(jobId, taskId));
  if (read.size > MOST) read.delete(read.keys().next().value);
  return read.get(taskId) ?? null;
}

async function linesOf(jobId, taskId) {
  const asked = new URLSearchParams({ stream: "stderr", offset: -TAIL, length: TAIL, task_id: taskId });
  try {
    const { data } = await get(`/v1/jobs/${encodeURIComponent(jobId)}/logs?${asked}`);
    return data.trimEnd().split("\n").slice(-LINES).join("\n");
  } catch (error) {
    if (!error.refused) throw error;
    return `not readable: ${error.message}`;
  }
}

/** Apps that crash, each with `lines`: its last lines of stderr, of the first few. */
export async function withLines(apps) {
  return Promise.all(apps.map(async (app, i) => ({ ...app, lines: i < LOOKED_AT ? await lastLines(app) : null })));
}

export function exitWords(ends) {
  const { message, exitCode } = ends.last;
  return exitCode === null ? message : `${message} (exit code ${exitCode})`;
}

/** When the next instance starts; "" if nothing delays it. */
export function nextStart(ends) {
  const left = ends.nextAt ? Date.parse(ends.nextAt) / 1000 - Date.now() / 1000 : 0;
  return left > 0 ? `in ${span(left)}` : "";
}

export function lastExit(ends) {
  const on = ends.last.host ? ` on ${ends.last.host}` : "";
  return `${ago(Date.parse(ends.last.timestamp) / 1000)} ago${on}: ${exitWords(ends)}`;
}

/** One line of what is wrong with an app that crashes. */
export function crashWords(app) {
  const ends = app.ends, next = nextStart(ends), lines = app.lines ? app.lines.split("\n") : [];
  const often = ends.inARow === 1 ? "an instance ended by itself" : `its instances ended ${ends.inARow} times in a row`;
  return [`App ${app.id}: ${often}, the last ${lastExit(ends)}`, next ? `the next one starts ${next}` : "", lines.length ? `stderr: ${lines.at(-1)}` : ""].filter(Boolean).join("; ");
}

/** What the page of an app says of its crash, or null. */
export function crashFacts(app, lines) {
  const ends = crash(app);
  if (!ends) return [];
  return [
    ["Restarts", `${ends.inARow} in a row`], ["Next start", nextStart(ends)],
    ["Last exit", h("span", {}, lastExit(ends), "; ", link(to.job(ends.last.taskId), "its output"))],
    ["Last lines of stderr", lines ? h("pre", { class: "words" }, lines) : null],
  ];
}
