#!/usr/bin/env python3
"""Runs a Python program whose threads use one TLS connection at once.

    python3 checks/tls_from_threads.py PROGRAM [ARGUMENT ...]

OpenSSL does not allow two threads in one connection, and Python 3.11 does not prevent it: a thread that receives while
another one sends destroys memory now and then ("double free or corruption"). Here each call of OpenSSL has the lock of its
connection, and threads wait for the socket without the lock.
"""
import runpy
import select
import ssl
import sys
import threading
import time


class LockedSocket(ssl.SSLSocket):
    """A connection that does not block within OpenSSL after its handshake, and waits at most its timeout itself."""

    lock = None

    def do_handshake(self, block=False):
        super().do_handshake(block)
        self.timeout_of_call = self.gettimeout()
        super().settimeout(0)
        self.lock = threading.Lock()

    def settimeout(self, value):
        if self.lock:
            self.timeout_of_call = value
        else:
            super().settimeout(value)

    def send(self, data, flags=0):
        return self.repeated(super().send, data, flags)

    def recv(self, buflen=1024, flags=0):
        return self.repeated(super().recv, buflen, flags)

    def repeated(self, call, *arguments):
        end = None if self.timeout_of_call is None else time.monotonic() + self.timeout_of_call
        while True:
            with self.lock:
                try:
                    return call(*arguments)
                except ssl.SSLWantReadError:
                    read, write = [self], []
                except ssl.SSLWantWriteError:
                    read, write = [], [self]
            left = None if end is None else max(0, end - time.monotonic())
            if left == 0 or not any(select.select(read, write, [], left)):
                raise TimeoutError("nothing moved within the timeout of the connection")


ssl.SSLContext.sslsocket_class = LockedSocket
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
