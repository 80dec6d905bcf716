# SPDX-License-Identifier: Apache-2.0
"""The Python side of the build tree: py_functions.c, a spec and a call each."""

from __future__ import annotations

from c_out import HEADER, wrap
from table import LIST_KINDS, MODULES, Arg, Record

HELP = """\
#include "ext.h"

#include "marram/marram.h"

"""


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def c_number(value: int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def scalar(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "{.scalar = {MR_SCALAR_BOOL, {.b = %s}}}" % c_number(value)
    if isinstance(value, int):
        return "{.scalar = {MR_SCALAR_INT, {.i = %d}}}" % value
    return "{.scalar = {MR_SCALAR_FLOAT, {.f = %s}}}" % c_number(value)


def initial(a: Arg, prefix: str) -> tuple[str, str]:
    """The default's ext_value, and a static array that it points to."""
    v = a.value
    if a.type in ("array", "arrays") or (a.default is None and not a.optional):
        return "{.i = 0}", ""
    if a.type in ("arraylike", "condition", "scalar"):
        return ("{.i = 0}", "") if v is None else (scalar(v), "")
    if a.type in LIST_KINDS:
        member = {"axes": "axes", "shape": "shape", "ints": "ints"}[a.type]
        if v is None:
            return "{.%s = {NULL, -1}}" % member, ""
        items = [v] if isinstance(v, int) else list(v)
        if not items:
            return "{.%s = {NULL, 0}}" % member, ""
        name = f"{prefix}_{a.name}"
        kind = "int32_t" if a.type == "axes" else "int64_t"
        text = f"static const {kind} {name}[] = {{{', '.join(map(str, items))}}};\n"
        return "{.%s = {%s, %d}}" % (member, name, len(items)), text
    if v is None:
        absent = {"axis": "{.axis = MR_AXIS_NONE}", "int": "{.i = MR_INT_NONE}", "float": "{.f = NAN}",
                  "dtype": "{.dtype = MR_DTYPE_DEFAULT}", "str": "{.s = NULL}"}  # fmt: skip
        return absent[a.type], ""
    if a.type == "dtype":
        return "{.dtype = MR_%s}" % v.rstrip("_").upper(), ""
    if a.type == "str":
        return "{.s = %s}" % quote(v), ""
    member = {"axis": "axis", "int": "i", "float": "f", "bool": "b"}[a.type]
    return "{.%s = %s}" % (member, c_number(float(v) if a.type == "float" else v)), ""


def flags(a: Arg) -> str:
    out = []
    if a.optional:
        out.append("EXT_NULLABLE")
    if a.default is not None or a.variadic:
        out.append("EXT_DEFAULT")
    return " | ".join(out) or "0"


def values(r: Record) -> list[str]:
    member = {"array": "array", "arraylike": "array", "condition": "array", "int": "i", "float": "f", "bool": "b", "str": "s"}
    out = ["c->site"]
    for i, a in enumerate(r.args):
        if a.type == "arrays":
            out += [f"c->v[{i}].arrays.v", f"c->v[{i}].arrays.n"]
        else:
            out.append(f"c->v[{i}].{member.get(a.type, a.type)}")
    return out


def signature(r: Record, method: bool) -> str:
    """As inspect.signature can read it back: a dtype's default reads None."""
    args = r.args[1:] if method else r.args
    out = ["$self", "/"] if method else []
    if method and r.spread:
        return ", ".join([*out, "*" + args[0].name, "stream=None"])
    star = False
    for i, a in enumerate(args):
        if a.section == "keyword" and not star and not (i and args[i - 1].variadic):
            if r.stream:
                out.append("stream=None")
            out.append("*")
        star = star or a.section == "keyword" or a.variadic
        default = "" if a.default is None else "=" + ("None" if a.type == "dtype" else a.default)
        out.append(("*" if a.variadic else "") + a.name + default)
        last = i + 1 == len(args) or args[i + 1].section != "positional"
        if a.section == "positional" and last and not method:
            out.append("/")
    if not (r.stream and star):
        out += ["stream=None"] if star or r.stream else ["*", "stream=None"]
    elif "stream=None" not in out:
        out.append("stream=None")
    return ", ".join(out)


def doc(r: Record, name: str, method: bool) -> str:
    text = r.doc if name == r.name or method else f"Another name of {r.name}.\n\n{r.doc}"
    if r.errors:
        text += "\n\nRaises:\n" + "\n".join("    " + e for e in r.errors)
    if r.example:
        text += "\n\nExample:\n    >>> " + r.example
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
    spread = "true" if r.spread else "false"
    stream = "true" if r.stream else "false"
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
    out = [HEADER.format(what="py_functions.c -- the Python functions.", more=""), HELP]
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
