/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- quantize, dequantize, rounding to a format, E4M3 bytes.
 *
 * Rows are cut into pieces of whole groups, which go over the pool.  Halves
 * are widened, float32 scales are rounded to their type at the end.
 * Called by: device.c.  Calls: kernels/quant.h, the tier's casts.
 */
#include "cpu/quant.h"

#include <math.h>
#include <string.h>

#include "base/float8.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

/* A global scale is that of numbers up to the largest scale times the largest
 * element. */
#define GLOBAL (MR_E4M3_LARGEST * 6.0F)

enum { PIECE = 512 }; /* columns at a time: whole groups of every size */

mr_quant_format
mr__quant_format(const mr_quant_params *p, mr_dtype scales)
{
    mr_quant_format f = {.bits = (int)p->bits, .group = (int)p->group};

    switch ((mr_quant_mode)p->mode) {
    case MR_QUANT_AFFINE:
        f.biased = true;
        f.scale = scales == MR_FLOAT16    ? MR_SCALE_FLOAT16
                  : scales == MR_BFLOAT16 ? MR_SCALE_BFLOAT16
                                          : MR_SCALE_FLOAT32;
        break;
    case MR_QUANT_MXFP4:
        f.code = MR_CODE_E2M1;
        f.scale = MR_SCALE_E8M0;
        break;
    case MR_QUANT_MXFP8:
        f.code = MR_CODE_E4M3;
        f.scale = MR_SCALE_E8M0;
        break;
    case MR_QUANT_NVFP4:
        f.code = MR_CODE_E2M1;
        f.scale = MR_SCALE_E4M3;
        break;
    }
    return f;
}

/* ---- runs of elements of any float type -------------------------------------
 */

static void
run_read(const mr_kernel_view *x, int64_t at, int64_t n, float *to)
{
    int64_t size = mr__dtype_size(x->dtype);
    const char *from = (const char *)x->data + at * size;

    if (x->dtype == MR_FLOAT32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        mr__tier()->casts->cast[x->dtype][MR_FLOAT32](to, from, n);
}

static void
run_write(const mr_kernel_view *x, int64_t at, int64_t n, const float *from)
{
    int64_t size = mr__dtype_size(x->dtype);
    char *to = (char *)x->data + at * size;

    if (x->dtype == MR_FLOAT32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else
        mr__tier()->casts->cast[MR_FLOAT32][x->dtype](to, from, n);
}

/* ---- quantize
 * ------------------------------------------------------------------
 */

typedef struct quantize {
    const mr_kernel_args *a;
    mr_quant_format f;
    const float *global; /* NULL: none; one for per_global numbers */
    int64_t per_global;
} quantize;

static quantize
quantize_read(const mr_kernel_args *a)
{
    const mr_quant_params *p = a->params;
    quantize q = {.a = a, .f = mr__quant_format(p, a->in[0].dtype)};

    if (p->has_global && a->in[0].size > 0) {
        q.global = a->in[1].data;
        q.per_global = a->in[0].size / a->in[1].size;
    }
    return q;
}

/* What multiplies group g before it is scaled. */
static float
group_factor(const quantize *q, int64_t g)
{
    if (!q->global)
        return 1.0F;
    return GLOBAL / q->global[g * q->f.group / q->per_global];
}

static void
affine_piece(void *ctx, int64_t begin, int64_t end)
{
    const quantize *q = ctx;
    int group = q->f.group, bits = q->f.bits;
    uint32_t *words = q->a->out[0].data;
    float x[128], scale, bias;
    uint32_t codes[128];

    for (int64_t g = begin; g < end; g++) {
        run_read(&q->a->in[0], g * group, group, x);
        mr__quant_affine(x, group, bits, codes, &scale, &bias);
        mr__quant_pack(codes, group, bits, words + g * group / 32 * bits);
        run_write(&q->a->out[1], g, 1, &scale);
        run_write(&q->a->out[2], g, 1, &bias);
    }
}

static void
float_piece(void *ctx, int64_t begin, int64_t end)
{
    const quantize *q = ctx;
    int group = q->f.group, bits = q->f.bits;
    uint32_t *words = q->a->out[0].data;
    uint8_t *scales = q->a->out[1].data;
    uint32_t codes[32];
    float x[32];

    for (int64_t g = begin; g < end; g++) {
        run_read(&q->a->in[0], g * group, group, x);
        mr__quant_float(x, group, q->a->in[0].dtype, &q->f, false,
                        group_factor(q, g), codes, &scales[g]);
        mr__quant_pack(codes, group, bits, words + g * group * bits / 32);
    }
}

static void
round_piece(void *ctx, int64_t begin, int64_t end)
{
    const quantize *q = ctx;
    const mr_quant_params *p = q->a->params;
    int group = q->f.group;
    uint32_t codes[32];
    uint8_t byte;
    float x[32];

    for (int64_t g = begin; g < end; g++) {
        float factor = group_factor(q, g), scale;

        run_read(&q->a->in[0], g * group, group, x);
        mr__quant_float(x, group, q->a->in[0].dtype, &q->f, p->ties_even,
                        factor, codes, &byte);
        scale = mr__quant_scale_byte(q->f.scale, byte) / factor;
        for (int i = 0; i < group; i++)
            x[i] = mr__quant_element(&q->f, codes[i]) * scale;
        run_write(&q->a->out[0], g * group, group, x);
    }
}

static mr_code
quantize_run(const mr_kernel_args *a, mr_cpu_body *body)
{
    quantize q = quantize_read(a);

    mr__cpu_for(a->in[0].size / q.f.group, mr__cpu_grain(2.0 * q.f.group), body,
                &q);
    return MR_OK;
}

mr_code
mr__cpu_quantize(const mr_kernel_args *a)
{
    return quantize_run(a, affine_piece);
}

mr_code
mr__cpu_quantize_float(const mr_kernel_args *a)
{
    return quantize_run(a, float_piece);
}

mr_code
mr__cpu_quantize_round(const mr_kernel_args *a)
{
    return quantize_run(a, round_piece);
}

/* ---- dequantize
 * ----------------------------------------------------------------
 */

mr_quant_matrix
mr__quant_matrix(const mr_quant_params *p, const mr_kernel_view *w,
                 const mr_kernel_view *scales, const mr_kernel_view *biases)
{
    mr_quant_matrix m = {.f = mr__quant_format(p, scales->dtype),
                         .rows = w->dim[w->ndim - 2],
                         .cols = w->dim[w->ndim - 1] * 32 / p->bits,
                         .words = w->data,
                         .scales = scales->data};

    if (m.f.biased)
        m.biases = biases->data;
    return m;
}

typedef struct dequantize {
    const mr_kernel_args *a;
    mr_quant_matrix w;   /* all rows */
    int64_t per_row;     /* pieces */
    const float *global; /* NULL: none; one for per_global rows */
    int64_t per_global;
} dequantize;

static void
dequantize_piece(void *ctx, int64_t begin, int64_t end)
{
    const dequantize *d = ctx;
    float x[PIECE];

    for (int64_t u = begin; u < end; u++) {
        int64_t row = u / d->per_row, k = u % d->per_row * PIECE;
        int64_t n = d->w.cols - k < PIECE ? d->w.cols - k : PIECE;
        float factor =
            d->global ? d->global[row / d->per_global] / GLOBAL : 1.0F;

        mr__quant_read(&d->w, row, k, n, factor, true, x);
        run_write(&d->a->out[0], row * d->w.cols + k, n, x);
    }
}

mr_code
mr__cpu_dequantize(const mr_kernel_args *a)
{
    const mr_quant_params *p = a->params;
    dequantize d = {.a = a,
                    .w = mr__quant_matrix(p, &a->in[0], &a->in[1], &a->in[2])};

    if (a->out[0].size == 0)
        return MR_OK;
    d.w.rows = a->out[0].size / d.w.cols;
    if (p->has_global) {
        d.global = a->in[2].data;
        d.per_global = d.w.rows / a->in[2].size;
    }
    d.per_row = (d.w.cols - 1) / PIECE + 1;
    mr__cpu_for(d.w.rows * d.per_row,
                mr__cpu_grain(0.5 * (double)d.w.cols / (double)d.per_row),
                dequantize_piece, &d);
    return MR_OK;
}

/* ---- E4M3 bytes
 * -----------------------------------------------------------------
 */

/* To float32 with the last bit set when something was lost, so that rounding
 * again is right. */
static float
narrow(double x)
{
    float y = (float)x;
    uint32_t bits;

    if ((double)y == x || !isfinite(y))
        return y;
    memcpy(&bits, &y, sizeof bits);
    if (fabs((double)y) > fabs(x))
        bits--;
    bits |= 1;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void
to_fp8_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_kernel_args *a = ctx;
    const mr_kernel_view *x = &a->in[0];
    uint8_t *to = a->out[0].data;
    float run[PIECE];

    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PIECE ? end - i : PIECE;
        if (x->dtype == MR_FLOAT64)
            for (int64_t k = 0; k < n; k++)
                run[k] = narrow(((const double *)x->data)[i + k]);
        else
            run_read(x, i, n, run);
        for (int64_t k = 0; k < n; k++)
            to[i + k] = mr__e4m3_from_float(run[k]);
    }
}

static void
from_fp8_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_kernel_args *a = ctx;
    const uint8_t *from = a->in[0].data;
    float run[PIECE];

    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PIECE ? end - i : PIECE;
        for (int64_t k = 0; k < n; k++)
            run[k] = mr__e4m3_to_float(from[i + k]);
        run_write(&a->out[0], i, n, run);
    }
}

mr_code
mr__cpu_to_fp8(const mr_kernel_args *a)
{
    mr_kernel_args copy = *a;

    mr__cpu_for(a->out[0].size, mr__cpu_grain(2.0), to_fp8_piece, &copy);
    return MR_OK;
}

mr_code
mr__cpu_from_fp8(const mr_kernel_args *a)
{
    mr_kernel_args copy = *a;

    mr__cpu_for(a->out[0].size, mr__cpu_grain(1.0), from_fp8_piece, &copy);
    return MR_OK;
}
