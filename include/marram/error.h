/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h -- the error of the calling thread.
 *
 * Every thread has one error record.  A failing call overwrites it; a call
 * that was given NULL because an earlier one failed keeps the first.  A call
 * that succeeds leaves it alone, so check results, not this record.
 */
#ifndef MARRAM_ERROR_H
#define MARRAM_ERROR_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* Borrowed strings: valid until this thread's next failure or
 * mr_error_take().  op and site are "" when unknown; notes is "" or lines
 * separated by newlines. */
typedef struct mr_error {
    mr_code code;
    const char *message; /* with the operator in front: "add: ..." */
    const char *op;
    const char *site; /* "file:line" of the user's call, or of the one that
                       * made the array at fault */
    const char *notes;
} mr_error;

/* The thread's error; code is MR_OK when there is none. */
MR_API mr_error mr_error_last(void);
/* The same, and clears it; the strings live until the next failure. */
MR_API mr_error mr_error_take(void);
/* Set the thread's error from a closure or a binding: message is copied. */
MR_API mr_code mr_error_set(mr_code code, const char *message);
/* "MR_E_SHAPE" and so on; never NULL. */
MR_API const char *mr_code_name(mr_code code);

MR_EXTERN_C_END

#endif
