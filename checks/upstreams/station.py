"""An upstream for checks/proxy_peers.py on grpcio: the service of the example `grpc`. Prints each call that is cancelled.

The three messages are encoded here: Sensor { name = 1 }, Reading { sensor = 1, degrees = 2,
note = 3 } and Summary { readings = 1, note_bytes = 2 }.
"""
import concurrent.futures
import queue
import struct
import sys

import grpc

THREADS = 200
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
VARINT, DOUBLE, BYTES = 0, 1, 2


def varint(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def encode(*values):
    """Encodes the fields 1, 2 and so on."""
    out = b""
    for number, value in enumerate(values, 1):
        if isinstance(value, float):
            out += varint(number << 3 | DOUBLE) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(number << 3 | VARINT) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | BYTES) + varint(len(value)) + value
    return out


def decode(message, *defaults):
    """Decodes the fields 1, 2 and so on, all of which have a default."""
    values, at = list(defaults), 0

    def number():
        nonlocal at
        result, shift = 0, 0
        while True:
            byte = message[at]
            at, result, shift = at + 1, result | (byte & 127) << shift, shift + 7
            if byte < 128:
                return result

    while at < len(message):
        tag = number()
        if tag & 7 == DOUBLE:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        elif tag & 7 == VARINT:
            value = number()
        else:
            length = number()
            value, at = message[at : at + length], at + length
            value = value.decode() if isinstance(defaults[(tag >> 3) - 1], str) else value
        values[(tag >> 3) - 1] = value
    return tuple(values)


def decode_reading(message):
    return decode(message, "", 0.0, b"")


class Station:
    def __init__(self):
        self.readings, self.watchers = {}, []

    def latest(self, request, context):
        name = decode(request, "")[0]
        if name not in self.readings:
            context.abort(grpc.StatusCode.NOT_FOUND, "the sensor has no reading")
        return self.readings[name]

    def watch(self, request, context):
        name, readings = decode(request, "")[0], queue.SimpleQueue()
        self.watchers.append(readings)
        context.add_callback(lambda: (print("cancelled", flush=True), readings.put(None)))
        context.send_initial_metadata(())
        while (reading := readings.get()) is not None:
            if decode_reading(reading)[0] == name:
                yield reading

    def record(self, requests, _context):
        count = note_bytes = 0
        for reading in requests:
            sensor, _, note = decode_reading(reading)
            count, note_bytes = count + 1, note_bytes + len(note)
            self.readings[sensor] = reading
            for watcher in self.watchers:
                watcher.put(reading)
        return encode(count, note_bytes)

    def convert(self, requests, context):
        context.send_initial_metadata(())
        for reading in requests:
            sensor, degrees, note = decode_reading(reading)
            yield encode(sensor, degrees * 1.8 + 32.0, note)


def main():
    station = Station()
    handlers = {
        "Latest": grpc.unary_unary_rpc_method_handler(station.latest),
        "Watch": grpc.unary_stream_rpc_method_handler(station.watch),
        "Record": grpc.stream_unary_rpc_method_handler(station.record),
        "Convert": grpc.stream_stream_rpc_method_handler(station.convert),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(THREADS), options=OPTIONS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("station.Station", handlers)])
    server.add_insecure_port(sys.argv[1])
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
