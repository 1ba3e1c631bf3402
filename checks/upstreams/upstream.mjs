// An upstream for checks/proxy_peers.py and checks/applications.py on the HTTP server of Node, with its default timeouts.
import http from "node:http";

const [host, port] = process.argv[2].split(":");
let left = 0;
let stream = null;
let health = 200;
const held = [];
let isReleased = false;

const paths = {
    "/hello": (request, response) => response.end("hello\n"),
    // Node announces its timeout in Keep-Alive unless an application sets Connection.
    "/quiet": (request, response) => response.writeHead(200, { Connection: "keep-alive" }).end("hello\n"),
    "/echo": (request, response) => request.pipe(response),
    "/events": (request, response) => {
        response.writeHead(200, { "Content-Type": "text/event-stream" }).write(": open\n\n");
        stream = response;
    },
    "/publish": (request, response) => {
        request.setEncoding("utf8").on("data", text => stream.write(`data: ${text}\n\n`));
        request.on("end", () => response.end());
    },
    "/wait": (request, response) => {
        response.on("close", () => left += 1);
        response.write("begin\n");
    },
    "/left": (request, response) => response.end(String(left)),
    "/refuse": (request, response) => response.writeHead(403).end(),
    "/healthz": (request, response) => response.writeHead(health).end(),
    "/health": (request, response) => {
        request.on("data", status => health = Number(status));
        request.on("end", () => response.end());
    },
    // Waits until a request for /release.
    "/hold": (request, response) => isReleased ? response.end("held\n") : held.push(response),
    "/release": (request, response) => {
        isReleased = true;
        held.forEach(each => each.end("held\n"));
        response.end();
    },
    "/describe": (request, response) => response.end(JSON.stringify({
        server: "node", method: request.method, url: request.url, fields: request.headers,
    })),
};

http.createServer((request, response) => paths[request.url.split("?")[0]](request, response)).listen(Number(port), host);
