/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.h -- evaluation, streams, memory figures.
 *
 * Any thread may evaluate anything; threads that evaluate overlapping graphs
 * share the work.  Nothing here runs user code under a lock.
 */
#ifndef MARRAM_EVAL_H
#define MARRAM_EVAL_H

#include "marram/error.h"
#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* Compute and wait.  Fails with the first error met; the others' results
 * stay.  Inside a compile or vmap trace: MR_E_STATE. */
MR_API mr_code mr_eval(mr_array *x);
MR_API mr_code mr_eval_many(mr_array *const *x, int n);
MR_API mr_code mr_eval_tree(const mr_tree *t);
/* Start and return; errors surface at the next touch.  Waits while too much is
 * in flight: more than 4,096 tasks, or 256 MiB that were taken for results and
 * scratch of evaluations begun by earlier calls and not over. */
MR_API mr_code mr_async_eval(mr_array *const *x, int n);
/* Has x failed for good, with `why` (as mr_error_take gave it), or with any
 * error when that is NULL?  No evaluation; false for NULL. */
MR_API bool mr_array_failed(const mr_array *x, const mr_error *why);
/* For bindings whose objects are updated in place, and go back when the update
 * failed: x was made from `was` as its new value, and has failed, or has not
 * been computed for the failure of an input.  A new reference of `was`, whose
 * elements are as they were; NULL without an error when x is computed or does
 * not lead to it.  `was` may be gone: it is compared, and read only where it is
 * found among what x keeps.  Any thread. */
MR_API mr_array *mr_array_former(mr_array *x, mr_array *was);

/* Streams: ordered queues.  {0} means the calling thread's default stream of
 * the default device. */
MR_API mr_stream mr_stream_new(mr_device device); /* id 0 on failure */
MR_API void mr_stream_free(mr_stream s);
MR_API mr_stream mr_stream_default(void);
/* This thread's default stream on the stream's device; {0}: its own ones again,
 * on all devices. */
MR_API mr_code mr_stream_set_default(mr_stream s);
/* This thread's default stream on a device: what it set, or one of its own,
 * made at the first call, that ends with the thread.  Id 0 on failure. */
MR_API mr_stream mr_stream_of(mr_device device);
MR_API mr_device mr_stream_device(mr_stream s);
/* Wait for all work submitted to it ({0}: this thread's default). */
MR_API mr_code mr_stream_sync(mr_stream s);

/* The default device: the calling thread's, else the process's. */
MR_API mr_device mr_default_device(void);
MR_API mr_code mr_set_default_device(mr_device d); /* the process's */
/* The calling thread's (NULL: the process's again); *old, unless NULL, is what
 * to give back afterwards: index -1 means that there was none. */
MR_API mr_code mr_device_scope(const mr_device *d, mr_device *old);
MR_API bool mr_device_available(mr_device d);
MR_API int mr_device_count(mr_device_type t);

/* Memory of the host and of all devices together, in bytes: the peak is that of
 * the sum.  A limit that is set holds for the host and for the sum; the default
 * (four fifths of the machine, or of its control group) for the host alone, and
 * each device has its own.  At a limit caches are emptied, then copies on
 * devices that are elsewhere as well, then an evaluation waits for what runs,
 * and fails when nothing does.  A cache limit holds for each memory. */
MR_API size_t mr_memory_active(void);
MR_API size_t mr_memory_peak(void);
MR_API size_t mr_memory_cached(void);
MR_API void mr_memory_reset_peak(void);
MR_API size_t mr_memory_set_limit(size_t bytes); /* returns the old one */
MR_API size_t mr_memory_limit(void);
MR_API size_t mr_memory_set_cache_limit(size_t bytes);
MR_API void mr_memory_clear_cache(void);
/* The figures of one device's memory; a limit of SIZE_MAX: none. */
typedef struct mr_memory_info {
    uint64_t size; /* sizeof(mr_memory_info) of the caller */
    uint64_t active, peak, cached, limit, cache_limit;
} mr_memory_info;
MR_API mr_code mr_memory_of(mr_device d, mr_memory_info *out);
/* Whether a limit is one (the default).  If not, an evaluation that finds no
 * memory waits for what runs and then exceeds it.  Returns the old setting. */
MR_API bool mr_memory_set_strict(bool strict);
/* All memory at a glance: peak_held is the peak of active and cached together,
 * resident what the system counts for the process now. */
typedef struct mr_memory_report {
    uint64_t size; /* sizeof(mr_memory_report) of the caller */
    uint64_t active, cached, peak, peak_held, limit, resident;
    uint64_t buffers; /* in use */
} mr_memory_report;
MR_API mr_code mr_memory_report_get(mr_memory_report *out);

/* Called before and after every place where a call may block, on that
 * thread: a binding gives its interpreter lock up in between.  `token` is what
 * before() returned.  Set once, before use from several threads. */
MR_API void mr_set_block_hooks(void *(*before)(void), void (*after)(void *));

/* Lets a long wait end early.  may() says whether the calling thread wants to
 * be asked; then poll() is called on it every 50 ms or so of a wait, between
 * the block hooks and with no lock held, and true ends the wait: the call fails
 * with MR_E_CANCELLED, the work that was submitted goes on, and what was asked
 * for can be asked for again.  A server may cancel a request's waits by it, a
 * binding asks for pending signals.  Set once, before use from several
 * threads; NULL, NULL: none. */
MR_API void mr_set_interrupt_hooks(bool (*may)(void), bool (*poll)(void));

/* The checking mode: which operator made the first NaN or infinity, out of
 * finite inputs?  WARN logs it with its line; ERROR makes the evaluation fail
 * with MR_E_VALUE there.  Nothing is fused meanwhile (same values, slower).
 * MARRAM_CHECK=1 or MARRAM_CHECK=error set it at start.  Compiled functions
 * that were traced before keep their fused steps, which are checked whole. */
typedef enum mr_check_mode {
    MR_CHECK_OFF = 0,
    MR_CHECK_WARN = 1,
    MR_CHECK_ERROR = 2
} mr_check_mode;
/* Returns the old mode; another number changes nothing. */
MR_API mr_check_mode mr_check_set(mr_check_mode mode);

/* The instruction set that the kernels use: "baseline", "avx2", "avx512", "amx"
 * (avx512, and the matrix unit for products), "neon"; NULL when MARRAM_CPU asks
 * for one that is not to be had. */
MR_API const char *mr_cpu_tier(void);
/* The digest of all sources of the kernels that the library was built from, 16
 * hexadecimal digits, and the instruction sets that it has them for. */
MR_API const char *mr_kernels_digest(void);
MR_API const char *mr_kernels_tiers(void); /* "baseline, avx2, avx512, amx" */
/* The threads that kernels run on: MARRAM_NUM_THREADS, or what affinity and
 * the cgroup allow. */
MR_API int mr_num_threads(void);

/* Counters since start (for benchmarks and tests). */
typedef struct mr_stats {
    uint64_t size;                   /* sizeof(mr_stats) of the caller */
    uint64_t plan_holds, plan_waits; /* of the plan lock */
    /* nodes made; tasks that ended; kernels and block programs submitted (a
     * compiled call is one), and block programs of several operators */
    uint64_t nodes_made, tasks_run, kernels_run, groups_fused;
    uint64_t ran_on_caller, ran_on_worker;
    uint64_t ahead; /* evaluations that mr_eval_set_depth_limit started */
} mr_stats;
MR_API mr_code mr_stats_get(mr_stats *out);

/* What is still to be computed for some arrays: how many nodes, and the longest
 * chain of them (each needs the one before), with the line where that begins.
 * A chain that grows from step to step, since nothing evaluates it, keeps all
 * that went into it in memory. */
typedef struct mr_pending {
    uint64_t size; /* sizeof(mr_pending) of the caller */
    uint64_t nodes, longest;
    const char *site; /* immortal; "" when unknown */
} mr_pending;
MR_API mr_code mr_pending_get(mr_array *const *x, int n, mr_pending *out);
/* Evaluates such a chain by itself: where a call makes an array that is more
 * than so many operations away from what was evaluated, what is below it starts
 * as with mr_async_eval (and may wait, as that does).  Not inside a traced
 * function.  0, the default: a warning, once, beyond 100,000.  The environment
 * variable MARRAM_EVAL_DEPTH sets it at start.  Of the whole process; returns
 * the old one. */
MR_API uint64_t mr_eval_set_depth_limit(uint64_t operations);
/* A graph is evaluated depth first, in windows of so many operations, 2,048
 * unless set (0: that again; at most 1,048,576): each is planned under the
 * plan lock as a whole, gets its memory and is started before the next is
 * planned.  A smaller window holds the lock for less long, and fuses and reuses
 * memory over fewer operations; values are the same.  The environment variable
 * MARRAM_EVAL_WINDOW sets it at start.  Of the whole process; returns the old
 * one. */
MR_API uint64_t mr_eval_set_window(uint64_t operations);

/* ---- the same with the caller's line --------------------------------------
 * Errors of these name the line of the call; a binding, which has no C lines,
 * calls the plain functions (-DMR_PLAIN_CALLS). */
MR_API mr_code mr_eval_sited(const char *site, mr_array *x);
MR_API mr_code mr_eval_many_sited(const char *site, mr_array *const *x, int n);
MR_API mr_code mr_eval_tree_sited(const char *site, const mr_tree *t);
MR_API mr_code mr_async_eval_sited(const char *site, mr_array *const *x, int n);
#ifndef MR_PLAIN_CALLS
#define mr_eval(...)       mr_eval_sited(MR_SITE, __VA_ARGS__)
#define mr_eval_many(...)  mr_eval_many_sited(MR_SITE, __VA_ARGS__)
#define mr_eval_tree(...)  mr_eval_tree_sited(MR_SITE, __VA_ARGS__)
#define mr_async_eval(...) mr_async_eval_sited(MR_SITE, __VA_ARGS__)
#endif

MR_EXTERN_C_END

#endif
