"""An upstream for checks/proxy_peers.py: a WSGI application, without a framework."""
import queue
import time

WAIT_STEP = 0.05
left = 0
# The events of the newest stream.
published = None


def pieces(environment):
    while piece := environment["wsgi.input"].read(65536):
        yield piece


def events(environment):
    global published
    published = own = queue.Queue()
    yield b": open\n\n"
    while True:
        yield b"data: %s\n\n" % own.get()


def publish(environment):
    published.put(b"".join(pieces(environment)))
    yield b""


def wait(environment):
    """Sends until the client has left, which an application of WSGI cannot know otherwise."""
    global left
    try:
        yield b"begin\n"
        while True:
            time.sleep(WAIT_STEP)
            yield b"more\n"
    finally:
        left += 1


PATHS = {
    "/hello": lambda environment: [b"hello\n"],
    "/echo": pieces,
    "/events": events,
    "/publish": publish,
    "/wait": wait,
    "/left": lambda environment: [b"%d" % left],
    "/refuse": lambda environment: [],
}


def application(environment, start_response):
    path = environment["PATH_INFO"]
    fields = [("Content-Length", "6")] if path == "/hello" else []
    start_response("403 Forbidden" if path == "/refuse" else "200 OK", fields)
    return PATHS[path](environment)
