// How budgets stand: what was used of each in its period, day by day, and where that leads.

import { getKnown } from "./api.js";
import { clock, date, h, link, many, s, section, span, table, to } from "./dom.js";

const DAY_S = 86400, ANEW_MS = 60000; // sums of use are large to work out
let last = { path: null, at: 0, rows: null };

const EMPTY = { warn: "jobs go on", borrow: "its jobs only run over quota", no_start: "nothing starts", stop: "its jobs are ended, with notice" };

/** What was charged to a queue and those below it, day by day of UTC: [{begins, hours}]; null: nothing is on record. */
export async function course(path, budget) {
  const key = `${path} ${budget.begins}`;
  if (last.key === key && Date.now() - last.at < ANEW_MS) return last.days;
  const at = Date.now(), usage = await getKnown(`/v1/usage?by=queue&period=day&since=${budget.begins}&until=${Math.ceil(at / 1000)}`);
  const hours = new Map();
  for (const row of usage?.rows ?? []) {
    if (row.queue === path || row.queue.startsWith(`${path}/`)) hours.set(row.period, (hours.get(row.period) ?? 0) + row.charged_hours - row.refunded_hours);
  }
  const days = usage && [...hours].map(([begins, charged]) => ({ begins, hours: charged })).sort((a, b) => a.begins - b.begins);
  last = { key, at, days };
  return days;
}

/** The curve of a queue's own budget, and how those of its users stand. `days`: as `course` gives them. */
export function budgets(path, standings, days) {
  const own = standings.filter((each) => each.queue === path), whole = own.find((each) => each.user === null), users = own.filter((each) => each.user !== null);
  if (!own.length) return null;
  const rows = users.map((each) => Object.assign([each.user, h("meter", { min: 0, max: 100, value: Math.min(100, each.used_percent), "aria-label": `${each.used_percent} %` }), round(each.used_hours), round(totalOf(each)), `${each.used_percent} %`, clock(each.ends)], { key: each.user }));
  return section("Budget", whole ? curve(whole, days ?? []) : null, rows.length ? table([["User"], ["Used"], ["Hours", "n"], ["Of", "n"], ["Part", "n"], ["Until"]], rows, { caption: "Budgets of its users" }) : null);
}

function totalOf(budget) {
  return Math.max(0, budget.gpu_hours + budget.carried_hours + budget.granted_hours);
}

function round(hours) {
  return hours < 10 ? Math.round(hours * 10) / 10 : Math.round(hours);
}

/** Points of what was used, [when, hours], the last of which is now: what is known for sure; those before by what came after. */
export function used(budget, days, now) {
  const points = [[now, budget.used_hours]];
  let left = budget.used_hours;
  for (const day of [...days].reverse()) {
    left = Math.max(0, left - day.hours);
    if (day.begins > budget.begins && day.begins < now) points.unshift([day.begins, left]);
  }
  return [[budget.begins, 0], ...points];
}

function curve(budget, days) {
  const now = Math.min(budget.ends, Math.max(budget.begins, Date.now() / 1000)), total = totalOf(budget);
  const known = used(budget, days, now), atEnd = budget.used_hours + (budget.rate_gpus * (budget.ends - now)) / 3600, high = Math.max(total, atEnd, budget.used_hours) * 1.08 || 1;
  const x = (at) => round((1000 * (at - budget.begins)) / (budget.ends - budget.begins)), y = (hours) => round(200 - (200 * hours) / high);
  const line = (points) => points.map(([at, hours]) => `${x(at)},${y(hours)}`).join(" "), says = words(budget, total, atEnd, now);
  return h("figure", { class: "chart curve", key: "curve" }, h("figcaption", {}, says),
    s("svg", { viewBox: "0 0 1000 200", preserveAspectRatio: "none", role: "img", "aria-label": `What was used of the budget from ${date(budget.begins)} to ${date(budget.ends)}: ${says}` },
      s("polygon", { points: `${x(budget.begins)},200 ${line(known)} ${x(now)},200` }), s("polyline", { points: line(known) }),
      s("polyline", { class: "forecast", points: line([[now, budget.used_hours], [budget.ends, atEnd]]) }),
      s("line", { class: "most", x1: 0, x2: 1000, y1: y(total), y2: y(total) }), s("line", { class: "now", x1: x(now), x2: x(now), y1: 0, y2: 200 })),
    h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, date(budget.begins)), h("span", {}, `the line across: ${round(total)} hours; upright: now; dashed: at what runs now`), h("span", {}, date(budget.ends))));
}

function words(budget, total, atEnd, now) {
  const extra = [budget.carried_hours && `${round(budget.carried_hours)} carried over`, budget.granted_hours && `${round(budget.granted_hours)} granted`].filter(Boolean).join(", ");
  const passed = Math.round((100 * (now - budget.begins)) / (budget.ends - budget.begins));
  const next = budget.next_period ? `, until the next period begins ${clock(budget.next_period)}` : "";
  return [
    h("strong", {}, `${round(budget.used_hours)} of ${many(round(total), "GPU hour")} used (${budget.used_percent} %)`), `${extra ? ` (${extra})` : ""}; ${passed} % of the period is over. `,
    budget.empty ? h("strong", { class: "bad" }, `It is used up: ${EMPTY[budget.on_empty] ?? budget.on_empty}${next}.`)
      : budget.empty_at ? h("strong", { class: "bad" }, `With what runs now (${round(budget.rate_gpus)} GPUs of cost 1) it is used up ${clock(budget.empty_at)}, in ${span(budget.empty_at - now)}; then ${EMPTY[budget.on_empty] ?? budget.on_empty}${next}.`)
        : budget.rate_gpus > 0 ? `With what runs now (${round(budget.rate_gpus)} GPUs of cost 1) ${round(atEnd)} hours are used at its end.` : "Nothing that is charged to it runs now.",
  ];
}

/** What leads to the budgets that its jobs pay besides: those of the queues above it. */
export function above(path, standings) {
  const paths = path.split("/").slice(0, -1).map((_, i, all) => all.slice(0, i + 1).join("/"));
  const found = standings.filter((each) => each.user === null && paths.includes(each.queue));
  return found.length ? h("p", {}, "Its jobs also pay from the budget of ", found.map((each) => [link(to.queue(each.queue), each.queue), ` (${each.used_percent} % used) `])) : null;
}
