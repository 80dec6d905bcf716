/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.c -- the tables of element types: sizes, kinds, names, promotion.
 *
 * Promotion is a table and not a rule, because the rule has exceptions: uint64
 * with a signed type gives float32, a half takes any integer, and float64 with
 * complex64 gives complex128.
 * Called by: everything that knows arrays.  Calls: base/.
 */
#include "array/dtype.h"

#include <string.h>

#include "base/error.h"
#include "marram/array.h"

const uint8_t mr__dtype_bytes[MR_N_DTYPES] = {
    1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16,
};

const uint8_t mr__dtype_kinds[MR_N_DTYPES] = {
    MR_KIND_BOOL,  MR_KIND_UINT,    MR_KIND_UINT,    MR_KIND_UINT,
    MR_KIND_UINT,  MR_KIND_INT,     MR_KIND_INT,     MR_KIND_INT,
    MR_KIND_INT,   MR_KIND_FLOAT,   MR_KIND_FLOAT,   MR_KIND_FLOAT,
    MR_KIND_FLOAT, MR_KIND_COMPLEX, MR_KIND_COMPLEX,
};

static const char *const names[MR_N_DTYPES] = {
    "bool",     "uint8",   "uint16",  "uint32",    "uint64",
    "int8",     "int16",   "int32",   "int64",     "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128",
};

/* Short names so that the matrix can be read beside the specification. */
enum {
    B_ = MR_BOOL,
    U8 = MR_UINT8,
    U16 = MR_UINT16,
    U32 = MR_UINT32,
    U64 = MR_UINT64,
    I8 = MR_INT8,
    I16 = MR_INT16,
    I32 = MR_INT32,
    I64 = MR_INT64,
    F16 = MR_FLOAT16,
    BF = MR_BFLOAT16,
    F32 = MR_FLOAT32,
    F64 = MR_FLOAT64,
    C64 = MR_COMPLEX64,
    C28 = MR_COMPLEX128
};

/* clang-format off */
static const uint8_t promotion[MR_N_DTYPES][MR_N_DTYPES] = {
    {B_, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF, F32, F64, C64, C28},
    {U8, U8, U16, U32, U64, I16, I16, I32, I64, F16, BF, F32, F64, C64, C28},
    {U16, U16, U16, U32, U64, I32, I32, I32, I64, F16, BF, F32, F64, C64, C28},
    {U32, U32, U32, U32, U64, I64, I64, I64, I64, F16, BF, F32, F64, C64, C28},
    {U64, U64, U64, U64, U64, F32, F32, F32, F32, F16, BF, F32, F64, C64, C28},
    {I8, I16, I32, I64, F32, I8, I16, I32, I64, F16, BF, F32, F64, C64, C28},
    {I16, I16, I32, I64, F32, I16, I16, I32, I64, F16, BF, F32, F64, C64, C28},
    {I32, I32, I32, I64, F32, I32, I32, I32, I64, F16, BF, F32, F64, C64, C28},
    {I64, I64, I64, I64, F32, I64, I64, I64, I64, F16, BF, F32, F64, C64, C28},
    {F16, F16, F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64, C64, C28},
    {BF, BF, BF, BF, BF, BF, BF, BF, BF, F32, BF, F32, F64, C64, C28},
    {F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64, C64, C28},
    {F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, C28, C28},
    {C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C28, C64, C28},
    {C28, C28, C28, C28, C28, C28, C28, C28, C28, C28, C28, C28, C28, C28, C28},
};
/* clang-format on */

bool
mr__dtype_valid(mr_dtype t)
{
    return (int)t >= 0 && (int)t < MR_N_DTYPES;
}

mr_dtype
mr__promote(mr_dtype a, mr_dtype b)
{
    return (mr_dtype)promotion[a][b];
}

mr_dtype
mr__promote_scalar(mr_dtype t, mr_scalar_kind k)
{
    mr_kind kind = mr__dtype_kind(t);

    switch (k) {
    case MR_SCALAR_BOOL:
        return t;
    case MR_SCALAR_INT:
        return kind == MR_KIND_BOOL ? MR_INT32 : t;
    case MR_SCALAR_UINT:
        return kind == MR_KIND_BOOL ? MR_UINT64 : t;
    case MR_SCALAR_FLOAT:
        return kind < MR_KIND_FLOAT ? MR_FLOAT32 : t;
    case MR_SCALAR_COMPLEX:
        return t == MR_FLOAT64 || t == MR_COMPLEX128 ? MR_COMPLEX128
                                                     : MR_COMPLEX64;
    }
    return t;
}

mr_dtype
mr__to_inexact(mr_dtype t)
{
    return mr__dtype_is_inexact(t) ? t : MR_FLOAT32;
}

mr_dtype
mr__to_real(mr_dtype t)
{
    if (t == MR_COMPLEX64)
        return MR_FLOAT32;
    return t == MR_COMPLEX128 ? MR_FLOAT64 : t;
}

mr_dtype
mr__sum_dtype(mr_dtype t)
{
    if (t == MR_BOOL || t == MR_INT8 || t == MR_INT16)
        return MR_INT32;
    return t == MR_UINT8 || t == MR_UINT16 ? MR_UINT32 : t;
}

mr_dtype
mr__accumulate_dtype(mr_dtype t)
{
    return t == MR_FLOAT16 || t == MR_BFLOAT16 ? MR_FLOAT32 : t;
}

/* ---- the public half ---------------------------------------------------- */

const char *
mr_dtype_name(mr_dtype t)
{
    return mr__dtype_valid(t) ? names[t] : "an unknown dtype";
}

size_t
mr_dtype_size(mr_dtype t)
{
    return mr__dtype_valid(t) ? mr__dtype_bytes[t] : 0;
}

bool
mr_dtype_is_complex(mr_dtype t)
{
    return mr__dtype_valid(t) && mr__dtype_is_complex(t);
}

bool
mr_dtype_is_inexact(mr_dtype t)
{
    return mr__dtype_valid(t) && mr__dtype_is_inexact(t);
}

bool
mr_dtype_is_integer(mr_dtype t)
{
    return mr__dtype_valid(t) && mr__dtype_is_integer(t);
}

static bool
dtype_checked(mr_dtype t)
{
    if (mr__dtype_valid(t))
        return true;
    mr__fail(MR_E_DTYPE, "%d is no dtype: use one of enum mr_dtype", (int)t);
    return false;
}

mr_dtype
mr_promote_types(mr_dtype a, mr_dtype b)
{
    if (!dtype_checked(a) || !dtype_checked(b))
        return MR_DTYPE_DEFAULT;
    return mr__promote(a, b);
}

mr_dtype
mr_promote_scalar(mr_dtype t, mr_scalar_kind k)
{
    return dtype_checked(t) ? mr__promote_scalar(t, k) : MR_DTYPE_DEFAULT;
}

bool
mr_dtype_from_name(const char *name, mr_dtype *out)
{
    if (name == NULL || out == NULL)
        return false;
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (mr_dtype)i;
            return true;
        }
    /* MLX's and Python's spelling */
    if (strcmp(name, "bool_") == 0) {
        *out = MR_BOOL;
        return true;
    }
    return false;
}
