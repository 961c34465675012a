#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers

"""Compare two versions of librpma.h, declaration by declaration, with the compiler as the judge.

usage: header.py OURS ORIGINAL [CC]

Both headers are preprocessed and cut into declarations. The names they declare must be the same, none more and none less. For
each of them an assertion is written into one C program that includes both headers, the original's with its names changed; that
the program compiles proves that each prototype, enumerator, enumeration, macro, structure and type equals its counterpart.
Assertions are compiled one by one if the whole does not pass, so that each difference is named. Prints a line for each kind of
declaration and ends with "N passed, N failed". What the parser does not know is a failure, not skipped.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "original_"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-type-limits", "-Wno-missing-field-initializers"]


class Failure(Exception):
    """The headers cannot be compared at all."""


@dataclass
class Header:
    """What a header declares."""

    functions: dict[str, str] = field(default_factory=dict)  # name -> declaration
    enums: dict[str, list[str]] = field(default_factory=dict)  # tag -> enumerators
    structs: dict[str, list[str]] = field(default_factory=dict)  # tag -> members
    opaque: set[str] = field(default_factory=set)  # tags of structures that are only named
    typedefs: dict[str, str] = field(default_factory=dict)
    macros: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)  # the declarations, in order


def run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def preprocess(compiler: str, path: Path) -> tuple[str, dict[str, str]]:
    """The header's own declarations, without those of what it includes, and its macros."""
    out = run([compiler, "-std=gnu11", "-E", "-dD", str(path)])
    lines, macros, inside = [], {}, False
    for line in out.splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            inside = Path(marker[1]) == path
        elif not inside:
            continue
        elif macro := re.match(r"#define (\w+)(\(?)\s*(.*)", line):
            if macro[2]:
                # A body in parentheses begins after a blank, parameters do not.
                if re.match(r"#define \w+\(", line):
                    raise Failure(f"{path}: macro with parameters: {line}")
                macros[macro[1]] = (macro[2] + macro[3]).strip()
            else:
                macros[macro[1]] = macro[3].strip()
        elif not line.startswith("#"):
            lines.append(line)
    return " ".join(lines), macros


def declarations(text: str) -> list[str]:
    """The text cut at the semicolons outside of braces and parentheses."""
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "({") - (character in ")}")
        if character == ";" and depth == 0:
            found.append(" ".join(current.split()))
            current = ""
        else:
            current += character
    if current.strip():
        raise Failure(f"declaration without an end: {current.strip()}")
    return [declaration for declaration in found if declaration]


def parse(compiler: str, path: Path) -> Header:
    text, macros = preprocess(compiler, path)
    header = Header(macros=macros)
    for declaration in declarations(text):
        header.text.append(declaration)
        if match := re.fullmatch(r"enum (\w+) \{(.*)\}", declaration):
            members = [item.split("=")[0].strip() for item in match[2].split(",")]
            header.enums[match[1]] = [member for member in members if member]
        elif match := re.fullmatch(r"struct (\w+) \{(.*)\}", declaration):
            members = [re.search(r"(\w+)(\[[^]]*\])?$", item.strip()) for item in match[2].split(";") if item.strip()]
            if not all(members):
                raise Failure(f"{path}: cannot read {declaration}")
            header.structs[match[1]] = [member[1] for member in members if member]
        elif match := re.fullmatch(r"struct (\w+)", declaration):
            header.opaque.add(match[1])
        elif match := re.fullmatch(r"typedef (?:[^()]*?\b(\w+)|[^()]*?\b(\w+) ?\(.*\)|[^()]*\( ?\* ?(\w+) ?\).*)", declaration):
            header.typedefs[match[1] or match[2] or match[3]] = declaration
        elif match := re.fullmatch(r"(?:extern )?(?!typedef|struct \w+ \{|enum \w+ \{)[^(){}=]*?\b(\w+) ?\(.*\)", declaration):
            header.functions[match[1]] = declaration
        else:
            raise Failure(f"{path}: cannot read: {declaration}")
    # Naming a structure and then defining it declares it once.
    header.opaque -= set(header.structs)
    if not header.functions:
        raise Failure(f"{path}: declares no function")
    return header


def renamed(header: Header, other: Header) -> str:
    """The declarations with changed names, so that they can stand beside those of another header.

    Names of functions, enumerators, macros, typedefs and of enumerations and structures where those are defined change.
    Where such a type is used it stays the other header's: only so can the compiler call two prototypes the same. That both
    define it alike is asserted apart.
    """
    names = set(header.functions) | set(header.macros) | set(header.typedefs)
    names.update(name for members in header.enums.values() for name in members)
    pattern = re.compile(r"\b(" + "|".join(sorted(map(re.escape, names), key=len, reverse=True)) + r")\b")

    def change(text: str) -> str:
        text = pattern.sub(PREFIX + r"\1", text)
        return re.sub(r"^(enum|struct) (\w+) \{", rf"\1 {PREFIX}\2 {{", text)

    lines = [f"#define {PREFIX}{name} {change(body)}" for name, body in header.macros.items()]
    # A type that the other header lacks is reported by name; here it must still be declared, or nothing compiles.
    lines += [f"enum {tag} {{ {PREFIX}{tag}_missing }};" for tag in sorted(set(header.enums) - set(other.enums))]
    lines += [change(declaration) + ";" for declaration in header.text]
    return "\n".join(lines)


def value_assertions(names: list[str]) -> list[tuple[str, str]]:
    found = []
    for name in names:
        found.append((name, f"(long long)({name}) == (long long)({PREFIX}{name})"))
        found.append((f"type of {name}", f"__builtin_types_compatible_p(__typeof__({name}), __typeof__({PREFIX}{name}))"))
    return found


def assertions(ours: Header, original: Header) -> dict[str, list[tuple[str, str]]]:
    """For each kind of declaration what must hold of those that both headers have: (what, C expression)."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    kinds["prototypes"] = [
        (name, f"__builtin_types_compatible_p(__typeof__({name}), __typeof__({PREFIX}{name}))")
        for name in original.functions
        if name in ours.functions
    ]
    enumerators = kinds["enumerators"] = []
    enums = kinds["enumerations"] = []
    for tag, members in original.enums.items():
        if tag not in ours.enums:
            continue
        enumerators += [
            (name, f"(long long){name} == (long long){PREFIX}{name}") for name in members if name in ours.enums[tag]
        ]
        enums.append((f"size of {tag}", f"sizeof(enum {tag}) == sizeof(enum {PREFIX}{tag})"))
        enums.append((f"alignment of {tag}", f"_Alignof(enum {tag}) == _Alignof(enum {PREFIX}{tag})"))
        enums.append((f"sign of {tag}", f"((enum {tag})-1 < 0) == ((enum {PREFIX}{tag})-1 < 0)"))
        # In C an enumeration is compatible with one integer type: the same for both.
        enums.append((
            f"integer type of {tag}",
            f"__builtin_types_compatible_p(enum {tag}, unsigned int) == "
            f"__builtin_types_compatible_p(enum {PREFIX}{tag}, unsigned int)",
        ))
    structs = kinds["structures"] = []
    for tag, members in original.structs.items():
        if tag not in ours.structs:
            continue
        structs.append((f"size of {tag}", f"sizeof(struct {tag}) == sizeof(struct {PREFIX}{tag})"))
        structs.append((f"alignment of {tag}", f"_Alignof(struct {tag}) == _Alignof(struct {PREFIX}{tag})"))
        for member in members:
            if member not in ours.structs[tag]:
                continue
            here, there = f"((struct {tag} *)0)->{member}", f"((struct {PREFIX}{tag} *)0)->{member}"
            structs.append((
                f"offset of {tag}.{member}",
                f"__builtin_offsetof(struct {tag}, {member}) == __builtin_offsetof(struct {PREFIX}{tag}, {member})",
            ))
            structs.append((
                f"type of {tag}.{member}",
                f"__builtin_types_compatible_p(__typeof__({here}), __typeof__({there}))",
            ))
    kinds["types"] = [
        (name, f"__builtin_types_compatible_p({name} *, {PREFIX}{name} *)")
        for name in original.typedefs
        if name in ours.typedefs
    ]
    # A macro with no value guards the header, and so does one with its name in another case; a value is compared as one.
    macros = kinds["macros"] = []
    for name, body in original.macros.items():
        if name not in ours.macros:
            continue
        if "NULL" in body:
            macros.append((name, f"({name}) == ({PREFIX}{name})"))
            macros.append((f"type of {name}", f"__builtin_types_compatible_p(__typeof__({name}), __typeof__({PREFIX}{name}))"))
        elif body:
            macros += value_assertions([name])
    return kinds


def names_of(header: Header) -> dict[str, set[str]]:
    """All that a header declares, by kind; a difference in any of these sets is one to the program that includes it."""
    return {
        "function": set(header.functions),
        "enumeration": set(header.enums),
        "enumerator": {f"{tag}: {name}" for tag, members in header.enums.items() for name in members},
        "structure": set(header.structs),
        "member": {f"{tag}: {name}" for tag, members in header.structs.items() for name in members},
        "opaque structure": header.opaque,
        "type": set(header.typedefs),
        "macro": set(header.macros),
    }


class Program:
    """The C program that includes both headers."""

    def __init__(self, compiler: str, ours: Path, theirs: str, folder: Path):
        self.compiler, self.folder = compiler, folder
        self.head = f'#include "{ours}"\n{theirs}\n'

    def compiles(self, expressions: list[str]) -> bool:
        source = self.folder / "both.c"
        asserted = "\n".join(f'_Static_assert({expression}, "");' for expression in expressions)
        source.write_text(self.head + asserted + "\n", encoding="utf-8")
        command = [self.compiler, *FLAGS, "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.errors = done.stderr
        return done.returncode == 0

    def failing(self, wanted: list[tuple[str, str]]) -> list[str]:
        """What does not hold, found by halving, since most assertions do hold."""
        if not wanted or self.compiles([expression for _, expression in wanted]):
            return []
        if len(wanted) == 1:
            return [wanted[0][0]]
        middle = len(wanted) // 2
        return self.failing(wanted[:middle]) + self.failing(wanted[middle:])


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__.splitlines()[2], file=sys.stderr)
        return 2
    paths = [Path(argument).resolve() for argument in sys.argv[1:3]]
    compiler = sys.argv[3] if len(sys.argv) == 4 else "gcc"
    passed = failed = 0
    ours, original = (parse(compiler, path) for path in paths)
    mine, theirs = names_of(ours), names_of(original)
    for kind in mine:
        for name in sorted(theirs[kind] - mine[kind]):
            print(f"FAIL {kind} is missing: {name}")
        for name in sorted(mine[kind] - theirs[kind]):
            print(f"FAIL {kind} is not in the original: {name}")
        failed += len(mine[kind] ^ theirs[kind])
        passed += len(mine[kind] & theirs[kind])
    with tempfile.TemporaryDirectory() as folder:
        program = Program(compiler, paths[0], renamed(original, ours), Path(folder))
        if not program.compiles([]):
            raise Failure(f"a program with both headers does not compile:\n{program.errors}")
        for kind, wanted in assertions(ours, original).items():
            different = program.failing(wanted)
            for what in different:
                print(f"FAIL differs: {what}")
            print(f"{kind}: {len(wanted)} compared, {len(different)} differ")
            passed += len(wanted) - len(different)
            failed += len(different)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAIL {failure}")
        print("0 passed, 1 failed")
        sys.exit(1)
