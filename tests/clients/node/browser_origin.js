// The origin of a page: `browser_origin.js` listens on a free port, prints it, and serves a page with style, script and images,
// an echo, a stream of events and a WebSocket. The page tries all of it and keeps what came of it in `window.result`.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const IMAGES = 30;
// One pixel.
const IMAGE = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

const PAGE = `<!doctype html><html><head><meta charset="utf-8"><title>page</title>
<link rel="stylesheet" href="/style.css"><script src="/script.js" defer></script></head><body><p id="styled">ä</p>
${Array.from({ length: IMAGES }, (_, number) => `<img src="/image/${number}.png">`).join("\n")}</body></html>`;

const STYLE = "#styled { color: rgb(1, 2, 3) }";

// What the page does; it runs in the browser.
async function visit() {
  const large = new Uint8Array(1_000_000).map((_, at) => (at * 7919) >> 8);
  const isLarge = (bytes) => bytes.length === large.length && bytes.every((byte, at) => byte === large[at]);
  const echo = async (body, more) => {
    const response = await fetch("/echo", { method: "POST", body, ...more });
    return new Uint8Array(await response.arrayBuffer());
  };
  const within = (what, promise) =>
    Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`${what} takes too long`)), 20_000))]);
  const steps = {
    async style() {
      return getComputedStyle(document.getElementById("styled")).color === "rgb(1, 2, 3)";
    },
    async images() {
      const images = [...document.images];
      await Promise.all(images.map((image) => image.decode()));
      return images.length === 30 && images.every((image) => image.naturalWidth === 1);
    },
    async fetch_many() {
      const numbers = Array.from({ length: 100 }, (_, number) => String(number));
      const responses = await Promise.all(numbers.map((number) => echo(number)));
      return responses.every((response, at) => new TextDecoder().decode(response) === numbers[at]);
    },
    async fetch_large() {
      return isLarge(await echo(large));
    },
    async fetch_in_pieces() {
      const response = await fetch("/pieces");
      let [text, pieces] = ["", 0];
      for (const reader = response.body.getReader(); ; pieces += 1) {
        const { done, value } = await reader.read();
        if (done) break;
        text += new TextDecoder().decode(value);
      }
      return text === "one two three " && pieces > 1;
    },
    // Only over HTTP/2 may a page stream a body.
    async fetch_upload_stream() {
      const isHttp2 = performance.getEntriesByType("navigation")[0].nextHopProtocol === "h2";
      const pieces = () =>
        new ReadableStream({
          start(controller) {
            for (let at = 0; at < large.length; at += 50_000) controller.enqueue(large.subarray(at, at + 50_000));
            controller.close();
          },
        });
      try {
        const back = await echo(pieces(), { duplex: "half" });
        return isHttp2 && isLarge(back);
      } catch (error) {
        return !isHttp2 && error instanceof TypeError;
      }
    },
    async fetch_abort() {
      const gone = new AbortController();
      const response = await fetch("/endless", { signal: gone.signal });
      const reader = response.body.getReader();
      await reader.read();
      gone.abort();
      return reader.read().then(() => false, (error) => error.name === "AbortError");
    },
    // The origin ends the stream after two events; the browser comes again and says which was the last.
    events() {
      return new Promise((resolve) => {
        const seen = [];
        const source = new EventSource("/events");
        source.addEventListener("tick", (event) => {
          seen.push(`${event.lastEventId}:${event.data}`);
          if (seen.length === 4) {
            source.close();
            resolve(seen.join(" ") === "1:after 0 2:after 0 3:after 2 4:after 2");
          }
        });
      });
    },
    websocket() {
      return new Promise((resolve, reject) => {
        const socket = new WebSocket(`wss://${location.host}/socket`, ["echo"]);
        socket.binaryType = "arraybuffer";
        const got = [];
        socket.onopen = () => {
          socket.send("hällo");
          socket.send(large);
        };
        socket.onmessage = ({ data }) => {
          got.push(data);
          if (got.length === 2) socket.close(4000, "enough");
        };
        socket.onerror = () => reject(new Error("the WebSocket failed"));
        socket.onclose = ({ code, reason, wasClean }) =>
          resolve(
            socket.protocol === "echo" &&
              /permessage-deflate/.test(socket.extensions) &&
              got[0] === "hällo" &&
              isLarge(new Uint8Array(got[1])) &&
              wasClean && code === 4000 && reason === "enough",
          );
      });
    },
  };
  const result = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      result[name] = (await within(name, step())) || "not as it should be";
    } catch (error) {
      result[name] = String(error);
    }
  }
  const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  result.protocols = [...new Set(entries.map((entry) => entry.nextHopProtocol).filter((name) => name))].sort();
  return result;
}

const SCRIPT = `${visit}\nwindow.result = visit();`;

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, "http://origin");
  const send = (type, body) => response.writeHead(200, { "Content-Type": type, "Content-Length": Buffer.byteLength(body) }).end(body);
  if (pathname === "/") send("text/html; charset=utf-8", PAGE);
  else if (pathname === "/style.css") send("text/css", STYLE);
  else if (pathname === "/script.js") send("text/javascript; charset=utf-8", SCRIPT);
  else if (pathname.startsWith("/image/")) send("image/png", IMAGE);
  else if (pathname === "/echo") {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => send("application/octet-stream", Buffer.concat(pieces)));
  } else if (pathname === "/pieces") {
    const pieces = ["one ", "two ", "three "];
    const timer = setInterval(() => {
      response.write(pieces.shift());
      if (pieces.length === 0) {
        clearInterval(timer);
        response.end();
      }
    }, 100);
  } else if (pathname === "/endless") {
    const timer = setInterval(() => response.write("more "), 20);
    response.on("close", () => clearInterval(timer));
  } else if (pathname === "/events") {
    const last = Number(request.headers["last-event-id"] ?? 0);
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
    response.write("retry: 20\n\n");
    for (const number of [last + 1, last + 2]) response.write(`id: ${number}\nevent: tick\ndata: after ${last}\n\n`);
    response.end();
  } else response.writeHead(404).end();
});

const sockets = new WebSocketServer({ server, path: "/socket", perMessageDeflate: { threshold: 64 } });
sockets.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("error", () => {});
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
