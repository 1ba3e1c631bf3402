#!/usr/bin/env python3
"""Counts what a request of HTTP/2 costs without I/O, in instructions, and compares it with a limit.

    http2_instructions.py PATH/TO/http2_exchange

The program is the example `http2_exchange` of selvedge-proto, in release mode. The count is the difference of two runs
under callgrind, so it depends on neither the speed nor the load of the machine. Exit status 1 above a limit.
"""
import re, subprocess, sys, tempfile

# Instructions per request: frames, field sections, head, response. 3 % above what was measured.
LIMITS = {"repeated": 1_860, "indexed": 5_100}
FEW, MANY = 1_000, 11_000


def count(program, kind, requests):
    with tempfile.NamedTemporaryFile() as out:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out.name, program, kind, str(requests)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.search(r"Collected : (\d+)", text).group(1))


def main():
    program, is_above = sys.argv[1], False
    for kind, limit in LIMITS.items():
        per_request = (count(program, kind, MANY) - count(program, kind, FEW)) // (MANY - FEW)
        is_above |= per_request > limit
        print("%-10s %6d instructions per request, limit %d" % (kind, per_request, limit))
    if is_above:
        sys.exit("FAILED: above the limit")


main()
