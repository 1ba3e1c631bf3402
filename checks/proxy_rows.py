"""Responses of an upstream and what a client of the proxy gets: the rows of `cases/proxy/`.

A row has a name, the section that requires the outcome, and then these lines:

| line | meaning |
|---|---|
| `> METHOD` | the method of the request; GET if it is absent |
| `> name: value` | a further field of the request |
| `< text` | the upstream sends the text and CRLF |
| `<- text` | the upstream sends the text without a line end |
| `<! close`, `<! reset` | the upstream ends the connection in this way |
| `= STATUS [name: value]… [!name]… [body="…"] FATE` | the client gets this response, complete |
| `= 502 REASON FATE` | the response is malformed for this reason, a variant of `MalformedResponse` |
| `= abort STATUS [body="…"] FATE` | the client gets this beginning of a response, and then notices that the rest is missing; or 502, if the error was known before anything was sent |

FATE is that of the connection to the upstream: `reuse`, the next request uses it, or `close`. Brackets around a field are
part of the row. Bytes have the escapes of the other case files.
"""
import dataclasses
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|\{(.*?)\\\*(\d+)\\\}|(.))")
ESCAPED = {"r": "\r", "n": "\n", "t": "\t", "0": "\0", "\\": "\\", '"': '"'}
VERDICT = re.compile(r'\[(!?)([^\]:]+)(?:: ([^\]]*))?\]|body="((?:[^"\\]|\\.)*)"|(\S+)')
REASON = re.compile(r'^\s+(\w+) => "(.*)";$', re.MULTILINE)


def unescape(text):
    """Returns the bytes of a text with escapes."""

    def replaced(found):
        digits, repeated, count, escaped = found.groups()
        if digits:
            return chr(int(digits, 16))
        return unescape(repeated).decode("latin-1") * int(count) if repeated else ESCAPED[escaped]

    return ESCAPE.sub(replaced, text).encode("latin-1")


@dataclasses.dataclass
class Case:
    """One row."""

    name: str
    where: str
    method: str = "GET"
    fields: list = dataclasses.field(default_factory=list)
    sent: bytes = b""
    end: str = None
    status: int = 0
    is_aborted: bool = False
    reason: str = None
    body: bytes = None
    has: list = dataclasses.field(default_factory=list)
    has_not: list = dataclasses.field(default_factory=list)
    is_reused: bool = False

    def expect(self, line):
        """Reads a verdict."""
        words = []
        for negation, name, value, body, word in VERDICT.findall(line):
            if word:
                words.append(word)
            elif name:
                (self.has_not if negation else self.has).append((name.lower(), unescape(value).decode("latin-1")))
            else:
                self.body = unescape(body)
        *words, fate = words
        assert fate in ("reuse", "close"), f"{self.where}: the fate of the connection is missing"
        self.is_reused = fate == "reuse"
        if words[0] == "abort":
            self.is_aborted = True
            words.pop(0)
        self.status = int(words.pop(0))
        self.reason = words.pop(0) if words else None
        assert not words, f"{self.where}: {words}"


def load_rows(folder=ROOT / "cases/proxy"):
    """Returns the rows of all files."""
    rows = []
    for path in sorted(folder.glob("*.txt")):
        row = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.name}:{number}"
            if not line:
                row = None
            elif line.startswith("#"):
                continue
            elif row is None:
                name, section = re.split(r"\s{2,}", line)
                assert section.startswith("RFC "), f"{where}: the section is missing"
                rows.append(row := Case(name, where))
            elif line.startswith("<!"):
                row.end = line[2:].strip()
                assert row.end in ("close", "reset"), where
            elif line.startswith("<-"):
                row.sent += unescape(line[3:])
            elif line.startswith("<"):
                row.sent += unescape(line[2:]) + b"\r\n"
            elif line.startswith(">"):
                if ":" in line:
                    row.fields.append(line[2:])
                else:
                    row.method = line[2:]
            else:
                assert line.startswith("= "), f"{where}: {line}"
                row.expect(line[2:])
    unfinished = [row.where for row in rows if not row.status]
    assert not unfinished, f"no verdict: {unfinished}"
    assert len({row.name for row in rows}) == len(rows), "two rows have one name"
    return rows


def load_reasons():
    """Returns the message of each reason why a response is malformed."""
    return dict(REASON.findall((ROOT / "proto/src/http1/malformed_response.rs").read_text()))


def client_requests():
    """Returns the bytes of the rows for servers, which a proxy gets as well: `cases/rfc9112/`, with their names."""
    for path in sorted((ROOT / "cases/rfc9112").glob("*.txt")):
        for block in path.read_text().split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            sent = b""
            for line in lines:
                if line.startswith(">-"):
                    sent += unescape(line[3:])
                elif line.startswith(">"):
                    sent += unescape(line[2:]) + b"\r\n"
            if sent:
                yield f"{path.name}: {lines[0]}", sent
