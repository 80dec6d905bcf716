/* SPDX-License-Identifier: Apache-2.0
 *
 * compile.h -- compiled functions: traced once for each signature, kept in one
 * bounded cache of the process.
 */
#ifndef MARRAM_COMPILE_H
#define MARRAM_COMPILE_H

#include "marram/transform.h"
#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* An array that a traced function uses and was not given is *captured*. */
typedef enum mr_capture_mode {
    MR_CAPTURE_CONSTANT, /* a constant of the trace (MARRAM_CHECK=1 says so) */
    MR_CAPTURE_ERROR,    /* an error that names it */
    MR_CAPTURE_INPUT     /* the same, for a binding that reads those that it
                          * finds at each call, and gives them as arguments */
} mr_capture_mode;

typedef struct mr_compile_options {
    size_t size;      /* sizeof(mr_compile_options); 0 is an error */
    bool shapeless;   /* one trace for all shapes of one rank */
    const char *name; /* for messages; NULL: "function" */
    /* Programs of this function that are kept at most, and their bytes; 0: the
     * default, 1,024 and 256 MiB.  Those used longest ago go first. */
    uint64_t max_entries, max_bytes;
    /* What becomes of arrays that the function finds outside itself. */
    mr_capture_mode captures;
    /* For bindings: what a message about such arrays adds to "pass them as
     * arguments", as the language has it.  Immortal; NULL: nothing. */
    const char *capture_help;
} mr_compile_options;

/* options may be NULL.  The closure is traced at the first call of each
 * signature, under no lock.  Any thread may call it. */
MR_API mr_function *mr_compile(mr_fn fn, void *ctx,
                               const mr_compile_options *options);
MR_API mr_function *mr_compile_closure(mr_closure *c,
                                       const mr_compile_options *options);
MR_API mr_function *mr_function_retain(mr_function *f);
/* Any thread, any place: drops entries later, never waits. */
MR_API void mr_function_release(mr_function *f);
MR_API mr_tree *mr_call(mr_function *f, const mr_tree *args);
/* key: bytes that belong to the signature (compared whole).  trace: called in
 * place of the function's closure when a trace is needed. */
MR_API mr_tree *mr_call_keyed(mr_function *f, const mr_tree *args,
                              const void *key, size_t key_bytes,
                              mr_closure *trace);

/* For bindings that keep structure on their own side: arrays in, arrays out,
 * and no tree on the way unless the call is traced. */
enum { MR_CALL_FEW = 16 };
typedef struct mr_call_results {
    int64_t tag;                /* what the trace said */
    int n;                      /* leaves of what it returned, in order, */
    mr_array **leaf;            /* references of the caller's */
    mr_array *few[MR_CALL_FEW]; /* where they lie when there is room */
    /* Of a call that was traced: the arrays that its program keeps as
     * constants, as addresses (they live as long as the program). */
    void **captured;
    int n_captured;
    bool traced;
} mr_call_results;
/* A function to be traced: gets a tuple of the arguments and may set *tag, a
 * number that each later call of the program brings back.  Its results are the
 * caller's, as under mr_scope_none. */
typedef mr_tree *(*mr_trace_fn)(void *ctx, const mr_tree *in, int64_t *tag);
/* For a binding, while its function is traced: a line "name: value" for each
 * argument, told to whoever's function is traced again and again.  NULL: none.
 */
MR_API void mr_trace_note(const char *lines);
/* As mr_call_keyed.  On success *out is to be ended; on failure it is empty.
 * Any thread. */
MR_API mr_code mr_call_arrays(mr_function *f, int n, mr_array *const *args,
                              const void *key, size_t key_bytes,
                              mr_trace_fn trace, void *ctx,
                              mr_call_results *out);
MR_API void mr_call_results_end(mr_call_results *r);

typedef struct mr_cache_info {
    size_t size; /* sizeof(mr_cache_info) of the caller */
    uint64_t hits, misses, entries, bytes, traces, evictions;
} mr_cache_info;
MR_API mr_code mr_function_cache_info(const mr_function *f, mr_cache_info *out);
MR_API mr_code mr_function_cache_clear(mr_function *f);
MR_API mr_code mr_compile_cache_info(mr_cache_info *out);
MR_API mr_code mr_compile_cache_clear(void);
/* Of all programs together: 4,096 and 1 GiB unless said otherwise.  Returns
 * the old limit. */
MR_API uint64_t mr_compile_set_cache_limit(uint64_t entries);
MR_API uint64_t mr_compile_set_cache_bytes_limit(uint64_t bytes);
/* The programs that it has, as text: what was simplified, the steps and where
 * each runs, memory, why steps were not joined.  Free it with mr_text_free;
 * NULL on failure.  Any thread. */
MR_API char *mr_function_explain(const mr_function *f);
/* The same, or a graph in the DOT language of Graphviz: a cluster for each
 * program, a box for each step, and a dashed arrow, with the reason, between
 * steps that were not joined.  The command `marram graph` makes it of all
 * compiled functions of a program. */
typedef enum mr_explain_form {
    MR_EXPLAIN_TEXT,
    MR_EXPLAIN_DOT
} mr_explain_form;
MR_API char *mr_function_explain_as(const mr_function *f, mr_explain_form form);
/* The plans of Fourier transforms: at most 128, and 128 MiB of tables.  traces
 * is 0. */
MR_API mr_code mr_fft_cache_info(mr_cache_info *out);
MR_API mr_code mr_fft_cache_clear(void);
/* What compiling does, in the whole process.  At first as MARRAM_COMPILE says
 * ("disabled", "no_simplify", "no_fuse", "enabled"), else disabled when
 * MARRAM_DISABLE_COMPILE or MLX_DISABLE_COMPILE is set and not 0.  Programs of
 * another mode stay in the cache, and are not used. */
typedef enum mr_compile_mode {
    MR_COMPILE_DISABLED,    /* functions run as they are */
    MR_COMPILE_NO_SIMPLIFY, /* the graph is taken as it was traced */
    MR_COMPILE_NO_FUSE,     /* a kernel for each operator */
    MR_COMPILE_ENABLED
} mr_compile_mode;
/* Returns the old mode; another number changes nothing. */
MR_API mr_compile_mode mr_compile_set_mode(mr_compile_mode m);
MR_API const char *mr_compile_mode_name(mr_compile_mode m); /* NULL: none */
MR_API bool mr_compile_mode_from_name(const char *name, mr_compile_mode *out);
/* Disabled or enabled; returns whether it was on. */
MR_API bool mr_compile_enable(bool on);

/* ---- the same with the caller's line --------------------------------------
 * Errors of these name the line of the call; a binding, which has no C lines,
 * calls the plain functions (-DMR_PLAIN_CALLS). */
MR_API mr_function *mr_compile_sited(const char *site, mr_fn fn, void *ctx,
                                     const mr_compile_options *options);
MR_API mr_tree *mr_call_sited(const char *site, mr_function *f,
                              const mr_tree *args);
#ifndef MR_PLAIN_CALLS
#define mr_compile(...) mr_compile_sited(MR_SITE, __VA_ARGS__)
#define mr_call(...)    mr_call_sited(MR_SITE, __VA_ARGS__)
#endif

MR_EXTERN_C_END

#endif
