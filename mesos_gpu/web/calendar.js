// The calendar: what is booked when, and the hours in which queues are owed other amounts; by week or by day.

import { get, getKnown, has, send } from "./api.js";
import { action } from "./dialog.js";
import { badge, clock, facts, h, link, many, section, span, table, to } from "./dom.js";
import { changes, occurrences } from "./hours.js";

const NARROW = 6; // percent of the width, in which no text has room
const ENDED = new Set(["over", "returned", "cancelled", "failed"]);

function begin(query) { // midnight, by the clock of who looks, of the first day that is shown
  const [year, month, day] = (query.get("from") ?? "").split("-").map(Number);
  const then = year && month && day ? new Date(year, month - 1, day) : new Date();
  return new Date(then.getFullYear(), then.getMonth(), then.getDate());
}

function daysFrom(first, days) { // midnights, one more than days: of some a day is an hour longer or shorter
  return Array.from({ length: days + 1 }, (_, i) => new Date(first.getFullYear(), first.getMonth(), first.getDate() + i));
}

function dateOf(day) {
  return [day.getFullYear(), day.getMonth() + 1, day.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

function shownDays(query) {
  return query.get("days") === "1" ? 1 : 7;
}

export const list = {
  title: () => "Calendar",
  async load({ query }) {
    const days = daysFrom(begin(query), shownDays(query)), [since, until] = [days[0], days.at(-1)].map((day) => day / 1000);
    const [booked, document] = await Promise.all([has("booking:see") ? getKnown(`/v1/bookings?since=${since}&until=${until}&past=true`) : null, has("queue:see") ? getKnown("/v1/queues") : null]);
    return { booked, document };
  },
  view({ booked, document }, { query, turn }) {
    const days = daysFrom(begin(query), shownDays(query)), bookings = booked?.bookings ?? [];
    const touches = (lane) => ({ ...lane, parts: lane.parts.filter((each) => each.ends > days[0] / 1000 && each.begins < days.at(-1) / 1000) });
    const lanes = [...bookings.map(laneOf), ...hoursOf(document, days)].map(touches).filter((lane) => lane.parts.length).sort((a, b) => (a.queue < b.queue ? -1 : a.queue > b.queue ? 1 : 0));
    return [h("div", { class: "head", key: "head" }, h("h2", {}, "Calendar"), steps(days, query, turn)),
      lanes.length ? timeline(lanes, days) : h("p", { class: "empty", key: "empty" }, "Nothing is booked then, and no queue has hours."),
      booked ? section("Bookings", bookingTable(bookings)) : h("p", { class: "soft", key: "none" }, "Bookings are not shown to you, or this scheduler has none."),
      hoursNow(document)];
  },
};

function steps(days, query, turn) {
  const move = (by) => turn({ from: dateOf(new Date(days[0].getFullYear(), days[0].getMonth(), days[0].getDate() + by)) }), shown = days.length - 1;
  const one = (label, onclick, pressed) => h("button", { type: "button", onclick, "aria-pressed": pressed === undefined ? null : String(pressed) }, label);
  return h("span", { class: "buttons" }, one("Earlier", () => move(-shown)), one("Today", () => turn({ from: null })), one("Later", () => move(shown)),
    one("Day", () => turn({ days: "1" }), shown === 1), one("Week", () => turn({ days: null }), shown === 7));
}

function laneOf(booking) {
  return {
    key: booking.id, queue: booking.queue, name: h("span", {}, link(to.booking(booking.id), booking.name), h("span", { class: "soft" }, ` ${booking.queue}, ${many(booking.gpus * booking.nodes, "GPU")}`)), kind: ENDED.has(booking.state) ? "ended" : "booked",
    parts: booking.times.map((time) => ({ ...time, text: many(booking.gpus * booking.nodes, "GPU"), says: `${booking.name}: ${many(booking.gpus * booking.nodes, "GPU")} for ${booking.queue}` })),
  };
}

function hoursOf(document, days) {
  const [since, until] = [days[0] / 1000, days.at(-1) / 1000];
  return Object.entries(document?.queues ?? {}).filter(([, spec]) => spec.hours?.length).map(([path, spec]) => ({
    key: `hours ${path}`, queue: path, name: h("span", {}, link(to.queue(path), path), h("span", { class: "soft" }, ` hours: ${[...new Set(spec.hours.map(changes))].join("; ")}`)), kind: "hours",
    parts: spec.hours.flatMap((entry) => occurrences(entry, since, until).map((time) => ({ ...time, text: changes(entry), says: `${path}: ${changes(entry)}` }))),
  }));
}

function timeline(lanes, days) {
  const [since, until] = [days[0] / 1000, days.at(-1) / 1000], at = (when) => (100 * (Math.min(until, Math.max(since, when)) - since)) / (until - since), now = Date.now() / 1000;
  const part = ({ begins, ends, text, says }, kind) => {
    const words = `${says}, ${moment(begins)} to ${moment(ends)}`;
    return h("li", { class: kind, title: words, vars: { left: `${at(begins)}%`, width: `${at(ends) - at(begins)}%` } }, at(ends) - at(begins) > NARROW ? h("span", { "aria-hidden": "true" }, text) : null, h("span", { class: "unseen" }, words));
  };
  const marks = days.length > 2 ? days.slice(0, -1).map((day) => [day.toLocaleDateString(undefined, { weekday: "short" }), " ", h("span", { class: "date" }, day.toLocaleDateString(undefined, { day: "numeric", month: "numeric" }))]) : [0, 6, 12, 18].map((hour) => `${dateOf(days[0]).slice(5)} ${String(hour).padStart(2, "0")}:00`);
  return h("div", { class: "calendar", key: "calendar" }, h("p", { class: "days", "aria-hidden": "true" }, marks.map((mark) => h("span", {}, mark))),
    lanes.map((lane) => h("div", { class: "lane", key: lane.key }, lane.name, h("ul", { class: "track" }, now > since && now < until ? h("li", { class: "now", "aria-hidden": "true", vars: { left: `${at(now)}%` } }) : null, lane.parts.map((each) => part(each, lane.kind))))),
    h("p", { class: "legend" }, [["booked", "booked"], ["ended", "over or cancelled"], ["hours", "hours of a queue"]].map(([kind, words]) => h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), ` ${words}`)), h("span", {}, "the upright line: now")));
}

function moment(at) {
  return new Date(at * 1000).toLocaleString(undefined, { weekday: "short", month: "numeric", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" });
}

function bookingTable(bookings) {
  const rows = [...bookings].sort((a, b) => a.begins - b.begins).map((each) => Object.assign([
    link(to.booking(each.id), each.name), badge(each.state), link(to.queue(each.queue), each.queue), each.nodes > 1 ? `${each.nodes}×${each.gpus}` : each.gpus, moment(each.begins), span(each.for_s), each.repeat === "none" ? "" : each.repeat, each.by, each.message, buttons(each),
  ], { key: each.id }));
  return table([["Booking"], ["State"], ["Queue"], ["GPUs", "n"], ["Begins"], ["For", "n"], ["Repeats"], ["By"], ["Message", "message"], ["Actions", "actions"]], rows, { caption: "Bookings", empty: "Nothing is booked then: mesos-gpu reserve --help" });
}

function buttons(booking) {
  if (ENDED.has(booking.state) || !has("booking:write")) return null;
  return action("Cancel", { title: `Cancel booking ${booking.name}?`, text: `${many(booking.gpus * booking.nodes, "GPU")} for ${booking.queue}, from ${moment(booking.begins)} on${booking.repeat === "none" ? "" : ", with all its later times"}.`, danger: true, act: () => send("DELETE", `/v1/bookings/${encodeURIComponent(booking.id)}`), done: `${booking.name} is cancelled.` });
}

function hoursNow(document) {
  const force = document?.in_force;
  if (!force) return null;
  const words = (all) => Object.entries(all).map(([path, fields]) => h("li", { key: path }, link(to.queue(path), path), `: ${changes(fields)}`));
  return section("Hours now", Object.keys(force.queues).length ? h("ul", {}, words(force.queues)) : h("p", { class: "empty" }, "No queue has other amounts now."),
    force.until ? h("p", {}, `From ${moment(force.until)} on:`) : null, force.until ? h("ul", {}, words(force.next)) : null);
}

export const one = {
  title: ({ id }) => `Booking ${id}`,
  load: async ({ id }) => ({ booking: await get(`/v1/bookings/${encodeURIComponent(id)}`) }),
  view({ booking }) {
    const day = dateOf(new Date(booking.begins * 1000));
    return [h("div", { class: "head", key: "head" }, h("h2", {}, "Booking ", booking.name, " ", badge(booking.state)), buttons(booking)),
      booking.message ? h("p", { class: "message", key: "message" }, booking.message) : null,
      section("About", facts([
        ["Id", booking.id], ["Queue", link(to.queue(booking.queue), booking.queue)], ["For", booking.users.length ? booking.users.join(" ") : "everybody of the queue"], ["GPUs", `${many(booking.gpus, "GPU")} on each of ${many(booking.nodes, "node")}`],
        ["Models", booking.gpu_model.join(" or ")], ["Pool", booking.pool], ["Begins", moment(booking.begins)], ["Ends", moment(booking.ends)], ["As booked", `${booking.from.replace("T", " ")}, ${span(booking.for_s)}, ${booking.zone}`], ["Repeats", booking.repeat === "none" ? null : `${booking.repeat}${booking.until ? ` until ${booking.until}` : ""}`],
        ["At its end", booking.overrun ? "its jobs go on as borrowers" : "its jobs are ended, with notice"], ["Returned if unused for", booking.purge_after_s === null ? null : span(booking.purge_after_s)], ["Out of the queue's guarantee", booking.from_guarantee ? "yes" : null], ["Used since", booking.used_at ? clock(booking.used_at) : null], ["By", booking.by], ["Made", clock(booking.made_at)],
        ["Nodes", booking.places.length ? h("span", {}, booking.places.map(({ node, gpus }) => [link(to.node(node), node), ` (${gpus.length}) `])) : ENDED.has(booking.state) ? null : "chosen shortly before it begins"],
      ])),
      h("p", { key: "calendar" }, link(`#/calendar?from=${day}`, "its week in the calendar"), " · ", link(`#/calendar?from=${day}&days=1`, "its day"))];
  },
};
