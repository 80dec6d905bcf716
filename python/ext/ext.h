/* SPDX-License-Identifier: Apache-2.0
 *
 * ext.h -- what the files of the extension share.
 *
 * The extension is written against CPython's limited API of 3.11 and
 * include/marram/ alone.  README.md says how errors, the GIL and sites work.
 */
#ifndef MARRAM_PYTHON_EXT_H
#define MARRAM_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "marram/error.h"
#include "marram/types.h"

/* CPython's tables of slots hold functions as void *. */
#pragma GCC diagnostic ignored "-Wpedantic"
#define EXT_DOC(text) ((void *)(uintptr_t)(text))
/* And lists of keywords have no const. */
#define EXT_WORD(text) ((char *)(uintptr_t)(text))
/* A method that takes keywords: its function and its flags. */
#define EXT_KEYWORDS(f)                                                        \
    (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

/* ---- objects --------------------------------------------------------------
 */

/* `x` is never NULL between calls; in-place operators and item assignment put
 * another node there. */
typedef struct ext_array_object {
    PyObject_HEAD mr_array *x;
    struct ext_past *past; /* NULL: never updated in place */
} ext_array_object;

/* Set once at import, then only read. */
struct ext_state {
    PyObject *core; /* the module marram._core */
    PyTypeObject *array, *array_at, *array_iterator, *dtype, *device,
        *device_type, *stream, *stream_context, *compiled, *transform;
    PyObject *dtypes[MR_N_DTYPES];
    PyObject *cpu, *gpu;   /* DeviceType */
    PyObject *file_error;  /* OSError that is a RuntimeError */
    PyObject *state_error; /* RuntimeError that is a ValueError */
    PyObject *dtype_error; /* ValueError that is a RuntimeError */
};
extern struct ext_state ext;

static inline bool
ext_is_array(PyObject *o)
{
    return Py_TYPE(o) == ext.array;
}

static inline mr_array *
ext_x(PyObject *o)
{
    return ((ext_array_object *)o)->x;
}

/* An array object that takes the caller's reference of x; NULL raises the
 * thread's error. */
PyObject *ext_wrap(mr_array *x);
/* Puts x (taken), which is made from what is there, into an array object. */
void ext_rebind(PyObject *array, mr_array *x);

/* ---- updates that fail (past.c) ---------------------------------------------
 */
/* The object's node is about to be replaced by one that is made from it. */
void ext_past_note(ext_array_object *o);
void ext_past_drop(ext_array_object *o);
/* An error is about to be raised: marks the objects whose last update failed
 * with it. */
void ext_past_fail(const mr_error *why);
/* They have their old values again.  Keeps the exception that is set. */
void ext_past_restore(void);

/* ---- errors ----------------------------------------------------------------
 */
/* Raises the thread's Marram error as an exception; always NULL. */
PyObject *ext_raise(void);
/* The same where the caller may go on and ask again: updates that failed are
 * not undone (past.c). */
PyObject *ext_raise_again(void);
/* TypeError: what was wanted (a format), then ", not " and the type of o.
 * Always false. */
bool ext_wrong_type(PyObject *o, const char *wanted, ...);
int ext_init_errors(PyObject *module);

/* ---- sites -----------------------------------------------------------------
 */
/* "file:line" of the Python frame that is running, or "". */
const char *ext_site(void);
/* How many contexts of stream() are open on this thread; when any is, what the
 * running task means is brought in line before an operator (scope.c). */
extern _Thread_local int ext_scopes_open;
void ext_scope_sync(void);
/* The stream and device that o names, on this thread. */
bool ext_place_of(PyObject *o, mr_stream *s, mr_device *d);
int ext_init_scope(PyObject *module);
void ext_init_sites(void);

/* ---- dtypes ----------------------------------------------------------------
 */
int ext_init_dtype(PyObject *module);
/* Borrowed. */
PyObject *ext_dtype_object(mr_dtype t);
/* False with a TypeError when o is no Dtype. */
bool ext_dtype_of(PyObject *o, mr_dtype *out);

/* ---- streams and devices ---------------------------------------------------
 */
int ext_init_stream(PyObject *module);
/* From a Stream, Device, DeviceType or None; false with an exception. */
bool ext_stream_of(PyObject *o, mr_stream *out);
PyObject *ext_default_device(void); /* a Device, a new reference */

/* ---- numbers and arrays from Python ----------------------------------------
 */
/* 1: o is a number and *out holds it; 0: it is not; -1: an exception. */
int ext_scalar(PyObject *o, mr_scalar *out);
/* The dtype that a number has by itself. */
mr_dtype ext_scalar_dtype(const mr_scalar *s);
/* The number as an array of dtype t; an int that does not fit an integer type
 * is a ValueError. */
mr_array *ext_scalar_array(const char *site, const mr_scalar *s, mr_dtype t);
PyObject *ext_scalar_object(const mr_scalar *s);
/* True when o is a scalar of NumPy (numpy.generic), which is not imported. */
bool ext_is_numpy_scalar(PyObject *o);
/* True when o exports memory or knows __array__ or __dlpack__: a NumPy array,
 * not text or numbers. */
bool ext_is_foreign_array(PyObject *o);
/* What the constructor makes of a value.  t: MR_DTYPE_DEFAULT for the rules. */
mr_array *ext_from_object(PyObject *o, mr_dtype t);
/* From an exporter of memory, copied. */
mr_array *ext_from_buffer(PyObject *o, mr_dtype t);
/* From an object that ext_is_foreign_array holds of. */
mr_array *ext_from_foreign(PyObject *o, mr_dtype t);
/* An operand of an operator beside x: a new reference, a number being weak
 * beside dtype t.  NULL without an exception: o is nothing that can be one. */
mr_array *ext_operand(const char *site, PyObject *o, mr_dtype t);
int ext_init_convert(void);

/* ---- DLPack -----------------------------------------------------------------
 */
mr_array *ext_from_dlpack(PyObject *o);
extern PyMethodDef ext_dlpack_methods[];

/* ---- the buffer protocol ----------------------------------------------------
 */
int ext_get_buffer(PyObject *self, Py_buffer *view, int flags);
/* True with the exception that ended the last wait for a buffer of self, if
 * the one who asked has dropped it since. */
bool ext_lost_signal(PyObject *self);
void ext_release_buffer(PyObject *self, Py_buffer *view);
/* The format characters of a dtype ("f"), and back: false when none fits. */
const char *ext_format_of(mr_dtype t);
bool ext_dtype_of_format(const char *format, Py_ssize_t itemsize,
                         mr_dtype *out);

/* ---- the array type ---------------------------------------------------------
 */
int ext_init_array(PyObject *module);
int ext_init_at(PyObject *module);
extern PyMethodDef ext_array_methods[];
extern PyMethodDef ext_state_functions[]; /* for pickle */
extern PyMethodDef ext_place_functions[]; /* for tests */
extern PyGetSetDef ext_array_getset[];
extern PyType_Slot ext_number_slots[];
PyObject *ext_richcompare(PyObject *a, PyObject *b, int op);
/* The value of an array of size 1; false with an exception. */
bool ext_item(PyObject *self, mr_scalar *out);
/* Says once that a value read inside a transform is a constant to it; false
 * when the warning was made an exception. */
bool ext_warn_traced(mr_array *x);
/* set_traced_reads(mode). */
PyObject *ext_set_traced_reads(PyObject *self, PyObject *mode);

/* ---- debugging ---------------------------------------------------------- */
/* Contexts of eager that are open on this thread. */
extern _Thread_local int ext_eager_depth
    __attribute__((tls_model("initial-exec")));
/* In one: x is evaluated, unless it is traced; false with Marram's error. */
bool ext_settle(mr_array *x);

/* ---- indexing ----------------------------------------------------------- */
PyObject *ext_subscript(PyObject *self, PyObject *key);
int ext_ass_subscript(PyObject *self, PyObject *key, PyObject *value);
/* x with value combined into what key names; mode as mr_index_scatter has it,
 * or "subtract", "divide".  A new reference. */
mr_array *ext_update(mr_array *x, PyObject *key, PyObject *value,
                     const char *mode);

/* ---- arguments of functions --------------------------------------------- */
typedef enum ext_kind {
    EXT_ARRAY,
    EXT_ARRAYLIKE, /* numbers are weak beside the other arraylike ones */
    EXT_CONDITION, /* as arraylike, but beside nothing */
    EXT_ARRAYS,
    EXT_AXIS,
    EXT_AXES,
    EXT_SHAPE,
    EXT_INTS,
    EXT_INT,
    EXT_FLOAT,
    EXT_BOOL,
    EXT_FLAG, /* a bool that may be None: 0, 1, MR_INT_NONE */
    EXT_DTYPE,
    EXT_STR,
    EXT_SCALAR
} ext_kind;

enum { EXT_NULLABLE = 1, EXT_DEFAULT = 2 };

typedef union ext_value {
    mr_scalar scalar;
    mr_array *array;
    struct {
        mr_array **v;
        int n;
    } arrays;
    mr_axes axes;
    mr_shape shape;
    mr_ints ints;
    int64_t i;
    double f;
    const char *s;
    int32_t axis;
    mr_dtype dtype;
    bool b;
} ext_value;

typedef struct ext_param {
    const char *name;
    ext_kind kind;
    int flags;
    ext_value value; /* the default; a scalar for arraylike */
} ext_param;

#define EXT_MAX_PARAMS 16
#define EXT_MAX_INTS   128

typedef struct ext_call ext_call;

typedef struct ext_spec {
    const char *name;
    const ext_param *param;
    PyObject *(*call)(ext_call *c);
    int n;               /* parameters */
    int positional_only; /* of these */
    int positional;      /* those that may be positional */
    int variadic;        /* index of *args, or -1 */
    bool stream;         /* stream= may be positional */
    bool spread;         /* method: the list may be separate ints */
} ext_spec;

/* One call being made. */
struct ext_call {
    const ext_spec *spec;
    const char *site;
    bool has_stream;
    mr_stream old_stream;
    int n_held, n_ints;
    mr_array **list; /* of the one arrays argument */
    int n_list;
    ext_value v[EXT_MAX_PARAMS];
    mr_array *held[EXT_MAX_PARAMS];
    int64_t ints[EXT_MAX_INTS];
    int32_t axes[EXT_MAX_INTS]; /* narrowed: at the places of their ints */
};

/* Parses the arguments (self in front, when not NULL) and makes the call. */
PyObject *ext_run(const ext_spec *spec, PyObject *self, PyObject *const *args,
                  Py_ssize_t n, PyObject *kw);
/* Ends a call with its result. */
PyObject *ext_array(ext_call *c, mr_array *result);
PyObject *ext_tuple(ext_call *c, mr_tree *result);
PyObject *ext_list(ext_call *c, mr_tree *result);
/* Ends a call without one. */
void ext_end(ext_call *c);

/* Keywords of the array API standard that are no parameters (standard.c). */
typedef enum ext_extra_kind {
    EXT_EXTRA_NONE,
    EXT_EXTRA_IGNORED,
    EXT_EXTRA_DTYPE,
    EXT_EXTRA_DESCENDING,
    EXT_EXTRA_PREPEND,
    EXT_EXTRA_APPEND,
    EXT_EXTRA_INITIAL,
    EXT_EXTRA_SORTER
} ext_extra_kind;

enum { EXT_MAX_EXTRAS = 2 };

typedef struct ext_extras {
    int n;
    ext_extra_kind kind[EXT_MAX_EXTRAS];
    PyObject *value[EXT_MAX_EXTRAS]; /* borrowed */
} ext_extras;

/* Is the keyword the standard's name of a parameter? */
bool ext_standard_alias(const char *parameter, PyObject *keyword);
ext_extra_kind ext_standard_extra(const ext_spec *s, PyObject *keyword);
/* What they change in the parsed arguments; in the result, which is taken. */
bool ext_standard_before(ext_call *c, const ext_extras *e);
PyObject *ext_standard_after(const ext_call *c, const ext_extras *e,
                             PyObject *result);
/* A function's tuple, taken, in the class that names its fields. */
PyObject *ext_standard_named(const char *function, PyObject *tuple);

/* int or sequence of ints into out (cap entries); -1 with an exception. */
int ext_int_list(PyObject *o, int64_t *out, int cap, const char *function,
                 const char *argument);

/* ---- functions ---------------------------------------------------------- */
typedef struct ext_module {
    const char *name; /* "" or "random" */
    PyMethodDef *methods;
} ext_module;
extern const ext_module ext_generated[];
extern PyMethodDef ext_generated_methods[];
extern PyMethodDef ext_functions[];        /* special.c: arange, split, ... */
extern PyMethodDef ext_debug_functions[];  /* debug.c: eager, figures */
extern PyMethodDef ext_select_functions[]; /* select.c: unique, repeat */
extern PyMethodDef ext_random_functions[];
extern PyMethodDef ext_linalg_functions[];
extern PyMethodDef ext_fast_functions[];
extern PyMethodDef ext_system_functions[]; /* eval, memory */
extern PyMethodDef ext_stream_functions[];
extern PyMethodDef ext_transform_functions[];
extern PyMethodDef ext_compile_functions[];
extern PyMethodDef ext_io_functions[];
extern PyMethodDef ext_dtype_functions[];
int ext_init_compile(PyObject *module);
int ext_init_transform(PyObject *module);

/* ---- sizes inside a shapeless trace (size.c) ----------------------------- */
int ext_init_size(void);
bool ext_is_size(PyObject *o);
/* Its handle; the plain number after its trace. */
void ext_size_scalar(PyObject *o, mr_scalar *out);
/* A size, or a plain number when s is none. */
PyObject *ext_size_object(mr_scalar s);
PyObject *ext_dim_object(const mr_array *x, int axis);
/* The plain number, at the price of another trace for other sizes. */
PyObject *ext_size_fixed(PyObject *o);
/* False with the error that says what a size cannot become. */
bool ext_size_refuse(PyObject *o, const char *what);

/* The hooks that give up the GIL (system.c). */
int ext_init_system(void);

/* ---- trees -------------------------------------------------------------- */
/* Of lists and tuples; the item is borrowed. */
bool ext_is_sequence(PyObject *o);
PyObject *ext_sequence_item(PyObject *o, Py_ssize_t i);
Py_ssize_t ext_sequence_size(PyObject *o);

/* A Python tree is a list, tuple or dict of trees, or a leaf.  Taken apart it
 * is the arrays in order, and a structure: the same tree with a mark in the
 * place of each array (tree.c). */
typedef struct ext_leaves {
    mr_array **x; /* retained */
    int n, cap;
    mr_array *few[8]; /* where x points as long as they suffice: not copied */
    bool strict;      /* ext_collect: objects that hide arrays are errors */
} ext_leaves;
void ext_leaves_free(ext_leaves *l);
/* Takes x, also when it fails. */
bool ext_leaves_add(ext_leaves *l, mr_array *x);
/* Collects arrays, skipping other leaves. */
bool ext_collect(PyObject *tree, ext_leaves *l);
/* Of a tuple of trees, where an object that is no tree and holds arrays, or
 * stands alone, is a TypeError. */
bool ext_collect_trees(PyObject *args, ext_leaves *l);
/* A new reference to the structure, or NULL.  NumPy arrays count as arrays
 * when `foreign`. */
PyObject *ext_flatten(PyObject *tree, ext_leaves *l, bool foreign);
/* The same for what a traced function gave: sizes become numbers. */
PyObject *ext_flatten_result(PyObject *tree, ext_leaves *l);
/* Objects of a registered class (register_tree) as trees: their children and
 * their static part, new references; in a structure they are nodes.  0: o is
 * neither, -1: an exception. */
int ext_open_object(PyObject *o, PyObject **children, PyObject **fixed);
/* Dict: classes that are trees; borrowed, NULL while there are none. */
PyObject *ext_tree_registry(void);
/* What tells such objects' classes apart. */
const void *ext_object_class(PyObject *o);
PyObject *ext_register_tree(PyObject *self, PyObject *args, PyObject *kw);
/* Is this the mark of an array in a structure? */
bool ext_is_mark(PyObject *o);
/* The tree of a structure over the objects of a list, from *next on. */
PyObject *ext_fill(PyObject *structure, PyObject *list, int *next);
/* The tree of a structure over arrays, taken from x[*next] on; NULL is None. */
PyObject *ext_unflatten(PyObject *structure, mr_array *const *x, int *next);
/* The leaves of a tree of arrays, retained. */
bool ext_tree_leaves(const mr_tree *t, ext_leaves *l);
/* True when a tree holds arrays alone; else a ValueError that names `what`. */
bool ext_only_arrays(PyObject *tree, const char *what);
/* A tuple of the class of `like` with the items of a plain one (taken): named
 * tuples take their fields. */
PyObject *ext_tuple_like(PyObject *like, PyObject *items);
int ext_init_tree(void);

/* random.state: stands for the thread's key (random.c). */
bool ext_is_random_state(PyObject *o);

/* ---- closures ----------------------------------------------------------- */
/* A failing Python closure keeps its exception here; ext_closure_raise brings
 * it back, or raises Marram's error.  Always NULL. */
typedef struct ext_failure {
    PyObject *type, *value, *traceback;
} ext_failure;
void ext_failure_keep(ext_failure *f);
PyObject *ext_failure_raise(ext_failure *f);
/* Keeps the exception for this thread's next ext_raise of MR_E_USER: for
 * closures that do not know who will be told. */
void ext_failure_pend(void);
/* Drops a reference later, on a thread that has the GIL: callable anywhere. */
void ext_drop_later(PyObject *o);

#endif
