/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_few.c -- attention with few queries, at the speed of memory.
 *
 * As when a model writes one word after the other: each key and value is used
 * for a few rows alone, so nothing is packed.  A unit is CHUNK keys of one key
 * head, taken PIECE at a time: products of the queries with keys, weights,
 * weighted sums of values, all while the piece is in cache.  The units of a
 * head are joined in order.
 * Called by: attend.c.  Calls: kernels/attend.h, kernels/gemm.h, the tier.
 */
#include <math.h>
#include <string.h>

#include "cpu/attend.h"
#include "kernels/tier/tier.h"

/* AHEAD: what comes from memory is asked for so many keys before, since
 * prefetchers begin anew at each page and each piece (32 heads of 4096 x 128
 * bfloat16 on two cores: 1.73 to 1.53 ms, float32 3.21 to 2.72; 8 keys as good,
 * 64 not). */
enum { CHUNK = 1024, PIECE = 256, AHEAD = 16 };

typedef struct few {
    const mr_attend_job *j;
    int64_t n_chunks;
    int64_t part_floats; /* of a row of a chunk: sums, top, sum */
    int64_t ahead;       /* how many keys ahead are asked for */
    float *part;
} few;

bool
mr__attend_few_fits(const mr_attend_job *j)
{
    return j->rows <= MR_ATTEND_FEW && j->k.stride[3] == 1 &&
           j->v.stride[3] == 1;
}

static void
few_plan(const mr_attend_job *j, few *f)
{
    *f = (few){.j = j,
               .n_chunks = (j->lk - 1) / CHUNK + 1,
               .part_floats = j->width + 2};
    if (j->batch * j->heads * j->lk * j->depth * mr__dtype_size(j->dtype) >=
        MR_GEMV_FAR)
        f->ahead = AHEAD;
}

static int64_t
few_slot_floats(const few *f)
{
    const mr_attend_job *j = f->j;

    /* queries, scores, sums of a piece, a row of the mask */
    return (j->rows * (j->depth + PIECE + j->width) + PIECE + 15) / 16 * 16;
}

static int64_t
few_part_floats(const few *f)
{
    const mr_attend_job *j = f->j;
    int64_t n = j->batch * j->heads * f->n_chunks * j->rows * f->part_floats;

    return (n + 15) / 16 * 16;
}

size_t
mr__attend_few_bytes(const mr_attend_job *j)
{
    few f;

    few_plan(j, &f);
    return (size_t)(few_part_floats(&f) + j->n_slots * few_slot_floats(&f)) *
           sizeof(float);
}

/* -inf drops a pair whatever its score. */
static void
added_drop(float *s, const float *added, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        s[k] = added[k] == -INFINITY ? -INFINITY : s[k];
}

static void
row_masks(const few *f, int64_t item, int64_t r, int64_t key, int64_t n,
          float *s, float *spare)
{
    const mr_attend_job *j = f->j;
    const mr_tier *tier = mr__tier();
    const mr_tier_dtype *f32 = tier->dtype[MR_FLOAT32];
    int64_t limit = r % j->lq + j->lk - j->lq - key;
    float low[MR_SPLAT_N], wide[PIECE];
    bool far; /* a score is infinite, or none */

    for (int64_t k = limit < -1 ? 0 : limit + 1; j->causal && k < n; k++)
        s[k] = MR_ATTEND_MASKED;
    if (!j->mask)
        return;
    for (int i = 0; i < MR_SPLAT_N; i++)
        low[i] = MR_ATTEND_MASKED;
    {
        mr_dtype m = j->mask->dtype;
        int64_t size = mr__dtype_size(m), step = j->mask_stride[3];
        const char *from = mr__attend_mask(j, item, r);
        const void *x = from + key * step * size;

        if (step != 1) {
            tier->moves->gather[size == 1   ? 0
                                : size == 2 ? 1
                                            : 2](spare, x, step * size, n);
            x = spare;
        }
        if (m == MR_BOOL) {
            f32->map[MR_K_SELECT](s, (const void *[]){x, s, low},
                                  (int64_t[]){1, 1, 0}, n);
            return;
        }
        if (m != MR_FLOAT32) {
            tier->casts->cast[m][MR_FLOAT32](wide, x, n);
            x = wide;
        }
        far = !mr__attend()->finite(s, n);
        f32->map[MR_K_ADD](s, (const void *[]){s, x}, (int64_t[]){1, 1}, n);
        if (far)
            added_drop(s, x, n);
    }
}

static float
exp_of(float x)
{
    float in[MR_SPLAT_N] = {x}, out[MR_SPLAT_N];

    mr__tier()->dtype[MR_FLOAT32]->map[MR_K_EXP](out, (const void *[]){in},
                                                 (int64_t[]){1}, 1);
    return out[0];
}

/* Scores become weights; gives what old sums are multiplied by. */
static float
row_step(float *s, int64_t n, float *top, float *sum)
{
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];
    float most, total, fade, from[MR_SPLAT_N];

    f32->fold[MR_FOLD_MAX].rows(&most, s, n, 1, n * 4);
    most = most > *top || isnan(most) ? most : *top;
    /* -inf - -inf is no number: such a row has weights of 0 so far */
    for (int i = 0; i < MR_SPLAT_N; i++)
        from[i] = isinf(most) && most < 0.0F ? 0.0F : most;
    f32->map[MR_K_SUBTRACT](s, (const void *[]){s, from}, (int64_t[]){1, 0}, n);
    f32->map[MR_K_EXP](s, (const void *[]){s}, (int64_t[]){1}, n);
    f32->fold[MR_FOLD_SUM].rows(&total, s, n, 1, n * 4);
    fade = exp_of(*top - from[0]);
    *sum = *sum * fade + total;
    *top = most;
    return fade;
}

static void
values_add(const few *f, const mr_gemm_side *v, const float *s, float *y,
           int64_t n)
{
    const mr_attend_job *j = f->j;
    int64_t size = mr__dtype_size(j->dtype);

    for (int64_t at = 0; at < j->width; at += MR_GEMV_COLS)
        for (int64_t r = 0; r < j->rows; r += MR_GEMV_ROWS) {
            int64_t rows = j->rows - r, cols = j->width - at;
            mr_gemm_side side = *v;

            side.data = (const char *)side.data + at * size;
            rows = rows < MR_GEMV_ROWS ? rows : MR_GEMV_ROWS;
            cols = cols < MR_GEMV_COLS ? cols : MR_GEMV_COLS;
            (f->ahead ? mr__gemv_far : mr__gemv_wide)(
                y + r * j->width + at, j->width, s + r * PIECE, PIECE,
                (int)rows, &side, n, cols);
        }
}

/* The same where sums came out infinite or none, and masks drop pairs: values
 * that are none are 0, and those that see them get them apart. */
static void
values_again(const few *f, int64_t item, int64_t key, const mr_gemm_side *v,
             const float *s, float *y, int64_t n)
{
    enum { COLS = 16 };
    const mr_attend_job *j = f->j;
    float values[PIECE * COLS];
    bool odd[PIECE] = {false}, any = false;
    mr_gemm_side side = {values, MR_FLOAT32, COLS, 1, COLS};
    mr_attend_odd x = {j, item, 0,     j->rows, key, n,       odd,
                       s, 1,    PIECE, y,       1,   j->width};

    for (int64_t i = 0; i < j->width; i += COLS) {
        int64_t cols = j->width - i < COLS ? j->width - i : COLS;

        for (int64_t k = 0; k < n; k++) {
            mr__attend_load(values + k * COLS, v->data, j->dtype,
                            k * v->depth_stride + i, 1, cols);
            odd[k] |= mr__attend_clear(values + k * COLS, cols);
            any |= odd[k];
        }
        for (int64_t r = 0; r < j->rows; r += MR_GEMV_ROWS) {
            int64_t rows = j->rows - r;

            rows = rows < MR_GEMV_ROWS ? rows : MR_GEMV_ROWS;
            mr__gemv_wide(y + r * j->width + i, j->width, s + r * PIECE, PIECE,
                          (int)rows, &side, n, cols);
        }
    }
    if (any)
        mr__attend_odd_add(&x);
}

/* Where the sums of a row of a chunk are. */
static float *
part_at(const few *f, int64_t item, int64_t chunk, int64_t r)
{
    return f->part +
           ((item * f->n_chunks + chunk) * f->j->rows + r) * f->part_floats;
}

static void
piece_run(const few *f, int64_t item, int64_t chunk, int64_t key, int64_t n,
          float *slot)
{
    const mr_attend_job *j = f->j;
    int64_t size = mr__dtype_size(j->dtype);
    float *q = slot, *s = q + j->rows * j->depth, *y = s + j->rows * PIECE;
    float *spare = y + j->rows * j->width;
    const char *k =
        (const char *)j->k.data +
        (mr__attend_offset(&j->k, item, j->heads) + key * j->k.stride[2]) *
            size;
    mr_gemm_side v = {
        (const char *)j->v.data +
            (mr__attend_offset(&j->v, item, j->heads) + key * j->v.stride[2]) *
                size,
        j->dtype, j->width, 1, j->v.stride[2]};
    float fade[MR_ATTEND_FEW];
    bool dropped[MR_ATTEND_FEW]; /* so far all keys, but now no more */

    for (int64_t r = 0; r < j->rows; r++) {
        float *part = part_at(f, item, chunk, r);

        mr__attend()->dots[mr__attend_kind(j->dtype)](
            s + r * PIECE, q + r * j->depth, k, j->k.stride[2], n, j->depth,
            r == 0 ? f->ahead : 0);
        row_masks(f, item, r, key, n, s + r * PIECE, spare);
        dropped[r] = part[j->width] == MR_ATTEND_MASKED;
        fade[r] =
            row_step(s + r * PIECE, n, part + j->width, part + j->width + 1);
        dropped[r] = dropped[r] && part[j->width] != MR_ATTEND_MASKED;
    }
    values_add(f, &v, s, y, n);
    if (mr__attend_drops(j) && !mr__attend()->finite(y, j->rows * j->width))
        values_again(f, item, key, &v, s, y, n);
    for (int64_t r = 0; r < j->rows; r++) {
        float *part = part_at(f, item, chunk, r), *add = y + r * j->width;

        if (dropped[r]) /* 0 times these may be no number */
            memset(part, 0, (size_t)j->width * sizeof *part);
        for (int64_t i = 0; i < j->width; i++)
            part[i] = part[i] * fade[r] + add[i];
    }
}

static void
few_unit(const void *ctx, int64_t unit, char *memory)
{
    const few *f = ctx;
    const mr_attend_job *j = f->j;
    int64_t item = unit / f->n_chunks, chunk = unit % f->n_chunks;
    int64_t end = (chunk + 1) * CHUNK < j->lk ? (chunk + 1) * CHUNK : j->lk;
    float *slot = (float *)(void *)memory;

    for (int64_t r = 0; r < j->rows; r++) {
        float *part = part_at(f, item, chunk, r);

        memset(part, 0, (size_t)f->part_floats * sizeof *part);
        part[j->width] = -INFINITY;
        if (chunk == 0 && j->sinks) {
            part[j->width] = mr__attend_sink(j, item, r);
            part[j->width + 1] = 1.0F;
        }
        mr__attend_query(j, item, r, slot + r * j->depth);
    }
    for (int64_t key = chunk * CHUNK; key < end; key += PIECE)
        piece_run(f, item, chunk, key, end - key < PIECE ? end - key : PIECE,
                  slot);
}

/* Joins the chunks of a row in the first one's place. */
static void
row_finish(const few *f, int64_t item, int64_t r)
{
    const mr_attend_job *j = f->j;
    float *y = part_at(f, item, 0, r), top = y[j->width];
    float from, sum;

    for (int64_t c = 1; c < f->n_chunks; c++) {
        float t = part_at(f, item, c, r)[j->width];

        top = t > top || isnan(t) ? t : top;
    }
    from = isinf(top) && top < 0.0F ? 0.0F : top;
    sum = 0.0F;
    for (int64_t c = 0; c < f->n_chunks; c++) {
        float *part = part_at(f, item, c, r);
        float by = exp_of(part[j->width] - from);

        /* all keys of the chunk were dropped, others were not */
        if (part[j->width] == MR_ATTEND_MASKED && top != MR_ATTEND_MASKED)
            memset(part, 0, (size_t)j->width * sizeof *part);
        sum += part[j->width + 1] * by;
        for (int64_t i = 0; i < j->width; i++)
            y[i] = c == 0 ? y[i] * by : y[i] + part[i] * by;
    }
    for (int64_t i = 0; i < j->width; i++)
        y[i] /= sum;
    mr__attend_store(j, item, r, 1, y);
}

static void
finish_piece(void *ctx, int64_t begin, int64_t end)
{
    const few *f = ctx;

    for (int64_t i = begin; i < end; i++)
        row_finish(f, i / f->j->rows, i % f->j->rows);
}

void
mr__attend_few(const mr_attend_job *j, char *workspace)
{
    int64_t items = j->batch * j->heads;
    few f;

    few_plan(j, &f);
    f.part = (float *)(void *)workspace;
    mr__cpu_units(j->n_slots, items * f.n_chunks,
                  workspace + (size_t)few_part_floats(&f) * sizeof(float),
                  (size_t)few_slot_floats(&f) * sizeof(float), few_unit, &f);
    mr__cpu_for(items * j->rows,
                mr__cpu_grain(50.0 + (double)f.n_chunks * (double)j->width),
                finish_piece, &f);
}
