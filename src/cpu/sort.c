/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c -- sort, argsort, searchsorted.
 *
 * Values become unsigned keys of the same order (NaN last, all NaNs equal),
 * which radix.c sorts; for argsort the place goes along, in the low half of a
 * 64-bit word or beside the key.  Radix sorts that start at the least digit
 * are stable, so equal values keep their order.  sort puts -0 before +0; for
 * argsort, searchsorted and complex numbers they are equal.  A complex128 has
 * a key of two words: its rows are sorted by the second, then, keeping that
 * order, by the first.
 * Called by: device.c.  Calls: radix.c.
 */
#include <string.h>

#include "base/pool.h"
#include "cpu/cpu.h"
#include "cpu/keys.h"
#include "cpu/radix.h"
#include "ops/params.h"

enum { MAX_SLOTS = 64, BIG_ROW = 1 << 17, SEARCHES = 16 };

/* ---- keys
 * --------------------------------------------------------------------- */

/* Bits of a float of that many bits to a key: the sign decides which way. */
static inline uint64_t
float_key(uint64_t x, int bits, uint64_t infinity, bool zeros_equal)
{
    uint64_t sign = 1ULL << (bits - 1), all = sign | (sign - 1);

    if ((x & ~sign) > infinity)
        return all;
    if (zeros_equal && x == sign)
        x = 0;
    return x & sign ? x ^ all : x ^ sign;
}

static inline uint64_t
float_unkey(uint64_t key, int bits)
{
    uint64_t sign = 1ULL << (bits - 1), all = sign | (sign - 1);

    return key & sign ? key ^ sign : key ^ all;
}

static inline uint32_t
load32(const void *p, int64_t i)
{
    uint32_t x;

    memcpy(&x, (const char *)p + 4 * i, sizeof x);
    return x;
}

static inline uint64_t
load64(const void *p, int64_t i)
{
    uint64_t x;

    memcpy(&x, (const char *)p + 8 * i, sizeof x);
    return x;
}

#define INF16  0x7C00U
#define INFB16 0x7F80U
#define INF32  0x7F800000U
#define INF64  0x7FF0000000000000ULL

/* The key of element i of x; `part` 1 is the imaginary part of complex128. */
static inline uint64_t
key_of(mr_dtype t, const void *x, int64_t i, bool equal, int part)
{
    switch (t) {
    case MR_BOOL:
    case MR_UINT8:
        return ((const uint8_t *)x)[i];
    case MR_UINT16:
        return ((const uint16_t *)x)[i];
    case MR_UINT32:
        return load32(x, i);
    case MR_UINT64:
        return load64(x, i);
    case MR_INT8:
        return ((const uint8_t *)x)[i] ^ 0x80U;
    case MR_INT16:
        return ((const uint16_t *)x)[i] ^ 0x8000U;
    case MR_INT32:
        return load32(x, i) ^ 0x80000000U;
    case MR_INT64:
        return load64(x, i) ^ 0x8000000000000000ULL;
    case MR_FLOAT16:
        return float_key(((const uint16_t *)x)[i], 16, INF16, equal);
    case MR_BFLOAT16:
        return float_key(((const uint16_t *)x)[i], 16, INFB16, equal);
    case MR_FLOAT32:
        return float_key(load32(x, i), 32, INF32, equal);
    case MR_FLOAT64:
        return float_key(load64(x, i), 64, INF64, equal);
    case MR_COMPLEX64:
        return float_key(load32(x, 2 * i), 32, INF32, equal) << 32 |
               float_key(load32(x, 2 * i + 1), 32, INF32, equal);
    case MR_COMPLEX128:
        return float_key(load64(x, 2 * i + part), 64, INF64, equal);
    }
    return 0;
}

/* The element of a key; not for complex dtypes, which are sorted by place. */
static void
key_store(mr_dtype t, uint64_t key, char *to)
{
    uint64_t x = key;

    switch (t) {
    case MR_INT8:
        x ^= 0x80U;
        break;
    case MR_INT16:
        x ^= 0x8000U;
        break;
    case MR_INT32:
        x ^= 0x80000000U;
        break;
    case MR_INT64:
        x ^= 0x8000000000000000ULL;
        break;
    case MR_FLOAT16:
    case MR_BFLOAT16:
        x = float_unkey(key, 16);
        break;
    case MR_FLOAT32:
        x = float_unkey(key, 32);
        break;
    case MR_FLOAT64:
        x = float_unkey(key, 64);
        break;
    case MR_BOOL:
    case MR_UINT8:
    case MR_UINT16:
    case MR_UINT32:
    case MR_UINT64:
    case MR_COMPLEX64:
    case MR_COMPLEX128:
        break;
    }
    memcpy(to, &x, (size_t)mr__dtype_size(t)); /* little endian */
}

int
mr__key_bits(mr_dtype t)
{
    return t == MR_COMPLEX128 ? 0 : (int)mr__dtype_size(t) * 8;
}

#define KEYS(type)                                                             \
    for (int64_t i = 0; i < n; i++)                                            \
    to[i] = key_of(type, x, i * step, true, 0)

/* A loop for each of the most frequent dtypes, where it is a constant. */
void
mr__keys(mr_dtype t, const void *x, int64_t step, int64_t n, uint64_t *to)
{
    if (t == MR_FLOAT32)
        KEYS(MR_FLOAT32);
    else if (t == MR_FLOAT64)
        KEYS(MR_FLOAT64);
    else if (t == MR_INT32)
        KEYS(MR_INT32);
    else if (t == MR_INT64)
        KEYS(MR_INT64);
    else
        KEYS(t);
}

/* ---- rows
 * ----------------------------------------------------------------------- */

typedef struct rows {
    mr_dtype dtype;
    bool places; /* argsort; complex, whose -0 and +0 must be equal */
    bool argsort;
    const char *from;
    char *to;
    int64_t n, from_stride, to_stride, item;
    mr_walk walk; /* input, output, without the axis */
    int64_t n_rows, n_slots, slot_bytes;
    int elem; /* bytes of what is sorted: 4, 8, 16 */
    char *workspace;
    int part; /* see key_of */
} rows;

typedef struct one_row {
    const rows *s;
    const char *from;
    char *to;
    char *elems;
    const char *order; /* earlier places (16-byte elements), or NULL */
} one_row;

static int64_t
place_at(const char *elems, int elem, int64_t i)
{
    uint64_t word;

    memcpy(&word, elems + i * elem + (elem == 16 ? 8 : 0), sizeof word);
    return (int64_t)(word & UINT32_MAX);
}

static void
row_encode(void *ctx, int64_t begin, int64_t end)
{
    const one_row *r = ctx;
    const rows *s = r->s;

    for (int64_t i = begin; i < end; i++) {
        int64_t place = r->order ? place_at(r->order, 16, i) : i;
        uint64_t key =
            key_of(s->dtype, r->from + place * s->from_stride * s->item, 0,
                   s->places, s->part);
        uint64_t both[2] = {key, (uint64_t)place};
        uint32_t narrow = (uint32_t)key;

        if (s->elem == 4)
            memcpy(r->elems + 4 * i, &narrow, 4);
        else if (s->elem == 16)
            memcpy(r->elems + 16 * i, both, 16);
        else if (!s->places)
            memcpy(r->elems + 8 * i, &key, 8);
        else
            memcpy(r->elems + 8 * i, &(uint64_t){key << 32 | (uint64_t)place},
                   8);
    }
}

static void
row_decode(void *ctx, int64_t begin, int64_t end)
{
    const one_row *r = ctx;
    const rows *s = r->s;

    for (int64_t i = begin; i < end; i++) {
        char *to = r->to + i * s->to_stride * (s->argsort ? 4 : s->item);
        uint64_t key = 0;
        uint32_t place;

        if (s->places) {
            place = (uint32_t)place_at(r->elems, s->elem, i);
            if (s->argsort)
                memcpy(to, &place, sizeof place);
            else
                memcpy(to, r->from + (int64_t)place * s->from_stride * s->item,
                       (size_t)s->item);
        } else {
            memcpy(&key, r->elems + i * s->elem, (size_t)s->elem);
            key_store(s->dtype, key, to);
        }
    }
}

/* Which bits of the key count, and where they are in an element. */
static char *
row_sort(const rows *s, char *elems, char *spare)
{
    int bits = (int)mr__dtype_size(s->dtype) * 8;

    if (s->dtype == MR_COMPLEX128)
        bits = 64;
    if (s->elem == 4)
        return mr__radix_32(elems, spare, s->n, 0, bits);
    if (s->elem == 16)
        return mr__radix_pairs(elems, spare, s->n, 0, bits);
    return mr__radix_64(elems, spare, s->n, s->places ? 32 : 0,
                        s->places ? 32 + bits : bits);
}

static void
row_run(rows *s, int64_t row, char *slot)
{
    int64_t grain = mr__cpu_grain(4.0);
    char *spare = slot + s->n * s->elem;
    one_row r = {.s = s, .elems = slot};
    mr_walk w = s->walk;

    mr__walk_seek(&w, row);
    r.from = s->from + w.offset[0] * s->item;
    r.to = s->to + w.offset[1] * (s->argsort ? 4 : s->item);
    if (s->dtype == MR_COMPLEX128) {
        rows second = *s;

        second.part = 1;
        r.s = &second;
        mr__cpu_for(s->n, grain, row_encode, &r);
        r.order = row_sort(s, r.elems, spare);
        r.elems = r.order == slot ? spare : slot;
        spare = r.order == slot ? slot : spare;
        r.s = s;
    }
    mr__cpu_for(s->n, grain, row_encode, &r);
    r.elems = row_sort(s, r.elems, spare);
    mr__cpu_for(s->n, grain, row_decode, &r);
}

/* A slot of the workspace and its share of the rows. */
static void
slot_run(const rows *plan, int64_t slot)
{
    rows s = *plan;
    int64_t begin = s.n_rows * slot / s.n_slots;
    int64_t end = s.n_rows * (slot + 1) / s.n_slots;

    for (int64_t row = begin; row < end; row++)
        row_run(&s, row, s.workspace + slot * s.slot_bytes);
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t slot = begin; slot < end; slot++)
        slot_run(ctx, slot);
}

static void
rows_plan(const mr_kernel_args *a, bool argsort, rows *s)
{
    const mr_axis_params *p = a->params;
    const mr_kernel_view *x = &a->in[0];
    uint32_t skip = 1U << p->axis;
    int64_t threads = mr__pool_threads();

    *s = (rows){.dtype = x->dtype,
                .argsort = argsort,
                .places = argsort || mr__dtype_is_complex(x->dtype),
                .from = x->data,
                .to = a->out[0].data,
                .n = x->dim[p->axis],
                .from_stride = x->stride[p->axis],
                .to_stride = a->out[0].stride[p->axis],
                .item = mr__dtype_size(x->dtype),
                .workspace = a->workspace};
    s->elem = s->item <= 4 ? 4 : 8;
    if (s->places)
        s->elem = s->item <= 4 ? 8 : 16;
    mr__walk_init(&s->walk, x->ndim, x->dim, skip);
    mr__walk_add(&s->walk, x->ndim, x->stride, skip);
    mr__walk_add(&s->walk, x->ndim, a->out[0].stride, skip);
    s->n_rows = mr__walk_size(&s->walk);
    s->slot_bytes = 2 * s->n * s->elem;
    s->n_slots = threads < MAX_SLOTS ? threads : MAX_SLOTS;
    if (s->n_slots > s->n_rows)
        s->n_slots = s->n_rows;
    /* Long rows are cut up themselves. */
    if (s->n >= BIG_ROW && s->n_rows < 2 * s->n_slots)
        s->n_slots = 1;
}

size_t
mr__cpu_sort_workspace(const mr_kernel_args *a)
{
    rows s;

    /* for both operators: argsort's elements are the larger ones */
    rows_plan(a, true, &s);
    return (size_t)(s.n_slots * s.slot_bytes);
}

double
mr__cpu_sort_cost(const mr_kernel_args *a)
{
    return 300.0 + 15.0 * (double)a->in[0].size;
}

static mr_code
rows_run(const mr_kernel_args *a, bool argsort)
{
    rows s;

    rows_plan(a, argsort, &s);
    if (a->in[0].size == 0)
        return MR_OK;
    if (s.n_slots == 1 || a->in[0].size < 2048) {
        s.n_slots = 1;
        slot_run(&s, 0);
    } else {
        mr__cpu_for(s.n_slots, 1, slots_piece, &s);
    }
    return MR_OK;
}

mr_code
mr__cpu_sort(const mr_kernel_args *a)
{
    return rows_run(a, false);
}

mr_code
mr__cpu_argsort(const mr_kernel_args *a)
{
    return rows_run(a, true);
}

/* ---- searchsorted
 * ------------------------------------------------------------------ */

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
    uint64_t x = key_of(t, a, i, true, 0), y = key_of(t, b, j, true, 0);

    if (x != y || t != MR_COMPLEX128)
        return x < y;
    return key_of(t, a, i, true, 1) < key_of(t, b, j, true, 1);
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
