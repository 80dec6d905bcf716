/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse.h -- the one fuser: which nodes run together.
 *
 * Works on a list of nodes in topological order and knows neither states nor
 * memory, so the planner and the compiler share it.  README.md has the rule
 * that makes groups legal.
 *
 * A block group has a *space*: the shape S of its points, and the mask of
 * axes that its reductions reduce.  The row form K of S has size 1 on those
 * axes.
 */
#ifndef MR_EVAL_FUSE_H
#define MR_EVAL_FUSE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "graph/node.h"
#include "graph/op.h"
#include "kernels/program.h"

#define MR_FUSE_MAX_IN      24
#define MR_FUSE_MAX_OUT     24
#define MR_FUSE_MAX_MEMBERS 56 /* registers stay under MR_CODE_MAX_REG */
/* Gathers and puts of a group: each has two inputs beside those of
 * MR_FUSE_MAX_IN. */
#define MR_FUSE_MAX_GATHERS 4
#define MR_FUSE_MAX_THROUGH (2 * MR_FUSE_MAX_GATHERS)
/* Draws of a group: one input each. */
#define MR_FUSE_MAX_DRAWS 4
/* So few words are made at once, however they lie. */
#define MR_FUSE_FEW_WORDS 2048
/* Fewer indices are written down before they are read. */
#define MR_FUSE_FEW_INDICES (1 << 15)
/* What is read anywhere in more than this waits for memory, and fewer reads are
 * under way at once where indices are computed between them. */
#define MR_FUSE_FAR_BYTES (8 << 20)
/* Rows longer than this are not fused across a reduction: they leave the
 * cache between the phases. */
#define MR_FUSE_MAX_ROW 65536

typedef enum mr_fuse_role {
    MR_ROLE_POINT,  /* elementwise over S */
    MR_ROLE_ROW,    /* elementwise over K */
    MR_ROLE_REDUCE, /* from S to K, or to K without its axes */
    MR_ROLE_BRIDGE, /* a broadcast from K to S: the same register */
    MR_ROLE_ALIAS,  /* an identity: the same register */
    MR_ROLE_GATHER, /* read through its index: an input of the program */
    MR_ROLE_LOOK,   /* a view of that: the same register */
    MR_ROLE_INDEX,  /* computes the index of a gather, in the same place */
    MR_ROLE_DRAW,   /* random words: an input of the program */
    MR_ROLE_PUT     /* 0 but for one point of each row: an input as well */
} mr_fuse_role;

typedef enum mr_group_kind {
    MR_GROUP_BLOCK,  /* a block program */
    MR_GROUP_KERNEL, /* one operator with a kernel (or its own execution) */
    MR_GROUP_VIEW    /* one view: no kernel where its input's layout allows */
} mr_group_kind;

typedef struct mr_fuse_group mr_fuse_group;
typedef struct mr_fuse_node mr_fuse_node;

struct mr_fuse_node {
    /* given */
    mr_array *x;
    mr_fuse_node **in; /* n_in entries; NULL: not in the list (a leaf) */
    int32_t n_uses;    /* edges from nodes of the list */
    bool wanted;       /* asked for */
    bool visible;      /* wanted, or somebody else can see it; set by the
                          fuser for what later groups read too */
    /* found */
    mr_fuse_role role;
    mr_fuse_group *group;
    mr_fuse_node *next_member; /* in topological order */
    bool shared; /* a view inside a block that later groups read too: it has a
                    place as soon as the block has */
    /* scratch */
    mr_fuse_group *candidate;
    int32_t candidate_uses;
    int32_t later_uses; /* by groups that are made already: they run later */
    bool looked_at;     /* a shared view looks at it */
    /* MR_ROLE_GATHER, MR_ROLE_PUT: along which axes of its inputs the axes of S
     * go */
    const mr_gather_map *gather;
    bool adds;           /* MR_ROLE_PUT: 0 + what is put */
    bool of_row;         /* MR_ROLE_GATHER: a value for each row */
    mr_fuse_node *index; /* MR_ROLE_GATHER: the member that computes its index,
                            elementwise; NULL: that lies in memory */
    uint16_t reg;        /* code.c */
};

struct mr_fuse_group {
    mr_group_kind kind;
    mr_fuse_node *root;   /* the last member */
    mr_fuse_node *member; /* the first member, see next_member */
    /* the kernel that the others follow, piece by piece (a member, of blocks
     * without reductions), or NULL */
    mr_fuse_node *product;
    int32_t n_members, n_out, n_gathers, n_draws;
    int32_t n_through; /* inputs of gathers and puts */
    /* blocks: */
    int32_t ndim;
    const int64_t *dim;
    uint32_t red_axes; /* axes of S that are reduced, size-1 axes left out */
    bool has_reduction, phased;
    bool columns;  /* reduces leading axes: reads memory, pulls little */
    int32_t n_ext; /* distinct arrays from outside */
    mr_array *ext[MR_FUSE_MAX_IN];
    mr_fuse_group *next; /* in the order in which they may run */
    int64_t place;       /* in that order: verify.c */
};

/* Which fused operations a device has. */
typedef bool (*mr_fuses_fn)(mr_k k, mr_dtype operand);

typedef enum mr_fuse_mode {
    MR_FUSE_ALL,
    /* all but gathers and draws: devices that have none in blocks */
    MR_FUSE_NO_GATHERS,
    MR_FUSE_OFF /* every node alone */
} mr_fuse_mode;

typedef struct mr_fuse_rules {
    mr_fuses_fn fuses;
    mr_fuse_mode mode;
    /* Does a block that reads x, a kernel's result, run piece by piece behind
     * that kernel, where it will run?  NULL: never. */
    bool (*joins)(const void *ctx, const mr_array *x);
    const void *ctx;
} mr_fuse_rules;

/* Groups of nodes[0..n), linked in order through `next`.  NULL with
 * MR_E_MEMORY set, or when n is 0.  Memory is the arena's. */
mr_fuse_group *mr__fuse(mr_arena *arena, mr_fuse_node *const *nodes, size_t n,
                        const mr_fuse_rules *rules);

/* ---- verify.c -------------------------------------------------------------
 */

/* What is wrong with these groups, or NULL. */
const char *mr__fuse_error(mr_fuse_group *groups);

/* In checked builds: aborts with it. */
static inline void
mr__fuse_check(mr_fuse_group *groups)
{
#ifdef MR_CHECK_LOCKS
    const char *why = mr__fuse_error(groups);

    if (why != NULL)
        fprintf(stderr, "marram: the fuser is wrong: %s\n", why);
    assert(why == NULL);
#else
    (void)groups;
#endif
}

/* ---- code.c ---------------------------------------------------------------
 */

/* An operand of the group's program from outside. */
typedef struct mr_block_operand {
    mr_array *x;
    mr_fuse_node *node; /* NULL: a leaf */
    bool row;           /* of the row form K */
    const int8_t *axis; /* by axis of S: the operand's own axis, or -1; NULL:
                           the same one, or none where their sizes differ */
    const mr_array *gather; /* the operator that reads or puts x through an
                               index */
} mr_block_operand;

/* What a group becomes: sizes of code and how arrays map to it. */
typedef struct mr_block_group {
    mr_block_code code;
    int32_t ndim, n_kept, n_red;
    int32_t axis[MR_MAX_NDIM]; /* axis of S of each loop dim, -1: none */
    int64_t dim[MR_MAX_NDIM];  /* of each loop dim */
    mr_block_operand in[MR_CODE_MAX_IO];
    mr_fuse_node *out[MR_CODE_MAX_IO];
    int32_t product; /* of a group with one: the operand that it is, else -1 */
} mr_block_group;

/* How many points the block computes, those that it reduces too. */
static inline int64_t
mr__block_points(const mr_block_group *b)
{
    int64_t points = 1;

    for (int i = 0; i < b->n_kept + b->n_red; i++)
        points *= b->dim[i];
    return points;
}

/* The block program of a group; all memory is the arena's.  NULL with
 * MR_E_MEMORY set. */
mr_block_group *mr__fuse_code(mr_arena *arena, mr_fuse_group *g);

/* The operation of an elementwise or reducing node and the dtype of its
 * operands. */
mr_k mr__fuse_k(const mr_array *x);
mr_dtype mr__fuse_operand(const mr_array *x);
/* Why a block over x's points does not make these random words; NULL: it may.
 * red_axes: what it reduces, `reduces` it, `again`: and reads the points once
 * more behind a reduction. */
const char *mr__fuse_draw_why(const mr_array *x, bool reduces,
                              uint32_t red_axes, bool again);
/* The bits of a node that is a constant seen through views, or NULL. */
const void *mr__fuse_constant(const mr_array *x);

#endif
