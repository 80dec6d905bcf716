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
from typing import Any

DTYPES = [
    "bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
    "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip
MODULES = {
    "core": "",
    "core.random": "random_",
    "core.fast": "",
    "core.linalg": "linalg_",
    "core.fft": "fft_",
}
# Ids of the operators that the graph itself needs; api/ starts above 9.
GRAPH_OPS = {"data": 1, "placeholder": 2, "tracer": 3, "output": 4}
FIRST_ID = 10
# rule: what the operands become, for the reference
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


@dataclass(frozen=True)
class Kind:
    """How one type of argument looks in C and in Python stubs."""

    c: str
    absent: str  # in C, for a type with "?"
    stub: str


KINDS = {
    "array": Kind("mr_array *", "MR_NONE", "array"),
    "arraylike": Kind("mr_array *", "MR_NONE", "scalar | array"),
    "condition": Kind("mr_array *", "MR_NONE", "scalar | array"),
    "arrays": Kind("mr_array *const *", "", "Sequence[array]"),
    "axis": Kind("int32_t ", "MR_AXIS_NONE", "int"),
    "axes": Kind("mr_axes ", "MR_AXES_ALL", "int | Sequence[int]"),
    "shape": Kind("mr_shape ", "MR_SHAPE_NONE", "int | Sequence[int]"),
    "ints": Kind("mr_ints ", "MR_INTS_NONE", "int | Sequence[int]"),
    "int": Kind("int64_t ", "MR_INT_NONE", "int"),
    "float": Kind("double ", "NaN", "float"),
    "bool": Kind("bool ", "", "bool"),
    "dtype": Kind("mr_dtype ", "MR_DTYPE_DEFAULT", "Dtype"),
    "str": Kind("const char *", "NULL", "str"),
    "scalar": Kind("mr_scalar ", "", "scalar"),
}
ARRAY_KINDS = ("array", "arraylike", "condition")
LIST_KINDS = ("axes", "shape", "ints")
C_WORDS = {
    "and", "or", "xor", "not", "new", "delete", "this", "class", "default",
    "operator", "private", "public", "template", "typename", "using", "union",
    "signed", "unsigned", "register", "short", "long", "double", "float",
    "int", "char", "bool", "const", "static", "switch", "case", "struct",
}  # fmt: skip


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
    example: str | None = None

    @property
    def python_name(self) -> str:
        return f"{self.module}.{self.name}"

    def alias_c_name(self, alias: str) -> str:
        return MODULES[self.module] + alias

    @property
    def c_result(self) -> str:
        return "mr_array *" if self.returns == "array" else "mr_tree *"

    def arrays(self) -> list[Arg]:
        return [a for a in self.args if a.type in ARRAY_KINDS]


# key: the type of its value; several when it is a tuple
KEYS: dict[str, Any] = {
    "id": int, "op": bool, "public": bool, "module": str, "args": list,
    "returns": str, "door": str, "promote": str, "c_name": str,
    "aliases": list, "method": (bool, list), "spread": bool, "doc": str,
    "errors": list, "mlx_c": list, "python": bool, "example": str, "sample": list,
}  # fmt: skip

ARG = re.compile(r"^(\*?)(\w+)\s*:\s*(\w+)(\??)\s*(?:=\s*(.+))?$")


class Reader:
    """One file of the table."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        self.text = path.read_text()
        self.lines = self.text.splitlines()

    def fail(self, line: int, message: str) -> TableError:
        return TableError(f"{self.name}:{line}: {message}")

    def table_line(self, table: str) -> int:
        pattern = re.compile(r'^\s*\[\s*"?%s"?\s*\]' % re.escape(table))
        for i, text in enumerate(self.lines):
            if pattern.match(text):
                return i + 1
        return 1

    def key_line(self, table: str, key: str, text: str | None = None) -> int:
        """The line of a key, or within it of a text (an element of a list)."""
        start = self.table_line(table)
        found = start
        for i in range(start, len(self.lines)):
            line = self.lines[i]
            if line.lstrip().startswith("[") and not line.lstrip().startswith(("[[", '["')):
                break
            if re.match(r"^\s*%s\s*=" % re.escape(key), line):
                found = i + 1
            if found != start and text is not None and text in line:
                return i + 1
        return found

    def read(self) -> list[Record]:
        try:
            data = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as e:
            where = re.search(r"at line (\d+)", str(e))
            raise self.fail(int(where.group(1)) if where else len(self.lines), str(e)) from None
        return [self.record(name, table) for name, table in data.items()]

    def record(self, name: str, table: Any) -> Record:
        if not isinstance(table, dict):
            raise self.fail(1, f"{name}: stands outside a table")
        line = self.table_line(name)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise self.fail(line, f"{name}: is no name")
        for key, value in table.items():
            at = self.key_line(name, key)
            if key not in KEYS:
                raise self.fail(at, f"{name}: unknown key '{key}'")
            if not isinstance(value, KEYS[key]) or (KEYS[key] is int and isinstance(value, bool)):
                raise self.fail(at, f"{name}: '{key}' has the wrong type")
            if isinstance(value, list) and not all(isinstance(v, str) for v in value):
                raise self.fail(at, f"{name}: '{key}' must hold texts")
        r = Record(name, self.name, line)
        for key in ("id", "public", "module", "returns", "door", "promote", "aliases", "spread", "errors", "mlx_c",
                    "python", "example"):  # fmt: skip
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
        return r

    def check(self, r: Record, table: dict[str, Any]) -> None:
        def need(ok: bool, key: str, message: str) -> None:
            if not ok:
                raise self.fail(self.key_line(r.name, key), f"{r.name}: {message}")

        need(r.module in MODULES, "module", f"unknown module '{r.module}'")
        need(r.returns in ("array", "arrays", "list"), "returns", f"unknown result '{r.returns}'")
        need(r.door in ("unary", "binary", "build"), "door", f"unknown door '{r.door}'")
        need(r.promote is None or r.promote in PROMOTE, "promote", f"unknown rule '{r.promote}'")
        need((r.promote is None) == (r.door == "build"), "promote", "'promote' belongs to unary and binary doors, and they need it")
        need(r.door == "build" or r.op, "door", "a unary or binary door needs an operator (an id)")
        need(r.id is None or FIRST_ID <= r.id <= 0xFFFF, "id", f"id {r.id} is outside {FIRST_ID} to 65535")
        need(not r.op or r.id is not None, "op", "an operator needs an id")
        need(r.public or r.op, "public", "neither public nor an operator")
        need(not r.public or "args" in table, "args", "a public function needs 'args'")
        need(not r.public or bool(r.doc), "doc", "a public function needs 'doc'")
        need(not r.methods or r.python, "method", "a method needs the Python function")

    def args(self, r: Record, texts: list[str]) -> None:
        section = "any"
        for text in texts:
            at = self.key_line(r.name, "args", text)
            if text == "/":
                for a in r.args:
                    a.section = "positional"
            elif text == "*":
                section = "keyword"
            elif text == "stream":
                r.stream = True
            else:
                r.args.append(self.arg(r, text, section, at))
                if r.args[-1].variadic:
                    section = "keyword"
        names = [a.name for a in r.args]
        for n in names:
            if names.count(n) > 1 or n in ("stream", "site"):
                raise self.fail(self.key_line(r.name, "args"), f"{r.name}: '{n}' is taken")

    def arg(self, r: Record, text: str, section: str, at: int) -> Arg:
        m = ARG.match(text.strip())
        if not m:
            raise self.fail(at, f"{r.name}: '{text}' is not NAME: TYPE = DEFAULT")
        star, name, kind, mark, default = m.groups()
        if kind not in KINDS:
            raise self.fail(at, f"{r.name}: unknown type '{kind}'")
        if mark and not KINDS[kind].absent:
            raise self.fail(at, f"{r.name}: '{kind}' cannot be None")
        if star and kind != "arrays":
            raise self.fail(at, f"{r.name}: only 'arrays' can be variadic")
        value = None
        if default is not None:
            value = self.default(r, kind, bool(mark), default, at)
        return Arg(name, kind, bool(mark), default, value, section, bool(star))

    def default(self, r: Record, kind: str, optional: bool, text: str, at: int) -> Any:
        if kind == "dtype" and text in DTYPES:
            return text
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise self.fail(at, f"{r.name}: default {text} is no literal") from None
        allowed: dict[str, tuple[type, ...]] = {
            "axis": (int,), "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "axes": (list, tuple, int),
            "shape": (list, tuple, int), "ints": (list, tuple, int), "arraylike": (bool, int, float), "condition": (bool,),
            "scalar": (bool, int, float),
        }  # fmt: skip
        ok = optional if value is None else isinstance(value, allowed.get(kind, ()))
        if not ok or (isinstance(value, bool) and kind in ("axis", "int", "float")):
            raise self.fail(at, f"{r.name}: default {text} does not fit '{kind}'")
        return value

    def check_args(self, r: Record) -> None:
        at = self.key_line(r.name, "args")
        counts = {"unary": 1, "binary": 2}
        if r.door in counts and r.public:
            if len(r.args) != counts[r.door] or len(r.arrays()) != counts[r.door]:
                raise self.fail(at, f"{r.name}: a {r.door} door has {counts[r.door]} arrays and nothing else")
        if r.methods and (not r.args or r.args[0].type not in ARRAY_KINDS):
            raise self.fail(at, f"{r.name}: a method's first argument is an array")
        if r.spread and (len(r.args) < 2 or r.args[1].type not in LIST_KINDS):
            raise self.fail(at, f"{r.name}: 'spread' wants a list as the second argument")
        had_default = False
        for a in r.args:
            if a.section != "keyword" and not a.variadic:
                if had_default and a.default is None:
                    raise self.fail(at, f"{r.name}: '{a.name}' has no default but follows one that has")
                had_default = a.default is not None


def load(root: Path) -> list[Record]:
    """All records, in the order of the files' names and of their lines."""
    records: list[Record] = []
    readers: dict[str, Reader] = {}
    for path in sorted((root / "api").glob("*.toml")):
        reader = Reader(path, root)
        readers[reader.name] = reader
        records += reader.read()
    seen: dict[Any, Record] = {}

    def claim(key: tuple[Any, ...], r: Record, what: str, toml_key: str) -> None:
        if key in seen:
            other = seen[key]
            line = readers[r.file].key_line(r.name, toml_key) if toml_key else r.line
            raise TableError(f"{r.file}:{line}: {r.name}: {what} is taken by {other.name} ({other.file}:{other.line})")
        seen[key] = r

    for r in records:
        if r.id is not None:
            claim(("id", r.id), r, f"id {r.id}", "id")
        if r.op:
            claim(("op", r.name), r, f"operator {r.name}", "")
        if not r.public:
            continue
        for c in [r.c_name] + [r.alias_c_name(a) for a in r.aliases]:
            claim(("c", c), r, f"mr_{c}", "aliases" if c != r.c_name else "")
        for n in [r.name, *r.aliases]:
            claim(("python", r.module, n), r, f"{r.module}.{n}", "aliases" if n != r.name else "")
        for n in r.methods:
            claim(("method", n), r, f"method {n}", "method")
    for r in records:
        if r.name in GRAPH_OPS and r.op:
            raise TableError(f"{r.file}:{r.line}: {r.name}: the graph itself has an operator of this name")
    return records
