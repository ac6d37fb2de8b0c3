// A terminal in a running task: a channel of the scheduler's, by WebSocket.

import { send } from "./api.js";
import { CREDIT, EXIT, FAILED, MAX_DATA, SIZE, STDERR, STDIN, STDOUT, WINDOW, numberOf, numbers, openChannel } from "./channel.js";
import { h } from "./dom.js";
import { Terminal, cssColour, keyOf } from "./terminal.js";

const ANY_SHELL = 'exec "$(command -v bash || echo /bin/sh)"';
const encoder = new TextEncoder();
let open = null; // the one that is shown

/** A form that opens a terminal in one of the tasks, which stays while the page shows the same job. */
export function shell(job, tasks) {
  const running = tasks.filter((task) => task.state === "running" && job.task_ids.includes(task.id));
  if (open?.job !== job.id) {
    stop();
    if (!running.length) return null;
    open = made(job.id);
  }
  choices(open, running);
  return open.element;
}

/** End what runs, if anything does. */
export function stop() {
  open?.channel?.close();
  open = null;
}

document.addEventListener("left", stop); // who is logged out is not asked whether to stay
addEventListener("beforeunload", (event) => {
  if (open?.channel) event.preventDefault();
});

function made(job) {
  const view = { job, channel: null, terminal: null, credit: WINDOW, waiting: [] };
  view.rank = h("select", { "aria-label": "Task of the terminal" });
  view.command = h("input", { "aria-label": "Command", placeholder: "bash, or sh where there is none", size: 40, autocomplete: "off", spellcheck: "false" });
  view.button = h("button", { class: "main" }, "Open a terminal");
  view.end = h("button", { type: "button", class: "danger", onclick: () => view.channel?.close(), hidden: true }, "End it");
  view.said = h("p", { class: "soft", role: "status" });
  view.lines = h("div", { role: "group", "aria-label": "What it shows" });
  view.input = h("textarea", { "aria-label": "Terminal: what you type goes to the program; Shift+Tab leaves", autocapitalize: "off", autocomplete: "off", autocorrect: "off", spellcheck: "false", rows: 1 });
  view.screen = h("div", { class: "terminal", hidden: true }, view.input, view.lines);
  view.form = h("form", { class: "filters" }, view.rank, view.command, view.button, view.end);
  view.element = h("section", { key: `shell ${job}`, keeps: true }, h("h2", {}, "Terminal"), view.form, view.said, view.screen);
  view.form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!view.channel) begin(view);
  });
  listen(view);
  return view;
}

function choices(view, running) {
  const ids = running.map((task) => task.id).join(" ");
  if (view.ids === ids) return;
  view.ids = ids;
  const chosen = view.rank.value;
  view.rank.replaceChildren(...running.map((task) => h("option", { value: task.rank }, `rank ${task.rank} on ${task.hostname}`)));
  if (running.some((task) => String(task.rank) === chosen)) view.rank.value = chosen;
  view.rank.hidden = running.length < 2;
  view.button.disabled = view.channel !== null || !running.length;
}

async function begin(view) {
  view.screen.hidden = false;
  const { rows, columns } = sizeOf(view), command = view.command.value.trim();
  view.terminal = new Terminal(rows, columns, (text) => view.waiting.length || type(view, text)); // who does not read answers gets no more of them
  view.lines.replaceChildren();
  [view.credit, view.waiting, view.painted] = [WINDOW, [], null];
  tell(view, "connecting …");
  view.button.disabled = true;
  try {
    const asked = { argv: ["/bin/sh", "-c", command || ANY_SHELL], stdin: true, tty: true, rows, columns, term: "xterm-256color", rank: Number(view.rank.value) };
    const offer = await send("POST", `/v1/jobs/${encodeURIComponent(view.job)}/exec`, asked);
    if (open === view) connect(view, offer);
  } catch (error) {
    view.button.disabled = false;
    tell(view, error.message, true);
  }
}

function connect(view, offer) {
  let last = null;
  view.channel = openChannel(offer, {
    open: () => view.input.focus(),
    frame: (kind, data) => { last = taken(view, kind, data) ?? last; },
    close: () => {
      view.channel = null;
      view.end.hidden = true;
      view.button.disabled = !view.ids;
      view.screen.classList.remove("live");
      if (view.screen.contains(document.activeElement)) view.button.focus(); // what cannot be typed into has no focus
      tell(view, ...(last ?? ["The connection has ended.", true]));
    },
  });
  view.end.hidden = false;
  view.screen.classList.add("live");
}

function taken(view, kind, data) { // [words, whether they are bad] of the last frame
  switch (kind) {
    case STDOUT: case STDERR:
      if (!view.painted) tell(view, "");
      view.terminal.write(data);
      paint(view);
      view.channel.send(CREDIT, numbers(4, data.length));
      return null;
    case CREDIT:
      view.credit += numberOf(data);
      flow(view);
      return null;
    case EXIT: return [`It has ended with exit code ${numberOf(data)}.`, numberOf(data) !== 0];
    case FAILED: return [new TextDecoder().decode(data), true];
  }
  return null;
}

function type(view, text) {
  const bytes = encoder.encode(text);
  for (let at = 0; at < bytes.length; at += MAX_DATA) view.waiting.push(bytes.subarray(at, at + MAX_DATA));
  flow(view);
}

function flow(view) { // send what the other side takes
  while (view.waiting.length && view.waiting[0].length <= view.credit) {
    const piece = view.waiting.shift();
    view.credit -= piece.length;
    view.channel?.send(STDIN, piece);
  }
}

function listen(view) {
  const { input, screen } = view;
  input.addEventListener("keydown", (event) => {
    if (!view.channel || (event.ctrlKey && event.key === "c" && String(getSelection()))) return; // copies
    const text = keyOf(event, view.terminal.modes);
    if (text === null) return;
    event.preventDefault();
    type(view, text);
  });
  input.addEventListener("input", (event) => { // letters, also of those who compose them, and of phones
    if (event.isComposing || !view.channel) return;
    const text = input.value;
    input.value = "";
    type(view, text.replace(/\r?\n/g, "\r"));
  });
  input.addEventListener("compositionend", () => input.dispatchEvent(new Event("input")));
  input.addEventListener("paste", (event) => {
    event.preventDefault();
    if (!view.channel) return;
    const text = event.clipboardData.getData("text").replace(/\r?\n/g, "\r").replaceAll("\x1b", "");
    type(view, view.terminal.modes.paste ? `\x1b[200~${text}\x1b[201~` : text);
  });
  screen.addEventListener("mouseup", () => String(getSelection()) || input.focus());
  new ResizeObserver(() => {
    if (!view.channel || !screen.clientWidth) return;
    const { rows, columns } = sizeOf(view);
    if (rows === view.terminal.rows && columns === view.terminal.columns) return;
    view.terminal.resize(rows, columns);
    view.channel.send(SIZE, numbers(2, rows, columns));
    paint(view);
  }).observe(screen);
}

function sizeOf(view) { // of a letter, and how many there is room for
  const letters = h("span", {}, "M".repeat(100)), probe = h("div", {}, letters); // a line is higher than its letters
  view.lines.append(probe);
  const { width } = letters.getBoundingClientRect(), { height } = probe.getBoundingClientRect(), style = getComputedStyle(view.screen);
  probe.remove();
  const room = view.screen.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const columns = Math.floor(room / (width / 100)) || 80;
  return { rows: Math.max(5, Math.min(60, Math.floor((view.screen.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) / height) || 24)), columns: Math.max(20, Math.min(400, columns)) };
}

function tell(view, text, bad = false) {
  view.said.className = bad ? "bad" : "soft";
  view.said.textContent = text;
}

const elements = new WeakMap(); // of lines

function paint(view) { // once for all that came since the last picture
  view.painted ??= {};
  if (view.painted.asked) return;
  view.painted.asked = true;
  requestAnimationFrame(() => {
    if (!view.painted) return;
    view.painted.asked = false;
    drawn(view);
  });
}

function drawn({ terminal, lines, screen, painted }) {
  const atEnd = screen.scrollHeight - screen.scrollTop - screen.clientHeight < 40;
  const cursorLine = terminal.modes.cursor ? terminal.lines[terminal.y] : null;
  for (const line of [painted.cursorLine, cursorLine]) if (line) line.changed = true;
  painted.cursorLine = cursorLine;
  let at = lines.firstChild;
  const wanted = [...terminal.kept, ...terminal.lines], there = new Set(wanted.map((line) => elements.get(line)));
  for (const line of wanted) {
    while (at && !there.has(at)) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    let element = elements.get(line);
    if (!element) elements.set(line, (element = h("div")));
    if (line.changed) element.replaceChildren(...pieces(line.cells, line === cursorLine ? Math.min(terminal.x, terminal.columns - 1) : -1));
    line.changed = false;
    if (element === at) at = at.nextSibling;
    else lines.insertBefore(element, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  if (atEnd) screen.scrollTop = screen.scrollHeight;
}

function pieces(cells, cursor) { // of a line: elements of equal style
  const all = [];
  let text = "", style = null, marked = false;
  const end = () => { if (text) all.push(piece(text, style, marked)); };
  let many = cells.length; // what is empty at the end is not there, also for who copies it
  while (many > cursor + 1 && cells[many - 1][0] === " " && !Object.keys(cells[many - 1][1]).length) many -= 1;
  cells.slice(0, many).forEach(([letters, dress], x) => {
    if (dress !== style || (x === cursor) !== marked) {
      end();
      [text, style, marked] = ["", dress, x === cursor];
    }
    text += letters;
  });
  end();
  return all;
}

function piece(text, style, marked) {
  let { front, behind } = style;
  if (style.inverse) [front, behind] = [behind ?? "none", front ?? "text"];
  const names = ["bold", "dim", "italic", "under", "hidden", "struck"].filter((name) => style[name]);
  if (marked) names.push("cursor");
  const element = h("span");
  for (const [what, colour, property] of [["front", front, "color"], ["behind", behind, "backgroundColor"]]) {
    if (colour === undefined) continue;
    if (typeof colour === "number" && colour >= 16 || String(colour).startsWith("#")) element.style[property] = cssColour(colour);
    else names.push(`${what}-${colour}`);
  }
  if (names.length) element.className = names.join(" ");
  element.textContent = text;
  return element;
}
