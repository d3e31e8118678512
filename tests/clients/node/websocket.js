// A WebSocket peer made with `ws`: `origin` echoes on a free port and prints it; `client URL` talks to an echo and fails loudly;
// `client URL plain` does so to an echo that knows neither subprotocols nor compression.
import assert from "node:assert/strict";
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";

const [role, url, plain] = process.argv.slice(2);

if (role === "origin") {
  const server = new WebSocketServer({
    host: "127.0.0.1",
    port: 0,
    perMessageDeflate: { threshold: 64 },
    handleProtocols: (offered) => (offered.has("echo.2") ? "echo.2" : false),
  });
  server.on("connection", (socket) => {
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
    socket.on("error", () => {});
  });
  server.on("listening", () => console.log(server.address().port));
} else {
  const offered = plain ? [] : ["echo.1", "echo.2"];
  const socket = new WebSocket(url, offered, { perMessageDeflate: { threshold: 64 } });
  await once(socket, "open");
  assert.equal(socket.protocol, plain ? "" : "echo.2");
  assert.match(socket.extensions, plain ? /^$/ : /permessage-deflate/);
  const echo = async (data, options) => {
    const back = once(socket, "message");
    socket.send(data, options);
    const [got, isBinary] = await back;
    assert.equal(isBinary, typeof data !== "string");
    assert.deepEqual(Buffer.from(got), Buffer.from(data));
  };
  await echo("hello");
  await echo("");
  await echo("ä".repeat(5_000));
  await echo(Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => (at * 7919) >> 8)));
  await echo(Buffer.alloc(70_000, 5), { compress: false });
  const back = once(socket, "message");
  const pong = once(socket, "pong");
  socket.send("first ", { fin: false });
  socket.ping("in between");
  socket.send("second", { fin: true });
  assert.equal(String((await pong)[0]), "in between");
  assert.equal(String((await back)[0]), "first second");
  const closed = once(socket, "close");
  socket.close(4_000, "enough");
  const [code, reason] = await closed;
  assert.equal(code, 4_000);
  assert.equal(String(reason), "enough");
  console.log("ok");
}
