/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h -- the thread's error: one record a thread, kept until it is taken.
 *
 * A failure is made once, where it is found (mr__fail), and passed on
 * unchanged.  The front door of an operator puts the operator's name and the
 * creation site around it (mr__error_door).
 */
#ifndef MR_BASE_ERROR_H
#define MR_BASE_ERROR_H

#include "marram/error.h"
#include "marram/types.h"

/* Set the thread's error and give the code back. */
mr_code mr__fail(mr_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for what returns an object: always NULL. */
void *mr__fail_null(mr_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What each thread keeps.  Small, because initial-exec storage of a library
 * that is opened at run time comes out of a small reserve; the strings are
 * behind `text`, made at the thread's first failure.  Private to error.c but
 * for the door. */
struct mr__door {
    const char *op;
    const char *site;
};
struct mr__error_text;
struct mr__error_thread {
    struct mr__door door;
    mr_code code;
    /* A value that a trace does not have was asked for, and nobody has taken
     * the error: what was computed since may depend on what was given instead
     * (NaN, where only a number can be given). */
    bool unread;
    struct mr__error_text *text;
};
extern _Thread_local struct mr__error_thread mr__error_here
    __attribute__((tls_model("initial-exec")));

/* Name the operator and site of the door now open on this thread; failures
 * made meanwhile carry them.  Both may be NULL, and must outlive the door.
 * Plain stores.  Gives the door that was open, for mr__error_door_restore. */
static inline struct mr__door
mr__error_door(const char *op, const char *site)
{
    struct mr__door old = mr__error_here.door;

    mr__error_here.door.op = op;
    mr__error_here.door.site = site;
    return old;
}

/* The same for the door of an operator, which others may be made of: the
 * outermost one, which the user called, keeps its name. */
static inline struct mr__door
mr__error_door_outer(const char *op, const char *site)
{
    struct mr__door old = mr__error_here.door;

    if (__builtin_expect(old.op == NULL, 1))
        mr__error_here.door = (struct mr__door){op, site};
    return old;
}

static inline void
mr__error_door_restore(struct mr__door old)
{
    mr__error_here.door = old;
}

/* True if this thread has a failure that nobody took. */
static inline bool
mr__error_pending(void)
{
    return mr__error_here.code != MR_OK;
}

static inline mr_code
mr__error_code(void)
{
    return mr__error_here.code;
}

/* Failures of this thread so far: did a call fail, or only keep an error that
 * was there? */
uint64_t mr__error_count(void);

/* Put the thread's error (or its absence) aside while user code runs that
 * must not disturb it, and bring it back: strings borrowed from it stay valid.
 * Cannot fail. */
struct mr__error_stash {
    mr_code code;
    struct mr__error_text *text;
};
struct mr__error_stash mr__error_stash(void);
void mr__error_unstash(struct mr__error_stash s);

/* A failure as a value, so that it can stick to an array and be raised again
 * on another thread.  Counted.  mr__error_capture never fails: with no memory
 * it gives a static "out of memory" record. */
typedef struct mr_error_record mr_error_record;
mr_error_record *mr__error_capture(void);       /* takes the thread's error */
void mr__error_raise(const mr_error_record *r); /* copies it to the thread */
mr_error_record *mr__error_retain(mr_error_record *r);
void mr__error_release(mr_error_record *r);
mr_code mr__error_record_code(const mr_error_record *r);
/* Is e, which somebody took, this failure? */
bool mr__error_record_is(const mr_error_record *r, const mr_error *e);

/* What several results of one operator fail with: part[i], retained, or NULL
 * for a result that is good.  NULL with MR_E_MEMORY set, or when all are good;
 * the one record of all where they have one.  Raised, it is the first. */
mr_error_record *mr__error_parts(int n, mr_error_record *const *part);
bool mr__error_has_parts(const mr_error_record *r);
/* Why result i fails, borrowed: r itself if it is of all; NULL: it is good. */
mr_error_record *mr__error_part(mr_error_record *r, int i);

/* Add operator and site to the thread's error where it has none yet (the
 * operator also in front of the message), and a note line.  op, site and fmt
 * may be NULL.  Without a pending error nothing happens. */
void mr__error_annotate(const char *op, const char *site, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
