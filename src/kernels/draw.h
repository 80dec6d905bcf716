/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.h -- inputs of block programs that are random words.
 *
 * A draw has no memory: its values are made in the tile that reads them, from
 * the keys that its operand has (`data`, one key every `step` bytes, its two
 * words `word` bytes apart).  Its strides are those that its values would have
 * if the streams of the keys, `n` bytes each, lay one behind the other with a
 * gap between: so they say which stream an element is of, and at which place,
 * and no loop goes over from one stream to the next.
 *
 * A block of the generator gives two words, one of the lower half of a stream
 * and one of the upper.  A tile in the lower half makes both, and keeps the
 * others for its twin in the upper half, which is next (schedule.h).
 */
#ifndef MR_KERNELS_DRAW_H
#define MR_KERNELS_DRAW_H

#include <stdint.h>

#include "kernels/program.h"
#include "kernels/random.h"

/* Where rows of a tile lie: bytes of the streams, as strides have them. */
typedef struct mr_draw_tile {
    int64_t at, outer_stride, inner_stride;
    int64_t outer, inner;
} mr_draw_tile;

/* From one stream of n bytes to the next. */
static inline int64_t
mr__draw_pitch(int64_t n)
{
    return n + 64;
}

/* Rows of so many points and fewer have all their words at hand while they are
 * gone over; of longer ones, words are made in pairs where a stream is a row.
 */
#define MR_DRAW_ROW (3 * MR_RED_BLOCK)
/* Where the upper half of such a row begins inside of a block, each unit makes
 * half a block of words alone: too much for rows shorter than this. */
#define MR_DRAW_UNEVEN (1 << 17)

/* The dim, of the first n, whose halves are those of the streams, or -1.  An
 * odd one is all of a stream, which has a middle word then. */
int mr__draw_halves(const mr_block_launch *l, int n, const mr_block_io *io,
                    int64_t size);

/* Do the points of a row follow each other in the stream? */
bool mr__draw_is_row(const mr_block_launch *l, const mr_block_io *io,
                     int64_t size);

/* Values of `size` bytes, row after row. */
void mr__draw_rows(const mr_block_io *io, int64_t size, char *to,
                   const mr_draw_tile *t);
/* The same of words in the lower half, and for the twin those half a stream
 * further.  `ahead` is what lies as the tile does, if that is one row. */
void mr__draw_twins(const mr_block_io *io, char *to, char *twin,
                    const mr_draw_tile *t, const mr_foreseen *ahead);

#endif
