/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h -- memory between two pages that nobody may touch: whoever reads or
 * writes one byte too many ends the program there.
 */
#ifndef MRT_GUARD_H
#define MRT_GUARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

enum { MRT_GUARD_SLOTS = 12, MRT_GUARD_ROOM = 4 << 20 };

typedef enum mrt_side {
    MRT_ENDS,   /* the last byte lies before the page behind */
    MRT_BEGINS, /* the first byte lies behind the page before */
    MRT_N_SIDES
} mrt_side;

/* A place for `bytes`, the same one at each call: its contents are whatever
 * was there. */
static inline void *
mrt_guarded(int slot, size_t bytes, mrt_side side)
{
    static char *room[MRT_GUARD_SLOTS];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    assert_in_range(slot, 0, MRT_GUARD_SLOTS - 1);
    assert_in_range(bytes, 0, MRT_GUARD_ROOM);
    if (!room[slot]) {
        char *p = mmap(NULL, MRT_GUARD_ROOM + 2 * page, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(p, MAP_FAILED);
        room[slot] = p + page;
        assert_int_equal(
            mprotect(room[slot], MRT_GUARD_ROOM, PROT_READ | PROT_WRITE), 0);
    }
    return side == MRT_BEGINS ? room[slot]
                              : room[slot] + MRT_GUARD_ROOM - bytes;
}

#endif
