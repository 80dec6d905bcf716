/* SPDX-License-Identifier: Apache-2.0
 *
 * bitcode.c -- embeds what clang made of kernels/tier/ (see its jit.h).
 *
 * The build compiles each dtype's file and the casts for both tiers with FMA;
 * the assembler takes the results in as bytes.
 */
#include "cpu/jit/bitcode.h"

#include "kernels/tier/tier.h"

#define EMBED(tier, name)                                                      \
    __asm__(".section .rodata.bitcode, \"a\"\n"                                \
            ".balign 16\n"                                                     \
            "mr__bc_" #tier "_" #name ":\n"                                    \
            ".incbin \"" MR_BITCODE_DIR "/" #tier "_" #name ".bc\"\n"          \
            "mr__bc_" #tier "_" #name "_end:\n"                                \
            ".text\n");                                                        \
    extern const char mr__bc_##tier##_##name[]                                 \
        __attribute__((visibility("hidden")));                                 \
    extern const char mr__bc_##tier##_##name##_end[]                           \
        __attribute__((visibility("hidden")));

#define MR_X(id, name) EMBED(avx2, name) EMBED(avx512, name)
MR_TIER_DTYPES(MR_X)
MR_X(0, cast)
#undef MR_X

#define ENTRY(id, tier, name)                                                  \
    [id] = {mr__bc_##tier##_##name, mr__bc_##tier##_##name##_end},

static const char *const blobs[2][MR_N_BITCODE][2] = {
#define MR_X(id, name) ENTRY(id, avx2, name)
    {MR_TIER_DTYPES(MR_X) MR_X(MR_BITCODE_CASTS, cast)},
#undef MR_X
#define MR_X(id, name) ENTRY(id, avx512, name)
    {MR_TIER_DTYPES(MR_X) MR_X(MR_BITCODE_CASTS, cast)},
#undef MR_X
};

mr_bitcode
mr__bitcode(int which, int avx512)
{
    const char *const *b = blobs[avx512 != 0][which];

    return (mr_bitcode){b[0], (size_t)(b[1] - b[0])};
}

int
mr__bitcode_points(int avx512)
{
    return avx512 ? 16 : 8;
}
