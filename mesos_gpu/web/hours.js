// Hours of a queue: what they change, and when they are by the clock of their zone: moments in seconds since the epoch.

const DAY_MS = 86400000;
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const formats = new Map();

function wall(at, zone) { // what clocks of the zone show, as if they were in UTC, in milliseconds
  if (!formats.has(zone)) formats.set(zone, new Intl.DateTimeFormat("en-GB", { timeZone: zone, year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23" }));
  const of = Object.fromEntries(formats.get(zone).formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(of.year, of.month - 1, of.day, of.hour, of.minute, of.second);
}

/** When clocks of a zone first show that: milliseconds of UTC that look so. Where they are set forward over it: then. */
export function moment(shown, zone) {
  const before = wall(shown - DAY_MS, zone) - (shown - DAY_MS), after = wall(shown + DAY_MS, zone) - (shown + DAY_MS);
  const first = shown - before, second = shown - after;
  if (wall(first, zone) === shown) return first / 1000;
  return (wall(second, zone) === shown ? second : changed(Math.min(first, second), Math.max(first, second), zone)) / 1000;
}

function changed(low, high, zone) { // the moment between the two at which clocks are set
  const offset = wall(low, zone) - low;
  while (high - low > 1000) {
    const middle = low + Math.floor((high - low) / 2000) * 1000;
    if (wall(middle, zone) - middle === offset) low = middle;
    else high = middle;
  }
  return high;
}

function minutes(text) {
  const [hour, minute] = text.split(":").map(Number);
  return 60 * hour + minute;
}

/** The times of an entry {days, from, to, zone} that touch a span of seconds since the epoch: [{begins, ends}]. */
export function occurrences({ days, from, to, zone }, since, until) {
  const found = [], begin = minutes(from), end = minutes(to) > begin ? minutes(to) : minutes(to) + 1440, place = zone || "UTC";
  for (let day = Math.floor(wall(since * 1000, place) / DAY_MS) * DAY_MS - DAY_MS; day < until * 1000 + DAY_MS; day += DAY_MS) {
    if (days?.length && !days.includes(DAYS[new Date(day).getUTCDay()])) continue;
    const one = { begins: moment(day + begin * 60000, place), ends: moment(day + end * 60000, place) };
    if (one.ends > since && one.begins < until) found.push(one);
  }
  return found;
}

/** The amounts of a figure in words: a number, shapes as [{nodes, gpus}], or either by pool. */
export function amount(value) {
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return typeof value[0] === "string" ? value.join(", ") : value.map(({ nodes, gpus }) => `${nodes} × ${gpus} GPUs`).join(" and ");
  return Object.entries(value).map(([name, each]) => `${name}: ${amount(each)}`).join("; ");
}

const HOURS = { guarantee_gpus: "guarantee", borrow_limit_gpus: "borrows at most", lend_limit_gpus: "lends at most", limit_gpus: "limit", weight: "weight", band: "band" };

/** What one entry of hours changes, in words. */
export function changes(entry) {
  return Object.entries(HOURS).filter(([name]) => entry[name] !== null && entry[name] !== undefined && !(typeof entry[name] === "object" && !Object.keys(entry[name]).length)).map(([name, words]) => `${words} ${amount(entry[name])}`).join(", ");
}
