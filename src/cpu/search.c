/* SPDX-License-Identifier: Apache-2.0
 *
 * search.c -- searchsorted: where values go in a sorted sequence.
 *
 * Called by: device.c.  Calls: keys.c.
 */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/keys.h"
#include "ops/params.h"

enum { SEARCHES = 16 };

typedef struct search {
    const mr_kernel_view *sorted, *values;
    uint32_t *to;
    bool right;
    mr_walk walk;
} search;

/* Is a before b?  Both of the same dtype. */
static bool
key_less(mr_dtype t, const void *a, int64_t i, const void *b, int64_t j)
{
    uint64_t x = mr__key_at(t, a, i, 0), y = mr__key_at(t, b, j, 0);

    if (x != y || t != MR_COMPLEX128)
        return x < y;
    return mr__key_at(t, a, i, 1) < mr__key_at(t, b, j, 1);
}

/* Where value i of v goes, one probe after the other. */
static uint32_t
search_one(const search *s, int64_t offset)
{
    const void *x = s->sorted->data, *v = s->values->data;
    mr_dtype t = s->sorted->dtype;
    int64_t low = 0, high = s->sorted->dim[0];

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t at = middle * s->sorted->stride[0];
        bool before = s->right ? !key_less(t, v, offset, x, at)
                               : key_less(t, x, at, v, offset);

        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* SEARCHES values side by side in a dense sequence: each step halves what is
 * left of all, without a branch, and the reads do not wait for each other.  A
 * value that is no number goes the other way. */
#define SEARCH(name, type)                                                     \
    static bool name(const search *s, const int64_t *offset, uint32_t *to)     \
    {                                                                          \
        const type *x = s->sorted->data, *all = s->values->data;               \
        int64_t base[SEARCHES] = {0}, left = s->sorted->dim[0], half;          \
        type v[SEARCHES];                                                      \
                                                                               \
        for (int i = 0; i < SEARCHES; i++) {                                   \
            v[i] = all[offset[i]];                                             \
            if (v[i] != v[i])                                                  \
                return false;                                                  \
        }                                                                      \
        for (; left > 1; left -= half) {                                       \
            half = left / 2;                                                   \
            for (int i = 0; i < SEARCHES; i++) {                               \
                type e = x[base[i] + half - 1];                                \
                                                                               \
                base[i] += half & -(int64_t)(s->right ? e <= v[i] : e < v[i]); \
            }                                                                  \
        }                                                                      \
        for (int i = 0; i < SEARCHES; i++)                                     \
            to[i] = (uint32_t)(base[i] + (s->right ? x[base[i]] <= v[i]        \
                                                   : x[base[i]] < v[i]));      \
        return true;                                                           \
    }
SEARCH(search_i32, int32_t)
SEARCH(search_u32, uint32_t)
SEARCH(search_i64, int64_t)
SEARCH(search_u64, uint64_t)
SEARCH(search_f32, float)
SEARCH(search_f64, double)

typedef bool search_fn(const search *s, const int64_t *offset, uint32_t *to);

static search_fn *
search_of(const mr_kernel_view *sorted)
{
    static search_fn *const of[MR_N_DTYPES] = {
        [MR_INT32] = search_i32,   [MR_UINT32] = search_u32,
        [MR_INT64] = search_i64,   [MR_UINT64] = search_u64,
        [MR_FLOAT32] = search_f32, [MR_FLOAT64] = search_f64};

    return sorted->stride[0] == 1 && sorted->dim[0] > 0 ? of[sorted->dtype]
                                                        : NULL;
}

static void
search_piece(void *ctx, int64_t begin, int64_t end)
{
    const search *s = ctx;
    search_fn *many = search_of(s->sorted);
    int64_t offset[SEARCHES];
    mr_walk w = s->walk;

    mr__walk_seek(&w, begin);
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < SEARCHES ? end - i : SEARCHES;
        for (int64_t k = 0; k < n; k++, mr__walk_next(&w))
            offset[k] = w.offset[0];
        if (n == SEARCHES && many && many(s, offset, s->to + i))
            continue;
        for (int64_t k = 0; k < n; k++)
            s->to[i + k] = search_one(s, offset[k]);
    }
}

mr_code
mr__cpu_searchsorted(const mr_kernel_args *a)
{
    const mr_searchsorted_params *p = a->params;
    const mr_kernel_view *v = &a->in[1];
    search s = {.sorted = &a->in[0],
                .values = v,
                .to = a->out[0].data,
                .right = p->right};

    mr__walk_init(&s.walk, v->ndim, v->dim, 0);
    mr__walk_add(&s.walk, v->ndim, v->stride, 0);
    mr__walk_merge(&s.walk);
    mr__cpu_for(v->size, mr__cpu_grain(100.0), search_piece, &s);
    return MR_OK;
}
