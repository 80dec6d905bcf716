/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg_standard.c -- what the Python array API standard has in its linear
 * algebra beside MLX's functions, made of the others: diagonals and traces of
 * matrices, powers, ranks.
 *
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <float.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/linalg.h"
#include "ops/rules.h"

/* ---- diagonals ----------------------------------------------------------- */

mr_array *
mr__build_linalg_diagonal(mr_array *a, int64_t offset)
{
    return mr_diagonal(a, offset, -2, -1);
}

mr_array *
mr__build_linalg_trace(mr_array *a, int64_t offset, mr_dtype dtype)
{
    return mr_trace(a, offset, -2, -1, dtype);
}

/* ---- matrix_power --------------------------------------------------------
 * Bits of n from the lowest: 2 log2(n) products at most. */

static mr_array *
identity_like(mr_array *a)
{
    mr_array *one = mr_eye(mr__rows(a), mr__rows(a), 0, (mr_dtype)a->dtype);

    return mr_broadcast_to(one, (mr_shape){a->dim, a->ndim});
}

mr_array *
mr__build_linalg_matrix_power(mr_array *a, int64_t n)
{
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    mr_array *power = NULL, *square = a;

    if (mr__linalg_square(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    if (n == 0)
        return identity_like(a);
    if (n < 0)
        square = mr__linalg_node(&mr__op_inv, &(mr_inverse_params){false}, a);
    for (; square != NULL && left > 0; left >>= 1) {
        if (left & 1) {
            power = power == NULL ? square : mr_matmul(power, square);
            if (power == NULL)
                return NULL;
        }
        if (left > 1)
            square = mr_matmul(square, square);
    }
    return square == NULL ? NULL : power;
}

/* ---- rank ---------------------------------------------------------------- */

mr_code
mr__linalg_rtol(const mr_array *a, mr_array *rtol)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t batch = a->ndim - 2;
    mr_text text, other;

    if (mr__broadcast_shapes(batch, a->dim, rtol->ndim, rtol->dim, dim) !=
            batch ||
        (batch > 0 && memcmp(dim, a->dim, (size_t)batch * sizeof *dim) != 0))
        return mr__fail(MR_E_SHAPE,
                        "rtol of shape %s for matrices of shape %s: needs one "
                        "number, or one for each matrix",
                        mr__shape_of(rtol, &text), mr__shape_of(a, &other));
    return MR_OK;
}

/* Which of the singular values s (..., k), descending, are above rtol times
 * the largest. */
static mr_array *
above_cutoff(mr_array *s, mr_array *rtol)
{
    mr_array *most;

    if (s == NULL || rtol == NULL)
        return NULL;
    most = mr__columns_of(s, 0, s->dim[s->ndim - 1] > 0 ? 1 : 0);
    rtol = mr__cast(mr_real(rtol), (mr_dtype)s->dtype);
    if (rtol == NULL)
        return NULL;
    return mr_greater(s, mr_multiply(mr_expand_dims(rtol, MR_AXES(-1)), most));
}

/* max(m, n) * eps */
static mr_array *
usual_rtol(const mr_array *a)
{
    mr_dtype t = mr__to_real((mr_dtype)a->dtype);
    int64_t m = mr__rows(a), n = mr__columns(a);
    double eps = t == MR_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;

    return mr__number(t, (double)(m > n ? m : n) * eps);
}

mr_array *
mr__build_linalg_matrix_rank(mr_array *a, mr_array *rtol)
{
    mr_array *s, *counts;

    if (mr__linalg_check(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    if (rtol == MR_NONE)
        rtol = usual_rtol(a);
    else if (mr__linalg_rtol(a, rtol) != MR_OK)
        return NULL;
    s = mr__linalg_node(&mr__op_svdvals, NULL, a);
    counts = above_cutoff(s, rtol);
    return counts == NULL ? NULL : mr_sum(counts, MR_AXES(-1), false);
}
