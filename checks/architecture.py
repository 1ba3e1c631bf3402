#!/usr/bin/env python3
"""Checks that the documents name what exists.

    python3 checks/architecture.py

In ARCHITECTURE.md, CONTRIBUTING.md, SECURITY.md, README.md and docs/, every path in backquotes or in a link has to
exist, and in ARCHITECTURE.md and docs/internals/ every type in backquotes has to be defined. ARCHITECTURE.md has at
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


def definitions():
    """Returns the names of all types, variants and functions in the Rust files that git tracks."""
    names = set()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
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
    names, findings = definitions(), []
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
