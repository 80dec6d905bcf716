# SPDX-License-Identifier: Apache-2.0
"""The Python side of the build tree: py_functions.c, a spec and a call each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from c_out import head, wrap
from table import LIST_KINDS, MODULES, Arg, Record


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def c_number(value: int | float) -> str:
    words = {"True": "true", "False": "false", "nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
    return words.get(repr(value), repr(value))


def scalar(value: bool | int | float) -> str:
    kind = "BOOL, {.b" if isinstance(value, bool) else "INT, {.i" if isinstance(value, int) else "FLOAT, {.f"
    return "{.scalar = {MR_SCALAR_%s = %s}}}" % (kind, c_number(value))


# type: the member of ext_value, and the value when it is absent
MEMBERS = {
    "array": ("array", "{.i = 0}"), "arraylike": ("array", "{.i = 0}"), "condition": ("array", "{.i = 0}"),
    "arrays": ("arrays", "{.i = 0}"), "scalar": ("scalar", "{.i = 0}"), "axes": ("axes", "{.axes = {NULL, -1}}"),
    "shape": ("shape", "{.shape = {NULL, -1}}"), "ints": ("ints", "{.ints = {NULL, -1}}"),
    "axis": ("axis", "{.axis = MR_AXIS_NONE}"), "int": ("i", "{.i = MR_INT_NONE}"), "float": ("f", "{.f = NAN}"),
    "bool": ("b", ""), "flag": ("i", "{.i = MR_INT_NONE}"),
    "dtype": ("dtype", "{.dtype = MR_DTYPE_DEFAULT}"), "str": ("s", "{.s = NULL}"),
}  # fmt: skip


def initial(a: Arg, prefix: str) -> tuple[str, str]:
    """The default's ext_value, and a static array that it points to."""
    v, (member, absent) = a.value, MEMBERS[a.type]
    if v is None:
        return absent if a.optional else "{.i = 0}", ""
    if a.type in ("arraylike", "condition", "scalar"):
        return scalar(v), ""
    if a.type in LIST_KINDS:
        items = [v] if isinstance(v, int) else list(v)
        if not items:
            return "{.%s = {NULL, 0}}" % member, ""
        name, kind = f"{prefix}_{a.name}", "int32_t" if a.type == "axes" else "int64_t"
        text = f"static const {kind} {name}[] = {{{', '.join(map(str, items))}}};\n"
        return "{.%s = {%s, %d}}" % (member, name, len(items)), text
    if a.type == "dtype":
        return "{.dtype = MR_%s}" % v.rstrip("_").upper(), ""
    return "{.%s = %s}" % (member, quote(v) if a.type == "str" else c_number(float(v) if a.type == "float" else v)), ""


def flags(a: Arg) -> str:
    has_default = a.default is not None or a.variadic
    return " | ".join(["EXT_NULLABLE"] * a.optional + ["EXT_DEFAULT"] * has_default) or "0"


def values(r: Record) -> list[str]:
    each = [f"c->v[{i}].{MEMBERS[a.type][0]}" for i, a in enumerate(r.args)]
    return ["c->site", *(f"{e}.v, {e}.n" if e.endswith("arrays") else e for e in each)]


def parameters(r: Record, method: bool, stream: str, show: Callable[[Arg], str], standard: list[str]) -> list[str]:
    """A function's parameters with `/` and `*` where sections end and `stream` in its place."""
    args, out, star = r.args[1:] if method else r.args, list[str](), False
    for i, a in enumerate(args):
        if a.section == "keyword" and not star:
            out += [stream, "*"] if r.stream else ["*"]
        star = star or a.section == "keyword" or a.variadic
        out.append(("*" if a.variadic else "") + show(a))
        last = i + 1 == len(args) or args[i + 1].section != "positional"
        if a.section == "positional" and last and not method:
            out.append("/")
    if not r.stream or stream not in out:
        out += [stream] if star or r.stream else ["*", stream]
    if "*" not in out:
        return out + ["*"] * bool(standard) + standard
    return [*out[:-1], *standard, stream] if out[-1] == stream else [*out, *standard]


def signature(r: Record, method: bool) -> str:
    """As inspect.signature can read it back: a dtype's default reads None."""

    def show(a: Arg) -> str:
        return a.name + ("" if a.default is None else "=" + ("None" if a.type == "dtype" else a.default))

    first = ["$self", "/"] if method else []
    if method and r.spread:
        return ", ".join([*first, "*" + r.args[1].name, "stream=None"])
    standard = [s.split(":")[0] + "=" + s.rsplit("= ", 1)[1] for s in r.standard]
    return ", ".join(first + parameters(r, method, "stream=None", show, standard))


def doc(r: Record, name: str, method: bool) -> str:
    text = r.doc if name == r.name or method else f"Another name of {r.name}.\n\n{r.doc}"
    if r.errors:
        text += "\n\nRaises:\n" + "\n".join("    " + e for e in r.errors)
    text += "\n\nExample:\n" + textwrap.indent(r.example.rstrip(), "    ")
    return f"{name}({signature(r, method)})\n--\n\n{text}"


def method_def(name: str, function: str, text: str) -> str:
    """One PyMethodDef; the text is cut at its lines."""
    lines = text.split("\n")
    parts = [quote(x + ("\n" if i < len(lines) - 1 else "")) for i, x in enumerate(lines)]
    head = f'    {{"{name}", (PyCFunction)(void (*)(void)){function},\n     METH_FASTCALL | METH_KEYWORDS,\n     '
    return head + "\n     ".join(parts) + "},\n"


ENTRY = """\
static PyObject *
{name}(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{{
{body}}}

"""


def one(r: Record) -> str:
    tag = r.c_name
    statics, rows = "", []
    for a in r.args:
        value, text = initial(a, f"d_{tag}")
        statics += text
        rows.append(f'    {{"{a.name}", EXT_{a.type.upper()}, {flags(a)}, {value}}},\n')
    positional = sum(a.section != "keyword" and not a.variadic for a in r.args)
    only = sum(a.section == "positional" for a in r.args)
    variadic = next((i for i, a in enumerate(r.args) if a.variadic), -1)
    spread, stream = (str(b).lower() for b in (r.spread, r.stream))
    result = {"array": "ext_array", "arrays": "ext_tuple", "list": "ext_list"}[r.returns]
    call = wrap(f"    return {result}(c, mr_{tag}_at(", values(r), "));")
    out = [statics]
    if rows:
        out.append(f"static const ext_param p_{tag}[] = {{\n{''.join(rows)}}};\n")
    out.append(f"static PyObject *\nc_{tag}(ext_call *c)\n{{\n{call}\n}}\n")
    fields = [quote(r.name), f"p_{tag}" if rows else "NULL", f"c_{tag}", str(len(rows)), str(only), str(positional),
              str(variadic), stream, spread]  # fmt: skip
    out.append(f"static const ext_spec s_{tag} = {{{', '.join(fields)}}};\n\n")
    out.append(ENTRY.format(name=f"f_{tag}", body=f"    (void)self;\n    return ext_run(&s_{tag}, NULL, args, n, kw);\n"))
    if r.methods:
        out.append(ENTRY.format(name=f"m_{tag}", body=f"    return ext_run(&s_{tag}, self, args, n, kw);\n"))
    return "".join(out)


def py_functions_c(records: list[Record]) -> str:
    rows = [r for r in records if r.public and r.python]
    out = [head("py_functions.c -- the Python functions.") + '#include "ext.h"\n\n#include "marram/marram.h"\n\n']
    out += [one(r) for r in rows]
    for module in MODULES:
        tag = module.replace("core.", "").replace(".", "_")
        out.append(f"static PyMethodDef t_{tag}[] = {{\n")
        for r in rows:
            if r.module == module:
                out += [method_def(n, f"f_{r.c_name}", doc(r, n, False)) for n in [r.name, *r.aliases]]
        out.append("    {NULL, NULL, 0, NULL}};\n\n")
    out.append("const ext_module ext_generated[] = {\n")
    out += [f'    {{"{m.removeprefix("core").removeprefix(".")}", t_{m.replace("core.", "")}}},\n' for m in MODULES]
    out.append("    {NULL, NULL}};\n\nPyMethodDef ext_generated_methods[] = {\n")
    for r in rows:
        out += [method_def(n, f"m_{r.c_name}", doc(r, n, True)) for n in r.methods]
    out.append("    {NULL, NULL, 0, NULL}};\n")
    return "".join(out)
