/* A command's arguments in one table, from which parsing, `--help`, the manual page and the shells'
 * completions are made. No state. Read next: program.h (main() of a program), page.c,
 * completion.c. */
#ifndef EXO_PROGRAMS_ARGS_H
#define EXO_PROGRAMS_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* Words in the order of the command line. They point into argv. */
typedef struct exo_words {
    const char **items;
    size_t length;
} exo_words;

/* The kind of a value, for checks and completions. */
typedef enum exo_word_kind {
    EXO_WORD_TEXT, /* anything */
    EXO_WORD_FILE,
    EXO_WORD_FOLDER,
    EXO_WORD_FIXED,    /* one of `value`'s words: "bash|zsh|fish" */
    EXO_WORD_COMMAND,  /* a command of the program */
    EXO_WORD_STRATEGY, /* registered names */
    EXO_WORD_MODEL,
    EXO_WORD_DEVICE,
    EXO_WORD_DATA, /* a set that `exogym data get` fetches, or a file */
} exo_word_kind;

/* How an argument is stored: a flag sets a bool, a value keeps the last text, a list keeps all
 * words. */
typedef enum exo_arg_kind {
    EXO_ARG_FLAG,
    EXO_ARG_VALUE,
    EXO_ARG_LIST
} exo_arg_kind;

/* One option: {"--set", "KEY=VALUE", "Overrides a value.", EXO_INTO(struct args, sets)}. A row
 * without a name is an operand; operands are filled in the table's order, and only the last one can
 * be a list. */
typedef struct exo_arg {
    const char *name;  /* "--set", or NULL: an operand */
    const char *value; /* placeholder of its value: "KEY=VALUE"; NULL: a flag */
    const char *help;
    const char *brief; /* "-o", or NULL */
    /* the choices of a flag that may also be given as NAME=WORD: "older", "a|b". The target is a
     * text, "" for the bare flag. */
    const char *words;
    exo_word_kind word;
    bool required;
    exo_arg_kind kind; /* EXO_INTO sets kind and offset */
    size_t offset;
} exo_arg;

/* The destination of a row's value: a bool, const char * or exo_words in the command's struct.
 * Other types do not compile. */
#define EXO_INTO(type, member)                                                                     \
    .kind = _Generic(((type *)0)->member, bool: EXO_ARG_FLAG, const char *: EXO_ARG_VALUE,         \
                     exo_words: EXO_ARG_LIST),                                                     \
    .offset = offsetof(type, member)

/* A row of a section of help: a term and its explanation. */
typedef struct exo_note {
    const char *term, *text;
} exo_note;

struct exo_command_line;

/* A command, or a program. A program has either a list of commands, or arguments and a `run` of its
 * own. Each array ends with an empty row. */
typedef struct exo_command {
    const char *name;
    const char *summary;                            /* one line, without a full stop */
    const char *description;                        /* paragraphs, separated by empty lines */
    const exo_arg *args;                            /* NULL: none */
    const exo_note *examples, *files, *environment; /* NULL: none */
    const exo_note *exits;                          /* NULL: exo_exits */
    size_t args_size;                               /* of the struct that `args` fills */
    int (*run)(const struct exo_command_line *line);
    /* a program's commands; then `args` and `run` are unused */
    const struct exo_command *const *commands;
} exo_command;

/* A parsed command line. */
typedef struct exo_command_line {
    const exo_command *command;
    void *args; /* the command's struct, filled in */
    int argc;   /* the words after the command's name, unparsed */
    char **argv;
} exo_command_line;

/* Requests that need no row in a command's table. exo_option_at says which of them a command
 * takes. */
typedef struct exo_asked {
    bool help, version, man;
    const char *completion; /* the shell's name */
} exo_asked;

/* Reads the `argc` words after the command's name into its zeroed struct. Options may stand
 * anywhere, as "--name VALUE" or "--name=VALUE"; after "--" all words are operands. The caller
 * releases `args`, also after an error. `asked` is filled in even after an error; with a request in
 * it, required arguments may be missing. Errors: INVAL (an unknown option, a missing or superfluous
 * word, a word that is not among the choices), NOMEM; the first error is reported. */
exo_status exo_args_read(const exo_command *command, int argc, char *const *argv, void *args,
                         exo_asked *asked, exo_err *err);
void exo_args_release(const exo_command *command, void *args);

/* The index-th operand of a command, or its index-th option, including the options that every
 * command has. NULL after the last. */
const exo_arg *exo_operand_at(const exo_command *command, size_t index);
const exo_arg *exo_option_at(const exo_command *command, size_t index);

/* Takes the next word from a list such as "bash|zsh|fish". Returns its length; 0 at the end. */
size_t exo_fixed_word(const char **list, const char **word);
/* The index of `word` in such a list; -1 if it is not there. */
int exo_fixed_index(const char *list, const char *word);

#endif
