/* SPDX-License-Identifier: Apache-2.0
 *
 * path.c -- in which order the terms of a sum of products are contracted.
 *
 * A contraction of two terms costs the product of the sizes of all labels
 * that either has, twice where some are summed.  For up to EXACT terms the
 * cheapest order is found over all subsets: the best of a set is the best of
 * two parts and their contraction (3^n splits).  Beyond that the pair is taken
 * whose result outgrows its terms least, n^3 in all.
 * Called by: contract.c.
 */
#include "ops/path.h"

#include <stdbool.h>
#include <string.h>

enum { EXACT = 8 };

static double
volume(const mr_path *p, uint64_t labels)
{
    double v = 1.0;

    for (int i = 0; i < MR_PATH_LABELS; i++)
        if (labels >> i & 1)
            v *= p->size[i];
    return v;
}

static int
count(uint64_t labels)
{
    return __builtin_popcountll(labels);
}

/* Operations to contract a and b when `kept` stay. */
static double
pair_cost(const mr_path *p, uint64_t a, uint64_t b, uint64_t kept)
{
    uint64_t all = a | b;

    return volume(p, all) * ((all & ~kept) != 0 ? 2.0 : 1.0);
}

/* ---- few terms: all orders ----------------------------------------------- */

typedef struct exact {
    double cost[1 << EXACT];
    uint64_t labels[1 << EXACT]; /* that stay when the set is contracted */
    uint16_t part[1 << EXACT];   /* one of its two parts; 0: a single term */
} exact;

static void
exact_solve(const mr_path *p, exact *e)
{
    unsigned full = (1U << p->n) - 1;

    for (unsigned s = 1; s <= full; s++) {
        uint64_t in = 0, wanted = p->out;

        for (int i = 0; i < p->n; i++)
            *(s >> i & 1 ? &in : &wanted) |= p->term[i];
        e->labels[s] = count(s) == 1 ? in : in & wanted;
        e->cost[s] = 0.0;
        e->part[s] = 0;
        if (count(s) == 1)
            continue;
        for (unsigned a = (s - 1) & s; a != 0; a = (a - 1) & s) {
            unsigned b = s ^ a;
            double c;

            if (a < b) /* each split once */
                continue;
            c = e->cost[a] + e->cost[b] +
                pair_cost(p, e->labels[a], e->labels[b], e->labels[s]);
            if (e->part[s] == 0 || c < e->cost[s]) {
                e->cost[s] = c;
                e->part[s] = (uint16_t)a;
            }
        }
    }
}

typedef struct left {
    unsigned set[MR_PATH_TERMS];
    int n;
} left;

static void
contract_sets(mr_path *p, left *l, unsigned a, unsigned b)
{
    int k = 0, *step = p->step[p->n_steps++], n = 0;

    for (int i = 0; i < l->n; i++) {
        if (l->set[i] == a || l->set[i] == b)
            step[n++] = i;
        else
            l->set[k++] = l->set[i];
    }
    l->set[k++] = a | b;
    l->n = k;
}

/* A set that is not contracted yet though its two parts are; 0: none. */
static unsigned
ready_set(const exact *e, const left *l, unsigned full)
{
    for (unsigned s = 1; s <= full; s++) {
        int found = 0;

        if (e->part[s] == 0)
            continue;
        for (int i = 0; i < l->n; i++)
            found += l->set[i] == e->part[s] ||
                     l->set[i] == (s ^ (unsigned)e->part[s]);
        if (found == 2)
            return s;
    }
    return 0;
}

/* Marks the sets of the best tree; others get no parts. */
static void
keep_tree(exact *e, unsigned full)
{
    bool wanted[1 << EXACT] = {false};

    wanted[full] = true;
    for (unsigned s = full; s > 0; s--) { /* parts have smaller numbers */
        if (!wanted[s])
            e->part[s] = 0;
        if (e->part[s] == 0)
            continue;
        wanted[e->part[s]] = true;
        wanted[s ^ e->part[s]] = true;
    }
}

static void
find_exact(mr_path *p)
{
    unsigned full = (1U << p->n) - 1;
    left l = {.n = p->n};
    exact e;

    exact_solve(p, &e);
    keep_tree(&e, full);
    for (int i = 0; i < p->n; i++)
        l.set[i] = 1U << i;
    while (l.n > 1) {
        unsigned s = ready_set(&e, &l, full);

        contract_sets(p, &l, e.part[s], s ^ e.part[s]);
    }
}

/* ---- many terms: one pair after the other -------------------------------- */

static uint64_t
kept_of(const mr_path *p, const uint64_t *term, int n, int i, int j)
{
    uint64_t wanted = p->out;

    for (int k = 0; k < n; k++)
        if (k != i && k != j)
            wanted |= term[k];
    return (term[i] | term[j]) & wanted;
}

static void
join(uint64_t *term, int *n, int i, int j, uint64_t result)
{
    int k = 0;

    for (int m = 0; m < *n; m++)
        if (m != i && m != j)
            term[k++] = term[m];
    term[k++] = result;
    *n = k;
}

static void
find_greedy(mr_path *p)
{
    uint64_t term[MR_PATH_TERMS];
    int n = p->n;

    memcpy(term, p->term, sizeof term);
    while (n > 1) {
        double best = 0.0, best_cost = 0.0;
        int *step = p->step[p->n_steps++];
        bool any = false;

        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                uint64_t kept = kept_of(p, term, n, i, j);
                double grows =
                    volume(p, kept) - volume(p, term[i]) - volume(p, term[j]);
                double c = pair_cost(p, term[i], term[j], kept);

                if (any && (grows > best || (grows == best && c >= best_cost)))
                    continue;
                any = true;
                best = grows;
                best_cost = c;
                step[0] = i;
                step[1] = j;
            }
        join(term, &n, step[0], step[1], kept_of(p, term, n, step[0], step[1]));
    }
}

void
mr__path_find(mr_path *p)
{
    p->n_steps = 0;
    if (p->n == 2) {
        p->step[0][0] = 0;
        p->step[0][1] = 1;
        p->n_steps = 1;
    } else if (p->n > 2 && p->n <= EXACT)
        find_exact(p);
    else if (p->n > 2)
        find_greedy(p);
}

void
mr__path_measure(mr_path *p)
{
    uint64_t term[MR_PATH_TERMS], all = 0;
    int n = p->n;

    memcpy(term, p->term, sizeof term);
    for (int i = 0; i < n; i++)
        all |= term[i];
    p->naive_labels = p->labels = count(all);
    p->naive_flops =
        volume(p, all) * ((n > 2 ? n - 1 : 1) + ((all & ~p->out) != 0));
    p->flops = p->naive_flops;
    if (p->n_steps > 0) {
        p->labels = 0;
        p->flops = 0.0;
    }
    for (int k = 0; k < p->n_steps; k++) {
        int i = p->step[k][0], j = p->step[k][1];
        uint64_t kept = kept_of(p, term, n, i, j);

        p->flops += pair_cost(p, term[i], term[j], kept);
        if (count(term[i] | term[j]) > p->labels)
            p->labels = count(term[i] | term[j]);
        join(term, &n, i, j, kept);
    }
}
