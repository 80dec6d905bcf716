/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.h -- what a file that is compiled once per instruction set exports.
 *
 * The build compiles each file of this folder with -DMR_TIER=NAME and
 * -DMR_TIER_ID=N.  One file holds one dtype (f32.c) or one job (cast.c); each
 * exports one const table, whose name carries the tier.  ../dispatch.c joins
 * them and picks a tier at start.
 */
#ifndef MR_KERNELS_TIER_TIER_H
#define MR_KERNELS_TIER_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ids.h"
#include "marram/types.h"

#define MR_TIER_BASELINE 0
#define MR_TIER_AVX2     1
#define MR_TIER_AVX512   2
#define MR_TIER_NEON     3
#define MR_N_TIERS       4

/* The tiers of this architecture, the best one last: X(id, name).  Files that
 * are compiled once take the first for what does not depend on it. */
#if defined(__aarch64__)
#define MR_TIERS(X)      X(MR_TIER_NEON, neon)
#define MR_TIER_FIRST    neon
#define MR_TIER_FIRST_ID MR_TIER_NEON
#else
#define MR_TIERS(X)                                                            \
    X(MR_TIER_BASELINE, baseline)                                              \
    X(MR_TIER_AVX2, avx2) X(MR_TIER_AVX512, avx512)
#define MR_TIER_FIRST    baseline
#define MR_TIER_FIRST_ID MR_TIER_BASELINE
#endif

#ifndef MR_TIER
#define MR_TIER    MR_TIER_FIRST
#define MR_TIER_ID MR_TIER_FIRST_ID
#endif
#define MR_TIER_SYM(name)      MR_TIER_SYM_1(name, MR_TIER)
#define MR_TIER_SYM_1(name, t) MR_TIER_SYM_2(name, t)
#define MR_TIER_SYM_2(name, t) name##_##t

/* A splat operand is a buffer of this many equal elements (64-byte aligned),
 * enough for one vector of any dtype in any tier. */
#define MR_SPLAT_N 64

/* The virtual lanes of a reduction. */
#define MR_LANES 64

/* out[i] = f(arg[0][i], ...) for i < n.  step[j] is 1 for an operand of n
 * contiguous elements, 0 for a splat.  out may equal an operand exactly. */
typedef void mr_map_fn(void *out, const void *const *arg, const int64_t *step,
                       int64_t n);

/* Maps in a row: v = first, then v = k(v) or k(v, operand) for each entry, and
 * MR_N_K + k for k(operand, v).  Steps as in mr_map_fn. */
typedef struct mr_chain_op {
    const void *arg;
    int64_t step;
    int32_t k;
} mr_chain_op;

typedef void mr_chain_fn(void *out, const void *first, int64_t first_step,
                         const mr_chain_op *op, int n_op, int64_t n);

/* What may be in a chain: all that is worth less than the store and load
 * that it saves.  X(ID, function). */
/* clang-format off */
#define MR_CHAIN_V(X)                                                          \
    X(ABS, abs)                                                                \
    X(NEGATIVE, negative)                                                      \
    X(SQUARE, square) X(SQRT, sqrt) X(RSQRT, rsqrt) X(RECIPROCAL, reciprocal)  \
        X(EXP, exp) X(TANH, tanh) X(ERF, erf) X(SIGMOID, sigmoid)
/* clang-format on */
/* clang-format off */
#define MR_CHAIN_VV(X)                                                         \
    X(ADD, add)                                                                \
    X(SUBTRACT, subtract)                                                      \
    X(MULTIPLY, multiply) X(DIVIDE, divide) X(MAXIMUM, maximum)                \
        X(MINIMUM, minimum)
/* clang-format on */

/* The folds: sum (also the sum of mean), product, maximum, minimum. */
typedef enum mr_fold {
    MR_FOLD_SUM,
    MR_FOLD_PROD,
    MR_FOLD_MAX,
    MR_FOLD_MIN,
    MR_N_FOLDS
} mr_fold;

/* A fold works in the accumulation dtype ("acc": float32 for halves, else the
 * dtype itself).  `lanes` is an array of MR_LANES acc elements. */
typedef struct mr_fold_fns {
    /* n acc elements := the identity */
    void (*fill)(void *acc, int64_t n);
    /* acc[r] = fold of the n <= MR_RED_BLOCK elements at in + r * row_bytes */
    void (*rows)(void *acc, const void *in, int64_t n, int64_t n_rows,
                 int64_t row_bytes);
    /* lanes of a block take n more elements; the first goes to lane 0 */
    void (*step)(void *lanes, const void *in, int64_t n);
    /* *acc = the lanes combined */
    void (*done)(void *acc, const void *lanes);
    /* Columns: lane l of column c is at lanes + l * lane_bytes, c-th acc
     * element; rows k0 ... go to lanes k % 64.  lane_bytes 0: all of them
     * to one lane. */
    void (*cols)(void *lanes, int64_t lane_bytes, const void *in,
                 int64_t row_bytes, int64_t k0, int64_t n_rows, int64_t n_cols);
    /* The first n_lanes lanes combined into lane 0. */
    void (*cols_done)(void *lanes, int64_t lane_bytes, int64_t n_lanes,
                      int64_t n_cols);
    /* a[i] = a[i] op b[i] for n acc elements */
    void (*combine)(void *a, const void *b, int64_t n);
} mr_fold_fns;

/* Sums of squares of x - c and of exp(x - c), with c a number of each row (acc
 * elements, one a row; step: one; cols: one a column).  Otherwise as in
 * mr_fold_fns.  What lies `ahead` bytes further is brought near meanwhile: they
 * compute, where the passes before and after wait for memory. */
typedef enum mr_near { MR_NEAR_SQUARE, MR_NEAR_EXP, MR_N_NEARS } mr_near;

typedef struct mr_near_fns {
    void (*rows)(void *acc, const void *in, int64_t n, int64_t n_rows,
                 int64_t row_bytes, const void *centre, int64_t ahead);
    void (*step)(void *lanes, const void *in, int64_t n, const void *centre,
                 int64_t ahead);
    void (*cols)(void *lanes, int64_t lane_bytes, const void *in,
                 int64_t row_bytes, int64_t k0, int64_t n_rows, int64_t n_cols,
                 const void *centre);
} mr_near_fns;

/* argmax and argmin: the best value so far and its index.  `first` says that
 * there is none yet. */
typedef struct mr_arg_fns {
    void (*row)(void *best, uint32_t *index, const void *in, int64_t n,
                uint32_t base, bool first);
    void (*cols)(void *best, uint32_t *index, const void *in, int64_t row_bytes,
                 uint32_t k0, int64_t n_rows, int64_t n_cols, bool first);
    /* later (best, index) pairs into earlier ones */
    void (*merge)(void *best, uint32_t *index, const void *later,
                  const uint32_t *later_index, int64_t n);
} mr_arg_fns;

/* Rows of n <= MR_RED_BLOCK adjacent points, out_bytes and in_bytes apart. */
typedef struct mr_norm_rows {
    const void *weight, *bias; /* n adjacent elements, or NULL */
    const void *eps, *count;   /* one acc element each */
    bool centre;               /* takes the mean away first */
} mr_norm_rows;

typedef struct mr_row_fns {
    void (*softmax)(void *out, int64_t out_bytes, const void *in,
                    int64_t in_bytes, int64_t n, int64_t n_rows);
    void (*norm)(void *out, int64_t out_bytes, const void *in, int64_t in_bytes,
                 const mr_norm_rows *p, int64_t n, int64_t n_rows);
} mr_row_fns;

/* Softmax down w columns that lie in rows of w adjacent elements. */
typedef struct mr_column_fns {
    /* x = exp(x - top); row r is added to lane r % 64 */
    void (*exp)(void *x, void *lanes, const void *top, int64_t n_rows,
                int64_t w);
    /* the inverses of sums; false: quotients cannot go by them */
    bool (*inverse)(void *inverse, const void *sum, int64_t w);
    /* to = from / sum, one row; inverse may be NULL, to may be from */
    void (*over)(void *to, const void *from, const void *sum,
                 const void *inverse, int64_t w);
} mr_column_fns;

typedef struct mr_tier_dtype {
    mr_dtype dtype, acc;
    mr_map_fn *map[MR_N_K]; /* NULL where the dtype has no such operation */
    /* some, with stores past the caches (mr_tier_moves.past_end follows); CAST
     * is from acc to dtype; NULL for other operations */
    mr_map_fn *stream[MR_N_K];
    mr_chain_fn *chain; /* or NULL */
    mr_fold_fns fold[MR_N_FOLDS];
    mr_arg_fns arg[2]; /* argmax, argmin */
    /* NULL but for floating point */
    mr_near_fns near[MR_N_NEARS];
    mr_row_fns rows;
    mr_column_fns columns; /* NULL but for float32 */
} mr_tier_dtype;

/* out[i] = in[i] in another dtype. */
typedef void mr_cast_fn(void *out, const void *in, int64_t n);

typedef struct mr_tier_casts {
    mr_cast_fn *cast[MR_N_DTYPES][MR_N_DTYPES]; /* [from][to] */
} mr_tier_casts;

/* Moving memory; sizes 1, 2, 4, 8, 16 have the rows 0 to 4. */
typedef struct mr_tier_moves {
    /* out[i] = *(in + i * stride) and back */
    void (*gather[5])(void *out, const void *in, int64_t stride, int64_t n);
    void (*scatter[5])(void *out, int64_t stride, const void *in, int64_t n);
    /* out[r][c] (rows of out_row bytes) = in[c][r] (rows of in_row bytes) */
    void (*transpose[5])(void *out, int64_t out_row, const void *in,
                         int64_t in_row, int64_t n_rows, int64_t n_cols);
    /* The same past the caches, for out and out_row aligned to 64 bytes; NULL
     * for some sizes. */
    void (*transpose_past[5])(void *out, int64_t out_row, const void *in,
                              int64_t in_row, int64_t n_rows, int64_t n_cols);
    /* Orders what went past the caches before what follows: whoever calls
     * such functions calls this at the end. */
    void (*past_end)(void);
    void (*fill[5])(void *out, const void *value, int64_t n);
} mr_tier_moves;

struct mr_foreseen; /* ../random.h */

typedef struct mr_tier_random {
    void (*bits)(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
                 uint64_t count, uint32_t *out);
    /* Both halves of a stream. */
    void (*pairs)(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
                  uint64_t count, uint32_t *low, uint32_t *high,
                  const struct mr_foreseen *ahead);
} mr_tier_random;

/* Functions that native code of the tier may call (symbols.c); none where it
 * has none. */
typedef struct mr_tier_symbol {
    const char *name;
    void (*address)(void);
} mr_tier_symbol;

typedef struct mr_tier_symbols {
    const mr_tier_symbol *list;
    size_t n;
} mr_tier_symbols;

/* The dtypes' tables: X(DTYPE, file). */
#define MR_TIER_DTYPES(X)                                                      \
    X(MR_BOOL, bool8)                                                          \
    X(MR_UINT8, u8)                                                            \
    X(MR_UINT16, u16)                                                          \
    X(MR_UINT32, u32)                                                          \
    X(MR_UINT64, u64)                                                          \
    X(MR_INT8, i8)                                                             \
    X(MR_INT16, i16)                                                           \
    X(MR_INT32, i32)                                                           \
    X(MR_INT64, i64)                                                           \
    X(MR_FLOAT16, f16)                                                         \
    X(MR_BFLOAT16, bf16)                                                       \
    X(MR_FLOAT32, f32)                                                         \
    X(MR_FLOAT64, f64)                                                         \
    X(MR_COMPLEX64, c64)                                                       \
    X(MR_COMPLEX128, c128)

#define MR_X(dtype, file)                                                      \
    extern const mr_tier_dtype mr__tier_##file##_baseline;                     \
    extern const mr_tier_dtype mr__tier_##file##_avx2;                         \
    extern const mr_tier_dtype mr__tier_##file##_avx512;                       \
    extern const mr_tier_dtype mr__tier_##file##_neon;
MR_TIER_DTYPES(MR_X)
#undef MR_X
#define MR_X(id, name)                                                         \
    extern const mr_tier_casts mr__tier_casts_##name;                          \
    extern const mr_tier_moves mr__tier_moves_##name;                          \
    extern const mr_tier_random mr__tier_random_##name;                        \
    extern const mr_tier_symbols mr__tier_symbols_##name;
MR_TIERS(MR_X)
#undef MR_X

/* One tier, all of it. */
typedef struct mr_tier {
    const char *name;
    int id;
    const mr_tier_dtype *dtype[MR_N_DTYPES];
    const mr_tier_casts *casts;
    const mr_tier_moves *moves;
    const mr_tier_random *random;
    const mr_tier_symbols *symbols;
    /* each in the header of its name, one folder above */
    const struct mr_gemm_tier *gemm;
    const struct mr_quant_tier *quant;
    const struct mr_attend_tier *attend;
    const struct mr_window_tier *window;
    const struct mr_depth_tier *depth;
    const struct mr_scan_tier *scan;
    const struct mr_resolve_tier *resolve;
    const struct mr_sort_tier *sort[2]; /* words of 4 bytes, of 8 */
    const struct mr_fft_tier *fft[2];   /* float32, float64 */
} mr_tier;

/* The tier in use (chosen at the first call); the tables of one tier, or NULL
 * when this CPU cannot run it (tests compare tiers). */
const mr_tier *mr__tier(void);
const mr_tier *mr__tier_by_id(int id);
/* One with no tables instead of NULL. */
const mr_tier *mr__tier_or_none(int id);

#endif
