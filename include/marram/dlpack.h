/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.h -- memory shared with other libraries by DLPack, on the host.
 *
 * The two structs are DLPack's own: include <dlpack/dlpack.h>, or declare them
 * after https://dmlc.github.io/dlpack/latest/c_api.html.  Versions 1.x have
 * DLManagedTensorVersioned, those before have DLManagedTensor.  Any thread.
 */
#ifndef MARRAM_DLPACK_H
#define MARRAM_DLPACK_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

struct DLManagedTensor;
struct DLManagedTensorVersioned;

typedef enum mr_dlpack_mode {
    MR_DLPACK_SHARE = 0, /* x's memory, which is never donated afterwards */
    MR_DLPACK_COPY = 1   /* memory of the tensor's own (flag IS_COPIED) */
} mr_dlpack_mode;

/* Evaluates x and waits, so that the memory is there before anybody reads it
 * on any stream; what lies on a device is brought to the host.  The result is
 * the caller's, who ends it by its deleter, once, on any thread; x may be let
 * go before.  Strides are in elements and always there.  Memory that may not be
 * written (mr_array_is_read_only) carries the flag READ_ONLY.  NULL on failure:
 * what x's evaluation says, MR_E_MEMORY. */
MR_API struct DLManagedTensorVersioned *mr_to_dlpack(mr_array *x,
                                                     mr_dlpack_mode mode);
/* For consumers of versions before 1.0, where nothing says that memory may not
 * be written: imported memory of that kind is MR_E_VALUE unless copied. */
MR_API struct DLManagedTensor *mr_to_dlpack_unversioned(mr_array *x,
                                                        mr_dlpack_mode mode);

/* Ends a tensor that nobody took, by its deleter; NULL is allowed. */
MR_API void mr_dlpack_free(struct DLManagedTensorVersioned *m);
MR_API void mr_dlpack_free_unversioned(struct DLManagedTensor *m);

/* An array over the tensor's memory, not copied.  m is taken, also when this
 * fails: its deleter is called once, when the last array over the memory is
 * gone, on a user thread.  The producer's work must be done, as its __dlpack__
 * promises for the host.  Errors: MR_E_VALUE (memory that the host cannot read,
 * another major version, memory that is not aligned, bad dims), MR_E_DTYPE
 * (no dtype of Marram's), MR_E_NULL, MR_E_OVERFLOW, MR_E_MEMORY. */
MR_API mr_array *mr_from_dlpack(struct DLManagedTensorVersioned *m);
MR_API mr_array *mr_from_dlpack_unversioned(struct DLManagedTensor *m);

MR_EXTERN_C_END

#endif
