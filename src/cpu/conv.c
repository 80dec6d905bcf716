/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c -- convolution as matrix products.
 *
 * Each output position is a row: the entries of the input below the kernel,
 * tap by tap, channels last ("patch"), zero where the kernel hangs over the
 * edge or between dilated entries.  Rows times the weights, (O, taps x
 * channels), are the outputs.  Patches are made a chunk of rows at a time, in
 * the workspace, for one group; a kernel of one tap needs none.
 * Called by: device.c.  Calls: matmul.c's routes.
 */
#include <string.h>

#include "cpu/product.h"
#include "ops/params.h"

enum { MAX_SPATIAL = 3, PATCH_BYTES = 8 << 20, ALIGN = 64 };

typedef struct conv {
    const mr_conv_params *p;
    int n_spatial;
    int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL];
    int64_t batch, channels, group_channels, group_outputs, outputs;
    int64_t n_rows, taps, k, chunk;
    mr_dtype dtype;
    int64_t item;
    bool plain; /* one tap at every position: patches are the input */
    const char *x, *w;
    char *to;
    /* the chunk being made */
    char *patches;
    int64_t row0, group;
} conv;

static void
conv_plan(const mr_kernel_args *a, conv *c)
{
    const mr_conv_params *p = a->params;
    const mr_kernel_view *x = &a->in[0], *w = &a->in[1], *out = &a->out[0];
    int n = x->ndim - 2;

    *c = (conv){.p = p,
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
    c->k = c->taps * c->group_channels;
    c->chunk =
        c->plain || c->k == 0 ? c->n_rows : PATCH_BYTES / (c->k * c->item);
    c->chunk = c->chunk < 96 ? 96 : c->chunk;
    c->chunk = c->chunk < c->n_rows ? c->chunk : c->n_rows;
}

/* The product of `rows` rows of patches with the weights of a group. */
static mr_product
conv_product(const conv *c, int64_t rows)
{
    mr_product p = {.dtype = c->dtype,
                    .m = rows,
                    .n = c->group_outputs,
                    .k = c->k,
                    .c_row = c->outputs,
                    .c_col = 1,
                    .n_items = 1};

    p.a = (mr_gemm_side){NULL, c->dtype, rows, c->k, 1};
    p.b = (mr_gemm_side){NULL, c->dtype, p.n, c->k, 1};
    return p;
}

static size_t
patches_bytes(const conv *c)
{
    size_t bytes = (size_t)c->chunk * (size_t)c->k * (size_t)c->item;

    return c->plain ? 0 : (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

size_t
mr__cpu_conv_workspace(const mr_kernel_args *a)
{
    size_t whole, last;
    mr_product p;
    conv c;

    if (a->out[0].size == 0)
        return 0;
    conv_plan(a, &c);
    p = conv_product(&c, c.chunk);
    whole = mr__product_bytes(&p);
    p = conv_product(&c, (c.n_rows - 1) % c.chunk + 1);
    last = mr__product_bytes(&p);
    return patches_bytes(&c) + (whole > last ? whole : last);
}

/* The input position of a tap at an output position along an axis; -1 where
 * there is a zero. */
static int64_t
tap_position(const conv *c, int axis, int64_t out, int64_t tap)
{
    const mr_conv_params *p = c->p;
    int64_t spread = p->input_dilation.v[axis], at;

    if (p->flip)
        tap = c->kernel[axis] - 1 - tap;
    at = out * p->stride.v[axis] + tap * p->kernel_dilation.v[axis] -
         p->low.v[axis];
    if (at < 0 || at % spread != 0 || at / spread >= c->in[axis])
        return -1;
    return at / spread;
}

/* One patch: its taps in row-major order. */
static void
patch_make(const conv *c, int64_t row, char *to)
{
    size_t bytes = (size_t)(c->group_channels * c->item);
    int64_t out[MAX_SPATIAL] = {0}, tap[MAX_SPATIAL] = {0};

    for (int i = c->n_spatial - 1; i >= 0; i--) {
        out[i] = row % c->out[i];
        row /= c->out[i];
    }
    for (int64_t t = 0; t < c->taps; t++, to += bytes) {
        int64_t from = row;
        bool inside = true;

        for (int i = 0; i < c->n_spatial && inside; i++) {
            int64_t at = tap_position(c, i, out[i], tap[i]);

            inside = at >= 0;
            from = from * c->in[i] + at;
        }
        if (inside)
            memcpy(to,
                   c->x + (from * c->channels + c->group * c->group_channels) *
                              c->item,
                   bytes);
        else
            memset(to, 0, bytes);
        for (int i = c->n_spatial - 1; i >= 0; i--) {
            if (++tap[i] < c->kernel[i])
                break;
            tap[i] = 0;
        }
    }
}

static void
patches_piece(void *ctx, int64_t begin, int64_t end)
{
    const conv *c = ctx;

    for (int64_t i = begin; i < end; i++)
        patch_make(c, c->row0 + i, c->patches + i * c->k * c->item);
}

mr_code
mr__cpu_conv(const mr_kernel_args *a)
{
    char *workspace = a->workspace;
    int64_t grain;
    conv c;

    if (a->out[0].size == 0)
        return MR_OK;
    conv_plan(a, &c);
    c.patches = workspace;
    workspace += patches_bytes(&c);
    grain = mr__cpu_grain((double)c.taps *
                          (6.0 + 0.05 * (double)(c.group_channels * c.item)));
    for (c.row0 = 0; c.row0 < c.n_rows; c.row0 += c.chunk)
        for (c.group = 0; c.group < c.p->groups; c.group++) {
            int64_t left = c.n_rows - c.row0;
            int64_t rows = left < c.chunk ? left : c.chunk;
            mr_product p = conv_product(&c, rows);

            if (!c.plain && c.k > 0)
                mr__cpu_for(rows, grain, patches_piece, &c);
            p.a.data = c.plain ? c.x : c.patches;
            p.b.data = c.w + c.group * c.group_outputs * c.k * c.item;
            p.c = c.to +
                  (c.row0 * c.outputs + c.group * c.group_outputs) * c.item;
            mr__product_run(&p, workspace);
        }
    return MR_OK;
}

double
mr__cpu_conv_cost(const mr_kernel_args *a)
{
    const mr_kernel_view *w = &a->in[1];
    double k = w->dim[0] > 0 ? (double)w->size / (double)w->dim[0] : 0.0;

    return 500.0 + 0.03 * k * (double)a->out[0].size;
}
