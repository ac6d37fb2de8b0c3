// A terminal: what a program writes becomes lines of cells, as xterm does it (ECMA-48, and DEC's private modes that
// programs use today). Nothing here knows of a page.

const PLAIN = Object.freeze({});
const MOST_KEPT = 2000; // lines that have left the screen at its top
const MOST_PARAMETERS = 32, MOST_PARAMETER = 99999;
const GRAPHICS = Object.fromEntries([..."`◆a▒f°g±j┘k┐l┌m└n┼o⎺p⎻q─r⎼s⎽t├u┤v┴w┬x│y≤z≥~·".matchAll(/([ -~])([^ -~])/gu)].map(([, from, to]) => [from, to]));
const COMBINES = /^[\p{Mn}\p{Me}\u200d\ufe0f]$/u;
const WIDE = [[0x1100, 0x115f], [0x2e80, 0xa4cf], [0xac00, 0xd7a3], [0xf900, 0xfaff], [0xfe30, 0xfe6f], [0xff00, 0xff60], [0xffe0, 0xffe6], [0x1f300, 0x1faff], [0x20000, 0x3fffd]];

function isWide(letter) {
  const code = letter.codePointAt(0);
  return code >= 0x1100 && WIDE.some(([from, to]) => code >= from && code <= to);
}

/** A screen of `rows` by `columns`. `lines`: what it shows, `kept`: what has left it, each {cells, changed}; a cell is
 *  [text, style], the one behind a wide letter has no text. `answer`: is told what the program asked the terminal, once
 *  for all that it asks in bytes that are written together. */
export class Terminal {
  constructor(rows, columns, answer = () => {}) {
    this.answer = answer;
    this.told = ""; // of the answer to what is being written
    this.decoder = new TextDecoder();
    this.rows = rows;
    this.columns = columns;
    this.reset();
  }

  reset() {
    this.kept = [];
    this.lines = this.blank(this.rows);
    this.other = null; // the screen that programs like editors hide
    this.x = this.y = 0;
    this.style = PLAIN;
    this.saved = null;
    [this.top, this.bottom] = [0, this.rows - 1];
    this.modes = { wrap: true, cursor: true, origin: false, insert: false, newline: false, keys: false, paste: false };
    this.graphics = [false, false];
    this.shifted = 0;
    this.take = this.ground;
    this.held = "";
    this.last = " ";
    this.tabs = new Set();
    for (let x = 8; x < 1000; x += 8) this.tabs.add(x);
  }

  /** Take bytes of the program. */
  write(bytes) {
    this.told = "";
    for (const letter of this.decoder.decode(bytes, { stream: true })) this.take(letter);
    if (this.told) this.answer(this.told);
  }

  /** Change its size; what no longer fits at the top is kept. */
  resize(rows, columns) {
    if (rows === this.rows && columns === this.columns) return;
    const gone = Math.max(0, Math.min(this.lines.length - rows, this.y + 1 - rows));
    const out = this.lines.splice(0, gone);
    if (!this.other) this.keep(out);
    for (const screen of [this.lines, this.other?.lines].filter(Boolean)) {
      screen.length = Math.min(screen.length, rows);
      while (screen.length < rows) screen.push(this.line(columns));
      for (const line of screen) {
        while (line.cells.length < columns) line.cells.push([" ", PLAIN]);
        line.cells.length = columns;
        line.changed = true;
      }
    }
    [this.rows, this.columns, this.top, this.bottom] = [rows, columns, 0, rows - 1];
    this.to(this.x, this.y - gone);
  }

  /** The text of the screen, without what is empty at the end of each line. */
  text() {
    return this.lines.map((line) => line.cells.map(([text]) => text).join("").trimEnd()).join("\n");
  }

  line(columns = this.columns) {
    return { cells: Array.from({ length: columns }, () => [" ", this.erased()]), changed: true };
  }

  blank(count) {
    return Array.from({ length: count }, () => this.line());
  }

  erased() { // what is emptied has the colour behind that is set
    const behind = this.style?.behind;
    return behind === undefined ? PLAIN : Object.freeze({ behind });
  }

  keep(lines) {
    this.kept.push(...lines);
    if (this.kept.length > MOST_KEPT) this.kept.splice(0, this.kept.length - MOST_KEPT);
  }

  to(x, y) {
    this.x = Math.max(0, Math.min(this.columns - 1, x));
    this.y = Math.max(0, Math.min(this.rows - 1, y));
  }

  // States: what takes the next letter.

  ground(letter) {
    const code = letter.codePointAt(0);
    if (code >= 0x20 && code !== 0x7f) return code >= 0x80 && code < 0xa0 ? undefined : this.put(letter);
    this.control(letter);
  }

  control(letter) {
    switch (letter) {
      case "\b": this.x = Math.max(0, Math.min(this.x, this.columns - 1) - 1); break;
      case "\t": this.tab(1); break;
      case "\n": case "\v": case "\f":
        this.down();
        if (this.modes.newline) this.x = 0;
        break;
      case "\r": this.x = 0; break;
      case "\x0e": this.shifted = 1; break;
      case "\x0f": this.shifted = 0; break;
      case "\x1b": this.take = this.escape; break;
    }
  }

  escape(letter) {
    this.take = this.ground;
    switch (letter) {
      case "[": [this.take, this.held] = [this.sequence, ""]; break;
      case "]": case "P": case "X": case "^": case "_": [this.take, this.held] = [this.words, ""]; break;
      case "(": case ")": [this.take, this.held] = [this.charset, letter]; break;
      case "#": case "%": case "*": case "+": case " ": this.take = () => { this.take = this.ground; }; break;
      case "7": this.save(); break;
      case "8": this.restore(); break;
      case "D": this.down(); break;
      case "E": this.x = 0; this.down(); break;
      case "H": this.tabs.add(this.x); break;
      case "M": this.up(); break;
      case "c": this.reset(); break;
      case "\x1b": this.take = this.escape; break;
    }
  }

  charset(letter) {
    this.graphics[this.held === ")" ? 1 : 0] = letter === "0";
    this.take = this.ground;
  }

  words(letter) { // titles and the like: nothing is done with them
    if (letter === "\x07" || letter === "\x18" || letter === "\x1a" || (this.held === "\x1b" && letter === "\\")) this.take = this.ground;
    this.held = letter;
  }

  sequence(letter) {
    if (letter >= "@" && letter <= "~") {
      this.take = this.ground;
      const [, mark, numbers, between] = this.held.match(/^([<-?]?)([0-9;:]*)(.*)$/s);
      if (!between) this.act(mark + letter, numbers);
    } else if (letter === "\x1b") this.take = this.escape;
    else if (letter < " ") this.control(letter);
    else if (this.held.length < 256) this.held += letter;
  }

  act(what, text) {
    const numbers = text.split(/[;:]/, MOST_PARAMETERS).map((each) => Math.min(Number(each || 0), MOST_PARAMETER)), n = Math.max(1, numbers[0]);
    const left = Math.min(this.x, this.columns - 1), base = this.modes.origin ? this.top : 0;
    switch (what) {
      case "A": this.to(left, Math.max(this.y - n, this.y >= this.top ? this.top : 0)); break;
      case "B": case "e": this.to(left, Math.min(this.y + n, this.y <= this.bottom ? this.bottom : this.rows)); break;
      case "C": case "a": this.to(left + n, this.y); break;
      case "D": this.to(left - n, this.y); break;
      case "E": this.to(0, this.y + n); break;
      case "F": this.to(0, this.y - n); break;
      case "G": case "`": this.to(n - 1, this.y); break;
      case "H": case "f": this.to(Math.max(1, numbers[1] ?? 1) - 1, Math.min(base + n - 1, this.modes.origin ? this.bottom : this.rows)); break;
      case "d": this.to(left, base + n - 1); break;
      case "I": this.tab(n); break;
      case "Z": this.tab(-n); break;
      case "J": this.eraseScreen(numbers[0]); break;
      case "K": this.fill(this.y, numbers[0] === 0 ? left : 0, numbers[0] === 1 ? left + 1 : this.columns); break;
      case "X": this.fill(this.y, left, left + n); break;
      case "L": case "M":
        if (!this.inRegion()) break;
        this.scroll(this.y, this.bottom, what === "L" ? -n : n, false);
        this.x = 0;
        break;
      case "S": this.scroll(this.top, this.bottom, n, false); break;
      case "T": this.scroll(this.top, this.bottom, -n); break;
      case "@": this.shift(left, n); break;
      case "P": this.shift(left, -n); break;
      case "b": for (let i = 0; i < Math.min(n, this.columns * this.rows); i += 1) this.put(this.last); break;
      case "g": if (numbers[0] === 3) this.tabs.clear(); else this.tabs.delete(this.x); break;
      case "h": case "l": for (const mode of numbers) this.set(mode, what === "h"); break;
      case "?h": case "?l": for (const mode of numbers) this.setPrivate(mode, what === "?h"); break;
      case "m": this.dress(numbers); break;
      case "n":
        if (numbers[0] === 5) this.told += "\x1b[0n";
        if (numbers[0] === 6) this.told += `\x1b[${this.y - base + 1};${left + 1}R`;
        break;
      case "c": if (!numbers[0]) this.told += "\x1b[?6c"; break;
      case "r": {
        const top = n - 1, bottom = Math.min(numbers[1] || this.rows, this.rows) - 1;
        if (top < bottom) {
          [this.top, this.bottom] = [top, bottom];
          this.to(0, this.modes.origin ? top : 0);
        }
        break;
      }
      case "s": this.save(); break;
      case "u": this.restore(); break;
    }
  }

  set(mode, on) {
    if (mode === 4) this.modes.insert = on;
    if (mode === 20) this.modes.newline = on;
  }

  setPrivate(mode, on) {
    const name = { 1: "keys", 7: "wrap", 25: "cursor", 2004: "paste" }[mode];
    if (name) this.modes[name] = on;
    if (mode === 6) {
      this.modes.origin = on;
      this.to(0, on ? this.top : 0);
    }
    if (mode === 1048 || mode === 1049) if (on) this.save();
    if (mode === 47 || mode === 1047 || mode === 1049) this.swap(on);
    if (mode === 1048 || mode === 1049) if (!on) this.restore();
  }

  swap(hide) { // to the screen that is not kept, and back
    if (hide === (this.other !== null)) return;
    if (hide) [this.other, this.lines] = [{ lines: this.lines }, this.blank(this.rows)];
    else [this.lines, this.other] = [this.other.lines, null];
    for (const line of this.lines) line.changed = true;
  }

  save() {
    this.saved = { x: this.x, y: this.y, style: this.style, graphics: [...this.graphics], shifted: this.shifted };
  }

  restore() {
    const { x, y, style, graphics, shifted } = this.saved ?? { x: 0, y: 0, style: PLAIN, graphics: [false, false], shifted: 0 };
    Object.assign(this, { style, graphics: [...graphics], shifted });
    this.to(x, y);
  }

  // Changes of cells.

  put(letter) {
    const shown = (this.graphics[this.shifted] && GRAPHICS[letter]) || letter;
    if (COMBINES.test(shown)) return this.combine(shown);
    const width = isWide(shown) ? 2 : 1;
    if (this.x + width > this.columns) {
      if (this.modes.wrap) {
        this.x = 0;
        this.down();
      } else this.x = Math.max(0, this.columns - width);
    }
    if (this.modes.insert) this.shift(this.x, width);
    const { cells } = this.touched(this.y);
    if (cells[this.x][0] === "" && this.x) cells[this.x - 1] = [" ", cells[this.x - 1][1]]; // half of a wide letter is none
    cells[this.x] = [shown, this.style];
    if (width === 2 && this.x + 1 < this.columns) cells[this.x + 1] = ["", this.style];
    const after = this.x + width;
    if (cells[after]?.[0] === "") cells[after] = [" ", cells[after][1]];
    this.x = after; // beyond the last column: the next letter wraps
    this.last = letter;
  }

  combine(mark) {
    const { cells } = this.touched(this.y);
    let x = Math.min(this.x, this.columns) - 1;
    if (cells[x]?.[0] === "") x -= 1;
    if (x >= 0 && cells[x][0].length < 16) cells[x] = [cells[x][0] + mark, cells[x][1]];
  }

  touched(y) {
    const line = this.lines[y];
    line.changed = true;
    return line;
  }

  fill(y, from, until) {
    const { cells } = this.touched(y), style = this.erased();
    for (let x = from; x < Math.min(until, this.columns); x += 1) cells[x] = [" ", style];
  }

  eraseScreen(how) {
    const left = Math.min(this.x, this.columns - 1);
    if (how === 3) this.kept = [];
    for (let y = 0; y < this.rows; y += 1) {
      if (how === 2 || (how === 0 && y > this.y) || (how === 1 && y < this.y)) this.fill(y, 0, this.columns);
    }
    if (how === 0) this.fill(this.y, left, this.columns);
    if (how === 1) this.fill(this.y, 0, left + 1);
  }

  shift(x, by) { // letters behind a place, to the right or over it
    const { cells } = this.touched(this.y), many = Math.min(Math.abs(by), this.columns - x);
    const empty = Array.from({ length: many }, () => [" ", this.erased()]);
    if (by > 0) {
      cells.splice(x, 0, ...empty);
      cells.length = this.columns;
    } else {
      cells.splice(x, many);
      cells.push(...empty);
    }
  }

  inRegion() {
    return this.y >= this.top && this.y <= this.bottom;
  }

  scroll(top, bottom, by, keeps = true) { // up if `by` is positive
    const many = Math.min(Math.abs(by), bottom - top + 1);
    if (by > 0) {
      const out = this.lines.splice(top, many);
      this.lines.splice(bottom - many + 1, 0, ...this.blank(many));
      if (keeps && top === 0 && !this.other) this.keep(out);
    } else {
      this.lines.splice(bottom - many + 1, many);
      this.lines.splice(top, 0, ...this.blank(many));
    }
  }

  down() {
    if (this.y === this.bottom) this.scroll(this.top, this.bottom, 1);
    else if (this.y < this.rows - 1) this.y += 1;
  }

  up() {
    if (this.y === this.top) this.scroll(this.top, this.bottom, -1);
    else if (this.y > 0) this.y -= 1;
  }

  tab(by) {
    for (let i = 0; i < Math.min(Math.abs(by), this.columns); i += 1) {
      const step = Math.sign(by);
      let x = Math.min(this.x, this.columns - 1) + step;
      while (x > 0 && x < this.columns - 1 && !this.tabs.has(x)) x += step;
      this.to(x, this.y);
    }
  }

  dress(numbers) { // SGR
    const style = { ...this.style };
    for (let i = 0; i < numbers.length; i += 1) {
      const n = numbers[i];
      if (n === 0) for (const name of Object.keys(style)) delete style[name];
      else if (n === 38 || n === 48) {
        const [colour, used] = colourOf(numbers.slice(i + 1));
        if (colour !== null) style[n === 38 ? "front" : "behind"] = colour;
        i += used;
      } else if (n in SETS) Object.assign(style, SETS[n]);
      else if (n in ENDS) for (const name of ENDS[n]) delete style[name];
      else if ((n >= 30 && n <= 37) || (n >= 90 && n <= 97)) style.front = n < 90 ? n - 30 : n - 82;
      else if ((n >= 40 && n <= 47) || (n >= 100 && n <= 107)) style.behind = n < 100 ? n - 40 : n - 92;
    }
    this.style = Object.keys(style).length ? Object.freeze(style) : PLAIN;
  }
}

const SETS = { 1: { bold: true }, 2: { dim: true }, 3: { italic: true }, 4: { under: true }, 7: { inverse: true }, 8: { hidden: true }, 9: { struck: true } };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["under"], 27: ["inverse"], 28: ["hidden"], 29: ["struck"], 39: ["front"], 49: ["behind"] };

function colourOf([kind, ...rest]) { // [a number to 255 or #rrggbb, how many numbers it took]
  if (kind === 5) return [rest[0] <= 255 ? rest[0] : null, 2];
  if (kind === 2 && rest.length >= 3) return [`#${rest.slice(0, 3).map((each) => Math.min(each, 255).toString(16).padStart(2, "0")).join("")}`, 4];
  return [null, rest.length + 1];
}

/** A colour of the 256 beyond the first 16, as CSS has it. */
export function cssColour(colour) {
  if (typeof colour === "string") return colour;
  if (colour >= 232) return `rgb(${Array(3).fill(8 + 10 * (colour - 232)).join(" ")})`;
  const n = colour - 16, part = (value) => (value ? 55 + 40 * value : 0);
  return `rgb(${part(Math.floor(n / 36))} ${part(Math.floor(n / 6) % 6)} ${part(n % 6)})`;
}

const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Insert: "\x1b[2~", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~",
  F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~", F11: "\x1b[23~", F12: "\x1b[24~",
};

/** What a key sends to the program; null: it is the browser's, or a letter that is typed. */
export function keyOf(event, modes) {
  const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
  if (metaKey || event.isComposing) return null;
  if (ctrlKey && !altKey && !shiftKey && key.length === 1) {
    const code = key.toUpperCase().codePointAt(0);
    if (key === " ") return "\0";
    if (code >= 0x40 && code <= 0x5f) return String.fromCharCode(code - 0x40);
    return key === "?" ? "\x7f" : null;
  }
  if (key in ARROWS) {
    const held = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
    return held > 1 ? `\x1b[1;${held}${ARROWS[key]}` : `\x1b${modes.keys ? "O" : "["}${ARROWS[key]}`;
  }
  if (ctrlKey || (shiftKey && key in KEYS)) return null; // Shift with Tab leaves the terminal
  if (key in KEYS) return (altKey ? "\x1b" : "") + KEYS[key];
  return altKey && key.length === 1 ? `\x1b${key}` : null;
}
