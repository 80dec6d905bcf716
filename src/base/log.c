/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c -- lines for the user, written when no lock is held.
 *
 * A ring of fixed lines under a leaf lock.  The flusher copies a line out and
 * calls the handler after it let the lock go; a handler that calls back into
 * the library does not flush again.
 * Called by: everything (mr__log), front doors (mr__log_flush).
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"

enum { LINE_BYTES = 1024, N_LINES = 64 };

struct line {
    mr_log_level level;
    char text[LINE_BYTES];
};

typedef void (*handler_fn)(void *ctx, int level, const char *line);

static void to_stderr(void *ctx, int level, const char *line);

static mr_lock log_lock = MR_LOCK_INIT(MR_RANK_LOG, "log");

/* All under log_lock. */
static struct line ring[N_LINES];
static unsigned first, n_lines;
static unsigned long n_dropped;
static handler_fn handler = to_stderr;
static void *handler_ctx;

/* n_lines, and one more if lines were dropped; written under log_lock. */
_Atomic int mr__log_waiting;

static _Thread_local bool flushing __attribute__((tls_model("initial-exec")));

static void
to_stderr(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    fprintf(stderr, "marram: %s\n", line); /* one write: lines stay whole */
}

static void
publish_locked(void)
{
    /* relaxed: a hint for mr__log_flush, which then takes the lock */
    atomic_store_explicit(&mr__log_waiting,
                          (int)n_lines + (n_dropped > 0 ? 1 : 0),
                          memory_order_relaxed);
}

void
mr__log(mr_log_level level, const char *fmt, ...)
{
    struct line line = {.level = level};
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(line.text, sizeof line.text, fmt, args) < 0)
        line.text[0] = '\0';
    va_end(args);

    mr__lock_take(&log_lock);
    if (n_lines == N_LINES)
        n_dropped++;
    else
        ring[(first + n_lines++) % N_LINES] = line;
    publish_locked();
    mr__lock_drop(&log_lock);
}

/* The next line and who gets it; false when none waits. */
static bool
take_line(struct line *line, handler_fn *fn, void **ctx)
{
    bool found = true;

    mr__lock_take(&log_lock);
    if (n_lines > 0) {
        line->level = ring[first].level;
        strcpy(line->text, ring[first].text);
        first = (first + 1) % N_LINES;
        n_lines--;
    } else if (n_dropped > 0) {
        line->level = MR_LOG_WARN;
        snprintf(line->text, sizeof line->text,
                 "%lu more lines were dropped: too many waited", n_dropped);
        n_dropped = 0;
    } else {
        found = false;
    }
    *fn = handler;
    *ctx = handler_ctx;
    publish_locked();
    mr__lock_drop(&log_lock);
    return found;
}

void
mr__log_flush_now(void)
{
    struct mr__error_stash error;
    struct line line;
    handler_fn fn;
    void *ctx;
    /* relaxed: bounds the loop, so that a handler that makes the library log
     * again does not keep this thread for ever */
    int n = atomic_load_explicit(&mr__log_waiting, memory_order_relaxed);

    if (flushing)
        return;
    mr__lock_assert_none("the log handler");
    flushing = true;
    error = mr__error_stash();
    while (n-- > 0 && take_line(&line, &fn, &ctx))
        fn(ctx, (int)line.level, line.text);
    mr__error_unstash(error);
    flushing = false;
}

void
mr__log_set_handler(handler_fn fn, void *ctx)
{
    mr__lock_take(&log_lock);
    handler = fn == NULL ? to_stderr : fn;
    handler_ctx = fn == NULL ? NULL : ctx;
    mr__lock_drop(&log_lock);
}

/* What a program's last calls had to say.  A handler of the user's may be gone
 * by now. */
static __attribute__((destructor)) void
flush_at_exit(void)
{
    bool ours;

    mr__lock_take(&log_lock);
    ours = handler == to_stderr;
    mr__lock_drop(&log_lock);
    if (ours && atomic_load_explicit(&mr__log_waiting, memory_order_relaxed))
        mr__log_flush_now();
}

void
mr__log_fork_prepare(void)
{
    mr__lock_take(&log_lock);
}

void
mr__log_fork_parent(void)
{
    mr__lock_drop(&log_lock);
}

void
mr__log_fork_child(void)
{
    mr__lock_drop(&log_lock);
}
