/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h -- whole files in, whole files out: what the formats share.
 */
#ifndef MR_IO_FILE_H
#define MR_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array/buffer.h"
#include "marram/types.h"

/* The bytes of a file, or of memory, as a buffer that arrays may look into.
 * `name` stands in front of every error about them. */
typedef struct mr_source {
    const char *name; /* borrowed: the path, or "memory" */
    const uint8_t *data;
    size_t bytes;
    mr_buffer *buffer; /* a reference; its data is `data` */
} mr_source;

/* Small files are read, others mapped (copy on write: nothing that writes
 * into the arrays changes the file). */
mr_code mr__source_file(mr_source *s, const char *path);
/* A copy of the caller's memory. */
mr_code mr__source_memory(mr_source *s, const void *data, size_t bytes);
void mr__source_close(mr_source *s);

/* How one array lies in a source. */
typedef struct mr_stored {
    size_t at;      /* first byte */
    mr_dtype dtype; /* of the result */
    int32_t ndim;
    const int64_t *dim;
    bool swapped; /* the other byte order */
    bool fortran; /* first axis fastest */
    /* NULL: the bytes are of dtype.  Else makes n elements out of n elements
     * of `width` bytes. */
    void (*convert)(void *out, const uint8_t *in, size_t n);
    size_t width;
} mr_stored;

/* Bytes that it takes there, or false when they do not fit size_t. */
bool mr__stored_bytes(const mr_stored *a, size_t *bytes);
/* The array, a view of the source where its bytes can be used in place, else
 * a copy.  The bytes must lie in the source. */
mr_array *mr__stored_array(const mr_source *s, const mr_stored *a);

/* ---- writing --------------------------------------------------------------
 * To a temporary file beside `path` that replaces it at the end, or (path
 * NULL) to memory.  Zero-initialise it; close it whatever happened. */
typedef struct mr_sink {
    const char *path;
    char *target;    /* path behind symbolic links */
    char *temporary; /* NULL when written in place (a device, a pipe) */
    int fd;          /* -1 or open; only when target is set */
    uint8_t *memory;
    size_t bytes, capacity;
} mr_sink;

mr_code mr__sink_open(mr_sink *s, const char *path);
mr_code mr__sink_put(mr_sink *s, const void *data, size_t bytes);
/* All elements, row-major. */
mr_code mr__sink_array(mr_sink *s, mr_array *x);
/* Sync and rename: after this the new file is there, whole. */
mr_code mr__sink_commit(mr_sink *s);
/* What was written to memory; the caller's (mr_text_free). */
void *mr__sink_take_memory(mr_sink *s, size_t *bytes);
void mr__sink_close(mr_sink *s);

/* The whole of the text is UTF-8 without NUL. */
bool mr__is_utf8(const uint8_t *text, size_t n);

#endif
