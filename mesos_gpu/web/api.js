// Requests to the scheduler, and what who looks may do.

const LIMIT_MS = 8000; // an answer must have come by then

let csrf = null;
export let who = null; // null: it is not known yet
export let standby = null; // {leader, age_s} of a scheduler that stands by; null: this one leads
const known = new Map(); // path to {text, value}: what has not changed is the same object

function headersOf(options) {
  const headers = { "X-Requested-With": "mesos_gpu", ...options.headers };
  if (csrf) headers["X-CSRF-Token"] = csrf; // no page of another origin knows it
  return headers;
}

async function ask(path, options = {}) {
  let response, text;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(LIMIT_MS), ...options, headers: headersOf(options) });
    text = await response.text();
  } catch (error) {
    throw unreached(error, options.method);
  }
  hearStandby(response.headers);
  if (response.status === 401) logIn();
  if (!response.ok) throw refusal(response, text);
  return text;
}

function hearStandby(headers) {
  const leader = headers.get("Mesos-Gpu-Standby"), age = headers.get("Age");
  standby = leader ? { leader, age_s: age === null ? standby?.age_s ?? 0 : Number(age) } : null;
}

function unreached(error, method) { // no answer has come; of a change it is not known whether it was made
  const why = error.name === "TimeoutError" ? `no answer within ${LIMIT_MS / 1000} s` : navigator.onLine ? "it cannot be reached" : "this browser is offline";
  const unknown = method ? "; whether it was done is seen when it answers again" : "";
  return Object.assign(new Error(`the scheduler does not answer: ${why}${unknown}`), { unreached: true });
}

function logIn() {
  if (who?.session) sessionStorage.setItem("mesos_gpu session", "ended"); // which the page to log in tells
  document.dispatchEvent(new Event("left"));
  location.assign(`login${location.hash}`); // which leads back to this part
}

/** `problems`: {path, reason} of each place that is wrong. */
function refusal(response, text) {
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  const body = isJson ? JSON.parse(text) : {}, said = body.error ?? body; // below /v2 an error is Marathon's
  const details = Array.isArray(said.details) ? said.details.map(({ path, errors }) => ({ path, reason: errors.join("; ") })) : [];
  const problems = said.problems ?? details;
  const words = [said.message ?? response.statusText, ...problems.map((each) => `${each.path} ${each.reason}`), said.remedy];
  return Object.assign(new Error(words.filter(Boolean).join("; ")), { refused: true, status: response.status, problems });
}

/** The answer to GET; the same object as the last time if it is the same. */
export async function get(path) {
  const text = await ask(path), last = known.get(path);
  if (last?.text === text) return last.value;
  const value = JSON.parse(text);
  known.delete(path);
  known.set(path, { text, value });
  if (known.size > 20) known.delete(known.keys().next().value);
  return value;
}

/** The body of an answer to GET as a stream of bytes, which a signal ends. */
export async function stream(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal, headers: headersOf({}) });
  } catch (error) {
    throw signal.aborted ? error : unreached(error);
  }
  if (response.status === 401) logIn();
  if (!response.ok) throw refusal(response, await response.text());
  return response.body;
}

/** The same, null without the right: a refusal would be on record. */
export async function getIf(right, path) {
  return has(right) ? get(path) : null;
}

/** The same, null if it is not there. */
export async function getKnown(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** The answer to a change. `body`: bytes as a Blob, or a value that is sent as JSON. */
export async function send(method, path, body) {
  const isBytes = body instanceof Blob;
  const options = body === undefined ? { method } : { method, body: isBytes ? body : JSON.stringify(body), headers: { "Content-Type": isBytes ? "application/octet-stream" : "application/json" } };
  const text = await ask(path, options);
  return text ? JSON.parse(text) : null;
}

export async function learnWho() {
  who = JSON.parse(await ask("/v1/whoami"));
  csrf = who.csrf_token;
  if (!who.name && who.proof !== "open") logIn();
  return who;
}

function fits(patterns, text) { // a * stands for anything
  const words = (pattern) => pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return patterns.some((pattern) => new RegExp(`^${words(pattern).join(".*")}$`, "s").test(text));
}

/** Whether who looks has a right for something. The scheduler decides anew at each request. */
export function has(right) {
  return who.proof === "open" || who.rights.some((held) => held.name === right);
}

/** Whether this scheduler has such a right at all, for who looks: an earlier one has fewer. */
export function knows(right) {
  return who.rights.some((held) => held.name === right);
}

/** The same for a job: `verb` as in job:kill. */
export function mayJob(verb, job) {
  if (who.proof === "open") return true;
  return who.rights.some((held) => held.name === `job:${verb}` && (!held.own || job.owner === who.name) && fits(held.queues, job.queue)) ||
    (job.app !== null && mayApp(verb === "kill" ? "write" : verb, job.app));
}

/** The same for an app, by its id. */
export function mayApp(verb, id) {
  return who.proof === "open" || who.rights.some((held) => held.name === `app:${verb}` && (!held.apps.length || fits(held.apps.map((each) => each.replace(/^\/?/, "/")), id)));
}
