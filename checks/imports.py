#!/usr/bin/env python3
"""Checks the imports between the modules of each crate, and draws them.

    python3 checks/imports.py               checks
    python3 checks/imports.py --draw FILE   checks, and draws the folders and their imports as an SVG picture

Modules do not import each other in a circle. A module imports from its own group and from lower floors, and groups on
one floor do not import from each other. Some groups never use some names. Test modules may import everything.
"""

import collections
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The floors of a crate, from bottom to top, each with its groups of modules. A module belongs to the longest name that
# it begins with.
FLOORS = {
    "proto": [["proto"]],
    "engine": [
        ["limits", "mailbox", "peer", "cache", "response_lease"],
        ["buffer"],
        ["net::sys"],
        ["file", "splice_pipe"],
        ["net", "service"],
        ["tls"],
        ["connection", "coding", "client"],
        ["tower server replace_app proxy_headers connection_stats detached tracing_observer lib"],
    ],
    "server": [
        ["syntax", "reasons", "durations"],
        ["config", "recorder", "traces"],
        ["site", "log", "certificates"],
        ["process", "cli"],
        ["compile resolver upstream_log snapshot reload_outcome reload config_diff explanation expectations listeners memory_budget metrics last_requests preflight remote_control root_warnings certificate_warnings certificate_status upstream_status status status_page status_resources watched_lists"],
        ["embed", "config_path run check control_client explain fmt hash_password manual_pages options_server selftest serve shell_completions site_urls proxy trust"],
        ["program lib main"],
    ],
    "cases": [["cases"]],
    "bench": [["bench"]],
}
# Names that the source of a group never has, outside of tests.
NEVER = [
    ("proto/src", r"std::(?:fs|net|thread|process|env)\b|\b(?:Instant|SystemTime)::now|\btokio\b|\brustix\b"),
    ("engine/src/service", r"\btokio\b|\brustix\b|std::fs\b|\b(?:TcpStream|UnixStream|AsyncFd)\b"),
    ("engine/src/file", r"\btokio\b|\bselvedge_proto\b"),
    ("engine/src/net", r"\bselvedge_proto\b|\bhttp::|\"HTTP/1"),
    ("engine/src/client", r"\btokio\b|\brustls\b|\bhttp::|\bTcpListener\b"),
    ("engine/src/coding", r"\bhttp::|\bhttp_body\b|\btower"),
    ("engine/src/connection", r"\btokio\b|\bFile::open\b|\bopenat2?\b|\bTcpListener\b"),
    ("server/src/syntax", r"std::fs\b|\brustix\b|\b(?:TcpStream|UnixStream|TcpListener)\b|\b(?:Instant|SystemTime)::now"),
    ("server/src/config", r"std::fs\b|\brustix\b|\b(?:TcpStream|UnixStream|TcpListener)\b|\b(?:Instant|SystemTime)::now"),
    ("server/src/site", r"\b(?:TcpStream|UnixStream|TcpListener)\b"),
    ("server/src/log", r"\b(?:TcpListener|UnixListener)\b"),
]
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod \w+ \{")
USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)


def is_test(parts):
    return parts[-1] == "tests" or "tests" in parts


def source(path):
    """Returns the text of a file without its test module at the end and without comments."""
    text = path.read_text()
    found = TESTS.search(text)
    return re.sub(r"//[^\n]*", "", text[: found.start()] if found else text)


def modules(crate):
    """Returns the text of each module of a crate, by its path."""
    texts, folder = {}, ROOT / crate / "src"
    for path in sorted(folder.rglob("*.rs")):
        parts = path.relative_to(folder).with_suffix("").parts
        if is_test(parts) or parts[0] == "bin":
            continue
        parts = parts[:-1] if parts[-1] == "mod" else parts
        texts[parts] = source(path)
    return texts


def leaves(tree):
    """Returns the paths in the tree of one `use` item."""
    tree = tree.strip()
    if "{" not in tree:
        return [[part.strip() for part in tree.split(" as ")[0].split("::")]] if tree else []
    start = tree.index("{")
    inner, depth, item, items = tree[start + 1 : tree.rindex("}")], 0, "", []
    for char in inner:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += char
    prefix = [part.strip() for part in tree[:start].split("::") if part.strip()]
    return [prefix + leaf for item in [*items, item] for leaf in leaves(item)]


class Crate:
    """The modules of a crate and the imports between them."""

    def __init__(self, name):
        self.name = name
        self.texts = modules(name)
        self.exports = {module: {} for module in self.texts}
        paths = {module: [] for module in self.texts}
        for module, text in self.texts.items():
            for public, tree in USE.findall(text):
                for leaf in leaves(tree):
                    path = self.absolute(module, leaf)
                    if path is None:
                        continue
                    if public:
                        self.exports[module][path[-1]] = path
                    if not public or path[: len(module)] != list(module):
                        paths[module].append((path, bool(public)))
            body = re.sub(r"pub\(in [^)]*\)", "", USE.sub("", text))
            for start, rest in re.findall(r"\b(crate|super)((?:::\w+)+)", body):
                path = self.absolute(module, [start, *rest.split("::")[1:]])
                paths[module].append((path, False))
        self.imports = {module: set() for module in self.texts}
        for module, listed in paths.items():
            for path, public in listed:
                target = self.module_of(path)
                # What the root of the crate exports is not an import of the root.
                if target and target != module and not (public and module in (("lib",), ("main",))):
                    self.imports[module].add(target)

    def absolute(self, module, path):
        """Returns the path from the root of the crate; `None` for a path into another crate."""
        here = [] if module in (("lib",), ("main",)) else list(module)
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return here + path[1:]
        if path[0] == "super":
            while path and path[0] == "super":
                here, path = here[:-1], path[1:]
            return here + path
        return here + path if tuple(here + path[:1]) in self.texts else None

    def module_of(self, path, seen=()):
        """Returns the module that defines what a path names, through exports of other modules."""
        for length in range(len(path), -1, -1):
            module = tuple(path[:length]) or ("lib",)
            if module not in self.texts:
                continue
            name = path[length] if length < len(path) else None
            if name in self.exports[module] and (module, name) not in seen:
                target = self.exports[module][name] + path[length + 1 :]
                return self.module_of(target, (*seen, (module, name)))
            return module
        return None

    def circles(self):
        """Returns the groups of modules that import each other."""
        order, low, stack, found = {}, {}, [], []

        def visit(module):
            order[module] = low[module] = len(order)
            stack.append(module)
            for other in sorted(self.imports[module]):
                if other not in order:
                    visit(other)
                if other in stack:
                    low[module] = min(low[module], low[other])
            if low[module] == order[module]:
                at = stack.index(module)
                if len(stack) - at > 1:
                    found.append(sorted(stack[at:]))
                del stack[at:]

        sys.setrecursionlimit(10_000)
        for module in self.texts:
            if module not in order:
                visit(module)
        return found

    def group_of(self, module):
        """Returns the floor and the group of a module."""
        if len(FLOORS[self.name]) == 1:
            return 0, self.name
        name, best = "::".join(module), None
        for floor, groups in enumerate(FLOORS[self.name]):
            for group in groups:
                for prefix in group.split():
                    if name == prefix or name.startswith(prefix + "::"):
                        best = max(best or (0,), (len(prefix), floor, group))
        return best[1:] if best else None

    def findings(self):
        for circle in self.circles():
            yield f"{self.name}: a circle of imports: {', '.join('::'.join(module) for module in circle)}"
        for module, targets in self.imports.items():
            own = self.group_of(module)
            if own is None:
                yield f"{self.name}: {'::'.join(module)} has no floor in checks/imports.py"
                continue
            for target in targets:
                other = self.group_of(target)
                if other and other != own and other[0] >= own[0]:
                    yield f"{self.name}: {'::'.join(module)} imports {'::'.join(target)}, which is not on a lower floor"


def forbidden_names():
    for folder, names in NEVER:
        for path in sorted((ROOT / folder).rglob("*.rs")):
            if is_test(path.relative_to(ROOT / folder).with_suffix("").parts):
                continue
            for number, line in enumerate(source(path).splitlines(), 1):
                if found := re.search(names, line):
                    yield f"{path.relative_to(ROOT)}:{number}: {folder} never names `{found[0]}`"


def draw(crates):
    """Returns a picture: a box for each group, floors from bottom to top, an arrow for the imports between two groups."""
    out, x, bottom = [], 20, 0
    columns = [crate for crate in crates if len(FLOORS[crate.name]) > 1]
    for crate in columns:
        floors = FLOORS[crate.name]
        width = max(len(floor) for floor in floors) * 330
        boxes = {}
        for floor, groups in enumerate(floors):
            for place, group in enumerate(groups):
                step = width / len(groups)
                boxes[floor, group] = (x + step * place + step / 2, 60 + (len(floors) - 1 - floor) * 110)
        arrows = collections.Counter()
        for module, targets in crate.imports.items():
            for target in targets:
                own, other = crate.group_of(module), crate.group_of(target)
                if own != other:
                    arrows[own, other] += 1
        out.append(f'<text x="{x}" y="30" font-weight="bold">{crate.name}</text>')
        for (own, other), count in sorted(arrows.items()):
            (x1, y1), (x2, y2) = boxes[own], boxes[other]
            color = "#999" if own[0] > other[0] else "#c00"
            width_of_line = 0.6 + min(count, 30) / 12
            bend = (x1 + x2) / 2 + (own[0] - other[0] - 1) * 45
            out.append(
                f'<path d="M{x1:.0f} {y1 + 40} Q{bend:.0f} {(y1 + y2) / 2 + 20:.0f} {x2:.0f} {y2}" fill="none"'
                f' stroke="{color}" stroke-width="{width_of_line:.1f}" marker-end="url(#arrow)"/>'
            )
        for (_, group), (center, top) in boxes.items():
            words = group.split()
            lines = [" ".join(words[at : at + 4]) for at in range(0, len(words), 4)]
            out.append(
                f'<rect x="{center - 155:.0f}" y="{top}" width="310" height="40" rx="4" fill="#eef" stroke="#446"/>'
            )
            for number, line in enumerate(lines):
                at = top + 24 + 13 * number - 7 * (len(lines) - 1)
                out.append(f'<text x="{center:.0f}" y="{at}" text-anchor="middle">{line}</text>')
        bottom = max(bottom, 60 + len(floors) * 110)
        x += width + 40
    marker = '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="{bottom}" font-family="sans-serif"'
        f' font-size="12"><rect width="100%" height="100%" fill="#fff"/><defs>{marker}<path d="M0 0L8 4L0 8z"/>'
        f"</marker></defs>{''.join(out)}</svg>\n"
    )


def main():
    crates = [Crate(name) for name in FLOORS]
    if sys.argv[1:2] == ["--draw"]:
        Path(sys.argv[2]).write_text(draw(crates))
    findings = [finding for crate in crates for finding in crate.findings()] + list(forbidden_names())
    for finding in sorted(findings):
        print(finding)
    count = sum(len(targets) for crate in crates for targets in crate.imports.values())
    print(f"{len(findings)} findings" if findings else f"imports: no circle and none upward in {count} imports")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
