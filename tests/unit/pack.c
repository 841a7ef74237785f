/* Packing of messages: a message whose strings change during packing writes no byte beyond its
 * memory. Each test is one thread; a hook in the allocator changes the strings. Read next:
 * runtime/wire/pack.h. */
#include <signal.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "cluster/messages.h"
#include "wire/pack.h"
#include "wire/wire.h"

/* A build with assertions aborts when a message has changed. */
#ifdef NDEBUG
#define STOPS 0
#else
#define STOPS SIGABRT
#endif

static char text[200];

static void
grow(void)
{
    memset(text, 'x', sizeof text - 1);
}

static void
shrink(void)
{
    text[0] = 0;
}

static Exo__Cluster__Name
message_of(char *name)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = name;
    return m;
}

Test(pack, writes_within_its_bounds_only)
{
    Exo__Cluster__Name m = message_of(exo_pb_text("one name"));
    uint8_t whole[64], cut[64];
    size_t size = protobuf_c_message_get_packed_size(&m.base);
    cr_assert_lt(size, sizeof whole);
    cr_expect(exo_pack_bounded(&m.base, whole, size));
    cr_expect_not(exo_pack_bounded(&m.base, cut, size + 1), "it takes less");
    for (size_t room = 0; room < size; room++) {
        memset(cut, 0xaa, sizeof cut);
        cr_expect_not(exo_pack_bounded(&m.base, cut, room), "%zu of %zu bytes", room, size);
        for (size_t i = room; i < sizeof cut; i++)
            cr_assert_eq(cut[i], 0xaa, "byte %zu is written, of %zu", i, room);
    }
    cr_expect(exo_pack_bounded(&m.base, cut, size));
    cr_expect_arr_eq(cut, whole, size);
}

/* The hook runs in the allocation between the computation of the size and the packing. */
Test(pack, a_message_that_grows_is_refused, .signal = STOPS)
{
    Exo__Cluster__Name m = message_of(text);
    exo_payload packed = {0};
    exo_memory_call_at(1, grow);
    cr_expect_eq(exo_message_pack(&packed, &m.base), EXO_INVAL);
    cr_expect_null(packed.data);
}

Test(pack, a_message_that_shrinks_is_refused, .signal = STOPS)
{
    Exo__Cluster__Name m = message_of(text);
    exo_payload packed = {0};
    grow();
    exo_memory_call_at(1, shrink);
    cr_expect_eq(exo_message_pack(&packed, &m.base), EXO_INVAL);
    cr_expect_null(packed.data);
}

Test(pack, an_envelope_that_grows_is_refused, .signal = STOPS)
{
    exo_wire_writer w = {0};
    const exo_envelope call = {.kind = EXO_WIRE_CALL, .method = text, .text = "head"};
    exo_memory_call_at(1, grow);
    cr_expect_eq(exo_wire_add(&w, &call, NULL), EXO_INVAL);
    cr_expect_eq(w.count, 0);
    exo_wire_release(&w);
}

Test(pack, a_copy_of_a_text_that_grows_ends)
{
    strcpy(text, "short");
    exo_memory_call_at(1, grow);
    char *copy = exo_strdup(text);
    cr_expect_str_eq(copy, "xxxxx");
    exo_free(copy);
}
