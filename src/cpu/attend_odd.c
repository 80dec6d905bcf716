/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_odd.c -- keys whose values are infinite or no numbers, where masks
 * drop pairs.
 *
 * A pair that a mask drops has a weight of 0 and adds nothing, whatever the key
 * and its value hold.  A product makes no number of 0 times such a value, and
 * only for the rows whose blocks happen to hold the key.  So these values are 0
 * in the products, and what they give to the rows that do see their keys is
 * added here: infinities and NaN, which are the same in any order.
 * Called by: attend.c, attend_few.c, attend_back_tile.c.  Calls: the tier.
 */
#include <math.h>

#include "cpu/attend.h"
#include "kernels/tier/tier.h"

enum { RUN = 64 }; /* values of a key that are brought together */

bool
mr__attend_clear(float *x, int64_t n)
{
    if (mr__attend()->finite(x, n))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            x[i] = 0.0F;
    return true;
}

bool
mr__attend_odd_clear(float *v, int64_t panels, int64_t high, int64_t n_keys,
                     bool *odd)
{
    if (mr__attend()->finite(v, panels * high * n_keys))
        return false;
    for (int64_t k = 0; k < n_keys; k++) {
        odd[k] = false;
        for (int64_t p = 0; p < panels; p++)
            odd[k] |= mr__attend_clear(v + (p * n_keys + k) * high, high);
    }
    return true;
}

/* An element of the mask: does it drop the pair? */
static bool
mask_drops(const void *x, mr_dtype t)
{
    float added;

    if (t == MR_BOOL)
        return *(const uint8_t *)x == 0;
    mr__attend_load(&added, x, t, 0, 1, 1);
    return added == -INFINITY;
}

/* Do masks leave the pair of row r and a key? */
static bool
pair_counts(const mr_attend_job *j, int64_t item, int64_t r, int64_t key)
{
    const char *mask;

    if (j->causal && key > mr__attend_limit(j, r))
        return false;
    if (!j->mask)
        return true;
    mask = mr__attend_mask(j, item, r);
    mask += key * j->mask_stride[3] * mr__dtype_size(j->mask->dtype);
    return !mask_drops(mask, j->mask->dtype);
}

/* What value i of key k gives to the rows that see it. */
static void
value_add(const mr_attend_odd *x, int64_t k, int64_t i, float value,
          const bool *sees)
{
    for (int64_t r = 0; r < x->rows; r++)
        if (sees[r])
            x->sums[i * x->sum_col + r * x->sum_row] +=
                x->weights[k * x->weight_key + r * x->weight_row] * value;
}

/* A row whose keys have all been dropped so far weighs them all alike: then
 * dropped pairs do count. */
static void
key_add(const mr_attend_odd *x, int64_t k)
{
    const mr_attend_job *j = x->j;
    int64_t at = mr__attend_offset(&j->v, x->item, j->heads) +
                 (x->key0 + k) * j->v.stride[2];
    bool sees[MR_GEMM_MAX_COLS];
    float value[RUN];

    for (int64_t r = 0; r < x->rows; r++)
        sees[r] = x->weights[k * x->weight_key + r * x->weight_row] != 0.0F ||
                  pair_counts(j, x->item, x->row0 + r, x->key0 + k);
    for (int64_t i = 0, n; i < j->width; i += n) {
        n = j->width - i < RUN ? j->width - i : RUN;
        mr__attend_load(value, j->v.data, j->dtype, at + i * j->v.stride[3],
                        j->v.stride[3], n);
        for (int64_t l = 0; l < n; l++)
            if (!isfinite(value[l]))
                value_add(x, k, i + l, value[l], sees);
    }
}

void
mr__attend_odd_add(const mr_attend_odd *x)
{
    for (int64_t k = 0; k < x->n_keys; k++)
        if (x->odd[k])
            key_add(x, k);
}
