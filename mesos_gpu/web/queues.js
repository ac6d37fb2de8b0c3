// Queues: the tree of them, with the GPUs, the quota and the waiting jobs of each; and the line of jobs that wait.

import { get, getKnown } from "./api.js";
import { ago, badge, h, link, section, table, to } from "./dom.js";
import { COUNTED } from "./joblist.js";
import { pageOf, pages, searchBox, sortedBy, sorting } from "./lists.js";
import { line } from "./line.js";
import { above, hasQuotas, legend, lineage, rowsOf, useBar } from "./tree.js";

const OPEN = 60; // rows that are shown at once before queues are closed to begin with
const LINE = 100; // jobs that wait
const KEYS = {
  Queue: (row) => row.path, Allocated: (row) => row.held_gpus, Quota: (row) => row.guarantee_gpus, "Over quota": (row) => row.over_gpus, Lent: (row) => row.lent_gpus,
  "Fair share": (row) => row.due_gpus, Requested: (row) => row.pending_gpus, "Waiting jobs": (row) => row.jobs, "Longest wait": (row) => row.since && -row.since,
};

export const list = {
  title: () => "Queues",
  whole: true,
  async load() {
    const [queue, shares, document] = await Promise.all([get(`/v1/queue?limit=${LINE}`), get("/v1/queue-shares"), getKnown("/v1/queues")]);
    return { queue, shares: shares.shares, specs: document?.queues ?? {} };
  },
  view({ queue, shares, specs }, { query, turn }) {
    const rows = rowsOf(shares, queue.queues, specs);
    const plain = queue.queues.filter((each) => !shares.some((share) => share.path === each.name)).map((each) => Object.assign([
      link(to.queue(each.name), each.name), each.used_gpus, each.limit_gpus ?? "none", each.waiting,
    ], { key: each.name }));
    return [h("h2", { key: "head" }, "Queues"), h("div", { class: "filters", key: "filters" }, searchBox("Search queues", query, turn), rows.length ? folds(query, turn) : null),
      rows.length ? tree(rows, query, turn) : null,
      plain.length ? h("div", { key: "plain" }, table([["Queue"], ["Allocated GPUs", "n"], ["Limit, GPUs", "n"], ["Waiting jobs", "n"]], plain, { caption: rows.length ? "Queues that no document has" : "Queues" })) : null,
      rows.length || plain.length ? null : h("p", { class: "empty" }, "No queues yet: all jobs wait in one line. Give teams quotas of GPUs: ", h("code", {}, "mesos-gpu queue apply FILE")),
      h("p", { class: "soft", key: "counted" }, COUNTED), section("Waiting jobs", line(queue.jobs))];
  },
};

function folds(query, turn) { // the address says what is open, so that it can be passed on
  const all = (open) => h("button", { type: "button", onclick: () => turn({ all: String(open), turned: null, q: null, sort: null, down: null, page: null }) }, open ? "Open all" : "Close all");
  return h("span", { class: "buttons" }, all(true), all(false));
}

function tree(rows, query, turn) {
  const wanted = (query.get("q") ?? "").toLowerCase(), isTree = !wanted && !query.get("sort");
  const turned = new Set((query.get("turned") ?? "").split(",").filter(Boolean));
  const isOpen = (path) => (query.has("all") ? query.get("all") === "true" : rows.length <= OPEN) !== turned.has(path);
  const seen = isTree ? rows.filter(({ path }) => lineage(path).slice(0, -1).every(isOpen)) : sortedBy(rows.filter(({ path }) => path.toLowerCase().includes(wanted)), KEYS, query);
  const fold = (path) => {
    turned.has(path) ? turned.delete(path) : turned.add(path);
    turn({ turned: turned.size ? [...turned].sort().join(",") : null });
  };
  const { items, at } = pageOf(seen, query), pools = new Set(rows.map(({ pool }) => pool)).size > 1, quotas = hasQuotas(rows);
  const ofQuotas = (cells) => (quotas ? cells : []);
  const columns = [["Queue"], ...(pools ? [["Pool"]] : []), ["Use", "use"], ["Allocated", "n"], ...ofQuotas([["Quota", "n"], ["Over quota", "n"], ["Lent", "n"], ["Fair share", "n"]]), ["Limit", "n"], ["Requested", "n"], ["Waiting jobs", "n"], ["Longest wait", "n"]];
  const cells = items.map((row) => Object.assign([
    named(row, isTree, isOpen, fold), ...(pools ? [row.pool] : []), useBar(row, quotas), row.held_gpus, ...ofQuotas([row.guarantee_gpus, row.over_gpus || "", row.lent_gpus || "", row.due_gpus]), row.limit_gpus ?? "none", row.pending_gpus || "", row.jobs || "", row.since ? ago(row.since) : "",
  ], { key: `${row.path} ${row.pool}` }));
  return h("div", { key: "tree", onkeydown: (event) => walk(event, fold) }, table(columns, cells, { caption: "Queues", empty: "No queue matches the search.", ...sorting(KEYS, query, turn) }),
    legend(quotas), h("p", { class: "soft", key: "unit" }, "Amounts are in GPUs, weighted by the cost of their model. Requested: GPUs that waiting jobs ask for."),
    seen.length > items.length ? pages(seen.length, at, turn) : h("p", { class: "soft", key: "pages" }, seen.length < rows.length ? `${seen.length} of ${rows.length} rows are shown` : `${rows.length} in all`));
}

function named({ path, stop, isParent }, isTree, isOpen, fold) { // below the queue that it is part of
  const depth = isTree ? path.split("/").length - 1 : 0, open = isOpen(path);
  return h("span", { class: "below", vars: { "--depth": depth } },
    isTree ? (isParent ? h("button", { type: "button", class: "fold", "data-path": path, "aria-expanded": String(open), "aria-label": `What is below ${path}`, onclick: () => fold(path) }, open ? "▾" : "▸") : h("span", { class: "fold" })) : null,
    link(to.queue(path), isTree ? path.split("/").at(-1) : path, { title: path }), stop === "none" ? null : [" ", badge("stopped", stop)]);
}

function walk(event, fold) { // right opens, left closes or goes up, down and up go on
  const button = event.target.closest?.("button.fold"), all = [...event.currentTarget.querySelectorAll("button.fold")];
  if (!button) return;
  const path = button.dataset.path, open = button.getAttribute("aria-expanded") === "true";
  const next = { ArrowDown: all[all.indexOf(button) + 1], ArrowUp: all[all.indexOf(button) - 1], ArrowLeft: open ? null : all.find((each) => each.dataset.path === above(path)) }[event.key];
  if ((event.key === "ArrowRight" && !open) || (event.key === "ArrowLeft" && open)) fold(path);
  else if (!next) return;
  else next.focus();
  event.preventDefault();
}
