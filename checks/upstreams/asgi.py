"""An upstream for checks/proxy_peers.py and checks/applications.py: an ASGI application, without a framework."""
import asyncio
import json

left = 0
# The events of the newest stream.
published = None
# The status of /healthz. Requests for /hold wait until the event.
health, release = 200, asyncio.Event()


async def pieces(receive):
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def start(send, status=200, fields=()):
    await send({"type": "http.response.start", "status": status, "headers": list(fields)})


async def respond(send, content=b"", status=200):
    await start(send, status, [(b"content-length", b"%d" % len(content))])
    await send({"type": "http.response.body", "body": content})


async def echo(receive, send):
    await start(send)
    async for piece in pieces(receive):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def events(receive, send):
    global published
    published = own = asyncio.Queue()
    await start(send, fields=[(b"content-type", b"text/event-stream")])
    await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
    while True:
        text = await own.get()
        await send({"type": "http.response.body", "body": b"data: %s\n\n" % text, "more_body": True})


async def publish(receive, send):
    await published.put(b"".join([piece async for piece in pieces(receive)]))
    await respond(send)


async def wait(receive, send):
    global left
    await start(send)
    await send({"type": "http.response.body", "body": b"begin\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    left += 1


async def set_health(receive, send):
    global health
    health = int(b"".join([piece async for piece in pieces(receive)]))
    await respond(send)


async def hold(receive, send):
    await release.wait()
    await respond(send, b"held\n")


async def release_all(receive, send):
    release.set()
    await respond(send)


async def describe(scope, send):
    """Responds with the request, and with what this server is."""
    fields = {name.decode(): value.decode() for name, value in scope["headers"]}
    url = scope["raw_path"].decode() + ("?" + scope["query_string"].decode()) * bool(scope["query_string"])
    await respond(send, json.dumps({"server": "uvicorn", "method": scope["method"], "url": url, "fields": fields}).encode())


async def websocket(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", **{key: message.get(key) for key in ("text", "bytes")}})


PATHS = {
    "/hello": lambda receive, send: respond(send, b"hello\n"),
    "/echo": echo,
    "/events": events,
    "/publish": publish,
    "/wait": wait,
    "/left": lambda receive, send: respond(send, b"%d" % left),
    "/refuse": lambda receive, send: respond(send, status=403),
    "/healthz": lambda receive, send: respond(send, status=health),
    "/health": set_health,
    "/hold": hold,
    "/release": release_all,
}


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await websocket(receive, send)
    elif scope["type"] == "http":
        if scope["path"] == "/describe":
            await describe(scope, send)
        else:
            await PATHS[scope["path"]](receive, send)
    else:
        raise NotImplementedError(scope["type"])
