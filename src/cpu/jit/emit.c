/* SPDX-License-Identifier: Apache-2.0
 *
 * emit.c -- the function of a segment in LLVM's terms.
 *
 * A register is a piece of the stack and each operation a call of its
 * definition (kernels/tier/jit.h); inlining makes vectors of both.  What is
 * written here is the loops around them:
 *
 *   for each row
 *       read what is one a row, start the folds
 *       again: for each whole group of points (or strip of groups, and in it
 *       for each stage, see stages.c, for each group)
 *           load, operations, store, fold
 *       what is left of the row is copied into a group of its own and goes
 *       through the same loops once more ("again"); copied out afterwards
 *       end the folds
 *
 * So the code of a long program stands there once, and nothing is read or
 * written past a row's end.
 * Called by: provider.c.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <llvm-c/BitReader.h>
#include <llvm-c/Linker.h>

#include "cpu/jit/bitcode.h"
#include "cpu/jit/jit.h"

#define MAX_REG MR_JIT_REGISTERS

/* A value that differs between the whole groups of a row and what is left. */
typedef struct operand {
    LLVMValueRef row;   /* where the row begins */
    LLVMValueRef at;    /* phi: that, or the group on the stack */
    LLVMValueRef bytes; /* phi: from group to group */
    LLVMValueRef left;  /* the group on the stack */
    int64_t size;       /* of an element */
} operand;

typedef struct emitter {
    const mr_jit *j;
    const mr_segment *s;
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    LLVMValueRef fn, call; /* the function, its argument */
    LLVMTypeRef i64, ptr, i8, none;
    bool uses[MR_N_BITCODE];
    LLVMValueRef reg[MAX_REG];
    uint8_t dtype[MAX_REG];
    operand in[MAX_REG], out[MAX_REG];
    LLVMValueRef lanes[MR_NATIVE_FOLDS];
    LLVMValueRef rows, n, full, rest; /* full: groups; rest: points */
    mr_stages stages;
    LLVMValueRef slots;
    int64_t slot_bytes; /* of a register in a slot */
} emitter;

static const char *const file_names[MR_N_DTYPES] = {
#define MR_X(id, name) [id] = #name,
    MR_TIER_DTYPES(MR_X)
#undef MR_X
};

static const char *const dtype_names[MR_N_DTYPES] = {
    "BOOL",     "UINT8",   "UINT16",  "UINT32",    "UINT64",
    "INT8",     "INT16",   "INT32",   "INT64",     "FLOAT16",
    "BFLOAT16", "FLOAT32", "FLOAT64", "COMPLEX64", "COMPLEX128"};

static const char *const fold_names[MR_N_FOLDS] = {"SUM", "PROD", "MAX", "MIN"};

static int64_t
size_of(int dtype)
{
    static const uint8_t size[MR_N_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4,
                                              8, 2, 2, 4, 8, 8, 16};

    return size[dtype];
}

static int64_t
acc_size_of(int dtype)
{
    return dtype == MR_FLOAT16 || dtype == MR_BFLOAT16 ? 4 : size_of(dtype);
}

/* ---- small pieces of code ---------------------------------------------------
 */

static LLVMValueRef
number(const emitter *e, int64_t x)
{
    return LLVMConstInt(e->i64, (unsigned long long)x, true);
}

static LLVMValueRef
move(const emitter *e, LLVMValueRef p, LLVMValueRef bytes)
{
    return LLVMBuildGEP2(e->b, e->i8, p, &bytes, 1, "");
}

/* The field of mr_native_call at this offset. */
static LLVMValueRef
field(const emitter *e, size_t offset, LLVMTypeRef type)
{
    return LLVMBuildLoad2(e->b, type,
                          move(e, e->call, number(e, (int64_t)offset)), "");
}

/* Element i of an array of 8-byte things that a field points to. */
static LLVMValueRef
entry(const emitter *e, size_t offset, int i, LLVMTypeRef type)
{
    LLVMValueRef list = field(e, offset, e->ptr);

    return LLVMBuildLoad2(e->b, type, move(e, list, number(e, 8 * i)), "");
}

static LLVMValueRef
stack(const emitter *e, int64_t bytes)
{
    LLVMValueRef p =
        LLVMBuildAlloca(e->b, LLVMArrayType2(e->i8, (uint64_t)bytes), "");

    LLVMSetAlignment(p, 64);
    return p;
}

/* Calls a definition: n pointers, and a number behind them if last. */
static void
call_named(emitter *e, const char *name, LLVMValueRef *arg, unsigned n,
           bool last)
{
    LLVMTypeRef types[5];
    LLVMTypeRef type;
    LLVMValueRef f = LLVMGetNamedFunction(e->m, name);

    for (unsigned i = 0; i < n; i++)
        types[i] = last && i + 1 == n ? e->i64 : e->ptr;
    type = LLVMFunctionType(e->none, types, n, false);
    if (f == NULL)
        f = LLVMAddFunction(e->m, name, type);
    LLVMBuildCall2(e->b, type, f, arg, n, "");
}

static void
call_dtype(emitter *e, int dtype, const char *what, LLVMValueRef *arg,
           unsigned n, bool last)
{
    char name[96];

    snprintf(name, sizeof name, "mr__tier_%s_%s", file_names[dtype], what);
    e->uses[dtype] = true;
    call_named(e, name, arg, n, last);
}

static void
copy_bytes(const emitter *e, LLVMValueRef to, LLVMValueRef from, int64_t size)
{
    LLVMValueRef bytes = LLVMBuildMul(e->b, e->rest, number(e, size), "");

    LLVMBuildMemCpy(e->b, to, 1, from, 1, bytes);
}

/* ---- what the loop does -----------------------------------------------------
 */

static void
op_emit(emitter *e, int i)
{
    const mr_native_op *op = &e->s->op[i];
    LLVMValueRef arg[4] = {e->reg[e->s->n_in + i]};
    char name[64];

    for (int k = 0; k < op->n_arg; k++)
        arg[1 + k] = e->reg[op->arg[k]];
    if (op->k == MR_K_CAST && op->from != op->to) {
        snprintf(name, sizeof name, "mr__jit_cast_%s_%s", dtype_names[op->from],
                 dtype_names[op->to]);
        e->uses[MR_BITCODE_CASTS] = true;
        call_named(e, name, arg, 2, false);
        return;
    }
    snprintf(name, sizeof name, "%s",
             op->k == MR_K_CAST ? "copy" : e->j->host->k_name((mr_k)op->k));
    for (char *p = name; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
    call_dtype(e, op->from, name, arg, op->n_arg + 1U, false);
}

static void
registers_emit(emitter *e)
{
    const mr_segment *s = e->s;
    int n = s->n_in + s->n_op;

    for (int r = 0; r < n; r++)
        e->reg[r] = stack(e, size_of(e->dtype[r]) * e->j->points);
    for (int f = 0; f < s->n_fold; f++)
        e->lanes[f] = stack(e, acc_size_of(s->fold[f].dtype) * MR_LANES);
    if (e->stages.n_slot > 0)
        e->slots = stack(e, e->stages.n_slot * e->stages.strip * e->slot_bytes);
}

/* A group on the stack for what is left of a row: never undefined. */
static void
operand_init(const emitter *e, operand *o, int dtype)
{
    o->size = size_of(dtype);
    o->left = stack(e, o->size * e->j->points);
    LLVMBuildMemSet(e->b, o->left, LLVMConstInt(e->i8, 0, false),
                    number(e, o->size * e->j->points), 64);
}

static void
entry_emit(emitter *e)
{
    const mr_segment *s = e->s;

    registers_emit(e);
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].how == MR_NATIVE_POINTS)
            operand_init(e, &e->in[i], s->in[i].dtype);
    for (int o = 0; o < s->n_out; o++)
        operand_init(e, &e->out[o], e->dtype[s->out[o]]);
    e->rows = field(e, offsetof(mr_native_call, rows), e->i64);
    e->n = field(e, offsetof(mr_native_call, n), e->i64);
    e->full = LLVMBuildUDiv(e->b, e->n, number(e, e->j->points), "");
    e->rest = LLVMBuildAnd(e->b, e->n, number(e, e->j->points - 1), "");
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].how == MR_NATIVE_ONE)
            call_dtype(e, s->in[i].dtype, "SPLAT",
                       (LLVMValueRef[]){
                           e->reg[i],
                           entry(e, offsetof(mr_native_call, in), i, e->ptr)},
                       2, false);
}

/* Row r: where its operands begin, what is one a row, empty lanes. */
static void
row_emit(emitter *e, LLVMValueRef r)
{
    const mr_segment *s = e->s;

    for (int i = 0; i < s->n_in; i++) {
        LLVMValueRef p, step;

        if (s->in[i].how == MR_NATIVE_ONE)
            continue;
        p = entry(e, offsetof(mr_native_call, in), i, e->ptr);
        step = entry(e, offsetof(mr_native_call, in_row), i, e->i64);
        e->in[i].row = move(e, p, LLVMBuildMul(e->b, r, step, ""));
        if (s->in[i].how == MR_NATIVE_ROW)
            call_dtype(e, s->in[i].dtype, "SPLAT",
                       (LLVMValueRef[]){e->reg[i], e->in[i].row}, 2, false);
    }
    for (int o = 0; o < s->n_out; o++) {
        LLVMValueRef p = entry(e, offsetof(mr_native_call, out), o, e->ptr);
        LLVMValueRef step =
            entry(e, offsetof(mr_native_call, out_row), o, e->i64);

        e->out[o].row = move(e, p, LLVMBuildMul(e->b, r, step, ""));
    }
}

/* Calls a function of the table of fold f. */
static void
fold_call(const emitter *e, int f, size_t which, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef table = entry(e, offsetof(mr_native_call, fold), f, e->ptr);
    LLVMValueRef fn = LLVMBuildLoad2(
        e->b, e->ptr, move(e, table, number(e, (int64_t)which)), "");
    LLVMTypeRef type = LLVMFunctionType(
        e->none, (LLVMTypeRef[]){e->ptr, LLVMTypeOf(b)}, 2, false);

    LLVMBuildCall2(e->b, type, fn, (LLVMValueRef[]){a, b}, 2, "");
}

static void
folds_begin(const emitter *e)
{
    for (int f = 0; f < e->s->n_fold; f++)
        fold_call(e, f, offsetof(mr_fold_fns, fill), e->lanes[f],
                  number(e, MR_LANES));
}

static void
folds_end(const emitter *e, LLVMValueRef r)
{
    for (int f = 0; f < e->s->n_fold; f++) {
        LLVMValueRef p =
            entry(e, offsetof(mr_native_call, fold_out), f, e->ptr);
        int64_t size = acc_size_of(e->s->fold[f].dtype);

        p = move(e, p, LLVMBuildMul(e->b, r, number(e, size), ""));
        fold_call(e, f, offsetof(mr_fold_fns, done), p, e->lanes[f]);
    }
}

/* ---- a stage ----------------------------------------------------------------
 */

/* Where group i of the operand begins. */
static LLVMValueRef
group_at(const emitter *e, const operand *o, LLVMValueRef i)
{
    return move(e, o->at,
                LLVMBuildMul(e->b, i, number(e, o->size * e->j->points), ""));
}

/* Register r from its slot, or to it: j is the group's number in the strip. */
static void
slot_copy(const emitter *e, int r, LLVMValueRef j, bool to)
{
    int64_t bytes = size_of(e->dtype[r]) * e->j->points;
    int64_t slot = e->stages.slot[r] * e->stages.strip * e->slot_bytes;
    LLVMValueRef at = move(e, e->slots, number(e, slot)), reg = e->reg[r];

    at = move(e, at, LLVMBuildMul(e->b, j, number(e, e->slot_bytes), ""));
    LLVMBuildMemCpy(e->b, to ? at : reg, 16, to ? reg : at, 16,
                    number(e, bytes));
}

/* What the stage reads and does not compute. */
static void
operands_load(emitter *e, int stage, LLVMValueRef i, LLVMValueRef j)
{
    const mr_segment *s = e->s;
    bool read[MAX_REG] = {false};

    for (int k = 0; k < s->n_op; k++)
        for (int a = 0; a < s->op[k].n_arg; a++)
            read[s->op[k].arg[a]] |= e->stages.of[s->n_in + k] == stage;
    for (int o = 0; o < s->n_out; o++)
        read[s->out[o]] |= stage == e->stages.n - 1;
    for (int f = 0; f < s->n_fold; f++)
        read[s->fold[f].reg] |= stage == e->stages.of[s->fold[f].reg];
    for (int r = 0; r < s->n_in + s->n_op; r++) {
        if (!read[r])
            continue;
        if (r >= s->n_in && e->stages.of[r] != stage)
            slot_copy(e, r, j, false);
        if (r < s->n_in && s->in[r].how == MR_NATIVE_POINTS)
            call_dtype(e, s->in[r].dtype, "LOAD",
                       (LLVMValueRef[]){e->reg[r], group_at(e, &e->in[r], i)},
                       2, false);
    }
}

static void
folds_emit(emitter *e, int stage, LLVMValueRef at, LLVMValueRef valid)
{
    int64_t points = e->j->points;

    at = LLVMBuildAnd(e->b, at, number(e, MR_LANES / points - 1), "");
    for (int f = 0; f < e->s->n_fold; f++) {
        const mr_native_fold *fold = &e->s->fold[f];
        int64_t size = acc_size_of(fold->dtype) * points;
        LLVMValueRef lanes =
            move(e, e->lanes[f], LLVMBuildMul(e->b, at, number(e, size), ""));
        char name[32];

        if (e->stages.of[fold->reg] != stage)
            continue;
        snprintf(name, sizeof name, "FOLD_%s", fold_names[fold->fold]);
        call_dtype(e, fold->dtype, name,
                   (LLVMValueRef[]){lanes, e->reg[fold->reg], valid}, 3, true);
    }
}

/* Group i of the row, j of the strip.  All that is stored is stored in the last
 * stage: an output may lie where an input does. */
static void
group_emit(emitter *e, int stage, LLVMValueRef i, LLVMValueRef j)
{
    const mr_segment *s = e->s;

    operands_load(e, stage, i, j);
    for (int k = 0; k < s->n_op; k++) {
        int r = s->n_in + k;

        if (e->stages.of[r] != stage)
            continue;
        op_emit(e, k);
        if (e->stages.slot[r] >= 0)
            slot_copy(e, r, j, true);
    }
    for (int k = 0; stage == e->stages.n - 1 && k < s->n_out; k++)
        call_dtype(
            e, e->dtype[s->out[k]], "STORE",
            (LLVMValueRef[]){group_at(e, &e->out[k], i), e->reg[s->out[k]]}, 2,
            false);
}

/* ---- the loop ---------------------------------------------------------------
 */

typedef struct blocks {
    LLVMBasicBlockRef entry, row, again, loop, done, left, left_in, left_out,
        row_end, end;
} blocks;

static LLVMBasicBlockRef
block(const emitter *e, const char *name)
{
    return LLVMAppendBasicBlockInContext(e->c, e->fn, name);
}

static LLVMValueRef
phi(const emitter *e, LLVMTypeRef type, LLVMValueRef a, LLVMBasicBlockRef from,
    LLVMValueRef b, LLVMBasicBlockRef from_b)
{
    LLVMValueRef p = LLVMBuildPhi(e->b, type, "");

    LLVMAddIncoming(p, &a, &from, 1);
    if (b != NULL)
        LLVMAddIncoming(p, &b, &from_b, 1);
    return p;
}

static void
operands_phi(emitter *e, operand *o, int n, const blocks *k)
{
    for (int i = 0; i < n; i++)
        if (o[i].row != NULL && o[i].left != NULL)
            o[i].at = phi(e, e->ptr, o[i].row, k->row, o[i].left, k->left_in);
}

static void
left_load(emitter *e)
{
    const mr_segment *s = e->s;
    LLVMValueRef skip =
        LLVMBuildMul(e->b, e->full, number(e, e->j->points), "");

    for (int i = 0; i < s->n_in; i++) {
        operand *o = &e->in[i];

        if (s->in[i].how == MR_NATIVE_POINTS)
            copy_bytes(e, o->left,
                       move(e, o->row,
                            LLVMBuildMul(e->b, skip, number(e, o->size), "")),
                       o->size);
    }
}

static void
left_store(emitter *e)
{
    LLVMValueRef skip =
        LLVMBuildMul(e->b, e->full, number(e, e->j->points), "");

    for (int i = 0; i < e->s->n_out; i++) {
        operand *o = &e->out[i];

        copy_bytes(
            e,
            move(e, o->row, LLVMBuildMul(e->b, skip, number(e, o->size), "")),
            o->left, o->size);
    }
}

static void
at_end(const emitter *e, LLVMBasicBlockRef b)
{
    LLVMPositionBuilderAtEnd(e->b, b);
}

/* is: does the condition hold of x and y? */
static void
branch(const emitter *e, LLVMIntPredicate is, LLVMValueRef x, LLVMValueRef y,
       LLVMBasicBlockRef yes, LLVMBasicBlockRef no)
{
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, is, x, y, ""), yes, no);
}

/* n groups of a row, stage by stage; the first is number `begin` of the pass,
 * whose own first is number `first` of the row. */
static void
stages_emit(emitter *e, LLVMValueRef begin, LLVMValueRef n, LLVMValueRef first,
            LLVMValueRef valid)
{
    LLVMValueRef zero = number(e, 0);

    for (int stage = 0; stage < e->stages.n; stage++) {
        LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b),
                          loop = block(e, "stage"), end = block(e, "");
        LLVMValueRef i, j, next;

        LLVMBuildBr(e->b, loop);
        at_end(e, loop);
        j = phi(e, e->i64, zero, from, NULL, NULL);
        i = LLVMBuildAdd(e->b, begin, j, "");
        group_emit(e, stage, i, j);
        folds_emit(e, stage, LLVMBuildAdd(e->b, first, i, ""), valid);
        next = LLVMBuildAdd(e->b, j, number(e, 1), "");
        LLVMAddIncoming(j, &next, &loop, 1);
        branch(e, LLVMIntULT, next, n, loop, end);
        at_end(e, end);
    }
}

/* All groups of a pass over the row, in strips if there are several stages;
 * goes on in block done. */
static void
groups_emit(emitter *e, const blocks *k, LLVMValueRef count, LLVMValueRef first,
            LLVMValueRef valid)
{
    LLVMValueRef zero = number(e, 0), strip = number(e, e->stages.strip);
    LLVMValueRef begin, left, next;
    LLVMBasicBlockRef end;

    if (e->stages.n == 1) {
        stages_emit(e, zero, count, first, valid);
        LLVMBuildBr(e->b, k->done);
        return;
    }
    begin = phi(e, e->i64, zero, k->again, NULL, NULL);
    left = LLVMBuildSub(e->b, count, begin, "");
    left =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntULT, left, strip, ""),
                        left, strip, "");
    stages_emit(e, begin, left, first, valid);
    next = LLVMBuildAdd(e->b, begin, left, "");
    end = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(begin, &next, &end, 1);
    branch(e, LLVMIntULT, next, count, k->loop, k->done);
}

static void
body_emit(emitter *e)
{
    blocks k = {block(e, "entry"), block(e, "row"),  block(e, "again"),
                block(e, "loop"),  block(e, "done"), block(e, "left"),
                block(e, "in"),    block(e, "out"),  block(e, "row_end"),
                block(e, "end")};
    LLVMValueRef zero = number(e, 0), one = number(e, 1);
    LLVMValueRef points = number(e, e->j->points);
    LLVMValueRef r, count, first, valid, staged, next;

    at_end(e, k.entry);
    entry_emit(e);
    LLVMBuildBr(e->b, k.row);

    at_end(e, k.row);
    r = phi(e, e->i64, zero, k.entry, NULL, NULL);
    row_emit(e, r);
    folds_begin(e);
    branch(e, LLVMIntNE, e->full, zero, k.again, k.left_in);

    at_end(e, k.again);
    count = phi(e, e->i64, e->full, k.row, one, k.left_in);
    first = phi(e, e->i64, zero, k.row, e->full, k.left_in);
    valid = phi(e, e->i64, points, k.row, e->rest, k.left_in);
    staged = phi(e, e->i64, zero, k.row, one, k.left_in);
    operands_phi(e, e->in, e->s->n_in, &k);
    operands_phi(e, e->out, e->s->n_out, &k);
    LLVMBuildBr(e->b, k.loop);

    at_end(e, k.loop);
    groups_emit(e, &k, count, first, valid);

    at_end(e, k.done);
    branch(e, LLVMIntEQ, e->rest, zero, k.row_end, k.left);
    at_end(e, k.left);
    branch(e, LLVMIntEQ, staged, zero, k.left_in, k.left_out);

    at_end(e, k.left_in);
    left_load(e);
    LLVMBuildBr(e->b, k.again);

    at_end(e, k.left_out);
    left_store(e);
    LLVMBuildBr(e->b, k.row_end);

    at_end(e, k.row_end);
    folds_end(e, r);
    next = LLVMBuildAdd(e->b, r, one, "");
    LLVMAddIncoming(r, &next, &k.row_end, 1);
    branch(e, LLVMIntULT, next, e->rows, k.row, k.end);

    at_end(e, k.end);
    LLVMBuildRetVoid(e->b);
}

/* ---- linking ----------------------------------------------------------------
 */

/* Definitions are taken in only where they are called, and kept nowhere. */
static bool
link_one(emitter *e, int which)
{
    mr_bitcode code = mr__bitcode(which, e->j->avx512);
    LLVMMemoryBufferRef memory = LLVMCreateMemoryBufferWithMemoryRange(
        code.data, code.bytes, "marram", false);
    LLVMModuleRef from;

    /* takes the memory, also when it fails */
    if (LLVMGetBitcodeModuleInContext2(e->c, memory, &from) != 0)
        return false;
    for (LLVMValueRef f = LLVMGetFirstFunction(from); f != NULL;
         f = LLVMGetNextFunction(f)) {
        if (!LLVMIsDeclaration(f))
            LLVMSetLinkage(f, LLVMLinkOnceODRLinkage);
    }
    return LLVMLinkModules2(e->m, from) == 0;
}

void
mr__jit_processor_set(const mr_jit *j, LLVMContextRef context, LLVMValueRef fn)
{
    static const char *const key[] = {"target-cpu", "target-features",
                                      "prefer-vector-width",
                                      "min-legal-vector-width"};
    const char *value[] = {j->avx512 ? "x86-64-v4" : "x86-64-v3", NULL,
                           j->avx512 ? "512" : "256",
                           j->avx512 ? "512" : "256"};

    for (size_t i = 0; i < sizeof key / sizeof key[0]; i++)
        if (value[i] != NULL)
            LLVMAddAttributeAtIndex(
                fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                LLVMCreateStringAttribute(context, key[i],
                                          (unsigned)strlen(key[i]), value[i],
                                          (unsigned)strlen(value[i])));
    LLVMAddAttributeAtIndex(
        fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
        LLVMCreateEnumAttribute(
            context, LLVMGetEnumAttributeKindForName("nounwind", 8), 0));
}

static void
dtypes_set(emitter *e)
{
    const mr_segment *s = e->s;

    for (int r = 0; r < s->n_in + s->n_op; r++) {
        int64_t bytes;

        e->dtype[r] = r < s->n_in ? s->in[r].dtype : s->op[r - s->n_in].to;
        bytes = size_of(e->dtype[r]) * e->j->points;
        e->slot_bytes = bytes > e->slot_bytes ? bytes : e->slot_bytes;
    }
}

LLVMModuleRef
mr__jit_emit(const mr_jit *j, LLVMContextRef context, const mr_segment *s,
             const char *name)
{
    emitter e = {.j = j, .s = s, .c = context};
    bool ok = true;

    if (s->n_in + s->n_op > MAX_REG || s->n_out > MAX_REG ||
        s->n_fold > MR_NATIVE_FOLDS) {
        j->host->fail(MR_E_UNSUPPORTED, "a segment of %d registers is too long",
                      s->n_in + s->n_op);
        return NULL;
    }
    dtypes_set(&e);
    mr__jit_stages(&e.stages, s, e.slot_bytes);
    e.m = LLVMModuleCreateWithNameInContext(name, context);
    e.b = LLVMCreateBuilderInContext(context);
    e.i64 = LLVMInt64TypeInContext(context);
    e.i8 = LLVMInt8TypeInContext(context);
    e.none = LLVMVoidTypeInContext(context);
    e.ptr = LLVMPointerTypeInContext(context, 0);
    LLVMSetTarget(e.m, LLVMOrcLLJITGetTripleString(j->lljit));
    LLVMSetDataLayout(e.m, LLVMOrcLLJITGetDataLayoutStr(j->lljit));
    e.fn =
        LLVMAddFunction(e.m, name, LLVMFunctionType(e.none, &e.ptr, 1, false));
    e.call = LLVMGetParam(e.fn, 0);
    mr__jit_processor_set(j, context, e.fn);
    body_emit(&e);
    LLVMDisposeBuilder(e.b);
    for (int i = 0; ok && i < MR_N_BITCODE; i++)
        ok = !e.uses[i] || link_one(&e, i);
    if (ok)
        return e.m;
    LLVMDisposeModule(e.m);
    j->host->fail(MR_E_DEVICE, "LLVM cannot link the scalar definitions");
    return NULL;
}
