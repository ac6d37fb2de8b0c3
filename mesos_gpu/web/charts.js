// Charts of how cards are used.

import { getKnown } from "./api.js";
import { clock, h, mib, s, section } from "./dom.js";

const ANEW_MS = 10000; // the finest span of what is kept
const SPANS = { fine: "15 min", coarse: "24 h" };
let shown = "fine";
let last = { path: null, at: 0, value: null };

/** How something was used of late, by the path of its route; null: it is not there. Asked for when a span is over. */
export async function past(path) {
  if (last.path === path && Date.now() - last.at < ANEW_MS) return last.value;
  const at = Date.now(), value = await getKnown(path);
  last = { path, at, value };
  return value;
}

/** A section with a chart of each meter that is known. `most`: what is most, by meter. */
export function use(value, most = {}) {
  if (!value) return null;
  const series = value[shown];
  const charts = [
    chart("Utilization", series, { "": series.busy_pct }, SPANS[shown], 100, percent),
    chart("Memory used", series, { "": series.memory_mib }, SPANS[shown], most.memory_mib, mib),
    chart("Power", series, { "": series.power_w }, SPANS[shown], most.power_w, watts),
  ].filter(Boolean);
  const choose = h("div", { role: "group", "aria-label": "How far back", class: "spans" }, Object.entries(SPANS).map(([name, words]) => h("button", {
    type: "button", "aria-pressed": String(name === shown), onclick: () => { shown = name; document.dispatchEvent(new Event("redraw")); },
  }, words)));
  return section("Use", choose, charts.length ? h("div", { class: "charts" }, charts) : h("p", { class: "empty" }, "How it was used is not known."));
}

/** Charts of the whole cluster: allocation beside utilization, and power. `value`: the answer of /v1/use. */
export function clusterUse(value) {
  const allocated = value.gpus_used.map((used, i) => (used === null || !value.gpus_total[i] ? null : (100 * used) / value.gpus_total[i]));
  const charts = [
    chart("GPUs", value, { allocated, utilization: value.busy_pct }, SPANS.coarse, 100, percent),
    chart("Power", value, { "": value.power_w }, SPANS.coarse, 0, watts),
  ].filter(Boolean);
  return charts.length ? h("div", { class: "charts", key: "use" }, charts) : null;
}

/** The latest value of a series that is known, of the latest two spans of time; null: none is. */
export function latest(values) {
  return values.at(-1) ?? values.at(-2) ?? null;
}

function percent(value) {
  return `${round(value)} %`;
}

/** Power in words. */
export function watts(value) {
  return value < 10000 ? `${round(value)} W` : `${Math.round(value / 100) / 10} kW`;
}

function round(value) {
  return value < 10 ? Math.round(value * 10) / 10 : Math.round(value);
}

/** A figure; null if nothing is known. `lines`: the values of each line by its name, which is empty if it is alone; `back`: how far
 *  it goes back, in words; `most`: the least value at its top. */
function chart(name, series, lines, back, most, words) {
  const known = Object.entries(lines).filter(([, values]) => values.some((value) => value !== null));
  if (!known.length) return null;
  const high = Math.max(most ?? 0, ...known.flatMap(([, values]) => values)) || 1, slots = known[0][1].length;
  const says = known.map(([label, values]) => `${label} ${summary(values, words, known.length === 1)}`.trim()).join("; ");
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const i = Math.min(slots - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * slots)));
    const values = known.map(([label, each]) => `${label} ${each[i] === null ? "not known" : words(each[i])}`.trim()).join("; ");
    event.currentTarget.parentElement.querySelector(".says").textContent = `${clock(series.until - series.step_s * (slots - 1 - i))}: ${values}`;
  };
  const over = (event) => { event.currentTarget.parentElement.querySelector(".says").textContent = says; };
  return h("figure", { class: "chart", key: name }, h("figcaption", {}, h("strong", {}, name), " ", h("span", { class: "says" }, says)),
    s("svg", { viewBox: `0 -3 ${slots - 1} 103`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over the last ${back}: ${says}`, onpointermove: at, onpointerleave: over },
      known.map(([label, values]) => runs(values).map((run) => [
        s("polygon", { class: label, points: [`${run[0][0]},100`, ...run.map((point) => line(point, high)), `${run.at(-1)[0]},100`].join(" ") }),
        s("polyline", { class: label, points: run.map((point) => line(point, high)).join(" ") }),
      ]))),
    h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, `${back} ago`), h("span", {}, known.length > 1 ? known.map(([label]) => [h("i", { class: `key ${label}` }), ` ${label} `]) : `up to ${words(high)}`), h("span", {}, "now")));
}

function summary(values, words, isAlone) {
  const known = values.filter((value) => value !== null), now = latest(values);
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  if (!isAlone) return `${now === null ? "not known" : words(now)} in the last 5 min, mean ${words(mean)}`;
  return `${now === null ? "now not known" : `now ${words(now)}`}, mean ${words(mean)}, most ${words(Math.max(...known))}`;
}

function line([i, value], high) {
  return `${i},${Math.round((100 - (100 * value) / high) * 100) / 100}`;
}

function runs(values) { // what is known without a gap: [[place, value], …]
  const all = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i && values[i - 1] !== null) all.at(-1).push([i, value]);
    else all.push([[i, value]]);
  });
  return all.map((run) => (run.length > 1 ? run : [[Math.max(0, run[0][0] - 0.5), run[0][1]], [run[0][0] + 0.5, run[0][1]]]));
}
