/* Tools: environments that a language model writes to, turn by turn. The policy writes a turn; the
 * tool appends a reply, which the policy reads and does not learn to write; and so on.
 *
 * An `experience_maker` (docs/ppo.md) names a class in its config, as `tool: NAME` or `tool: {name:
 * NAME, ...}`. A plugin registers one of its own. This one tells after each turn how many tokens it
 * had, and ends the answer after an empty turn:
 *
 *     static exo_status reply(void *self, void *state, const exo_tool_turn *turn,
 *                             exo_tool_reply *out, exo_err *err) {
 *         size_t written = turn->length - turn->first - turn->stopped;
 *         out->tokens[0] = '0' + (int32_t)(written % 10);
 *         out->length = 1;
 *         out->ends = written == 0;
 *         return EXO_OK;
 *     }
 *     static const exo_tool_class counter = {
 *         .name = "counter", .help = "tells how long a turn was", .reply = reply,
 *         .shape = {.turns = 3, .reply_tokens = 1, .stop = {'.'}, .num_stop = 1}};
 *     EXO_PLUGIN { return exo_tool_class_register(&counter, err); }
 *
 * Threads: each maker has options of its own, which one thread uses at a time. */
#ifndef EXOGYM_TOOL_H
#define EXOGYM_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/rng.h>
#include <exogym/status.h>
#include <exogym/tokenizer.h>

EXO_DECLS_BEGIN

/* Limits of a shape. */
enum {
    EXO_TOOL_MAX_STOP = 8,
    EXO_TOOL_MAX_TURNS = 1024,
    EXO_TOOL_MAX_REPLY = 1 << 16, /* tokens */
    EXO_TOOL_MAX_STATE = 1 << 20  /* bytes */
};

/* The sizes of a dialogue with a tool. */
typedef struct exo_tool_shape {
    size_t turns;        /* most turns of the policy; the default of the option `turns` */
    size_t turn_tokens;  /* most tokens of a turn, 0: no limit of its own; option `turn_tokens` */
    size_t reply_tokens; /* most tokens of a reply, at least 1 */
    int32_t stop[EXO_TOOL_MAX_STOP]; /* (num_stop) tokens that end a turn, which has them */
    size_t num_stop;                 /* 0: only turn_tokens ends a turn */
    size_t state; /* bytes of an answer's state, which is zeroed before its first turn */
} exo_tool_shape;

/* A turn that the policy has written. Everything is borrowed for the call. */
typedef struct exo_tool_turn {
    const int32_t *prompt; /* (prompt_length) */
    size_t prompt_length;
    const int32_t *tokens;          /* (length) the answer so far, turns and replies */
    const uint8_t *mask;            /* (length) 1: the policy wrote the token; 0: the tool */
    size_t length, first;           /* the turn is [first, length) of the tokens */
    size_t number;                  /* of the turn, from 0 */
    bool stopped;                   /* a token of shape.stop ended it, not its length */
    exo_rng *rng;                   /* chance of this turn, which the run's seed determines */
    const exo_tokenizer *tokenizer; /* NULL: the prompts are token numbers */
} exo_tool_turn;

/* The reply to a turn. It begins with length 0, reward 0, and ends false. */
typedef struct exo_tool_reply {
    int32_t *tokens; /* (room) to write */
    size_t room;     /* shape.reply_tokens */
    size_t length;   /* of the reply; 0: the policy goes on as if nobody had replied */
    double reward;   /* of the turn; the score of an answer is the sum of these and its reward */
    bool ends;       /* the answer ends with this reply */
} exo_tool_reply;

/* A class of tools: read-only, and valid as long as the process. */
typedef struct exo_tool_class {
    const char *name;     /* the name for `tool` in a config */
    const char *help;     /* one line, for `exogym list tools` */
    exo_tool_shape shape; /* `init` may change it */
    size_t self_size;     /* bytes of the options `self`, which begin zeroed */
    /* Reads the options, and may change the shape by them. tokenizer: of the prompts, lives as long
     * as the tool; NULL: the prompts are token numbers. The caller refuses keys that were not read.
     * NULL: it has no options. */
    exo_status (*init)(void *self, exo_tool_shape *shape, const exo_tokenizer *tokenizer,
                       exo_config *config, exo_err *err);
    /* Replies to a turn. The same state, turn and chance must give the same reply: answers that are
     * begun again (docs/ppo.md, `kv: reset`, a restarted maker) then have the same bits. The maker
     * waits for the reply, without a deadline: a tool that waits for something outside has one of
     * its own, and fails. An error of any status ends this life of the maker. */
    exo_status (*reply)(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out,
                        exo_err *err);
    /* Frees what init allocated; called once, also after its failure. May be NULL. */
    void (*release)(void *self);
} exo_tool_class;

/* Registers a class under its name, which must be new. Any thread. Errors: EXISTS, INVAL (no name,
 * no function reply), FULL. */
EXO_API exo_status exo_tool_class_register(const exo_tool_class *tool_class, exo_err *err);
/* The class of an index in the order of names; NULL after the last. Any thread. */
EXO_API const exo_tool_class *exo_tool_class_at(size_t index);

/* A class with its options. */
typedef struct exo_tool exo_tool;

/* Makes the tool that `config` names under `key`, as NAME or {name: NAME, turns: N, turn_tokens: N,
 * ...}; *out is NULL if the key is missing. `tokenizer` may be NULL, and must outlive the tool. The
 * caller frees it. INVAL (with its place): no class has the name, or the shape is beyond the limits;
 * NOMEM; those of the class. */
EXO_API exo_status exo_tool_read(exo_tool **out, exo_config *config, const char *key,
                                 const exo_tokenizer *tokenizer, exo_err *err);
/* Frees *tool and sets it to NULL; accepts NULL in it. */
EXO_API void exo_tool_free(exo_tool **tool);
/* The shape in effect. Lives as long as the tool. */
EXO_API const exo_tool_shape *exo_tool_shape_of(const exo_tool *tool);
/* Replies to a turn; out->tokens is the caller's. Blocks as long as the class does. FAILED: the reply
 * is longer than the shape allows, its reward is not finite as a float, or the class failed, whatever
 * its status; NOMEM. */
EXO_API exo_status exo_tool_answer(exo_tool *tool, void *state, const exo_tool_turn *turn,
                                   exo_tool_reply *out, exo_err *err);

EXO_DECLS_END

#endif
