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
#include <stdio.h>
#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/vec.h"
#include "compile/cache.h"
#include "compile/call.h"
#include "compile/explain.h"
#include "compile/program.h"
#include "compile/report.h"
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

/* Limits of one function. */
#define MAX_ENTRIES 1024
#define MAX_BYTES   ((uint64_t)256 << 20)
/* Tapes of a shapeless function for one kind of call: branches on sizes. */
#define MAX_TAPES 8

static _Atomic uint64_t next_id = 1; /* relaxed: a counter */

/* ---- mr_making
 * ------------------------------------------------------------------ */

/* What the caller knew of, the rest the defaults. */
static bool
take_options(const mr_compile_options *given, mr_compile_options *o)
{
    if (given != NULL &&
        mr__sized_take(o, sizeof *o, given, "mr_compile_options") != MR_OK)
        return false;
    if (o->max_entries == 0)
        o->max_entries = MAX_ENTRIES;
    if (o->max_bytes == 0)
        o->max_bytes = MAX_BYTES;
    if ((unsigned)o->captures <= MR_CAPTURE_INPUT)
        return true;
    mr__fail(MR_E_VALUE, "captures is %d: use one of enum mr_capture_mode",
             (int)o->captures);
    return false;
}

mr_function *
mr_compile_closure(mr_closure *c, const mr_compile_options *options)
{
    mr_compile_options o = {0};
    mr_function *f;

    if (c == NULL)
        return mr__error_pending()
                   ? NULL
                   : mr__fail_null(MR_E_NULL, "the closure is NULL");
    if (!take_options(options, &o))
        return NULL;
    f = mr__alloc_zero(sizeof *f);
    if (f == NULL)
        return NULL;
    f->name = mr__strdup(o.name != NULL ? o.name : "function");
    f->owner = mr__cache_owner_new(o.max_entries, o.max_bytes);
    if (f->name == NULL || f->owner == NULL) {
        mr__cache_owner_release(f->owner);
        mr__dealloc(f->name);
        mr__dealloc(f);
        return NULL;
    }
    f->shapeless = o.shapeless;
    f->captures = o.captures;
    f->capture_help = o.capture_help;
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
    mr__cache_owner_release(f->owner);
    mr__history_free(&f->history);
    mr__dealloc(f->name);
    mr__dealloc(f);
}

/* ---- the key of a call
 * ----------------------------------------------------------- */

/* The key of a tape: as that of a call, but for the sizes. */
enum { TAPE_KEY = 1 };

typedef struct leaf_key {
    int32_t dtype, ndim;
} leaf_key;

static size_t
key_size(const mr_call_state *c, size_t extra)
{
    size_t n = 3 * sizeof(uint64_t) + extra;

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

/* kind 0: of a call; TAPE_KEY + i: of the i-th tape, without sizes. */
static void
write_key(mr_call_state *c, const void *extra, size_t n_extra, uint64_t kind)
{
    unsigned char *at = c->bytes;
    uint64_t space = c->device == NULL ? 0 : mr__device_space(c->device);
    uint64_t head[3] = {c->structure, n_extra,
                        kind | (uint64_t)mr__compile_mode() << 32 |
                            space << 48};

    at = put(at, head, sizeof head);
    at = put(at, extra, n_extra);
    for (int i = 0; i < c->n_leaves; i++) {
        const mr_array *x = c->leaf[i];
        leaf_key k = {x->dtype, x->ndim};

        at = put(at, &k, sizeof k);
        if (kind == 0)
            at = put(at, x->dim, (size_t)x->ndim * sizeof *x->dim);
    }
    c->n_bytes = (size_t)(at - c->bytes);
}

static void
call_end(mr_call_state *c)
{
    if (c->args != NULL && c->leaf != c->few_leaves)
        mr__dealloc((void *)(uintptr_t)c->leaf);
    if (c->bytes != c->few_bytes)
        mr__dealloc(c->bytes);
    mr_tree_release(c->own_args);
    mr__vec_free(&c->captured);
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
call_init(mr_call_state *c)
{
    c->device = device_now();
    c->args = NULL;
    c->own_args = NULL;
    c->bytes = c->few_bytes;
    c->fn = NULL;
    c->tag = 0;
    c->captured = (mr_vec){0};
    c->traced = false;
}

static mr_code
call_of_tree(mr_call_state *c, const mr_tree *args)
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
call_of_arrays(mr_call_state *c, int n, mr_array *const *x)
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
const mr_tree *
mr__call_tree(mr_call_state *c)
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
call_key(mr_call_state *c, const void *extra, size_t n_extra)
{
    size_t n = key_size(c, n_extra);

    c->extra = extra;
    c->n_extra = n_extra;
    if (n > sizeof c->few_bytes) {
        c->bytes = mr__alloc(n);
        if (c->bytes == NULL) {
            c->bytes = c->few_bytes;
            return MR_E_MEMORY;
        }
    }
    write_key(c, extra, n_extra, 0);
    return MR_OK;
}

static mr_cache_key
cache_key(const mr_function *f, const mr_call_state *c)
{
    return (mr_cache_key){.function = f->id,
                          .hash = mr__cache_hash(f->id, c->bytes, c->n_bytes),
                          .bytes = c->bytes,
                          .n_bytes = c->n_bytes};
}

/* c's bytes become the key of its i-th tape. */
static mr_cache_key
tape_key(const mr_function *f, mr_call_state *c, int i)
{
    write_key(c, c->extra, c->n_extra, TAPE_KEY + (uint64_t)i);
    return cache_key(f, c);
}

static mr_tree *
tagged(void *ctx, const mr_tree *in)
{
    mr_call_state *c = ctx;

    return c->fn(c->ctx, in, &c->tag);
}

/* The function itself, on these arguments. */
mr_tree *
mr__call_function(mr_call_state *c, const mr_tree *in)
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

/* Part of an open trace: the call cannot be a program of its own. */
static bool
must_inline(const mr_call_state *c)
{
    if (mr__ctx.trace != 0 || mr__ctx.no_eval != NULL ||
        mr__compile_mode() == MR_COMPILE_DISABLED)
        return true;
    for (int i = 0; i < c->n_leaves; i++)
        if (c->leaf[i]->trace != 0 && mr__trace_live(c->leaf[i]->trace))
            return true;
    return false;
}

/* ---- tapes of shapeless functions
 * --------------------------------------------------------- */

/* The entry of a tape: it makes those of programs. */
static mr_cache_entry *
tape_entry(const mr_function *f, const mr_cache_key *key, mr_tape *tape,
           const mr_cache_entry *like)
{
    mr_cache_entry *e = mr__entry_new(f, key, like->n_leaves);

    if (e == NULL) {
        mr__tape_free(tape);
        return NULL;
    }
    e->tape = tape;
    e->tag = like->tag;
    e->shape = mr_tree_retain(like->shape);
    e->bytes = sizeof *e + key->n_bytes + mr__tape_bytes(tape);
    return e;
}

/* By a tape that holds for these shapes; *n: how many there are, when none
 * does, or -1 on failure. */
static mr_cache_entry *
entry_by_tape(mr_function *f, mr_call_state *c, const mr_cache_key *key, int *n)
{
    unsigned char *bytes = mr__alloc(key->n_bytes + 1);
    mr_cache_entry *e = NULL, *with;
    mr_cache_key own = *key;
    mr_making how;

    *n = bytes == NULL ? -1 : MAX_TAPES;
    if (bytes == NULL)
        return NULL;
    own.bytes = memcpy(bytes, key->bytes, key->n_bytes);
    for (int i = 0; e == NULL && i < MAX_TAPES; i++) {
        mr_cache_key k = tape_key(f, c, i);

        with = mr__cache_find_tape(&k);
        if (with == NULL) {
            *n = i;
            break;
        }
        how = (mr_making){f, NULL, with, true};
        e = mr__entry_make(c, &own, &how);
        mr__cache_release(with);
        if (e == NULL && how.failed) {
            *n = -1;
            break;
        }
    }
    write_key(c, c->extra, c->n_extra, 0); /* as it was */
    mr__dealloc(bytes);
    return e;
}

/* The function traced and recorded; why: NULL, or why it must be traced again
 * at other sizes. */
static mr_cache_entry *
entry_and_tape(mr_function *f, mr_call_state *c, const mr_cache_key *key, int i,
               const char **why)
{
    mr_tape *tape = i < MAX_TAPES ? mr__tape_new() : NULL;
    mr_cache_entry *e, *with;
    mr_cache_key k;

    *why = "it branches on sizes in more ways than are kept";
    if (tape == NULL && i < MAX_TAPES)
        return NULL;
    e = mr__entry_make(c, key, &(mr_making){f, tape, NULL, true});
    if (tape != NULL)
        *why = mr__tape_frozen(tape);
    if (e == NULL || tape == NULL || *why != NULL) {
        mr__tape_free(tape);
        return e;
    }
    k = tape_key(f, c, i);
    with = tape_entry(f, &k, tape, e);
    if (with != NULL)
        mr__cache_publish_tape(with);
    else
        mr_error_take(); /* the program is there */
    write_key(c, c->extra, c->n_extra, 0);
    return e;
}

/* ---- calling
 * ------------------------------------------------------------------------------
 */

static bool
call_arguments(const mr_cache_entry *e, const mr_call_state *c, mr_array **in)
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

/* The views of `like`, innermost first, of x. */
static mr_array *
seen_through(const mr_array *like, mr_array *x)
{
    mr_array *y;

    if (like->flags & MR_NODE_PLACEHOLDER)
        return x;
    x = seen_through(like->in[0], x);
    y = x == NULL ? NULL : mr__node_like(like, &x);
    if (y != NULL)
        y->stream = x->stream;
    return y;
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
    case MR_LEAF_VIEW: {
        mr_array *x = mr__node_output(tuple, l->index);

        return x == NULL ? NULL : seen_through(l->array, x);
    }
    default:
        return NULL;
    }
}

static bool
is_same_result(const mr_leaf *a, const mr_leaf *b)
{
    return a->kind == b->kind && a->index == b->index &&
           (a->kind == MR_LEAF_OUTPUT ||
            (a->kind == MR_LEAF_VIEW && a->array == b->array));
}

/* Two leaves of one output share one projection. */
static bool
result_leaves(const mr_cache_entry *e, mr_array *const *in, mr_array *tuple,
              mr_array **out)
{
    for (int i = 0; i < e->n_leaves; i++) {
        const mr_leaf *l = &e->leaf[i];
        int same = 0;

        while (same < i && !is_same_result(l, &e->leaf[same]))
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
apply(const mr_cached *found, const mr_call_state *c, results *r)
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

/* ---- what is said of many traces
 * ------------------------------------------------------ */

/* Of the trace that runs on this thread: a binding's words for its call. */
static _Thread_local char *note;

void
mr_trace_note(const char *lines)
{
    char *own = lines != NULL ? mr__strdup(lines) : NULL;

    if (lines != NULL && own == NULL)
        mr_error_take();
    mr__dealloc(note);
    note = own;
}

/* What the binding says of a call inside another trace is of no use: the words
 * for the one around it stay. */
static mr_tree *
call_inlined(mr_call_state *c, const mr_tree *in)
{
    char *outer = note;
    mr_tree *out;

    note = NULL;
    out = mr__call_function(c, in);
    mr__dealloc(note);
    note = outer;
    return out;
}

/* The arguments, a line each; NULL without memory. */
static char *
call_lines(const mr_call_state *c)
{
    size_t cap = (size_t)c->n_leaves * 64 + 1, at = 0;
    char *text = mr__alloc(cap), shape[48];

    if (text == NULL) {
        mr_error_take();
        return NULL;
    }
    text[0] = '\0';
    for (int i = 0; i < c->n_leaves; i++) {
        const mr_array *x = c->leaf[i];

        mr__shape_text(shape, sizeof shape, x->ndim, x->dim);
        at += (size_t)snprintf(text + at, cap - at, "array %d: %.10s %.32s\n",
                               i, mr_dtype_name((mr_dtype)x->dtype), shape);
    }
    return text;
}

/* What the entry was traced for, before count_trace takes the words. */
static void
keep_lines(mr_cache_entry *e, const mr_call_state *c)
{
    if (note == NULL) {
        e->lines = call_lines(c);
    } else {
        e->lines = mr__strdup(note);
        if (e->lines == NULL)
            mr_error_take();
    }
    e->bytes += e->lines == NULL ? 0 : strlen(e->lines) + 1;
}

static void
count_trace(mr_function *f, const mr_call_state *c, const char *frozen)
{
    uint64_t n = atomic_fetch_add_explicit(&f->traces, 1, memory_order_relaxed);
    char *lines = note;

    note = NULL;
    if (n > MR_MANY_TRACES) {
        mr__dealloc(lines);
        return;
    }
    mr__history_add(&f->history, f->name, n,
                    lines != NULL ? lines : call_lines(c), frozen);
}

static mr_cache_entry *
entry_at_miss(mr_function *f, mr_call_state *c, const mr_cache_key *key)
{
    const char *frozen = NULL;
    mr_cache_entry *e;
    int n_tapes;

    mr_trace_note(NULL);
    if (!f->shapeless) {
        e = mr__entry_make(c, key, &(mr_making){f, NULL, NULL, true});
    } else {
        e = entry_by_tape(f, c, key, &n_tapes);
        if (e != NULL)
            keep_lines(e, c);
        if (e != NULL || n_tapes < 0)
            return e;
        e = entry_and_tape(f, c, key, n_tapes, &frozen);
    }
    if (e != NULL) { /* a trace that failed says nothing of the arguments */
        keep_lines(e, c);
        count_trace(f, c, frozen);
    } else {
        mr_trace_note(NULL);
    }
    return e;
}

/* The program of this call, traced now if there is none.  User code waits from
 * here until the program was applied: it could end what `found` refers to. */
static bool
find_or_trace(mr_function *f, mr_call_state *c, const mr_cache_key *key,
              mr_cached *found)
{
    mr_cache_entry *e;

    mr__defer_user_code_begin();
    *found = mr__cache_find(key);
    if (found->entry != NULL)
        return true;
    mr__defer_user_code_end();
    mr__lock_assert_none("tracing a function");
    if (mr__jit_check() != MR_OK)
        return false;
    /* relaxed: a figure */
    atomic_fetch_add_explicit(&f->misses, 1, memory_order_relaxed);
    e = entry_at_miss(f, c, key);
    if (e == NULL)
        return false;
    mr__report_begin(e, f->name);
    mr__defer_user_code_begin();
    *found = mr__cache_publish(e);
    if (found->entry->report != NULL)
        mr__report_made(found->entry);
    return true;
}

static bool
call_compiled(mr_function *f, mr_call_state *c, const void *extra,
              size_t n_extra, results *r)
{
    mr_cache_key key;
    mr_cached found;
    mr_scope scope;
    bool ok;

    if (call_key(c, extra, n_extra) != MR_OK)
        return false;
    key = cache_key(f, c);
    if (!find_or_trace(f, c, &key, &found))
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
    mr_call_state c;

    if (!is_given(f, "function") || !is_given(args, "argument tree") ||
        !key_fits(key, key_bytes))
        return NULL;
    if (call_of_tree(&c, args) == MR_OK) {
        c.closure = trace_fn != NULL ? trace_fn : f->closure;
        if (must_inline(&c))
            r.tree = call_inlined(&c, args);
        else
            call_compiled(f, &c, key, key_bytes, &r);
    }
    call_end(&c);
    mr__log_flush();
    if (__builtin_expect(mr__ctx.deep != NULL, 0) && !mr__deep_evaluate()) {
        mr__scope_disown_tree(r.tree);
        return NULL;
    }
    return r.tree;
}

mr_tree *
mr_call(mr_function *f, const mr_tree *args)
{
    return mr_call_keyed(f, args, NULL, 0, NULL);
}

/* Part of an open trace: what the function gave, taken apart. */
static bool
inline_arrays(mr_call_state *c, mr_call_results *r)
{
    const mr_tree *in = mr__call_tree(c);
    mr_scope s = mr_scope_begin();
    mr_tree *out = in == NULL || s.token == 0 ? NULL : call_inlined(c, in);
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
    mr_call_state c;

    if (!is_given(out, "place for the results"))
        return MR_E_NULL;
    out->n = 0;
    out->leaf = out->few;
    out->captured = NULL;
    out->n_captured = 0;
    out->traced = false;
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
    if (ok && c.traced) {
        out->traced = true;
        out->captured = c.captured.v;
        out->n_captured = (int)c.captured.n;
        c.captured = (mr_vec){0};
    }
    call_end(&c);
    mr__log_flush();
    if (__builtin_expect(mr__ctx.deep != NULL, 0) && !mr__deep_evaluate()) {
        mr_call_results_end(out);
        ok = false;
    }
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
    mr__dealloc(r->captured);
    r->captured = NULL;
    r->n_captured = 0;
    r->n = 0;
    r->leaf = r->few;
}

char *
mr_function_explain_as(const mr_function *f, mr_explain_form form)
{
    if (f == NULL)
        return mr__fail_null(MR_E_NULL, "the function is NULL");
    if (form == MR_EXPLAIN_TEXT || form == MR_EXPLAIN_DOT)
        return mr__explain(f->id, f->name, form);
    return mr__fail_null(
        MR_E_VALUE, "form is %d: use one of enum mr_explain_form", (int)form);
}

char *
mr_function_explain(const mr_function *f)
{
    return mr_function_explain_as(f, MR_EXPLAIN_TEXT);
}

/* ---- figures
 * --------------------------------------------------------------------------------
 */

static mr_code
give_info(const mr_cache_info *info, mr_cache_info *out)
{
    return mr__sized_give(out, info, sizeof *info, "mr_cache_info");
}

mr_code
mr_function_cache_info(const mr_function *f, mr_cache_info *out)
{
    mr_cache_info info = {0};

    if (f == NULL)
        return mr__fail(MR_E_NULL, "the function is NULL");
    mr__cache_info(f->owner, &info);
    /* relaxed: figures */
    info.traces = atomic_load_explicit(&f->traces, memory_order_relaxed);
    info.misses = atomic_load_explicit(&f->misses, memory_order_relaxed);
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

    mr__cache_info(NULL, &info);
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

uint64_t
mr_compile_set_cache_bytes_limit(uint64_t bytes)
{
    return mr__cache_set_bytes_limit(bytes);
}
