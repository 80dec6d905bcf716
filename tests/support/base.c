/* SPDX-License-Identifier: Apache-2.0
 *
 * base.c -- what tests of base/ share.
 */
#include "support/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "marram/error.h"

enum { THREADS_MAX = 128 };

struct start {
    void (*fn)(void *arg, int i);
    void *arg;
    int i;
    pthread_barrier_t *barrier;
};

static void *
thread_main(void *arg)
{
    struct start *s = arg;

    pthread_barrier_wait(s->barrier);
    s->fn(s->arg, s->i);
    return NULL;
}

void
mrt_threads(int n, void (*fn)(void *arg, int i), void *arg)
{
    pthread_t thread[THREADS_MAX];
    struct start start[THREADS_MAX];
    pthread_barrier_t barrier;

    assert_true(n <= THREADS_MAX);
    pthread_barrier_init(&barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        start[i] = (struct start){fn, arg, i, &barrier};
        assert_int_equal(
            pthread_create(&thread[i], NULL, thread_main, &start[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static size_t
read_all(int fd, char *text, size_t bytes)
{
    size_t n = 0;
    char rest[256];
    ssize_t got;

    do {
        if (n < bytes - 1)
            got = read(fd, text + n, bytes - 1 - n);
        else
            got = read(fd, rest, sizeof rest);
        if (got > 0 && n < bytes - 1)
            n += (size_t)got;
    } while (got > 0);
    return n;
}

int
mrt_child(void (*fn)(void *arg), void *arg, char *text, size_t bytes)
{
    int pipes[2], status = -1;
    pid_t pid;

    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        alarm(60);
        fn(arg);
        _exit(0);
    }
    close(pipes[1]);
    text[read_all(pipes[0], text, bytes)] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

int
mrt_each_failure(bool (*fn)(void *arg), void *arg)
{
    for (int n = 0; n < 100000; n++) {
        int64_t live = mr__alloc_live();
        bool ok;

        mr_error_take();
        mr__alloc_fail_after(n);
        ok = fn(arg);
        mr__alloc_fail_after(-1);
        if (ok)
            return n;
        assert_int_equal(mr_error_take().code, MR_E_MEMORY);
        assert_int_equal(mr__alloc_live(), live);
    }
    fail_msg("100000 failures were not enough");
    return -1;
}
