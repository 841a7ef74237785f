/* The flight recorder: another process can read which methods the threads run. Each test owns its
 * shared memory. Read next: runtime/actor/flight.h. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "actor/flight.h"

static void *
shared(void)
{
    void *memory =
        mmap(NULL, EXO_FLIGHT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    return memory;
}

Test(flight, a_method_is_noted_while_it_runs)
{
    char text[64];
    void *memory = shared();
    exo_flight_use(memory);
    cr_expect_eq(exo_flight_read(memory, text, sizeof text), 0);
    cr_expect_str_eq(text, "");
    exo_flight_begin("counter", "add");
    exo_flight_begin("inner", "get");
    cr_expect_eq(exo_flight_read(memory, text, sizeof text), 1);
    cr_expect_str_eq(text, "counter.add");
    exo_flight_end();
    cr_expect_eq(exo_flight_read(memory, text, sizeof text), 1);
    exo_flight_end();
    cr_expect_eq(exo_flight_read(memory, text, sizeof text), 0);
    exo_flight_begin("other", "set");
    exo_flight_read(memory, text, sizeof text);
    cr_expect_str_eq(text, "other.set");
}

Test(flight, long_names_are_cut)
{
    char text[4 * EXO_FLIGHT_SLOT], name[3 * EXO_FLIGHT_SLOT];
    void *memory = shared();
    memset(name, 'x', sizeof name);
    exo_flight_use(memory);
    for (size_t length = 1; length < sizeof name; length++) {
        name[length - 1] = 'x';
        name[length] = 0;
        exo_flight_begin(name, "method");
        exo_flight_read(memory, text, sizeof text);
        cr_expect_str_eq(strchr(text, '.'), ".method", "%zu: %s", length, text);
        exo_flight_end();
        exo_flight_begin("a", name);
        exo_flight_read(memory, text, sizeof text);
        cr_expect(strncmp(text, "a.x", 3) == 0 && strlen(text) < EXO_FLIGHT_SLOT, "%zu: %s", length,
                  text);
        exo_flight_end();
    }
    exo_flight_begin(name, name);
    cr_expect_eq(exo_flight_read(memory, text, 8), 1);
    cr_expect_str_eq(text, "xxxxxxx");
}

Test(flight, it_outlives_a_process_that_was_killed)
{
    char text[64];
    void *memory = shared();
    pid_t child = fork();
    if (child == 0) {
        exo_flight_use(memory);
        exo_flight_begin("victim", "linger");
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    exo_flight_read(memory, text, sizeof text);
    cr_expect_str_eq(text, "victim.linger");
}
