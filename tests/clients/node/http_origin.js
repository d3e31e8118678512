// An HTTP origin made with Node's own server: it prints its port, and then a line of JSON for each request that it was given,
// before it answers with method and target.
import { createServer } from "node:http";

const server = createServer((request, response) => {
  const pieces = [];
  let isOver = false;
  const log = (isWhole) => {
    if (isOver) return;
    isOver = true;
    console.log(
      JSON.stringify({
        method: request.method,
        target: request.url,
        host: request.headers.host ?? "",
        length: request.headers["content-length"] ?? "",
        encoding: request.headers["transfer-encoding"] ?? "",
        body: Buffer.concat(pieces).toString("latin1"),
        is_whole: isWhole,
      }),
    );
  };
  request.on("data", (piece) => pieces.push(piece));
  request.on("error", () => log(false));
  request.on("close", () => log(request.complete));
  request.on("end", () => {
    log(true);
    const body = `${request.method} ${request.url}`;
    response.setHeader("Content-Length", Buffer.byteLength(body));
    response.end(body);
  });
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
