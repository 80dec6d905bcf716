/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c -- the programs of a compiled function as text: what it was called
 * with, what simplifying did, which steps there are and where they run, what
 * they read and write and where that lies, and why a step was not joined with
 * those whose values it reads.
 *
 * Called by: function.c, report.c; dot.c for what is said in both forms.
 */
#include "compile/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compile/cache.h"
#include "compile/steps.h"
#include "compile/tier1.h"
#include "eval/check.h"
#include "eval/plan.h"
#include "eval/registry.h"
#include "marram/array.h"

/* ---- slots
 * -------------------------------------------------------------------------- */

void
mr__explain_shape(mr_page *t, mr_dtype dtype, int32_t ndim, const int64_t *dim)
{
    char shape[256];

    mr__page_put(t, "%s %s", mr_dtype_name(dtype),
                 mr__shape_text(shape, sizeof shape, ndim, dim));
}

/* What a device's program captured is brought as an argument. */
mr_slot_kind
mr__explain_kind(const mr_program *p, const mr_slot *s)
{
    return s->kind == MR_SLOT_ARG && !mr__slot_is_argument(p, s) ? MR_SLOT_CONST
                                                                 : s->kind;
}

int
mr__explain_index(const mr_program *p, const mr_slot *s)
{
    return s->kind == MR_SLOT_ARG && !mr__slot_is_argument(p, s)
               ? s->index - p->n_args
               : s->index;
}

const char *
mr__explain_layout(const mr_slot *s)
{
    bool turned;

    if (mr__is_contiguous(s->ndim, s->dim, s->stride))
        return "";
    for (int i = 0; i < s->ndim; i++)
        if (s->stride[i] == 0 && s->dim[i] > 1)
            return ", broadcast";
    turned = s->ndim >= 2 && s->stride[s->ndim - 1] != 1 &&
             s->stride[s->ndim - 2] == 1;
    return turned ? ", turned" : ", strided";
}

/* Repeated elements are there once. */
int64_t
mr__explain_bytes(const mr_slot *s)
{
    int64_t n = mr__dtype_size(s->dtype);

    for (int i = 0; i < s->ndim; i++)
        if (s->dim[i] == 0)
            return 0;
        else if (s->stride == NULL || s->stride[i] != 0)
            n *= s->dim[i];
    return n;
}

void
mr__explain_place(mr_page *t, const mr_program *p, const mr_slot *s)
{
    static const char *const place[] = {[MR_SLOT_ARG] = "argument",
                                        [MR_SLOT_CONST] = "constant",
                                        [MR_SLOT_TEMP] = "workspace",
                                        [MR_SLOT_OUT] = "output"};
    mr_slot_kind kind = mr__explain_kind(p, s);

    mr__page_put(t, "%s", place[kind]);
    if (kind != MR_SLOT_TEMP)
        mr__page_put(t, " %d", mr__explain_index(p, s));
    if (s->byte_offset != 0 || kind == MR_SLOT_TEMP)
        mr__page_put(t, "%+" PRId64, s->byte_offset);
}

static void
put_slot(mr_page *t, const mr_program *p, const mr_slot *s)
{
    mr__explain_place(t, p, s);
    mr__page_put(t, ": ");
    mr__explain_shape(t, s->dtype, s->ndim, s->dim);
    mr__page_put(t, "%s", mr__explain_layout(s));
}

static void
put_slots(mr_page *t, const mr_program *p, const char *what, int n,
          const mr_slot *slot)
{
    for (int i = 0; i < n; i++) {
        mr__page_put(t, "        %s ", what);
        put_slot(t, p, &slot[i]);
        mr__page_put(t, "\n");
    }
}

/* ---- why a step stands alone
 * ---------------------------------------------------------- */

static bool
makes(const mr_step *s, int32_t value)
{
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k].value == value)
            return true;
    return false;
}

static int
readers_of(const mr_program *p, int32_t value)
{
    int n = 0;

    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_in; k++)
            if (p->steps[i].in[k].value == value) {
                n++;
                break;
            }
    return n;
}

static bool
has_reduction(const mr_step *s)
{
    for (int i = 0; i < s->block->code.n_inst; i++)
        if (MR_K_IS_REDUCTION(s->block->code.inst[i].k))
            return true;
    return false;
}

static int64_t
points_of(const mr_block_group *b)
{
    int64_t n = 1;

    for (int i = 0; i < b->n_kept + b->n_red; i++)
        n *= b->dim[i];
    return n;
}

static bool
same_points(const mr_block_group *a, const mr_block_group *b)
{
    return points_of(a) == points_of(b) && a->ndim == b->ndim;
}

/* As the kernel wrote it. */
static bool
is_all_of(const mr_slot *s, const mr_array *x)
{
    return s->ndim == x->ndim &&
           memcmp(s->dim, x->dim, (size_t)x->ndim * sizeof *s->dim) == 0 &&
           mr__is_contiguous(s->ndim, s->dim, s->stride);
}

static bool
makes_words(const mr_step *block)
{
    const mr_block_code *c = &block->block->code;

    for (int i = 0; i < c->n_in && c->source != NULL; i++)
        if (c->source[i].kind == MR_FROM_DRAW)
            return true;
    return false;
}

/* Why the block does not follow the kernel, piece by piece. */
static const char *
why_not_behind(const mr_program *p, const mr_step *kernel, const mr_step *block,
               const mr_slot *in)
{
    if (mr__device_has_queues(p->device))
        return "the device launches each by itself";
    if (kernel->node->stream != block->node->stream)
        return "they were asked for on different streams";
    if (has_reduction(block))
        return "it reduces: elementwise work alone follows a kernel";
    if (in->size != kernel->node->size || in->size != points_of(block->block))
        return "their points differ: one is broadcast, reduced or reshaped to "
               "the other";
    if (!is_all_of(in, kernel->node))
        return "it is read through a view";
    if (makes_words(block))
        return "it makes random words, in pairs half of the points apart: all "
               "is there before it begins";
    return "a step between them reads that and is read by it, or it follows "
           "another kernel";
}

/* Which axes a block reduces. */
static uint32_t
reduced_axes(const mr_block_group *b)
{
    uint32_t axes = 0;

    for (int d = b->n_kept; d < b->n_kept + b->n_red; d++)
        if (b->axis[d] >= 0)
            axes |= (uint32_t)1 << b->axis[d];
    return axes;
}

/* Are its points gone over again behind a reduction? */
static bool
goes_again(const mr_block_code *c)
{
    for (int i = 0; i < c->n_inst; i++)
        if (c->inst[i].k == MR_R_LOGSUMEXP ||
            (c->inst[i].phase > 0 && !c->reg_row[c->inst[i].dst]))
            return true;
    return false;
}

/* Why the block does not make the random words that it reads. */
static const char *
why_not_drawn(const mr_program *p, const mr_step *draw, const mr_step *block,
              const mr_slot *in)
{
    const char *why;

    if (mr__device_has_queues(p->device))
        return "the device makes none inside of a block";
    if (draw->node->stream != block->node->stream)
        return "they were asked for on different streams";
    if (in->size != points_of(block->block) || !is_all_of(in, draw->node))
        return "they are broadcast, reduced or reshaped before they are read";
    why = mr__fuse_draw_why(draw->node, has_reduction(block),
                            reduced_axes(block->block),
                            goes_again(&block->block->code));
    if (why != NULL)
        return why;
    if (in->kind == MR_SLOT_OUT || readers_of(p, in->value) > 1)
        return "others read the words too";
    return "a block program has room for so many inputs only";
}

/* Does the step read there where its gathers or puts find what they read? */
static bool
is_index(const mr_step *s, const mr_slot *in)
{
    return s->block != NULL && s->kernel == NULL &&
           s->block->code.source != NULL &&
           s->block->code.source[in - s->in].kind == MR_FROM_INDEX;
}

/* Is what is read through these indices larger than the caches? */
static bool
far_operand(const mr_step *s, const mr_slot *in)
{
    for (int i = 0; i < s->n_in; i++)
        if (s->block->code.source[i].kind == MR_FROM_GATHER &&
            s->block->code.source[i].index == in - s->in &&
            s->in[i].size * mr__dtype_size(s->in[i].dtype) > MR_FUSE_FAR_BYTES)
            return true;
    return false;
}

/* Why the block does not compute the indices that it reads through. */
static const char *
why_not_computed(const mr_program *p, const mr_step *maker,
                 const mr_step *reader, const mr_slot *in)
{
    if (maker->node->stream != reader->node->stream)
        return "they were asked for on different streams";
    if (has_reduction(maker))
        return "that reduces: an index is computed elementwise";
    if (in->kind == MR_SLOT_OUT || readers_of(p, in->value) > 1)
        return "others read the indices too";
    if (in->size < points_of(reader->block))
        return "there are fewer indices than points: they are computed once, "
               "and written down";
    if (in->size < MR_FUSE_FEW_INDICES)
        return "so few indices stay in the caches: they are written down first";
    if (far_operand(reader, in))
        return "what is read by them is beyond the caches, and waited for: "
               "computing between the reads makes that longer";
    if (points_of(maker->block) != in->size || maker->block->ndim != in->ndim ||
        !mr__is_contiguous(in->ndim, in->dim, in->stride))
        return "the indices are reshaped or cut before they are read";
    return "others read the indices too, or they are computed of more than a "
           "block has room for beside what it does";
}

/* Why reader does not hold what maker does, whose value it reads here. */
static const char *
why_apart(const mr_program *p, const mr_step *maker, const mr_step *reader,
          const mr_slot *in)
{
    bool behind = mr__step_is_joined(reader) &&
                  in - reader->in >= mr__step_kernel_inputs(reader);

    if (mr__checking())
        return "the checking mode runs each operator alone";
    if (reader->kernel != NULL && !behind)
        return "it has a kernel of its own";
    if (maker->node->op->fuse.kind == MR_FUSE_DRAW && reader->block != NULL)
        return why_not_drawn(p, maker, reader, in);
    if (maker->kernel != NULL && maker->node->op->put != NULL)
        return "only one entry of each row, put into zeros, is joined, beside "
               "a reduction of these rows";
    if (maker->kernel != NULL && !mr__step_is_joined(maker) &&
        !maker->kernel->epilogue)
        return "that has a kernel of its own, which nothing follows piece by "
               "piece";
    if (maker->kernel != NULL && behind)
        return "it follows another kernel already";
    if (reader->block == NULL)
        return "it is a copy to where the caller or a kernel wants it";
    if (maker->kernel != NULL)
        return why_not_behind(p, maker, reader, in);
    if (maker->block != NULL && is_index(reader, in))
        return why_not_computed(p, maker, reader, in);
    if (maker->block == NULL)
        return "that is a copy: a view of what it copies was not possible";
    if (maker->node->stream != reader->node->stream)
        return "they were asked for on different streams";
    if (reader->block->n_red > 0 && has_reduction(reader) &&
        reader->block->axis[reader->block->n_kept] <
            reader->block->ndim - reader->block->n_red)
        return "it reduces leading axes, which is faster from memory";
    if (has_reduction(maker) && !has_reduction(reader))
        return "that reduces, and a result of it is not of the reader's shape";
    if (!same_points(maker->block, reader->block))
        return "their points differ: one is broadcast, reduced or reshaped to "
               "the other";
    if (!mr__is_contiguous(in->ndim, in->dim, in->stride))
        return "it is read through a view";
    if (maker->block->code.n_inst + reader->block->code.n_inst >
        MR_FUSE_MAX_MEMBERS)
        return "a block program has room for so many operators only";
    if (maker->n_in + reader->n_in > MR_FUSE_MAX_IN)
        return "a block program has room for so many inputs only";
    if (readers_of(p, in->value) > 1)
        return "several steps read it";
    return "a step between them reads that and is read by it, or a row is too "
           "long";
}

const char *
mr__explain_apart(const mr_program *p, int n, int i, int *maker)
{
    const mr_step *s = &p->steps[n];

    *maker = -1;
    if (s->in[i].value < 0 || &s->in[i] == mr__step_product(s))
        return NULL;
    for (int m = n - 1; m >= 0; m--)
        if (makes(&p->steps[m], s->in[i].value)) {
            *maker = m;
            return why_apart(p, &p->steps[m], s, &s->in[i]);
        }
    return NULL;
}

/* Has an input in front of i the same to say? */
static bool
is_said(const mr_program *p, int n, int i, int maker, const char *why)
{
    for (int k = 0, other; k < i; k++) {
        const char *text = mr__explain_apart(p, n, k, &other);

        if (text != NULL && other == maker && strcmp(text, why) == 0)
            return true;
    }
    return false;
}

static void
put_apart(mr_page *t, const mr_program *p, int n)
{
    for (int i = 0, maker; i < p->steps[n].n_in; i++) {
        const char *why = mr__explain_apart(p, n, i, &maker);

        if (why != NULL && !is_said(p, n, i, maker, why))
            mr__page_put(t, "        not joined with step %d: %s\n", maker,
                         why);
    }
}

/* ---- steps
 * -------------------------------------------------------------------------- */

static void
put_gather(mr_page *t, const mr_block_code *c, int i)
{
    const mr_index_code *index = c->source[i].computed == 0
                                     ? NULL
                                     : &c->indices[c->source[i].computed - 1];

    mr__page_put(t, " gather");
    for (int k = 0; index != NULL && k < index->n_inst; k++)
        mr__page_put(t, "%s %s%s", k == 0 ? " (index:" : ",",
                     mr__k_name((mr_k)index->inst[k].k),
                     k + 1 == index->n_inst ? ")" : "");
    mr__page_put(t, ",");
}

static void
put_block(mr_page *t, const mr_block_code *c)
{
    for (int i = 0; i < c->n_in && c->source != NULL; i++)
        if (c->source[i].kind == MR_FROM_GATHER)
            put_gather(t, c, i);
        else if (c->source[i].kind == MR_FROM_DRAW)
            mr__page_put(t, " random words,");
        else if (c->source[i].kind == MR_FROM_PUT)
            mr__page_put(t, " put,");
    for (int i = 0; i < c->n_inst; i++) {
        if (i == 12 && c->n_inst > 14) {
            mr__page_put(t, ", and %d more", c->n_inst - i);
            break;
        }
        mr__page_put(t, "%s %s", i == 0 ? "" : ",",
                     mr__k_name((mr_k)c->inst[i].k));
    }
    if (c->n_phases > 1)
        mr__page_put(t, " (%d passes over each row)", c->n_phases);
}

const char *
mr__explain_tier(const mr_program *p, const mr_step *s)
{
    if (mr__device_has_queues(p->device))
        return p->device->name;
    if (mr__step_is_joined(s) && mr__tier1_ready(s) != NULL)
        return "kernel, native code";
    if (s->kernel != NULL)
        return "kernel";
    if (s->block == NULL)
        return "copy";
    return mr__tier1_ready(s) != NULL ? "native code" : "interpreter";
}

/* A product that a result lies over is nobody's. */
int
mr__explain_outputs(const mr_step *s)
{
    const mr_slot *product = mr__step_product(s);

    for (int k = 0; product != NULL && k < s->n_out - 1; k++)
        if (s->out[k].kind == product->kind &&
            s->out[k].index == product->index &&
            s->out[k].byte_offset == product->byte_offset)
            return s->n_out - 1;
    return s->n_out;
}

void
mr__explain_operators(mr_page *t, const mr_step *s)
{
    if (s->kernel != NULL || s->block == NULL)
        mr__page_put(t, "%s", s->kernel != NULL ? s->node->op->name : "copy");
    if (s->block == NULL)
        return;
    mr__page_put(t, s->kernel != NULL ? ", followed by" : "fused");
    put_block(t, &s->block->code);
}

void
mr__explain_traffic(mr_page *t, const mr_step *s)
{
    int64_t in = 0, out = 0;

    for (int i = 0; i < s->n_in; i++) /* the product is not read from memory */
        if (&s->in[i] != mr__step_product(s))
            in += mr__explain_bytes(&s->in[i]);
    for (int k = 0; k < mr__explain_outputs(s); k++)
        out += mr__explain_bytes(&s->out[k]);
    mr__page_put(t, "%" PRId64 " bytes in, %" PRId64 " bytes out", in, out);
    if (s->workspace >= 0)
        mr__page_put(t, ", scratch at workspace%+" PRId64, s->workspace);
}

static void
put_step(mr_page *t, const mr_program *p, int n)
{
    const mr_step *s = &p->steps[n];

    mr__page_put(t, "    %d: ", n);
    mr__explain_operators(t, s);
    mr__page_put(t, "  [%s]", mr__explain_tier(p, s));
    if (s->node->site != NULL) {
        mr__page_put(t, "  ");
        mr__page_words(t, s->node->site, strlen(s->node->site));
    }
    mr__page_put(t, "\n        ");
    mr__explain_traffic(t, s);
    mr__page_put(t, "\n");
    for (int i = 0; i < s->n_in; i++)
        if (&s->in[i] != mr__step_product(s))
            put_slots(t, p, "reads ", 1, &s->in[i]);
    put_slots(t, p, "writes", mr__explain_outputs(s), s->out);
    put_apart(t, p, n);
}

/* ---- programs
 * ----------------------------------------------------------------------- */

static void
put_layout(mr_page *t, const mr_program *p)
{
    mr__page_put(t, "for arguments that come so:");
    for (int i = 0; i < p->n_args; i++) {
        const mr_array *x = p->keep[i];
        mr_slot s = {
            .ndim = x->ndim, .dim = x->dim, .stride = p->arg_stride[i]};

        if (*mr__explain_layout(&s) != '\0')
            mr__page_put(t, " %d%s;", i, mr__explain_layout(&s) + 1);
        if (i < 64 && (p->given >> i & 1))
            mr__page_put(t, " %d given up;", i);
    }
    mr__page_put(t, " workspace %zu bytes, %d steps\n", p->workspace,
                 p->n_steps);
}

void
mr__explain_layouts(mr_page *t, const mr_program *p, const char *indent)
{
    const mr_program *layout[MR_PROGRAM_LAYOUTS];
    int n;

    mr__lock_take(&mr__plan_lock);
    n = p->n_layouts;
    memcpy(layout, p->layout, (size_t)n * sizeof *layout);
    mr__lock_drop(&mr__plan_lock);
    for (int i = 0; i < n; i++) { /* they live as long as p, unchanged */
        mr__page_put(t, "%s", indent);
        put_layout(t, layout[i]);
    }
}

void
mr__explain_signature(mr_page *t, const mr_program *p)
{
    for (int i = 0; i < p->n_args; i++) {
        mr__page_put(t, i == 0 ? "(" : ", ");
        mr__explain_shape(t, (mr_dtype)p->keep[i]->dtype, p->keep[i]->ndim,
                          p->keep[i]->dim);
    }
    mr__page_put(t, "%s) gives", p->n_args == 0 ? "(" : "");
    for (int k = 0; k < p->n_out; k++) {
        mr__page_put(t, k == 0 ? " " : ", ");
        mr__explain_shape(t, p->outs[k].dtype, p->outs[k].ndim, p->outs[k].dim);
    }
}

static void
put_simplified(mr_page *t, const mr_program *p)
{
    const mr_simplified *f = &p->simplified;

    if (f->before == 0) {
        mr__page_put(t, "  %d nodes were traced, nothing was simplified\n",
                     p->n_left);
        return;
    }
    mr__page_put(
        t,
        "  %d nodes were traced, %d are left: %d common, %d by algebra, %d "
        "constants, %d views\n",
        f->before, p->n_left, f->same, f->algebra, f->folded, f->views);
    if (f->kept > 0)
        mr__page_put(t,
                     "  %d rules would have changed how an operand of a kernel "
                     "lies, and were left\n",
                     f->kept);
}

/* What an array takes: one that is repeated lies there once. */
static int64_t
bytes_of(const mr_array *x)
{
    int64_t n = mr__dtype_size((mr_dtype)x->dtype);

    for (int i = 0; i < x->ndim; i++)
        if (x->dim[i] == 0 || mr__strides(x)[i] != 0)
            n *= x->dim[i];
    return n;
}

static void
put_memory(mr_page *t, const mr_program *p)
{
    int64_t consts = 0, outs = 0;

    for (int i = 0; i < p->n_consts; i++)
        consts += bytes_of(p->consts[i]);
    for (int k = 0; k < p->n_out; k++)
        outs += p->outs[k].size * mr__dtype_size(p->outs[k].dtype);
    mr__page_put(t,
                 "  a call takes a workspace of %zu bytes, and %" PRId64
                 " bytes for %d outputs; %d constants have %" PRId64 " bytes\n",
                 p->workspace, outs, p->n_out, p->n_consts, consts);
    for (int i = 0; i < p->n_args && i < 64; i++)
        if (p->could_take >> i & 1)
            mr__page_put(
                t, "  argument %d is written over when it is given up%s\n", i,
                p->given >> i & 1 ? ": here" : "");
}

void
mr__explain_lines(mr_page *t, const mr_cache_entry *e, const char *indent)
{
    const char *at = e->lines != NULL ? e->lines : "";

    while (*at != '\0') {
        size_t n = strcspn(at, "\n");

        mr__page_put(t, "%s", indent);
        mr__page_words(t, at, n);
        mr__page_put(t, "\n");
        at += n + (at[n] == '\n');
    }
}

/* Results that are not outputs as they are. */
static void
put_views(mr_page *t, const mr_cache_entry *e)
{
    for (int i = 0; i < e->n_leaves; i++) {
        const mr_leaf *l = &e->leaf[i];

        if (l->kind != MR_LEAF_VIEW)
            continue;
        mr__page_put(t, "  result %d is a view of output %d: ", i, l->index);
        mr__explain_shape(t, (mr_dtype)l->array->dtype, l->array->ndim,
                          l->array->dim);
        mr__page_put(t, "\n");
    }
}

void
mr__explain_entry(mr_page *t, const mr_cache_entry *e)
{
    const mr_program *p;

    if (e->holder == NULL) {
        mr__page_put(t,
                     "nothing to compute: arguments or constants come back\n");
        mr__explain_lines(t, e, "  called with ");
        return;
    }
    p = mr__program_of(e->holder);
    mr__explain_signature(t, p);
    mr__page_put(t, "\n");
    mr__explain_lines(t, e, "  called with ");
    put_simplified(t, p);
    put_memory(t, p);
    put_views(t, e);
    mr__page_put(t, "  %d steps\n", p->n_steps);
    for (int i = 0; i < p->n_steps; i++)
        put_step(t, p, i);
    mr__explain_layouts(t, p, "  ");
}

/* ---- functions
 * ----------------------------------------------------------------------- */

mr_cache_entry **
mr__explain_entries(uint64_t function, size_t *n)
{
    mr_cache_entry **list = NULL;
    size_t cap = 16;

    for (;;) {
        list = mr__alloc_array(cap, sizeof *list);
        if (list == NULL)
            return NULL;
        *n = mr__cache_list(function, list, cap);
        if (*n <= cap)
            return list;
        mr__dealloc(list);
        cap = 2 * *n;
    }
}

static void
put_text(mr_page *t, const char *name, mr_cache_entry *const *list, size_t n)
{
    mr__page_words(t, name, strlen(name));
    mr__page_put(t, ": %zu program%s\n", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        mr__page_put(t, "program %zu: ", i);
        mr__explain_entry(t, list[i]);
    }
}

static void
put_dot(mr_page *t, const char *name, mr_cache_entry *const *list, size_t n)
{
    char id[32];

    mr__page_put(t, MR_DOT_BEGIN);
    for (size_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%zu", i);
        mr__explain_dot(t, list[i], name, id);
    }
    mr__page_put(t, MR_DOT_END);
}

char *
mr__explain(uint64_t function, const char *name, mr_explain_form form)
{
    size_t n = 0;
    mr_cache_entry **list = mr__explain_entries(function, &n);
    mr_page t = {.v = NULL};

    if (list == NULL)
        return NULL;
    if (form == MR_EXPLAIN_DOT)
        put_dot(&t, name, list, n);
    else
        put_text(&t, name, list, n);
    for (size_t i = 0; i < n; i++)
        mr__cache_release(list[i]);
    mr__dealloc(list);
    return mr__page_take(&t);
}
