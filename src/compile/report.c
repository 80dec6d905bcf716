/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c -- a file for each program that is made, when MARRAM_GRAPH names a
 * folder: what `marram graph` shows.
 *
 * The file is there as soon as the program is, so that a process which is
 * killed has told of what it made; it is written anew when the program goes
 * and when the process ends, with the native code and the layouts that came
 * meanwhile.  Each time it is written aside and renamed: whoever reads the
 * folder finds whole files.  Names begin with the time, so that they sort; the
 * number of the process is in them, so processes share a folder.  A forked
 * child leaves its parent's files alone.
 *
 * Called by: function.c, cache.c, under no lock.
 */
#include "compile/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "compile/explain.h"
#include "marram/array.h"
#include "marram/error.h"

/* Files of one process: what goes on compiling would fill the disk. */
enum { MAX_FILES = 1000, NAME_BYTES = 96 };

typedef struct mr_report {
    char *function;
    char file[NAME_BYTES]; /* in the folder, without its ending */
    char id[32];           /* of the process and the program */
    pid_t process;
    _Atomic bool written; /* relaxed: says that there is a file to renew */
} mr_report;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written once, by read_settings. */
static char folder[PATH_MAX];
static mr_explain_form form;
/* relaxed, all: numbers and things said once */
static _Atomic unsigned n_files, n_tries;
static _Atomic bool told;

/* ---- settings
 * ------------------------------------------------------------------------- */

static void at_exit(void);

static void
read_settings(void)
{
    const char *path = getenv("MARRAM_GRAPH");
    const char *as = getenv("MARRAM_GRAPH_FORM");

    if (path == NULL || *path == '\0')
        return;
    if (as != NULL && strcmp(as, "dot") == 0)
        form = MR_EXPLAIN_DOT;
    else if (as != NULL && *as != '\0' && strcmp(as, "text") != 0)
        mr__log(MR_LOG_WARN, "MARRAM_GRAPH_FORM is '%s': it may be text or dot",
                as);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        mr__log(MR_LOG_WARN, "MARRAM_GRAPH: the folder '%s' cannot be made: %s",
                path, strerror(errno));
        return;
    }
    /* a program may change its folder */
    if (realpath(path, folder) == NULL) {
        mr__log(MR_LOG_WARN, "MARRAM_GRAPH: there is no folder '%s': %s", path,
                strerror(errno));
        folder[0] = '\0';
        return;
    }
    if (atexit(at_exit) != 0)
        mr__log(MR_LOG_WARN, "MARRAM_GRAPH: what comes later is not told");
}

/* ---- files
 * ----------------------------------------------------------------------------
 */

static bool
write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, text, n);

        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        text += w;
        n -= (size_t)w;
    }
    return true;
}

/* Aside, then in place; false with errno set. */
static bool
put_file(const mr_report *r, const char *text)
{
    unsigned number =
        atomic_fetch_add_explicit(&n_tries, 1, memory_order_relaxed);
    char aside[PATH_MAX + NAME_BYTES + 32], path[PATH_MAX + NAME_BYTES + 32];
    bool ok;
    int fd, why;

    snprintf(aside, sizeof aside, "%s/.%s.%u", folder, r->file, number);
    snprintf(path, sizeof path, "%s/%s.%s", folder, r->file,
             form == MR_EXPLAIN_DOT ? "dot" : "txt");
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    ok = write_all(fd, text, strlen(text));
    ok = close(fd) == 0 && ok && rename(aside, path) == 0;
    why = errno;
    if (!ok)
        unlink(aside);
    errno = why;
    return ok;
}

static char *
text_of(const mr_cache_entry *e)
{
    const mr_report *r = e->report;
    mr_page t = {.v = NULL};

    if (form == MR_EXPLAIN_DOT)
        mr__page_put(&t, "// ");
    mr__page_words(&t, r->function, strlen(r->function));
    mr__page_put(&t, ": made by process %ld\n", (long)r->process);
    if (form == MR_EXPLAIN_DOT) {
        mr__page_put(&t, MR_DOT_BEGIN);
        mr__explain_dot(&t, e, r->function, r->id);
        mr__page_put(&t, MR_DOT_END);
    } else {
        mr__page_put(&t, "program: ");
        mr__explain_entry(&t, e);
    }
    return mr__page_take(&t);
}

/* The error that a caller may have stays as it is. */
static void
write_file(const mr_cache_entry *e)
{
    struct mr__error_stash aside = mr__error_stash();
    char *text = text_of(e);

    errno = ENOMEM;
    if ((text == NULL || !put_file(e->report, text)) &&
        !atomic_exchange_explicit(&told, true, memory_order_relaxed))
        mr__log(MR_LOG_WARN,
                "MARRAM_GRAPH: no file could be written in '%s': "
                "%s",
                folder, strerror(errno));
    mr_text_free(text);
    mr_error_take();
    mr__error_unstash(aside);
}

/* ---- programs
 * ------------------------------------------------------------------------- */

static mr_report *
report_new(const char *name, unsigned number)
{
    mr_report *r = mr__alloc_zero(sizeof *r);
    struct timespec now;

    if (r == NULL)
        return NULL;
    r->function = mr__strdup(name);
    if (r->function == NULL) {
        mr__dealloc(r);
        return NULL;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    r->process = getpid();
    snprintf(r->id, sizeof r->id, "%ld.%u", (long)r->process, number);
    snprintf(r->file, sizeof r->file, "%012lld.%09ld-%ld-%04u",
             (long long)now.tv_sec, now.tv_nsec, (long)r->process, number);
    return r;
}

void
mr__report_begin(mr_cache_entry *e, const char *name)
{
    unsigned number;

    pthread_once(&once, read_settings);
    if (__builtin_expect(folder[0] == '\0', 1))
        return;
    number = atomic_fetch_add_explicit(&n_files, 1, memory_order_relaxed);
    if (number == MAX_FILES)
        mr__log(MR_LOG_WARN,
                "MARRAM_GRAPH: this process has made %d programs, and tells of "
                "no more",
                MAX_FILES);
    if (number >= MAX_FILES)
        return;
    e->report = report_new(name, number);
    if (e->report == NULL)
        mr_error_take();
}

void
mr__report_made(const mr_cache_entry *e)
{
    if (!atomic_exchange_explicit(&e->report->written, true,
                                  memory_order_relaxed))
        write_file(e);
}

/* What is there now in place of what was there at first. */
static void
renew(const mr_cache_entry *e)
{
    if (atomic_load_explicit(&e->report->written, memory_order_relaxed) &&
        e->report->process == getpid())
        write_file(e);
}

void
mr__report_end(mr_cache_entry *e)
{
    renew(e);
    mr__dealloc(e->report->function);
    mr__dealloc(e->report);
    e->report = NULL;
}

/* Programs that are there to the end. */
static void
at_exit(void)
{
    size_t n = 0;
    mr_cache_entry **list = mr__explain_entries(0, &n);

    if (list == NULL) {
        mr_error_take();
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (list[i]->report != NULL)
            renew(list[i]);
        mr__cache_release(list[i]);
    }
    mr__dealloc(list);
}
