/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h -- the worker threads.
 *
 * Two kinds of work: parallel loops (chunks are dealt to threads, the same
 * ones in loop after loop, and who is done takes from others; the submitter
 * helps and returns when all chunks are done) and detached jobs
 * (a stream to drain).  Several loops may run at once.  A loop started inside
 * a loop runs inline on its thread.  Workers block all signals.  The pool
 * starts at first use; size: MARRAM_NUM_THREADS, else the CPUs of the
 * affinity mask bounded by the cgroup's quota.  Workers never run user code.
 */
#ifndef MR_BASE_POOL_H
#define MR_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* The number of threads a loop may use, the caller included (>= 1). */
int mr__pool_threads(void);

/* body(ctx, i) for each i in [0, n_chunks), on any of the threads, in any
 * order; returns when all have run, and all that they wrote is visible.
 * n_chunks of 1 or a pool of one thread runs inline and touches nothing shared.
 */
void mr__pool_loop(int64_t n_chunks, void (*body)(void *ctx, int64_t i),
                   void *ctx);

/* The same; `turned`: each thread goes through its chunks the other way round,
 * so that of two loops over the same memory the second begins where the first
 * has ended. */
void mr__pool_loop_turned(int64_t n_chunks, bool turned,
                          void (*body)(void *ctx, int64_t i), void *ctx);

/* True inside a loop's body. */
bool mr__pool_in_loop(void);

/* True on the pool's own threads: no user code may run here. */
bool mr__pool_is_worker(void);

/* Run job(ctx) on a worker, soon; false with MR_E_MEMORY set if it could not
 * be queued.  With a pool of one thread there is still one worker for jobs.
 * Jobs are few and long; loops have precedence.  A job may run loops.  It must
 * not wait for another job, which may be queued behind it: it should end, and
 * be queued again by whoever makes it runnable. */
bool mr__pool_job(void (*job)(void *ctx), void *ctx);

/* For long jobs, between two tasks and with no lock held: waits here while
 * another thread forks, so that fork() need not wait for the job's end.  A
 * relaxed load otherwise; nothing on a thread that is no worker. */
void mr__pool_pause_point(void);

/* Does a thread fork at this moment?  Whoever starts something that a fork must
 * not find half done asks after saying that it starts (under the lock that
 * prepare handlers look under), and waits. */
bool mr__pool_forking(void);
/* Sleep until no thread forks. */
void mr__pool_await_fork(void);

/* Fork: prepare / parent / child are called by the library's atfork
 * handlers; after child() the pool starts anew at its next use, and jobs that
 * ran or were queued are forgotten there.  prepare waits until each worker is
 * idle or at a pause point and holds no lock afterwards: call it before
 * prepare handlers that take locks which jobs may need. */
void mr__pool_fork_prepare(void);
void mr__pool_fork_parent(void);
void mr__pool_fork_child(void);

/* Joins the workers once all queued jobs have run (library exit, tests).  The
 * pool starts again at its next use.  Not from a worker. */
void mr__pool_stop(void);

#endif
