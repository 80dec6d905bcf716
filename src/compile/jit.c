/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.c -- the worker that compiles, and the provider that it loads.
 *
 * One thread, started when a program is warm, opens the provider
 * (libmarram-jit.so beside this library, or where MARRAM_PROVIDER_PATH says)
 * and calls it; nobody else does, so the provider need not be thread safe and
 * no user's thread pays for loading LLVM.  Quick code comes before better code
 * of the same step, which is asked for on its own.  Code of equal segments is
 * made once and kept while it is used; some that nobody uses is kept for the
 * next program.
 *
 * `lock` is a leaf: it guards the queue, the counts of the cache and the
 * figures; neither the provider nor anything of a user's runs under it.  The
 * list of cached code itself is the worker's alone.
 * Called by: tier1.c, users through sys/info.h.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sized.h"
#include "compile/jit.h"
#include "compile/tier1.h"
#include "eval/hooks.h"
#include "eval/registry.h"
#include "marram/error.h"
#include "marram/sys/info.h"
#include "marram/sys/testing.h"

/* Segments of which the code is kept though nobody uses it. */
#define MAX_UNUSED 256

struct mr_jit_code {
    mr_jit_code *next;
    uint64_t hash;
    size_t key_bytes;
    mr_native_fn *fn;
    void *code;
    bool unfinished; /* there may be faster code */
    int64_t refs;    /* under lock */
    uint64_t age;    /* when it was used last: the worker's */
    unsigned char key[];
};

static mr_lock lock = MR_LOCK_INIT(MR_RANK_JIT, "jit");
static mr_cond work = MR_COND_INIT, idle = MR_COND_INIT;

/* Under lock. */
static mr_tier1 *first, **last = &first;
static bool started, busy, stopping, paused, at_exit_set, wants_provider;
static int n_waiting;
static pthread_t thread;
static struct {
    int64_t compiled, shared, failed, declined, programs;
    double nanoseconds, waited;
    const char *why_not; /* immortal */
    bool loaded;
} figures;

/* The worker's. */
static mr_jit_code *cache;
static int64_t n_cache;
static uint64_t clock_now;
static mr_jit_table provider;
static enum { NOT_TRIED, LOADED, NONE } state;
static bool complained;

/* ---- modes ------------------------------------------------------------------
 */

static _Atomic int mode = -1; /* relaxed: whoever is first writes the same */

static mr_jit_mode
mode_read(void)
{
    const char *v = getenv("MARRAM_JIT");

    if (v == NULL || *v == '\0' || strcmp(v, "background") == 0)
        return MR_JIT_BACKGROUND;
    if (strcmp(v, "off") == 0)
        return MR_JIT_OFF;
    return strcmp(v, "now") == 0 ? MR_JIT_NOW : MR_JIT_UNKNOWN;
}

mr_jit_mode
mr__jit_mode(void)
{
    int m = atomic_load_explicit(&mode, memory_order_relaxed);

    if (m < 0) {
        m = (int)mode_read();
        atomic_store_explicit(&mode, m, memory_order_relaxed);
    }
    return (mr_jit_mode)m;
}

mr_code
mr__jit_check(void)
{
    if (mr__jit_mode() != MR_JIT_UNKNOWN)
        return MR_OK;
    return mr__fail(MR_E_VALUE,
                    "MARRAM_JIT is '%s': it may be off, background or now",
                    getenv("MARRAM_JIT"));
}

/* ---- the provider
 * -------------------------------------------------------------
 */

static mr_jit_host host = {
    .size = sizeof(mr_jit_host),
    .abi = MR_JIT_ABI,
    .build = MR_BUILD_HASH,
    .refuse = mr__provider_refuse,
    .fail = mr__fail,
    .alloc = mr__alloc,
    .dealloc = mr__dealloc,
    .k_name = mr__k_name,
};

/* folder/libmarram-jit.so, or the file itself if it has that name. */
static bool
provider_in(char *path, const char *place, size_t n)
{
    static const char name[] = MR_JIT_FILE;
    const size_t m = sizeof name - 1;

    if (n >= m && strncmp(place + n - m, name, m) == 0)
        snprintf(path, PATH_MAX, "%.*s", (int)n, place);
    else
        snprintf(path, PATH_MAX, "%.*s/%s", (int)n, place, name);
    return access(path, R_OK) == 0;
}

static bool
provider_path(char *path)
{
    const char *places = getenv("MARRAM_PROVIDER_PATH"), *slash;
    Dl_info here;

    if (places != NULL) {
        while (*places != '\0') {
            size_t n = strcspn(places, ":");

            if (n > 0 && provider_in(path, places, n))
                return true;
            places += n + (places[n] == ':');
        }
        return false;
    }
    if (dladdr((void *)&host, &here) == 0 || here.dli_fname == NULL)
        return false;
    slash = strrchr(here.dli_fname, '/');
    return slash != NULL &&
           provider_in(path, here.dli_fname, (size_t)(slash - here.dli_fname));
}

#ifndef MR_JIT_WHY_NOT
#define MR_JIT_WHY_NOT "there is no " MR_JIT_FILE " beside the library"
#endif

static void stop_at_exit(void);

static mr_code
provider_open(const char *path)
{
    mr_jit_init_fn *init;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    mr_code rc;

    if (object == NULL)
        return mr__fail(MR_E_DEVICE, "%s", dlerror());
    /* LLVM's own exit handlers are registered now: ours runs before them */
    atexit(stop_at_exit);
    /* POSIX: a function's address may come through a void pointer */
    *(void **)&init = dlsym(object, MR_JIT_INIT);
    if (init == NULL)
        return mr__fail(MR_E_DEVICE, "%s exports no " MR_JIT_INIT, path);
    host.tier = mr__tier()->name;
    host.symbols = mr__tier()->symbols;
    rc = init(&host, &provider);
    if (rc == MR_OK &&
        (provider.size != sizeof provider || provider.abi != MR_JIT_ABI))
        rc = mr__provider_refuse("jit", provider.build);
    return rc;
}

/* Kept for ever: there are few reasons, and each is found once. */
static void
say_why(const char *text)
{
    char *copy = mr__strdup(text);

    if (copy == NULL)
        mr_error_take();
    else
        mr__alloc_cached(1);
    mr__lock_take(&lock);
    figures.why_not = copy != NULL ? copy : "there was no memory to load it";
    mr__lock_drop(&lock);
}

/* Missing is no news, broken is. */
static bool
provider_there(void)
{
    char path[PATH_MAX];

    if (state != NOT_TRIED)
        return state == LOADED;
    state = NONE;
    if (!provider_path(path)) {
        say_why(MR_JIT_WHY_NOT);
    } else if (provider_open(path) != MR_OK) {
        mr_error e = mr_error_take();

        say_why(e.message);
        mr__log(MR_LOG_WARN, "no native code for compiled programs: %s",
                e.message);
    } else {
        state = LOADED;
        mr__lock_take(&lock);
        figures.loaded = true;
        mr__lock_drop(&lock);
    }
    return state == LOADED;
}

/* ---- code, cached by segment
 * ---------------------------------------------------
 */

static uint64_t
hash_of(const unsigned char *p, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    return h;
}

/* A segment as bytes: a code with its key and nothing else; NULL: no memory. */
static mr_jit_code *
code_new(const mr_segment *s)
{
    uint16_t head[5] = {s->n_in, s->n_op, s->n_out, s->n_fold, s->past};
    const void *part[] = {head, s->in, s->op, s->out, s->fold};
    size_t bytes[] = {sizeof head, s->n_in * sizeof *s->in,
                      s->n_op * sizeof *s->op, s->n_out * sizeof *s->out,
                      s->n_fold * sizeof *s->fold};
    size_t n = 0;
    mr_jit_code *c;

    for (int i = 0; i < 5; i++)
        n += bytes[i];
    c = mr__alloc_zero(sizeof *c + n);
    if (c == NULL)
        return NULL;
    for (int i = 0; i < 5; i++) {
        if (bytes[i] > 0)
            memcpy(c->key + c->key_bytes, part[i], bytes[i]);
        c->key_bytes += bytes[i];
    }
    c->hash = hash_of(c->key, c->key_bytes);
    return c;
}

static void
code_free(mr_jit_code *c)
{
    provider.release(provider.self, c->code);
    mr__alloc_cached(-1);
    mr__dealloc(c);
    n_cache--;
}

/* The code that was used least lately by nobody goes; `most` such may stay. */
static void
cache_trim(int64_t most)
{
    for (;;) {
        mr_jit_code **oldest = NULL, *c;
        int64_t unused = 0;

        mr__lock_take(&lock);
        for (mr_jit_code **at = &cache; *at != NULL; at = &(*at)->next) {
            if ((*at)->refs > 0)
                continue;
            unused++;
            if (oldest == NULL || (*at)->age < (*oldest)->age)
                oldest = at;
        }
        mr__lock_drop(&lock);
        if (unused <= most)
            return;
        c = *oldest;
        *oldest = c->next;
        code_free(c);
    }
}

/* The best there is; NULL: none, or none that is good enough. */
static mr_jit_code *
cache_find(const mr_jit_code *like, bool quick)
{
    mr_jit_code *found = NULL;

    for (mr_jit_code *c = cache; c != NULL; c = c->next) {
        if (c->hash != like->hash || c->key_bytes != like->key_bytes ||
            memcmp(c->key, like->key, c->key_bytes) != 0)
            continue;
        if (!c->unfinished)
            return c;
        if (quick)
            found = c;
    }
    return found;
}

static double
nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static mr_code
code_make(mr_jit_code *c, const mr_segment *s, bool quick)
{
    if (quick && provider.compile_quick != NULL)
        return provider.compile_quick(provider.self, s, &c->fn, &c->code,
                                      &c->unfinished);
    return provider.compile(provider.self, s, &c->fn, &c->code);
}

/* The code of a segment, with a reference of the caller's. */
static mr_jit_code *
code_for(const mr_segment *s, bool quick)
{
    mr_jit_code *c = code_new(s), *old;
    double begin = nanoseconds();

    if (c == NULL)
        return NULL;
    old = cache_find(c, quick);
    if (old != NULL) {
        mr__dealloc(c);
        c = old;
    } else if (code_make(c, s, quick) != MR_OK) {
        mr__dealloc(c);
        return NULL;
    } else {
        /* LLVM's exit handlers that came with the first code, as above */
        if (clock_now == 0)
            atexit(stop_at_exit);
        mr__alloc_cached(1);
        c->next = cache;
        cache = c;
        n_cache++;
    }
    c->age = ++clock_now;
    mr__lock_take(&lock);
    c->refs++;
    figures.shared += old != NULL;
    figures.compiled += old == NULL;
    figures.nanoseconds += old == NULL ? nanoseconds() - begin : 0;
    mr__lock_drop(&lock);
    return c;
}

void
mr__jit_code_release(mr_jit_code **used, int n)
{
    if (n == 0)
        return;
    mr__lock_take(&lock);
    for (int i = 0; i < n; i++)
        used[i]->refs--;
    mr__lock_drop(&lock);
}

/* ---- one step
 * ------------------------------------------------------------------
 */

static int
n_segments(const mr_native *n)
{
    int k = n->index.n;

    for (int p = 0; p < n->n_pass; p++)
        k += n->pass[p].n;
    return k;
}

static mr_code
pass_compile(mr_tier1 *t, const mr_native_pass *p, bool quick)
{
    for (int i = 0; i < p->n; i++) {
        mr_native_segment *g = &p->segment[i];
        mr_jit_code *c;

        if (g->code.n_op == 0)
            continue;
        c = code_for(&g->code, quick);
        if (c == NULL)
            return mr__error_code();
        t->used[t->n_used++] = c;
        t->finished &= !c->unfinished;
        g->fn = c->fn;
    }
    return MR_OK;
}

/* Room for the codes of n, behind those of before. */
static bool
used_grow(mr_tier1 *t, const mr_native *n)
{
    size_t bytes = (size_t)t->n_used * sizeof *t->used;
    mr_jit_code **used = mr__arena_alloc(
        &t->arena, bytes + (size_t)(n_segments(n) + 1) * sizeof *used);

    if (used == NULL)
        return false;
    if (bytes > 0)
        memcpy(used, t->used, bytes);
    t->used = used;
    return true;
}

/* Code for all segments of a step; they are not yet shared. */
static mr_code
segments_compile(mr_tier1 *t, const mr_native *n, bool quick)
{
    mr_code rc;

    if (!used_grow(t, n))
        return MR_E_MEMORY;
    t->finished = true;
    rc = pass_compile(t, &n->index, quick);
    for (int p = 0; p < n->n_pass && rc == MR_OK; p++)
        rc = pass_compile(t, &n->pass[p], quick);
    return rc;
}

/* The program goes on as it is; said once, since all programs may have it. */
static void
step_failed(const mr_tier1 *t)
{
    mr_error e = mr_error_take();

    if (!complained && !mr__tier1_has_code(t))
        mr__log(MR_LOG_WARN,
                "a compiled program gets no native code and stays on the "
                "interpreter: %s",
                e.message);
    complained |= !mr__tier1_has_code(t);
}

static void
figures_note(const mr_tier1 *t, mr_code rc, const void *ready)
{
    if (mr__tier1_has_code(t))
        return; /* it is told of a step's first code, or that it has none */
    mr__lock_take(&lock);
    figures.failed += rc != MR_OK;
    figures.declined += rc == MR_OK && ready == NULL;
    if (rc == MR_OK && ready != NULL) {
        figures.programs++;
        figures.waited += nanoseconds() - t->asked;
    }
    mr__lock_drop(&lock);
}

static void
step_compile(mr_tier1 *t, bool quick)
{
    const void *ready = NULL;
    mr_native *native;
    mr_code rc;

    /* acquire: a program that has died needs no code */
    if (t->finished ||
        atomic_load_explicit(&t->refs, memory_order_acquire) == 1 ||
        !provider_there())
        return;
    rc = (t->pieces ? mr__block_make_native_pieces : mr__block_make_native)(
        &t->code, &t->launch, &t->arena, &ready, &native);
    if (rc == MR_OK && ready != NULL)
        rc = segments_compile(t, native, quick);
    t->finished |= rc != MR_OK || ready == NULL; /* and is not tried again */
    if (rc != MR_OK)
        step_failed(t);
    figures_note(t, rc, ready);
    if (rc == MR_OK && ready != NULL)
        /* release: pairs with mr__tier1_ready */
        atomic_store_explicit(&t->ready, ready, memory_order_release);
    cache_trim(MAX_UNUSED);
}

/* ---- the worker
 * ----------------------------------------------------------------
 */

static void
queue_locked(mr_tier1 *t)
{
    t->next = NULL;
    *last = t;
    last = &t->next;
}

/* Quick code of all comes before the better code of any. */
static void
work_on_locked(mr_tier1 *t)
{
    bool quick = t->wants_quick;

    *(quick ? &t->wants_quick : &t->wants) = false;
    mr__lock_drop(&lock);
    step_compile(t, quick);
    mr__lock_take(&lock);
    if (t->wants_quick || t->wants) {
        queue_locked(t);
        return;
    }
    t->queued = false;
    mr__lock_drop(&lock);
    mr__tier1_release(t);
    mr__lock_take(&lock);
}

static void *
worker_main(void *unused)
{
    (void)unused;
    mr__lock_take(&lock);
    while (!stopping) {
        mr_tier1 *t = first;

        if (paused || (t == NULL && !wants_provider)) {
            mr__cond_wake_all(&idle);
            mr__cond_wait(&work, &lock);
            continue;
        }
        busy = true;
        if (t == NULL) {
            mr__lock_drop(&lock);
            (void)provider_there();
            mr__lock_take(&lock);
        } else {
            first = t->next;
            if (first == NULL)
                last = &first;
            work_on_locked(t);
        }
        wants_provider = busy = false;
        if (n_waiting > 0)
            mr__cond_wake_all(&idle);
    }
    mr__lock_drop(&lock);
    return NULL;
}

static void
worker_start_locked(void)
{
    sigset_t all, old;
    pthread_attr_t attr;

    if (started || stopping)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)8 << 20); /* LLVM recurses */
    started = pthread_create(&thread, &attr, worker_main, NULL) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started)
        figures.why_not = "the system gives no thread to compile on";
}

/* Nothing is compiled any more; called as often as one likes. */
static void
stop_at_exit(void)
{
    bool join;

    mr__lock_take(&lock);
    join = started && !pthread_equal(thread, pthread_self());
    stopping = true;
    if (join)
        started = false;
    mr__cond_wake_all(&work);
    mr__lock_drop(&lock);
    if (join)
        pthread_join(thread, NULL);
}

/* The worker has something to do; true: the caller, without the lock, is to
 * have it joined at exit. */
static bool
worker_wake_locked(void)
{
    bool set = started && !at_exit_set;

    at_exit_set |= set;
    mr__cond_wake_all(&work);
    return set;
}

void
mr__jit_submit(mr_tier1 *t, bool quick)
{
    double now = nanoseconds();
    bool set;

    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    mr__lock_take(&lock);
    worker_start_locked();
    *(quick ? &t->wants_quick : &t->wants) = true;
    if (started && !t->queued) {
        t->queued = true;
        t->asked = now;
        queue_locked(t);
        t = NULL;
    }
    set = worker_wake_locked();
    mr__lock_drop(&lock);
    if (set)
        atexit(stop_at_exit);
    mr__tier1_release(t);
}

static _Atomic bool is_prepared; /* relaxed: asked for twice, it is done once */

void
mr__jit_prepare(void)
{
    bool set;

    if (atomic_load_explicit(&is_prepared, memory_order_relaxed))
        return;
    atomic_store_explicit(&is_prepared, true, memory_order_relaxed);
    mr__lock_take(&lock);
    worker_start_locked();
    wants_provider = started;
    set = worker_wake_locked();
    mr__lock_drop(&lock);
    if (set)
        atexit(stop_at_exit);
}

void
mr__jit_wait(void)
{
    void *token = mr__block_begin();

    mr__lock_take(&lock);
    n_waiting++;
    while (started && !stopping && (first != NULL || busy || wants_provider))
        mr__cond_wait(&idle, &lock);
    n_waiting--;
    mr__lock_drop(&lock);
    mr__block_end(token);
}

/* ---- fork
 * ---------------------------------------------------------------------- The
 * worker is brought to rest before, so that LLVM is in no half state; the child
 * has no worker and starts one with its first piece of work.  What was queued
 * stays on the interpreter there. */

static void
fork_prepare(void)
{
    mr__lock_take(&lock);
    paused = true;
    while (started && busy)
        mr__cond_wait_for(&idle, &lock, 1000000);
    mr__lock_drop(&lock);
}

static void
fork_parent(void)
{
    mr__lock_take(&lock);
    paused = false;
    mr__cond_wake_all(&work);
    mr__lock_drop(&lock);
}

static void
fork_child(void)
{
    mr__lock_fork_child(&lock);
    work = (mr_cond)MR_COND_INIT;
    idle = (mr_cond)MR_COND_INIT;
    first = NULL;
    last = &first;
    started = busy = paused = wants_provider = false;
    n_waiting = 0;
}

__attribute__((constructor)) static void
register_handlers(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* ---- for tools and tests
 * --------------------------------------------------------
 */

void
mr__jit_use(const mr_jit_table *p, mr_jit_mode m)
{
    mr__jit_wait();
    cache_trim(0);
    atomic_store_explicit(&mode, (int)m, memory_order_relaxed);
    complained = false;
    if (p != NULL) {
        provider = *p;
        state = LOADED;
    } else {
        state = NOT_TRIED;
    }
}

void
mr_test_jit_wait(void)
{
    mr__jit_wait();
}

mr_code
mr_jit_info_get(mr_jit_info *out)
{
    static const char *const names[] = {"off", "background", "now"};
    mr_jit_info info = {.size = sizeof info};
    char path[PATH_MAX];

    if (mr__jit_check() != MR_OK)
        return MR_E_VALUE;
    info.mode = names[mr__jit_mode()];
    mr__lock_take(&lock);
    info.why_not = figures.why_not;
    info.loaded = figures.loaded;
    info.steps = figures.programs;
    info.compiled = figures.compiled;
    info.shared = figures.shared;
    info.failed = figures.failed;
    info.declined = figures.declined;
    info.seconds = figures.nanoseconds * 1e-9;
    info.waited = figures.waited * 1e-9;
    mr__lock_drop(&lock);
    if (info.why_not == NULL && !info.loaded && !provider_path(path))
        info.why_not = MR_JIT_WHY_NOT;
    return mr__sized_give(out, &info, sizeof info, "mr_jit_info");
}
