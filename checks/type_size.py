#!/usr/bin/env python3
"""Checks that no type has more than METHODS_MAX methods of its own.

    python3 checks/type_size.py

A type with more does several things: give one of them its own type or make it a function of the module. Methods of
traits do not count. The blocks of a type are in one folder.
"""
import collections
import pathlib
import re
import sys

METHODS_MAX = 25
ROOT = pathlib.Path(__file__).resolve().parent.parent
IMPL = re.compile(r"^( *)impl\b")
METHOD = r"^{}    (pub(\([a-z ]+\))? )?(const )?(async )?(unsafe )?fn "


def blocks(lines):
    """Yields the type and the lines of each inherent implementation."""
    at = 0
    while at < len(lines):
        start = IMPL.match(lines[at])
        if not start:
            at += 1
            continue
        head = lines[at]
        while "{" not in lines[at]:
            at += 1
            head += lines[at]
        end = at
        while end < len(lines) - 1 and not lines[end].startswith(start[1] + "}"):
            end += 1
        head = head.split("{")[0].strip().removeprefix("impl")
        if not re.search(r"\bfor\b(?!<)", head):
            while head.startswith("<"):
                head = without_generics(head)
            yield re.match(r"[$\w:]+", head.strip())[0], lines[at:end], start[1]
        at = end + 1


def without_generics(head):
    """Removes the generics at the start of a text."""
    depth = 0
    for index, character in enumerate(head):
        depth += (character == "<") - (character == ">" and head[index - 1] != "-")
        if depth == 0:
            return head[index + 1 :].strip()
    sys.exit(f"type size: cannot read {head}")


def main():
    methods = collections.Counter()
    places = collections.defaultdict(set)
    for path in sorted(ROOT.glob("*/**/*.rs")):
        if "target" in path.parts:
            continue
        for name, body, indent in blocks(path.read_text().split("\n")):
            key = (path.parent.relative_to(ROOT), name)
            methods[key] += sum(1 for line in body if re.match(METHOD.format(indent), line))
            places[key].add(str(path.relative_to(ROOT)))
    large = [(key, count) for key, count in methods.most_common() if count > METHODS_MAX]
    for key, count in large:
        print(f"type size: {key[1]} has {count} methods, at most {METHODS_MAX}: {', '.join(sorted(places[key]))}")
    (_, name), count = methods.most_common(1)[0]
    print(f"type size: {sum(methods.values())} methods of {len(methods)} types, at most {count} ({name})")
    sys.exit(bool(large))


if __name__ == "__main__":
    main()
