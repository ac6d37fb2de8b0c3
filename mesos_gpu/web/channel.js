// The browser's end of a channel into a task: frames of a WebSocket, as mesos_gpu/wire/channel/frames.py has them.

export const STDIN = 0, STDOUT = 1, STDERR = 2, SIZE = 4, CREDIT = 6, EXIT = 7, FAILED = 8; // kinds of frames
export const MAX_DATA = 65536, WINDOW = 1 << 20; // bytes: of a frame, and of data without credit
const PROTOCOL = "mesos-gpu.channel.v1";

/** Open a channel that the scheduler has offered. `on`: functions `open`, `frame` with kind and data, and `close`. */
export function openChannel({ path, proof }, on) {
  const url = new URL(path, location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url.href, [PROTOCOL, `proof.${proof}`]);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => on.open?.();
  socket.onmessage = ({ data }) => {
    const frame = new Uint8Array(data);
    on.frame(frame[0], frame.subarray(1));
  };
  socket.onclose = () => on.close();
  return { send: (kind, body) => send(socket, kind, body), close: () => socket.close() };
}

function send(socket, kind, body) {
  if (socket.readyState !== WebSocket.OPEN) return;
  const frame = new Uint8Array(1 + body.length);
  frame[0] = kind;
  frame.set(body, 1);
  socket.send(frame);
}

/** Whole numbers of so many bytes each, the highest byte first. */
export function numbers(bytes, ...values) {
  const body = new DataView(new ArrayBuffer(bytes * values.length));
  values.forEach((value, i) => (bytes === 2 ? body.setUint16(2 * i, value) : body.setUint32(4 * i, value)));
  return new Uint8Array(body.buffer);
}

/** The whole number in the first four bytes of some data. */
export function numberOf(data) {
  return new DataView(data.buffer, data.byteOffset).getUint32(0);
}
