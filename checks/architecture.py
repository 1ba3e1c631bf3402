#!/usr/bin/env python3
"""Checks that the documents name what exists.

    python3 checks/architecture.py

In ARCHITECTURE.md, CONTRIBUTING.md, SECURITY.md, README.md and docs/, every path in backquotes or in a link has to
exist, and in ARCHITECTURE.md and docs/internals/ every type in backquotes has to be defined. A short path, as
`net/accept.rs` or as in the diagram of ARCHITECTURE.md, has to be the end of a source file's path. ARCHITECTURE.md has at
most 250 lines and no measured figure, README.md at most 120 lines, and each page of docs/internals/ at most 120.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "README.md")
LINES_MAX = {"ARCHITECTURE.md": 250, "README.md": 120}
INTERNALS_LINES_MAX = 120
# Types of the standard library and of dependencies that the documents name.
FOREIGN = {"Rc", "Vec", "Cell", "String"}
FOLDERS = tuple(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("target", ".git")))
MEASURED = re.compile(r"\b\d[\d.,]*\s?(?:µs|us|ns|ms)\b|\b\d+\s?%")


def sources():
    """Returns the paths of the Rust files that git tracks or would track."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.rs"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def short_paths():
    """Returns the ends of the paths of all source files, with and without `.rs`, and of all source folders."""
    short = set()
    for name in sources():
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            for start in range(end):
                path = "/".join(parts[start:end])
                short |= {path, path.removesuffix(".rs")} if end == len(parts) else {path}
    return short


def definitions():
    """Returns the names of all types, variants and functions in the Rust files."""
    names = set()
    for name in sources():
        path = ROOT / name
        if path.is_file():
            text = path.read_text()
            names |= set(re.findall(r"\b(?:struct|enum|union|trait|type|fn|mod|const|static)\s+(\w+)", text))
            names |= set(re.findall(r"^\s+([A-Z]\w+)\s*(?:[,({=]|$)", text, re.M))
    return names


def expand(path):
    """Expands one pair of braces, as a shell does."""
    found = re.match(r"(.*)\{([^}]*)\}(.*)$", path)
    return [found[1] + each.strip() + found[3] for each in found[2].split(",")] if found else [path]


def main():
    names, short, findings = definitions(), short_paths(), []
    documents = [ROOT / name for name in TOP] + sorted((ROOT / "docs").rglob("*.md"))
    for document in documents:
        name = str(document.relative_to(ROOT))
        text = document.read_text()
        most = LINES_MAX.get(name, INTERNALS_LINES_MAX if name.startswith("docs/internals/") else None)
        if most and len(text.splitlines()) > most:
            findings.append(f"{name}: {len(text.splitlines())} lines, more than {most}")
        fenced = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if name == "ARCHITECTURE.md" and MEASURED.search(line):
                findings.append(f"{name}:{number}: a measured figure; it belongs in bench/NOTES.md")
            if fenced and name == "ARCHITECTURE.md":
                for path in re.findall(r"(?<![\w/])(?:[a-z_]+/)+(?:\{[^}]*\}|[a-z_0-9]+)", line):
                    findings += [f"{name}:{number}: no source {each}" for each in expand(path) if each not in short]
            if fenced:
                continue
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if "://" not in target and not (document.parent / target).exists():
                    findings.append(f"{name}:{number}: no file {target}")
            for code in re.findall(r"`([^`]+)`", line):
                if code.startswith(tuple(folder + "/" for folder in FOLDERS)) and " " not in code:
                    for path in expand(code):
                        if not (ROOT / path).exists() and "NAME" not in path:
                            findings.append(f"{name}:{number}: no file {path}")
                elif re.fullmatch(r"[\w/{},]+\.rs", code):
                    findings += [f"{name}:{number}: no source {each}" for each in expand(code) if each not in short]
                is_internal = name == "ARCHITECTURE.md" or name.startswith("docs/internals/")
                if is_internal and re.fullmatch(r"[A-Z][a-z]\w*(?:::\w+)?", code):
                    for part in code.split("::"):
                        if part not in names and part not in FOREIGN:
                            findings.append(f"{name}:{number}: nothing is called `{part}`")
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings" if findings else "architecture: every path and type exists")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
