#!/usr/bin/env python3
"""Checks the command line beside its tests: completions in their shells, manual pages, and colours of a terminal.

    python3 checks/command_line.py target/debug/selvedge

Needs bash, zsh, fish and groff.
"""

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

WAIT = 60
ESCAPE = "\x1b["
WRONG = 'listen "127.0.0.1:8080"\nsite "localhost" {\n    rot "public"\n}\n'


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT, **more)


def in_terminal(command, **variables):
    """Runs a command in a terminal. Returns what it shows."""
    own, other = pty.openpty()
    # Other variables of the caller could forbid or force colours.
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm"} | variables
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
    os.close(other)
    shown = b""
    while True:
        try:
            piece = os.read(own, 4096)
        except OSError:
            # The last process with the other side has ended (EIO).
            break
        if not piece:
            break
        shown += piece
    os.close(own)
    process.wait(WAIT)
    return shown.decode()


def completions(binary, folder):
    """Completes in bash and fish, and reads the script for zsh, which completes only for a person."""
    scripts = {}
    for shell in ["bash", "zsh", "fish"]:
        scripts[shell] = folder / f"selvedge.{shell}"
        scripts[shell].write_text(run([binary, "completions", shell], check=True).stdout)
    for words, expected in [(["sta"], "status"), (["serve", "--lis"], "--listing"), (["completions", "fi"], "fish")]:
        quoted = " ".join(words)
        bash = f"source {scripts['bash']}; COMP_WORDS=(selvedge {quoted}); COMP_CWORD={len(words)}; " \
            f"_selvedge selvedge {words[-1]} {(['selvedge'] + words)[-2]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        fish = f"source {scripts['fish']}; complete -C 'selvedge {quoted}'"
        for command in [["bash", "--norc", "-c", bash], ["fish", "--no-config", "-c", fish]]:
            done = run(command)
            found = [line.split("\t")[0] for line in done.stdout.splitlines()]
            assert expected in found, f"{command}\n{found}\n{done.stderr}"
    done = run(["zsh", "-n", scripts["zsh"]])
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert scripts["zsh"].read_text().startswith("#compdef selvedge")


def manual_pages(binary, folder):
    """Returns the number of pages. A page is valid if groff has no warnings."""
    manual = folder / "man1"
    run([binary, "manual-pages", manual], check=True)
    pages = sorted(manual.glob("*.1"))
    for page in pages:
        done = run(["groff", "-man", "-Tutf8", "-ww", "-z", page])
        assert done.returncode == 0 and not done.stderr, f"{page}: {done.stderr}"
    text = run(["groff", "-man", "-Tascii", "-P-cbou", manual / "selvedge-serve.1"]).stdout
    assert "--listing" in text and "SYNOPSIS" in text, text
    return len(pages)


def colours(binary, folder):
    """Help, wrong arguments and problems of a configuration have colours in a terminal that shows them."""
    configuration = folder / "wrong.kdl"
    configuration.write_text(WRONG)
    for arguments, text in [
        (["--help"], "Usage:"),
        (["serve", "--lisssting"], "--listing"),
        (["check", configuration], "did you mean `root`?"),
    ]:
        command = [binary, *arguments]
        shown = in_terminal(command)
        assert ESCAPE in shown and text in shown.replace("\r", ""), (arguments, shown)
        for variables in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            shown = in_terminal(command, **variables)
            assert ESCAPE not in shown and text in shown, (arguments, variables, shown)
        done = run(command)
        assert ESCAPE not in done.stdout + done.stderr and text in done.stdout + done.stderr, (arguments, done)


def main():
    binary = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        completions(binary, folder)
        count = manual_pages(binary, folder)
        colours(binary, folder)
    print(f"completions of 3 shells, {count} manual pages, colours in a terminal")


main()
