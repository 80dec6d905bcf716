/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c -- a trace and a program looked at after each pass, in debug
 * builds.
 *
 * A program is run without arithmetic: memory is a list of extents, each with
 * the value that was written there last.  A step reads extents that lie inside
 * those of their value; what it writes replaces whatever it touches.
 *
 * Called by: simplify.c, program.c.
 */
#include "compile/verify.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "marram/error.h"

#ifndef NDEBUG

void
mr__verify_same(const mr_array *x, mr_array *y)
{
    mr_op_call call = {y->op, y->params, y->n_in, y->in, 0};
    mr_aval out;

    assert(x->dtype == y->dtype && x->ndim == y->ndim);
    assert(memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof *x->dim) == 0);
    if (y == x || (y->flags & (MR_NODE_PLACEHOLDER | MR_NODE_TUPLE)) ||
        mr__state(y) != MR_NEW || y->op->infer == NULL || y->op->n_out > 1)
        return;
    for (int i = 0; i < y->n_in; i++)
        assert(y->in[i] != NULL);
    if (y->op->infer(&call, &out) != MR_OK) {
        assert(!"an operator whose inputs do not fit");
    }
    assert((int)out.dtype == y->dtype && out.ndim == y->ndim);
    assert(memcmp(out.dim, y->dim, (size_t)y->ndim * sizeof *y->dim) == 0);
}

/* A piece of the workspace, of an output or of an argument. */
typedef struct extent {
    mr_slot_kind kind;
    int32_t index;
    int64_t from, to;
    int32_t value; /* arguments: -2 - index */
} extent;

typedef struct memory {
    extent *e;
    size_t n, cap;
} memory;

static extent
extent_of(const mr_slot *s)
{
    extent e = {s->kind, s->index, s->byte_offset, 0, s->value};
    int64_t size = mr__dtype_size(s->dtype);

    e.to = e.from + size;
    for (int i = 0; i < s->ndim && s->size > 0; i++) {
        int64_t reach = (s->dim[i] - 1) * s->stride[i] * size;

        *(reach < 0 ? &e.from : &e.to) += reach;
    }
    if (s->kind == MR_SLOT_ARG && s->value < 0)
        e.value = -2 - s->index;
    return e;
}

static bool
touch(const extent *a, const extent *b)
{
    return a->kind == b->kind && a->index == b->index && a->from < b->to &&
           b->from < a->to;
}

static void
read_extent(const memory *m, const extent *e)
{
    for (size_t i = 0; i < m->n; i++)
        if (touch(&m->e[i], e)) {
            assert(m->e[i].value == e->value);
            assert(m->e[i].from <= e->from && e->to <= m->e[i].to);
            return;
        }
    /* arguments are there from the beginning */
    assert(e->kind == MR_SLOT_ARG && e->value == -2 - e->index);
}

static void
write_extent(memory *m, const extent *e)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n; i++)
        if (!touch(&m->e[i], e))
            m->e[n++] = m->e[i];
    m->n = n;
    assert(m->n < m->cap);
    m->e[m->n++] = *e;
}

static void
check_step(memory *m, const mr_program *p, const mr_step *s)
{
    for (int i = 0; i < s->n_in; i++) {
        extent e = extent_of(&s->in[i]);

        if (s->in[i].kind != MR_SLOT_CONST && s->in[i].size > 0 &&
            &s->in[i] != mr__step_product(s))
            read_extent(m, &e);
    }
    for (int i = 0; i < s->n_out; i++) {
        /* a product, the last, is written before what follows it is */
        int k = mr__step_is_joined(s) ? s->n_out - 1 - i : i;
        extent e = extent_of(&s->out[k]);

        assert(s->out[k].kind != MR_SLOT_CONST);
        assert(s->out[k].kind != MR_SLOT_ARG ||
               (p->given >> s->out[k].index & 1));
        assert(s->out[k].kind != MR_SLOT_TEMP ||
               (e.from >= 0 && (size_t)e.to <= p->workspace));
        assert(s->out[k].kind != MR_SLOT_OUT || s->out[k].size == 0 ||
               e.to <= p->outs[s->out[k].index].size *
                           mr__dtype_size(p->outs[s->out[k].index].dtype));
        write_extent(m, &e);
    }
}

/* The last that was written to an output's memory is as large as it. */
static void
check_outputs(const memory *m, const mr_program *p)
{
    for (int k = 0; k < p->n_out; k++) {
        const mr_slot *o = &p->outs[k];
        extent want = {MR_SLOT_OUT, k, 0, o->size * mr__dtype_size(o->dtype),
                       0};
        bool found = o->size == 0;

        if (p->lies_in[k] >= 0) {
            want.kind = MR_SLOT_ARG;
            want.index = p->lies_in[k];
        }
        for (size_t i = 0; i < m->n && !found; i++)
            found = touch(&m->e[i], &want) && m->e[i].value >= 0 &&
                    m->e[i].from == 0 && m->e[i].to == want.to;
        assert(found);
    }
}

void
mr__verify_program(const mr_program *p)
{
    memory m = {.cap = 1};

    for (int i = 0; i < p->n_steps; i++)
        m.cap += (size_t)p->steps[i].n_out;
    m.e = mr__alloc_array(m.cap, sizeof *m.e);
    if (m.e == NULL) { /* no place to look is no breach */
        (void)mr_error_take();
        return;
    }
    for (int i = 0; i < p->n_steps; i++)
        check_step(&m, p, &p->steps[i]);
    check_outputs(&m, p);
    mr__dealloc(m.e);
}

#else

void
mr__verify_same(const mr_array *x, mr_array *y)
{
    (void)x;
    (void)y;
}

void
mr__verify_program(const mr_program *p)
{
    (void)p;
}

#endif
