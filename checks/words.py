#!/usr/bin/env python3
"""Checks the words of the project: struck words, overloaded type names, long sentences.

    python3 checks/words.py [PATH ...]

Reads all files that git tracks or would track (or those below PATH). Reports a struck word in comments,
documents, texts and identifiers; a type name with three or more definitions; and a sentence of more than
35 words in a document or a doc comment. Exits with 1 if it reports something.

Exceptions stand in checks/words-exceptions.txt, one a line: PATH GLOB | WORD | REASON. WORD is the struck
word or type name as the report prints it.
"""

import fnmatch
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXCEPTIONS = ROOT / "checks" / "words-exceptions.txt"
SKIPPED = ("bench/results/*", "LICENSE*", "*Cargo.lock", "checks/words.py", "checks/words-exceptions.txt")
SENTENCE_WORDS_MAX = 35
TYPE_MEANINGS_MAX = 2

# Struck from prose: comments, documents, messages.
PROSE = re.compile(
    r"\b(whoever|whomever|whom|somebody|nobody|anew|so many|at the most|the same"
    r"|com(?:e|es|ing)|came|gone|let(?:s|ting)? go|there (?:is|are|was|were)"
    r"|octets?(?!-stream)|answer(?:s|ed|ing)?|ask(?:s|ed|ing)?|say(?:s|ing)?|said"
    r"|(?:has|have|had) (?:it|them|him|each|all|the \w+|its \w+) (?:done|made|read|sent|written|copied|closed))\b",
    re.IGNORECASE,
)
# Struck from identifiers, as one word of a snake-case or camel-case name.
NAMES = frozenset(
    "whoever whom somebody nobody anew octet octets answer answers answered ask asks asked say says said told tell"
    " came come comes gone pen seat rope lot puppet census keepsake walk letter letters whence knock shelf crowd"
    " housekeeper remarks because".split()
)

RUST_TOKEN = re.compile(
    r"""(?P<doc>//[/!][^\n]*)|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)
    |(?P<bytes>\bbr(?P<h1>\#*)".*?"(?P=h1)|\bb"(?:[^"\\]|\\.)*"|b'(?:[^'\\]|\\.)+')
    |(?P<text>\br(?P<h2>\#+)".*?"(?P=h2)|\br"[^"]*"|"(?:[^"\\]|\\.)*")
    |(?P<char>'(?:[^'\\\n]|\\[^\n]|\\u\{\w+\})')|(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL | re.VERBOSE,
)
SCRIPT_TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)""",
    re.DOTALL | re.VERBOSE,
)
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|union|trait)\s+(\w+)|^(?:pub(?:\([^)]*\))?\s+)?type\s+(\w+)", re.M)


def files(paths):
    """Returns the files to check, relative to the project's root."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = [Path(path).resolve() for path in paths]
    for name in sorted(set(listed)):
        path = ROOT / name
        if any(fnmatch.fnmatch(name, glob) for glob in SKIPPED) or not path.is_file():
            continue
        if not wanted or any(path == each or each in path.parents for each in wanted):
            yield name


def is_prose(text):
    """Whether a literal is read by a person: at least two words with a space between them."""
    return re.search(r"[A-Za-z]{2,} +[A-Za-z]{2,}", text) is not None


def words_of(name):
    """Splits an identifier into lower-case words."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def rust(text):
    """Yields (line, kind, text) for comments, literals and identifiers of Rust source."""
    line, last = 1, 0
    for token in RUST_TOKEN.finditer(text):
        line += text.count("\n", last, token.start())
        last = token.start()
        kind = token.lastgroup if token.lastgroup not in ("h1", "h2") else ("bytes" if token["bytes"] else "text")
        if kind == "name":
            yield line, "name", token[0]
        elif kind == "doc":
            yield line, "doc", token[0][3:]
        elif kind in ("line", "block"):
            yield line, "prose", token[0].strip("/* ")
        elif kind == "text" and is_prose(token[0]):
            yield line, "prose", token[0]


def python(text):
    """Yields comments, strings and identifiers of Python source."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], "prose", token.string
        elif token.type == tokenize.NAME:
            yield token.start[0], "name", token.string
        elif token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)) and is_prose(token.string):
            if not re.match(r"[rR]?[bB]", token.string):
                yield token.start[0], "prose", token.string


def script(text):
    """Yields comments and strings of JavaScript and CSS."""
    for token in SCRIPT_TOKEN.finditer(text):
        if token["text"] is None or is_prose(token[0]):
            yield text.count("\n", 0, token.start()) + 1, "prose", token[0]


def commented(text, mark):
    """Yields the comments of a file whose comments begin with a mark."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(rf"(?:^|\s){re.escape(mark)}(?!!)(.*)", line)
        if found:
            yield number, "prose", found[1]


def cases(text):
    """Yields the names and comments of rows of raw bytes."""
    for number, line in enumerate(text.splitlines(), 1):
        if line[:1].isalpha() or line.startswith("#"):
            yield number, "prose", re.sub(r"`[^`]*`", "`", line)


def markup(text):
    """Yields the text of a page, without elements, scripts and styles."""
    text = re.sub(r"<(script|style|pre|code)\b.*?</\1>", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        yield number, "prose", re.sub(r"<[^>]*>?", " ", line)


def document(text):
    """Yields the paragraphs, list items and table cells of a Markdown document."""
    fenced, start, gathered = False, 0, []

    def flush():
        if gathered:
            yield start, "doc-paragraph", " ".join(gathered)
            gathered.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            yield from flush()
            fenced = not fenced
        elif not fenced:
            if not line.strip() or re.match(r"\s*(#|\||[-*] |\d+\. |>)", line):
                yield from flush()
            if line.lstrip().startswith("|"):
                for cell in line.strip().strip("|").split("|"):
                    yield number, "doc-paragraph", cell
            elif line.strip():
                start = start if gathered else number
                gathered.append(re.sub(r"^\s*(#+|[-*]|\d+\.|>)\s", "", line).strip())
    yield from flush()


def pieces(name, text):
    """Yields (line, kind, text) for the file of that name."""
    ending = Path(name).suffix
    if ending == ".rs":
        return rust(text)
    if ending == ".py":
        return python(text)
    if ending == ".md":
        return document(text)
    if ending in (".js", ".css"):
        return script(text)
    if ending == ".html":
        return markup(text)
    if ending == ".kdl":
        return commented(text, "//")
    if ending in (".toml", ".sh") or name.startswith(".ci/"):
        return commented(text, "#")
    if ending == ".txt" and name.startswith("cases/"):
        return cases(text)
    if ending == ".txt" and name.startswith("server/tests/"):
        return ((number, "prose", line) for number, line in enumerate(text.splitlines(), 1))
    return ()


def paragraphs(found):
    """Joins doc comments that stand on lines one after the other into Markdown, and yields its paragraphs."""
    block, begin, last = [], 0, -1
    for line, kind, text in found:
        if kind == "doc-paragraph":
            yield line, text
        elif kind == "doc":
            if line != last + 1 and block:
                yield from ((begin + at - 1, each) for at, _, each in document("\n".join(block)))
                block = []
            if not block:
                begin = line
            block.append(text[1:] if text.startswith(" ") else text)
            last = line
    yield from ((begin + at - 1, each) for at, _, each in document("\n".join(block)))


def long_sentences(paragraph):
    """Yields each sentence with more words than the bound."""
    plain = re.sub(r"`[^`]*`", "Code", paragraph)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    for sentence in re.split(r"(?<=[.!?])[)\"*]*\s+(?=[^a-z])", plain):
        count = sum(1 for word in sentence.split() if re.search(r"\w", word))
        if count > SENTENCE_WORDS_MAX:
            yield count, sentence


def without_code(text):
    """Removes inline code, whose words are names."""
    return re.sub(r"`[^`]*`", "`", text)


def report_file(name, text, report):
    """Checks one file."""
    found = list(pieces(name, text))
    for line, kind, piece in found:
        if kind == "name":
            for word in words_of(piece):
                if word in NAMES:
                    report(name, line, word, f"identifier `{piece}`")
        else:
            for hit in PROSE.finditer(without_code(piece)):
                shift = piece.count("\n", 0, hit.start())
                report(name, line + shift, re.sub(r"\s+", " ", hit[0].lower()), piece.strip()[:100])
    for line, paragraph in paragraphs(found):
        for count, sentence in long_sentences(paragraph):
            report(name, line, "long sentence", f"{count} words: {sentence[:80]}…")


def main(paths):
    exceptions = []
    if EXCEPTIONS.exists():
        for line in EXCEPTIONS.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                glob, word, reason = (part.strip() for part in line.split("|", 2))
                if not reason:
                    sys.exit(f"{EXCEPTIONS}: `{line}` has no reason")
                exceptions.append([glob, word, False])
    findings, types = 0, {}

    def report(name, line, word, context):
        nonlocal findings
        for exception in exceptions:
            if fnmatch.fnmatch(name, exception[0]) and exception[1] == word:
                exception[2] = True
                return
        findings += 1
        print(f"{name}:{line}: {word}: {' '.join(context.split())}")

    for name in files(paths):
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        report_file(name, text, report)
        is_test = "/tests/" in name or name.endswith("tests.rs") or name.startswith(("fuzz/", "bench/peers/"))
        if name.endswith(".rs") and not is_test:
            for hit in TYPE.finditer(text):
                line = text.count("\n", 0, hit.start(hit.lastindex)) + 1
                types.setdefault(hit[1] or hit[2], []).append((name, line))
    for word, places in sorted(types.items()):
        if len(places) > TYPE_MEANINGS_MAX:
            named = ", ".join(f"{name}:{line}" for name, line in places[1:])
            report(*places[0], word, f"a type of this name is defined {len(places)} times: also {named}")
    if not paths:
        for glob, word, is_used in exceptions:
            if not is_used:
                findings += 1
                print(f"{EXCEPTIONS.relative_to(ROOT)}: `{glob} | {word}` excepts nothing")
    print(f"{findings} findings" if findings else "words: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
