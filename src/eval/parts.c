/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c -- which results of some work fail, and computing the others.
 *
 * Within a block the way of an error is that of the values: from an input
 * without elements, or one that is read through an index that is out of range,
 * through registers to outputs.  A block with such an input still runs to its
 * end (an index out of range reads entry 0), so what the others need is there;
 * when it is known before that an input has no elements, zeros are read in its
 * place.  Bits of the others are the same: no instruction looks at two points'
 * values together, but for reductions, whose order is fixed.
 *
 * A kernel of its own needs all of its inputs, and all its results fail
 * together.  With a block behind it the block alone can run: a kernel that
 * takes one and refuses its data does so before it writes.
 *
 * Called by: task.c, compile/partly.c, after something failed, under no lock.
 */
#include "eval/parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/integers.h"
#include "kernels/source.h"
#include "marram/error.h"

/* ---- memory -----------------------------------------------------------------
 *
 * Where the plan reuses memory nothing runs again, so that good results would
 * be lost with a reason that cannot be kept.
 */

static void
make_room(const mr_device_table *d)
{
    mr__pool_trim(d->pool(d->self), 0);
}

mr_error_record *
mr__work_capture(const mr_device_table *d)
{
    mr_code code = mr__error_code();
    mr_error_record *why = mr__error_capture();

    if (__builtin_expect(mr__error_record_code(why) == code, 1))
        return why;
    make_room(d);
    mr__error_here.code = code; /* whose text is still there */
    return mr__error_capture();
}

mr_error_record *
mr__work_parts(const mr_device_table *d, int n, mr_error_record *const *part)
{
    mr_error_record *why = mr__error_parts(n, part);

    if (__builtin_expect(why != NULL, 1))
        return why;
    mr_error_take();
    make_room(d);
    return mr__error_parts(n, part);
}

void *
mr__work_alloc(const mr_device_table *d, size_t bytes)
{
    struct mr__error_stash before = mr__error_stash();
    void *p = mr__alloc_zero(bytes);

    if (p == NULL) {
        make_room(d);
        p = mr__alloc_zero(bytes);
    }
    mr__error_unstash(before); /* not of what was healed */
    return p != NULL ? p
                     : mr__fail_null(MR_E_MEMORY,
                                     "could not allocate %zu bytes", bytes);
}

/* ---- the way through a block ------------------------------------------------
 */

/* What input j gives: an error of its index as well. */
static mr_error_record *
why_of_input(const mr_block_code *c, mr_error_record *const *in, int j)
{
    const mr_code_source *s = c->source == NULL ? NULL : &c->source[j];
    const mr_index_code *how;
    mr_error_record *why = in[j];

    if (why != NULL || s == NULL ||
        (s->kind != MR_FROM_GATHER && s->kind != MR_FROM_PUT))
        return why;
    if (s->computed == 0)
        return in[s->index];
    how = &c->indices[s->computed - 1];
    for (int i = 0; i < how->n_in && why == NULL; i++)
        why = in[how->in[i]];
    return why;
}

/* out[k]: why output k has no elements, borrowed. */
static void
spread(const mr_block_code *c, mr_error_record *const *in,
       mr_error_record **out)
{
    mr_error_record *reg[MR_CODE_MAX_REG];

    for (int j = 0; j < c->n_in; j++)
        reg[j] = why_of_input(c, in, j);
    for (int i = 0; i < c->n_const; i++)
        reg[c->n_in + i] = NULL;
    for (int i = 0; i < c->n_inst; i++) {
        const mr_inst *inst = &c->inst[i];
        mr_error_record *why = NULL;

        for (int k = 0; k < mr__k_operands((mr_k)inst->k) && why == NULL; k++)
            why = reg[inst->arg[k]];
        reg[inst->dst] = why;
    }
    for (int k = 0; k < c->n_out; k++)
        out[k] = reg[c->out[k].reg];
}

/* An operand that has no elements can be read all the same. */
static void
make_blank(mr_task_operand *o)
{
    static const _Alignas(64) char zeros[64];
    static const int64_t still[MR_MAX_NDIM];

    o->data = (char *)(uintptr_t)zeros; /* only read */
    o->stride = still;
}

/* ---- both kinds of work -----------------------------------------------------
 */

static bool
is_joined(const mr_work *w)
{
    return w->kernel != NULL && w->block != NULL;
}

static mr_error_record *
why_of_kernel(const mr_work *w)
{
    mr_error_record *why = NULL;

    for (int i = 0; i < w->n_kernel_in && why == NULL; i++)
        why = w->in_why[i];
    return why;
}

static void
set_why(mr_error_record **at, mr_error_record *why)
{
    if (*at == why)
        return;
    mr__error_release(*at);
    *at = mr__error_retain(why);
}

/* All that have elements so far. */
static void
set_all(mr_work *w, mr_error_record *why)
{
    for (int k = 0; k < w->n_out; k++)
        if (w->out_why[k] == NULL)
            set_why(&w->out_why[k], why);
}

/* Of joined work: why the block does not have the product, whose own reason
 * stands with the operand. */
static mr_error_record *
why_of_product(const mr_work *w)
{
    mr_error_record *why = why_of_kernel(w);

    return why != NULL ? why : w->in_why[w->n_kernel_in + w->block->product];
}

static void
spread_block(mr_work *w)
{
    const mr_block_group *b = w->block;
    int first = is_joined(w) ? w->n_kernel_in : 0;
    mr_error_record *out[MR_CODE_MAX_IO], *product = NULL;

    if (is_joined(w)) {
        product = why_of_product(w);
        set_why(&w->in_why[first + b->product], product);
    }
    spread(&b->code, w->in_why + first, out);
    for (int k = 0; k < w->n_out; k++)
        set_why(&w->out_why[k], k < b->code.n_out ? out[k] : product);
}

static bool
any_is_good(const mr_work *w)
{
    for (int k = 0; k < w->n_out; k++)
        if (w->out_why[k] == NULL)
            return true;
    return false;
}

static bool
has_no_elements(const mr_work *w)
{
    for (int k = 0; k < w->n_out; k++)
        if (w->out[k].size != 0)
            return false;
    return true;
}

bool
mr__work_spread(mr_work *w)
{
    if (w->block != NULL)
        spread_block(w);
    else if (w->kernel != NULL && has_no_elements(w))
        set_all(w, NULL); /* nothing is read for them */
    else if (w->kernel != NULL)
        set_all(w, why_of_kernel(w));
    else
        set_all(w, w->in_why[0]); /* a copy */
    return any_is_good(w);
}

/* ---- errors of the data ---------------------------------------------------
 */

static mr_error_record *
captured(const mr_work *w, const mr_array *x)
{
    w->blame(w, x);
    return mr__work_capture(w->device);
}

/* Each gather and put whose index is out of range has an error of its own.
 * False: there is none, nor one whose index is not known. */
static bool
find_bad_indices(mr_work *w)
{
    const mr_block_group *b = w->block;
    const mr_block_code *c = &b->code;
    mr_block_launch l;
    bool any = false;
    int64_t index;

    if (c->source == NULL)
        return false;
    mr__block_launch_make(b, w->in, w->out, &l);
    for (int j = 0; j < c->n_in; j++) {
        if (b->in[j].gather == NULL)
            continue;
        if (why_of_input(c, w->in_why, j) != NULL) {
            any = true; /* of zeros in place of its index, perhaps */
            continue;
        }
        if (!mr__block_bad_index(c, &l, j, &index))
            continue;
        mr__index_fail(index, c->source[j].axis, l.in[j].n);
        w->in_why[j] = captured(w, b->in[j].gather);
        any = true;
    }
    return any;
}

/* Some thread writes into the indices meanwhile, or the device is strict. */
static void
suspect_all_indices(mr_work *w, mr_error_record *why)
{
    const mr_block_group *b = w->block;

    for (int j = 0; j < b->code.n_in; j++)
        if (b->in[j].gather != NULL)
            set_why(&w->in_why[j], why);
}

/* With no memory a capture gives an error that says so. */
static bool
has_memory_for_errors(const mr_work *w)
{
    bool all = true;

    for (int i = 0; i < w->n_in + w->n_out; i++) {
        const mr_error_record *why =
            i < w->n_in ? w->in_why[i] : w->out_why[i - w->n_in];

        all = all && (why == NULL ||
                      !mr__error_is_transient(mr__error_record_code(why)));
    }
    return all;
}

/* Room for output k, whole lines of the cache. */
static size_t
lines_of(const mr_task_operand *out)
{
    size_t bytes = (size_t)out->size * (size_t)mr__dtype_size(out->dtype);

    return mr__whole_lines(bytes);
}

/* Outputs that will have no elements are written elsewhere: what they lie over
 * may be asked for again (former.c).  NULL: no memory. */
static void *
aside(mr_work *w)
{
    size_t bytes = 64;
    char *memory, *at;

    for (int k = 0; k < w->n_out; k++)
        if (w->out_why[k] != NULL)
            bytes += lines_of(&w->out[k]);
    memory = mr__work_alloc(w->device, bytes);
    if (memory == NULL)
        return NULL;
    at = memory + (-(uintptr_t)memory & 63);
    for (int k = 0; k < w->n_out; k++) {
        if (w->out_why[k] == NULL)
            continue;
        w->out[k].data = at;
        at += lines_of(&w->out[k]);
    }
    return memory;
}

static mr_code
run_once(mr_work *w, int first)
{
    if (is_joined(w) && why_of_product(w) == NULL)
        return w->run_joined(w);
    return mr__run_block(w->device, w->block, w->in + first, w->out);
}

/* Kernel and block as far as they can run, or the block.  They take their
 * scratch before they write. */
static mr_code
run_block(mr_work *w)
{
    int first = is_joined(w) ? w->n_kernel_in : 0;
    void *memory = aside(w);
    mr_code rc;

    if (memory == NULL)
        return MR_E_MEMORY;
    for (int j = first; j < w->n_in; j++)
        if (w->in_why[j] != NULL)
            make_blank(&w->in[j]);
    rc = run_once(w, first);
    if (rc == MR_E_MEMORY) {
        mr_error_take();
        make_room(w->device);
        rc = run_once(w, first);
    }
    mr__dealloc(memory);
    return rc;
}

/* The block has run to its end. */
static void
block_failed(mr_work *w)
{
    if (!find_bad_indices(w)) {
        mr_error_record *why = captured(w, w->node);

        suspect_all_indices(w, why);
        mr__error_release(why);
    }
    mr_error_take();
    spread_block(w);
}

/* The kernel has: before it wrote, so the block has not begun. */
static mr_code
joined_failed(mr_work *w)
{
    w->in_why[w->n_kernel_in + w->block->product] = captured(w, w->node);
    spread_block(w);
    return any_is_good(w) ? run_block(w) : MR_OK;
}

mr_code
mr__work_failed(mr_work *w, mr_code rc)
{
    mr_error_record *why;

    if (mr__error_is_transient(rc))
        return rc;
    if (is_joined(w)) {
        rc = joined_failed(w);
    } else if (w->block != NULL && rc == MR_E_INDEX) {
        rc = MR_OK;
        block_failed(w);
    } else {
        rc = MR_OK;
        why = captured(w, w->node);
        set_all(w, why);
        mr__error_release(why);
    }
    if (rc != MR_OK || has_memory_for_errors(w))
        return rc;
    return mr__fail(MR_E_MEMORY, "no memory to keep an error");
}

mr_code
mr__work_run(mr_work *w)
{
    mr_code rc;

    if (!mr__work_spread(w) || w->block == NULL)
        return MR_OK;
    rc = run_block(w);
    return rc == MR_OK ? MR_OK : mr__work_failed(w, rc);
}

void
mr__work_end(mr_work *w)
{
    for (int i = 0; i < w->n_in; i++)
        mr__error_release(w->in_why[i]);
    for (int k = 0; k < w->n_out; k++)
        mr__error_release(w->out_why[k]);
}
