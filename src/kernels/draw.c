/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c -- random words for a tile of a block program.
 *
 * Called by: interp.c, schedule.c.  Calls: random.h.
 */
#include "kernels/draw.h"

#include <string.h>

#include "kernels/random.h"

enum { CHUNK = 512 };

/* Bytes [at, ...) of a key's stream. */
typedef struct stream {
    uint32_t key[2];
    uint64_t n_words;
    int64_t at;
} stream;

static stream
stream_at(const mr_block_io *io, int64_t at)
{
    int64_t pitch = mr__draw_pitch(io->n);
    int64_t number = at < pitch ? 0 : at / pitch; /* often there is one */
    const char *key = (const char *)io->data + number * io->step;
    stream s = {.n_words = (uint64_t)((io->n + 3) / 4),
                .at = at - number * pitch};

    memcpy(&s.key[0], key, sizeof s.key[0]);
    memcpy(&s.key[1], key + io->word, sizeof s.key[1]);
    return s;
}

/* Bytes that need not begin or end with a word. */
static void
some_bytes(const stream *s, char *to, int64_t bytes)
{
    uint32_t words[CHUNK];

    for (int64_t at = s->at, n; bytes > 0; at += n, to += n, bytes -= n) {
        int64_t first = at / 4, skip = at % 4;

        n = CHUNK * 4 - skip < bytes ? CHUNK * 4 - skip : bytes;
        mr__random_bits(s->key[0], s->key[1], s->n_words, (uint64_t)first,
                        (uint64_t)((skip + n + 3) / 4), words);
        memcpy(to, (const char *)words + skip, (size_t)n);
    }
}

/* Values that follow each other in one stream. */
static void
run(const mr_block_io *io, int64_t size, char *to, int64_t at, int64_t count)
{
    stream s = stream_at(io, at);

    if (size == 4)
        mr__random_bits(s.key[0], s.key[1], s.n_words, (uint64_t)s.at / 4,
                        (uint64_t)count, (uint32_t *)(void *)to);
    else
        some_bytes(&s, to, count * size);
}

/* Rows that follow each other in one stream are one. */
static mr_draw_tile
one_row(const mr_draw_tile *t, int64_t size)
{
    mr_draw_tile o = *t;

    if (t->inner_stride == size && t->outer_stride == t->inner * size) {
        o.inner *= t->outer;
        o.outer = 1;
    }
    return o;
}

void
mr__draw_rows(const mr_block_io *io, int64_t size, char *to,
              const mr_draw_tile *t)
{
    mr_draw_tile o = one_row(t, size);
    int64_t n = o.inner_stride == size ? o.inner : 1;

    for (int64_t k = 0; k < o.outer; k++)
        for (int64_t j = 0; j < o.inner; j += n)
            run(io, size, to + (k * o.inner + j) * size,
                o.at + k * o.outer_stride + j * o.inner_stride, n);
}

void
mr__draw_twins(const mr_block_io *io, char *to, char *twin,
               const mr_draw_tile *t, const mr_foreseen *ahead)
{
    mr_random_pairs_fn *pairs = mr__random_pairs();
    mr_draw_tile o = one_row(t, 4);
    int64_t n = o.inner_stride == 4 ? o.inner : 1;

    for (int64_t k = 0; k < o.outer; k++)
        for (int64_t j = 0; j < o.inner; j += n) {
            int64_t place = (k * o.inner + j) * 4;
            stream s =
                stream_at(io, o.at + k * o.outer_stride + j * o.inner_stride);

            pairs(s.key[0], s.key[1], s.n_words, (uint64_t)s.at / 4,
                  (uint64_t)n, (uint32_t *)(void *)(to + place),
                  (uint32_t *)(void *)(twin + place),
                  n == t->outer * t->inner ? ahead : NULL);
        }
}

bool
mr__draw_is_row(const mr_block_launch *l, const mr_block_io *io, int64_t size)
{
    for (int d = l->n_kept + l->n_red - 1; d >= l->n_kept; d--) {
        if (io->stride[d] != size)
            return false;
        size *= l->dim[d];
    }
    return true;
}

int
mr__draw_halves(const mr_block_launch *l, int n, const mr_block_io *io,
                int64_t size)
{
    for (int d = 0; d < n && size == 4; d++) {
        if (l->dim[d] < 2 || io->stride[d] * l->dim[d] != io->n)
            continue;
        return l->dim[d] % 2 == 0 || io->stride[d] == 4 ? d : -1;
    }
    return -1;
}
