// Charts of how cards are used.

import { getKnown } from "./api.js";
import { h, mib, s, section } from "./dom.js";

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
    chart("At work", series, series.busy_pct, 100, (each) => `${round(each)} %`),
    chart("Memory in use", series, series.memory_mib, most.memory_mib, mib),
    chart("Power", series, series.power_w, most.power_w, (each) => `${round(each)} W`),
  ].filter(Boolean);
  const choose = h("div", { role: "group", "aria-label": "How far back", class: "spans" }, Object.entries(SPANS).map(([name, words]) => h("button", {
    type: "button", "aria-pressed": String(name === shown), onclick: () => { shown = name; document.dispatchEvent(new Event("redraw")); },
  }, words)));
  return section("Use", choose, charts.length ? h("div", { class: "charts" }, charts) : h("p", { class: "empty" }, "How it was used is not known."));
}

function round(value) {
  return value < 10 ? Math.round(value * 10) / 10 : Math.round(value);
}

function chart(name, series, values, most, words) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length, top = Math.max(...known), now = values.at(-1) ?? values.at(-2);
  const high = Math.max(most ?? 0, top) || 1, back = SPANS[shown];
  const says = `${now === null ? "now not known" : `now ${words(now)}`}, mean ${words(mean)}, most ${words(top)}`;
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const i = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * values.length)));
    const then = new Date((series.until - series.step_s * (values.length - 1 - i)) * 1000).toLocaleTimeString();
    event.currentTarget.parentElement.querySelector(".says").textContent = `${then}: ${values[i] === null ? "not known" : words(values[i])}`;
  };
  const over = (event) => { event.currentTarget.parentElement.querySelector(".says").textContent = says; };
  return h("figure", { class: "chart", key: name }, h("figcaption", {}, h("strong", {}, name), " ", h("span", { class: "says" }, says)),
    s("svg", { viewBox: `0 -3 ${values.length - 1} 103`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over the last ${back}: ${says}`, onpointermove: at, onpointerleave: over },
      runs(values).map((run) => s("polygon", { points: [`${run[0][0]},100`, ...run.map((point) => line(point, high)), `${run.at(-1)[0]},100`].join(" ") })),
      runs(values).map((run) => s("polyline", { points: run.map((point) => line(point, high)).join(" ") }))),
    h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, `${back} ago`), h("span", {}, `up to ${words(high)}`), h("span", {}, "now")));
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
