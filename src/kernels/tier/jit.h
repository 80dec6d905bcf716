/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.h -- the definitions of elementwise.h as functions over one register.
 *
 * Clang makes LLVM bitcode of them, once for each dtype and tier with FMA; the
 * JIT provider calls, links and inlines them.  A *register* is MR_JIT_POINTS
 * values, as many in every dtype: one or more vectors (two for 64-bit lanes),
 * halves as 16-bit integers, complex numbers as all real parts and then all
 * imaginary ones, bools as bytes.  Everything goes through pointers to
 * registers, so that no calling convention matters; they vanish when inlined.
 *
 *   mr__tier_f32_ADD(out, a, b)     an operation, by its name in ids.h
 *   mr__tier_f32_LOAD(reg, memory), _STORE(memory, reg), _SPLAT(reg, memory)
 *   mr__tier_f32_FOLD_SUM(lanes, reg, n)   n values into as many lanes
 *
 * Included by ops.h in place of its loops.
 */
#ifndef MR_KERNELS_TIER_JIT_H
#define MR_KERNELS_TIER_JIT_H

#define N_PARTS (MR_JIT_POINTS / N_LANES)
/* Clang unrolls it, so that the whole register is scalars to LLVM. */
#define EACH_PART(j)                                                           \
    _Pragma("clang loop unroll(full)") for (int j = 0; j < N_PARTS; j++)

#define JIT_FN                 __attribute__((always_inline, visibility("default")))
#define JIT_SYM(name)          JIT_SYM_1(MR_TABLE, name)
#define JIT_SYM_1(table, name) JIT_SYM_2(table, name)
#define JIT_SYM_2(table, name) table##_##name

typedef struct bools {
    B part[N_PARTS];
} bools;

typedef struct reals {
    R part[N_PARTS];
} reals;

/* ---- registers as values ---------------------------------------------------
 */

#if MR_KIND == MR_KIND_COMPLEX

typedef struct reg {
    R re[N_PARTS], im[N_PARTS];
} reg;
typedef reg accs;
typedef struct elem {
    lane re, im;
} elem;

INLINE V
get(const reg *r, int j)
{
    return c_make(r->re[j], r->im[j]);
}

INLINE void
put(reg *r, int j, V x)
{
    r->re[j] = x.re;
    r->im[j] = x.im;
}

INLINE V
mem_get(const elem *p)
{
    R a = v_load(&p->re), b = v_load(&p->re + N_LANES);

    return c_make(v_even(a, b), v_odd(a, b));
}

INLINE void
mem_put(elem *p, V z)
{
    v_store(&p->re, v_zip_low(z.re, z.im));
    v_store(&p->re + N_LANES, v_zip_high(z.re, z.im));
}

INLINE V
mem_splat(const elem *p)
{
    return c_make(v_set(p->re), v_set(p->im));
}

#define acc_get mem_get
#define acc_put mem_put
typedef elem acc;

#elif defined(MR_HALF)

typedef struct reg {
    HALF part[N_PARTS];
} reg;
typedef uint16_t elem;
typedef lane acc;

INLINE V
get(const reg *r, int j)
{
    return half_widen(r->part[j]);
}

INLINE void
put(reg *r, int j, V x)
{
    r->part[j] = half_round(x);
}

#define acc_get v_load
#define acc_put v_store

#else

typedef struct reg {
    R part[N_PARTS];
} reg;
typedef lane elem;
typedef lane acc;

INLINE V
get(const reg *r, int j)
{
    return r->part[j];
}

INLINE void
put(reg *r, int j, V x)
{
    r->part[j] = x;
}

#define acc_get v_load
#define acc_put v_store

#endif

/* bfloat16 is rounded after each operation, which costs more than most of them
 * do.  Where values are exact, or a NaN has nothing in the bits that go, less
 * will do for the same result: NaNs of plain arithmetic are the processor's own
 * or come from an operand, which was a bfloat16. */
#if defined(MR_HALF) && defined(MR_JIT_BF16)
INLINE HALF
round_number(R x)
{
    return __builtin_convertvector(bf16_rounded((U)x) >> 16, HALF);
}

INLINE void
put_result(reg *r, int j, int k, V x)
{
    switch (k) {
    case MR_K_COPY:
    case MR_K_ABS:
    case MR_K_NEGATIVE:
    case MR_K_MAXIMUM:
    case MR_K_MINIMUM:
    case MR_K_SELECT:
        r->part[j] = __builtin_convertvector((U)x >> 16, HALF);
        break;
    case MR_K_ADD:
    case MR_K_SUBTRACT:
    case MR_K_MULTIPLY:
    case MR_K_DIVIDE:
    case MR_K_SQUARE:
    case MR_K_SQRT:
    case MR_K_RSQRT:
    case MR_K_RECIPROCAL:
    case MR_K_EXP:
    case MR_K_TANH:
    case MR_K_ERF:
    case MR_K_SIGMOID:
        r->part[j] = round_number(x);
        break;
    default:
        put(r, j, x);
    }
}
#else
INLINE void
put_result(reg *r, int j, int k, V x)
{
    (void)k;
    put(r, j, x);
}
#endif

/* ---- memory ----------------------------------------------------------------
 */

JIT_FN void
JIT_SYM(LOAD)(reg *r, const elem *p)
{
    EACH_PART(j)
    {
#if MR_KIND == MR_KIND_COMPLEX
        put(r, j, mem_get(p + j * N_LANES));
#else
        memcpy(&r->part[j], p + j * N_LANES, sizeof r->part[j]);
#endif
    }
}

JIT_FN void
JIT_SYM(STORE)(elem *p, const reg *r)
{
    EACH_PART(j)
    {
#if MR_KIND == MR_KIND_COMPLEX
        mem_put(p + j * N_LANES, get(r, j));
#else
        memcpy(p + j * N_LANES, &r->part[j], sizeof r->part[j]);
#endif
    }
}

JIT_FN void
JIT_SYM(SPLAT)(reg *r, const elem *p)
{
    EACH_PART(j)
    {
#if MR_KIND == MR_KIND_COMPLEX
        put(r, j, mem_splat(p));
#elif defined(MR_HALF)
        r->part[j] = *p - (HALF){0};
#else
        r->part[j] = v_set(*p);
#endif
    }
}

/* ---- operations ------------------------------------------------------------
 */

#define MR_X(id, name)                                                         \
    JIT_FN void JIT_SYM(id)(reg * o, const reg *a)                             \
    {                                                                          \
        EACH_PART(j) put_result(o, j, MR_K_##id, k_##name(get(a, j)));         \
    }
MR_MAP_V(MR_X)
#undef MR_X

#define MR_X(id, name)                                                         \
    JIT_FN void JIT_SYM(id)(bools * o, const reg *a)                           \
    {                                                                          \
        EACH_PART(j) o->part[j] = b_from_mask(k_##name(get(a, j)));            \
    }
MR_MAP_V_BOOL(MR_X)
#undef MR_X

#define MR_X(id, name)                                                         \
    JIT_FN void JIT_SYM(id)(reals * o, const reg *a)                           \
    {                                                                          \
        EACH_PART(j) o->part[j] = k_##name(get(a, j));                         \
    }
MR_MAP_V_REAL(MR_X)
#undef MR_X

#define MR_X(id, name)                                                         \
    JIT_FN void JIT_SYM(id)(reg * o, const reg *a, const reg *b)               \
    {                                                                          \
        EACH_PART(j)                                                           \
        put_result(o, j, MR_K_##id, k_##name(get(a, j), get(b, j)));           \
    }
MR_MAP_VV(MR_X)
#undef MR_X

#define MR_X(id, name)                                                         \
    JIT_FN void JIT_SYM(id)(bools * o, const reg *a, const reg *b)             \
    {                                                                          \
        EACH_PART(j) o->part[j] = b_from_mask(k_##name(get(a, j), get(b, j))); \
    }
MR_MAP_VV_BOOL(MR_X)
#undef MR_X

JIT_FN void
JIT_SYM(SELECT)(reg *o, const bools *m, const reg *a, const reg *b)
{
    EACH_PART(j)
    put_result(o, j, MR_K_SELECT,
               k_select(m_from_bytes(m->part[j]), get(a, j), get(b, j)));
}

/* ---- folds: value i of the register goes to lane i ------------------------
 */

#define JIT_FOLD(id, op)                                                       \
    JIT_FN void JIT_SYM(FOLD_##id)(acc * lanes, const reg *x, int64_t n)       \
    {                                                                          \
        EACH_PART(j)                                                           \
        {                                                                      \
            acc *at = lanes + j * N_LANES;                                     \
            V old = acc_get(at), new = op(old, get(x, j));                     \
                                                                               \
            acc_put(at, k_select(m_below(n - j * N_LANES), new, old));         \
        }                                                                      \
    }
JIT_FOLD(SUM, k_add)
JIT_FOLD(PROD, k_multiply)
JIT_FOLD(MAX, k_maximum)
JIT_FOLD(MIN, k_minimum)

#endif
