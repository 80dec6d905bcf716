/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.c -- scopes: who owns what front doors make.
 *
 * A thread has one growing list of what its scopes own and one of frames, each
 * of which says where its part of the first begins.  Entries are pointers with
 * a tag in their lowest bit: arrays 0, trees 1.  A token is the thread's
 * serial and a number that the frame holds too, so that a token of another
 * thread, or one that was ended, finds no frame.
 * Called by: node.c, tree.c, the front doors, users.  Calls: base/.
 */
#include "marram/scope.h"

#include <assert.h>
#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/tls.h"
#include "graph/node.h"
#include "graph/own.h"
#include "graph/tree.h"
#include "marram/array.h"
#include "marram/tree.h"

enum {
    NUMBER_BITS = 40,
    FIRST_ITEMS = 256,
    FIRST_FRAMES = 16,
};
#define NUMBER_MASK (((uint64_t)1 << NUMBER_BITS) - 1)
#define TREE_TAG    ((uintptr_t)1)
#define USER_MARK   (MR_REF_USER - MR_REF_ONE)

struct mr_scope_frame {
    size_t base;     /* of its entries in the list */
    uint64_t number; /* of its token */
    bool barrier;    /* owns nothing: results are the caller's */
};

static _Thread_local struct {
    uintptr_t *item;
    size_t n, cap;
    mr_scope_frame *frame;
    size_t n_frames, cap_frames;
    uint64_t number; /* of the last token */
    bool registered; /* for the thread's end */
} here __attribute__((tls_model("initial-exec")));

/* ---- entries ------------------------------------------------------------ */

static inline mr_array *
array_of(uintptr_t item)
{
    return (mr_array *)item; /* an entry without a tag */
}

/* Drop what an entry refers to. */
static void
let_go(uintptr_t item)
{
    mr_array *x;

    if (item & TREE_TAG) {
        mr__tree_release((mr_tree *)(item - TREE_TAG));
        return;
    }
    x = array_of(item);
    /* relaxed: a hint; not needed when the scope's is the only reference */
    if (atomic_load_explicit(&x->refs, memory_order_relaxed) != MR_REF_ONE)
        atomic_fetch_sub_explicit(&x->scoped, 1, memory_order_relaxed);
    mr__release(x);
}

static bool
more_items(void)
{
    size_t cap = here.cap > 0 ? 2 * here.cap : FIRST_ITEMS;
    uintptr_t *item = mr__alloc_again(here.item, cap * sizeof *item);

    if (item == NULL)
        return false;
    if (here.item == NULL)
        mr__alloc_cached(1); /* lives as long as the thread */
    here.item = item;
    here.cap = cap;
    return true;
}

static inline bool
push(uintptr_t item)
{
    if (__builtin_expect(here.n == here.cap, 0) && !more_items())
        return false;
    here.item[here.n++] = item;
    return true;
}

/* Is what is made now the caller's own? */
static inline bool
is_callers(const mr_scope_frame *f)
{
    return f == NULL || f->barrier;
}

/* ---- owning ------------------------------------------------------------- */

mr_array *
mr__scope_own_fresh(mr_array *x)
{
    /* relaxed, all: not published yet */
    if (is_callers(mr__ctx.scope)) {
        atomic_store_explicit(&x->refs, MR_REF_USER, memory_order_relaxed);
        return x;
    }
    if (__builtin_expect(!push((uintptr_t)x), 0)) {
        mr__release(x);
        return NULL;
    }
    atomic_store_explicit(&x->scoped, 1, memory_order_relaxed);
    return x;
}

mr_array *
mr__scope_own(mr_array *x)
{
    if (x == NULL || x == mr_none_array)
        return x;
    /* relaxed, both: whoever gives it has a reference */
    if (is_callers(mr__ctx.scope)) {
        atomic_fetch_add_explicit(&x->refs, USER_MARK, memory_order_relaxed);
        return x;
    }
    if (!push((uintptr_t)x)) {
        mr__release(x);
        return NULL;
    }
    atomic_fetch_add_explicit(&x->scoped, 1, memory_order_relaxed);
    return x;
}

mr_tree *
mr__scope_own_tree(mr_tree *t)
{
    if (t == NULL || mr__tree_is_static(t))
        return t;
    if (is_callers(mr__ctx.scope)) {
        mr__tree_mark_user(t);
        return t;
    }
    if (!push((uintptr_t)t | TREE_TAG)) {
        mr__tree_release(t);
        return NULL;
    }
    return t;
}

void
mr__scope_disown(mr_array *x)
{
    if (x != NULL && is_callers(mr__ctx.scope))
        mr_release(x);
}

void
mr__scope_disown_tree(mr_tree *t)
{
    if (t != NULL && is_callers(mr__ctx.scope))
        mr_tree_release(t);
}

/* ---- frames ------------------------------------------------------------- */

static void
pop_frames(size_t n)
{
    here.n_frames = n;
    mr__ctx.scope = n > 0 ? &here.frame[n - 1] : NULL;
}

/* Release the entries from `base` on, the youngest first. */
static void
drop_items(size_t base)
{
    while (here.n > base)
        let_go(here.item[--here.n]);
}

static void
thread_exit(void *unused)
{
    (void)unused;
    mr__defer_user_code_begin();
    pop_frames(0);
    drop_items(0);
    mr__defer_user_code_end();
    if (here.item)
        mr__alloc_cached(-1);
    mr__dealloc(here.item);
    if (here.frame)
        mr__alloc_cached(-1);
    mr__dealloc(here.frame);
    memset(&here, 0, sizeof here);
    mr__buffer_drain();
}

static bool
more_frames(void)
{
    size_t cap = here.cap_frames > 0 ? 2 * here.cap_frames : FIRST_FRAMES;
    mr_scope_frame *frame;

    if (!here.registered && !mr__at_thread_exit(thread_exit, NULL))
        return false;
    here.registered = true;
    frame = mr__alloc_again(here.frame, cap * sizeof *frame);
    if (frame == NULL)
        return false;
    if (here.frame == NULL)
        mr__alloc_cached(1); /* lives as long as the thread */
    here.frame = frame;
    here.cap_frames = cap;
    pop_frames(here.n_frames); /* the frames have moved */
    return true;
}

static mr_scope
open_frame(bool barrier)
{
    if (here.n_frames == here.cap_frames && !more_frames())
        return (mr_scope){0};
    here.number = (here.number + 1) & NUMBER_MASK;
    here.frame[here.n_frames++] =
        (mr_scope_frame){here.n, here.number, barrier};
    mr__ctx.scope = &here.frame[here.n_frames - 1];
    return (mr_scope){mr__thread_serial() << NUMBER_BITS | here.number};
}

mr_scope
mr_scope_begin(void)
{
    return open_frame(false);
}

mr_scope
mr_scope_none(void)
{
    return open_frame(true);
}

/* The index of the token's frame; SIZE_MAX with MR_E_STATE set. */
static size_t
frame_of(mr_scope s)
{
    uint64_t serial = s.token >> NUMBER_BITS;

    if (serial == (mr__thread_serial() & (UINT64_MAX >> NUMBER_BITS)))
        for (size_t i = here.n_frames; i > 0; i--)
            if (here.frame[i - 1].number == (s.token & NUMBER_MASK))
                return i - 1;
    if (s.token == 0 && mr__error_pending())
        return SIZE_MAX; /* the begin that failed has said why */
    if (s.token != 0 && serial != mr__thread_serial())
        mr__fail(MR_E_STATE, "the scope belongs to another thread: only the "
                             "thread that began it can end it");
    else
        mr__fail(MR_E_STATE, "the scope is not open: it has been ended, or an "
                             "outer one has");
    return SIZE_MAX;
}

mr_code
mr_scope_end(mr_scope s)
{
    size_t f = frame_of(s);
    size_t base;

    if (f == SIZE_MAX)
        return mr__error_code();
    base = here.frame[f].base;
    pop_frames(f);
    if (here.n == base)
        return MR_OK;
    /* Callbacks may open scopes: not before the list is whole again. */
    mr__defer_user_code_begin();
    drop_items(base);
    mr__defer_user_code_end();
    mr__buffer_drain();
    return MR_OK;
}

/* ---- giving on ---------------------------------------------------------- */

/* The last place of an entry among those of frame f and above, or SIZE_MAX. */
static size_t
find_item(size_t f, uintptr_t item)
{
    for (size_t i = here.n; i > here.frame[f].base; i--)
        if (here.item[i - 1] == item)
            return i - 1;
    return SIZE_MAX;
}

/* Move entry `at` below the entries of frame f: it is the outer frame's. */
static void
move_out(size_t f, size_t at)
{
    size_t base = here.frame[f].base;
    uintptr_t item = here.item[at];

    memmove(here.item + base + 1, here.item + base,
            (at - base) * sizeof *here.item);
    here.item[base] = item;
    for (size_t k = f; k < here.n_frames; k++)
        if (here.frame[k].base <= at)
            here.frame[k].base++;
}

static void
remove_item(size_t at)
{
    memmove(here.item + at, here.item + at + 1,
            (here.n - at - 1) * sizeof *here.item);
    here.n--;
    for (size_t k = here.n_frames; k > 0; k--)
        if (here.frame[k - 1].base > at)
            here.frame[k - 1].base--;
}

/* Give entry `item` to the owner outside frame f.  Returns false when the
 * scope does not own it. */
typedef enum mr_given {
    GIVEN_OUT,    /* the outer scope has it */
    GIVEN_CALLER, /* removed: the reference is the caller's to have */
    GIVEN_NOT     /* the scope did not own it */
} mr_given;

static mr_given
give(size_t f, uintptr_t item)
{
    size_t at = find_item(f, item);

    if (at == SIZE_MAX)
        return GIVEN_NOT;
    if (!is_callers(f > 0 ? &here.frame[f - 1] : NULL)) {
        move_out(f, at);
        return GIVEN_OUT;
    }
    remove_item(at);
    return GIVEN_CALLER;
}

/* A further reference for the owner outside frame f: entry of that owner. */
static bool
add_outside(size_t f, uintptr_t item)
{
    if (!push(item))
        return false;
    move_out(f, here.n - 1);
    return true;
}

mr_array *
mr_scope_return(mr_scope s, mr_array *x)
{
    bool callers;
    size_t f;

    if (x == NULL || x == mr_none_array)
        return x;
    f = frame_of(s);
    if (f == SIZE_MAX)
        return NULL;
    callers = is_callers(f > 0 ? &here.frame[f - 1] : NULL);
    switch (give(f, (uintptr_t)x)) {
    case GIVEN_OUT:
        return x;
    case GIVEN_CALLER:
        /* relaxed, both: the entry's reference becomes the user's */
        atomic_fetch_sub_explicit(&x->scoped, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&x->refs, USER_MARK, memory_order_relaxed);
        return x;
    case GIVEN_NOT:
        break;
    }
    /* Somebody else's, an argument that is handed through: the outer owner
     * gets a reference as of any result. */
    mr__retain(x);
    if (callers) {
        atomic_fetch_add_explicit(&x->refs, USER_MARK, memory_order_relaxed);
        return x;
    }
    if (!add_outside(f, (uintptr_t)x)) {
        mr__release(x);
        return NULL;
    }
    atomic_fetch_add_explicit(&x->scoped, 1, memory_order_relaxed);
    return x;
}

mr_tree *
mr_scope_return_tree(mr_scope s, mr_tree *t)
{
    uintptr_t item = (uintptr_t)t | TREE_TAG;
    bool callers;
    size_t f;

    if (t == NULL || mr__tree_is_static(t))
        return t;
    f = frame_of(s);
    if (f == SIZE_MAX)
        return NULL;
    callers = is_callers(f > 0 ? &here.frame[f - 1] : NULL);
    switch (give(f, item)) {
    case GIVEN_OUT:
        return t;
    case GIVEN_CALLER:
        mr__tree_mark_user(t);
        return t;
    case GIVEN_NOT:
        break;
    }
    mr__tree_retain(t);
    if (callers) {
        mr__tree_mark_user(t);
        return t;
    }
    if (!add_outside(f, item)) {
        mr__tree_release(t);
        return NULL;
    }
    return t;
}

/* ---- what else a thread carries ----------------------------------------- */

const char *
mr_site_set(const char *site)
{
    const char *old = mr__ctx.site;

    mr__ctx.site = site;
    return old;
}

mr_stream
mr_stream_scope(mr_stream s)
{
    mr_stream old = {mr__ctx.stream};

    mr__ctx.stream = s.id;
    return old;
}
