/* The interpreter of PTX (tests/ptx) itself: what it computes, and the faults of kernels that it has to find. cli/ptx
 * runs with it what nvcc makes of nn/cuda. Read next: tests/ptx/ptx.h. */
#include <criterion/criterion.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ptx/call.h"

enum {
    THREADS = 64,
    WORDS = 4 * THREADS,
    FRESH = THREADS /* words at the end that nobody has written */
};

/* Before each body: r1 is the thread of the block, rd1 the address of its word, r4 that of its word in shared
 * memory; rd3 is the first word. */
#define BEGIN                                                                                      \
    ".version 9.0\n.target sm_90\n.address_size 64\n"                                              \
    ".visible .entry k(.param .u64 .ptr .global .align 4 k_param_0)\n.maxntid 64, 1, 1\n{\n"       \
    ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n"                 \
    ".reg .b64 %rd<9>;\n.shared .align 16 .b8 room[1024];\n"                                       \
    "ld.param.u64 %rd2, [k_param_0];\ncvta.to.global.u64 %rd3, %rd2;\nmov.u32 %r1, %tid.x;\n"      \
    "mov.u32 %r39, %ctaid.x;\nmad.lo.u32 %r38, %r39, 64, %r1;\nmul.wide.u32 %rd4, %r38, 4;\n"      \
    "add.s64 %rd1, %rd3, %rd4;\nshl.b32 %r2, %r1, 2;\n.local .align 4 .b8 own[8];\n"               \
    "mov.u32 %r3, room;\nadd.s32 %r4, %r3, %r2;\nxor.b32 %r5, %r4, 128;\n"
#define END "ret;\n}\n"
#define COPY                                                                                       \
    "shl.b32 %r6, %r1, 4;\nadd.s32 %r7, %r3, %r6;\ncp.async.cg.shared.global [%r7], [%rd3], 16, "  \
    "16;\n"

static const struct {
    const char *body, *fault; /* NULL: none */
    unsigned threads;
} planted[] = {
    /* a thread of the other warp reads what this one wrote */
    {"st.shared.u32 [%r4], %r1;\nbar.sync 0;\nld.shared.u32 %r8, [%r5];\nst.global.u32 [%rd1], "
     "%r8;\n",
     NULL, 64},
    {"st.shared.u32 [%r4], %r1;\nld.shared.u32 %r8, [%r5];\n", "no thread of the block has written",
     64},
    {"st.shared.u32 [%r4], %r1;\nbar.sync 0;\nst.shared.u32 [%r4], %r1;\nld.shared.u32 %r8, "
     "[%r5];\n",
     "no barrier between", 64},
    {"st.shared.u32 [%r4], %r1;\nbar.sync 0;\nld.shared.u32 %r8, [%r5];\nst.shared.u32 [%r4], "
     "%r1;\n",
     "no barrier between", 64},
    {"st.shared.u32 [%r3], %r1;\n", "writes what another thread wrote", 64},
    {"ld.shared.u32 %r8, [%r4];\n", "no thread of the block has written", 64},
    {"mov.u32 %r8, 2048;\nst.shared.u32 [%r8+1024], %r1;\n", "outside the block's shared memory",
     32},
    {"ld.global.u32 %r8, [%rd1+-4];\n", "outside every allocation", 64},
    {"ld.global.u32 %r8, [%rd1+1024];\n", "outside every allocation", 64},
    {"ld.global.v2.u32 {%r8, %r9}, [%rd1];\n", "no multiple of the access", 64},
    {"ld.param.u64 %rd5, [k_param_0+8];\n", "outside the parameters", 32},
    {"add.s32 %r8, %r9, 1;\n", "a register that nobody has written", 64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 mov.u32 %r8, 1;\nst.global.u32 [%rd1], %r8;\n",
     "nobody has written, PTX line", 64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 bra $OUT;\nbar.sync 0;\n$OUT:\nadd.s32 %r8, %r1, 1;\n", NULL,
     64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 bra $OTHER;\nbar.sync 0;\nbra.uni $END;\n$OTHER:\nbar.sync "
     "0;\n$END:\n",
     "waits for lanes that wait elsewhere", 64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 ret;\nshfl.sync.bfly.b32 %r8, %r1, 1, 31, -1;\n",
     "lanes that have ended", 64},
    {"shfl.sync.bfly.b32 %r8, %r1, 1, 31, -1;\n", "that there are not", 48},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 ret;\nbar.warp.sync -1;\n", "lanes that have ended", 64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 ret;\nvote.sync.ballot.b32 %r8, %p1, -1;\n",
     "lanes that have ended", 64},
    {"setp.lt.u32 %p1, %r1, 8;\n@%p1 bra $OTHER;\nbar.warp.sync -1;\nbra.uni $END;\n$OTHER:\n"
     "bar.warp.sync -1;\n$END:\n",
     "waits for lanes that wait elsewhere", 64},
    /* lanes of one warp: their order is nobody's, and a shuffle orders no memory */
    {"st.shared.u32 [%r4], %r1;\nxor.b32 %r6, %r4, 4;\nshfl.sync.bfly.b32 %r8, %r1, 1, 31, -1;\n"
     "ld.shared.u32 %r8, [%r6];\n",
     "reads what another thread wrote", 32},
    {"setp.lt.u32 %p1, %r1, 8;\nselp.b32 %r9, 255, -256, %p1;\nshfl.sync.bfly.b32 %r8, %r1, 16, "
     "31, %r9;\n",
     "different masks", 64},
    {"setp.gt.u32 %p1, %r1, 63;\n" COPY
     "cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r8, [%r7];\n",
     NULL, 64},
    {COPY "cp.async.commit_group;\ncp.async.wait_group 1;\nld.shared.u32 %r8, [%r7];\n",
     "a copy has yet to bring", 64},
    {COPY "cp.async.wait_group 0;\nld.shared.u32 %r8, [%r7];\n", "a copy has yet to bring", 64},
    {COPY "cp.async.commit_group;\ncp.async.wait_group 0;\nxor.b32 %r9, %r7, 16;\nld.shared.u32 "
          "%r8, [%r9];\n",
     "no barrier between", 64},
    {COPY "cp.async.commit_group;\n", "ends while a copy is on its way", 64},
    {COPY "cp.async.commit_group;\nbar.sync 0;\natom.shared.add.u32 %r8, [%r7], 1;\n"
          "cp.async.wait_group 0;\n",
     "a copy has yet to bring", 64},
    {"add.s32 %r8, %r1, 1;\n", "compiled for 64", 65},
    {"add.s32 %rd1, %rd1, %rd1;\n", "no register of this size", 64},
    {"tcgen05.mma %r8, %r9;\n", "an instruction that is not known", 64},
    {"bar.sync 1;\n", "a barrier of other threads than all", 64},
    {"setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $OTHER;\nbar.sync 0;\nbra.uni $END;\n$OTHER:\nbar.sync "
     "0;\n$END:\n",
     "other warps wait at another one", 64},
    /* of device memory */
    {"ld.global.u32 %r8, [%rd1+768];\n", "device memory that nobody has written", 32},
    {"st.global.u32 [%rd1+512], %r1;\nld.global.u32 %r8, [%rd1+512];\n", NULL, 64},
    {"st.global.u8 [%rd1+768], %r1;\nld.global.u16 %r8, [%rd1+768];\n",
     "device memory that nobody has written", 32},
    {"st.global.u32 [%rd3], %r1;\n", "another thread of the grid wrote", 64},
    {"mov.u32 %r8, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u32 [%rd3], %r8;\n",
     "writes device memory that another thread of the grid wrote", 64},
    {"xor.b32 %r8, %r2, 4;\ncvt.u64.u32 %rd5, %r8;\nadd.s64 %rd6, %rd3, %rd5;\nld.global.u32 %r9, "
     "[%rd6];\nst.global.u32 [%rd1], %r9;\n",
     "writes device memory that another thread of the grid read", 64},
    {"st.global.u32 [%rd1], %r1;\nld.global.u32 %r8, [%rd3];\n",
     "reads device memory that another thread of the grid wrote", 64},
    {"atom.global.add.u32 %r8, [%rd3], 1;\n", NULL, 64},
    {"atom.global.add.u32 %r8, [%rd3], 1;\nbar.sync 0;\nld.global.u32 %r8, [%rd3];\n",
     "changes device memory that another thread of the grid used", 64},
    {"st.local.u32 [own], %r1;\nld.local.u32 %r8, [own];\n", NULL, 64},
    {"st.local.u32 [own], %r1;\nld.local.u32 %r8, [own+4];\n", "which it has not written", 64},
};

Test(ptx, faults_of_kernels_are_found_and_sound_ones_run)
{
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        char text[4096], fault[PTX_FAULT_TEXT];
        float memory[WORDS] = {0};
        snprintf(text, sizeof text, "%s%s%s", BEGIN, planted[i].body, END);
        const ptx_call call = {
            text, "k", 2, planted[i].threads, 0, memory, sizeof memory, FRESH * sizeof *memory, 0};
        const bool good = ptx_call_run(&call, fault);
        if (!planted[i].fault)
            cr_expect(good, "%zu: %s", i, fault);
        else
            cr_expect(!good && strstr(fault, planted[i].fault), "%zu: expected '%s', got '%s'", i,
                      planted[i].fault, fault);
    }
}

static void
run_drawn(const char *body, unsigned blocks, unsigned threads, uint64_t seed, void *memory)
{
    char text[4096], fault[PTX_FAULT_TEXT];
    snprintf(text, sizeof text, "%s%s%s", BEGIN, body, END);
    const ptx_call call = {text, "k", blocks, threads, 0, memory, WORDS * sizeof(float), 0, seed};
    cr_assert(ptx_call_run(&call, fault), "%s", fault);
}

/* Runs a body in one block of `threads`. */
static void
run(const char *body, unsigned threads, float memory[WORDS])
{
    run_drawn(body, 1, threads, 0, memory);
}

Test(ptx, lanes_go_their_own_ways_and_meet_again)
{
    float memory[WORDS] = {0};
    /* each lane goes round as often as its number says; then all add up how often */
    run("mov.u32 %r8, 0;\n$AGAIN:\nsetp.ge.u32 %p1, %r8, %r1;\n@%p1 bra $OUT;\n"
        "add.s32 %r8, %r8, 1;\nbra.uni $AGAIN;\n$OUT:\n"
        "shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1;\nadd.s32 %r10, %r8, %r9;\n"
        "vote.sync.ballot.b32 %r11, %p1, -1;\nadd.s32 %r10, %r10, %r11;\n"
        "cvt.rn.f32.s32 %f1, %r10;\nst.global.f32 [%rd1], %f1;\n",
        64, memory);
    for (int i = 0; i < THREADS; i++)
        cr_expect_eq(memory[i], (float)(i + (i ^ 1) - 1), "lane %d: %g", i, (double)memory[i]);
}

/* Each thread draws a number: by how many others were before it. */
Test(ptx, drawn_orders_mix_lanes_and_blocks)
{
    bool between_lanes = false, between_blocks = false;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint32_t memory[WORDS] = {0}, times[2 * THREADS] = {0};
        run_drawn("atom.global.add.u32 %r8, [%rd3+1020], 1;\nst.global.u32 [%rd1], %r8;\n", 2,
                  THREADS, seed, memory);
        for (int i = 0; i < 2 * THREADS; i++) {
            cr_assert_lt(memory[i], 2 * THREADS);
            times[memory[i]]++;
            between_lanes = between_lanes || (i % 32 > 0 && memory[i] < memory[i - 1]);
            between_blocks = between_blocks || (i >= THREADS && memory[i] < memory[0]);
        }
        for (int i = 0; i < 2 * THREADS; i++)
            cr_assert_eq(times[i], 1, "seed %d: %d threads have %d", (int)seed, (int)times[i], i);
    }
    cr_expect(between_lanes && between_blocks);
}

/* Lane 0 waits until lane 1, which is behind it in the text, has written a word: with independent lanes
 * it ends. */
Test(ptx, lanes_that_wait_for_each_other_go_on)
{
    uint32_t memory[WORDS] = {0};
    run_drawn("setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $OTHERS;\n"
              "$AGAIN:\natom.global.add.u32 %r8, [%rd3+1020], 0;\nsetp.eq.u32 %p2, %r8, 0;\n"
              "@%p2 bra $AGAIN;\nbra.uni $END;\n"
              "$OTHERS:\natom.global.exch.b32 %r8, [%rd3+1020], 7;\n"
              "$END:\nst.global.u32 [%rd1], %r8;\n",
              1, 2, 1, memory);
    cr_expect_eq(memory[0], 7);
}

Test(ptx, numbers_are_those_of_the_isa)
{
    static const struct {
        const char *instruction;
        uint32_t expected;
    } cases[] = {
        {"mov.b32 %r9, 0f7F800001;\nmov.b32 %f1, %r9;\nadd.rn.f32 %f2, %f1, 0f3F800000;\nmov.b32 "
         "%r8, %f2;\n",
         0x7FFFFFFF},
        {"fma.rn.f32 %f1, 0f3F800001, 0f3F800001, 0fBF800002;\nmov.b32 %r8, %f1;\n", 0x28800000},
        {"fma.rm.f32 %f1, 0f3F800000, 0f33000000, 0f3F800000;\nmov.b32 %r8, %f1;\n", 0x3F800000},
        {"min.f32 %f1, 0f7FC00000, 0f40000000;\nmov.b32 %r8, %f1;\n", 0x40000000},
        {"ex2.approx.ftz.f32 %f1, 0fC3000000;\nmov.b32 %r8, %f1;\n", 0},
        {"cvt.rn.bf16x2.f32 %r8, 0f3F808000, 0f3F818000;\n", 0x3F803F82},
        {"cvt.rzi.s32.f32 %r8, 0fCF800000;\n", 0x80000000},
        {"cvt.rni.f32.f32 %f1, 0f40200000;\nmov.b32 %r8, %f1;\n", 0x40000000},
        {"cvt.sat.f32.f32 %f1, 0f7FC00000;\nmov.b32 %r8, %f1;\n", 0},
        {"copysign.f32 %f1, 0f80000000, 0f40000000;\nmov.b32 %r8, %f1;\n", 0xC0000000},
        {"setp.ltu.f32 %p1, 0f7FC00000, 0f0;\nselp.u32 %r8, 1, 0, %p1;\n", 1},
        {"setp.ne.f32 %p1, 0f7FC00000, 0f0;\nselp.u32 %r8, 1, 0, %p1;\n", 0},
        {"mul.hi.u32 %r8, -1, -1;\n", 0xFFFFFFFE},
        {"shr.s32 %r8, -8, 40;\n", 0xFFFFFFFF},
        {"shl.b32 %r8, 1, 32;\n", 0},
        {"prmt.b32 %r8, 0x33221100, 0x77665584, 0x4C07;\n", 0x84FF0077},
        {"bfi.b32 %r8, 5, -1, 4, 4;\n", 0xFFFFFF5F},
        {"bfe.s32 %r8, 0xF0, 4, 4;\n", 0xFFFFFFFF},
        {"shf.l.wrap.b32 %r8, 0x80000000, 1, 1;\n", 3},
        {"add.cc.u32 %r9, -1, 1;\naddc.u32 %r8, 0, 0;\n", 1},
        {"mov.u16 %rs1, -2;\ncvt.s32.s16 %r8, %rs1;\n", 0xFFFFFFFE},
        {"clz.b32 %r8, 1;\n", 31},
        {"mov.u64 %rd5, 0x500000003;\n{ .reg .b32 tmp; mov.b64 {tmp, %r8}, %rd5; }\n", 5},
        {"mov.pred %p1, -1;\nnot.pred %p2, %p1;\nselp.u32 %r8, 2, 3, %p2;\n", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024];
        float memory[WORDS];
        uint32_t got[WORDS];
        snprintf(body, sizeof body, "%sst.global.u32 [%%rd1], %%r8;\n", cases[i].instruction);
        run(body, 32, memory);
        memcpy(got, memory, sizeof got);
        cr_expect_eq(got[31], cases[i].expected, "%s 0x%x, not 0x%x", cases[i].instruction, got[31],
                     cases[i].expected);
    }
}

/* a (16, 16) by ldmatrix from rows of 16 in shared memory, b (16, 8) by ldmatrix.trans; their product. */
Test(ptx, a_product_of_matrices_is_that_of_its_operands)
{
    uint16_t a[16][16], b[16][8];
    float memory[WORDS] = {0};
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) /* small numbers as bf16: 1 to 1.9 in steps of 1/8 */
            a[i][k] = (uint16_t)(0x3F80 + 0x10 * ((3 * i + 5 * k) % 8));
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            b[k][j] = (uint16_t)(0x3F80 + 0x10 * ((7 * k + j * j) % 8));
    memcpy(memory, a, sizeof a);
    memcpy(memory + sizeof a / sizeof *memory, b, sizeof b);
    run(/* all of it to shared memory */
        "ld.global.u32 %r10, [%rd1];\nst.shared.u32 [%r4], %r10;\n"
        "ld.global.u32 %r10, [%rd1+128];\nst.shared.u32 [%r4+128], %r10;\n"
        "ld.global.u32 %r10, [%rd1+256];\nst.shared.u32 [%r4+256], %r10;\n"
        "ld.global.u32 %r10, [%rd1+384];\nst.shared.u32 [%r4+384], %r10;\n"
        "ld.global.u32 %r10, [%rd1+512];\nst.shared.u32 [%r4+512], %r10;\n"
        "ld.global.u32 %r10, [%rd1+640];\nst.shared.u32 [%r4+640], %r10;\nbar.sync 0;\n"
        /* row lane % 16 of a, columns from 8 (lane / 16) on; row lane % 16 of b */
        "and.b32 %r11, %r1, 15;\nshl.b32 %r12, %r11, 5;\nshr.u32 %r13, %r1, 4;\n"
        "shl.b32 %r14, %r13, 4;\nadd.s32 %r15, %r12, %r14;\nadd.s32 %r16, %r15, %r3;\n"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r16];\n"
        "shl.b32 %r17, %r11, 4;\nadd.s32 %r18, %r17, %r3;\n"
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r24, %r25, %r26, %r27}, [%r18+512];\n"
        "mov.f32 %f1, 0f3F800000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, "
        "{%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f1, %f1, %f1};\n"
        "shl.b32 %r30, %r1, 3;\nmul.wide.u32 %rd5, %r30, 1;\nadd.s64 %rd6, %rd3, %rd5;\n"
        "st.global.v2.f32 [%rd6], {%f4, %f5};\nst.global.v2.f32 [%rd6+256], {%f6, %f7};\n",
        32, memory);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 1;
            for (int k = 0; k < 16; k++)
                sum +=
                    (1 + (float)((3 * i + 5 * k) % 8) / 8) * (1 + (float)((7 * k + j * j) % 8) / 8);
            cr_expect_eq(memory[8 * i + j], sum, "(%d, %d): %g, not %g", i, j,
                         (double)memory[8 * i + j], (double)sum);
        }
}
