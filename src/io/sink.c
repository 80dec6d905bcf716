/* SPDX-License-Identifier: Apache-2.0
 *
 * sink.c -- writing a file so that a failure leaves the old one as it was.
 *
 * The bytes go to a new file beside the target; when all are there it is
 * synced, renamed over the target, and the folder synced.  What exists and is
 * no regular file (a device, a pipe) is written in place.  A symbolic link
 * stays a link: the file behind it is replaced.
 *
 * Called by: npy.c, safetensors.c.  Calls: the public API.
 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "marram/array.h"

static mr_code
sink_failed(const mr_sink *s, const char *what)
{
    return mr__fail(MR_E_IO, "%s: cannot %s it: %s", s->path, what,
                    strerror(errno));
}

/* A file of a name that nobody else uses, with the rights of the one that it
 * replaces. */
static mr_code
open_temporary(mr_sink *s, const struct stat *old)
{
    static _Atomic uint32_t counter;
    size_t room = strlen(s->target) + 64;

    s->temporary = mr__alloc(room);
    if (!s->temporary)
        return MR_E_MEMORY;
    do {
        /* relaxed: only the number's difference from others matters */
        snprintf(s->temporary, room, "%s.tmp-%ld-%u", s->target, (long)getpid(),
                 atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed));
        s->fd =
            open(s->temporary,
                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    } while (s->fd < 0 && errno == EEXIST);
    if (s->fd < 0) {
        mr__dealloc(s->temporary);
        s->temporary = NULL;
        return sink_failed(s, "write beside");
    }
    /* Rights that cannot be kept are no reason to refuse. */
    if (old && fchmod(s->fd, old->st_mode & 07777) != 0)
        errno = 0;
    return MR_OK;
}

mr_code
mr__sink_open(mr_sink *s, const char *path)
{
    struct stat st;
    bool exists;
    char *real;

    *s = (mr_sink){.path = path, .fd = -1};
    if (!path)
        return MR_OK;
    exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) {
        s->target = mr__strdup(path);
        if (!s->target)
            return MR_E_MEMORY;
        s->fd = open(path, O_WRONLY | O_CLOEXEC);
        return s->fd < 0 ? sink_failed(s, "write") : MR_OK;
    }
    real = exists ? realpath(path, NULL) : NULL;
    s->target = mr__strdup(real ? real : path);
    free(real);
    if (!s->target)
        return MR_E_MEMORY;
    return open_temporary(s, exists ? &st : NULL);
}

static mr_code
put_memory(mr_sink *s, const void *data, size_t bytes)
{
    size_t need;

    if (__builtin_add_overflow(s->bytes, bytes, &need) || need > SIZE_MAX / 2)
        return mr__fail(MR_E_OVERFLOW, "too large for memory");
    if (need > s->capacity) {
        size_t capacity = need > 2 * s->capacity ? need : 2 * s->capacity;
        uint8_t *memory = mr__alloc_again(s->memory, capacity);

        if (!memory)
            return MR_E_MEMORY;
        s->memory = memory;
        s->capacity = capacity;
    }
    if (bytes > 0)
        memcpy(s->memory + s->bytes, data, bytes);
    s->bytes = need;
    return MR_OK;
}

mr_code
mr__sink_put(mr_sink *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    if (!s->path)
        return put_memory(s, data, bytes);
    while (bytes > 0) {
        ssize_t n = write(s->fd, p, bytes < (1U << 30) ? bytes : 1U << 30);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sink_failed(s, "write");
        p += n;
        bytes -= (size_t)n;
    }
    return MR_OK;
}

mr_code
mr__sink_array(mr_sink *s, mr_array *x)
{
    size_t bytes = mr_array_nbytes(x);
    const void *data = mr_array_data(x);
    const int64_t *stride = data ? mr_array_strides(x) : NULL;
    mr_buffer *copy;
    mr_code code;

    if (!stride)
        return mr__error_code();
    if (mr__is_contiguous(x->ndim, x->dim, stride))
        return mr__sink_put(s, data, bytes);
    copy = mr__buffer_new(mr__host_pool(), bytes > 0 ? bytes : 1);
    if (!copy)
        return mr__error_code();
    code = mr_array_copy_out(x, copy->data, bytes);
    if (code == MR_OK)
        code = mr__sink_put(s, copy->data, bytes);
    mr__buffer_release(copy);
    return code;
}

/* The rename is on disk only when the folder is.  A file system that cannot
 * sync a folder is no failure of ours. */
static void
sync_folder(char *target)
{
    char *slash = strrchr(target, '/');
    int fd;

    if (slash && slash != target) {
        *slash = '\0';
        fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *slash = '/';
    } else {
        fd = open(slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

mr_code
mr__sink_commit(mr_sink *s)
{
    int failed;

    if (!s->path)
        return MR_OK;
    if (s->temporary && fsync(s->fd) != 0)
        return sink_failed(s, "sync");
    failed = close(s->fd);
    s->fd = -1;
    if (failed != 0)
        return sink_failed(s, "write");
    if (!s->temporary)
        return MR_OK;
    if (rename(s->temporary, s->target) != 0)
        return sink_failed(s, "rename over");
    mr__dealloc(s->temporary);
    s->temporary = NULL;
    sync_folder(s->target);
    return MR_OK;
}

void *
mr__sink_take_memory(mr_sink *s, size_t *bytes)
{
    void *memory = s->memory;

    *bytes = s->bytes;
    s->memory = NULL;
    return memory;
}

void
mr__sink_close(mr_sink *s)
{
    if (s->path && s->target && s->fd >= 0)
        close(s->fd);
    if (s->temporary)
        unlink(s->temporary);
    mr__dealloc(s->temporary);
    mr__dealloc(s->target);
    mr__dealloc(s->memory);
    *s = (mr_sink){.fd = -1};
}
