# SPDX-License-Identifier: Apache-2.0
"""Reads api/*.toml into records and refuses what is not in the spec.

api/README.md describes the table.  Every error names file and line: tomllib
keeps no positions, so they are found again by scanning the text.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DTYPES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
MODULES = {"core": "", "core.random": "random_", "core.fast": "", "core.linalg": "linalg_", "core.fft": "fft_"}
# Ids of the operators that the graph itself needs; api/ starts above 9.
GRAPH_OPS = {"data": 1, "placeholder": 2, "tracer": 3, "output": 4}
FIRST_ID = 10
# What the operands of unary and binary doors become.
PROMOTE = {
    "same": "The operands take their common dtype.",
    "float": "The operands take their common dtype; integers and bool then become float32.",
    "compare": "The operands take their common dtype; the result is bool.",
    "logical": "The operands are taken as bool; the result is bool.",
    "int": "The operands take their common dtype; floats and complex are refused.",
    "shift": "The operands take their common dtype, bool then uint8; floats and complex are refused.",
    "numeric": "The operands take their common dtype; bool is refused.",
    "real": "The operands take their common dtype, integers and bool then float32; complex is refused.",
    "noncomplex": "The operands take their common dtype; complex is refused.",
}


class Kind(NamedTuple):
    """How one type of argument looks in C and in stubs, and what its default may be."""

    c: str
    absent: str  # in C, for a type with "?"; "": it cannot be None
    stub: str
    literal: tuple[type, ...] = ()


LIST = (list, tuple, int)
KINDS = {
    "array": Kind("mr_array *", "MR_NONE", "array"),
    "arraylike": Kind("mr_array *", "MR_NONE", "scalar | array", (bool, int, float)),
    "condition": Kind("mr_array *", "MR_NONE", "scalar | array", (bool,)),
    "arrays": Kind("mr_array *const *", "", "Sequence[array]"),
    "axis": Kind("int32_t ", "MR_AXIS_NONE", "int", (int,)),
    "axes": Kind("mr_axes ", "MR_AXES_ALL", "int | Sequence[int]", LIST),
    "shape": Kind("mr_shape ", "MR_SHAPE_NONE", "int | Sequence[int]", LIST),
    "ints": Kind("mr_ints ", "MR_INTS_NONE", "int | Sequence[Any]", LIST),
    "int": Kind("int64_t ", "MR_INT_NONE", "int", (int,)),
    "float": Kind("double ", "NaN", "float", (int, float)),
    "bool": Kind("bool ", "", "builtins.bool", (bool,)),
    "flag": Kind("int64_t ", "MR_INT_NONE", "builtins.bool", (bool,)),
    "dtype": Kind("mr_dtype ", "MR_DTYPE_DEFAULT", "Dtype"),
    "str": Kind("const char *", "NULL", "str", (str,)),
    "scalar": Kind("mr_scalar ", "", "scalar", (bool, int, float)),
}
ARRAY_KINDS = ("array", "arraylike", "condition")
LIST_KINDS = ("axes", "shape", "ints")
C_WORDS = set(
    "and or xor not new delete this class default operator private public template typename using union signed "
    "unsigned register short long double float int char bool const static switch case struct".split()
)


class TableError(Exception):
    """A fault of the table, with file and line."""


@dataclass
class Arg:
    name: str
    type: str
    optional: bool  # None is allowed
    default: str | None  # Python text, None: required
    value: Any  # the default evaluated; a dtype default stays its name
    section: str  # "positional", "any" or "keyword"
    variadic: bool = False

    @property
    def c_name(self) -> str:
        return self.name + "_" if self.name in C_WORDS else self.name

    @property
    def kind(self) -> Kind:
        return KINDS[self.type]


@dataclass
class Record:
    name: str
    file: str
    line: int
    id: int | None = None
    op: bool = False
    public: bool = True
    module: str = "core"
    args: list[Arg] = field(default_factory=list)
    stream: bool = False  # `stream` may be positional
    returns: str = "array"
    door: str = "build"
    promote: str | None = None
    c_name: str = ""
    aliases: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    spread: bool = False
    doc: str = ""
    errors: list[str] = field(default_factory=list)
    mlx_c: list[str] = field(default_factory=list)
    python: bool = True
    example: str = ""
    c: str = ""
    standard: list[str] = field(default_factory=list)

    @property
    def c_names(self) -> list[str]:
        return [self.c_name] + [MODULES[self.module] + a for a in self.aliases]

    @property
    def in_python(self) -> bool:
        """Under its own name: generated, or by hand, as the example shows."""
        return self.python or f"{self.module.replace('core', 'mx', 1)}.{self.name}(" in self.example

    @property
    def c_call(self) -> str:
        """The last statement of the example in C, without a semicolon."""
        return self.c.strip().rsplit(";\n", 1)[-1]

    @property
    def c_result(self) -> str:
        return "mr_array *" if self.returns == "array" else "mr_tree *"

    def arrays(self) -> list[Arg]:
        return [a for a in self.args if a.type in ARRAY_KINDS]


# key: the type of its value; several when it is a tuple
KEYS: dict[str, Any] = dict(
    id=int, op=bool, public=bool, module=str, args=list, returns=str, door=str, promote=str, c_name=str, aliases=list,
    method=(bool, list), spread=bool, doc=str, errors=list, mlx_c=list, python=bool, example=str, c=str, sample=list,
    oracle=str, standard=list,
)  # fmt: skip
PLAIN = "id public module returns door promote aliases spread errors mlx_c python example c standard".split()
ARG = re.compile(r"^(\*?)(\w+)\s*:\s*(\w+)(\??)\s*(?:=\s*(.+))?$")


class Reader:
    """One file of the table."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = str(path.relative_to(root))
        self.text = path.read_text()
        self.lines = self.text.splitlines()

    def table_line(self, table: str) -> int:
        pattern = re.compile(r'^\s*\[\s*"?%s"?\s*\]' % re.escape(table))
        return next((i + 1 for i, text in enumerate(self.lines) if pattern.match(text)), 1)

    def key_line(self, table: str, key: str, text: str | None = None) -> int:
        """The line of a key, or within its value that of a text."""
        start = found = self.table_line(table)
        for i in range(start, len(self.lines)):
            line = self.lines[i]
            if re.match(r"\s*\[\w", line):
                break
            if re.match(r"^\s*%s\s*=" % re.escape(key), line):
                found = i + 1
            if found != start and text is not None and text in line:
                return i + 1
        return found

    def need(self, ok: bool, table: str, key: str, message: str, text: str | None = None) -> None:
        if not ok:
            raise TableError(f"{self.name}:{self.key_line(table, key, text)}: {table}: {message}")

    def read(self) -> list[Record]:
        try:
            data = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as e:
            where = re.search(r"at line (\d+)", str(e))
            raise TableError(f"{self.name}:{where.group(1) if where else len(self.lines)}: {e}") from None
        return [self.record(name, table) for name, table in data.items()]

    def record(self, name: str, table: Any) -> Record:
        self.need(isinstance(table, dict), name, name, "stands outside a table")
        self.need(bool(re.fullmatch(r"[A-Za-z_]\w*", name)), name, "", "is no name")
        for key, value in table.items():
            self.need(key in KEYS, name, key, f"unknown key '{key}'")
            fits = isinstance(value, KEYS[key]) and not (KEYS[key] is int and isinstance(value, bool))
            fits = fits and not (isinstance(value, list) and not all(isinstance(v, str) for v in value))
            self.need(fits, name, key, f"'{key}' has the wrong type")
        r = Record(name, self.name, self.table_line(name))
        for key in PLAIN:
            if key in table:
                setattr(r, key, table[key])
        r.op = table.get("op", r.id is not None)
        r.doc = " ".join(table.get("doc", "").split())
        method = table.get("method", False)
        r.methods = ([name] if method else []) if isinstance(method, bool) else method
        self.check(r, table)
        r.c_name = table.get("c_name", MODULES[r.module] + name)
        self.args(r, table.get("args", []))
        self.check_args(r)
        self.check_examples(r)
        return r

    def check(self, r: Record, table: dict[str, Any]) -> None:
        for key, value, allowed in (
            ("module", r.module, MODULES),
            ("returns", r.returns, ("array", "arrays", "list")),
            ("door", r.door, ("unary", "binary", "build")),
            ("promote", r.promote, (None, *PROMOTE)),
        ):
            self.need(value in allowed, r.name, key, f"unknown {key} '{value}'")
        for key, ok, message in (
            ("promote", (r.promote is None) == (r.door == "build"), "unary and binary doors, and only they, have 'promote'"),
            ("door", r.door == "build" or r.op, "a unary or binary door needs an operator (an id)"),
            ("id", r.id is None or FIRST_ID <= r.id <= 0xFFFF, f"id {r.id} is outside {FIRST_ID} to 65535"),
            ("op", not r.op or r.id is not None, "an operator needs an id"),
            ("op", not (r.op and r.name in GRAPH_OPS), "the graph itself has an operator of this name"),
            ("public", r.public or r.op, "neither public nor an operator"),
            ("args", not r.public or "args" in table, "a public function needs 'args'"),
            ("doc", not r.public or bool(r.doc), "a public function needs 'doc'"),
            ("method", not r.methods or r.python, "a method needs the Python function"),
        ):
            self.need(ok, r.name, key, message)

    def args(self, r: Record, texts: list[str]) -> None:
        section = "any"
        for text in texts:
            if text == "/":
                for a in r.args:
                    a.section = "positional"
            elif text == "*":
                section = "keyword"
            elif text == "stream":
                r.stream = True
            else:
                r.args.append(self.arg(r.name, text, section))
                section = "keyword" if r.args[-1].variadic else section
        names = [a.name for a in r.args]
        for n in names:
            self.need(names.count(n) == 1 and n not in ("stream", "site"), r.name, "args", f"'{n}' is taken")

    def arg(self, table: str, text: str, section: str) -> Arg:
        m = ARG.match(text.strip())
        if not m:
            raise TableError(f"{self.name}:{self.key_line(table, 'args', text)}: {table}: '{text}' is not NAME: TYPE = DEFAULT")
        star, name, kind, mark, default = m.groups()
        self.need(kind in KINDS, table, "args", f"unknown type '{kind}'", text)
        self.need(not mark or bool(KINDS[kind].absent), table, "args", f"'{kind}' cannot be None", text)
        self.need(not star or kind == "arrays", table, "args", "only 'arrays' can be variadic", text)
        value = default if kind == "dtype" and default in DTYPES else None
        if default is not None and value is None:
            try:
                value = ast.literal_eval(default)
            except (ValueError, SyntaxError):
                self.need(False, table, "args", f"default {default} is no literal", text)
            ok = bool(mark) if value is None else isinstance(value, KINDS[kind].literal)
            ok = ok and not (isinstance(value, bool) and bool not in KINDS[kind].literal)
            self.need(ok, table, "args", f"default {default} does not fit '{kind}'", text)
        return Arg(name, kind, bool(mark), default, value, section, bool(star))

    def check_args(self, r: Record) -> None:
        n = {"unary": 1, "binary": 2}.get(r.door, 0)
        for ok, message in (
            (not (n and r.public) or len(r.args) == len(r.arrays()) == n, f"a {r.door} door has {n} arrays and nothing else"),
            (not r.methods or bool(r.args and r.args[0].type in ARRAY_KINDS), "a method's first argument is an array"),
            (not r.spread or (len(r.args) > 1 and r.args[1].type in LIST_KINDS), "'spread' wants a list as the second argument"),
        ):
            self.need(ok, r.name, "args", message)
        places = [a for a in r.args if a.section != "keyword" and not a.variadic]
        for a, b in zip(places, places[1:], strict=False):
            self.need(a.default is None or b.default is not None, r.name, "args", f"'{b.name}' needs a default, as '{a.name}'")


    def check_examples(self, r: Record) -> None:
        if r.public:
            good = r.example.startswith(">>> ") and not r.example.rstrip().rsplit("\n", 1)[-1].startswith(">>> ")
            self.need(good, r.name, "example", "needs an 'example': '>>> CALL' lines and what the last one prints")
            call = f"mr_{r.c_name}("
            self.need(r.c_call.startswith(call), r.name, "c", f"needs 'c': C whose last statement is the call {call}...)")


def load(root: Path) -> list[Record]:
    """All records, in the order of the files' names and of their lines."""
    records: list[Record] = []
    seen: dict[Any, Record] = {}
    for path in sorted((root / "api").glob("*.toml")):
        reader = Reader(path, root)
        for r in reader.read():
            claims: list[tuple[Any, str, str]] = [(("id", r.id), f"id {r.id}", "id")] if r.id is not None else []
            claims += [(("op", r.name), f"operator {r.name}", "id")] if r.op else []
            if r.public:
                claims += [(f"mr_{c}{end}", f"mr_{c}{end}", "aliases") for c in r.c_names for end in ("", "_at")]
                claims += [((r.module, n), f"{r.module}.{n}", "aliases") for n in [r.name, *r.aliases]]
                claims += [(("method", n), f"method {n}", "method") for n in r.methods]
            for key, what, toml_key in claims:
                if key in seen:
                    other = seen[key]
                    reader.need(False, r.name, toml_key, f"{what} is taken by {other.name} ({other.file}:{other.line})")
                seen[key] = r
            records.append(r)
    return records
