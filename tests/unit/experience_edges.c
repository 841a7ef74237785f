/* The rules of makers and trainers: graphs in which a maker would wait for ever, or make what nobody
 * learns from, and options that do not fit other actors or edges are refused with the place; all
 * others are accepted. No shared state. Read next: experience/edges.c, experience/options.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/strategy.h>

#include "graph/spec.h"
#include "support/decoders.h"
#include "support/temp.h"

struct graph {
    unsigned makers, trainers;
    const char *maker, *trainer; /* further options */
    const char *edges;
    const char *refused; /* how the message begins; NULL: the graph is fine */
};

#define MODULO "  - {from: maker, to: trainer, carries: experience, route: modulo}\n"
#define WEIGHTS                                                                                    \
    "  - {from: trainer, to: maker, carries: parameters, buffer: {on_full: latest}, route: "
#define BROADCAST WEIGHTS "broadcast}\n"
#define SUMMED    "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n"
#define SHARED    "  - {from: maker, to: maker, carries: activations, route: all_reduce}\n"
#define CROSSED   WEIGHTS "listed, targets: {trainer_0: [maker_1], trainer_1: [maker_0]}}\n"
#define ALL                                                                                        \
    "  - {from: maker, to: trainer, carries: experience, route: listed, targets: [trainer_0, "     \
    "trainer_1]}\n"
#define TURNS "  - {from: maker, to: trainer, carries: experience, route: round_robin}\n"
#define BUFFER                                                                                     \
    "  - {from: maker, to: buffer, carries: experience}\n"                                         \
    "  - {from: buffer, to: trainer, carries: experience}\n"
#define MEET   "  - {from: trainer, to: trainer, carries: parameters, route: all_reduce}\n"
#define APART  "strategy: {name: diloco, H: 2}, updates: 4"
#define EDGE_2 "g:14:5: edge 'trainer>maker:parameters': "

static const struct graph graphs[] = {
    /* what is allowed: also frozen makers, which hear nobody */
    {1, 1, "", "", MODULO BROADCAST, NULL},
    {2, 1, "", "", MODULO, NULL},
    {2, 2, "", "", MODULO BROADCAST SUMMED, NULL},
    {4, 2, "steps: 9", "", MODULO SUMMED, NULL},
    {3, 2, "steps: 9", "", BUFFER SUMMED, NULL},
    {1, 2, "steps: 9", "", ALL SUMMED, NULL},
    {3, 2, "steps: 9", "", TURNS SUMMED, NULL},
    {2, 2, "steps: 1, batch: 1", "", TURNS SUMMED, NULL},
    {2, 2, "", "", MODULO WEIGHTS "modulo}\n" SUMMED, NULL},
    {1, 2, "", "", ALL BROADCAST SUMMED, NULL},
    {1, 2, "", "", ALL WEIGHTS "listed, targets: {trainer_1: [maker_0]}}\n" SUMMED, NULL},
    {3, 2, "", "", BUFFER BROADCAST SUMMED, NULL},
    {2, 2, "", APART, MODULO WEIGHTS "modulo}\n" MEET, NULL},
    {2, 2, "", "strategy: ddp, updates: 4, slices: 4", MODULO BROADCAST SUMMED, NULL},
    {3, 2, "", APART, ALL BROADCAST MEET, NULL},
    {3, 2, "", "balance: true", ALL WEIGHTS "modulo}\n" SUMMED, NULL},
    {4, 2, "parallel: {tensor: 2}", "update: {form: whole}, " APART, ALL BROADCAST SHARED MEET,
     NULL},
    /* a maker that hears nobody, beside others that do */
    {2, 1, "", "", MODULO WEIGHTS "listed, targets: {trainer_0: [maker_0]}}\n",
     EDGE_2 "maker_1 would get no weights, and make nothing: let the edge have route: broadcast"},
    /* weights of a trainer that the maker cannot answer */
    {2, 2, "", "", MODULO CROSSED,
     "g:13:5: edge 'maker>trainer:experience': maker_0 would not reach trainer_1, whose weights it "
     "gets (edge 'trainer>maker:parameters'), and not answer its versions: trainer_1 would send no "
     "further one; let both edges join the same actors"},
    /* trainers apart: each has a quota of its own */
    {1, 2, "", APART, ALL WEIGHTS "listed, targets: {trainer_0: [maker_0]}}\n",
     EDGE_2 "maker_0 makes draws of trainer_1, which learns apart by its strategy, but would not "
            "get its weights, and wait for ever: let the edge have route: broadcast"},
    {3, 2, "", APART, ALL WEIGHTS "modulo}\n", EDGE_2 "maker_0 makes draws of trainer_1"},
    {2, 2, "", APART, ALL CROSSED, EDGE_2 "maker_0 makes draws of trainer_0"},
    /* draws of a trainer that gets nothing from the maker */
    {3, 2, "", "", MODULO BROADCAST,
     "g:13:5: edge 'maker>trainer:experience': maker_0 makes draws of trainer_1, but would not "
     "reach "
     "it: let the edge have route: listed, with all of 'trainer' as targets, or put a "
     "replay_buffer "
     "between them"},
    /* frozen makers, which do not know the trainers: the route decides */
    {2, 2, "steps: 2, batch: 1", "", TURNS SUMMED,
     "g:13:5: edge 'maker>trainer:experience': draw 2 of maker_0, which gets no weights, is of "
     "trainer_0, but its route leads elsewhere: let it have route: modulo, and a multiple of 2 "
     "makers, or put a replay_buffer between them"},
    {3, 2, "steps: 9", "", MODULO SUMMED,
     "g:13:5: edge 'maker>trainer:experience': draw 3 of maker_0"},
    {1, 2, "", "", "  - {from: maker, to: trainer, carries: experience, route: broadcast}\n" SUMMED,
     "g:13:5: edge 'maker>trainer:experience': draw 0 of maker_0"},
    /* makers that share a model follow one trainer */
    {2, 2, "parallel: {tensor: 2}", "update: {form: whole}, " APART, ALL BROADCAST SHARED,
     EDGE_2 "makers that share a model follow one trainer, but with a strategy 1 groups of 'maker' "
            "follow several of 2: let the number of groups be a multiple of it"},
    {4, 1, "parallel: {tensor: 2}", "update: {form: bf16}", MODULO BROADCAST SHARED, NULL},
    {2, 1, "parallel: {tensor: 2}", "", MODULO BROADCAST SHARED,
     "g:6:51: update: makers with a part of the model (parallel of 'maker') cannot verify changes "
     "(form: delta), because they do not have the whole base: set update: {form: whole}"},
    {2, 1, "parallel: {tensor: 2}", "update: {form: bf16_delta}", MODULO BROADCAST SHARED,
     "g:6:95: update: makers with a part of the model (parallel of 'maker') cannot verify changes "
     "(form: bf16_delta)"},
    {2, 1, "parallel: {tensor: 2}", "update: {form: whole}",
     MODULO BROADCAST
     "  - {from: maker, to: maker, carries: activations, route: all_reduce, codec: "
     "bf16}\n",
     "g:15:78: edge 'maker>maker:activations': makers that share a model would draw different "
     "tokens if a codec rounds: leave the codec out"},
    {2, 1, "parallel: {tensor: 2}}, restart: {when: on_failure", "update: {form: whole}",
     MODULO BROADCAST SHARED,
     "g:5:274: restart: makers that share a model (parallel of 'maker') "
     "do not support restart rules: a maker that dies ends its group"},
    {2, 1, "parallel: {tensor: 2}", "update: {form: whole}}, restart: {when: on_failure",
     MODULO BROADCAST SHARED, "g:6:113: restart: makers that share a model (parallel of 'maker') "},
    /* trainers with a strategy */
    {2, 2, "", APART, MODULO WEIGHTS "modulo}\n",
     "g:6:90: strategy: it exchanges parameters: {from: trainer, to: trainer, carries: parameters, "
     "route: all_reduce} is missing among the edges"},
    {2, 2, "", "strategy: {name: quantized}, updates: 4", MODULO WEIGHTS "modulo}\n" MEET,
     "g:6:90: strategy: it exchanges gradients: "},
    {2, 2, "", "strategy: routeless, updates: 4", MODULO WEIGHTS "modulo}\n" MEET,
     "g:6:90: the strategy 'routeless': edges declares an exchange with no `route`"},
    {1, 1, "", "strategy: {name: diloco, H: 2}", MODULO BROADCAST MEET,
     "g:6:90: strategy: each trainer needs the number of `updates`, so that all take part in the "
     "same exchanges: set updates"},
    /* items that the class deals out */
    {1, 1, "", "", "  - {from: maker, to: trainer, carries: experience, every: 2}\n" BROADCAST,
     "g:13:60: edge 'maker>trainer:experience': 'every' does not fit this edge, because 'maker' "
     "chooses who gets what: leave 'every' out"},
    /* several names */
    {1, 1, "", "", MODULO BROADCAST "  - {from: more, to: trainer, carries: experience}\n",
     "g:15:5: edge 'more>trainer:experience': makers 'maker' and 'more' would make the same draws"},
    {1, 1, "", "",
     MODULO BROADCAST "  - {from: other, to: maker, carries: parameters}\n"
                      "  - {from: more, to: other, carries: experience}\n",
     "g:15:5: edge 'other>maker:parameters': 'maker' would get the weights of 'trainer' and of "
     "'other', which do not learn as one"},
    {1, 1, "", "",
     "  - {from: maker, to: other, carries: experience}\n" BROADCAST
     "  - {from: more, to: trainer, carries: experience}\n",
     "g:13:5: edge 'maker>other:experience': 'other' would get experience of 'maker', which "
     "follows "
     "the weights of 'trainer' (edge 'trainer>maker:parameters'): let 'other' send the weights, "
     "{from: other, to: maker, carries: parameters, "},
    /* several trainers, and options that their number or an edge decides */
    {2, 2, "", "", MODULO BROADCAST,
     "g:6:12: the 2 trainers 'trainer' need an edge that carries gradients: {from: trainer, to: "
     "trainer, carries: gradients, route: all_reduce}; or a `strategy`"},
    {2, 2, "", "slices: 3", MODULO BROADCAST SUMMED,
     "g:6:88: slices: 3 is no multiple of the 2 trainers 'trainer'"},
    {2, 1, "", "balance: true", MODULO,
     "g:6:89: balance needs an edge that carries parameters: {from: trainer, to: MAKER"},
    {2, 1, "", "staleness: 1, oversample: 1.5", MODULO, "g:6:106: oversample needs an edge"},
    {2, 2, "", "staleness: 1, oversample: 1.5, " APART, MODULO MEET,
     "g:6:106: oversample needs an edge"},
    {3, 2, "", "balance: true", ALL BROADCAST SUMMED,
     EDGE_2 "maker_0 would get versions of 2 trainers, but with balance one deals it its draws: "
            "let the edge have route: modulo"},
    {1, 1, "", "lr: 1e-3", MODULO BROADCAST,
     "g:6:80: unknown key 'lr'; did you mean 'optimizer.lr'?"},
    /* answers that are compared */
    {1, 1, "", "", MODULO BROADCAST "  - {from: single, to: other, carries: experience}\n",
     "g:10:63: 'single' makes one answer to a prompt, but 'other' compares the "
     "answers of a prompt: let makers have at least 2 answers"},
    {1, 1, "", "",
     MODULO BROADCAST "  - {from: single, to: buffer, carries: experience}\n"
                      "  - {from: buffer, to: other, carries: experience}\n",
     "g:10:63: 'single' makes one answer"},
    /* draws before the first version: no more than that allows, unless there are no more */
    {1, 1, "epochs: 0, start: {draws: 8}", "", MODULO BROADCAST, NULL},
    {1, 1, "start: {draws: 9}", "", MODULO BROADCAST, NULL},
    {1, 1, "epochs: 0, start: {draws: 9}", "staleness: 1", MODULO BROADCAST, NULL},
    {1, 1, "epochs: 9, start: {draws: 9}", "", MODULO BROADCAST,
     "g:5:267: start.draws: with version 0 of 'trainer' makers may make 8 draws"},
    {1, 1, "epochs: 0, start: {draws: 1}", "balance: true", MODULO BROADCAST,
     "g:5:267: start.draws and balance of 'trainer' exclude each other"},
    /* edges that would drop items */
    {1, 1, "", "",
     "  - {from: maker, to: trainer, carries: experience, buffer: {on_full: latest}}\n" BROADCAST,
     "g:13:71: edge 'maker>trainer:experience': on_full: what it drops of 'maker' is never made "
     "again"},
    {1, 1, "", "",
     "  - {from: maker, to: buffer, carries: experience}\n"
     "  - {from: buffer, to: trainer, carries: experience, buffer: {on_full: "
     "drop_oldest}}\n" BROADCAST,
     "g:14:72: edge 'buffer>trainer:experience': on_full: what it drops of 'buffer'"},
    {1, 1, "", "",
     "  - {from: maker, to: trainer, carries: experience, buffer: {on_full: fail}}\n" BROADCAST,
     NULL},
    /* makers that share a model */
    {3, 1, "parallel: {tensor: 2}", "update: {form: whole}", MODULO BROADCAST SHARED,
     "g:5:251: parallel: {tensor: 2} does not divide the 3 makers 'maker'"},
    {2, 1, "parallel: {tensor: 2}", "update: {form: whole}", MODULO BROADCAST,
     "g:5:251: parallel: {tensor: 2} needs an edge for the makers' activations: {from: maker, to: "
     "maker, carries: activations, route: all_reduce}"},
};

/* The actors begin at line 5, the edges at line 13. */
static void
write_graph(char *out, size_t size, const struct graph *g)
{
    int length = snprintf(
        out, size,
        "exogym: 1\nseed: 1\nclock: virtual\nactors:\n"
        "  maker: {class: experience_maker, count: %u, config: &m {model: &p {name: gpt, layers: "
        "1, "
        "heads: 2, width: 8, context: 8, vocabulary: 7}, prompts: {tokens: [[1]]}, reward: {name: "
        "share, token: 5}, answers: 2, generate: {max_new_tokens: 3}%s%s}}\n"
        "  trainer: {class: ppo_trainer, count: %u, config: {model: *p, algorithm: grpo%s%s}}\n"
        "  buffer: {class: replay_buffer}\n"
        "  more: {class: experience_maker, config: *m}\n"
        "  other: {class: ppo_trainer, config: {model: *p, algorithm: grpo}}\n"
        "  single: {class: experience_maker, config: {<<: *m, answers: 1}}\n"
        "\n"
        "edges:\n%s",
        g->makers, *g->maker ? ", " : "", g->maker, g->trainers, *g->trainer ? ", " : "",
        g->trainer, g->edges);
    cr_assert(length > 0 && (size_t)length < size);
}

/* Leaves out actors that have no edge. */
static void
leave_out(char *text)
{
    static const char *const names[] = {"buffer", "more", "other", "single"};
    char from[32], to[32], line[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(from, sizeof from, "from: %s,", names[i]);
        snprintf(to, sizeof to, "to: %s,", names[i]);
        snprintf(line, sizeof line, "  %s: ", names[i]);
        if (!strstr(text, from) && !strstr(text, to))
            *strstr(text, line) = '#'; /* lines keep their numbers */
    }
}

static exo_status
take_no_step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    (void)node;
    (void)err;
    return EXO_OK;
}

static size_t
declare_no_route(const void *self, size_t numel, uint32_t num_nodes,
                 exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    (void)self;
    (void)num_nodes;
    out[0] = (exo_strategy_edge){.carries = "parameters", .elements = (double)numel, .every = 1};
    return 1;
}

static const exo_strategy_class routeless = {
    .name = "routeless", .step = take_no_step, .edges = declare_no_route};

/* Large models have no route. */
static size_t
declare_route_of_few(const void *self, size_t numel, uint32_t num_nodes,
                     exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    size_t count = declare_no_route(self, numel, num_nodes, out);
    out[0].route = numel < 2000 ? "all_reduce" : NULL;
    return count;
}

static const exo_strategy_class of_few = {
    .name = "of_few", .step = take_no_step, .edges = declare_route_of_few};

/* The trainers learn by PPO, with a critic of this width. */
static exo_status
parse_with_critic(unsigned width, exo_err *err)
{
    char text[4096], trainer[256];
    exo_graph_spec *spec = NULL;
    snprintf(trainer, sizeof trainer,
             "strategy: of_few, updates: 4, critic: {name: gpt, layers: 1, heads: 2, width: %u, "
             "context: 8, vocabulary: 7, values: true}",
             width);
    const struct graph g = {2, 2, "", trainer, MODULO WEIGHTS "modulo}\n" MEET, NULL};
    write_graph(text, sizeof text, &g);
    leave_out(text);
    char *algorithm = strstr(text, "grpo");
    cr_assert(algorithm);
    memcpy(algorithm, "ppo ", strlen("ppo "));
    exo_status st = exo_graph_parse(&spec, "g", text, NULL, err);
    exo_graph_spec_free(&spec);
    return st;
}

Test(experience_edges, exchanges_of_a_critic_are_checked_too)
{
    exo_err err = {0};
    cr_assert_eq(exo_strategy_register(&of_few, NULL), EXO_OK);
    cr_expect_eq(parse_with_critic(8, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(parse_with_critic(16, &err), EXO_INVAL, "%s", err.text);
    cr_expect(strstr(err.text, "the strategy 'of_few': edges declares an exchange with no `route`"),
              "%s", err.text);
}

Test(experience_edges, graphs_that_would_wait_for_ever_are_refused)
{
    cr_assert_eq(exo_strategy_register(&routeless, NULL), EXO_OK);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        char text[4096];
        const struct graph *g = &graphs[i];
        exo_graph_spec *spec = NULL;
        exo_err err = {0};
        write_graph(text, sizeof text, g);
        leave_out(text);
        exo_status st = exo_graph_parse(&spec, "g", text, NULL, &err);
        exo_graph_spec_free(&spec);
        if (!g->refused)
            cr_expect_eq(st, EXO_OK, "%zu: %s\n%s", i, err.text, text);
        else
            cr_expect(st == EXO_INVAL && strncmp(err.text, g->refused, strlen(g->refused)) == 0,
                      "%zu: %s\n%s\n%s", i, err.text, g->refused, text);
    }
}

/* Prompts, a reward and further options of a maker; the message, NULL: answers can be scored. */
static const struct {
    const char *prompts, *reward, *options, *refused;
} tasks[] = {
    {"{tokens: [[1]]}", "{name: share, token: 6}", "", NULL},
    {"{tokens: [[1]]}", "{name: share, token: 7}", "",
     "share: no answer has the token 7: the model's vocabulary is 7"},
    {"{tokens: [[1]]}", "[{name: share, token: 6}, {name: share, token: 99}]", "",
     "share: no answer has the token 99"},
    {"{tokens: [[1]]}", "{name: expression, formula: tokens(6) - length}", "", NULL},
    {"{tokens: [[1]]}", "{name: expression, formula: tokens(7) - length}", "",
     "formula: no answer has the token 7"},
    {"{tokens: [[1]]}", "{name: expression, formula: words - length}", "",
     "the reward's expression looks at the text of answers"},
    {"{tokens: [[2]]}", "{name: exact, vocabulary: 7, length: 3, prompt: 2}", "", NULL},
    {"{tokens: [[2], [1]]}", "{name: exact, vocabulary: 7, length: 3, prompt: 2}", "",
     "exact: a prompt is not the token 2 alone: set prompts: {tokens: [[2]]}"},
    {"{tokens: [[2, 2]]}", "{name: exact, vocabulary: 7, length: 3, prompt: 2}", "",
     "exact: a prompt is not"},
    {"{tokens: [[2]]}", "{name: exact, vocabulary: 7, length: 2, prompt: 2}", "",
     "exact: a sequence of the task has 2 tokens: set generate: {max_new_tokens: 2}"},
    {"{tokens: [[2]]}", "{name: exact, vocabulary: 7, length: 3, prompt: 2}", ", stop: [1]",
     "exact: a sequence"},
    {"{tokens: [[0]]}", "{name: exact, vocabulary: 3, length: 3}", "",
     "exact: the model's vocabulary is 7, the task's 3: set model.vocabulary"},
    {"{alphabet: '12+=?', lines: ['1+2=']}", "{name: calculation, by: policy}", "", NULL},
    {"{alphabet: '12+=?', lines: ['1+2=', '?1+2']}", "{name: calculation, by: policy}", "",
     "calculation: the prompt '?1+2' does not begin with an expression"},
    {"{alphabet: '12+=?', lines: ['1+2=']}", "calculation", "",
     "calculation: the maker has no tool"},
    {"{tokens: [[1]]}", "{name: calculation, by: policy}", "",
     "calculation: the prompts are numbers, not texts"},
};

Test(experience_edges, rewards_that_can_score_no_answer_are_refused)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        char text[2048];
        exo_graph_spec *spec = NULL;
        exo_err err = {0};
        snprintf(
            text, sizeof text,
            "exogym: 1\nclock: virtual\nactors:\n"
            "  m: {class: experience_maker, config: {prompts: %s, answers: 2,\n"
            "    reward: %s,\n"
            "    generate: {max_new_tokens: 3%s}, model: {name: gpt, layers: 1, heads: 2, "
            "width: 8, context: 8, vocabulary: 7}}}\n"
            "  t: {class: ppo_trainer, config: {algorithm: grpo, model: {name: gpt, layers: 1, "
            "heads: 2, width: 8, context: 8, vocabulary: 7}}}\n"
            "edges: [{from: m, to: t, carries: experience}]\n",
            tasks[i].prompts, tasks[i].reward, tasks[i].options);
        exo_status st = exo_graph_parse(&spec, "g", text, NULL, &err);
        exo_graph_spec_free(&spec);
        if (!tasks[i].refused)
            cr_expect_eq(st, EXO_OK, "%zu: %s\n%s", i, err.text, text);
        else
            cr_expect(st == EXO_INVAL && strncmp(err.text, "g:5:13: ", 8) == 0 &&
                          strstr(err.text, tasks[i].refused),
                      "%zu: %s\n%s\n%s", i, err.text, tasks[i].refused, text);
    }
}

/* What a maker's and a trainer's model have besides; the message, NULL: they fit. */
static const struct {
    const char *maker, *trainer, *refused;
} models[] = {
    {"", "", NULL},
    {"", ", dropout: 0.1, checkpoint: true", NULL},
    {", values: true", ", values: true", NULL},
    {"", ", values: true", "they differ in the tensor 'value.weight'"},
    {", layers: 2", ", layers: 1", "they differ in the tensor 'norm.weight'"},
    {"", ", context: 16", "they differ in the shape of 'position.weight'"},
    {"", ", lora: {rank: 2}", "they differ in the tensor 'blocks.0.attention.qkv.lora_a'"},
    {", lora: {rank: 2}", ", lora: {rank: 2, alpha: 8}", "they differ in alpha of lora"},
    {", heads: 4", "", "they differ in heads"},
    {"", ", activation: relu", "they differ in activation"},
    {", norm_eps: 1e-3", "", "they differ in norm_eps"},
};

/* The usual option of a model, unless the further ones have its key. */
static const char *
unless(const char *further, const char *key, const char *usual)
{
    return strstr(further, key) ? "" : usual;
}

static void
write_model(char *out, size_t size, const char *further)
{
    snprintf(out, size, "{name: gpt, width: 8, vocabulary: 7%s%s%s%s}",
             unless(further, "layers", ", layers: 1"), unless(further, "heads", ", heads: 2"),
             unless(further, "context", ", context: 8"), further);
}

/* The check of a graph with these models; `refused`: a part of the message, or NULL. */
static void
expect_models(const char *mine, const char *theirs, const char *refused)
{
    char text[2048];
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    snprintf(text, sizeof text,
             "exogym: 1\nclock: virtual\nactors:\n"
             "  m: {class: experience_maker, config: {prompts: {tokens: [[1]]}, reward: {name: "
             "share, token: 5}, answers: 2, generate: {max_new_tokens: 3}, model: %s}}\n"
             "  t: {class: ppo_trainer, config: {algorithm: grpo, model: %s}}\n"
             "edges:\n  - {from: m, to: t, carries: experience}\n"
             "  - {from: t, to: m, carries: parameters, buffer: {on_full: latest}}\n",
             mine, theirs);
    exo_status st = exo_graph_parse(&spec, "g", text, NULL, &err);
    exo_graph_spec_free(&spec);
    if (!refused)
        cr_expect_eq(st, EXO_OK, "%s\n%s", err.text, text);
    else
        cr_expect(st == EXO_INVAL && strncmp(err.text, "g:5:60: model: 'm' has another", 30) == 0 &&
                      strstr(err.text, refused),
                  "%s\n%s\n%s", err.text, refused, text);
}

Test(experience_edges, both_sides_have_the_same_model)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char mine[256], theirs[256];
        write_model(mine, sizeof mine, models[i].maker);
        write_model(theirs, sizeof theirs, models[i].trainer);
        expect_models(mine, theirs, models[i].refused);
    }
}

/* A directory, a change of its config.json for the maker; the difference, NULL: they fit. */
static const struct {
    const char *directory, *from, *to, *refused;
} directories[] = {
    {"llama3", "\"factor\": 4.0", "\"factor\": 8.0", "they differ in rope_scaling"},
    {"llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 2.0",
     "they differ in rope_scaling"},
    {"llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 8.0",
     "they differ in rope_scaling"},
    {"llama3", "\"original_max_position_embeddings\": 16",
     "\"original_max_position_embeddings\": 8", "they differ in rope_scaling"},
    {"llama3", "\"rope_theta\": 500.0", "\"rope_theta\": 5000.0", "they differ in rope_theta"},
    {"llama3", "\"max_position_embeddings\": 32", "\"max_position_embeddings\": 64", NULL},
    {"linear", "\"linear\"", "\"default\"", "they differ in rope_scaling"},
};

Test(experience_edges, models_of_directories_are_the_same)
{
    char mine[64], model[256], theirs[512], path[256];
    temp_folder(mine, sizeof mine);
    snprintf(model, sizeof model, "{name: gpt, path: %s}", mine);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        decoders_copy(directories[i].directory, mine);
        decoders_edit(mine, "config.json", directories[i].from, directories[i].to);
        snprintf(theirs, sizeof theirs, "{name: gpt, path: %s}",
                 decoders_path(directories[i].directory, path));
        expect_models(model, theirs, directories[i].refused);
    }
    temp_remove(mine);
    snprintf(theirs, sizeof theirs, "{name: gpt, path: %s}", decoders_path("opt", path));
    expect_models("{name: gpt, layers: 2, heads: 4, width: 32, inner: 48, vocabulary: 101, "
                  "context: 34, activation: relu}",
                  theirs, "they differ in the offset of positions");
}

/* Trainers of the answers of frozen makers, which draw any of 7 tokens: options of the maker, and of the
 * trainer; the message, NULL: it takes all answers. */
static const struct {
    const char *maker, *trainer, *refused;
} takers[] = {
    {"", "{class: dpo_trainer, config: {model: {<<: *m}}}", NULL},
    {"", "{class: dpo_trainer, config: {model: {<<: *m, context: 4}}}", NULL},
    {"", "{class: dpo_trainer, config: {model: {<<: *m, context: 3}}}",
     "g:6:43: model: its context is 3, but the longest prompt of 'm', of which 't' learns, needs 4 "
     "with its answer: set model.context"},
    {"", "{class: ppo_trainer, config: {algorithm: grpo, model: {<<: *m, context: 3}}}",
     "g:6:60: model: its context is 3"},
    {"", "{class: reward_trainer, config: {model: {<<: *m, values: true, context: 5}}}", NULL},
    {"", "{class: reward_trainer, config: {model: {<<: *m, values: true, context: 4}}}",
     "g:6:46: model: its context is 4, but the longest prompt of 'm', of which 't' learns, needs "
     "5"},
    {", stop: [3]", "{class: dpo_trainer, config: {model: {<<: *m, context: 2}}}", NULL},
    {", stop: [3]", "{class: dpo_trainer, config: {model: {<<: *m, context: 1}}}",
     "g:6:43: model: its context is 1"},
    {"", "{class: reward_trainer, config: {model: {<<: *m, values: true, vocabulary: 8}}}", NULL},
    {"", "{class: reward_trainer, config: {model: {<<: *m, values: true, vocabulary: 6}}}",
     "g:6:46: model: its vocabulary is 6, but the answers of 'm', of which 't' learns, have tokens "
     "up to 6: set model.vocabulary"},
    {", temperature: 0",
     "{class: reward_trainer, config: {model: {<<: *m, values: true, vocabulary: 6}}}", NULL},
    {", top_k: 2", "{class: dpo_trainer, config: {model: {<<: *m, vocabulary: 5}}}",
     "g:6:43: model: its vocabulary is 5, but the prompts of 'm', of which 't' learns, have tokens "
     "up to 5"},
    /* what no directory can express could not be written at the end of the run */
    {"", "{class: dpo_trainer, config: {model: {<<: *m, bias: false}}}",
     "g:6:43: model: the trainer could not write it as a Hugging Face directory when it ends: "
     "transformers' GPT2LMHeadModel cannot express this model: all its linear layers have biases"},
    {"", "{class: reward_trainer, config: {model: {<<: *m, values: true, position: alibi}}}",
     "g:6:46: model: the trainer could not write it as a Hugging Face directory when it ends: "
     "transformers' BloomForCausalLM cannot"},
    {"", "{class: ppo_trainer, config: {algorithm: grpo, model: {<<: *m, norm: rms}}}",
     "g:6:60: model: the trainer could not write it"},
    {"",
     "{class: ppo_trainer, config: {algorithm: {name: ppo}, model: *m, critic: {<<: *m, norm: rms, "
     "values: true}}}",
     NULL},
};

Test(experience_edges, a_trainer_takes_the_answers_of_its_makers)
{
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
        char text[2048];
        exo_graph_spec *spec = NULL;
        exo_err err = {0};
        snprintf(
            text, sizeof text,
            "exogym: 1\nclock: virtual\nactors:\n"
            "  m: {class: experience_maker, config: {prompts: {tokens: [[1], [5, 2]]}, reward: "
            "{name: share, token: 5}, answers: 2,\n    generate: {max_new_tokens: 3%s}, model: "
            "&m {name: gpt, layers: 1, heads: 2, width: 8, context: 8, vocabulary: 7}}}\n"
            "  t: %s\nedges: [{from: m, to: t, carries: experience}]\n",
            takers[i].maker, takers[i].trainer);
        exo_status st = exo_graph_parse(&spec, "g", text, NULL, &err);
        exo_graph_spec_free(&spec);
        const char *refused = takers[i].refused;
        if (!refused)
            cr_expect_eq(st, EXO_OK, "%zu: %s\n%s", i, err.text, text);
        else
            cr_expect(st == EXO_INVAL && strncmp(err.text, refused, strlen(refused)) == 0,
                      "%zu: %s\n%s\n%s", i, err.text, refused, text);
    }
}
