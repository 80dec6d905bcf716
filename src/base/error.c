/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c -- the thread's error record and failures as values.
 *
 * The strings of a thread's error lie in fixed buffers that are made once, at
 * the thread's first failure, with plain malloc: alloc.h reports its own
 * failures here, so it cannot be used.  Should even that malloc fail, the code
 * is still kept and the message is a constant one.
 * Called by: everything.  Calls: alloc.h, for captured records only.
 */
#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "marram/error.h"

enum {
    OP_BYTES = 64,
    SITE_BYTES = 256,
    MESSAGE_BYTES = 1024,
    NOTES_BYTES = 1024
};

struct mr__error_text {
    char op[OP_BYTES];
    char site[SITE_BYTES];
    char message[MESSAGE_BYTES];
    char notes[NOTES_BYTES];
    uint64_t n_failures; /* of this thread, so far */
};

/* A failure as a value.  The strings follow the struct in the same block. */
struct mr_error_record {
    atomic_int refs; /* 0: a constant, never freed */
    mr_code code;
    int n_parts; /* 0: it is of all results */
    const char *op, *site, *message, *notes;
    mr_error_record **part; /* counted; NULL: that result is good */
};

_Thread_local struct mr__error_thread mr__error_here;

static const char lost_message[] =
    "out of memory (also for the message of this failure)";

static mr_error_record no_memory_record = {
    .code = MR_E_MEMORY,
    .op = "",
    .site = "",
    .message = "out of memory (while keeping an earlier failure)",
    .notes = "",
};
static mr_error_record no_error_record = {
    .code = MR_E_INTERNAL,
    .op = "",
    .site = "",
    .message = "a failure was reported, but its cause was not set",
    .notes = "",
};

/* -- a thread's buffers --------------------------------------------------- */

static pthread_key_t text_key;
static pthread_once_t text_once = PTHREAD_ONCE_INIT;
static bool text_key_made; /* written once, under text_once */

/* Another key's destructor that fails later on this thread makes new buffers,
 * which this destructor then frees in its next round. */
static void
text_thread_exit(void *text)
{
    (void)text;
    free(mr__error_here.text);
    mr__error_here.text = NULL;
    mr__error_here.code = MR_OK;
}

static void
text_make_key(void)
{
    text_key_made = pthread_key_create(&text_key, text_thread_exit) == 0;
}

/* The thread's buffers, made when absent; NULL without memory. */
static struct mr__error_text *
text_here(void)
{
    struct mr__error_text *text = mr__error_here.text;

    if (text != NULL)
        return text;
    pthread_once(&text_once, text_make_key);
    if (!text_key_made)
        return NULL;
    text = calloc(1, sizeof *text);
    if (text != NULL && pthread_setspecific(text_key, text) != 0) {
        free(text);
        text = NULL;
    }
    mr__error_here.text = text;
    return text;
}

/* Make s, cut off at its `bytes`, end in "..." and at a character of UTF-8. */
static void
mark_cut(char *s, size_t bytes)
{
    size_t at = bytes - 4;

    while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80)
        at--;
    memcpy(s + at, "...", 4);
}

/* Copy what fits; `from` may overlap `to` or be NULL, which is "". */
static void
put_text(char *to, size_t bytes, const char *from)
{
    size_t n;

    if (from == NULL)
        from = "";
    n = strlen(from) + 1;
    if (n > bytes && bytes > 4) {
        memmove(to, from, bytes - 1);
        to[bytes - 1] = '\0';
        mark_cut(to, bytes);
    } else if (n <= bytes) {
        memmove(to, from, n);
    }
}

/* Of a path that is too long, the end says more than the beginning. */
static void
put_site(char *to, const char *from)
{
    size_t n = from == NULL ? 0 : strlen(from);

    if (n >= SITE_BYTES)
        from += n - (SITE_BYTES - 1);
    put_text(to, SITE_BYTES, from);
}

static void
keep(mr_code code, const char *op, const char *site, const char *message)
{
    struct mr__error_text *text = text_here();

    mr__error_here.code = code;
    if (text == NULL)
        return;
    text->n_failures++;
    put_text(text->message, MESSAGE_BYTES, message);
    put_text(text->op, OP_BYTES, op);
    put_site(text->site, site);
    text->notes[0] = '\0';
}

uint64_t
mr__error_count(void)
{
    return mr__error_here.text != NULL ? mr__error_here.text->n_failures : 0;
}

/* "op: " and the formatted text, cut where it must be. */
static void __attribute__((format(printf, 3, 0)))
compose(char *to, const char *op, const char *fmt, va_list args)
{
    int n = 0, m;

    to[0] = '\0';
    if (op != NULL && op[0] != '\0')
        n = snprintf(to, MESSAGE_BYTES, "%.*s: ", OP_BYTES, op);
    m = vsnprintf(to + n, (size_t)(MESSAGE_BYTES - n), fmt, args);
    if (m < 0)
        put_text(to + n, (size_t)(MESSAGE_BYTES - n), fmt);
    else if (m >= MESSAGE_BYTES - n)
        mark_cut(to, MESSAGE_BYTES);
}

/* Arguments may point into the thread's own buffers, so the text is made on
 * the stack first. */
static void __attribute__((format(printf, 2, 0)))
fail_with(mr_code code, const char *fmt, va_list args)
{
    const struct mr__door *door = &mr__error_here.door;
    char message[MESSAGE_BYTES];

    compose(message, door->op, fmt, args);
    keep(code, door->op, door->site, message);
}

mr_code
mr__fail(mr_code code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail_with(code, fmt, args);
    va_end(args);
    return code;
}

void *
mr__fail_null(mr_code code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail_with(code, fmt, args);
    va_end(args);
    return NULL;
}

/* -- annotations ----------------------------------------------------------- */

static void
annotate_op(struct mr__error_text *text, const char *op)
{
    char message[MESSAGE_BYTES];

    memcpy(message, text->message, MESSAGE_BYTES);
    put_text(text->op, OP_BYTES, op);
    if (snprintf(text->message, MESSAGE_BYTES, "%s: %s", text->op, message) >=
        MESSAGE_BYTES)
        mark_cut(text->message, MESSAGE_BYTES);
}

static void __attribute__((format(printf, 2, 0)))
annotate_note(struct mr__error_text *text, const char *fmt, va_list args)
{
    size_t n = strlen(text->notes);
    char note[NOTES_BYTES];

    if (vsnprintf(note, sizeof note, fmt, args) < 0)
        return;
    if (n > 0 && n + 1 < NOTES_BYTES)
        text->notes[n++] = '\n';
    /* Room for a few characters and their "...": else the note is dropped. */
    if (n + 8 <= NOTES_BYTES)
        put_text(text->notes + n, NOTES_BYTES - n, note);
    else if (n > 0)
        text->notes[n - 1] = '\0';
}

void
mr__error_annotate(const char *op, const char *site, const char *fmt, ...)
{
    struct mr__error_text *text = mr__error_here.text;
    va_list args;

    if (!mr__error_pending() || text == NULL)
        return;
    if (op != NULL && text->op[0] == '\0')
        annotate_op(text, op);
    if (site != NULL && text->site[0] == '\0')
        put_site(text->site, site);
    if (fmt == NULL)
        return;
    va_start(args, fmt);
    annotate_note(text, fmt, args);
    va_end(args);
}

/* -- putting aside --------------------------------------------------------- */

struct mr__error_stash
mr__error_stash(void)
{
    struct mr__error_stash s = {mr__error_here.code, mr__error_here.text};

    mr__error_here.code = MR_OK;
    mr__error_here.text = NULL;
    return s;
}

void
mr__error_unstash(struct mr__error_stash s)
{
    if (s.text != NULL || s.code != MR_OK) {
        free(mr__error_here.text);
        mr__error_here.text = s.text;
    }
    mr__error_here.code = s.code;
}

/* -- failures as values ---------------------------------------------------- */

static char *
pack_text(char **at, const char *from)
{
    size_t n = strlen(from) + 1;
    char *to = memcpy(*at, from, n);

    *at += n;
    return to;
}

mr_error_record *
mr__error_capture(void)
{
    mr_error e = mr_error_last();
    mr_error_record *r;
    size_t bytes;
    char *at;

    if (e.code == MR_OK)
        return &no_error_record;
    bytes =
        strlen(e.op) + strlen(e.site) + strlen(e.message) + strlen(e.notes) + 4;
    /* A failure of this allocation must not take the place of the error that
     * is being read. */
    struct mr__error_stash aside = mr__error_stash();
    r = mr__alloc(sizeof *r + bytes);
    mr__error_unstash(aside);
    mr__error_here.code = MR_OK;
    if (r == NULL)
        return &no_memory_record;
    at = (char *)(r + 1);
    atomic_init(&r->refs, 1);
    r->code = e.code;
    r->n_parts = 0;
    r->op = pack_text(&at, e.op);
    r->site = pack_text(&at, e.site);
    r->message = pack_text(&at, e.message);
    r->notes = pack_text(&at, e.notes);
    return r;
}

void
mr__error_raise(const mr_error_record *r)
{
    keep(r->code, r->op, r->site, r->message);
    if (mr__error_here.text != NULL)
        put_text(mr__error_here.text->notes, NOTES_BYTES, r->notes);
}

bool
mr__error_record_is(const mr_error_record *r, const mr_error *e)
{
    return r->code == e->code && strcmp(r->message, e->message) == 0 &&
           strcmp(r->site, e->site) == 0;
}

static bool
record_is_constant(const mr_error_record *r)
{
    return r == &no_memory_record || r == &no_error_record;
}

mr_error_record *
mr__error_retain(mr_error_record *r)
{
    /* relaxed: whoever retains already holds a reference. */
    if (r != NULL && !record_is_constant(r))
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void
mr__error_release(mr_error_record *r)
{
    if (r == NULL || record_is_constant(r))
        return;
    /* acq_rel, paired with itself: the last release frees after the reads of
     * all others. */
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < r->n_parts; i++) /* which have none themselves */
        mr__error_release(r->part[i]);
    mr__dealloc(r);
}

mr_code
mr__error_record_code(const mr_error_record *r)
{
    return r->code;
}

/* -- of several results --------------------------------------------------- */

mr_error_record *
mr__error_parts(int n, mr_error_record *const *part)
{
    mr_error_record *r, *first = NULL;
    bool same = true;

    for (int i = n; i-- > 0;)
        first = part[i] != NULL ? part[i] : first;
    for (int i = 0; i < n; i++)
        same = same && part[i] == first;
    if (same)
        return mr__error_retain(first);
    r = mr__alloc(sizeof *r + (size_t)n * sizeof(mr_error_record *));
    if (r == NULL)
        return NULL;
    atomic_init(&r->refs, 1);
    r->code = first->code;
    r->n_parts = n;
    r->op = first->op; /* the part's, which lives as long */
    r->site = first->site;
    r->message = first->message;
    r->notes = first->notes;
    r->part = (mr_error_record **)(void *)(r + 1);
    for (int i = 0; i < n; i++)
        r->part[i] = mr__error_retain(part[i]);
    return r;
}

bool
mr__error_has_parts(const mr_error_record *r)
{
    return r->n_parts > 0;
}

mr_error_record *
mr__error_part(mr_error_record *r, int i)
{
    return r->n_parts > 0 ? r->part[i] : r;
}

/* -- the public half ------------------------------------------------------- */

mr_error
mr_error_last(void)
{
    const struct mr__error_text *text = mr__error_here.text;
    mr_error e = {MR_OK, "", "", "", ""};

    if (mr__error_here.code == MR_OK)
        return e;
    e.code = mr__error_here.code;
    e.message = lost_message;
    if (text == NULL)
        return e;
    e.message = text->message;
    e.op = text->op;
    e.site = text->site;
    e.notes = text->notes;
    return e;
}

mr_error
mr_error_take(void)
{
    mr_error e = mr_error_last();

    mr__error_here.code = MR_OK;
    mr__error_here.unread = false;
    return e;
}

/* The message stands as the caller gave it: it is often another language's
 * exception, whose text should not change. */
mr_code
mr_error_set(mr_code code, const char *message)
{
    const struct mr__door *door = &mr__error_here.door;

    if (code > MR_OK || code < MR_E_INTERNAL)
        code = MR_E_USER;
    if (code == MR_OK)
        mr__error_here.code = MR_OK;
    else
        keep(code, door->op, door->site, message);
    return code;
}

const char *
mr_code_name(mr_code code)
{
    static const char *const names[] = {
        "MR_OK",          "MR_E_NULL",   "MR_E_VALUE",       "MR_E_TYPE",
        "MR_E_SHAPE",     "MR_E_DTYPE",  "MR_E_INDEX",       "MR_E_MEMORY",
        "MR_E_OVERFLOW",  "MR_E_IO",     "MR_E_STATE",       "MR_E_USER",
        "MR_E_CANCELLED", "MR_E_DEVICE", "MR_E_UNSUPPORTED", "MR_E_INTERNAL",
    };
    _Static_assert(sizeof names / sizeof names[0] == 1 - MR_E_INTERNAL,
                   "a name for each code");

    if (code > MR_OK || code < MR_E_INTERNAL)
        return "an unknown code";
    return names[-(int)code];
}
