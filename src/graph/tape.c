/* SPDX-License-Identifier: Apache-2.0
 *
 * tape.c -- recording what a shapeless trace did, and doing it again.
 *
 * Values.  An array on the tape has a number: the placeholders first, then
 * what the steps gave, in order.  In a recorded argument a number n stands as
 * the odd address 2n + 1; any other array is a constant, which the tape keeps.
 * A door may give one of its arguments back (a reshape to the shape that
 * there is); at other sizes it would not, so its result gets an identity of
 * its own, a view.
 *
 * Sizes.  A handle is an integer above HANDLE, or a NaN of one payload, with
 * the number of a size in its low bits.  Sizes are steps too, so a size is
 * known before a step that uses it.
 *
 * Called by: the front doors, compile/function.c.  Calls: base/, node.h.
 */
#include "graph/tape.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "marram/size.h"
#include "marram/tree.h"

/* Twenty bits that mark a handle: no size, and no sum of sizes, comes near the
 * integer.  Then twenty of the tape's serial number, so that what outlived
 * its trace is not taken for a size of another, and twenty-four of the index.
 */
#define HANDLE       ((uint64_t)0x6d617 << 44)
#define HANDLE_NAN   ((uint64_t)0x7ffcd << 44)
#define HANDLE_MASK  (~(uint64_t)0 << 24)
#define HANDLE_INDEX (~HANDLE_MASK)
#define SERIAL_MASK  ((uint64_t)0xfffff << 24)

typedef enum step_kind {
    STEP_CALL,
    STEP_TRANSFORM, /* and the steps of its function, up to `end` */
    STEP_DIM,       /* a size is the size of `axis` of value `x` */
    STEP_MATH,      /* or `op` of a and b */
    STEP_COMPARE    /* a branch: whether a `relation` b */
} step_kind;

/* A tree: its structure over stand-ins, and its leaves as the tape has them. */
typedef struct kept_tree {
    mr_tree *shape;
    mr_array **leaf;
    int n;
} kept_tree;

/* A transform, and what its function was given and gave. */
typedef struct kept_transform {
    mr_tape_transform given; /* without trees */
    kept_tree tree[2], out;
    uint32_t grad_mode;
    int first_in; /* number of the first value that the function gets */
    size_t end;
} kept_transform;

typedef struct step {
    step_kind kind;
    /* calls */
    const mr_tape_door *door;
    const char *site;
    uint32_t stream;
    void *given; /* or a kept_transform */
    int n_out;   /* results, the next values */
    /* sizes */
    int32_t x, axis;
    mr_size_op op;
    mr_scalar a, b;
    mr_size_relation relation;
    bool outcome;
} step;

struct mr_tape {
    mr_arena arena;
    mr_vec steps;
    mr_map number; /* array -> value number + 1, while it is open */
    mr_vec values; /* the arrays, retained while it is open */
    mr_vec consts; /* retained */
    mr_vec trees;  /* structures, retained */
    mr_vec sizes;  /* mr_scalar: what they are in the trace */
    int n_values;
    int *out; /* value numbers, or -1 - k: constant k */
    int n_out;
    uint64_t serial; /* in the place that it has in a handle */
    uint32_t depth;  /* of traces */
    const char *frozen;
};

/* ---- handles --------------------------------------------------------------
 */

static mr_scalar
handle(const mr_tape *t, size_t index, bool is_float)
{
    uint64_t bits =
        (is_float ? HANDLE_NAN : HANDLE) | t->serial | (uint64_t)index;
    mr_scalar s = {.kind = is_float ? MR_SCALAR_FLOAT : MR_SCALAR_INT};

    memcpy(&s.as, &bits, sizeof bits);
    return s;
}

/* The number of a size on t, or -1. */
static int64_t
handle_index(const mr_tape *t, mr_scalar v)
{
    uint64_t bits, want;

    if (t == NULL || (v.kind != MR_SCALAR_INT && v.kind != MR_SCALAR_FLOAT))
        return -1;
    memcpy(&bits, &v.as, sizeof bits);
    want = (v.kind == MR_SCALAR_INT ? HANDLE : HANDLE_NAN) | t->serial;
    if ((bits & HANDLE_MASK) != want || (bits & HANDLE_INDEX) >= t->sizes.n)
        return -1;
    return (int64_t)(bits & HANDLE_INDEX);
}

bool
mr__tape_is_size(mr_scalar v)
{
    return handle_index(mr__ctx.tape, v) >= 0;
}

static mr_scalar
integer(int64_t v)
{
    return (mr_scalar){.kind = MR_SCALAR_INT, .as.i = v};
}

static mr_scalar
real(double v)
{
    return (mr_scalar){.kind = MR_SCALAR_FLOAT, .as.f = v};
}

/* What the sizes are: in the trace, or where a tape is played. */
typedef struct sizes {
    const mr_tape *t;
    mr_scalar *now; /* NULL: those of the trace */
} sizes;

static mr_scalar
size_of(const sizes *s, mr_scalar v)
{
    int64_t i = handle_index(s->t, v);

    if (i < 0)
        return v;
    return s->now != NULL ? s->now[i] : *(mr_scalar *)s->t->sizes.v[i];
}

static int64_t
int_of(const sizes *s, int64_t v)
{
    return size_of(s, integer(v)).as.i;
}

/* ---- arithmetic -----------------------------------------------------------
 */

static double
as_double(mr_scalar v)
{
    switch (v.kind) {
    case MR_SCALAR_FLOAT:
        return v.as.f;
    case MR_SCALAR_UINT:
        return (double)v.as.u;
    case MR_SCALAR_BOOL:
        return v.as.b;
    case MR_SCALAR_INT:
    case MR_SCALAR_COMPLEX:
        break;
    }
    return (double)v.as.i;
}

static mr_code
too_large(void)
{
    return mr__fail(MR_E_OVERFLOW, "a size beyond 64 bits");
}

static mr_code
by_zero(void)
{
    return mr__fail(MR_E_VALUE, "a size is divided by zero");
}

static mr_code
int_power(int64_t a, int64_t b, int64_t *out)
{
    int64_t r = 1;

    for (; b > 0 && r != 0 && !(a == 1); b--)
        if (__builtin_mul_overflow(r, a, &r))
            return too_large();
    *out = r;
    return MR_OK;
}

static int64_t
floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static mr_code
int_math(mr_size_op op, int64_t a, int64_t b, mr_scalar *out)
{
    int64_t r = 0;
    mr_code code = MR_OK;

    switch (op) {
    case MR_SIZE_ADD:
        code = __builtin_add_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_SUBTRACT:
        code = __builtin_sub_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_MULTIPLY:
        code = __builtin_mul_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_FLOOR_DIVIDE:
    case MR_SIZE_REMAINDER:
        if (b == 0)
            return by_zero();
        if (a == INT64_MIN && b == -1)
            return too_large();
        r = floor_divide(a, b);
        r = op == MR_SIZE_FLOOR_DIVIDE ? r : a - r * b;
        break;
    case MR_SIZE_POWER:
        if (b >= 0) {
            code = int_power(a, b, &r);
            break;
        }
        *out = real(pow((double)a, (double)b));
        return MR_OK;
    case MR_SIZE_DIVIDE:
        if (b == 0)
            return by_zero();
        *out = real((double)a / (double)b);
        return MR_OK;
    case MR_SIZE_MINIMUM:
        r = a < b ? a : b;
        break;
    case MR_SIZE_MAXIMUM:
        r = a > b ? a : b;
        break;
    }
    *out = integer(r);
    return code;
}

static mr_code
float_math(mr_size_op op, double a, double b, mr_scalar *out)
{
    double r = 0;

    switch (op) {
    case MR_SIZE_ADD:
        r = a + b;
        break;
    case MR_SIZE_SUBTRACT:
        r = a - b;
        break;
    case MR_SIZE_MULTIPLY:
        r = a * b;
        break;
    case MR_SIZE_FLOOR_DIVIDE:
    case MR_SIZE_REMAINDER:
    case MR_SIZE_DIVIDE:
        if (b == 0)
            return by_zero();
        r = op == MR_SIZE_DIVIDE ? a / b : floor(a / b);
        r = op == MR_SIZE_REMAINDER ? a - r * b : r;
        break;
    case MR_SIZE_POWER:
        r = pow(a, b);
        break;
    case MR_SIZE_MINIMUM:
        r = b < a ? b : a;
        break;
    case MR_SIZE_MAXIMUM:
        r = b > a ? b : a;
        break;
    }
    *out = real(r);
    return MR_OK;
}

static mr_code
math(mr_size_op op, mr_scalar a, mr_scalar b, mr_scalar *out)
{
    if (a.kind == MR_SCALAR_COMPLEX || b.kind == MR_SCALAR_COMPLEX)
        return mr__fail(MR_E_VALUE, "a size and a complex number");
    if (a.kind == MR_SCALAR_BOOL)
        a = integer(a.as.b);
    if (b.kind == MR_SCALAR_BOOL)
        b = integer(b.as.b);
    if (a.kind == MR_SCALAR_INT && b.kind == MR_SCALAR_INT)
        return int_math(op, a.as.i, b.as.i, out);
    return float_math(op, as_double(a), as_double(b), out);
}

static bool
holds(mr_scalar a, mr_size_relation r, mr_scalar b)
{
    bool exact = a.kind == MR_SCALAR_INT && b.kind == MR_SCALAR_INT;
    double x = as_double(a), y = as_double(b);
    bool less = exact ? a.as.i < b.as.i : x < y;
    bool greater = exact ? a.as.i > b.as.i : x > y;
    bool equal = exact ? a.as.i == b.as.i : x == y;

    switch (r) {
    case MR_SIZE_LESS:
        return less;
    case MR_SIZE_LESS_EQUAL:
        return less || equal;
    case MR_SIZE_EQUAL:
        return equal;
    case MR_SIZE_NOT_EQUAL:
        return !equal;
    case MR_SIZE_GREATER:
        return greater;
    case MR_SIZE_GREATER_EQUAL:
        return greater || equal;
    }
    return false;
}

/* ---- recording ------------------------------------------------------------
 */

mr_tape *
mr__tape_new(void)
{
    static _Atomic uint64_t next; /* relaxed: a counter */
    mr_tape *t = mr__alloc_zero(sizeof *t);

    if (t != NULL)
        t->serial = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed)
                        << 24 &
                    SERIAL_MASK;
    return t;
}

static void
drop_values(mr_tape *t)
{
    for (size_t i = 0; i < t->values.n; i++)
        mr__release(t->values.v[i]);
    t->values.n = 0;
}

void
mr__tape_free(mr_tape *t)
{
    if (t == NULL)
        return;
    drop_values(t);
    for (size_t i = 0; i < t->consts.n; i++)
        mr__release(t->consts.v[i]);
    for (size_t i = 0; i < t->trees.n; i++)
        mr_tree_release(t->trees.v[i]);
    mr__vec_free(&t->trees);
    mr__vec_free(&t->values);
    mr__vec_free(&t->consts);
    mr__vec_free(&t->steps);
    mr__vec_free(&t->sizes);
    mr__map_free(&t->number);
    mr__arena_free(&t->arena);
    mr__dealloc(t);
}

static void
freeze(mr_tape *t, const char *why)
{
    if (t->frozen == NULL)
        t->frozen = why;
}

const char *
mr__tape_frozen(const mr_tape *t)
{
    return t->frozen;
}

size_t
mr__tape_bytes(const mr_tape *t)
{
    return sizeof *t + mr__arena_bytes(&t->arena) +
           (t->steps.cap + t->consts.cap + t->sizes.cap) * sizeof(void *);
}

/* x is the next value. */
static bool
add_value(mr_tape *t, mr_array *x)
{
    if (!mr__vec_push(&t->values, x))
        return false;
    mr__retain(x);
    return mr__map_put(&t->number, x, (void *)(uintptr_t)(t->values.n));
}

bool
mr__tape_open(mr_tape *t, mr_array *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!add_value(t, x[i]))
            return false;
    t->depth = mr__ctx.trace_depth;
    mr__ctx.tape = t;
    return true;
}

/* Can a step be recorded: not inside a transform of its own. */
static bool
is_open(const mr_tape *t)
{
    return t != NULL && t->sizes.n < HANDLE_INDEX && t->frozen == NULL &&
           t->depth == mr__ctx.trace_depth;
}

static int64_t
number_of(const mr_tape *t, const mr_array *x)
{
    return (int64_t)(uintptr_t)mr__map_get(&t->number, x) - 1;
}

/* x as the tape has it: a number, or a constant; NULL when it is neither, or
 * there is no memory. */
static mr_array *
array_kept(mr_tape *t, mr_array *x)
{
    int64_t i = x == NULL || x == MR_NONE ? -1 : number_of(t, x);

    if (i >= 0)
        return (mr_array *)(uintptr_t)(2 * i + 1);
    if (x == NULL || x == MR_NONE)
        return x;
    if (mr__state(x) == MR_NEW && mr__trace_live(x->trace)) {
        freeze(t, "an array comes from a transform or from outside its trace");
        return NULL;
    }
    if (!mr__vec_push(&t->consts, x))
        return NULL;
    return mr__retain(x);
}

static const void *
copied(mr_arena *a, const void *p, size_t bytes)
{
    void *q = p == NULL ? NULL : mr__arena_alloc(a, bytes + 1);

    if (q != NULL && bytes > 0)
        memcpy(q, p, bytes);
    return q;
}

/* All kinds of lists begin alike. */
_Static_assert(offsetof(mr_shape, n) == offsetof(mr_ints, n) &&
                   sizeof(mr_shape) == sizeof(mr_ints),
               "shapes are read as lists of integers");

/* One argument, in place: what it points to becomes the tape's. */
static bool
keep_argument(mr_tape *t, const mr_tape_arg *arg, char *given)
{
    char *at = given + arg->at;

    switch (arg->kind) {
    case MR_TAPE_ARRAY: {
        mr_array **x = (mr_array **)(void *)at;

        *x = array_kept(t, *x);
        return *x != NULL;
    }
    case MR_TAPE_ARRAYS: {
        mr_array **const *list = (mr_array * *const *)(void *)at;
        int n = *(const int *)(const void *)(given + arg->count);
        mr_array **own =
            mr__arena_alloc(&t->arena, (size_t)(n + 1) * sizeof *own);

        for (int i = 0; own != NULL && i < n; i++)
            if ((own[i] = array_kept(t, (*list)[i])) == NULL)
                return false;
        memcpy(at, &own, sizeof own);
        return own != NULL;
    }
    case MR_TAPE_INTS: {
        mr_ints *v = (mr_ints *)(void *)at;
        bool some = v->n > 0;

        v->v =
            some ? copied(&t->arena, v->v, (size_t)v->n * sizeof *v->v) : NULL;
        return v->v != NULL || !some;
    }
    case MR_TAPE_AXES: {
        mr_axes *v = (mr_axes *)(void *)at;
        bool some = v->n > 0;

        v->axis =
            some ? copied(&t->arena, v->axis, (size_t)v->n * sizeof *v->axis)
                 : NULL;
        return v->axis != NULL || !some;
    }
    case MR_TAPE_TEXT: {
        const char **s = (const char **)(void *)at;
        bool some = *s != NULL;

        *s = copied(&t->arena, *s, some ? strlen(*s) + 1 : 0);
        return *s != NULL || !some;
    }
    case MR_TAPE_PLAIN:
    case MR_TAPE_INT:
    case MR_TAPE_FLOAT:
    case MR_TAPE_SCALAR:
        break;
    }
    return true;
}

static step *
step_new(mr_tape *t, step_kind kind)
{
    step *s = mr__arena_zero(&t->arena, sizeof *s);

    if (s == NULL || !mr__vec_push(&t->steps, s))
        return NULL;
    s->kind = kind;
    return s;
}

/* The call, as it was given.  False: no memory, or it cannot be recorded. */
static bool
record(mr_tape *t, const mr_tape_door *d, const char *site, const void *given,
       int n_out)
{
    char *own = mr__arena_alloc(&t->arena, (size_t)d->bytes + 1);
    step *s;

    if (own == NULL)
        return false;
    if (d->bytes > 0)
        memcpy(own, given, d->bytes);
    for (int i = 0; i < d->n_args; i++)
        if (!keep_argument(t, &d->arg[i], own))
            return false;
    s = step_new(t, STEP_CALL);
    if (s == NULL)
        return false;
    s->door = d;
    s->site = mr__ctx.site != NULL ? mr__ctx.site : site;
    s->stream = mr__ctx.stream;
    s->given = own;
    s->n_out = n_out;
    return true;
}

/* ---- arguments with sizes and arrays as they are now -----------------------
 */

typedef struct filling {
    sizes sizes;
    mr_array *const *value; /* NULL: arrays are themselves */
    mr_arena *arena;
} filling;

static mr_array *
array_now(const filling *f, mr_array *x)
{
    return f->value != NULL && ((uintptr_t)x & 1) ? f->value[(uintptr_t)x >> 1]
                                                  : x;
}

static bool
fill_argument(const filling *f, const mr_tape_arg *arg, char *given)
{
    char *at = given + arg->at;

    switch (arg->kind) {
    case MR_TAPE_ARRAY: {
        mr_array **x = (mr_array **)(void *)at;

        *x = array_now(f, *x);
        break;
    }
    case MR_TAPE_ARRAYS: {
        mr_array *const *list = *(mr_array *const *const *)(void *)at;
        int n = *(const int *)(const void *)(given + arg->count);
        mr_array **own;

        if (f->value == NULL)
            break;
        own = mr__arena_alloc(f->arena, (size_t)(n + 1) * sizeof *own);
        if (own == NULL)
            return false;
        for (int i = 0; i < n; i++)
            own[i] = array_now(f, list[i]);
        memcpy(at, &own, sizeof own);
        break;
    }
    case MR_TAPE_INT: {
        int64_t *v = (int64_t *)(void *)at;

        *v = int_of(&f->sizes, *v);
        break;
    }
    case MR_TAPE_INTS: {
        mr_ints *v = (mr_ints *)(void *)at;
        int64_t *own;

        if (v->n <= 0 || v->v == NULL)
            break;
        own = mr__arena_alloc(f->arena, (size_t)v->n * sizeof *own);
        if (own == NULL)
            return false;
        for (int64_t i = 0; i < v->n; i++)
            own[i] = int_of(&f->sizes, v->v[i]);
        v->v = own;
        break;
    }
    case MR_TAPE_FLOAT: {
        double *v = (double *)(void *)at;
        mr_scalar now = size_of(&f->sizes, real(*v));

        *v = as_double(now);
        break;
    }
    case MR_TAPE_SCALAR: {
        mr_scalar *v = (mr_scalar *)(void *)at;

        *v = size_of(&f->sizes, *v);
        break;
    }
    case MR_TAPE_PLAIN:
    case MR_TAPE_AXES:
    case MR_TAPE_TEXT:
        break;
    }
    return true;
}

/* The door, with its arguments filled in; no tape is open in it. */
static void *
call_door(const mr_tape_door *d, const char *site, const void *given,
          const filling *f)
{
    char *own = mr__arena_alloc(f->arena, (size_t)d->bytes + 1);

    if (own == NULL)
        return NULL;
    if (d->bytes > 0)
        memcpy(own, given, d->bytes);
    for (int i = 0; i < d->n_args; i++)
        if (!fill_argument(f, &d->arg[i], own))
            return NULL;
    return d->call(site, own);
}

/* ---- a call while a tape is open -------------------------------------------
 */

/* x, or a view of it when it has an identity already. */
static mr_array *
own_identity(const mr_tape *t, mr_array *x)
{
    if (number_of(t, x) < 0 && mr__state(x) == MR_NEW)
        return x;
    return mr__node_new(&mr__op_tracer, NULL, 1, &x);
}

static void *
identify_array(mr_tape *t, mr_array *x)
{
    x = own_identity(t, x);
    return x != NULL && add_value(t, x) ? x : NULL;
}

static void *
identify_tree(mr_tape *t, mr_tree *tree)
{
    int n = mr_tree_n_leaves(tree);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_tree *out = NULL;
    bool ok = leaf != NULL && mr_tree_leaves(tree, leaf, n) == MR_OK;

    for (int i = 0; ok && i < n; i++) {
        leaf[i] = own_identity(t, leaf[i]);
        ok = leaf[i] != NULL && add_value(t, leaf[i]);
    }
    if (ok)
        out = mr_tree_like(tree, leaf, n);
    mr__dealloc(leaf);
    return out;
}

static void *
call_and_record(mr_tape *t, const mr_tape_door *d, const char *site,
                const void *given, const filling *f)
{
    void *r = call_door(d, site, given, f);
    int n;

    if (r == NULL || t->depth != mr__ctx.trace_depth || t->frozen != NULL)
        return r;
    n = d->gives_tree ? mr_tree_n_leaves(r) : 1;
    if (!record(t, d, site, given, n))
        return mr__error_pending() ? NULL : r;
    return d->gives_tree ? identify_tree(t, r) : identify_array(t, r);
}

/* The result goes from the scope of the call to whoever has results now, as a
 * front door's does. */
static void *
hand_on(mr_scope scope, void *r, bool is_tree)
{
    if (r != NULL && is_tree)
        mr_tree_retain(r);
    else if (r != NULL)
        mr__retain(r);
    mr_scope_end(scope);
    if (r == NULL)
        return NULL;
    return is_tree ? (void *)mr__scope_own_tree(r) : (void *)mr__scope_own(r);
}

void *
mr__tape_call(const mr_tape_door *d, const char *site, const void *given)
{
    mr_tape *t = mr__ctx.tape;
    mr_arena scratch = {0};
    filling f = {{t, NULL}, NULL, &scratch};
    mr_scope scope = mr_scope_begin();
    void *r;

    if (scope.token == 0)
        return NULL;
    mr__ctx.tape = NULL;
    r = call_and_record(t, d, site, given, &f);
    r = hand_on(scope, r, d->gives_tree);
    mr__ctx.tape = t;
    mr__arena_free(&scratch);
    return r;
}

/* ---- transforms while a tape is open ----------------------------------------
 */

/* The structure of a tree over one small stand-in. */
static mr_tree *
structure_of(mr_tape *t, const mr_tree *tree, int n)
{
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_array *stand_in = mr_bool(false);
    mr_tree *shape = NULL;

    for (int i = 0; leaf != NULL && i < n; i++)
        leaf[i] = stand_in;
    if (leaf != NULL && stand_in != NULL)
        shape = mr_tree_like(tree, leaf, n);
    mr__dealloc(leaf);
    return shape != NULL && mr__vec_push(&t->trees, shape)
               ? mr_tree_retain(shape)
               : NULL;
}

/* In a scope: what makes the structure is temporary. */
static bool
keep_tree(mr_tape *t, const mr_tree *tree, kept_tree *out)
{
    mr_scope s = mr_scope_begin();
    bool ok;

    if (s.token == 0)
        return false;
    out->n = mr_tree_n_leaves(tree);
    out->leaf =
        mr__arena_alloc(&t->arena, (size_t)(out->n + 1) * sizeof *out->leaf);
    out->shape = structure_of(t, tree, out->n);
    ok = out->leaf != NULL && out->shape != NULL &&
         mr_tree_leaves(tree, out->leaf, out->n) == MR_OK;
    for (int i = 0; ok && i < out->n; i++)
        ok = (out->leaf[i] = array_kept(t, out->leaf[i])) != NULL;
    mr_scope_end(s);
    return ok;
}

/* The user's function inside a transform. */
typedef struct nested {
    mr_tape *t;
    mr_fn fn;
    void *ctx;
    kept_transform *kept; /* NULL: not recorded */
    bool ok;              /* it was recorded whole */
} nested;

static bool
nested_in(nested *n, const mr_tree *in)
{
    int leaves = mr_tree_n_leaves(in);
    mr_array **leaf = mr__alloc_array((size_t)leaves + 1, sizeof *leaf);
    bool ok = leaf != NULL && mr_tree_leaves(in, leaf, leaves) == MR_OK;

    n->kept->first_in = (int)n->t->values.n;
    for (int i = 0; ok && i < leaves; i++)
        ok = add_value(n->t, leaf[i]);
    mr__dealloc(leaf);
    return ok;
}

static mr_tree *
nested_call(void *ctx, const mr_tree *in)
{
    nested *n = ctx;
    mr_tape *t = n->t;
    uint32_t depth = t->depth;
    mr_tree *out = NULL;

    if (n->kept == NULL || nested_in(n, in)) {
        if (n->kept != NULL)
            t->depth = mr__ctx.trace_depth;
        mr__ctx.tape = t;
        out = n->fn(n->ctx, in);
        mr__ctx.tape = NULL;
        t->depth = depth;
    }
    if (out != NULL && n->kept != NULL && t->frozen == NULL) {
        n->ok = keep_tree(t, out, &n->kept->out);
        n->kept->end = t->steps.n;
        if (!n->ok && t->frozen == NULL)
            freeze(t, "no memory");
    }
    return out;
}

/* The step, before its function's own; NULL: it cannot be recorded. */
static kept_transform *
keep_transform(mr_tape *t, const mr_tape_transform *given, step **at)
{
    kept_transform *k = mr__arena_zero(&t->arena, sizeof *k);

    if (k == NULL)
        return NULL;
    k->given = *given;
    k->grad_mode = mr__ctx.grad_mode;
    for (int i = 0; i < 2; i++) {
        size_t bytes = given->n[i] > 0 && given->list[i] != NULL
                           ? (size_t)given->n[i] * sizeof *given->list[i]
                           : 0;

        k->given.tree[i] = NULL;
        k->given.list[i] =
            bytes > 0 ? copied(&t->arena, given->list[i], bytes) : NULL;
        if ((bytes > 0 && k->given.list[i] == NULL) ||
            (given->tree[i] != NULL &&
             !keep_tree(t, given->tree[i], &k->tree[i])))
            return NULL;
    }
    *at = step_new(t, STEP_TRANSFORM);
    if (*at == NULL)
        return NULL;
    (*at)->given = k;
    (*at)->site = mr__ctx.site;
    (*at)->stream = mr__ctx.stream;
    return k;
}

mr_tree *
mr__tape_call_transform(const mr_tape_transform *given, mr_fn fn, void *ctx,
                        bool foreign)
{
    mr_tape *t = mr__ctx.tape;
    nested n = {t, fn, ctx, NULL, false};
    mr_scope scope = mr_scope_begin();
    step *at = NULL;
    mr_tree *r;

    if (scope.token == 0)
        return NULL;
    mr__ctx.tape = NULL;
    if (t->frozen == NULL && t->depth == mr__ctx.trace_depth) {
        n.kept = keep_transform(t, given, &at);
        if (n.kept == NULL)
            freeze(t, "no memory");
    }
    r = given->call(given, nested_call, &n, foreign);
    if (r != NULL && n.ok && t->frozen == NULL) {
        at->n_out = mr_tree_n_leaves(r);
        r = identify_tree(t, r);
    } else if (n.kept != NULL && !(n.ok && r != NULL)) {
        freeze(t, "a transform failed");
    }
    r = hand_on(scope, r, true);
    mr__ctx.tape = t;
    return r;
}

void
mr__tape_read(const mr_array *x)
{
    if (mr__ctx.tape != NULL && mr__trace_live(x->trace) &&
        mr__state(x) == MR_NEW)
        freeze(mr__ctx.tape, "a size was read as a plain number");
}

bool
mr__tape_close(mr_tape *t, mr_array *const *out, int n)
{
    bool ok;

    mr__ctx.tape = NULL;
    t->out = mr__arena_alloc(&t->arena, (size_t)(n + 1) * sizeof *t->out);
    ok = t->out != NULL;
    for (int i = 0; ok && t->frozen == NULL && i < n; i++) {
        mr_array *x = array_kept(t, out[i]);

        ok = x != NULL;
        t->out[i] =
            (uintptr_t)x & 1 ? (int)((uintptr_t)x >> 1) : -(int)t->consts.n;
    }
    t->n_out = n;
    t->n_values = (int)t->values.n;
    drop_values(t);
    mr__map_free(&t->number);
    if (!ok)
        freeze(t, "no memory");
    return t->frozen == NULL;
}

/* ---- sizes while a tape is open --------------------------------------------
 */

bool
mr_size_tracing(void)
{
    return is_open(mr__ctx.tape);
}

/* A size of value v, from a step that is on the tape. */
static bool
add_size(mr_tape *t, mr_scalar v, mr_scalar *out)
{
    mr_scalar *kept = mr__arena_alloc(&t->arena, sizeof *kept);

    if (kept == NULL || !mr__vec_push(&t->sizes, kept))
        return false;
    *kept = v;
    *out = handle(t, t->sizes.n - 1, v.kind == MR_SCALAR_FLOAT);
    return true;
}

int64_t
mr_dim(const mr_array *x, int axis)
{
    mr_tape *t = mr__ctx.tape;
    int64_t v, i;
    mr_scalar out;
    step *s;

    mr__ctx.tape = NULL; /* not a read */
    v = mr_array_dim(x, axis);
    mr__ctx.tape = t;
    if (v < 0 || t == NULL)
        return v;
    i = number_of(t, x);
    if (!is_open(t) || i < 0) {
        mr__tape_read(x);
        return v;
    }
    s = step_new(t, STEP_DIM);
    if (s == NULL || !add_size(t, integer(v), &out))
        return -1;
    s->x = (int32_t)i;
    s->axis = axis < 0 ? axis + x->ndim : axis;
    return out.as.i;
}

mr_scalar
mr_size_value(mr_scalar a)
{
    sizes here = {mr__ctx.tape, NULL};

    return size_of(&here, a);
}

mr_shape
mr_size_shape(const mr_array *x)
{
    mr_tape *t = mr__ctx.tape;
    mr_shape s;

    mr__ctx.tape = NULL; /* not a read */
    s = mr_array_shape(x);
    mr__ctx.tape = t;
    return s;
}

mr_scalar
mr_size_fix(mr_scalar a)
{
    if (mr__tape_is_size(a))
        freeze(mr__ctx.tape, "a size became a plain number");
    return mr_size_value(a);
}

bool
mr_size_is_symbolic(mr_scalar a)
{
    return mr__tape_is_size(a);
}

bool
mr_dim_is_symbolic(int64_t a)
{
    return mr__tape_is_size(integer(a));
}

mr_code
mr_size_math(mr_size_op op, mr_scalar a, mr_scalar b, mr_scalar *out)
{
    mr_tape *t = mr__ctx.tape;
    bool symbolic = mr__tape_is_size(a) || mr__tape_is_size(b);
    mr_scalar v;
    mr_code code;
    step *s;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the result is NULL");
    if ((int)op < MR_SIZE_ADD || op > MR_SIZE_MAXIMUM)
        return mr__fail(MR_E_VALUE, "%d is none of enum mr_size_op", (int)op);
    code = math(op, mr_size_value(a), mr_size_value(b), &v);
    *out = v;
    if (code != MR_OK || !symbolic)
        return code;
    if (!is_open(t)) {
        freeze(t, "a size is used inside a transform");
        return MR_OK;
    }
    s = step_new(t, STEP_MATH);
    if (s == NULL || !add_size(t, v, out))
        return MR_E_MEMORY;
    s->op = op;
    s->a = a;
    s->b = b;
    return MR_OK;
}

int64_t
mr_dim_math(mr_size_op op, int64_t a, int64_t b)
{
    mr_scalar out;

    if (mr_size_math(op, integer(a), integer(b), &out) != MR_OK)
        return -1;
    if (out.kind == MR_SCALAR_INT)
        return out.as.i;
    mr__fail(MR_E_VALUE, "a float is no size");
    return -1;
}

bool
mr_size_compare(mr_scalar a, mr_size_relation r, mr_scalar b)
{
    mr_tape *t = mr__ctx.tape;
    bool outcome = holds(mr_size_value(a), r, mr_size_value(b));
    step *s;

    if (!mr__tape_is_size(a) && !mr__tape_is_size(b))
        return outcome;
    s = is_open(t) ? step_new(t, STEP_COMPARE) : NULL;
    if (s == NULL) {
        freeze(t, "a size is compared where it cannot be followed");
        return outcome;
    }
    s->a = a;
    s->b = b;
    s->relation = r;
    s->outcome = outcome;
    return outcome;
}

/* ---- playing ---------------------------------------------------------------
 */

typedef struct player {
    const mr_tape *t;
    mr_array **value;
    int n_values;
    mr_scalar *size;
    int n_sizes;
    mr_arena scratch;
    bool fits;
} player;

static bool
play_tree(player *p, const step *s, const mr_tree *r)
{
    if (mr_tree_n_leaves(r) != s->n_out) {
        p->fits = false;
        return false;
    }
    if (mr_tree_leaves(r, p->value + p->n_values, s->n_out) != MR_OK)
        return false;
    p->n_values += s->n_out;
    return true;
}

static bool
play_call(player *p, const step *s)
{
    filling f = {{p->t, p->size}, p->value, &p->scratch};
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream;
    void *r;

    mr__ctx.site = s->site;
    mr__ctx.stream = s->stream;
    r = call_door(s->door, s->site, s->given, &f);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    if (r == NULL || s->door->gives_tree)
        return r != NULL && play_tree(p, s, r);
    p->value[p->n_values++] = r;
    return true;
}

static bool play_steps(player *p, size_t from, size_t to);

/* The steps of a transform's function. */
typedef struct played {
    player *p;
    const kept_transform *k;
    size_t from;
} played;

static mr_tree *
tree_now(const player *p, const kept_tree *k)
{
    filling f = {{p->t, p->size}, p->value, NULL};
    mr_array **leaf = mr__alloc_array((size_t)k->n + 1, sizeof *leaf);
    mr_tree *tree = NULL;

    for (int i = 0; leaf != NULL && i < k->n; i++)
        leaf[i] = array_now(&f, k->leaf[i]);
    if (leaf != NULL)
        tree = mr_tree_like(k->shape, leaf, k->n);
    mr__dealloc(leaf);
    return tree;
}

static mr_tree *
play_function(void *ctx, const mr_tree *in)
{
    played *f = ctx;
    player *p = f->p;
    int n = mr_tree_n_leaves(in);

    assert(p->n_values == f->k->first_in);
    if (mr_tree_leaves(in, p->value + p->n_values, n) != MR_OK)
        return NULL;
    p->n_values += n;
    if (!play_steps(p, f->from, f->k->end))
        return mr__error_pending()
                   ? NULL
                   : mr__fail_null(MR_E_STATE, "another branch is taken");
    return tree_now(p, &f->k->out);
}

static bool
play_transform(player *p, const step *s, size_t from)
{
    const kept_transform *k = s->given;
    played f = {p, k, from};
    mr_tape_transform given = k->given;
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream, mode = mr__ctx.grad_mode;
    mr_tree *r = NULL;
    bool ok = true;

    for (int i = 0; ok && i < 2; i++)
        if (k->tree[i].shape != NULL)
            ok = (given.tree[i] = tree_now(p, &k->tree[i])) != NULL;
    mr__ctx.site = s->site;
    mr__ctx.stream = s->stream;
    mr__ctx.grad_mode = k->grad_mode;
    if (ok)
        r = given.call(&given, play_function, &f, false);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    mr__ctx.grad_mode = mode;
    return r != NULL && play_tree(p, s, r);
}

static bool
play_step(player *p, const step *s, size_t *next)
{
    sizes now = {p->t, p->size};
    mr_scalar v;

    switch (s->kind) {
    case STEP_CALL:
        return play_call(p, s);
    case STEP_TRANSFORM: {
        size_t from = *next;

        *next = ((const kept_transform *)s->given)->end;
        return play_transform(p, s, from);
    }
    case STEP_DIM:
        if (s->axis >= p->value[s->x]->ndim)
            return p->fits = false;
        p->size[p->n_sizes++] = integer(p->value[s->x]->dim[s->axis]);
        return true;
    case STEP_MATH:
        if (math(s->op, size_of(&now, s->a), size_of(&now, s->b), &v) != MR_OK)
            return false;
        /* an integer power may become a float: its users took an integer */
        if (v.kind != ((mr_scalar *)p->t->sizes.v[p->n_sizes])->kind)
            return p->fits = false;
        p->size[p->n_sizes++] = v;
        return true;
    case STEP_COMPARE:
        p->fits = holds(size_of(&now, s->a), s->relation,
                        size_of(&now, s->b)) == s->outcome;
        return p->fits;
    }
    return false;
}

static bool
play_steps(player *p, size_t from, size_t to)
{
    for (size_t i = from; i < to;) {
        const step *s = p->t->steps.v[i++];

        if (!play_step(p, s, &i))
            return false;
    }
    return true;
}

static void
play_outputs(const player *p, mr_array **out)
{
    const mr_tape *t = p->t;

    for (int i = 0; i < t->n_out; i++)
        out[i] =
            t->out[i] >= 0 ? p->value[t->out[i]] : t->consts.v[-1 - t->out[i]];
}

bool
mr__tape_play(const mr_tape *t, mr_array *const *x, int n, mr_array **out,
              int n_out, bool *fits)
{
    player p = {.t = t, .fits = true};
    bool ok = n_out == t->n_out && n <= t->n_values;

    *fits = true;
    p.value = mr__alloc_array((size_t)t->n_values + 1, sizeof *p.value);
    p.size = mr__alloc_array(t->sizes.n + 1, sizeof *p.size);
    ok = ok && p.value != NULL && p.size != NULL;
    for (int i = 0; ok && i < n; i++)
        p.value[p.n_values++] = x[i];
    ok = ok && play_steps(&p, 0, t->steps.n);
    if (ok)
        play_outputs(&p, out);
    *fits = p.fits;
    mr__dealloc(p.value);
    mr__dealloc(p.size);
    mr__arena_free(&p.scratch);
    return ok;
}
