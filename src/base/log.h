/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h -- lines for the user, written when no lock is held.
 *
 * mr__log queues a line; mr__log_flush hands the queued lines to the handler
 * (standard error by default, prefix "marram: ").  Front doors flush; a line
 * logged by a worker waits for the next front door.  A handler is user code:
 * no lock is held while it runs.
 */
#ifndef MR_BASE_LOG_H
#define MR_BASE_LOG_H

#include <stdatomic.h>

typedef enum mr_log_level {
    MR_LOG_INFO,
    MR_LOG_WARN,
    MR_LOG_ERROR
} mr_log_level;

/* Queue a line (cut at 1 KB).  Never fails, allocates or touches the thread's
 * error; may be called with any lock held.  Lines beyond 64 that wait are
 * dropped, and their number is told. */
void mr__log(mr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Lines that wait.  Relaxed: a flush that misses one leaves it to the next. */
extern _Atomic int mr__log_waiting;
void mr__log_flush_now(void);

/* Hand over what waits; a relaxed load when nothing does.  No lock may be
 * held.  The thread's error is as before afterwards. */
static inline void
mr__log_flush(void)
{
    if (atomic_load_explicit(&mr__log_waiting, memory_order_relaxed) != 0)
        mr__log_flush_now();
}

/* NULL: the default handler again.  The old handler may still be running on
 * another thread when this returns. */
void mr__log_set_handler(void (*fn)(void *ctx, int level, const char *line),
                         void *ctx);

/* Fork: the last lock to be taken in prepare, the first to be dropped. */
void mr__log_fork_prepare(void);
void mr__log_fork_parent(void);
void mr__log_fork_child(void);

#endif
