// Code that is sent along with a job: files of this browser's machine as an archive in the scheduler's store.

import { get, send } from "./api.js";
import { h, many, mib, show } from "./dom.js";
import { hasRules, ignoring } from "./ignores.js";

const BLOCK = 512; // bytes of the format tar
const PIECE = 1 << 20; // bytes that the scheduler takes at once
const SENT_AT = 946684800; // the time of each file
const MAX_NAME = 100; // bytes of a name in a header
const MAX_FILES = 100000;
const MAX_NAMED = 5;
const TAKEN = new Set(["containers", "executor.log", "hostfile", "stderr", "stdout"]); // files of the sandbox that others write
const encoder = new TextEncoder();

/** A part of a form that chooses files. Its `upload` sends them, and resolves to a value of the field `upload`, or null.
 *  `before`: the archive of another job. */
export function codeField(before = null) {
  const state = { entries: [], before }, said = h("div", { class: "soft", role: "status" });
  const choose = async (event) => {
    Object.assign(state, await chosen([...event.target.files]), { before: null });
    for (const input of inputs) if (input !== event.target) input.value = "";
    draw();
  };
  const inputs = [h("input", { type: "file", multiple: true, "aria-label": "Files to send along", onchange: choose }), h("input", { type: "file", webkitdirectory: true, "aria-label": "Directory to send along", onchange: choose })];
  const none = h("button", { type: "button", onclick: () => {
    Object.assign(state, { entries: [], before: null });
    for (const input of inputs) input.value = "";
    draw();
  } }, "Remove");
  const draw = () => {
    const { entries, left = [] } = state, size = entries.reduce((sum, entry) => sum + entry.file.size, 0);
    none.hidden = !entries.length && !state.before;
    show(said, state.before ? h("p", {}, `The code of the earlier job is sent along again: ${state.before.slice(0, 19)}….`) : null,
      entries.length ? h("p", {}, `${many(entries.length, "file")}, ${mib(size / 1048576)}: ${entries.slice(0, MAX_NAMED).map((entry) => entry.name).join(", ")}${entries.length > MAX_NAMED ? ", …" : ""}`) : null,
      left.length ? h("p", {}, `Left out: ${left.slice(0, MAX_NAMED).join(", ")}${left.length > MAX_NAMED ? ` and ${left.length - MAX_NAMED} more` : ""}`) : null);
  };
  draw();
  const content = globalThis.crypto.subtle
    ? [h("label", {}, "Files", inputs[0]), h("label", {}, "or a directory with all that is in it", inputs[1]), h("small", { class: "soft" }, "The files are in the sandbox of the job. What .gitignore and .mesosgpuignore of a directory name is left out. Programs, and scripts that begin with #!, are executable.")]
    : h("p", { class: "soft" }, "Over http from another host a browser computes no digests, so this page cannot send files: open it over https, or use mesos-gpu run --upload.");
  const element = h("fieldset", { class: "wide" }, h("legend", {}, "Code"), content, said, none);
  return Object.assign(element, { upload: () => (state.entries.length ? sent(state.entries, said) : Promise.resolve(state.before)), isChosen: () => state.entries.length > 0 });
}

/** What is packed of files that were chosen: {name, file} by name, and the names of what is left out. */
export async function chosen(files) {
  const named = files.map((file) => ({ name: file.webkitRelativePath ? file.webkitRelativePath.split("/").slice(1).join("/") : file.name, file }));
  const rules = named.filter((entry) => entry.file.webkitRelativePath && hasRules(entry.name.split("/").at(-1)));
  const isOut = ignoring(new Map(await Promise.all(rules.map(async (entry) => [entry.name, await entry.file.text()]))));
  const kept = named.filter((entry) => !entry.file.webkitRelativePath || !isOut(entry.name)), left = kept.filter((entry) => TAKEN.has(entry.name.split("/")[0]));
  const entries = kept.filter((entry) => !left.includes(entry)).sort((one, other) => (one.name < other.name ? -1 : 1));
  return { entries, left: left.map((entry) => `${entry.name} (the sandbox has its own)`) };
}

async function sent(entries, said) {
  if (entries.length > MAX_FILES) throw wrong(`${entries.length} files are more than ${MAX_FILES}: leave some out with .mesosgpuignore`);
  const { uploads, archive_limit_bytes } = await get("/v1/uploads"), archive = await pack(entries);
  if (archive.size > archive_limit_bytes) {
    const largest = [...entries].sort((one, other) => other.file.size - one.file.size).slice(0, MAX_NAMED).map((entry) => `${entry.name} (${mib(entry.file.size / 1048576)})`);
    throw wrong(`the archive has ${mib(archive.size / 1048576)}, and may have ${mib(archive_limit_bytes / 1048576)}; the largest files are ${largest.join(", ")}`);
  }
  const digest = [...new Uint8Array(await crypto.subtle.digest("SHA-256", await archive.arrayBuffer()))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const path = `/v1/uploads/${digest}`;
  for (let there = uploads.find((each) => each.sha256 === digest); !there?.complete;) {
    const offset = there?.received_bytes ?? 0;
    there = await send("PUT", `${path}?${new URLSearchParams({ offset, size: archive.size })}`, archive.slice(offset, offset + PIECE));
    show(said, h("p", {}, `sending code: ${mib(there.received_bytes / 1048576)} of ${mib(archive.size / 1048576)}`));
  }
  show(said, h("p", {}, `${many(entries.length, "file")} sent: ${digest.slice(0, 12)}…`));
  return `sha256:${digest}`;
}

function wrong(reason) {
  return Object.assign(new Error(`Code: ${reason}`), { refused: true, problems: [] });
}

/** An archive of files as a Blob: gzip of tar. */
export async function pack(entries) {
  const parts = [];
  for (const { name, file } of entries) {
    const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
    const runs = (start[0] === 0x23 && start[1] === 0x21) || (start[0] === 0x7f && start[1] === 0x45 && start[2] === 0x4c && start[3] === 0x46); // #! or ELF
    parts.push(...head(name, file.size, runs ? 0o755 : 0o644), file, new Uint8Array(-file.size & (BLOCK - 1)));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Response(new Blob(parts).stream().pipeThrough(new CompressionStream("gzip"))).blob();
}

function head(name, size, mode) { // with a header of its own for a name that does not fit
  const bytes = encoder.encode(name);
  if (bytes.length <= MAX_NAME && bytes.length === name.length) return [block(bytes, size, mode, "0")];
  const record = encoder.encode(paxRecord(name));
  return [block(encoder.encode("PaxHeader"), record.length, 0o644, "x"), record, new Uint8Array(-record.length & (BLOCK - 1)), block(bytes.subarray(0, MAX_NAME), size, mode, "0")];
}

function paxRecord(name) { // whose length counts its own digits
  const rest = encoder.encode(` path=${name}\n`).length;
  let length = rest + 1;
  while (rest + String(length).length !== length) length = rest + String(length).length;
  return `${length} path=${name}\n`;
}

function block(name, size, mode, kind) {
  const header = new Uint8Array(BLOCK), put = (at, text) => header.set(encoder.encode(text), at), octal = (value, digits) => `${value.toString(8).padStart(digits, "0")}\0`;
  header.set(name);
  put(100, octal(mode, 7) + octal(0, 7) + octal(0, 7) + octal(size, 11) + octal(SENT_AT, 11));
  put(148, `        ${kind}`);
  put(257, "ustar\u000000");
  put(148, `${octal(header.reduce((sum, byte) => sum + byte), 6)} `);
  return header;
}
