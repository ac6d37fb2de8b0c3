// The tree of queues: its rows, and what each has, as a bar.

import { h } from "./dom.js";

/** A row for each queue in each pool, each queue before those below it; with how many jobs wait in it and below it. */
export function rowsOf(shares, uses, specs) {
  const waits = new Map();
  for (const { name, waiting, waiting_since: since } of uses) {
    for (const path of lineage(name)) {
      const sum = waits.get(path) ?? { jobs: 0, since: null };
      waits.set(path, { jobs: sum.jobs + waiting, since: since && sum.since ? Math.min(since, sum.since) : since ?? sum.since });
    }
  }
  const parents = new Set(shares.map(({ path }) => above(path)));
  const rows = shares.map((share) => ({ ...share, ...(waits.get(share.path) ?? { jobs: 0, since: null }), stop: specs[share.path]?.stop ?? "none", isParent: parents.has(share.path), order: order(share) }));
  return rows.sort((a, b) => (a.order < b.order ? -1 : 1));
}

/** A path and those above it. */
export function lineage(path) {
  return path.split("/").map((_, i, all) => all.slice(0, i + 1).join("/"));
}

/** The queue above it; empty: none. */
export function above(path) {
  return path.split("/").slice(0, -1).join("/");
}

function order({ path, pool }) { // what is below a queue comes right after it
  return `${path.replaceAll("/", "\0")}\0\0${pool}`;
}

/** Whether any queue has a quota: without one there is nothing that could be over it, or lent. */
export function hasQuotas(shares) {
  return shares.some((share) => share.guarantee_gpus > 0);
}

/** What a queue has, as a bar: allocated within its quota and over it, quota lent to others, idle quota; the mark is its fair share.
 *  `quotas`: whether any queue has one. */
export function useBar({ guarantee_gpus: quota, held_gpus: held, over_gpus: over, lent_gpus: lent, due_gpus: due, limit_gpus: limit }, quotas) {
  const own = quotas ? Math.max(0, held - over) : held, most = Math.max(quota, held, due) || 1;
  const parts = [["own", own], ["over", quotas ? over : 0], ["lent", Math.min(lent, Math.max(0, quota - own))]], idle = Math.max(0, quota - own - parts[2][1]);
  const says = [`${held} allocated`, ...(quotas ? [over && `${over} of it over quota`, lent && `${lent} lent`, `quota ${quota}`, `fair share ${due}`] : []), limit !== null && `limit ${limit}`].filter(Boolean).join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": says, title: says },
    [...parts, ["idle", idle]].filter(([, gpus]) => gpus > 0).map(([kind, gpus]) => h("i", { class: kind, vars: { width: `${(100 * gpus) / Math.max(most, parts.reduce((sum, [, each]) => sum + each, 0) + idle)}%` } })),
    quotas && due > 0 ? h("i", { class: "due", vars: { left: `${Math.min(100, (100 * due) / most)}%` } }) : null);
}

/** What the parts of such a bar mean; null without quotas. */
export function legend(quotas) {
  if (!quotas) return null;
  const one = (kind, words) => h("span", {}, h("i", { class: `bar ${kind}`, "aria-hidden": "true" }, h("i", { class: kind })), ` ${words}`);
  return h("p", { class: "legend" }, one("own", "allocated within the quota"), one("over", "allocated over quota"), one("lent", "quota lent to others"), one("idle", "idle quota"), one("due", "fair share"));
}
