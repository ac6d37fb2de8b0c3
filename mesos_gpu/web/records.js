// Files of a task as a stream of records, as mesos_gpu/wire/channel/tree.py has them: over a channel while the task
// runs, in an answer when it has ended.

import { send, stream } from "./api.js";
import { CREDIT, FAILED, STDERR, STDOUT, numbers, openChannel } from "./channel.js";

export const ENTRY = 1, DATA = 2, END = 3, FAULT = 4, LEFT = 5; // kinds of records
const DONE = 6, HEAD = 5; // bytes before the body of a record
const MAX_BODY = 1 << 18; // bytes
const decoder = new TextDecoder();

/** Give `take` each record of a path of a task: [kind, value], or bytes as the value of DATA. `what`: list or get. */
export async function readRecords(task, what, path, take, signal) {
  const route = `/v1/jobs/${encodeURIComponent(task.id)}/files`;
  if (task.state === "running") {
    const offer = await send("POST", route, { what, path });
    await overChannel(offer, take, signal);
    return;
  }
  const records = new Records(take), body = await stream(`${route}?${new URLSearchParams({ what, path })}`, signal);
  for (const reader = body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    records.add(value);
  }
  if (!records.whole) throw broken("The answer ended before it was whole.");
}

function overChannel(offer, take, signal) {
  return new Promise((resolve, reject) => {
    const records = new Records(take);
    let said = "", fault = null;
    const channel = openChannel(offer, {
      frame(kind, data) {
        if (kind === FAILED) said = decoder.decode(data);
        if (kind !== STDOUT && kind !== STDERR) return;
        channel.send(CREDIT, numbers(4, data.length));
        if (kind === STDERR) said += decoder.decode(data);
        else if (!fault) {
          try {
            records.add(data);
          } catch (error) {
            fault = error;
            channel.close();
          }
        }
      },
      close() {
        if (fault) reject(fault);
        else if (records.whole) resolve();
        else reject(signal.aborted ? signal.reason : broken(said.trim() || "The connection to the task was lost."));
      },
    });
    signal.addEventListener("abort", () => channel.close());
  });
}

function broken(text) {
  return Object.assign(new Error(text), { refused: true });
}

class Records {
  constructor(take) {
    Object.assign(this, { take, kept: new Uint8Array(), whole: false });
  }

  add(piece) {
    const all = new Uint8Array(this.kept.length + piece.length);
    all.set(this.kept);
    all.set(piece, this.kept.length);
    let at = 0;
    while (all.length - at >= HEAD) {
      const kind = all[at], size = new DataView(all.buffer, at + 1).getUint32(0);
      if (size > MAX_BODY) throw broken(`The stream of files has a record of ${size} bytes.`);
      if (all.length - at - HEAD < size) break;
      const body = all.subarray(at + HEAD, at + HEAD + size);
      at += HEAD + size;
      if (kind === DONE) this.whole = true;
      else this.take(kind, kind === DATA ? body : kind === END ? null : named(JSON.parse(decoder.decode(body))));
    }
    this.kept = all.slice(at);
  }
}

function named(value) { // its texts are bytes, each as the character of that number
  const texts = Object.entries(value).map(([key, each]) => [key, Array.isArray(each) ? each.map(textOf) : typeof each === "string" ? textOf(each) : each]);
  return Object.fromEntries(texts);
}

function textOf(bytes) {
  return decoder.decode(Uint8Array.from(bytes, (letter) => letter.charCodeAt(0)));
}
