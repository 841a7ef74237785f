/* What a command takes, written down once: parsing, `--help`, the manual page and the shells'
 * completions are all made from its table. No state. Read next: program.h (main() of a program),
 * page.c, completion.c. */
#ifndef EXO_PROGRAMS_ARGS_H
#define EXO_PROGRAMS_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* Words in the order in which they were given; they point into argv. */
typedef struct exo_words {
    const char **items;
    size_t length;
} exo_words;

/* What a value is, for those who check or complete it. */
typedef enum exo_word_kind {
    EXO_WORD_TEXT, /* anything */
    EXO_WORD_FILE,
    EXO_WORD_FOLDER,
    EXO_WORD_FIXED,    /* one of `value`'s words: "bash|zsh|fish" */
    EXO_WORD_COMMAND,  /* a command of the program                 */
    EXO_WORD_STRATEGY, /* registered names                         */
    EXO_WORD_MODEL,
    EXO_WORD_DATA, /* one that `exogym data get` fetches, or a file */
} exo_word_kind;

/* What is done with what is given: a bool becomes true, a text is the last one given, words are all
 * of them. */
typedef enum exo_arg_kind {
    EXO_ARG_FLAG,
    EXO_ARG_VALUE,
    EXO_ARG_LIST
} exo_arg_kind;

/* One option, or without a name one operand, in the operands' order; only the last operand can be a
 * list. */
typedef struct exo_arg {
    const char *name;  /* "--set", or NULL: an operand */
    const char *brief; /* "-o", or NULL                */
    const char *value; /* what stands for its value: "KEY=VALUE"; NULL: a flag */
    const char *
        /* of a flag that may also be given as NAME=WORD, which: "older", "a|b"; its target is a
         * text, "" for the bare flag */
        words;
    const char *help;
    exo_word_kind word;
    bool required;
    exo_arg_kind kind; /* EXO_INTO sets both */
    size_t offset;
} exo_arg;

/* Where a row's value goes: a bool, const char * or exo_words in the command's struct. Anything
 * else does not compile. */
#define EXO_INTO(type, member)                                                                     \
    .kind = _Generic(((type *)0)->member, bool: EXO_ARG_FLAG, const char *: EXO_ARG_VALUE,         \
                     exo_words: EXO_ARG_LIST),                                                     \
    .offset = offsetof(type, member)

/* A row of a section of help: what it is about, and what is said of it. */
typedef struct exo_note {
    const char *term, *text;
} exo_note;

struct exo_command_line;

/* A command, or a program: with commands, or as one command itself. Every array ends with an empty
 * row. */
typedef struct exo_command {
    const char *name;
    const char *summary;                            /* one line, without a full stop */
    const char *description;                        /* paragraphs with an empty line between them */
    const exo_arg *args;                            /* NULL: none */
    const exo_note *examples, *files, *environment; /* NULL: none */
    const exo_note *exits;                          /* NULL: exo_exits */
    size_t args_size;                               /* of the struct that the table fills */
    int (*run)(const struct exo_command_line *line);
    const struct exo_command *const *commands; /* a program's; they instead of args and run */
} exo_command;

/* A command line that was read. */
typedef struct exo_command_line {
    const exo_command *command;
    void *args; /* the command's struct, filled */
    int argc;   /* the words after the command's name, as they were given */
    char **argv;
} exo_command_line;

/* What is asked besides a command's own options; which of it a command takes, exo_option_at
 * says. */
typedef struct exo_asked {
    bool help, version, man;
    const char *completion; /* for this shell */
} exo_asked;

/* Reads `argc` words after the command's name into its zeroed struct. Options may stand anywhere,
 * "--name VALUE" or "--name=VALUE"; what follows "--" is no option. The caller releases `args`,
 * also after an error. `asked` is right even then, and what is asked needs no other argument.
 * Errors: INVAL (unknown option, something missing or too much, none of the fixed words), NOMEM;
 * the first one is reported. */
exo_status exo_args_read(const exo_command *command, int argc, char *const *argv, void *args,
                         exo_asked *asked, exo_err *err);
void exo_args_release(const exo_command *command, void *args);

/* The index-th operand of a command, or its index-th option, those included that every command has;
 * NULL after the last. */
const exo_arg *exo_operand_at(const exo_command *command, size_t index);
const exo_arg *exo_option_at(const exo_command *command, size_t index);

/* Takes the next word from a list such as "bash|zsh|fish"; its length, 0 at the end. */
size_t exo_fixed_word(const char **list, const char **word);

#endif
