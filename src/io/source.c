/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c -- the bytes of a file as a buffer, and arrays over them.
 *
 * A large file is mapped privately: arrays look into the mapping, pages come
 * in when they are first read, and the mapping goes with the last array.  Such
 * a file must not be cut short meanwhile (rewriting it through sink.c is safe:
 * that makes a new file).  A small file is read, which costs less than a
 * mapping and has no such condition.
 *
 * Called by: npy.c, safetensors.c.  Calls: array/, graph/.
 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian, and so must the machine be");

enum { MAPPED_FROM = 1 << 20 };

static void
unmap(void *ctx, void *data)
{
    munmap(data, (size_t)(uintptr_t)ctx);
}

static mr_code
map_whole(mr_source *s, int fd)
{
    /* Writable, so that an exported view of an array can be written to; the
     * pages written are the process's own. */
    void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

    if (p == MAP_FAILED)
        return mr__fail(MR_E_IO, "%s: cannot map it: %s", s->name,
                        strerror(errno));
    s->buffer =
        mr__buffer_wrap(p, s->bytes, unmap, (void *)(uintptr_t)s->bytes);
    if (!s->buffer) {
        munmap(p, s->bytes);
        return mr__error_code();
    }
    s->buffer->read_only = true;
    s->data = p;
    return MR_OK;
}

static mr_code
read_whole(mr_source *s, int fd)
{
    uint8_t *p;

    s->buffer = mr__buffer_new(mr__host_pool(), s->bytes > 0 ? s->bytes : 1);
    if (!s->buffer)
        return mr__error_code();
    p = s->buffer->data;
    s->data = p;
    for (size_t at = 0; at < s->bytes;) {
        ssize_t n = read(fd, p + at, s->bytes - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mr__fail(MR_E_IO, "%s: cannot read it: %s", s->name,
                            strerror(errno));
        if (n == 0) {
            s->bytes = at;
            break;
        }
        at += (size_t)n;
    }
    return MR_OK;
}

mr_code
mr__source_file(mr_source *s, const char *path)
{
    struct stat st;
    mr_code code;
    int fd;

    *s = (mr_source){.name = path};
    if (!path)
        return mr__error_pending() ? mr__error_code()
                                   : mr__fail(MR_E_NULL, "the path is NULL");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mr__fail(MR_E_IO, "%s: cannot open it: %s", path,
                        strerror(errno));
    if (fstat(fd, &st) != 0)
        code = mr__fail(MR_E_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = mr__fail(MR_E_IO, "%s: is no regular file", path);
    else {
        s->bytes = (size_t)st.st_size;
        code = s->bytes < MAPPED_FROM ? read_whole(s, fd) : map_whole(s, fd);
    }
    close(fd);
    if (code != MR_OK)
        mr__source_close(s);
    return code;
}

mr_code
mr__source_memory(mr_source *s, const void *data, size_t bytes)
{
    *s = (mr_source){.name = "memory", .bytes = bytes};
    if (!data && bytes > 0)
        return mr__error_pending() ? mr__error_code()
                                   : mr__fail(MR_E_NULL, "data is NULL");
    s->buffer = mr__buffer_new(mr__host_pool(), bytes > 0 ? bytes : 1);
    if (!s->buffer)
        return mr__error_code();
    s->data = s->buffer->data;
    if (bytes > 0)
        memcpy(s->buffer->data, data, bytes);
    return MR_OK;
}

void
mr__source_close(mr_source *s)
{
    if (s->buffer)
        mr__buffer_release(s->buffer);
    *s = (mr_source){0};
}

/* ---- arrays over the bytes ------------------------------------------------
 */

static size_t
stored_width(const mr_stored *a)
{
    return a->convert ? a->width : (size_t)mr__dtype_size(a->dtype);
}

bool
mr__stored_bytes(const mr_stored *a, size_t *bytes)
{
    int64_t size = mr__size_of(a->ndim, a->dim);

    return size >= 0 &&
           !__builtin_mul_overflow((size_t)size, stored_width(a), bytes) &&
           *bytes <= INT64_MAX;
}

/* A byte of a bool that is neither 0 nor 1 would confuse every kernel. */
static bool
bools_are_plain(const uint8_t *p, size_t n)
{
    uint8_t all = 0;

    for (size_t i = 0; i < n; i++)
        all |= p[i];
    return all <= 1;
}

static void
swap_elements(uint8_t *p, size_t bytes, size_t width)
{
    for (uint8_t *e = p; e < p + bytes; e += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t t = e[i];

            e[i] = e[width - 1 - i];
            e[width - 1 - i] = t;
        }
}

/* The elements in memory of their own, in the order in which they are stored.
 */
static mr_buffer *
own_copy(const mr_source *s, const mr_stored *a, size_t bytes, size_t size)
{
    const uint8_t *from = s->data + a->at;
    size_t width = (size_t)mr__dtype_size(a->dtype);
    mr_buffer *b = mr__buffer_new(mr__host_pool(), size * width + 1);
    uint8_t *to;

    if (!b)
        return NULL;
    to = b->data;
    if (a->convert) {
        a->convert(to, from, size);
        return b;
    }
    if (bytes > 0)
        memcpy(to, from, bytes);
    if (a->swapped)
        swap_elements(to, bytes,
                      mr__dtype_is_complex(a->dtype) ? width / 2 : width);
    if (a->dtype == MR_BOOL)
        for (size_t i = 0; i < bytes; i++)
            to[i] = to[i] != 0;
    return b;
}

static void
fortran_strides(int32_t ndim, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;

    for (int32_t i = 0; i < ndim; i++) {
        stride[i] = step;
        step *= dim[i] > 0 ? dim[i] : 1;
    }
}

mr_array *
mr__stored_array(const mr_source *s, const mr_stored *a)
{
    int64_t stride[MR_MAX_NDIM];
    size_t width = (size_t)mr__dtype_size(a->dtype), bytes = 0;
    bool in_place = !a->convert && !a->swapped && a->at % width == 0;
    int64_t offset = 0;
    mr_buffer *b;

    if (!mr__stored_bytes(a, &bytes))
        return mr__fail_null(MR_E_OVERFLOW, "%s: an array too large", s->name);
    if (in_place && a->dtype == MR_BOOL)
        in_place = bools_are_plain(s->data + a->at, bytes);
    if (in_place) {
        b = mr__buffer_retain(s->buffer);
        offset = (int64_t)(a->at / width);
    } else {
        b = own_copy(s, a, bytes, bytes / stored_width(a));
    }
    if (!b)
        return NULL;
    if (a->fortran)
        fortran_strides(a->ndim, a->dim, stride);
    else
        mr__strides_fresh(a->ndim, a->dim, stride);
    return mr__node_data(a->dtype, a->ndim, a->dim, stride, b, offset);
}

/* ---- text -----------------------------------------------------------------
 */

/* How many bytes the code point at p takes, 0 if it is none (RFC 3629: no
 * overlong forms, no surrogates, nothing beyond U+10FFFF, and here no NUL). */
static size_t
utf8_length(const uint8_t *p, size_t left)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n;
    uint32_t c;

    if (p[0] < 0x80)
        return p[0] != 0;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n > left)
        return 0;
    c = p[0] & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    return n;
}

bool
mr__is_utf8(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(text + i, n - i);

        if (length == 0)
            return false;
        i += length;
    }
    return true;
}
