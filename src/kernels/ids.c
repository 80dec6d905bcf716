/* SPDX-License-Identifier: Apache-2.0
 *
 * ids.c -- what is known of each scalar operation and reduction: its name, the
 * dtypes that it takes, the dtype that it gives.
 */
#include <assert.h>

#include "kernels/ids.h"
#include "kernels/program.h"
#include "kernels/tier/tier.h"

typedef enum result_rule { SAME, BOOL, REAL, CAST } result_rule;

typedef struct k_facts {
    const char *name;
    uint8_t operands;
    uint8_t result;
} k_facts;

static const k_facts facts[MR_R_END_] = {
#define MR_X(id, name, n, result) [MR_K_##id] = {#name, n, result},
    MR_K_MAP(MR_X)
#undef MR_X
#define MR_X(id, name) [MR_R_##id] = {#name, 1, SAME},
        MR_R_MAP(MR_X)
#undef MR_X
};

const char *
mr__k_name(mr_k k)
{
    return facts[k].name;
}

int
mr__k_operands(mr_k k)
{
    return facts[k].operands;
}

/* Sum and product of small integers are taken in a wider dtype, which the
 * result register says; here the dtype stands for itself. */
mr_dtype
mr__k_result(mr_k k, mr_dtype operand)
{
    if (k == MR_R_ANY || k == MR_R_ALL)
        return MR_BOOL;
    if (k == MR_R_ARGMAX || k == MR_R_ARGMIN)
        return MR_UINT32;
    switch ((result_rule)facts[k].result) {
    case BOOL:
        return MR_BOOL;
    case REAL:
        if (operand == MR_COMPLEX64)
            return MR_FLOAT32;
        return operand == MR_COMPLEX128 ? MR_FLOAT64 : operand;
    case SAME:
    case CAST:
        break;
    }
    return operand;
}

bool
mr__k_supports(mr_k k, mr_dtype operand)
{
    if ((unsigned)operand >= MR_N_DTYPES || (unsigned)k >= MR_R_END_)
        return false;
    if (k == MR_K_CAST)
        return true;
    if (k == MR_R_LOGSUMEXP)
        return operand >= MR_FLOAT16 && operand <= MR_FLOAT64;
    if (MR_K_IS_REDUCTION(k))
        return true;
    return mr__tier()->dtype[operand]->map[k] != NULL;
}
