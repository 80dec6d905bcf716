/* SPDX-License-Identifier: Apache-2.0
 *
 * weave.c -- several registers of a loop side by side.
 *
 * A processor begins what follows only as far as it can hold what waits, and
 * the steps of a long function wait for one another.  A loop over registers
 * gets one in front of it that takes several at a time, the first instruction
 * of each, then the second of each, and so on; what is left of the count runs
 * through the old loop.
 *
 * Of a loop all of whose operands in memory are halves, two neighbouring
 * registers become one of the points at even places and one of those at odd
 * ones: which points a register has makes no difference to operations that
 * know no neighbour, and the halves then need no widening across lanes.
 *
 * Where a segment's results are many there is a second such loop that stores
 * them past the caches, for rows that are aligned.
 *
 * The registers of a loop are read and written at places of their own, so
 * nothing is lost when those of the next are read before those of the last
 * are written.
 * Called by: provider.c.
 */
#include <string.h>

#include "cpu/jit/jit.h"

#define MAX_BODY   192
#define MAX_COPIES 4
#define MAX_LOOPS  16
#define MOST_WORK  240 /* instructions of woven loops */

typedef struct loop {
    LLVMContextRef c;
    LLVMBuilderRef b;
    LLVMBasicBlockRef body, out;
    LLVMValueRef j, next, test, jump; /* phi, j + 1, < n, branch */
    LLVMValueRef n;
    int n_inst; /* between the phi and `next` */
    LLVMValueRef inst[MAX_BODY];
    bool varies[MAX_BODY];  /* with j */
    bool counted[MAX_BODY]; /* computed from j and nothing else that varies */
    int work;               /* instructions on vectors */
    bool halves;            /* all that is read or written */
    bool pairs;             /* and it may be read as neighbours */
    int n_lanes;            /* accumulators of sums over the row */
    LLVMValueRef lanes[MR_NATIVE_FOLDS];
    LLVMTypeRef lanes_type[MR_NATIVE_FOLDS];
    bool past; /* the woven loop that is made stores past the caches */
    int copies;
    LLVMValueRef number[MAX_COPIES]; /* of the register */
    LLVMValueRef copy[MAX_COPIES][MAX_BODY];
    bool made[MAX_BODY]; /* with what it is made from: of pairs */
} loop;

/* ---- what a loop is ---------------------------------------------------------
 */

static int
index_of(const loop *l, LLVMValueRef v)
{
    for (int i = l->n_inst - 1; i >= 0; i--)
        if (l->inst[i] == v)
            return i;
    return -1;
}

static bool
is_used_inside(const loop *l, LLVMValueRef v)
{
    for (LLVMUseRef u = LLVMGetFirstUse(v); u != NULL; u = LLVMGetNextUse(u))
        if (LLVMGetInstructionParent(LLVMGetUser(u)) != l->body)
            return false;
    return true;
}

static bool
is_used_by(LLVMValueRef v, LLVMValueRef a, LLVMValueRef b)
{
    for (LLVMUseRef u = LLVMGetFirstUse(v); u != NULL; u = LLVMGetNextUse(u))
        if (LLVMGetUser(u) != a && LLVMGetUser(u) != b)
            return false;
    return true;
}

/* Is it the number i? */
static bool
is_number(LLVMValueRef v, unsigned long long i)
{
    return LLVMIsAConstantInt(v) != NULL && LLVMConstIntGetZExtValue(v) == i;
}

/* Operations whose results are all that they do. */
static bool
is_plain(LLVMValueRef v)
{
    LLVMValueRef f;

    switch ((int)LLVMGetInstructionOpcode(v)) {
    case LLVMPHI:
        return false;
    case LLVMCall:
        f = LLVMIsAFunction(LLVMGetCalledValue(v));
        return f != NULL && LLVMGetIntrinsicID(f) != 0 &&
               LLVMGetTypeKind(LLVMTypeOf(v)) != LLVMVoidTypeKind;
    default:
        return true;
    }
}

/* The end of the block: j + 1, whether it is less than n, and back if so. */
static bool
end_is_known(loop *l)
{
    LLVMValueRef phi = LLVMGetFirstInstruction(l->body);

    l->jump = LLVMGetBasicBlockTerminator(l->body);
    if (LLVMIsABranchInst(l->jump) == NULL || !LLVMIsConditional(l->jump) ||
        LLVMGetSuccessor(l->jump, 0) != l->body || LLVMIsAPHINode(phi) == NULL)
        return false;
    l->j = phi;
    l->out = LLVMGetSuccessor(l->jump, 1);
    l->test = LLVMGetCondition(l->jump);
    if (LLVMIsAICmpInst(l->test) == NULL ||
        LLVMGetICmpPredicate(l->test) != LLVMIntULT ||
        !is_used_by(l->test, l->jump, l->jump))
        return false;
    l->next = LLVMGetOperand(l->test, 0);
    l->n = LLVMGetOperand(l->test, 1);
    return LLVMIsABinaryOperator(l->next) != NULL &&
           LLVMGetInstructionOpcode(l->next) == LLVMAdd &&
           LLVMGetOperand(l->next, 0) == phi &&
           is_number(LLVMGetOperand(l->next, 1), 1) &&
           (LLVMIsAInstruction(l->n) == NULL ||
            LLVMGetInstructionParent(l->n) != l->body);
}

static bool
begins_with_zero(const loop *l)
{
    for (unsigned i = 0; i < LLVMCountIncoming(l->j); i++) {
        LLVMValueRef v = LLVMGetIncomingValue(l->j, i);

        if (LLVMGetIncomingBlock(l->j, i) == l->body ? v != l->next
                                                     : !is_number(v, 0))
            return false;
    }
    return true;
}

static bool
is_vector(LLVMValueRef v)
{
    return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
}

static bool
is_of_halves(LLVMValueRef v)
{
    LLVMTypeRef e = is_vector(v) ? LLVMGetElementType(LLVMTypeOf(v)) : NULL;

    return e != NULL && LLVMGetTypeKind(e) == LLVMIntegerTypeKind &&
           LLVMGetIntTypeWidth(e) == 16;
}

static bool
is_opcode(LLVMValueRef v, LLVMOpcode op)
{
    return LLVMIsAInstruction(v) != NULL && LLVMGetInstructionOpcode(v) == op;
}

/* Do the registers at this place lie one after the other?  It is so many bytes
 * from somewhere: the number of the register, shifted. */
static bool
is_in_a_row(const loop *l, LLVMValueRef place, LLVMValueRef x)
{
    unsigned n = LLVMGetVectorSize(LLVMTypeOf(x)), shift = 1;
    LLVMValueRef bytes, i;

    if (!is_opcode(place, LLVMGetElementPtr) ||
        LLVMGetNumOperands(place) != 2 ||
        LLVMGetIntTypeWidth(LLVMGetGEPSourceElementType(place)) != 8)
        return false;
    while (1U << (shift - 1) < n)
        shift++;
    bytes = LLVMGetOperand(place, 1);
    if (!is_opcode(bytes, LLVMShl) ||
        !is_number(LLVMGetOperand(bytes, 1), shift))
        return false;
    i = LLVMGetOperand(bytes, 0);
    return i == l->j ||
           (is_opcode(i, LLVMAdd) &&
            (LLVMGetOperand(i, 0) == l->j || LLVMGetOperand(i, 1) == l->j));
}

/* Is it the loop of a whole row, which is there again for what is left? */
static bool
is_of_row(const loop *l)
{
    return LLVMIsAPHINode(l->n) != NULL && LLVMCountIncoming(l->n) == 2 &&
           (is_number(LLVMGetIncomingValue(l->n, 0), 1) ||
            is_number(LLVMGetIncomingValue(l->n, 1), 1));
}

/* Are these the lanes that a register of so many is added to?  Then the place
 * is a block of MR_LANES, round and round.  Lanes are all the same at first,
 * and can be put into order when all is added, if this loop is the first and
 * only one: it is where the other count is 1. */
static bool
is_lanes(loop *l, LLVMValueRef place, LLVMTypeRef type)
{
    LLVMValueRef base, bytes;
    unsigned n = LLVMGetVectorSize(type);
    int i = 0;

    if (LLVMGetTypeKind(LLVMGetElementType(type)) != LLVMFloatTypeKind ||
        !is_opcode(place, LLVMGetElementPtr) ||
        LLVMGetNumOperands(place) != 2 || !is_of_row(l))
        return false;
    base = LLVMGetOperand(place, 0);
    bytes = LLVMGetOperand(place, 1);
    if (LLVMIsAAllocaInst(base) == NULL || !is_opcode(bytes, LLVMAnd) ||
        !is_number(LLVMGetOperand(bytes, 1), (MR_LANES - n) * 4))
        return false;
    while (i < l->n_lanes && l->lanes[i] != base)
        i++;
    if (i == MR_NATIVE_FOLDS)
        return false;
    l->lanes[i] = base;
    l->lanes_type[i] = type;
    l->n_lanes += i == l->n_lanes;
    return true;
}

/* Halves that are read to be widened by a shift, which float16 is not. */
static bool
is_load_of_halves(const loop *l, LLVMValueRef v)
{
    if (!is_of_halves(v) || !is_in_a_row(l, LLVMGetOperand(v, 0), v))
        return false;
    for (LLVMUseRef u = LLVMGetFirstUse(v); u != NULL; u = LLVMGetNextUse(u))
        if (!is_opcode(LLVMGetUser(u), LLVMZExt))
            return false;
    return true;
}

static bool
is_store_of_halves(const loop *l, LLVMValueRef v)
{
    LLVMValueRef x = LLVMGetOperand(v, 0);

    return is_of_halves(x) && is_opcode(x, LLVMTrunc) &&
           is_in_a_row(l, LLVMGetOperand(v, 1), x);
}

static void
operand_note(loop *l, int i, LLVMValueRef x)
{
    int k = x == l->j ? -1 : index_of(l, x);

    l->varies[i] |= x == l->j || (k >= 0 && l->varies[k]);
    l->counted[i] &= k < 0 || l->counted[k];
}

/* False for what may not be woven: storing where the next register does. */
static bool
inst_note(loop *l, int i)
{
    LLVMValueRef v = l->inst[i];
    LLVMOpcode op = LLVMGetInstructionOpcode(v);
    int place;

    l->counted[i] = op == LLVMAdd || op == LLVMShl || op == LLVMMul ||
                    op == LLVMAnd || op == LLVMOr || op == LLVMGetElementPtr;
    for (int k = 0; k < LLVMGetNumOperands(v); k++)
        operand_note(l, i, LLVMGetOperand(v, (unsigned)k));
    l->work += op == LLVMStore || (is_vector(v) && op != LLVMBitCast);
    l->pairs &= op != LLVMShuffleVector || !l->varies[i];
    if (op == LLVMLoad && l->varies[i] && is_vector(v) &&
        is_lanes(l, LLVMGetOperand(v, 0), LLVMTypeOf(v)))
        return true;
    if (op == LLVMLoad && l->varies[i]) {
        l->halves &= is_of_halves(v);
        l->pairs &= is_load_of_halves(l, v);
    }
    if (op != LLVMStore)
        return true;
    if (!is_vector(LLVMGetOperand(v, 0)) ||
        !is_lanes(l, LLVMGetOperand(v, 1), LLVMTypeOf(LLVMGetOperand(v, 0)))) {
        l->halves &= is_of_halves(LLVMGetOperand(v, 0));
        l->pairs &= is_store_of_halves(l, v);
    }
    place = index_of(l, LLVMGetOperand(v, 1));
    return place >= 0 && l->varies[place] && l->counted[place];
}

/* Can it be woven? */
static bool
loop_read(loop *l)
{
    if (!end_is_known(l) || !begins_with_zero(l) || !is_used_inside(l, l->j) ||
        !is_used_by(l->next, l->j, l->test))
        return false;
    for (LLVMValueRef v = LLVMGetNextInstruction(l->j); v != l->jump;
         v = LLVMGetNextInstruction(v)) {
        if (v == l->next || v == l->test)
            continue;
        if (l->n_inst == MAX_BODY || !is_plain(v) || !is_used_inside(l, v))
            return false;
        l->inst[l->n_inst++] = v;
    }
    l->halves = l->pairs = true;
    for (int i = 0; i < l->n_inst; i++)
        if (!inst_note(l, i))
            return false;
    return true;
}

/* ---- copies -----------------------------------------------------------------
 */

/* In front of the old loop there is more than one register, so where n is 1 on
 * one way to a block and not on the other, the other was taken. */
static LLVMValueRef
on_the_way(const loop *l, LLVMValueRef v)
{
    if (LLVMIsAPHINode(v) == NULL || !is_of_row(l) ||
        LLVMGetInstructionParent(v) != LLVMGetInstructionParent(l->n))
        return v;
    for (unsigned i = 0; i < 2; i++) {
        LLVMBasicBlockRef one = LLVMGetIncomingBlock(l->n, i);
        unsigned other = LLVMGetIncomingBlock(v, 0) == one ? 1 : 0;

        if (is_number(LLVMGetIncomingValue(l->n, i), 1) &&
            LLVMIsAConstantInt(LLVMGetIncomingValue(v, other)) != NULL)
            return LLVMGetIncomingValue(v, other);
    }
    return v;
}

/* Does it store what is no piece of the stack: an output? */
static bool
is_output(LLVMValueRef store)
{
    LLVMValueRef base = LLVMGetOperand(store, 1);

    while (is_opcode(base, LLVMGetElementPtr))
        base = LLVMGetOperand(base, 0);
    return LLVMIsAAllocaInst(base) == NULL;
}

/* Bytes that are stored at once. */
static unsigned
bytes_of(LLVMTypeRef type)
{
    LLVMTypeRef e = LLVMGetElementType(type);
    unsigned n = LLVMGetVectorSize(type);

    switch ((int)LLVMGetTypeKind(e)) {
    case LLVMFloatTypeKind:
        return 4 * n;
    case LLVMDoubleTypeKind:
        return 8 * n;
    case LLVMIntegerTypeKind:
        return LLVMGetIntTypeWidth(e) / 8 * n;
    default:
        return 0;
    }
}

/* Less than half a line at once is not worth it. */
static bool
may_go_past(const loop *l, LLVMValueRef store)
{
    LLVMTypeRef type = LLVMTypeOf(LLVMGetOperand(store, 0));
    unsigned bytes;

    if (!is_vector(LLVMGetOperand(store, 0)) || !is_output(store))
        return false;
    bytes = bytes_of(type) * (l->pairs ? 2 : 1);
    return bytes == 32 || bytes == 64;
}

/* Stores x as `like` stores one register. */
static void
store_make(const loop *l, LLVMValueRef like, LLVMValueRef x, LLVMValueRef place)
{
    LLVMValueRef store = LLVMBuildStore(l->b, x, place);
    LLVMMetadataRef one;

    LLVMSetAlignment(store, LLVMGetAlignment(like));
    if (!l->past || !may_go_past(l, like))
        return;
    one = LLVMValueAsMetadata(
        LLVMConstInt(LLVMInt32TypeInContext(l->c), 1, false));
    LLVMSetAlignment(store, bytes_of(LLVMTypeOf(x)));
    LLVMSetMetadata(
        store, LLVMGetMDKindIDInContext(l->c, "nontemporal", 11),
        LLVMMetadataAsValue(l->c, LLVMMDNodeInContext2(l->c, &one, 1)));
}

static LLVMValueRef
operand_of(const loop *l, int copy, LLVMValueRef v)
{
    int i;

    if (v == l->j)
        return l->number[copy];
    i = index_of(l, v);
    return i >= 0 ? l->copy[copy][i] : on_the_way(l, v);
}

/* The same for all registers, and for the memory as it is by then? */
static bool
is_shared(const loop *l, int i)
{
    LLVMValueRef v = l->inst[i], place;

    if (l->varies[i] || is_opcode(v, LLVMStore))
        return false;
    if (!is_opcode(v, LLVMLoad))
        return true;
    place = LLVMGetOperand(v, 0);
    return LLVMIsAGlobalVariable(place) != NULL && LLVMIsGlobalConstant(place);
}

static void
copy_make(loop *l, int copy, int i)
{
    LLVMValueRef v = l->inst[i];

    if (copy > 0 && is_shared(l, i)) {
        l->copy[copy][i] = l->copy[0][i];
        return;
    }
    if (is_opcode(v, LLVMStore)) {
        store_make(l, v, operand_of(l, copy, LLVMGetOperand(v, 0)),
                   operand_of(l, copy, LLVMGetOperand(v, 1)));
        return;
    }
    v = LLVMInstructionClone(v);
    for (int k = 0; k < LLVMGetNumOperands(v); k++)
        LLVMSetOperand(v, (unsigned)k,
                       operand_of(l, copy, LLVMGetOperand(v, (unsigned)k)));
    LLVMInsertIntoBuilder(l->b, v);
    l->copy[copy][i] = v;
}

static LLVMTypeRef
words_of(const loop *l, LLVMValueRef halves)
{
    return LLVMVectorType(LLVMInt32TypeInContext(l->c),
                          LLVMGetVectorSize(LLVMTypeOf(halves)));
}

static LLVMValueRef
splat(LLVMTypeRef words, unsigned long long value)
{
    LLVMValueRef x[64];
    unsigned n = LLVMGetVectorSize(words);

    for (unsigned i = 0; i < n; i++)
        x[i] = LLVMConstInt(LLVMGetElementType(words), value, false);
    return LLVMConstVector(x, n);
}

/* Is it shifted by so many bits: 16, all of them? */
static bool
is_shift_of_halves(LLVMValueRef v, LLVMOpcode op)
{
    LLVMTypeRef type = LLVMTypeOf(v);

    return is_opcode(v, op) && LLVMGetTypeKind(type) == LLVMVectorTypeKind &&
           LLVMGetIntTypeWidth(LLVMGetElementType(type)) == 32 &&
           LLVMGetOperand(v, 1) == splat(type, 16);
}

static void
pair_note(loop *l, int copy, LLVMValueRef v, LLVMValueRef even,
          LLVMValueRef odd)
{
    int i = index_of(l, v);

    l->copy[copy][i] = even;
    l->copy[copy + 1][i] = odd;
    l->made[i] = true;
}

/* Is a loaded half only widened to words? */
static bool
is_widened(const loop *l, LLVMValueRef v)
{
    for (LLVMUseRef u = LLVMGetFirstUse(v); u != NULL; u = LLVMGetNextUse(u))
        if (LLVMTypeOf(LLVMGetUser(u)) != words_of(l, v))
            return false;
    return true;
}

/* What widens it: both halves of a word are there already. */
static void
pair_widen(loop *l, int copy, LLVMValueRef wide, LLVMValueRef both)
{
    LLVMTypeRef words = LLVMTypeOf(both);
    LLVMValueRef low = NULL, even = NULL, odd = NULL;

    for (LLVMUseRef u = LLVMGetFirstUse(wide); u != NULL;
         u = LLVMGetNextUse(u)) {
        LLVMValueRef v = LLVMGetUser(u);

        if (!is_shift_of_halves(v, LLVMShl)) {
            low = both;
            continue;
        }
        if (even == NULL) {
            even = LLVMBuildShl(l->b, both, splat(words, 16), "");
            odd = LLVMBuildAnd(l->b, both, splat(words, 0xffff0000), "");
        }
        pair_note(l, copy, v, even, odd);
    }
    l->made[index_of(l, wide)] = true;
    if (low == NULL)
        return;
    pair_note(l, copy, wide, LLVMBuildAnd(l->b, both, splat(words, 0xffff), ""),
              LLVMBuildLShr(l->b, both, splat(words, 16), ""));
}

/* Copies `copy` and the next: points at even and at odd places. */
static void
pair_load(loop *l, int copy, int i)
{
    LLVMValueRef v = l->inst[i], both;

    both = LLVMBuildLoad2(l->b, words_of(l, v),
                          operand_of(l, copy, LLVMGetOperand(v, 0)), "");
    LLVMSetAlignment(both, LLVMGetAlignment(v));
    if (is_widened(l, v)) {
        for (LLVMUseRef u = LLVMGetFirstUse(v); u != NULL;
             u = LLVMGetNextUse(u))
            pair_widen(l, copy, LLVMGetUser(u), both);
        return;
    }
    l->copy[copy][i] = LLVMBuildTrunc(l->b, both, LLVMTypeOf(v), "");
    both = LLVMBuildLShr(l->b, both, splat(LLVMTypeOf(both), 16), "");
    l->copy[copy + 1][i] = LLVMBuildTrunc(l->b, both, LLVMTypeOf(v), "");
}

static void
pair_store(loop *l, int copy, int i)
{
    LLVMValueRef v = l->inst[i], x = LLVMGetOperand(v, 0), low, high;
    LLVMValueRef wide = LLVMGetOperand(x, 0); /* it is cut off */
    LLVMTypeRef words = words_of(l, x);

    if (is_shift_of_halves(wide, LLVMLShr)) {
        low = operand_of(l, copy, wide);
        high = operand_of(l, copy + 1, LLVMGetOperand(wide, 0));
        high = LLVMBuildAnd(l->b, high, splat(words, 0xffff0000), "");
    } else {
        low = LLVMBuildZExt(l->b, operand_of(l, copy, x), words, "");
        high = LLVMBuildZExt(l->b, operand_of(l, copy + 1, x), words, "");
        high = LLVMBuildShl(l->b, high, splat(words, 16), "");
    }
    store_make(l, v, LLVMBuildOr(l->b, low, high, ""),
               operand_of(l, copy, LLVMGetOperand(v, 1)));
}

static void
copies_make(loop *l, int i)
{
    LLVMOpcode op = LLVMGetInstructionOpcode(l->inst[i]);
    LLVMValueRef x =
        op == LLVMStore ? LLVMGetOperand(l->inst[i], 0) : l->inst[i];
    bool pair = l->pairs && l->varies[i] && is_of_halves(x) &&
                (op == LLVMLoad || op == LLVMStore);

    for (int copy = 0; copy < l->copies && !l->made[i]; copy += pair ? 2 : 1) {
        if (!pair)
            copy_make(l, copy, i);
        else if (op == LLVMLoad)
            pair_load(l, copy, i);
        else
            pair_store(l, copy, i);
    }
}

/* Element i of the two blocks' lanes in order, from n on. */
static LLVMValueRef
zip(const loop *l, LLVMValueRef even, LLVMValueRef odd, unsigned from)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(l->c);
    LLVMValueRef x[64];
    unsigned n = LLVMGetVectorSize(LLVMTypeOf(even));

    for (unsigned i = 0; i < n; i++)
        x[i] = LLVMConstInt(i32, (from + i) / 2 + (i % 2) * n, false);
    return LLVMBuildShuffleVector(l->b, even, odd, LLVMConstVector(x, n), "");
}

/* Pairs have added even and odd points to blocks of their own. */
static void
lanes_sort(const loop *l)
{
    LLVMTypeRef i8 = LLVMInt8TypeInContext(l->c);

    for (int k = 0; l->pairs && k < l->n_lanes; k++) {
        LLVMTypeRef type = l->lanes_type[k];
        unsigned n = LLVMGetVectorSize(type);

        for (unsigned i = 0; i < MR_LANES; i += 2 * n) {
            LLVMValueRef at[2], x[2];

            for (unsigned h = 0; h < 2; h++) {
                LLVMValueRef bytes =
                    LLVMConstInt(LLVMTypeOf(l->j), (i + h * n) * 4, false);

                at[h] = LLVMBuildGEP2(l->b, i8, l->lanes[k], &bytes, 1, "");
                x[h] = LLVMBuildLoad2(l->b, type, at[h], "");
                LLVMSetAlignment(x[h], 4);
            }
            for (unsigned h = 0; h < 2; h++)
                LLVMSetAlignment(
                    LLVMBuildStore(l->b, zip(l, x[0], x[1], h * n), at[h]), 4);
        }
    }
}

/* ---- the loop in front ------------------------------------------------------
 */

static LLVMBasicBlockRef
block_before(const loop *l)
{
    return LLVMInsertBasicBlockInContext(l->c, l->body, "");
}

/* Who went to the old loop goes to `to`. */
static void
lead_to(const loop *l, LLVMBasicBlockRef to)
{
    for (unsigned i = 0; i < LLVMCountIncoming(l->j); i++) {
        LLVMBasicBlockRef from = LLVMGetIncomingBlock(l->j, i);
        LLVMValueRef end = LLVMGetBasicBlockTerminator(from);

        for (unsigned k = 0; from != l->body && k < LLVMGetNumSuccessors(end);
             k++)
            if (LLVMGetSuccessor(end, k) == l->body)
                LLVMSetSuccessor(end, k, to);
    }
}

/* The old loop begins with register m after `after`, else with 0. */
static void
old_loop_enter(loop *l, LLVMBasicBlockRef before, LLVMBasicBlockRef after,
               LLVMValueRef m)
{
    LLVMTypeRef type = LLVMTypeOf(l->j);
    LLVMValueRef phi, from[3] = {LLVMConstInt(type, 0, false), m, l->next};
    LLVMBasicBlockRef at[3] = {before, after, l->body};

    LLVMPositionBuilderBefore(l->b, l->j);
    phi = LLVMBuildPhi(l->b, type, "");
    LLVMReplaceAllUsesWith(l->j, phi);
    LLVMInstructionEraseFromParent(l->j);
    LLVMAddIncoming(phi, from, at, 3);
    for (LLVMValueRef v = LLVMGetFirstInstruction(l->out);
         LLVMIsAPHINode(v) != NULL; v = LLVMGetNextInstruction(v)) {
        for (unsigned i = 0, n = LLVMCountIncoming(v); i < n; i++) {
            LLVMValueRef x = LLVMGetIncomingValue(v, i);

            if (LLVMGetIncomingBlock(v, i) == l->body)
                LLVMAddIncoming(v, &x, &after, 1);
        }
    }
}

/* A woven loop over the first m registers; goes on in block after. */
static LLVMBasicBlockRef
woven_make(loop *l, LLVMBasicBlockRef before, LLVMBasicBlockRef after,
           LLVMValueRef m, bool past)
{
    LLVMBasicBlockRef woven = block_before(l);
    LLVMTypeRef type = LLVMTypeOf(l->j);
    LLVMValueRef zero = LLVMConstInt(type, 0, false), next;
    unsigned copies = (unsigned)l->copies;

    l->past = past;
    memset(l->made, 0, sizeof l->made);
    LLVMPositionBuilderAtEnd(l->b, woven);
    l->number[0] = LLVMBuildPhi(l->b, type, "");
    for (unsigned i = 1; i < copies; i++)
        l->number[i] =
            LLVMBuildAdd(l->b, l->number[0], LLVMConstInt(type, i, false), "");
    for (int i = 0; i < l->n_inst; i++)
        copies_make(l, i);
    next =
        LLVMBuildAdd(l->b, l->number[0], LLVMConstInt(type, copies, false), "");
    LLVMBuildCondBr(l->b, LLVMBuildICmp(l->b, LLVMIntULT, next, m, ""), woven,
                    after);
    LLVMAddIncoming(l->number[0], (LLVMValueRef[]){zero, next},
                    (LLVMBasicBlockRef[]){before, woven}, 2);
    return woven;
}

/* Where register 0 is stored, of all that may go past the caches: the bits of
 * the places that must not be set; NULL if there is none. */
static LLVMValueRef
places_unaligned(loop *l)
{
    LLVMValueRef all = NULL;

    l->number[0] = LLVMConstInt(LLVMTypeOf(l->j), 0, false);
    for (int i = 0; i < l->n_inst; i++) {
        LLVMValueRef v = l->inst[i], place;
        unsigned bytes;

        if (l->counted[i] && l->varies[i])
            copy_make(l, 0, i);
        if (!is_opcode(v, LLVMStore) || !may_go_past(l, v))
            continue;
        bytes = bytes_of(LLVMTypeOf(LLVMGetOperand(v, 0))) * (l->pairs ? 2 : 1);
        place = LLVMBuildPtrToInt(l->b, operand_of(l, 0, LLVMGetOperand(v, 1)),
                                  LLVMTypeOf(l->j), "");
        place = LLVMBuildAnd(
            l->b, place, LLVMConstInt(LLVMTypeOf(l->j), bytes - 1, false), "");
        all = all == NULL ? place : LLVMBuildOr(l->b, all, place, "");
    }
    return all;
}

static void
loop_weave(loop *l, bool past)
{
    LLVMBasicBlockRef before = block_before(l), choose = block_before(l),
                      after = block_before(l), woven, other;
    LLVMTypeRef type = LLVMTypeOf(l->j);
    LLVMValueRef zero = LLVMConstInt(type, 0, false), m, some, unaligned;
    unsigned copies = (unsigned)l->copies;

    lead_to(l, before);
    LLVMPositionBuilderAtEnd(l->b, before);
    m = LLVMBuildSub(
        l->b, l->n,
        LLVMBuildURem(l->b, l->n, LLVMConstInt(type, copies, false), ""), "");
    some = LLVMBuildICmp(l->b, LLVMIntNE, m, zero, "");
    LLVMBuildCondBr(l->b, some, choose, l->body);
    LLVMPositionBuilderAtEnd(l->b, choose);
    unaligned = past ? places_unaligned(l) : NULL;
    woven = woven_make(l, choose, after, m, false);
    other = unaligned == NULL ? woven : woven_make(l, choose, after, m, true);
    LLVMPositionBuilderAtEnd(l->b, choose);
    if (unaligned == NULL)
        LLVMBuildBr(l->b, woven);
    else
        LLVMBuildCondBr(l->b,
                        LLVMBuildICmp(l->b, LLVMIntNE, unaligned, zero, ""),
                        woven, other);
    LLVMPositionBuilderAtEnd(l->b, after);
    lanes_sort(l);
    LLVMBuildCondBr(l->b, LLVMBuildICmp(l->b, LLVMIntULT, m, l->n, ""), l->body,
                    l->out);
    old_loop_enter(l, before, after, m);
}

/* How many registers side by side, for a function of so much work in all: 1
 * leaves its loops as they are.  More do not fit the machine's registers, and
 * what is compiled should not grow without end. */
static int
copies_of(const mr_jit *j, const loop *l, int work)
{
    int most = l->halves ? 4 : j->avx512 ? 3 : 2;

    while (most > 1 && (work * most > MOST_WORK || (l->pairs && most == 3)))
        most--;
    return most;
}

static bool
loop_find(loop *l, LLVMContextRef context, LLVMBasicBlockRef body)
{
    memset(l, 0, sizeof *l);
    l->c = context;
    l->body = body;
    return loop_read(l);
}

typedef struct woven_loops {
    LLVMBasicBlockRef body[MAX_LOOPS];
    int n, work; /* in all */
} woven_loops;

static woven_loops
loops_find(LLVMContextRef context, LLVMValueRef fn)
{
    woven_loops w = {.n = 0};
    loop l;

    for (LLVMBasicBlockRef k = LLVMGetFirstBasicBlock(fn);
         k != NULL && w.n < MAX_LOOPS; k = LLVMGetNextBasicBlock(k)) {
        if (loop_find(&l, context, k)) {
            w.work += l.work;
            w.body[w.n++] = k;
        }
    }
    return w;
}

bool
mr__jit_can_weave(const mr_jit *j, LLVMContextRef context, LLVMValueRef fn)
{
    woven_loops w = loops_find(context, fn);
    loop l;

    for (int i = 0; i < w.n; i++)
        if (loop_find(&l, context, w.body[i]) && copies_of(j, &l, w.work) > 1)
            return true;
    return false;
}

void
mr__jit_weave(const mr_jit *j, LLVMContextRef context, LLVMValueRef fn,
              bool past)
{
    LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
    woven_loops w = loops_find(context, fn);
    loop l;

    for (int i = 0; i < w.n; i++) {
        if (!loop_find(&l, context, w.body[i]))
            continue;
        l.b = b;
        l.copies = copies_of(j, &l, w.work);
        if (l.copies > 1)
            loop_weave(&l, past);
    }
    LLVMDisposeBuilder(b);
}
