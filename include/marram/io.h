/* SPDX-License-Identifier: Apache-2.0
 *
 * io.h -- files of arrays: npy and safetensors.
 *
 * A write goes to a temporary file beside the target, is synced, and renamed:
 * a failure leaves the old file as it was.  A broken file is refused with what
 * is wrong and where; nothing is read out of its bounds.  Errors: MR_E_IO.
 */
#ifndef MARRAM_IO_H
#define MARRAM_IO_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* npy, versions 1 to 3, either byte order, C and Fortran order. */
MR_API mr_array *mr_load_npy(const char *path);
MR_API mr_code mr_save_npy(const char *path, mr_array *x);
/* From and to memory: the result of save is freed with mr_text_free. */
MR_API mr_array *mr_load_npy_memory(const void *data, size_t bytes);
MR_API void *mr_save_npy_memory(mr_array *x, size_t *bytes);

/* A dict tree of arrays by name (in file order), over the mapped file;
 * metadata (may be NULL) gets "key\0value\0..." pairs ended by an empty key,
 * freed with mr_text_free. */
MR_API mr_tree *mr_load_safetensors(const char *path, char **metadata);
MR_API mr_tree *mr_load_safetensors_memory(const void *data, size_t bytes,
                                           char **metadata);
/* arrays: a dict of leaves; metadata: n pairs.  What the second gives is freed
 * with mr_text_free. */
MR_API mr_code mr_save_safetensors(const char *path, const mr_tree *arrays,
                                   int n_metadata, const char *const *keys,
                                   const char *const *values);
MR_API void *mr_save_safetensors_memory(const mr_tree *arrays, int n_metadata,
                                        const char *const *keys,
                                        const char *const *values,
                                        size_t *bytes);

MR_EXTERN_C_END

#endif
