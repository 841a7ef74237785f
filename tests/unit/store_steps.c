/* Readers of objects whose owner drops them and makes others at any moment: the owner acts between
 * two instructions of the reader, in turn between any two. So every order of the owner's whole
 * action and the reader's instructions is seen, which threads beside each other meet once in
 * millions.
 *
 * The test owns the segment and the reader's view of it. Read next: runtime/store/segment.h. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "store/segment.h"

#if defined(__x86_64__)

enum {
    TRAP = 0x100, /* the flag of the processor that asks for a signal after each instruction */
    MOST = 1 << 20,
    DENSE = 256
};

static struct {
    exo_segment owner, reader;
    uint32_t generation;
    uint64_t size;
    bool there;         /* whether there is an object: not if its slot was borrowed */
    volatile long left; /* instructions before the owner acts */
} slot;

/* Makes an object of the next size; each of its bytes is its generation. */
static void
make_object(void)
{
    slot.size = slot.size == 24 ? 16 : 24;
    slot.there = exo_slot_take(&slot.owner, 0, slot.size, &slot.generation);
    if (slot.there)
        memset(exo_segment_slot(&slot.owner, 0), (int)(slot.generation & 0xff), 24);
}

static void
drop_object(void)
{
    exo_slot_retire(&slot.owner, 0);
}

static void
after_instruction(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    (void)number;
    (void)info;
    if (--slot.left > 0)
        return;
    at->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    drop_object();
    make_object();
}

static void
step(bool on)
{
    unsigned long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | TRAP : flags & ~(unsigned long)TRAP);
}

static exo_status
copy(uint32_t generation, uint64_t size)
{
    uint8_t bytes[24] = {0};
    step(true);
    exo_status st = exo_slot_copy(&slot.reader, 0, generation, size, bytes);
    step(false);
    for (uint64_t i = 0; st == EXO_OK && i < size; i++)
        if (bytes[i] != (generation & 0xff))
            return EXO_FAILED;
    return st;
}

static exo_status
borrow(uint32_t generation, uint64_t size)
{
    step(true);
    exo_status st = exo_slot_borrow(&slot.reader, 0, generation, size);
    step(false);
    for (uint64_t i = 0; st == EXO_OK && i < size; i++)
        if (((const uint8_t *)exo_segment_slot(&slot.reader, 0))[i] != (generation & 0xff))
            return EXO_FAILED;
    if (st == EXO_OK)
        exo_slot_give_back(&slot.reader, 0);
    return st;
}

/* Lets the owner act after each of the reader's instructions in turn. */
static void
expect_dropped_or_whole(uint64_t slot_size, exo_status (*read)(uint32_t generation, uint64_t size))
{
    exo_process self;
    exo_err err = {0};
    int folder = -1;
    cr_assert_eq(exo_process_self(&self, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_segment_create(&slot.owner, &self, slot_size, 1, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_process_open(&self, &folder, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(
        exo_segment_map(&slot.reader, &self, folder, slot.owner.fd, slot.owner.nonce, &err), EXO_OK,
        "%s", err.text);
    make_object();
    struct sigaction action = {.sa_sigaction = after_instruction, .sa_flags = SA_SIGINFO}, before;
    cr_assert_eq(sigaction(SIGTRAP, &action, &before), 0);
    slot.left = MOST; /* at first only finds the functions of libraries */
    cr_assert_eq(read(slot.generation, slot.size), EXO_OK);
    bool acted = true;
    /* all instructions of ours; a sanitizer has many */
    for (long n = 1; acted && n < MOST; n += n < DENSE ? 1 : n / 16) {
        uint32_t generation = slot.generation;
        slot.left = n;
        exo_status st = read(generation, slot.size);
        acted = slot.left <= 0;
        cr_assert(st == EXO_OK || (st == EXO_NOT_FOUND && acted), "after %ld instructions: %s", n,
                  exo_status_text(st));
        if (!slot.there)
            make_object();
    }
    cr_expect_not(acted);
    sigaction(SIGTRAP, &before, NULL);
    exo_segment_release(&slot.reader);
    exo_segment_release(&slot.owner);
    close(folder);
}

Test(store_steps, a_copy_is_whole_or_its_object_was_dropped)
{
    expect_dropped_or_whole(64, copy);
}

Test(store_steps, a_borrowed_object_is_whole_or_was_dropped)
{
    expect_dropped_or_whole(2 * EXO_SEGMENT_COPIED, borrow);
}

#else

Test(store_steps, needs_single_steps)
{
    cr_skip_test("only on x86-64");
}

#endif
