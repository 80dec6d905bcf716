/* SPDX-License-Identifier: Apache-2.0
 *
 * compile.c -- compiled functions.
 *
 * A call makes bytes that say all of its arguments but the arrays: containers,
 * keys, and the values of numbers and text with their types.  C looks a
 * program up by these and by the arrays' dtypes and shapes, or has the function
 * traced.  What the function returned is a template here (a structure, with
 * the values that are no arrays); its number is the trace's tag, so that a
 * program always finds its own.
 *
 * Captured state (inputs=, outputs=) is read at each call as further arguments
 * and written back as further results.  While the function is traced the
 * containers hold tracers; afterwards they are put back as they were.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "marram/marram.h"

typedef struct compiled_object {
    PyObject_HEAD PyObject *fun, *inputs, *outputs; /* NULL: none */
    PyObject *templates; /* list of (result, state) structures */
    PyObject *numbers;   /* dict: bytes of a template to its number */
    ext_statics statics; /* hashable objects among the arguments */
    bool capture_input;
    ext_places places; /* then: where arrays are found */
    ext_slots slots;   /* else: where those are that programs keep */
    int64_t traces;    /* that were begun */
    bool warned;
    int n_notes; /* traces that C was told the arguments of */
    mr_function *f;
} compiled_object;

/* A tag: the number of the template below the number of the trace. */
enum { TRACE_SHIFT = 32 };
static const int64_t template_mask = (INT64_C(1) << TRACE_SHIFT) - 1;

/* Traces whose arguments may be asked for: C speaks of them at the ninth. */
enum { MAX_NOTES = 16 };

/* One call; the trace, when there is one, happens inside it. */
typedef struct call {
    compiled_object *self;
    PyObject *args, *kw;
    ext_values values; /* of the places */
    ext_failure failure;
} call;

/* ---- tracing ------------------------------------------------------------ */

static PyObject *
template_number(compiled_object *self, PyObject *result, PyObject *state)
{
    PyObject *pair = PyTuple_Pack(2, result, state ? state : Py_None);
    PyObject *key = pair ? ext_key_of_template(pair) : NULL, *number = NULL;

    if (key)
        number = Py_XNewRef(PyDict_GetItemWithError(self->numbers, key));
    if (key && !number && !PyErr_Occurred()) {
        number = PyLong_FromSsize_t(PyList_Size(self->templates));
        if (number && (PyList_Append(self->templates, pair) < 0 ||
                       PyDict_SetItem(self->numbers, key, number) < 0))
            Py_CLEAR(number);
    }
    Py_XDECREF(key);
    Py_XDECREF(pair);
    return number;
}

/* Runs the function on tracers; the state's are in its containers. */
static mr_tree *
trace_run(call *c, PyObject *args, PyObject *kw, int64_t *tag)
{
    compiled_object *self = c->self;
    ext_leaves l = {0};
    PyObject *result = PyObject_Call(self->fun, args, kw), *flat = NULL,
             *state = NULL, *number = NULL;
    mr_tree *t = NULL;

    if (result && (flat = ext_flatten_result(result, &l)) &&
        (!self->outputs || (state = ext_flatten_result(self->outputs, &l))) &&
        (number = template_number(self, flat, state))) {
        *tag = PyLong_AsLongLong(number) | ++self->traces << TRACE_SHIFT;
        t = mr_tree_arrays(l.n, l.x);
    }
    Py_XDECREF(number);
    Py_XDECREF(state);
    Py_XDECREF(flat);
    Py_XDECREF(result);
    ext_leaves_free(&l);
    return t;
}

/* The captured places hold tracers while the function runs. */
static mr_tree *
trace_captured(call *c, PyObject *args, PyObject *kw, int64_t *tag,
               mr_array *const *x, int *next)
{
    mr_tree *t = NULL;

    if (ext_captured_fill(&c->values, x, next))
        t = trace_run(c, args, kw, tag);
    if (!ext_captured_restore(&c->values)) {
        mr_tree_release(t);
        t = NULL;
    }
    return t;
}

static mr_tree *
trace_call(void *ctx, const mr_tree *in, int64_t *tag)
{
    call *c = ctx;
    compiled_object *self = c->self;
    ext_leaves tracers = {0}, unused = {0};
    PyObject *args = NULL, *kw = NULL, *a, *k, *saved = NULL;
    mr_tree *t = NULL;
    int next = 0;

    if (self->n_notes < MAX_NOTES) {
        self->n_notes++;
        ext_trace_note(self->fun, c->args, c->kw);
    }
    a = ext_flatten(c->args, &unused, true);
    k = a && c->kw ? ext_flatten(c->kw, &unused, true) : NULL;
    if (a && (k || !c->kw) && ext_tree_leaves(in, &tracers) &&
        (args = ext_unflatten(a, tracers.x, &next)) &&
        (!k || (kw = ext_unflatten(k, tracers.x, &next))) &&
        (!self->inputs || ext_state_check(self->inputs, "inputs")) &&
        (!self->outputs || ext_state_check(self->outputs, "outputs")) &&
        (saved = ext_state_save(self->inputs, self->outputs))) {
        if (!self->inputs || ext_state_fill(self->inputs, tracers.x, &next))
            t = c->values.places
                    ? trace_captured(c, args, kw, tag, tracers.x, &next)
                    : trace_run(c, args, kw, tag);
        ext_state_restore(saved);
    }
    if (!t && PyErr_Occurred())
        ext_failure_keep(&c->failure);
    Py_XDECREF(saved);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    Py_XDECREF(a);
    Py_XDECREF(k);
    ext_leaves_free(&tracers);
    ext_leaves_free(&unused);
    return t;
}

/* ---- calling ------------------------------------------------------------ */

static PyObject *
finish(compiled_object *self, const mr_call_results *r)
{
    PyObject *pair =
        PyList_GetItem(self->templates, (Py_ssize_t)(r->tag & template_mask));
    PyObject *result, *state;
    int next = 0;

    if (!pair)
        return NULL;
    Py_INCREF(pair);
    result = ext_unflatten(PyTuple_GetItem(pair, 0), r->leaf, &next);
    if (result && self->outputs) {
        state = ext_unflatten(PyTuple_GetItem(pair, 1), r->leaf, &next);
        if (!state || !ext_state_write(self->outputs, state))
            Py_CLEAR(result);
        Py_XDECREF(state);
    }
    Py_DECREF(pair);
    return result;
}

/* Captured arrays that are constants: remembered after a trace, looked at by
 * the calls that follow. */
static bool
watch_captured(const call *c, const mr_call_results *r)
{
    compiled_object *self = c->self;
    ext_call_site site = {self->fun, c->args, c->kw};
    int said;

    if (self->warned || self->capture_input)
        return true;
    if (r->traced && r->n_captured > 0)
        return ext_slots_find(&self->slots, &site, r->tag >> TRACE_SHIFT, r);
    if (self->slots.n == 0)
        return true;
    said = ext_slots_check(&self->slots, &site, r->tag >> TRACE_SHIFT);
    self->warned = said != 0;
    return said >= 0;
}

static PyObject *
call_with_key(call *c, const ext_key *key, const ext_leaves *l)
{
    PyObject *result = NULL;
    mr_call_results r;

    if (mr_call_arrays(c->self->f, l->n, l->x, key->p, key->n, trace_call, c,
                       &r) != MR_OK)
        ext_failure_raise(&c->failure);
    else if (watch_captured(c, &r))
        result = finish(c->self, &r);
    mr_call_results_end(&r);
    return result;
}

/* The arrays that the function will find, further arguments of the call. */
static bool
add_captured(call *c, ext_key *key, ext_leaves *l)
{
    ext_call_site site = {c->self->fun, c->args, c->kw};

    return ext_captured_read(&c->self->places, &site, &c->values, l) &&
           ext_key_number(key, c->values.number);
}

static PyObject *
compiled_call(PyObject *o, PyObject *args, PyObject *kw)
{
    compiled_object *self = (compiled_object *)o;
    call c = {.self = self, .args = args};
    ext_key key = {.statics = &self->statics};
    ext_leaves l = {0};
    PyObject *result = NULL, *sorted = NULL;

    if (ext_scopes_open > 0)
        ext_scope_sync();
    if (kw && PyDict_Size(kw) > 0) {
        sorted = ext_sorted_dict(kw);
        if (!sorted)
            return NULL;
    }
    c.kw = sorted;
    if (ext_key_add(&key, args, &l) &&
        (!sorted || ext_key_add(&key, sorted, &l)) &&
        (!self->inputs || ext_state_key(&key, self->inputs, &l)) &&
        (!self->capture_input || add_captured(&c, &key, &l)))
        result = call_with_key(&c, &key, &l);
    ext_key_free(&key);
    ext_leaves_free(&l);
    Py_XDECREF(sorted);
    Py_XDECREF(c.values.places);
    Py_XDECREF(c.failure.type);
    Py_XDECREF(c.failure.value);
    Py_XDECREF(c.failure.traceback);
    return result;
}

/* ---- the callable ------------------------------------------------------- */

static int
compiled_traverse(PyObject *o, visitproc visit, void *arg)
{
    compiled_object *self = (compiled_object *)o;

    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->fun);
    Py_VISIT(self->inputs);
    Py_VISIT(self->outputs);
    Py_VISIT(self->templates);
    Py_VISIT(self->numbers);
    Py_VISIT(self->statics.by_value);
    Py_VISIT(self->statics.by_identity);
    if (ext_places_visit(&self->places, visit, arg) != 0)
        return -1;
    return ext_slots_visit(&self->slots, visit, arg);
}

static int
compiled_clear(PyObject *o)
{
    compiled_object *self = (compiled_object *)o;

    Py_CLEAR(self->fun);
    Py_CLEAR(self->inputs);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->templates);
    Py_CLEAR(self->numbers);
    ext_places_free(&self->places);
    Py_CLEAR(self->statics.by_value);
    Py_CLEAR(self->statics.by_identity);
    ext_slots_free(&self->slots);
    return 0;
}

static void
compiled_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    PyObject_GC_UnTrack(o);
    compiled_clear(o);
    mr_function_release(((compiled_object *)o)->f);
    PyObject_GC_Del(o);
    Py_DECREF(type);
}

static PyObject *
info_object(const mr_cache_info *info)
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "hits", info->hits,
                         "misses", info->misses, "entries", info->entries,
                         "bytes", info->bytes, "traces", info->traces,
                         "evictions", info->evictions);
}

static PyObject *
compiled_info(PyObject *o, PyObject *unused)
{
    mr_cache_info info = {.size = sizeof info};

    (void)unused;
    if (mr_function_cache_info(((compiled_object *)o)->f, &info) != MR_OK)
        return ext_raise();
    return info_object(&info);
}

static PyObject *
compiled_cache_clear(PyObject *o, PyObject *unused)
{
    (void)unused;
    if (mr_function_cache_clear(((compiled_object *)o)->f) != MR_OK)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
compiled_explain(PyObject *o, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("form"), NULL};
    const char *form = "text";
    bool dot;
    char *text;
    PyObject *r;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "|s:explain", keys, &form))
        return NULL;
    dot = strcmp(form, "dot") == 0;
    if (!dot && strcmp(form, "text") != 0)
        return PyErr_Format(PyExc_ValueError,
                            "form is '%s': it may be 'text' or 'dot'", form);
    text = mr_function_explain_as(((compiled_object *)o)->f,
                                  dot ? MR_EXPLAIN_DOT : MR_EXPLAIN_TEXT);
    if (text == NULL)
        return ext_raise();
    r = PyUnicode_FromString(text);
    mr_text_free(text);
    return r;
}

static PyObject *
compiled_wrapped(PyObject *o, void *closure)
{
    (void)closure;
    return Py_NewRef(((compiled_object *)o)->fun);
}

static PyObject *
compiled_attribute(PyObject *o, void *closure)
{
    return PyObject_GetAttrString(((compiled_object *)o)->fun, closure);
}

/* As a method of a class it is bound, as the function would be. */
static PyObject *
compiled_bind(PyObject *o, PyObject *instance, PyObject *owner)
{
    PyObject *types, *r;

    (void)owner;
    if (!instance || instance == Py_None)
        return Py_NewRef(o);
    types = PyImport_ImportModule("types");
    r = types ? PyObject_CallMethod(types, "MethodType", "OO", o, instance)
              : NULL;
    Py_XDECREF(types);
    return r;
}

static PyMethodDef compiled_methods[] = {
    {"cache_info", compiled_info, METH_NOARGS,
     "cache_info($self, /)\n--\n\n"
     "A dict: hits, misses, entries, bytes, traces, evictions."},
    {"explain", EXT_KEYWORDS(compiled_explain),
     "explain($self, /, form='text')\n--\n\n"
     "The programs of this function, as text: what was simplified, the steps\n"
     "and where each runs, memory, and why steps were not joined.\n\n"
     "Args:\n"
     "    form: 'text', or 'dot' for a graph that Graphviz draws."},
    {"cache_clear", compiled_cache_clear, METH_NOARGS,
     "cache_clear($self, /)\n--\n\nDrops the programs of this function."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef compiled_getset[] = {
    {"__wrapped__", compiled_wrapped, NULL, NULL, NULL},
    {"__name__", compiled_attribute, NULL, NULL,
     (void *)(uintptr_t) "__name__"},
    {"__qualname__", compiled_attribute, NULL, NULL,
     (void *)(uintptr_t) "__qualname__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot compiled_slots[] = {
    {Py_tp_doc, EXT_DOC("A compiled function.")},
    {Py_tp_call, compiled_call},
    {Py_tp_dealloc, compiled_dealloc},
    {Py_tp_traverse, compiled_traverse},
    {Py_tp_clear, compiled_clear},
    {Py_tp_methods, compiled_methods},
    {Py_tp_getset, compiled_getset},
    {Py_tp_descr_get, compiled_bind},
    {0, NULL},
};

int
ext_init_compile(PyObject *module)
{
    PyType_Spec spec = {"marram.core._Compiled", sizeof(compiled_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        compiled_slots};

    (void)module;
    ext.compiled = (PyTypeObject *)PyType_FromSpec(&spec);
    return ext.compiled ? 0 : -1;
}

/* ---- functions ---------------------------------------------------------- */

/* Every call brings a closure of its own to trace. */
static mr_tree *
no_trace(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    mr_error_set(MR_E_INTERNAL, "a trace without a call");
    return NULL;
}

/* Its own, or that of what a functools.partial or an object calls. */
static PyObject *
name_of(PyObject *fun)
{
    PyObject *name = PyObject_GetAttrString(fun, "__name__"), *inner;

    if (name)
        return name;
    PyErr_Clear();
    inner = PyObject_GetAttrString(fun, "func");
    PyErr_Clear();
    if (inner)
        name = PyObject_GetAttrString(inner, "__name__");
    else
        name = PyType_GetName(Py_TYPE(fun));
    PyErr_Clear();
    Py_XDECREF(inner);
    return name;
}

static mr_function *
function_new(PyObject *fun, mr_compile_options options)
{
    PyObject *name = name_of(fun);
    const char *text = NULL;
    mr_closure *c = mr_closure_new_foreign(no_trace, NULL, NULL);
    mr_function *f = NULL;

    if (name && PyUnicode_Check(name))
        text = PyUnicode_AsUTF8AndSize(name, NULL);
    PyErr_Clear();
    options.name = text;
    if (c)
        f = mr_compile_closure(c, &options);
    mr_closure_release(c);
    Py_XDECREF(name);
    if (!f)
        ext_raise();
    return f;
}

static bool
container(PyObject *o, const char *what)
{
    if (PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) ||
        ext_is_random_state(o))
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s must be a list, dict or module (or a tuple of such) that "
                 "holds arrays, so that they can be replaced",
                 what);
    return false;
}

typedef struct compile_arguments {
    PyObject *fun, *inputs, *outputs;
    int shapeless;
    const char *captures;
    unsigned long long entries, bytes;
} compile_arguments;

static bool
parse_compile(PyObject *args, PyObject *kw, compile_arguments *a)
{
    static char *keys[] = {EXT_WORD("fun"),       EXT_WORD("inputs"),
                           EXT_WORD("outputs"),   EXT_WORD("shapeless"),
                           EXT_WORD("captures"),  EXT_WORD("max_entries"),
                           EXT_WORD("max_bytes"), NULL};
    PyObject *entries = Py_None, *bytes = Py_None;

    *a = (compile_arguments){Py_None, Py_None, Py_None, 0, "constant", 0, 0};
    if (!PyArg_ParseTupleAndKeywords(
            args, kw, "|OOOp$sOO:compile", keys, &a->fun, &a->inputs,
            &a->outputs, &a->shapeless, &a->captures, &entries, &bytes))
        return false;
    if (entries != Py_None)
        a->entries = PyLong_AsUnsignedLongLong(entries);
    if (bytes != Py_None && !PyErr_Occurred())
        a->bytes = PyLong_AsUnsignedLongLong(bytes);
    if (PyErr_Occurred())
        return false;
    if ((entries != Py_None && a->entries == 0) ||
        (bytes != Py_None && a->bytes == 0)) {
        PyErr_SetString(PyExc_ValueError,
                        "max_entries and max_bytes must be at least 1");
        return false;
    }
    if (strcmp(a->captures, "constant") != 0 &&
        strcmp(a->captures, "error") != 0 &&
        strcmp(a->captures, "input") != 0) {
        PyErr_Format(PyExc_ValueError,
                     "captures is '%s': must be 'constant', 'error' or 'input'",
                     a->captures);
        return false;
    }
    return (a->inputs == Py_None || container(a->inputs, "inputs")) &&
           (a->outputs == Py_None || container(a->outputs, "outputs"));
}

/* compile(**options): what decorates a function with them. */
static PyObject *
decorator(PyObject *kw)
{
    PyObject *functools = PyImport_ImportModule("functools"), *r = NULL;
    PyObject *partial =
        functools ? PyObject_GetAttrString(functools, "partial") : NULL;
    PyObject *compile_fn = PyObject_GetAttrString(ext.core, "compile");
    PyObject *args = compile_fn ? PyTuple_Pack(1, compile_fn) : NULL;

    if (partial && args)
        r = PyObject_Call(partial, args, kw);
    Py_XDECREF(args);
    Py_XDECREF(compile_fn);
    Py_XDECREF(partial);
    Py_XDECREF(functools);
    return r;
}

static PyObject *
compile(PyObject *self, PyObject *args, PyObject *kw)
{
    mr_compile_options options = {.size = sizeof options};
    compile_arguments a;
    compiled_object *c;

    (void)self;
    if (!parse_compile(args, kw, &a))
        return NULL;
    if (a.fun == Py_None && PyTuple_Size(args) == 0)
        return decorator(kw);
    if (!PyCallable_Check(a.fun)) {
        ext_wrong_type(a.fun, "the function must be callable");
        return NULL;
    }
    options.shapeless = a.shapeless != 0;
    options.max_entries = a.entries;
    options.max_bytes = a.bytes;
    options.capture_help = ", name what holds them in inputs, or compile with "
                           "captures=\"input\"";
    if (a.captures[0] == 'e') {
        options.captures = MR_CAPTURE_ERROR;
        options.capture_help = " or name what holds them in inputs";
    }
    if (a.captures[0] == 'i')
        options.captures = MR_CAPTURE_INPUT;
    c = (compiled_object *)PyType_GenericAlloc(ext.compiled, 0);
    if (!c)
        return NULL;
    c->capture_input = a.captures[0] == 'i';
    c->fun = Py_NewRef(a.fun);
    c->inputs = a.inputs == Py_None ? NULL : Py_NewRef(a.inputs);
    c->outputs = a.outputs == Py_None ? NULL : Py_NewRef(a.outputs);
    c->templates = PyList_New(0);
    c->numbers = PyDict_New();
    c->f = c->templates && c->numbers ? function_new(a.fun, options) : NULL;
    if (!c->f)
        Py_CLEAR(c);
    return (PyObject *)c;
}

static PyObject *
cache_info(PyObject *self, PyObject *unused)
{
    mr_cache_info info = {.size = sizeof info};

    (void)self;
    (void)unused;
    if (mr_compile_cache_info(&info) != MR_OK)
        return ext_raise();
    return info_object(&info);
}

static PyObject *
cache_clear(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (mr_compile_cache_clear() != MR_OK)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
fft_cache_info(PyObject *self, PyObject *unused)
{
    mr_cache_info info = {.size = sizeof info};

    (void)self;
    (void)unused;
    if (mr_fft_cache_info(&info) != MR_OK)
        return ext_raise();
    return info_object(&info);
}

static PyObject *
fft_cache_clear(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (mr_fft_cache_clear() != MR_OK)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
cache_limit(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD(""), EXT_WORD("max_bytes"), NULL};
    PyObject *entries = Py_None, *bytes = Py_None, *old = NULL;
    unsigned long long n = 0, m = 0;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O$O:set_compile_cache_limit",
                                     keys, &entries, &bytes))
        return NULL;
    if (entries != Py_None)
        n = PyLong_AsUnsignedLongLong(entries);
    if (bytes != Py_None && !PyErr_Occurred())
        m = PyLong_AsUnsignedLongLong(bytes);
    if (PyErr_Occurred())
        return NULL;
    if (entries == Py_None && bytes == Py_None) {
        PyErr_SetString(PyExc_TypeError, "needs a number of programs, or "
                                         "max_bytes=");
        return NULL;
    }
    if (bytes != Py_None)
        old = PyLong_FromUnsignedLongLong(mr_compile_set_cache_bytes_limit(m));
    if (entries != Py_None) {
        Py_XDECREF(old);
        old = PyLong_FromUnsignedLongLong(mr_compile_set_cache_limit(n));
    }
    return old;
}

static PyObject *
compile_mode(PyObject *self, PyObject *o)
{
    const char *name;
    mr_compile_mode m;

    (void)self;
    if (!PyUnicode_Check(o)) {
        ext_wrong_type(o, "a mode must be text");
        return NULL;
    }
    name = PyUnicode_AsUTF8AndSize(o, NULL);
    if (!name)
        return NULL;
    if (!mr_compile_mode_from_name(name, &m)) {
        PyErr_Format(PyExc_ValueError,
                     "'%s' is no mode: use 'disabled', 'no_simplify', "
                     "'no_fuse' or 'enabled'",
                     name);
        return NULL;
    }
    return PyUnicode_FromString(mr_compile_mode_name(mr_compile_set_mode(m)));
}

static PyObject *
enable(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    mr_compile_enable(true);
    Py_RETURN_NONE;
}

static PyObject *
disable(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    mr_compile_enable(false);
    Py_RETURN_NONE;
}

PyMethodDef ext_compile_functions[] = {
    {"compile", EXT_KEYWORDS(compile),
     "compile(fun=None, inputs=None, outputs=None, shapeless=False, *, "
     "captures='constant', max_entries=None, max_bytes=None)\n--\n\n"
     "A function that traces fun once for each kind of call and then runs the\n"
     "compiled trace.  Without fun: a decorator with these options.\n\n"
     "Args:\n"
     "    inputs: lists, dicts or modules whose arrays are read at each call.\n"
     "    outputs: such whose arrays fun replaces.\n"
     "    shapeless: one trace for all shapes of one rank; sizes are symbolic\n"
     "        while fun is traced.\n"
     "    captures: what arrays that fun finds in its closure, its globals or\n"
     "        objects are: 'constant' (a warning when their place holds\n"
     "        another one later), 'error', or 'input': read at each call.\n"
     "    max_entries, max_bytes: programs of this function that are kept."},
    {"compile_cache_info", cache_info, METH_NOARGS,
     "compile_cache_info()\n--\n\nA dict of figures of all compiled "
     "functions."},
    {"clear_compile_cache", cache_clear, METH_NOARGS,
     "clear_compile_cache()\n--\n\nDrops all compiled programs."},
    {"set_compile_cache_limit", EXT_KEYWORDS(cache_limit),
     "set_compile_cache_limit(n=None, /, *, max_bytes=None)\n--\n\n"
     "How many programs are kept at most, and how many bytes they take; gives "
     "the\nold limit."},
    {"set_compile_mode", compile_mode, METH_O,
     "set_compile_mode(name, /)\n--\n\n"
     "What compiling does in this process: 'disabled', 'no_simplify', "
     "'no_fuse' or\n'enabled'; gives the old mode."},
    {"register_tree", EXT_KEYWORDS(ext_register_tree),
     "register_tree(cls, flatten=None, unflatten=None)\n--\n\n"
     "Makes the objects of a class trees: transforms and compiled functions "
     "take\nand give them.  Gives cls, so it decorates.\n\n"
     "Args:\n"
     "    flatten: from an object to (children, static): a tree, and a "
     "hashable\n"
     "        value that is part of a compiled function's key. Default, for a\n"
     "        dataclass: its fields as a dict, and None.\n"
     "    unflatten: from (static, children) to an object."},
    {"fft_cache_info", fft_cache_info, METH_NOARGS,
     "fft_cache_info()\n--\n\nA dict of figures of the plans of Fourier "
     "transforms that are kept."},
    {"clear_fft_cache", fft_cache_clear, METH_NOARGS,
     "clear_fft_cache()\n--\n\nDrops all plans of Fourier transforms."},
    {"enable_compile", enable, METH_NOARGS,
     "enable_compile()\n--\n\nTurns compiling on."},
    {"disable_compile", disable, METH_NOARGS,
     "disable_compile()\n--\n\nMakes compiled functions run as plain ones."},
    {NULL, NULL, 0, NULL},
};
