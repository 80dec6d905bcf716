/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c -- which way a convolution goes, and convolution as matrix products.
 *
 * Each output position is a row: the entries of the input below the kernel,
 * tap by tap, channels last ("patch"), zero where the kernel hangs over the
 * edge or between dilated entries.  Rows times the weights, (O, taps x
 * channels), are the outputs.  Patches are made a chunk of rows at a time, in
 * the workspace, for one group; a kernel of one tap needs none.
 * Groups of one channel go another way (depthwise.c), and so does a single
 * filter over a line (conv_line.c).  On the matrix unit (conv_matrix.c) items
 * whose numbers it cannot take go one of the other ways.
 * Called by: device.c.  Calls: matmul.c's routes.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/integers.h"
#include "cpu/conv.h"
#include "cpu/epilogue.h"
#include "cpu/product.h"
#include "ops/params.h"

enum { PATCH_BYTES = 8 << 20, ALIGN = 64 };

void
mr__conv_plan(const mr_conv_params *p, const mr_kernel_view *x,
              const mr_kernel_view *w, const mr_kernel_view *out, mr_conv *c)
{
    int n = x->ndim - 2;

    *c = (mr_conv){.p = p,
                   .n_spatial = n,
                   .batch = x->dim[0],
                   .channels = x->dim[n + 1],
                   .group_channels = w->dim[n + 1],
                   .outputs = w->dim[0],
                   .n_rows = x->dim[0],
                   .taps = 1,
                   .plain = p->groups == 1,
                   .dtype = x->dtype,
                   .item = mr__dtype_size(x->dtype),
                   .x = x->data,
                   .w = w->data,
                   .to = out->data};
    c->group_outputs = c->outputs / p->groups;
    for (int i = 0; i < n; i++) {
        c->in[i] = x->dim[1 + i];
        c->out[i] = out->dim[1 + i];
        c->kernel[i] = w->dim[1 + i];
        c->n_rows *= c->out[i];
        c->taps *= c->kernel[i];
        c->plain = c->plain && c->kernel[i] == 1 && p->stride.v[i] == 1 &&
                   p->low.v[i] == 0 && p->high.v[i] == 0 &&
                   p->input_dilation.v[i] == 1;
    }
    c->runs = p->groups == 1 && !p->flip && p->kernel_dilation.v[n - 1] == 1 &&
              p->input_dilation.v[n - 1] == 1;
    c->k = c->taps * c->group_channels;
    c->chunk =
        c->plain || c->k == 0 ? c->n_rows : PATCH_BYTES / (c->k * c->item);
    c->chunk = c->chunk < 96 ? 96 : c->chunk;
    c->chunk = c->chunk < c->n_rows ? c->chunk : c->n_rows;
}

static void
conv_plan(const mr_kernel_args *a, mr_conv *c)
{
    mr__conv_plan(a->params, &a->in[0], &a->in[1], &a->out[0], c);
    c->epilogue = a->epilogue;
}

/* The product of `rows` rows of patches with the weights of a group. */
static mr_product
conv_product(const mr_conv *c, int64_t rows)
{
    mr_product p = {.dtype = c->dtype,
                    .m = rows,
                    .n = c->group_outputs,
                    .k = c->k,
                    .c_row = c->outputs,
                    .c_col = 1,
                    .n_items = 1,
                    .epilogue = c->epilogue,
                    .after_row = c->row0,
                    .after_col = c->group * c->group_outputs};

    p.a = (mr_gemm_side){NULL, c->dtype, rows, c->k, 1};
    p.b = (mr_gemm_side){NULL, c->dtype, p.n, c->k, 1};
    return p;
}

static size_t
patches_bytes(const mr_conv *c)
{
    size_t bytes = (size_t)c->chunk * (size_t)c->k * (size_t)c->item;

    return c->plain ? 0 : mr__whole_lines(bytes);
}

static size_t
conv_patches_bytes(const mr_conv *c)
{
    mr_product whole = conv_product(c, c->chunk);
    mr_product last = conv_product(c, (c->n_rows - 1) % c->chunk + 1);

    return patches_bytes(c) +
           mr__max_bytes(mr__product_bytes(&whole), mr__product_bytes(&last));
}

/* A constant length for the most frequent ones. */
static inline void
channels_copy(char *to, const char *from, size_t bytes)
{
    switch (bytes) {
    case 16:
        memcpy(to, from, 16);
        break;
    case 32:
        memcpy(to, from, 32);
        break;
    case 64:
        memcpy(to, from, 64);
        break;
    default:
        memcpy(to, from, bytes);
        break;
    }
}

/* The taps of the last axis, at output position `out` of it; `line` is where
 * the input's line begins, NULL beyond the edges. */
static void
taps_make(const mr_conv *c, const char *line, int64_t out, char *to)
{
    int last = c->n_spatial - 1;
    int64_t n = c->kernel[last], step = c->channels * c->item;
    int64_t bytes = c->group_channels * c->item;

    if (!line) {
        memset(to, 0, (size_t)(n * bytes));
    } else if (c->runs) {
        int64_t first = out * c->p->stride.v[last] - c->p->low.v[last];
        int64_t low = first < 0 ? -first : 0, high = c->in[last] - first;

        high = high < 0 ? 0 : high < n ? high : n;
        low = low < high ? low : high;
        memset(to, 0, (size_t)(low * bytes));
        if (low < high)
            memcpy(to + low * bytes, line + (first + low) * step,
                   (size_t)((high - low) * bytes));
        memset(to + high * bytes, 0, (size_t)((n - high) * bytes));
    } else {
        for (int64_t t = 0; t < n; t++, to += bytes) {
            int64_t at = mr__conv_position(c, last, out, t);

            if (at >= 0)
                channels_copy(to, line + at * step, (size_t)bytes);
            else
                memset(to, 0, (size_t)bytes);
        }
    }
}

/* One patch: its taps in row-major order. */
static void
patch_make(const mr_conv *c, int64_t row, char *to)
{
    int64_t out[MR_CONV_SPATIAL] = {0}, tap[MR_CONV_SPATIAL] = {0};
    int last = c->n_spatial - 1;
    int64_t n_lines = c->taps / c->kernel[last];
    int64_t line_bytes = c->kernel[last] * c->group_channels * c->item;

    row = mr__conv_out_at(c, last + 1, row, out);
    for (int64_t t = 0; t < n_lines; t++, to += line_bytes) {
        int64_t from = mr__conv_tap_at(c, last, row, out, tap);

        taps_make(c,
                  from >= 0 ? c->x + (from * c->in[last] * c->channels +
                                      c->group * c->group_channels) *
                                         c->item
                            : NULL,
                  out[last], to);
        mr__conv_tap_next(c, last, tap);
    }
}

static void
patches_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_conv *c = ctx;

    for (int64_t i = begin; i < end; i++)
        patch_make(c, c->row0 + i, c->patches + i * c->k * c->item);
}

/* Patches, a chunk of them after the other, times the weights of each group. */
static void
conv_patches(const mr_conv *conv, void *workspace)
{
    mr_conv c = *conv;
    int64_t grain = mr__cpu_grain(
        (double)c.taps * (3.0 + 0.05 * (double)(c.group_channels * c.item)));

    c.patches = workspace;
    for (c.row0 = 0; c.row0 < c.n_rows; c.row0 += c.chunk)
        for (c.group = 0; c.group < c.p->groups; c.group++) {
            int64_t rows = mr__min(c.n_rows - c.row0, c.chunk);
            mr_product p = conv_product(&c, rows);

            if (!c.plain && c.k > 0)
                mr__cpu_for(rows, grain, patches_piece, &c);
            p.a.data = c.plain ? c.x : c.patches;
            p.b.data = c.w + c.group * c.group_outputs * c.k * c.item;
            p.c = c.to +
                  (c.row0 * c.outputs + c.group * c.group_outputs) * c.item;
            mr__product_run(&p, c.patches + patches_bytes(&c));
        }
}

/* ---- ways ------------------------------------------------------------------
 */

static bool
always(const mr_conv *c)
{
    (void)c;
    return true;
}

static bool
never(const mr_conv *c)
{
    (void)c;
    return false;
}

/* Without the matrix unit: the first that fits.  Some do what follows. */
typedef struct way {
    bool (*fits)(const mr_conv *c);
    size_t (*bytes)(const mr_conv *c);
    void (*run)(const mr_conv *c, void *workspace);
    bool (*follows)(const mr_conv *c);
} way;

static const way ways[] = {
    {mr__conv_depthwise_fits, mr__conv_depthwise_bytes, mr__conv_depthwise,
     never},
    {mr__conv_line_fits, mr__conv_line_bytes, mr__conv_line, never},
    {mr__conv_spread_fits, mr__conv_spread_bytes, mr__conv_spread, never},
    {mr__conv_squares_fits, mr__conv_squares_bytes, mr__conv_squares, always},
    {mr__conv_window_fits, mr__conv_window_bytes, mr__conv_window,
     mr__conv_window_follows},
    {always, conv_patches_bytes, conv_patches, always},
};
enum { BEFORE_MATRIX = 2 }; /* of these, where they fit */

static const way *
way_of(const mr_conv *c)
{
    const way *w = ways;

    while (!w->fits(c))
        w++;
    return w;
}

static bool
on_matrix(const mr_conv *c)
{
    for (int i = 0; i < BEFORE_MATRIX; i++)
        if (ways[i].fits(c))
            return false;
    return mr__conv_matrix_fits(c);
}

/* Without the matrix unit; whether what follows is done. */
static bool
conv_other(const mr_conv *c, void *workspace)
{
    const way *w = way_of(c);

    w->run(c, workspace);
    return w->follows(c);
}

/* The unit's, and a flag for each item; what the other ways need is asked for
 * when numbers need them. */
size_t
mr__cpu_conv_workspace(const mr_kernel_args *a)
{
    mr_conv c;

    if (a->out[0].size == 0)
        return 0;
    conv_plan(a, &c);
    if (!on_matrix(&c))
        return way_of(&c)->bytes(&c);
    return mr__whole_lines(mr__conv_matrix_bytes(&c)) +
           (size_t)c.batch * sizeof(bool);
}

static mr_conv
conv_item(const mr_conv *c, int64_t i)
{
    int64_t in = c->channels * c->item;
    mr_conv one = *c;

    for (int k = 0; k < c->n_spatial; k++)
        in *= c->in[k];
    one.batch = 1;
    one.n_rows = c->n_rows / c->batch;
    one.chunk = c->chunk < one.n_rows ? c->chunk : one.n_rows;
    one.x = c->x != NULL ? c->x + i * in : NULL;
    one.to =
        c->to != NULL ? c->to + i * one.n_rows * c->outputs * c->item : NULL;
    one.epilogue = NULL;
    return one;
}

/* The items that cannot go on the unit, of which there are n. */
static mr_code
conv_unfit(const mr_conv *c, const bool *unfit, int64_t n, bool *followed)
{
    mr_conv one = conv_item(c, 0);
    size_t bytes =
        n == c->batch ? way_of(c)->bytes(c) : way_of(&one)->bytes(&one);
    char *memory = mr__alloc(bytes + ALIGN), *room;

    if (memory == NULL)
        return MR_E_MEMORY;
    room = memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
    if (n == c->batch)
        *followed = conv_other(c, room);
    for (int64_t i = 0; n < c->batch && i < c->batch; i++)
        if (unfit[i]) {
            one = conv_item(c, i);
            conv_other(&one, room);
        }
    mr__dealloc(memory);
    return MR_OK;
}

static mr_code
conv_matrix(const mr_conv *c, char *workspace, bool *followed)
{
    size_t bytes = mr__whole_lines(mr__conv_matrix_bytes(c));
    bool *unfit = (bool *)(void *)(workspace + bytes);
    int64_t n = mr__conv_matrix_run(c, workspace, unfit);

    return n > 0 ? conv_unfit(c, unfit, n, followed) : MR_OK;
}

mr_code
mr__cpu_conv(const mr_kernel_args *a)
{
    bool followed = false;
    mr_conv c;

    if (a->out[0].size == 0)
        return MR_OK;
    conv_plan(a, &c);
    if (!on_matrix(&c))
        followed = conv_other(&c, a->workspace);
    else if (conv_matrix(&c, a->workspace, &followed) != MR_OK)
        return MR_E_MEMORY;
    if (c.epilogue != NULL && !followed)
        mr__after_all(c.epilogue);
    return MR_OK;
}

double
mr__cpu_conv_cost(const mr_kernel_args *a)
{
    const mr_kernel_view *w = &a->in[1];
    double k = w->dim[0] > 0 ? (double)w->size / (double)w->dim[0] : 0.0;

    return 500.0 + 0.03 * k * (double)a->out[0].size;
}
