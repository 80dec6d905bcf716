/* SPDX-License-Identifier: Apache-2.0
 *
 * node.c -- making nodes.
 *
 * A node is one block: the header, the input edges, dims and strides, the
 * parameters with their lists, the results of a tuple node, and the value of a
 * scalar constant.  Making one is the hot path of every front door, so the
 * common case (an elementwise operator over arrays of one shape) computes
 * nothing but the size of the block.
 * Called by: the front doors, transforms, compile/, io/.  Calls: array/, base/.
 */
#include "graph/node.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/lend.h"
#include "graph/op.h"
#include "graph/own.h"

enum {
    /* Results whose abstract values lie on the stack. */
    FEW_OUTPUTS = 2,
    WIDEST_ELEMENT = 16,
};
_Static_assert(sizeof(mr_array) % 8 == 0, "what follows the header is aligned");

_Thread_local mr_context mr__ctx;

/* ---- counting ----------------------------------------------------------- */

enum { MADE_FOLD = 1024 };

static _Thread_local uint64_t made_here
    __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t made_folded; /* relaxed: a figure */

static inline void
count_made(void)
{
    if (__builtin_expect(++made_here == MADE_FOLD, 0)) {
        /* relaxed: a figure */
        atomic_fetch_add_explicit(&made_folded, MADE_FOLD,
                                  memory_order_relaxed);
        made_here = 0;
    }
}

uint64_t
mr__nodes_made(void)
{
    /* relaxed: a figure */
    return atomic_load_explicit(&made_folded, memory_order_relaxed) + made_here;
}

/* ---- the block ---------------------------------------------------------- */

static size_t
round8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* What a node needs of its block behind the header. */
typedef struct mr_parts {
    int n_in, n_out;
    int32_t ndim;
    size_t extra; /* parameters, tuple, value */
} mr_parts;

static void
note_made(mr_array *x)
{
    for (mr_made *m = mr__ctx.made; m; m = m->outer)
        if (!mr__map_put(&m->node, x, x))
            m->incomplete = true;
}

/* A node with everything set but op, dtype, size, dims and inputs. */
static inline mr_array *
node_alloc(const mr_parts *p, char **extra)
{
    size_t in = (size_t)p->n_in * sizeof(mr_array *);
    size_t dims = (size_t)p->ndim * 2 * sizeof(int64_t);
    mr_array *x = mr__alloc(sizeof *x + in + dims + p->extra);

    if (__builtin_expect(x == NULL, 0))
        return NULL;
    count_made();
    /* relaxed, all: not published yet */
    atomic_store_explicit(&x->refs, MR_REF_ONE, memory_order_relaxed);
    atomic_store_explicit(&x->state, MR_NEW, memory_order_relaxed);
    atomic_store_explicit(&x->scoped, 0, memory_order_relaxed);
    atomic_store_explicit(&x->caller, 0, memory_order_relaxed);
    x->ndim = (uint8_t)p->ndim;
    x->flags = 0;
    x->n_in = (uint16_t)p->n_in;
    x->n_out = (uint16_t)p->n_out;
    x->stream = mr__ctx.stream;
    x->trace = mr__ctx.trace;
    x->depth = 0;
    x->site = mr__ctx.site ? mr__ctx.site : mr__error_here.door.site;
    x->params = NULL;
    x->in = (mr_array **)(void *)(x + 1);
    x->dim = (int64_t *)(void *)((char *)(x + 1) + in);
    x->buffer = NULL;
    x->offset = 0;
    x->error = NULL;
    x->tuple = NULL;
    x->plan = NULL;
    if (__builtin_expect(mr__ctx.made != NULL, 0))
        note_made(x);
    *extra = (char *)x->dim + dims;
    return x;
}

/* Traces are numbered in the order in which they begin: the smaller of two
 * live ones is the outer. */
static inline uint64_t
outermost(uint64_t trace, uint64_t other)
{
    if (other == 0 || (trace != 0 && trace <= other) || !mr__trace_live(other))
        return trace;
    return other;
}

/* What a node has of an input beside the edge. */
static inline void
depend_on(mr_array *x, const mr_array *in)
{
    /* relaxed: an input that is done meanwhile makes a guess too high */
    if (in->depth >= x->depth &&
        (atomic_load_explicit(&in->state, memory_order_relaxed) &
         MR_STATE_MASK) == MR_NEW)
        x->depth = in->depth + 1;
    if (__builtin_expect(in->trace != 0, 0))
        x->trace = outermost(x->trace, in->trace);
}

static inline void
look_at_depth(mr_array *x)
{
    if (__builtin_expect(x->depth > atomic_load_explicit(&mr__deep_limit,
                                                         memory_order_relaxed),
                         0))
        mr__node_deep(x);
}

static inline void
put_inputs(mr_array *x, int n_in, mr_array *const *in)
{
    for (int i = 0; i < n_in; i++) {
        x->in[i] = mr__retain(in[i]);
        depend_on(x, in[i]);
    }
    look_at_depth(x);
}

/* The same where some may be lent; *extra begins behind the edges. */
static void
put_lent_inputs(mr_array *x, const mr_op_call *c, char **extra)
{
    mr_lend **lends = mr__lends(x);

    assert((void *)lends == *extra);
    *extra += (size_t)c->n_in * sizeof *lends;
    for (int i = 0; i < c->n_in; i++) {
        bool may = i < 64 && (c->lend >> i & 1);

        lends[i] = may ? mr__lend(c->in[i]) : NULL;
        if (lends[i] != NULL)
            x->flags |= MR_NODE_BORROWS;
        else
            mr__retain(c->in[i]);
        x->in[i] = c->in[i];
        depend_on(x, c->in[i]);
    }
    look_at_depth(x);
}

static inline void
put_dims(int64_t *to, int32_t ndim, const int64_t *dim)
{
    for (int32_t i = 0; i < ndim; i++)
        to[i] = dim[i];
    mr__strides_fresh(ndim, to, to + ndim);
}

/* ---- checks ------------------------------------------------------------- */

static bool
inputs_given(const mr_op *op, int n_in, mr_array *const *in)
{
    (void)op;
    assert(op->n_in < 0 || op->n_in == n_in);
    for (int i = 0; i < n_in; i++)
        if (__builtin_expect(in[i] == NULL, 0)) {
            if (!mr__error_pending())
                mr__fail(MR_E_NULL, "input %d is NULL", i);
            return false;
        }
    if (n_in <= UINT16_MAX)
        return true;
    mr__fail(MR_E_VALUE, "%d inputs are too many: at most %d", n_in,
             UINT16_MAX);
    return false;
}

/* Kernels and rules read the parameters of an operator that has some. */
static bool
params_given(const mr_op *op, const void *params)
{
    if (__builtin_expect(params != NULL || op->params_bytes == 0, 1))
        return true;
    mr__fail(MR_E_NULL, "operator %s has parameters: needs them, got NULL",
             op->name);
    return false;
}

/* The number of elements, or -1 with MR_E_OVERFLOW set. */
static int64_t
size_checked(int32_t ndim, const int64_t *dim)
{
    int64_t size = mr__size_of(ndim, dim);
    char text[256];

    if (size >= 0 && size <= INT64_MAX / WIDEST_ELEMENT)
        return size;
    mr__fail(MR_E_OVERFLOW, "an array of shape %s is too large to address",
             mr__shape_text(text, sizeof text, ndim, dim));
    return -1;
}

/* ---- parameters: see params.c ------------------------------------------- */

static size_t
params_room(const mr_op *op, const void *params)
{
    return params == NULL || op->params_bytes == 0
               ? 0
               : round8(mr__params_room(op, params));
}

static char *
put_params(mr_array *x, const mr_op *op, const void *params, size_t room,
           char *at)
{
    if (room == 0)
        return at;
    mr__params_copy(op, params, at);
    x->params = at;
    return at + room;
}

/* ---- operators ---------------------------------------------------------- */

static size_t
tuple_room(int n_out, const mr_aval *out)
{
    size_t room = (size_t)n_out * sizeof(mr_tuple_out);

    for (int k = 0; k < n_out; k++)
        room += (size_t)out[k].ndim * 2 * sizeof(int64_t);
    return room;
}

static void
put_tuple(mr_array *x, int n_out, const mr_aval *out, char *at)
{
    int64_t *dims;

    x->tuple = (mr_tuple_out *)(void *)at;
    dims = (int64_t *)(void *)(x->tuple + n_out);
    for (int k = 0; k < n_out; k++) {
        x->tuple[k] =
            (mr_tuple_out){.dtype = out[k].dtype,
                           .ndim = out[k].ndim,
                           .size = mr__size_of(out[k].ndim, out[k].dim),
                           .dim = dims};
        put_dims(dims, out[k].ndim, out[k].dim);
        dims += 2 * out[k].ndim;
    }
    x->flags |= MR_NODE_TUPLE;
}

/* The node of a call whose results are known. */
static mr_array *
node_of(const mr_op_call *c, bool tuple, int n_out, const mr_aval *out)
{
    size_t params = params_room(c->op, c->params);
    size_t lends = c->lend == 0 ? 0 : (size_t)c->n_in * sizeof(mr_lend *);
    mr_parts parts = {c->n_in, n_out, tuple ? 0 : out->ndim,
                      lends + params + (tuple ? tuple_room(n_out, out) : 0)};
    int64_t size = 0;
    char *extra;
    mr_array *x;

    for (int k = 0; k < n_out; k++) {
        if (!mr__dtype_valid(out[k].dtype))
            return mr__fail_null(MR_E_DTYPE,
                                 "%d is no dtype: use one of enum mr_dtype",
                                 (int)out[k].dtype);
        size = size_checked(out[k].ndim, out[k].dim);
        if (size < 0)
            return NULL;
    }
    x = node_alloc(&parts, &extra);
    if (x == NULL)
        return NULL;
    x->op = c->op;
    x->dtype = (uint8_t)out->dtype;
    x->size = tuple ? 0 : size;
    if (lends > 0)
        put_lent_inputs(x, c, &extra);
    else
        put_inputs(x, c->n_in, c->in);
    extra = put_params(x, c->op, c->params, params, extra);
    if (tuple)
        put_tuple(x, n_out, out, extra);
    else
        put_dims(x->dim, out->ndim, out->dim);
    return mr__scope_own_fresh(x);
}

/* Checked builds look whether infer has written more than n_out entries. */
#ifndef NDEBUG
enum { BEHIND = 1, UNTOUCHED = -0xCB };
#else
enum { BEHIND = 0, UNTOUCHED = 0 };
#endif

static mr_code
infer_outputs(const mr_op_call *c, int n_out, mr_aval *out)
{
    mr_code code;

    if (BEHIND)
        out[n_out].ndim = UNTOUCHED;
    code = c->op->infer(c, out);
    assert(out[n_out].ndim == UNTOUCHED);
    return code;
}

static mr_array *
node_inferred(const mr_op_call *c, bool tuple, int n_out)
{
    mr_aval few[FEW_OUTPUTS + BEHIND], *out = few;
    mr_array *x = NULL;

    if (!inputs_given(c->op, c->n_in, c->in) || !params_given(c->op, c->params))
        return NULL;
    if (n_out > FEW_OUTPUTS)
        out = mr__alloc_array((size_t)n_out + BEHIND, sizeof *out);
    if (out && infer_outputs(c, n_out, out) == MR_OK)
        x = node_of(c, tuple, n_out, out);
    if (out != few)
        mr__dealloc(out);
    return x;
}

mr_array *
mr__node_new(const mr_op *op, const void *params, int n_in, mr_array *const *in)
{
    mr_op_call call = {op, params, n_in, in, 0};
    int n_out = op->n_out > 0 ? op->n_out : 1;

    return node_inferred(&call, n_out > 1, n_out);
}

mr_array *
mr__node_tuple(const mr_op *op, const void *params, int n_in,
               mr_array *const *in, int n_out)
{
    mr_op_call call = {op, params, n_in, in, 0};

    return node_inferred(&call, true, n_out);
}

mr_array *
mr__node_tuple_lent(const mr_op *op, int n_in, mr_array *const *in, int n_out,
                    uint64_t lend)
{
    mr_op_call call = {op, NULL, n_in, in, lend};

    return node_inferred(&call, true, n_out);
}

mr_array *
mr__node_like(const mr_array *x, mr_array *const *in)
{
    mr_op_call call = {x->op, x->params, x->n_in, in, 0};
    bool tuple = x->flags & MR_NODE_TUPLE;
    int n = tuple ? x->n_out : 1;
    mr_aval few[FEW_OUTPUTS], *out = few;
    mr_array *y = NULL;

    if (n > FEW_OUTPUTS)
        out = mr__alloc_array((size_t)n, sizeof *out);
    if (out == NULL)
        return NULL;
    if (!tuple)
        mr__aval_like(out, x);
    for (int k = 0; tuple && k < n; k++)
        mr__aval_shape(&out[k], x->tuple[k].dtype, x->tuple[k].ndim,
                       x->tuple[k].dim);
    if (inputs_given(x->op, x->n_in, in))
        y = node_of(&call, tuple, n, out);
    if (y != NULL) {
        y->site = x->site;
        y->stream = x->stream;
        y->n_out = x->n_out;
    }
    if (out != few)
        mr__dealloc(out);
    return y;
}

mr_array *
mr__node_elementwise(const mr_op *op, mr_dtype out, int n_in,
                     mr_array *const *in)
{
    mr_parts parts = {n_in, 1, 0, 0};
    char *extra;
    mr_array *x;

    assert(op->params_bytes == 0);
    if (!inputs_given(op, n_in, in))
        return NULL;
    parts.ndim = in[0]->ndim;
    x = node_alloc(&parts, &extra);
    if (__builtin_expect(x == NULL, 0))
        return NULL;
    x->op = op;
    x->dtype = (uint8_t)out;
    x->size = in[0]->size;
    put_dims(x->dim, in[0]->ndim, in[0]->dim);
    put_inputs(x, n_in, in);
    return mr__scope_own_fresh(x);
}

/* ---- nodes that share the memory of a done one -------------------------- */

static void
share(mr_array *x, mr_buffer *b, int64_t offset, const int64_t *stride)
{
    x->buffer = mr__buffer_retain(b);
    x->offset = offset;
    if (x->ndim > 0)
        memcpy(mr__strides(x), stride, x->ndim * sizeof *stride);
    /* relaxed: not published yet */
    atomic_store_explicit(&x->state, MR_DONE, memory_order_relaxed);
}

/* A view of the value that the tuple forwards; the tuple is its shadow. */
static mr_array *
forwarded(mr_array *tuple, int k)
{
    mr_output_params params = {k};
    mr_array *edge[2] = {tuple->in[tuple->n_in - tuple->n_out + k], tuple};
    mr_parts parts = {2, 1, edge[0]->ndim, sizeof params};
    char *extra;
    mr_array *x = node_alloc(&parts, &extra);

    if (x == NULL)
        return NULL;
    x->op = &mr__op_result;
    x->dtype = edge[0]->dtype;
    x->size = edge[0]->size;
    x->site = tuple->site;
    x->stream = tuple->stream;
    put_dims(x->dim, edge[0]->ndim, edge[0]->dim);
    put_inputs(x, 2, edge);
    x->n_in = 1;
    x->flags |= MR_NODE_SHADOW;
    put_params(x, x->op, &params, sizeof params, extra);
    return mr__scope_own_fresh(x);
}

mr_array *
mr__node_output(mr_array *tuple, int k)
{
    const mr_tuple_out *t;
    mr_output_params params = {k};
    mr_parts parts = {1, 1, 0, sizeof params};
    char *extra;
    mr_array *x;

    if (tuple == NULL)
        return NULL;
    assert((tuple->flags & MR_NODE_TUPLE) && k >= 0 && k < tuple->n_out);
    if (tuple->op->flags & MR_FLAG_FORWARDS)
        return forwarded(tuple, k);
    t = &tuple->tuple[k];
    parts.ndim = t->ndim;
    x = node_alloc(&parts, &extra);
    if (x == NULL)
        return NULL;
    x->op = &mr__op_output;
    x->dtype = (uint8_t)t->dtype;
    x->size = t->size;
    x->site = tuple->site;
    x->stream = tuple->stream;
    put_dims(x->dim, t->ndim, t->dim);
    put_inputs(x, 1, &tuple);
    put_params(x, x->op, &params, sizeof params, extra);
    if (tuple->op->exec != NULL)
        x->flags |= MR_NODE_ALONE;
    if (mr__state(tuple) == MR_DONE && t->buffer) {
        share(x, t->buffer, t->offset, t->dim + t->ndim);
        mr__node_detach(x); /* the other results need not live as long */
    }
    return mr__scope_own_fresh(x);
}

mr_array *
mr__node_tracer(mr_array *of, uint64_t trace)
{
    mr_parts parts = {1, 1, 0, 0};
    char *extra;
    mr_array *x;

    if (of == NULL)
        return NULL;
    parts.ndim = of->ndim;
    x = node_alloc(&parts, &extra);
    if (x == NULL)
        return NULL;
    x->op = &mr__op_tracer;
    x->dtype = of->dtype;
    x->size = of->size;
    x->trace = outermost(x->trace, trace);
    x->flags = trace == 0 ? 0 : MR_NODE_TRACER;
    put_dims(x->dim, of->ndim, of->dim);
    put_inputs(x, 1, &of);
    if (mr__state(of) == MR_DONE && of->buffer)
        share(x, of->buffer, of->offset, mr__strides(of));
    return mr__scope_own_fresh(x);
}

/* ---- leaves ------------------------------------------------------------- */

mr_array *
mr__node_data(mr_dtype t, int32_t ndim, const int64_t *dim,
              const int64_t *stride, mr_buffer *b, int64_t offset)
{
    mr_parts parts = {0, 1, ndim, 0};
    int64_t size = size_checked(ndim, dim);
    mr_array *x = NULL;
    char *extra;

    if (b && size >= 0)
        x = node_alloc(&parts, &extra);
    if (x == NULL) {
        mr__buffer_release(b);
        return NULL;
    }
    x->op = &mr__op_data;
    x->dtype = (uint8_t)t;
    x->size = size;
    x->trace = 0;
    put_dims(x->dim, ndim, dim);
    if (stride && ndim > 0)
        memcpy(mr__strides(x), stride, (size_t)ndim * sizeof *stride);
    x->buffer = b;
    x->offset = offset;
    /* relaxed: not published yet */
    atomic_store_explicit(&x->state, MR_DONE, memory_order_relaxed);
    return mr__scope_own_fresh(x);
}

mr_array *
mr__node_scalar(mr_dtype t, const void *bits)
{
    mr_parts parts = {0, 1, 0, WIDEST_ELEMENT + sizeof(mr_buffer)};
    size_t bytes = mr__dtype_bytes[t];
    char *extra;
    mr_array *x = node_alloc(&parts, &extra);

    if (x == NULL)
        return NULL;
    x->op = &mr__op_data;
    x->dtype = (uint8_t)t;
    x->size = 1;
    x->trace = 0;
    x->flags = MR_NODE_SCALAR_CONST;
    x->buffer = (mr_buffer *)(void *)extra;
    extra += sizeof(mr_buffer);
    memset(extra, 0, WIDEST_ELEMENT);
    memcpy(extra, bits, bytes);
    mr__buffer_embed(x->buffer, extra, bytes, x);
    /* relaxed: not published yet */
    atomic_store_explicit(&x->state, MR_DONE, memory_order_relaxed);
    return mr__scope_own_fresh(x);
}

mr_array *
mr__node_pending(size_t bytes, uint32_t stream, const char *site)
{
    mr_parts parts = {0, 1, 1, 0};
    int64_t n = (int64_t)bytes;
    char *extra;
    mr_array *x = node_alloc(&parts, &extra);

    if (x == NULL)
        return NULL;
    x->op = &mr__op_data;
    x->dtype = MR_UINT8;
    x->size = n;
    x->stream = stream;
    x->site = site;
    x->trace = 0;
    put_dims(x->dim, 1, &n);
    return x;
}

const void *
mr__scalar_const(const mr_array *x)
{
    return x->flags & MR_NODE_SCALAR_CONST ? x->buffer->data : NULL;
}

mr_array *
mr__node_placeholder(mr_dtype t, int32_t ndim, const int64_t *dim,
                     uint64_t trace)
{
    const char *name = mr__ctx.no_eval;
    size_t room = name == NULL ? 0 : strlen(name) + 1;
    mr_parts parts = {0, 1, ndim, round8(room)};
    int64_t size = size_checked(ndim, dim);
    mr_array *x;
    char *extra;

    if (size < 0)
        return NULL;
    x = node_alloc(&parts, &extra);
    if (x == NULL)
        return NULL;
    if (room > 0)
        x->params = memcpy(extra, name, room);
    x->op = &mr__op_placeholder;
    x->dtype = (uint8_t)t;
    x->size = size;
    x->flags = MR_NODE_PLACEHOLDER;
    x->trace = outermost(x->trace, trace);
    put_dims(x->dim, ndim, dim);
    return mr__scope_own_fresh(x);
}

/* ---- abstract values ---------------------------------------------------- */

void
mr__aval_shape(mr_aval *out, mr_dtype t, int32_t ndim, const int64_t *dim)
{
    out->dtype = t;
    out->ndim = ndim;
    if (ndim > 0)
        memcpy(out->dim, dim, (size_t)ndim * sizeof *dim);
}

void
mr__aval_like(mr_aval *out, const mr_array *x)
{
    mr__aval_shape(out, (mr_dtype)x->dtype, x->ndim, x->dim);
}
