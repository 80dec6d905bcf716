/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.h -- the kernels of one dtype: loops around the definitions of
 * elementwise.h, and the folds.  The including file names the dtype (MR_DTYPE,
 * MR_ACC_DTYPE), its kind (MR_KIND), its lanes, and its table (MR_TABLE).
 */
#ifndef MR_KERNELS_TIER_OPS_H
#define MR_KERNELS_TIER_OPS_H

#include "kernels/program.h"
#include "kernels/tier/lanes.h"

#ifdef MR_HALF
#include "kernels/tier/half.h"
#endif
#include "kernels/elementwise.h"
#ifdef MR_JIT
#include "kernels/tier/jit.h"
#else
#include "kernels/tier/memory.h"

/* ---- maps: the function is a constant, so it is inlined into the loop ------
 */

INLINE V
operand(const elem *p, int64_t step, int64_t n)
{
    return step != 0 && n < N_LANES ? x_load_n(p, n) : x_load(p);
}

INLINE M
condition(const uint8_t *p, int64_t step, int64_t n)
{
    return step != 0 && n < N_LANES ? m_load_n(p, n) : m_load(p);
}

INLINE void
map_v(void *out, const void *const *arg, const int64_t *step, int64_t n,
      V (*f)(V))
{
    elem *o = out;
    const elem *a = arg[0];
    int64_t da = step[0] * N_LANES;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += da)
        x_store(o, f(x_load(a)));
    if (n > 0)
        x_store_n(o, f(operand(a, da, n)), n);
}

INLINE void
map_v_bool(void *out, const void *const *arg, const int64_t *step, int64_t n,
           M (*f)(V))
{
    uint8_t *o = out;
    const elem *a = arg[0];
    int64_t da = step[0] * N_LANES;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += da)
        m_store(o, f(x_load(a)));
    if (n > 0)
        m_store_n(o, f(operand(a, da, n)), n);
}

INLINE void
map_v_real(void *out, const void *const *arg, const int64_t *step, int64_t n,
           R (*f)(V))
{
    lane *o = out;
    const elem *a = arg[0];
    int64_t da = step[0] * N_LANES;

    for (; n > 0; n -= N_LANES, o += N_LANES, a += da)
        real_store_n(o, f(operand(a, da, n)), n);
}

INLINE void
map_vv(void *out, const void *const *arg, const int64_t *step, int64_t n,
       V (*f)(V, V))
{
    elem *o = out;
    const elem *a = arg[0], *b = arg[1];
    int64_t da = step[0] * N_LANES, db = step[1] * N_LANES;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += da, b += db)
        x_store(o, f(x_load(a), x_load(b)));
    if (n > 0)
        x_store_n(o, f(operand(a, da, n), operand(b, db, n)), n);
}

#if !defined(MR_HALF) && MR_KIND != MR_KIND_BOOL
/* As map_vv, with stores past the caches once out is aligned. */
INLINE void
map_vv_stream(void *out, const void *const *arg, const int64_t *step, int64_t n,
              V (*f)(V, V))
{
    elem *o = out;
    const elem *a = arg[0], *b = arg[1];
    int64_t head = (int64_t)((-(uintptr_t)out % VEC_BYTES) / sizeof(elem));

    head = head < n ? head : n;
    map_vv(out, arg, step, head, f);
    if ((uintptr_t)(o + head) % VEC_BYTES != 0)
        head = 0; /* elements across vectors: no streaming */
    o += head;
    a += step[0] * head;
    b += step[1] * head;
    n -= head;
    for (; n >= N_LANES && (uintptr_t)o % VEC_BYTES == 0;
         n -= N_LANES, o += N_LANES, a += step[0] * N_LANES,
         b += step[1] * N_LANES)
        acc_stream(o, f(x_load(a), x_load(b)));
    map_vv(o, (const void *[]){a, b}, step, n, f);
}

INLINE void
map_v_stream(void *out, const void *const *arg, const int64_t *step, int64_t n,
             V (*f)(V))
{
    elem *o = out;
    const elem *a = arg[0];
    int64_t head = (int64_t)((-(uintptr_t)out % VEC_BYTES) / sizeof(elem));

    head = head < n ? head : n;
    map_v(out, arg, step, head, f);
    o += head;
    a += step[0] * head;
    n -= head;
    for (; n >= N_LANES && (uintptr_t)o % VEC_BYTES == 0;
         n -= N_LANES, o += N_LANES, a += step[0] * N_LANES)
        acc_stream(o, f(x_load(a)));
    map_v(o, (const void *[]){a}, step, n, f);
}
#endif

INLINE void
map_vv_bool(void *out, const void *const *arg, const int64_t *step, int64_t n,
            M (*f)(V, V))
{
    uint8_t *o = out;
    const elem *a = arg[0], *b = arg[1];
    int64_t da = step[0] * N_LANES, db = step[1] * N_LANES;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += da, b += db)
        m_store(o, f(x_load(a), x_load(b)));
    if (n > 0)
        m_store_n(o, f(operand(a, da, n), operand(b, db, n)), n);
}

static void
map_select(void *out, const void *const *arg, const int64_t *step, int64_t n)
{
    elem *o = out;
    const uint8_t *m = arg[0];
    const elem *a = arg[1], *b = arg[2];
    int64_t dm = step[0] * N_LANES, da = step[1] * N_LANES;
    int64_t db = step[2] * N_LANES;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, m += dm, a += da, b += db)
        x_store(o, k_select(m_load(m), x_load(a), x_load(b)));
    if (n > 0)
        x_store_n(
            o,
            k_select(condition(m, dm, n), operand(a, da, n), operand(b, db, n)),
            n);
}

#if !defined(MR_HALF) && MR_KIND != MR_KIND_BOOL
static void
stream_SELECT(void *out, const void *const *arg, const int64_t *step, int64_t n)
{
    elem *o = out;
    const uint8_t *m = arg[0];
    const elem *a = arg[1], *b = arg[2];
    int64_t head = (int64_t)((-(uintptr_t)out % VEC_BYTES) / sizeof(elem));

    head = head < n ? head : n;
    map_select(out, arg, step, head);
    o += head;
    m += step[0] * head;
    a += step[1] * head;
    b += step[2] * head;
    n -= head;
    for (; n >= N_LANES && (uintptr_t)o % VEC_BYTES == 0;
         n -= N_LANES, o += N_LANES, m += step[0] * N_LANES,
         a += step[1] * N_LANES, b += step[2] * N_LANES)
        acc_stream(o, k_select(m_load(m), x_load(a), x_load(b)));
    map_select(o, (const void *[]){m, a, b}, step, n);
}
#endif

#define MR_LOOP(id, name, loop)                                                \
    static void kernel_##id(void *out, const void *const *arg,                 \
                            const int64_t *step, int64_t n)                    \
    {                                                                          \
        loop(out, arg, step, n, k_##name);                                     \
    }
#define MR_X(id, name) MR_LOOP(id, name, map_v)
MR_MAP_V(MR_X)
#undef MR_X
#define MR_X(id, name) MR_LOOP(id, name, map_v_bool)
MR_MAP_V_BOOL(MR_X)
#undef MR_X
#define MR_X(id, name) MR_LOOP(id, name, map_v_real)
MR_MAP_V_REAL(MR_X)
#undef MR_X
#define MR_X(id, name) MR_LOOP(id, name, map_vv)
MR_MAP_VV(MR_X)
#undef MR_X
#define MR_X(id, name) MR_LOOP(id, name, map_vv_bool)
MR_MAP_VV_BOOL(MR_X)
#undef MR_X

#if !defined(MR_HALF) && MR_KIND != MR_KIND_BOOL
#define MR_STREAMED(X) X(ADD, add) X(SUBTRACT, subtract) X(MULTIPLY, multiply)
#define MR_X(id, name)                                                         \
    static void stream_##id(void *out, const void *const *arg,                 \
                            const int64_t *step, int64_t n)                    \
    {                                                                          \
        map_vv_stream(out, arg, step, n, k_##name);                            \
    }
MR_STREAMED(MR_X)
#undef MR_X
#if MR_KIND == MR_KIND_COMPLEX
#define MR_STREAMED_V(X) X(COPY, copy) X(NEGATIVE, negative)
#else
#define MR_STREAMED_V(X) X(COPY, copy) X(NEGATIVE, negative) X(ABS, abs)
#endif
#define MR_X(id, name)                                                         \
    static void stream_##id(void *out, const void *const *arg,                 \
                            const int64_t *step, int64_t n)                    \
    {                                                                          \
        map_v_stream(out, arg, step, n, k_##name);                             \
    }
MR_STREAMED_V(MR_X)
#undef MR_X
#define MR_STREAMED_ALL(X) MR_STREAMED(X) MR_STREAMED_V(X) X(SELECT, select)
#else
#define MR_STREAMED_ALL(X) [MR_K_CAST] = MR_STREAM_CAST,
#endif

#ifdef MR_CHAIN
#include "kernels/tier/chain.h"
#endif
#include "kernels/tier/folds.h"
#if MR_KIND == MR_KIND_FLOAT
#include "kernels/tier/rows.h"
#endif
#if MR_KIND == MR_KIND_FLOAT && MR_LANE_BITS == 32 && !defined(MR_HALF)
#include "kernels/tier/columns.h"
#endif

const mr_tier_dtype MR_TIER_SYM(MR_TABLE) = {
    .dtype = MR_DTYPE,
    .acc = MR_ACC_DTYPE,
    .map =
        {
#define MR_X(id, name) [MR_K_##id] = kernel_##id,
            MR_MAP_V(MR_X) MR_MAP_V_BOOL(MR_X) MR_MAP_V_REAL(MR_X)
                MR_MAP_VV(MR_X) MR_MAP_VV_BOOL(MR_X)
#undef MR_X
                    [MR_K_SELECT] = map_select,
        },
    .stream =
        {
#define MR_X(id, name) [MR_K_##id] = stream_##id,
            MR_STREAMED_ALL(MR_X)
#undef MR_X
        },
#ifdef MR_CHAIN
    .chain = chain,
#endif
    .fold = {MR_FOLD_TABLE(SUM), MR_FOLD_TABLE(PROD), MR_FOLD_TABLE(MAX),
             MR_FOLD_TABLE(MIN)},
    .arg = {{argmax_row, argmax_cols, argmax_merge},
            {argmin_row, argmin_cols, argmin_merge}},
#if MR_KIND == MR_KIND_FLOAT
    .near = {MR_NEAR_TABLE(SQUARE), MR_NEAR_TABLE(EXP)},
    .rows = {rows_softmax, rows_norm},
#endif
#ifdef MR_KERNELS_TIER_COLUMNS_H
    .columns = {columns_exp, columns_inverse, columns_over},
#endif
};

#endif
#endif
