/* SPDX-License-Identifier: Apache-2.0
 *
 * function.c -- compiled functions: the key of a call, the trace at a miss,
 * the nodes of a hit.
 *
 * A trace runs under no lock; two threads may trace one key at once, and the
 * first to publish wins.  A call made while another transform or trace is
 * open on the thread, or with tracers among its arguments, runs the closure
 * itself: it becomes part of that trace.
 *
 * Called by: users.  Calls: cache.c, program.c.
 */
#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "compile/cache.h"
#include "compile/program.h"
#include "compile/tier1.h"
#include "eval/registry.h"
#include "eval/stream.h"
#include "graph/context.h"
#include "marram/array.h"
#include "marram/compile.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/tree.h"

/* Traces of one function before it is said aloud. */
#define MANY_TRACES 8

struct mr_function {
    _Atomic int64_t refs; /* acq_rel on the way down */
    uint64_t id;          /* never used again */
    mr_closure *closure;
    char *name;
    /* relaxed: figures */
    _Atomic uint64_t traces, calls;
    _Atomic bool warned;
};

static _Atomic uint64_t next_id = 1; /* relaxed: a counter */
static _Atomic bool enabled = true;  /* relaxed: a switch */

/* ---- making
 * ------------------------------------------------------------------ */

mr_function *
mr_compile_closure(mr_closure *c, const mr_compile_options *options)
{
    const char *name = options != NULL ? options->name : NULL;
    mr_function *f;

    if (c == NULL)
        return mr__error_pending()
                   ? NULL
                   : mr__fail_null(MR_E_NULL, "the closure is NULL");
    if (mr__jit_check() != MR_OK)
        return NULL;
    f = mr__alloc_zero(sizeof *f);
    if (f == NULL)
        return NULL;
    f->name = mr__strdup(name != NULL ? name : "function");
    if (f->name == NULL) {
        mr__dealloc(f);
        return NULL;
    }
    atomic_init(&f->refs, 1);
    f->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    f->closure = mr_closure_retain(c);
    return f;
}

mr_function *
mr_compile(mr_fn fn, void *ctx, const mr_compile_options *options)
{
    mr_closure *c = mr_closure_new(fn, ctx, NULL);
    mr_function *f = c == NULL ? NULL : mr_compile_closure(c, options);

    mr_closure_release(c);
    return f;
}

mr_function *
mr_function_retain(mr_function *f)
{
    if (f != NULL)
        atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void
mr_function_release(mr_function *f)
{
    if (f == NULL ||
        atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    mr__cache_erase_function(f->id);
    mr_closure_release(f->closure);
    mr__dealloc(f->name);
    mr__dealloc(f);
}

bool
mr_compile_enable(bool on)
{
    return atomic_exchange_explicit(&enabled, on, memory_order_relaxed);
}

/* ---- the key of a call
 * ----------------------------------------------------------- */

typedef struct call {
    const mr_device_table *device; /* where it is to run; NULL: the host */
    const mr_tree *args;           /* NULL: a tuple of the leaves */
    mr_tree *own_args;             /* made when it is wanted */
    uint64_t structure;
    mr_array *const *leaf; /* borrowed */
    int n_leaves;
    /* What is traced: a closure, or a binding's function. */
    mr_closure *closure;
    mr_trace_fn fn;
    void *ctx;
    int64_t tag;
    unsigned char *bytes;
    size_t n_bytes;
    mr_array *few_leaves[32];
    unsigned char few_bytes[512];
} call;

typedef struct leaf_key {
    int32_t dtype, ndim;
} leaf_key;

static size_t
key_size(const call *c, size_t extra)
{
    size_t n = 2 * sizeof(uint64_t) + extra;

    for (int i = 0; i < c->n_leaves; i++)
        n += sizeof(leaf_key) + (size_t)c->leaf[i]->ndim * sizeof(int64_t);
    return n;
}

static unsigned char *
put(unsigned char *at, const void *p, size_t n)
{
    if (n > 0)
        memcpy(at, p, n);
    return at + n;
}

static void
write_key(call *c, const void *extra, size_t n_extra)
{
    unsigned char *at = c->bytes;
    uint64_t space = c->device == NULL ? 0 : mr__device_space(c->device);
    uint64_t head[2] = {c->structure, n_extra | space << 48};

    at = put(at, head, sizeof head);
    at = put(at, extra, n_extra);
    for (int i = 0; i < c->n_leaves; i++) {
        const mr_array *x = c->leaf[i];
        leaf_key k = {x->dtype, x->ndim};

        at = put(at, &k, sizeof k);
        at = put(at, x->dim, (size_t)x->ndim * sizeof *x->dim);
    }
}

static void
call_end(call *c)
{
    if (c->args != NULL && c->leaf != c->few_leaves)
        mr__dealloc((void *)(uintptr_t)c->leaf);
    if (c->bytes != c->few_bytes)
        mr__dealloc(c->bytes);
    mr_tree_release(c->own_args);
}

/* Where operators that are called now on this thread run: the scoped stream's
 * device, else the default one. */
static const mr_device_table *
device_now(void)
{
    mr_device d;
    const mr_device_table *t;

    if (mr__ctx.stream != 0)
        return mr__stream_device(mr__ctx.stream);
    d = mr_default_device();
    if (__builtin_expect(d.type == MR_CPU, 1))
        return NULL;
    t = mr__device_find(d);
    if (t == NULL)
        mr_error_take();
    return t;
}

static void
call_init(call *c)
{
    c->device = device_now();
    c->args = NULL;
    c->own_args = NULL;
    c->bytes = c->few_bytes;
    c->fn = NULL;
    c->tag = 0;
}

static mr_code
call_of_tree(call *c, const mr_tree *args)
{
    mr_array **leaf = c->few_leaves;

    call_init(c);
    c->args = args;
    c->structure = mr_tree_structure_hash(args);
    c->n_leaves = mr_tree_n_leaves(args);
    c->leaf = leaf;
    if (c->n_leaves > 32) {
        leaf = mr__alloc_array((size_t)c->n_leaves, sizeof *leaf);
        if (leaf == NULL)
            return MR_E_MEMORY;
        c->leaf = leaf;
    }
    return mr_tree_leaves(args, leaf, c->n_leaves);
}

static mr_code
call_of_arrays(call *c, int n, mr_array *const *x)
{
    call_init(c);
    c->structure = (uint64_t)n; /* no tree's */
    c->n_leaves = n;
    c->leaf = x;
    for (int i = 0; i < n; i++)
        if (x[i] == NULL)
            return mr__error_pending()
                       ? mr__error_code()
                       : mr__fail(MR_E_NULL, "argument %d is NULL", i);
    return MR_OK;
}

/* The arguments as a tree, for a trace. */
static const mr_tree *
call_tree(call *c)
{
    if (c->args != NULL)
        return c->args;
    if (c->own_args == NULL) {
        mr_scope s = mr_scope_none(); /* it outlives the scopes of a trace */

        if (s.token != 0) {
            c->own_args = mr_tree_arrays(c->n_leaves, c->leaf);
            mr_scope_end(s);
        }
    }
    return c->own_args;
}

static mr_code
call_key(call *c, const void *extra, size_t n_extra)
{
    c->n_bytes = key_size(c, n_extra);
    if (c->n_bytes > sizeof c->few_bytes) {
        c->bytes = mr__alloc(c->n_bytes);
        if (c->bytes == NULL) {
            c->bytes = c->few_bytes;
            return MR_E_MEMORY;
        }
    }
    write_key(c, extra, n_extra);
    return MR_OK;
}

/* Part of an open trace: the call cannot be a program of its own. */
static bool
must_inline(const call *c)
{
    if (mr__ctx.trace != 0 || mr__ctx.no_eval != NULL ||
        !atomic_load_explicit(&enabled, memory_order_relaxed))
        return true;
    for (int i = 0; i < c->n_leaves; i++)
        if (c->leaf[i]->trace != 0 && mr__trace_live(c->leaf[i]->trace))
            return true;
    return false;
}

/* ---- tracing
 * ------------------------------------------------------------------------ */

typedef struct tracing {
    mr_key_source source; /* first: keys drawn inside */
    uint64_t trace;
    mr_vec args; /* placeholders: the arguments, then the keys; retained */
} tracing;

static mr_array *
placeholder(tracing *t, mr_dtype dtype, int32_t ndim, const int64_t *dim)
{
    mr_array *x = mr__node_placeholder(dtype, ndim, dim, t->trace);

    if (x == NULL || !mr__vec_push(&t->args, x))
        return NULL;
    mr__retain(x);
    return x;
}

static mr_array *
next_key(mr_key_source *s)
{
    return placeholder((tracing *)s, MR_UINT32, 1, (int64_t[]){2});
}

static void
tracing_end(tracing *t)
{
    for (size_t i = 0; i < t->args.n; i++)
        mr__release(t->args.v[i]);
    mr__vec_free(&t->args);
}

static mr_tree *
tagged(void *ctx, const mr_tree *in)
{
    call *c = ctx;

    return c->fn(c->ctx, in, &c->tag);
}

/* The function itself, on these arguments. */
static mr_tree *
call_function(call *c, const mr_tree *in)
{
    mr_closure *fn;
    mr_tree *out;

    if (c->fn == NULL)
        return mr_closure_call(c->closure, in);
    fn = mr_closure_new_foreign(tagged, c, NULL);
    if (fn == NULL)
        return NULL;
    out = mr_closure_call(fn, in);
    mr_closure_release(fn);
    return out;
}

/* Run the function on placeholders; the result belongs to the open scope. */
static mr_tree *
trace(tracing *t, call *c, const char *name)
{
    mr_key_source *old_keys = mr__ctx.keys;
    const char *old_no_eval = mr__ctx.no_eval;
    const mr_tree *like = call_tree(c);
    mr_tree *in = NULL, *out = NULL;
    bool ok = like != NULL;

    mr__ctx.no_eval = name;
    for (int i = 0; ok && i < c->n_leaves; i++)
        ok = placeholder(t, (mr_dtype)c->leaf[i]->dtype, c->leaf[i]->ndim,
                         c->leaf[i]->dim) != NULL;
    if (ok)
        in = mr_tree_like(like, (mr_array *const *)t->args.v, c->n_leaves);
    mr__ctx.keys = &t->source;
    if (in != NULL)
        out = call_function(c, in);
    mr__ctx.keys = old_keys;
    mr__ctx.no_eval = old_no_eval;
    return out;
}

/* ---- from a trace to an entry
 * ------------------------------------------------------------ */

static int
find_array(mr_array *const *list, size_t n, const mr_array *x)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == x)
            return (int)i;
    return -1;
}

/* Sort the results' leaves: arguments as they came, what the program makes,
 * arrays from elsewhere. */
static bool
sort_leaves(mr_cache_entry *e, const tracing *t, mr_array *const *leaf,
            mr_vec *outs)
{
    for (int i = 0; i < e->n_leaves; i++) {
        mr_array *x = leaf[i];
        int at = find_array((mr_array *const *)t->args.v, t->args.n, x);

        if (at >= 0) {
            e->leaf[i] = (mr_leaf){MR_LEAF_ARG, at, NULL};
            continue;
        }
        if (x->trace != t->trace || mr__state(x) != MR_NEW) {
            e->leaf[i] = (mr_leaf){MR_LEAF_CAPTURED, 0, mr__retain(x)};
            continue;
        }
        at = find_array((mr_array *const *)outs->v, outs->n, x);
        if (at < 0) {
            at = (int)outs->n;
            if (!mr__vec_push(outs, x))
                return false;
        }
        e->leaf[i] = (mr_leaf){MR_LEAF_OUTPUT, at, NULL};
    }
    return true;
}

/* The structure over one small stand-in, so that no tracer outlives its
 * trace. */
static mr_tree *
shape_of(const mr_tree *out, int n)
{
    mr_array *stand_in = mr_bool(false);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_tree *shape = NULL;

    for (int i = 0; leaf != NULL && i < n; i++)
        leaf[i] = stand_in;
    if (leaf != NULL && stand_in != NULL)
        shape = mr_tree_retain(mr_tree_like(out, leaf, n));
    mr__dealloc(leaf);
    return shape;
}

static mr_cache_entry *
entry_new(const mr_cache_key *key, int n_leaves)
{
    mr_cache_entry *e = mr__alloc_zero(sizeof *e);
    void *bytes;

    if (e == NULL)
        return NULL;
    atomic_init(&e->refs, 1);
    bytes = mr__alloc(key->n_bytes + 1);
    e->key = *key;
    e->key.bytes = bytes;
    e->leaf = mr__alloc_zero(((size_t)n_leaves + 1) * sizeof *e->leaf);
    if (bytes == NULL || e->leaf == NULL) {
        mr__cache_release(e);
        return NULL;
    }
    memcpy(bytes, key->bytes, key->n_bytes);
    e->n_leaves = n_leaves;
    return e;
}

static bool
fill_entry(mr_cache_entry *e, const tracing *t, const mr_tree *out, int n_args,
           const mr_device_table *device)
{
    int n = e->n_leaves;
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_vec outs = {0};
    bool ok = leaf != NULL && mr_tree_leaves(out, leaf, n) == MR_OK &&
              sort_leaves(e, t, leaf, &outs);

    e->n_args = (int)t->args.n;
    e->n_keys = e->n_args - n_args;
    e->bytes = sizeof *e + e->key.n_bytes;
    if (ok && outs.n > 0) {
        mr_array *holder = mr__program_new(
            device, (mr_array *const *)t->args.v, (int)t->args.n,
            (mr_array *const *)outs.v, (int)outs.n);

        ok = holder != NULL;
        if (ok) {
            e->holder = mr__retain(holder); /* the scope has the other */
            e->bytes += mr__program_bytes(mr__program_of(holder));
        }
    }
    if (ok) {
        e->shape = shape_of(out, n);
        ok = e->shape != NULL;
    }
    mr__vec_free(&outs);
    mr__dealloc(leaf);
    return ok;
}

static mr_cache_entry *
trace_to_entry(call *c, const mr_cache_key *key, const char *name)
{
    tracing t = {.source = {next_key}, .trace = mr__trace_begin()};
    mr_scope scope = mr_scope_begin();
    mr_cache_entry *e = NULL;
    mr_tree *out;

    out = t.trace == 0 || scope.token == 0 ? NULL : trace(&t, c, name);
    mr__trace_end(t.trace);
    if (out != NULL)
        e = entry_new(key, mr_tree_n_leaves(out));
    if (e != NULL)
        e->tag = c->tag;
    if (e != NULL && !fill_entry(e, &t, out, c->n_leaves, c->device)) {
        mr__cache_release(e);
        e = NULL;
    }
    tracing_end(&t);
    if (scope.token != 0)
        mr_scope_end(scope);
    return e;
}

/* ---- calling
 * ------------------------------------------------------------------------------
 */

static bool
call_arguments(const mr_cache_entry *e, const call *c, mr_array **in)
{
    int n = c->n_leaves;

    for (int i = 0; i < n; i++)
        in[i] = c->leaf[i];
    for (int i = 0; i < e->n_keys; i++) {
        in[n + i] = mr_random_next_key();
        if (in[n + i] == NULL)
            return false;
    }
    return true;
}

static mr_array *
result_leaf(const mr_leaf *l, mr_array *const *in, mr_array *tuple)
{
    switch (l->kind) {
    case MR_LEAF_ARG:
        return in[l->index];
    case MR_LEAF_CAPTURED:
        return l->array;
    case MR_LEAF_OUTPUT:
        return mr__node_output(tuple, l->index);
    default:
        return NULL;
    }
}

/* Two leaves of one output share one projection. */
static bool
result_leaves(const mr_cache_entry *e, mr_array *const *in, mr_array *tuple,
              mr_array **out)
{
    for (int i = 0; i < e->n_leaves; i++) {
        const mr_leaf *l = &e->leaf[i];
        int same = 0;

        while (same < i && !(l->kind == MR_LEAF_OUTPUT &&
                             e->leaf[same].kind == MR_LEAF_OUTPUT &&
                             e->leaf[same].index == l->index))
            same++;
        out[i] = same < i ? out[same] : result_leaf(l, in, tuple);
        if (out[i] == NULL)
            return false;
    }
    return true;
}

/* What a call gives: a tree, or arrays. */
typedef struct results {
    mr_tree *tree;
    mr_call_results *arrays; /* NULL: a tree is wanted */
} results;

static bool
give_arrays(const mr_cache_entry *e, mr_array *const *leaf, mr_call_results *r)
{
    r->leaf = r->few;
    if (e->n_leaves > MR_CALL_FEW &&
        (r->leaf = mr__alloc_array((size_t)e->n_leaves, sizeof *leaf)) == NULL)
        return false;
    for (int i = 0; i < e->n_leaves; i++)
        r->leaf[i] = mr_retain(leaf[i]);
    r->n = e->n_leaves;
    r->tag = e->tag;
    return true;
}

static bool
give(const mr_cache_entry *e, mr_array *const *leaf, results *r)
{
    if (r->arrays != NULL)
        return give_arrays(e, leaf, r->arrays);
    r->tree = mr_tree_like(e->shape, leaf, e->n_leaves);
    return r->tree != NULL;
}

/* In an open scope: temporaries are the scope's. */
static bool
apply(const mr_cached *found, const call *c, results *r)
{
    const mr_cache_entry *e = found->entry;
    size_t n = (size_t)(e->n_args + e->n_leaves + 1);
    mr_array *few[64], **in = few, *tuple = NULL, *before = NULL;
    bool ok;

    if (e->n_keys > 0 && (before = mr_random_state()) == NULL)
        return false;
    if (n > 64 && (in = mr__alloc_array(n, sizeof *in)) == NULL)
        return false;
    ok = call_arguments(e, c, in) &&
         (e->holder == NULL ||
          (tuple = mr__program_call(found->holder, in)) != NULL) &&
         result_leaves(e, in, tuple, in + e->n_args) &&
         give(e, in + e->n_args, r);
    if (!ok && before != NULL) /* a call that fails takes no keys */
        mr_random_set_state(before);
    if (in != few)
        mr__dealloc(in);
    return ok;
}

/* What differs between the call and the last trace: for the one warning. */
static void
warn_many(mr_function *f, const call *c, size_t n_extra)
{
    uint64_t n =
        atomic_fetch_add_explicit(&f->traces, 1, memory_order_relaxed) + 1;
    char shape[128] = "no arrays";

    if (n != MANY_TRACES + 1 ||
        atomic_exchange_explicit(&f->warned, true, memory_order_relaxed))
        return;
    if (c->n_leaves > 0)
        mr__shape_text(shape, sizeof shape, c->leaf[0]->ndim, c->leaf[0]->dim);
    mr__log(MR_LOG_WARN,
            "%s was traced %d times: its arguments' shapes, dtypes or %s "
            "values keep changing (its first array is now %s %s). Pass "
            "changing numbers as arrays, pad shapes to a few sizes, or "
            "compile with shapeless.",
            f->name, (int)n, n_extra > 0 ? "Python" : "static",
            mr_dtype_name(c->n_leaves > 0 ? (mr_dtype)c->leaf[0]->dtype
                                          : MR_FLOAT32),
            shape);
}

/* The program of this call, traced now if there is none.  User code waits from
 * here until the program was applied: it could end what `found` refers to. */
static bool
find_or_trace(mr_function *f, call *c, const mr_cache_key *key, size_t n_extra,
              mr_cached *found)
{
    mr_cache_entry *e;

    mr__defer_user_code_begin();
    *found = mr__cache_find(key);
    if (found->entry != NULL)
        return true;
    mr__defer_user_code_end();
    mr__lock_assert_none("tracing a function");
    e = trace_to_entry(c, key, f->name);
    if (e == NULL)
        return false;
    warn_many(f, c, n_extra); /* a trace that failed says nothing of them */
    mr__defer_user_code_begin();
    *found = mr__cache_publish(e);
    return true;
}

static bool
call_compiled(mr_function *f, call *c, const void *extra, size_t n_extra,
              results *r)
{
    mr_cache_key key = {.function = f->id};
    mr_cached found;
    mr_scope scope;
    bool ok;

    if (call_key(c, extra, n_extra) != MR_OK)
        return false;
    key.bytes = c->bytes;
    key.n_bytes = c->n_bytes;
    key.hash = mr__cache_hash(f->id, c->bytes, c->n_bytes);
    if (!find_or_trace(f, c, &key, n_extra, &found))
        return false;
    scope = mr_scope_begin();
    ok = scope.token != 0 && apply(&found, c, r);
    mr__defer_user_code_end();
    if (found.owned)
        mr__cache_release(found.entry);
    if (ok && r->arrays == NULL)
        r->tree = mr_scope_return_tree(scope, r->tree);
    if (scope.token != 0)
        mr_scope_end(scope);
    return ok;
}

static bool
is_given(const void *p, const char *what)
{
    if (p == NULL && !mr__error_pending())
        mr__fail(MR_E_NULL, "the %s is NULL", what);
    return p != NULL;
}

static bool
key_fits(const void *key, size_t bytes)
{
    if (key == NULL && bytes > 0)
        mr__fail(MR_E_NULL, "a key of %zu bytes at NULL", bytes);
    return key != NULL || bytes == 0;
}

mr_tree *
mr_call_keyed(mr_function *f, const mr_tree *args, const void *key,
              size_t key_bytes, mr_closure *trace_fn)
{
    results r = {NULL, NULL};
    call c;

    if (!is_given(f, "function") || !is_given(args, "argument tree") ||
        !key_fits(key, key_bytes))
        return NULL;
    if (call_of_tree(&c, args) == MR_OK) {
        c.closure = trace_fn != NULL ? trace_fn : f->closure;
        if (must_inline(&c))
            r.tree = call_function(&c, args);
        else
            call_compiled(f, &c, key, key_bytes, &r);
    }
    call_end(&c);
    mr__log_flush();
    return r.tree;
}

mr_tree *
mr_call(mr_function *f, const mr_tree *args)
{
    return mr_call_keyed(f, args, NULL, 0, NULL);
}

/* Part of an open trace: what the function gave, taken apart. */
static bool
inline_arrays(call *c, mr_call_results *r)
{
    const mr_tree *in = call_tree(c);
    mr_scope s = mr_scope_begin();
    mr_tree *out = in == NULL || s.token == 0 ? NULL : call_function(c, in);
    bool ok = out != NULL;

    r->leaf = r->few;
    r->tag = c->tag;
    if (ok && mr_tree_n_leaves(out) > MR_CALL_FEW)
        r->leaf =
            mr__alloc_array((size_t)mr_tree_n_leaves(out), sizeof(mr_array *));
    ok = ok && r->leaf != NULL &&
         mr_tree_leaves(out, r->leaf, mr_tree_n_leaves(out)) == MR_OK;
    if (ok)
        r->n = mr_tree_n_leaves(out);
    for (int i = 0; i < r->n; i++)
        mr_retain(r->leaf[i]);
    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

mr_code
mr_call_arrays(mr_function *f, int n, mr_array *const *args, const void *key,
               size_t key_bytes, mr_trace_fn trace_fn, void *ctx,
               mr_call_results *out)
{
    results r = {NULL, out};
    bool ok = false;
    call c;

    if (!is_given(out, "place for the results"))
        return MR_E_NULL;
    out->n = 0;
    out->leaf = out->few;
    if (!is_given(f, "function") ||
        !is_given(trace_fn != NULL ? f : NULL, "function to trace") ||
        (n > 0 && !is_given(args, "list of arguments")) ||
        !key_fits(key, key_bytes))
        return mr__error_code();
    if (call_of_arrays(&c, n, args) == MR_OK) {
        c.fn = trace_fn;
        c.ctx = ctx;
        ok = must_inline(&c) ? inline_arrays(&c, out)
                             : call_compiled(f, &c, key, key_bytes, &r);
    }
    call_end(&c);
    mr__log_flush();
    return ok ? MR_OK : mr__error_code();
}

void
mr_call_results_end(mr_call_results *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < r->n; i++)
        mr_release(r->leaf[i]);
    if (r->leaf != r->few)
        mr__dealloc(r->leaf);
    r->n = 0;
    r->leaf = r->few;
}

/* ---- figures
 * --------------------------------------------------------------------------------
 */

static mr_code
give_info(const mr_cache_info *info, mr_cache_info *out)
{
    size_t size;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the figures is NULL");
    size = out->size;
    if (size == 0 || size > sizeof *info)
        size = sizeof *info;
    memcpy(out, info, size);
    out->size = size;
    return MR_OK;
}

mr_code
mr_function_cache_info(const mr_function *f, mr_cache_info *out)
{
    mr_cache_info info = {0};

    if (f == NULL)
        return mr__fail(MR_E_NULL, "the function is NULL");
    mr__cache_info(f->id, &info);
    /* relaxed: a figure */
    info.traces = atomic_load_explicit(&f->traces, memory_order_relaxed);
    info.misses = info.traces;
    return give_info(&info, out);
}

mr_code
mr_function_cache_clear(mr_function *f)
{
    if (f == NULL)
        return mr__fail(MR_E_NULL, "the function is NULL");
    mr__cache_erase_function(f->id);
    return MR_OK;
}

mr_code
mr_compile_cache_info(mr_cache_info *out)
{
    mr_cache_info info = {0};

    mr__cache_info(0, &info);
    return give_info(&info, out);
}

mr_code
mr_compile_cache_clear(void)
{
    mr__cache_erase_all();
    return MR_OK;
}

uint64_t
mr_compile_set_cache_limit(uint64_t entries)
{
    return mr__cache_set_limit(entries);
}
