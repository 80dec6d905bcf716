/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c -- marram graph: runs a program and shows its compiled functions.
 *
 * The program runs with MARRAM_GRAPH set to an empty folder, where libmarram
 * writes a file for each program that it compiles, in whichever process.  When
 * the command has ended the files are put together, in the order in which they
 * came, and the folder goes.  So nothing depends on how the processes end.
 *
 * Called by: main.c.  Uses no function of the library.
 */
#include "graph.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* As env, nohup and timeout end. */
enum {
    EXIT_USAGE = 2,
    EXIT_OURS = 125,
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128
};

static const char usage[] =
    "usage: marram graph [--dot] [--function NAME] [--output FILE] [--] "
    "COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND and shows what each of its compiled functions became: "
    "kernels with\ntheir operators, what they read and write and where that "
    "lies, and why two of\nthem were not joined.\n"
    "\n"
    "  --dot            a graph in the DOT language: marram graph --dot ... | "
    "dot -Tsvg\n"
    "  --function NAME  only functions of this name\n"
    "  --output FILE    write to FILE, not to standard output\n"
    "\n"
    "Ends as COMMAND does; 128 + N when signal N killed it, 127 when there is "
    "no such\ncommand, 126 when it cannot be run, 125 when marram graph fails "
    "itself.\n";

typedef struct graph {
    bool dot;
    const char *function; /* NULL: all */
    const char *output;   /* NULL: standard output */
    char *target;         /* what output is, behind links */
    char *aside;          /* where it is written until it is whole */
    FILE *to;
    char folder[PATH_MAX];
    int n_shown, n_found;
} graph;

static void __attribute__((format(printf, 1, 2))) complain(const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "marram graph: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
}

/* ---- the output
 * ----------------------------------------------------------------------- */

/* Beside the file, so that it is there whole or as it was.  What is no file, as
 * a pipe, is written to. */
static bool
output_aside(graph *g)
{
    size_t n;
    mode_t mask;
    int fd;

    g->target = realpath(g->output, NULL);
    if (g->target == NULL)
        g->target = strdup(g->output);
    n = g->target == NULL ? 0 : strlen(g->target) + sizeof ".XXXXXX";
    g->aside = malloc(n + 1);
    if (g->target == NULL || g->aside == NULL)
        return false;
    snprintf(g->aside, n + 1, "%s.XXXXXX", g->target);
    fd = mkstemp(g->aside);
    if (fd < 0) {
        free(g->aside);
        g->aside = NULL;
        return false;
    }
    mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    g->to = fdopen(fd, "w");
    return g->to != NULL;
}

static bool
output_open(graph *g)
{
    struct stat s;

    if (g->output == NULL) {
        g->to = stdout;
        return true;
    }
    if (stat(g->output, &s) != 0 || S_ISREG(s.st_mode))
        (void)output_aside(g);
    else
        g->to = fopen(g->output, "w");
    if (g->to == NULL)
        complain("cannot write %s: %s", g->output, strerror(errno));
    return g->to != NULL;
}

/* whole: it is to be kept. */
static bool
output_close(graph *g, bool whole)
{
    bool ok = fflush(g->to) == 0 && !ferror(g->to);

    if (g->to != stdout)
        ok = fclose(g->to) == 0 && ok;
    if (g->aside != NULL && (!whole || !ok))
        unlink(g->aside);
    else if (g->aside != NULL)
        ok = rename(g->aside, g->target) == 0;
    if (!ok)
        complain("cannot write %s: %s",
                 g->output != NULL ? g->output : "standard output",
                 strerror(errno));
    free(g->aside);
    free(g->target);
    return ok;
}

/* ---- the folder
 * ------------------------------------------------------------------------- */

static bool
folder_make(graph *g)
{
    const char *tmp = getenv("TMPDIR");

    if (tmp == NULL || *tmp == '\0')
        tmp = "/tmp";
    snprintf(g->folder, sizeof g->folder, "%s/marram-graph-XXXXXX", tmp);
    if (mkdtemp(g->folder) == NULL) {
        complain("cannot make a folder in %s: %s", tmp, strerror(errno));
        return false;
    }
    if (setenv("MARRAM_GRAPH", g->folder, 1) == 0 &&
        setenv("MARRAM_GRAPH_FORM", g->dot ? "dot" : "text", 1) == 0)
        return true;
    complain("no memory");
    return false;
}

static int
is_whole(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void
folder_remove(const graph *g)
{
    char path[PATH_MAX + NAME_MAX + 2];
    struct dirent *d;
    DIR *dir = opendir(g->folder);

    while (dir != NULL && (d = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", g->folder, d->d_name);
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            unlink(path);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(g->folder);
}

/* ---- the command
 * ------------------------------------------------------------------------ */

static volatile sig_atomic_t child;

static void
pass_on(int signal_number)
{
    int old = errno;

    kill((pid_t)child, signal_number);
    errno = old;
}

/* The child has the signals of whoever called us.  Ctrl-C reaches both of us,
 * and is the command's to answer; what asks us to end is passed on. */
static int
spawn(char **command)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old[2];
    struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    posix_spawnattr_t attr;
    sigset_t defaults, block, mask;
    pid_t pid = 0;
    int rc;

    sigemptyset(&block);
    sigaddset(&block, SIGTERM);
    sigaddset(&block, SIGHUP);
    sigprocmask(SIG_BLOCK, &block, &mask);
    sigaction(SIGINT, &ignore, &old[0]);
    sigaction(SIGQUIT, &ignore, &old[1]);
    sigemptyset(&defaults);
    if (old[0].sa_handler != SIG_IGN)
        sigaddset(&defaults, SIGINT);
    if (old[1].sa_handler != SIG_IGN)
        sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setsigmask(&attr, &mask);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    rc = posix_spawnp(&pid, command[0], NULL, &attr, command, environ);
    posix_spawnattr_destroy(&attr);
    child = (sig_atomic_t)pid;
    if (rc == 0) {
        sigaction(SIGTERM, &pass, NULL);
        sigaction(SIGHUP, &pass, NULL);
        sigaction(SIGPIPE, &ignore, NULL); /* then writing fails, and is told */
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return rc;
}

/* What the command ended with; -1: it did not begin, and *ours says why. */
static int
run(char **command, int *ours)
{
    int rc = spawn(command), status = 0;

    if (rc != 0) {
        complain("cannot run %s: %s", command[0], strerror(rc));
        *ours = rc == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
        return -1;
    }
    while (waitpid((pid_t)child, &status, 0) < 0)
        if (errno != EINTR) {
            complain("lost %s: %s", command[0], strerror(errno));
            *ours = EXIT_OURS;
            return -1;
        }
    return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status)
                               : WEXITSTATUS(status);
}

/* ---- what it said
 * ------------------------------------------------------------------------ */

static char *
read_file(const graph *g, const char *name)
{
    char path[PATH_MAX + NAME_MAX + 2], *text = NULL;
    size_t n = 0, cap = 0, got = 1;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", g->folder, name);
    f = fopen(path, "re");
    while (f != NULL && got > 0) {
        char *more = cap - n > 1 ? text : realloc(text, cap = 2 * cap + 4096);

        if (more == NULL)
            break;
        text = more;
        got = fread(text + n, 1, cap - n - 1, f);
        n += got;
        text[n] = '\0';
    }
    if (f == NULL || got > 0)
        complain("cannot read %s: %s", path, strerror(errno));
    if (f != NULL)
        fclose(f);
    if (got > 0) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Where the function's name is in the first line: "NAME: made by process 3". */
static bool
name_in(const char *text, bool dot, const char **name, size_t *n)
{
    static const char mark[] = ": made by process ";
    const char *end = strchr(text, '\n'), *at, *last = NULL;

    *name = text + (dot && strncmp(text, "// ", 3) == 0 ? 3 : 0);
    for (at = *name; end != NULL && (at = strstr(at, mark)) != NULL && at < end;
         at++)
        last = at;
    *n = last == NULL ? 0 : (size_t)(last - *name);
    return last != NULL;
}

/* The lines between the first two and the last: a cluster. */
static void
put_cluster(graph *g, const char *text)
{
    const char *at = text, *end = text + strlen(text);

    for (int i = 0; i < 2 && at != NULL; i++)
        at = (at = strchr(at, '\n')) == NULL ? NULL : at + 1;
    while (end > text && end[-1] == '\n')
        end--;
    while (end > text && end[-1] != '\n')
        end--;
    if (at != NULL && end > at)
        fwrite(at, 1, (size_t)(end - at), g->to);
}

/* The names that there are, for one who asked for another. */
static void
put_name(char *names, size_t room, const char *name, size_t n)
{
    char one[256];
    size_t used = strlen(names);

    if (n > sizeof one - 3)
        return;
    snprintf(one, sizeof one, "%.*s", (int)n, name);
    for (const char *at = names; (at = strstr(at, one)) != NULL; at += n)
        if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return;
    if (used + n + 3 < room)
        snprintf(names + used, room - used, "%s%s", used > 0 ? ", " : "", one);
}

static void
show(graph *g, const char *text, char *names, size_t room)
{
    const char *name;
    size_t n;

    if (!name_in(text, g->dot, &name, &n))
        return;
    g->n_found++;
    put_name(names, room, name, n);
    if (g->function != NULL &&
        (strlen(g->function) != n || strncmp(g->function, name, n) != 0))
        return;
    if (g->dot)
        put_cluster(g, text);
    else
        fprintf(g->to, "%s%s", g->n_shown > 0 ? "\n" : "", text);
    g->n_shown++;
}

/* False: something could not be read. */
static bool
show_all(graph *g)
{
    struct dirent **list = NULL;
    int n = scandir(g->folder, &list, is_whole, alphasort);
    char names[1024] = "";
    bool ok = n >= 0;

    if (n < 0)
        complain("cannot read %s: %s", g->folder, strerror(errno));
    if (g->dot)
        fprintf(g->to, "digraph marram {\n");
    for (int i = 0; i < n; i++) {
        char *text = read_file(g, list[i]->d_name);

        ok = ok && text != NULL;
        if (text != NULL)
            show(g, text, names, sizeof names);
        free(text);
        free(list[i]);
    }
    free(list);
    if (g->dot)
        fprintf(g->to, "}\n");
    if (g->n_found == 0)
        complain("the command compiled nothing: no compiled function was "
                 "called (mr_compile, mx.compile), or compiling is disabled");
    else if (g->n_shown == 0)
        complain("no compiled function has the name %s; there are: %s",
                 g->function, names);
    return ok;
}

/* ---- the whole
 * ---------------------------------------------------------------------------
 */

/* The first word of the command; 0: *status says how to end. */
static int
read_options(graph *g, int argc, char **argv, int *status)
{
    static const struct option options[] = {
        {"dot", no_argument, NULL, 'd'},
        {"function", required_argument, NULL, 'f'},
        {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    static char me[] = "marram graph";
    int c;

    *status = EXIT_USAGE;
    argv[0] = me; /* who complains */
    while ((c = getopt_long(argc, argv, "+f:o:h", options, NULL)) != -1)
        switch (c) {
        case 'd':
            g->dot = true;
            break;
        case 'f':
            g->function = optarg;
            break;
        case 'o':
            g->output = optarg;
            break;
        case 'h':
            *status = fputs(usage, stdout) < 0;
            return 0;
        default:
            fputs(usage, stderr);
            return 0;
        }
    if (optind < argc)
        return optind;
    complain("no command is given");
    fputs(usage, stderr);
    return 0;
}

int
graph_main(int argc, char **argv)
{
    graph g = {.dot = false};
    int status, at = read_options(&g, argc, argv, &status), ours = EXIT_OURS;
    bool ok = false;

    if (at == 0)
        return status;
    if (!output_open(&g))
        return EXIT_OURS;
    if (!folder_make(&g)) {
        output_close(&g, false);
        return EXIT_OURS;
    }
    status = run(argv + at, &ours);
    if (status >= 0)
        ok = show_all(&g);
    folder_remove(&g);
    ok = output_close(&g, ok) && ok;
    return status >= 0 && ok ? status : ours;
}
