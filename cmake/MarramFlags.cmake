# SPDX-License-Identifier: Apache-2.0
#
# The compiler flags of every C file.  The numerics of the library depend on
# those of the second group: do not add -ffast-math or any part of it.
set(MR_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes
    -Wmissing-prototypes -Wundef -Wcast-qual -Wwrite-strings -Wformat=2
    -Wimplicit-fallthrough -Wfloat-conversion -Wswitch-enum)
if(MR_WERROR)
    list(APPEND MR_WARNINGS -Werror)
endif()
set(MR_C_FLAGS -ffp-contract=off -fwrapv -fno-common
    -D_GNU_SOURCE ${MR_WARNINGS})

# -fno-math-errno and -fno-trapping-math change no value: they let square
# roots and selects be single instructions.
set(MR_KERNEL_FLAGS -O3 -fno-math-errno -fno-trapping-math -Wdouble-promotion)
# Vectors wider than the baseline's registers are passed in memory there.
set(MR_TIER_FLAGS -Wno-psabi)

if(MR_SANITIZE)
    set(MR_KERNEL_FLAGS -O1 -fno-math-errno -fno-trapping-math)
    add_compile_options(-fsanitize=${MR_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${MR_SANITIZE})
    if(MR_SANITIZE MATCHES thread)
        add_compile_definitions(MR_SANITIZE_THREAD=1)
    endif()
endif()
