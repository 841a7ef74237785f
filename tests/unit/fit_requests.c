/* Requests of a training job to its nodes, and the watch over their waits, with actors that stand
 * in for the nodes.
 *
 * Each test has a scene with a runtime of its own. Read next: actors/fit_ask.c, fit_watch.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "actors/fit_impl.h"
#include "actors/node_look.h"
#include "support/eventually.h"
#include "support/logged.h"

struct logged logged = LOGGED_NONE;

enum {
    NODES = 3
};

/* A stand-in for a node. The test writes it between two requests. */
struct stand_in {
    exo_node_look look;     /* its answer to a look */
    exo_future *unfinished; /* its request without an answer */
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *why)
{
    (void)call;
    (void)why;
    memcpy(self, args->data, sizeof(struct stand_in *));
    return EXO_OK;
}

static exo_status
work(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *why)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)why;
    return EXO_OK;
}

static exo_status
never_end(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *why)
{
    struct stand_in *node = *(struct stand_in **)self;
    (void)args;
    (void)reply;
    node->unfinished = exo_call_defer(call);
    return node->unfinished ? EXO_OK : exo_fail(why, EXO_NOMEM, "no memory");
}

static exo_status
waits(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *why)
{
    const struct stand_in *node = *(struct stand_in **)self;
    (void)call;
    (void)args;
    return exo_node_look_pack(reply, &node->look, why);
}

static const exo_method methods[] = {{.name = "never_end", .run = never_end},
                                     {.name = "waits", .run = waits},
                                     {.name = "work", .run = work}};
static const exo_actor_class able = {.name = "able",
                                     .state_size = sizeof(struct stand_in *),
                                     .start = start,
                                     .methods = methods,
                                     .num_methods = 3};
/* without the method "work" */
static const exo_actor_class unable = {.name = "unable",
                                       .state_size = sizeof(struct stand_in *),
                                       .start = start,
                                       .methods = methods,
                                       .num_methods = 2};

/* --- Scenes ----------------------------------------------------------------------------------- */

struct scene {
    exo_fit fit;
    struct run run;
    exo_clock_manual clock;
    struct stand_in nodes[NODES];
    exo_err err;
};

static void
name_node(const void *context, uint32_t rank, char out[EXO_CAST_NAME])
{
    (void)context;
    snprintf(out, EXO_CAST_NAME, "node_%u", rank);
}

static void
scene_init(struct scene *s, const exo_actor_class *const classes[NODES])
{
    *s = (struct scene){.fit = {.num_nodes = NODES, .timeout = 60 * EXO_SECOND}};
    exo_clock_manual_init(&s->clock, EXO_SECOND);
    s->run = (struct run){
        .fit = &s->fit, .clock = &s->clock.base, .cast = {.count = NODES, .name = name_node}};
    cr_assert_eq(exo_runtime_open(&s->run.cast.runtime, NULL, &s->err), EXO_OK);
    cr_assert_eq(exo_cast_open(&s->run.cast, &s->err), EXO_OK);
    cr_assert_eq(exo_fit_watch_open(&s->run, &s->err), EXO_OK);
    for (uint32_t r = 0; r < NODES; r++) {
        struct stand_in *node = &s->nodes[r];
        exo_spawn_opts opts = {0};
        cr_assert_eq(exo_payload_copy(&opts.args, &node, sizeof node), EXO_OK);
        cr_assert_eq(
            exo_spawn(s->run.cast.runtime, classes[r], &opts, &s->run.cast.actors[r], &s->err),
            EXO_OK, "%s", s->err.text);
    }
}

static void
scene_release(struct scene *s)
{
    for (uint32_t r = 0; r < NODES; r++)
        if (s->nodes[r].unfinished)
            exo_reply(&s->nodes[r].unfinished, EXO_OK, NULL, NULL);
    cr_expect_eq(exo_cast_end(&s->run.cast, 60 * EXO_SECOND, &s->err), EXO_OK, "%s", s->err.text);
    exo_cast_close(&s->run.cast);
    exo_free(s->run.watch);
    exo_comm_drop(&s->fit.comm);
    exo_comm_drop(&s->fit.side);
}

/* --- Requests --------------------------------------------------------------------------------- */

Test(fit_requests, collectives_end_for_the_node_that_could_not_be_asked, .timeout = 60)
{
    struct scene s;
    exo_group *group = NULL;
    float number = 1;
    scene_init(&s, (const exo_actor_class *const[]){&able, &unable, &able});
    cr_assert_eq(exo_comm_local(&s.fit.comm, NODES, exo_clock_real(), &s.err), EXO_OK);
    cr_assert_eq(exo_comm_local(&s.fit.side, NODES, exo_clock_real(), &s.err), EXO_OK);
    cr_assert_eq(exo_group_open(&group, s.fit.comm, 0, "node_0", &s.err), EXO_OK);

    cr_expect_eq(exo_fit_have_all(&s.run, "work", NULL, &s.err), EXO_NOT_FOUND);
    cr_expect(strncmp(s.err.text, "node_1: ", 8) == 0, "%s", s.err.text);
    cr_expect_eq(exo_all_reduce(group, exo_host_array(EXO_F32, &number, 1), EXO_SUM, &s.err),
                 EXO_PEER_LOST);
    cr_expect_not_null(strstr(s.err.text, "rank 1 died: node_1: "), "%s", s.err.text);

    exo_group_close(&group);
    scene_release(&s);
}

/* --- Waits ------------------------------------------------------------------------------------ */

/* Looks at the nodes until the text is logged. A single look may be too slow for an answer. */
static void
look_until_logged(struct scene *s, const char *text)
{
    for (int i = 0; i < 100 && !logged_has(text); i++) {
        exo_clock_manual_advance(&s->clock, EXO_SECOND);
        cr_assert_eq(exo_fit_watch_look(&s->run, &s->err), EXO_OK, "%s", s->err.text);
    }
    cr_expect(logged_has(text), "'%s' is not in '%s'", text, logged_text());
}

/* Calls of different communicators have numbers of their own. */
Test(fit_requests, each_long_wait_is_logged, .timeout = 60)
{
    struct scene s;
    scene_init(&s, (const exo_actor_class *const[]){&able, &able, &able});
    for (uint32_t r = 0; r < NODES; r++)
        cr_assert_eq(exo_fit_ask(&s.run, r, "never_end", NULL, &s.err), EXO_OK);
    exo_fit_watch_begin(&s.run);
    logged_begin();
    s.nodes[0].look = (exo_node_look){.of = EXO_NODE_IN_STRATEGY,
                                      .number = 3,
                                      .waits = 1,
                                      .waited = 60 * EXO_SECOND,
                                      .num_missing = 1,
                                      .missing = {1},
                                      .operation = "all_reduce"};
    look_until_logged(&s, "call 3 of the strategy, for node_1");
    s.nodes[0].look.of = EXO_NODE_IN_SIDE;
    look_until_logged(&s, "call 3 of the averages, for node_1");
    logged_end();
    scene_release(&s);
}
