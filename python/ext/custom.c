/* SPDX-License-Identifier: Apache-2.0
 *
 * custom.c -- custom_function, checkpoint and depends.
 *
 * Each call has a list of its own: the function, its rules, the structures of
 * arguments and result.  The closures that C keeps for the call hold that list
 * and give it back through ext_drop_later.  Rules run inside whichever
 * transform reaches the call, so their exceptions are put aside for the thread
 * (ext_failure_pend).
 */
#include "transform.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* ---- one call -------------------------------------------------------------
 */
enum entry { FUN, VJP, JVP, VMAP, ARGS, KW, OUT, N_ENTRIES };

static PyObject *
entry(void *call, enum entry i)
{
    return PyList_GetItem(call, i);
}

static void
call_destroy(void *ctx)
{
    ext_drop_later(ctx);
}

/* Puts the exception of a rule aside; NULL for C. */
static mr_tree *
pend(void)
{
    if (PyErr_Occurred())
        ext_failure_pend();
    return NULL;
}

static mr_tree *
call_function(void *ctx, const mr_tree *in)
{
    ext_leaves l = {0}, y = {0};
    PyObject *args = NULL, *kw = NULL, *r = NULL, *out = NULL;
    mr_tree *t = NULL;
    int next = 0;

    if (ext_tree_leaves(in, &l) &&
        (args = ext_unflatten(entry(ctx, ARGS), l.x, &next)) &&
        (kw = ext_unflatten(entry(ctx, KW), l.x, &next)))
        r = PyObject_Call(entry(ctx, FUN), args, kw);
    if (r)
        out = ext_flatten(r, &y, false);
    if (out && PyList_SetItem(ctx, OUT, out) == 0)
        t = mr_tree_arrays(y.n, y.x);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    Py_XDECREF(r);
    ext_leaves_free(&l);
    ext_leaves_free(&y);
    return t ? t : pend();
}

/* One argument stands for itself, several are a tuple. */
static PyObject *
bare(PyObject *args)
{
    PyObject *r = args;

    if (args && PyTuple_Size(args) == 1) {
        r = Py_NewRef(PyTuple_GetItem(args, 0));
        Py_DECREF(args);
    }
    return r;
}

/* ---- what a rule gave, as a flat tuple with holes -------------------------
 */
typedef struct parts {
    mr_tree *v[1024];
    int n;
} parts;

static bool
wrong_result(const char *rule, const char *what)
{
    PyErr_Format(PyExc_ValueError, "a custom %s must give %s", rule, what);
    return false;
}

static bool
add_part(parts *p, mr_tree *t)
{
    if (!t)
        return ext_raise() != NULL;
    if (p->n == (int)(sizeof p->v / sizeof *p->v)) {
        mr_tree_release(t);
        PyErr_SetString(PyExc_ValueError, "too many arrays for a custom rule");
        return false;
    }
    p->v[p->n++] = t;
    return true;
}

/* Marks of the structure get arrays of `got`, or none; other leaves are not
 * looked at.  False with or without an exception. */
static bool
collect_like(PyObject *structure, PyObject *got, parts *p)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (ext_is_mark(structure)) {
        if (got != Py_None && !ext_is_array(got))
            return false;
        return add_part(p, got == Py_None ? mr_tree_none()
                                          : mr_tree_leaf(ext_x(got)));
    }
    if (PyDict_Check(structure)) {
        if (got != Py_None &&
            (!PyDict_Check(got) || PyDict_Size(got) != PyDict_Size(structure)))
            return false;
        while (PyDict_Next(structure, &at, &key, &value)) {
            PyObject *g =
                got == Py_None ? got : PyDict_GetItemWithError(got, key);
            if (!g || !collect_like(value, g, p))
                return false;
        }
        return true;
    }
    if (!ext_is_sequence(structure))
        return true;
    if (got != Py_None &&
        (!ext_is_sequence(got) ||
         ext_sequence_size(got) != ext_sequence_size(structure)))
        return false;
    for (; at < ext_sequence_size(structure); at++)
        if (!collect_like(ext_sequence_item(structure, at),
                          got == Py_None ? got : ext_sequence_item(got, at), p))
            return false;
    return true;
}

static void
parts_end(parts *p)
{
    for (int i = 0; i < p->n; i++)
        mr_tree_release(p->v[i]);
    free(p);
}

/* The result of a rule over a structure; a structure of one entry may be
 * given bare. */
static mr_tree *
result_tree(PyObject *structure, PyObject *got, bool args, const char *rule,
            const char *what)
{
    parts *p = calloc(1, sizeof *p);
    mr_tree *t = NULL;
    bool ok;

    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    if (args && PyTuple_Size(structure) == 1 &&
        !(ext_is_sequence(got) && ext_sequence_size(got) == 1 &&
          !ext_is_sequence(PyTuple_GetItem(structure, 0))))
        structure = PyTuple_GetItem(structure, 0);
    else if (!args && ext_is_mark(structure) && ext_is_sequence(got) &&
             ext_sequence_size(got) == 1)
        got = ext_sequence_item(got, 0);
    ok = collect_like(structure, got, p);
    if (ok)
        t = mr_tree_tuple(p->n, p->v);
    else if (!PyErr_Occurred())
        wrong_result(rule, what);
    parts_end(p);
    return t;
}

/* ---- rules ----------------------------------------------------------------
 */

static mr_tree *
call_vjp(void *ctx, const mr_tree *in)
{
    ext_leaves l = {0};
    PyObject *x = NULL, *u = NULL, *y = NULL, *r = NULL;
    mr_tree *t = NULL;
    int next = 0;

    if (ext_tree_leaves(in, &l) &&
        (x = bare(ext_unflatten(entry(ctx, ARGS), l.x, &next))) &&
        (u = ext_unflatten(entry(ctx, OUT), l.x, &next)) &&
        (y = ext_unflatten(entry(ctx, OUT), l.x, &next)))
        r = PyObject_CallFunctionObjArgs(entry(ctx, VJP), x, u, y, NULL);
    if (r)
        t = result_tree(entry(ctx, ARGS), r, true, "vjp",
                        "a cotangent (an array, or None for zero) for each "
                        "array of the arguments, in their structure");
    Py_XDECREF(x);
    Py_XDECREF(u);
    Py_XDECREF(y);
    Py_XDECREF(r);
    ext_leaves_free(&l);
    return t ? t : pend();
}

/* The arrays of a tuple with holes: NULL for none. */
static bool
leaves_with_holes(const mr_tree *t, ext_leaves *l)
{
    for (int i = 0; i < mr_tree_size(t); i++) {
        mr_tree *child = mr_tree_at(t, i);
        mr_array *x = mr_tree_kind_of(child) == MR_TREE_LEAF
                          ? mr_retain(mr_tree_array(child))
                          : NULL;

        if (!ext_leaves_add(l, x))
            return false;
    }
    return true;
}

static mr_tree *
call_jvp(void *ctx, const mr_tree *in)
{
    ext_leaves l = {0};
    PyObject *x = NULL, *v = NULL, *r = NULL;
    mr_tree *t = NULL;
    int next = 0;

    if (ext_tree_leaves(mr_tree_at(in, 0), &l) &&
        leaves_with_holes(mr_tree_at(in, 1), &l) &&
        (x = bare(ext_unflatten(entry(ctx, ARGS), l.x, &next))) &&
        (v = bare(ext_unflatten(entry(ctx, ARGS), l.x, &next))))
        r = PyObject_CallFunctionObjArgs(entry(ctx, JVP), x, v, NULL);
    if (r)
        t = result_tree(entry(ctx, OUT), r, false, "jvp",
                        "a tangent (an array, or None for zero) for each "
                        "array of the outputs, in their structure");
    Py_XDECREF(x);
    Py_XDECREF(v);
    Py_XDECREF(r);
    ext_leaves_free(&l);
    return t ? t : pend();
}

/* A list of ints or None from a tuple of 0-d axes. */
static PyObject *
axes_list(const mr_tree *t)
{
    int n = mr_tree_size(t);
    PyObject *list = PyList_New(n);

    for (int i = 0; list && i < n; i++) {
        mr_scalar s = {0};
        PyObject *o = NULL;

        if (mr_array_item(mr_tree_array_at(t, i), &s) != MR_OK)
            ext_raise();
        else
            o = s.as.i == MR_VMAP_NONE ? Py_NewRef(Py_None)
                                       : PyLong_FromLongLong(s.as.i);
        if (!o || PyList_SetItem(list, i, o) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The axes of outputs as a tuple of 0-d arrays. */
static mr_tree *
axes_tree(PyObject *outputs, PyObject *axes, int n)
{
    int32_t *at = calloc((size_t)n + 1, sizeof *at);
    mr_array **x = calloc((size_t)n + 1, sizeof(mr_array *));
    mr_tree *t = NULL;
    int found = 0;

    if (at && x && ext_axes_of(outputs, axes, at, &found, "out_axes")) {
        for (int i = 0; i < n; i++)
            x[i] = mr_int(i < found ? at[i] : 0);
        t = mr_tree_arrays(n, x);
        for (int i = 0; i < n; i++)
            mr_release(x[i]);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    free(at);
    free(x);
    return t;
}

static mr_tree *
vmap_result(void *ctx, PyObject *r)
{
    mr_tree *part[2] = {NULL, NULL}, *t = NULL;

    if (!PyTuple_Check(r) || PyTuple_Size(r) != 2) {
        wrong_result("vmap", "a pair (outputs, out_axes)");
        return NULL;
    }
    part[0] = result_tree(entry(ctx, OUT), PyTuple_GetItem(r, 0), false, "vmap",
                          "the outputs in the structure of the function's");
    if (part[0])
        part[1] = axes_tree(PyTuple_GetItem(r, 0), PyTuple_GetItem(r, 1),
                            mr_tree_size(part[0]));
    if (part[1])
        t = mr_tree_tuple(2, part);
    mr_tree_release(part[0]);
    mr_tree_release(part[1]);
    return t;
}

static mr_tree *
call_vmap(void *ctx, const mr_tree *in)
{
    ext_leaves l = {0};
    PyObject *x = NULL, *list = NULL, *axes = NULL, *r = NULL;
    mr_tree *t = NULL;
    int next = 0, first = 0;

    if (ext_tree_leaves(mr_tree_at(in, 0), &l) &&
        (x = bare(ext_unflatten(entry(ctx, ARGS), l.x, &next))) &&
        (list = axes_list(mr_tree_at(in, 1))) &&
        (axes = bare(ext_fill(entry(ctx, ARGS), list, &first))))
        r = PyObject_CallFunctionObjArgs(entry(ctx, VMAP), x, axes, NULL);
    if (r)
        t = vmap_result(ctx, r);
    Py_XDECREF(x);
    Py_XDECREF(list);
    Py_XDECREF(axes);
    Py_XDECREF(r);
    ext_leaves_free(&l);
    return t ? t : pend();
}

/* ---- names of captured arrays ---------------------------------------------
 */

/* Is x this value, or one of its arrays? */
static bool
holds(PyObject *value, const mr_array *x)
{
    ext_leaves l = {0};
    bool found = false;

    if (!ext_is_array(value) && !ext_is_sequence(value) && !PyDict_Check(value))
        return false;
    if (ext_collect(value, &l))
        for (int i = 0; i < l.n; i++)
            found = found || l.x[i] == x;
    ext_leaves_free(&l);
    PyErr_Clear();
    return found;
}

/* The name among `names` whose value holds x: a new reference or NULL. */
static PyObject *
name_among(PyObject *names, PyObject *values, const mr_array *x)
{
    Py_ssize_t n = names && PyTuple_Check(names) ? PyTuple_Size(names) : 0;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i), *value, *cell;
        bool found;

        if (PyDict_Check(values)) {
            value = Py_XNewRef(PyDict_GetItemWithError(values, name));
        } else {
            cell = PyTuple_Check(values) && i < PyTuple_Size(values)
                       ? PyTuple_GetItem(values, i)
                       : NULL;
            value = cell ? PyObject_GetAttrString(cell, "cell_contents") : NULL;
        }
        PyErr_Clear();
        found = value && holds(value, x);
        Py_XDECREF(value);
        if (found)
            return Py_NewRef(name);
    }
    return NULL;
}

static const char *
captured_name(void *ctx, const mr_array *x)
{
    static _Thread_local char text[128];
    PyObject *fun = entry(ctx, FUN), *name = NULL;
    PyObject *code = PyObject_GetAttrString(fun, "__code__");
    PyObject *cells = PyObject_GetAttrString(fun, "__closure__");
    PyObject *globals = PyObject_GetAttrString(fun, "__globals__");
    PyObject *free_names =
        code ? PyObject_GetAttrString(code, "co_freevars") : NULL;
    PyObject *names = code ? PyObject_GetAttrString(code, "co_names") : NULL;
    const char *utf8;

    PyErr_Clear();
    text[0] = '\0';
    if (cells)
        name = name_among(free_names, cells, x);
    if (!name && globals)
        name = name_among(names, globals, x);
    utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (utf8)
        PyOS_snprintf(text, sizeof text, "%s", utf8);
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(names);
    Py_XDECREF(free_names);
    Py_XDECREF(globals);
    Py_XDECREF(cells);
    Py_XDECREF(code);
    return text[0] ? text : NULL;
}

/* ---- making the call ------------------------------------------------------
 */

static mr_closure *
closure_over(PyObject *call, enum entry rule,
             mr_tree *(*fn)(void *ctx, const mr_tree *in))
{
    PyObject *f = PyList_GetItem(call, rule);

    if (!f || f == Py_None)
        return NULL;
    return mr_closure_new_foreign(fn, Py_NewRef(call), call_destroy);
}

/* The closure of the call with its rules; NULL with Marram's error. */
static mr_closure *
call_closure(PyObject *call, bool checkpoint)
{
    mr_closure *f = closure_over(call, FUN, call_function), *c = NULL;
    mr_custom_options o = {.size = sizeof o, .name = captured_name};

    if (f && checkpoint) {
        c = mr_checkpoint(f);
    } else if (f) {
        o.vjp = closure_over(call, VJP, call_vjp);
        o.jvp = closure_over(call, JVP, call_jvp);
        o.vmap = closure_over(call, VMAP, call_vmap);
        c = mr_custom_function(f, &o);
        mr_closure_release(o.vjp);
        mr_closure_release(o.jvp);
        mr_closure_release(o.vmap);
    }
    mr_closure_release(f);
    return c;
}

/* Runs a call over the leaves of its arguments. */
static PyObject *
run_call(PyObject *call, const ext_leaves *in, bool checkpoint)
{
    mr_closure *c = call_closure(call, checkpoint);
    mr_tree *x = mr_tree_arrays(in->n, in->x), *y = NULL;
    ext_leaves out = {0};
    PyObject *r = NULL;
    int next = 0;

    if (c && x)
        y = mr_closure_call(c, x);
    mr_closure_release(c);
    mr_tree_release(x);
    if (!y)
        ext_raise();
    else if (ext_tree_leaves(y, &out))
        r = ext_unflatten(entry(call, OUT), out.x, &next);
    mr_tree_release(y);
    ext_leaves_free(&out);
    return r;
}

static PyObject *
call_new(PyObject *fun, PyObject *args, PyObject *kw)
{
    PyObject *call = PyList_New(N_ENTRIES);

    for (int i = 0; call && i < N_ENTRIES; i++)
        PyList_SetItem(call, i, Py_NewRef(Py_None));
    if (!call || !args || !kw) {
        Py_XDECREF(call);
        call = NULL;
    } else {
        PyList_SetItem(call, FUN, Py_NewRef(fun));
        PyList_SetItem(call, ARGS, Py_NewRef(args));
        PyList_SetItem(call, KW, Py_NewRef(kw));
    }
    Py_XDECREF(args);
    Py_XDECREF(kw);
    return call;
}

PyObject *
ext_checkpoint_call(ext_transform *t, PyObject *args, PyObject *kw)
{
    ext_leaves l = {0};
    PyObject *a = ext_flatten(args, &l, false);
    PyObject *k = kw ? ext_flatten(kw, &l, false) : PyDict_New();
    PyObject *call = call_new(t->fun, a, k), *r = NULL;

    if (call)
        r = run_call(call, &l, true);
    Py_XDECREF(call);
    ext_leaves_free(&l);
    return r;
}

PyObject *
ext_fn_checkpoint(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("fun"), NULL};
    PyObject *fun;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O:checkpoint", keys, &fun))
        return NULL;
    return ext_transform_new(EXT_CHECKPOINT, fun, PyTuple_New(0),
                             PyTuple_New(0));
}

/* ---- custom_function ------------------------------------------------------
 */

typedef struct custom_object {
    PyObject_HEAD PyObject *rule[VMAP + 1]; /* FUN to VMAP; NULL: none */
} custom_object;

static void
put_rule(custom_object *c, enum entry i, PyObject *f)
{
    PyObject *old = c->rule[i];

    c->rule[i] = Py_NewRef(f);
    Py_XDECREF(old);
}

static int
custom_init(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("f"), NULL};
    custom_object *c = (custom_object *)self;
    PyObject *f;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "O:custom_function", keys, &f))
        return -1;
    if (!PyCallable_Check(f)) {
        ext_wrong_type(f, "the function must be callable");
        return -1;
    }
    put_rule(c, FUN, f);
    return 0;
}

static PyObject *
custom_call(PyObject *self, PyObject *args, PyObject *kw)
{
    custom_object *c = (custom_object *)self;
    ext_leaves l = {0};
    PyObject *call, *r = NULL;

    if (!c->rule[FUN]) {
        PyErr_SetString(PyExc_RuntimeError, "a custom function without f");
        return NULL;
    }
    if (Py_EnterRecursiveCall(" in a custom function"))
        return NULL;
    call = call_new(c->rule[FUN], ext_flatten(args, &l, false),
                    kw ? PyDict_Copy(kw) : PyDict_New());
    for (int i = VJP; call && i <= VMAP; i++)
        if (c->rule[i])
            PyList_SetItem(call, i, Py_NewRef(c->rule[i]));
    if (call)
        r = run_call(call, &l, false);
    Py_XDECREF(call);
    ext_leaves_free(&l);
    Py_LeaveRecursiveCall();
    return r;
}

static PyObject *
set_rule(PyObject *self, PyObject *f, enum entry rule)
{
    custom_object *c = (custom_object *)self;

    if (!PyCallable_Check(f)) {
        ext_wrong_type(f, "a rule must be callable");
        return NULL;
    }
    put_rule(c, rule, f);
    return Py_NewRef(f);
}

static PyObject *
custom_vjp(PyObject *self, PyObject *f)
{
    return set_rule(self, f, VJP);
}

static PyObject *
custom_jvp(PyObject *self, PyObject *f)
{
    return set_rule(self, f, JVP);
}

static PyObject *
custom_vmap(PyObject *self, PyObject *f)
{
    return set_rule(self, f, VMAP);
}

static int
custom_traverse(PyObject *self, visitproc visit, void *arg)
{
    custom_object *c = (custom_object *)self;

    Py_VISIT(Py_TYPE(self));
    for (int i = FUN; i <= VMAP; i++)
        Py_VISIT(c->rule[i]);
    return 0;
}

static int
custom_clear(PyObject *self)
{
    custom_object *c = (custom_object *)self;

    for (int i = FUN; i <= VMAP; i++)
        Py_CLEAR(c->rule[i]);
    return 0;
}

static void
custom_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    custom_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *
custom_attribute(PyObject *self, void *name)
{
    PyObject *f = ((custom_object *)self)->rule[FUN];

    if (!f)
        Py_RETURN_NONE;
    return name ? PyObject_GetAttrString(f, name) : Py_NewRef(f);
}

static PyMethodDef custom_methods[] = {
    {"vjp", custom_vjp, METH_O,
     "vjp($self, f, /)\n--\n\n"
     "Registers f(primals, cotangents, outputs), which gives the cotangents\n"
     "of the arguments; returns f."},
    {"jvp", custom_jvp, METH_O,
     "jvp($self, f, /)\n--\n\n"
     "Registers f(primals, tangents), which gives the tangents of the\n"
     "outputs; an argument without tangent has None.  Returns f."},
    {"vmap", custom_vmap, METH_O,
     "vmap($self, f, /)\n--\n\n"
     "Registers f(inputs, axes), which gives (outputs, out_axes); returns f."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef custom_getset[] = {
    {"__wrapped__", custom_attribute, NULL, NULL, NULL},
    {"__name__", custom_attribute, NULL, NULL, (void *)(uintptr_t) "__name__"},
    {"__qualname__", custom_attribute, NULL, NULL,
     (void *)(uintptr_t) "__qualname__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot custom_slots[] = {
    {Py_tp_doc,
     EXT_DOC("custom_function(f)\n--\n\n"
             "A function with rules of its own, set by its decorators vjp,\n"
             "jvp and vmap; where there is none f itself is transformed.\n"
             "Arguments are trees; one is given to a rule bare, several as a\n"
             "tuple.  Arrays of keyword arguments count as captured: through\n"
             "a vjp or jvp they have no derivative, and to ask for it is a\n"
             "ValueError that names them.")},
    {Py_tp_init, custom_init},
    {Py_tp_call, custom_call},
    {Py_tp_dealloc, custom_dealloc},
    {Py_tp_traverse, custom_traverse},
    {Py_tp_clear, custom_clear},
    {Py_tp_methods, custom_methods},
    {Py_tp_getset, custom_getset},
    {0, NULL},
};

int
ext_init_custom(PyObject *module)
{
    PyType_Spec spec = {"marram.core.custom_function", sizeof(custom_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_BASETYPE,
                        custom_slots};
    PyObject *type = PyType_FromSpec(&spec);
    int rc = type ? PyModule_AddObjectRef(module, "custom_function", type) : -1;

    Py_XDECREF(type);
    return rc;
}

/* ---- depends --------------------------------------------------------------
 */

/* An array, or a list or tuple of arrays. */
static bool
arrays_of(PyObject *o, ext_leaves *l, const char *what)
{
    if (!ext_is_array(o) && !ext_is_sequence(o))
        return ext_wrong_type(o, "%s must be an array or a list of arrays",
                              what);
    return ext_only_arrays(o, what) && ext_collect(o, l);
}

static PyObject *
list_of(PyObject *like, const ext_leaves *l)
{
    PyObject *out;

    if (ext_is_array(like))
        return ext_wrap(mr_retain(l->x[0]));
    out = PyList_New(l->n);
    for (int i = 0; out && i < l->n; i++) {
        PyObject *o = ext_wrap(mr_retain(l->x[i]));
        if (!o || PyList_SetItem(out, i, o) < 0)
            Py_CLEAR(out);
    }
    return out;
}

PyObject *
ext_fn_depends(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("inputs"), EXT_WORD("dependencies"), NULL};
    PyObject *inputs, *on, *r = NULL;
    ext_leaves x = {0}, y = {0}, z = {0};
    mr_tree *a = NULL, *b = NULL, *t = NULL;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OO:depends", keys, &inputs,
                                     &on))
        return NULL;
    if (arrays_of(inputs, &x, "inputs") && arrays_of(on, &y, "dependencies")) {
        const char *old = mr_site_set(ext_site());

        a = mr_tree_arrays(x.n, x.x);
        b = mr_tree_arrays(y.n, y.x);
        t = mr_depends(a, b);
        mr_site_set(old);
        if (!t)
            ext_raise();
        else if (ext_tree_leaves(t, &z))
            r = list_of(inputs, &z);
    }
    mr_tree_release(a);
    mr_tree_release(b);
    mr_tree_release(t);
    ext_leaves_free(&x);
    ext_leaves_free(&y);
    ext_leaves_free(&z);
    return r;
}
