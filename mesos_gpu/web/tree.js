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

/** What a queue has of what it is owed: held within its guarantee, borrowed, lent to others, idle; and what it is due. */
export function useBar({ guarantee_gpus: guarantee, held_gpus: held, over_gpus: over, lent_gpus: lent, due_gpus: due, limit_gpus: limit }) {
  const own = Math.max(0, held - over), most = Math.max(guarantee, held, due) || 1;
  const parts = [["own", own], ["over", over], ["lent", Math.min(lent, Math.max(0, guarantee - own))]], idle = Math.max(0, guarantee - own - parts[2][1]);
  const says = [`${held} held`, over && `${over} of it borrowed`, lent && `${lent} lent`, `guarantee ${guarantee}`, `due ${due}`, limit !== null && `limit ${limit}`].filter(Boolean).join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": says, title: says },
    [...parts, ["idle", idle]].filter(([, gpus]) => gpus > 0).map(([kind, gpus]) => h("i", { class: kind, vars: { width: `${(100 * gpus) / Math.max(most, own + over + parts[2][1] + idle)}%` } })),
    due > 0 ? h("i", { class: "due", vars: { left: `${Math.min(100, (100 * due) / most)}%` } }) : null);
}

/** What the parts of such a bar mean. */
export function legend() {
  const one = (kind, words) => h("span", {}, h("i", { class: `bar ${kind}`, "aria-hidden": "true" }, h("i", { class: kind })), ` ${words}`);
  return h("p", { class: "legend" }, one("own", "held within the guarantee"), one("over", "borrowed"), one("lent", "of the guarantee, lent to others"), one("idle", "of the guarantee, not in use"), one("due", "what it is due"));
}
