/* Rewards of a program in any language: a plugin, built outside exogym against the public headers
 * alone. Each maker starts the program once. For each answer the plugin writes a line of JSON to
 * the program's standard input, and reads a line with a number from its standard output:
 *
 *     {"prompt": "2 + 2 =", "answer": " 4", "stopped": true, "tokens": [7, 21]}    ->    1.0
 *
 * Texts are there if the prompts have a tokenizer. No wait is without a deadline, and a program
 * that ends or prints anything else ends the run, with the reason. That jobs can start programs is
 * a matter of this plugin: a cluster decides by the roles of keys who may load one. */
#define _GNU_SOURCE
#include <exogym/exogym.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    MAX_WORDS = 16,
    MAX_REPLY = 256
};
#define GRACE EXO_SECOND

struct command {
    char *words[MAX_WORDS + 1]; /* of the command line, then NULL */
    exo_time timeout;           /* for one answer */
    pid_t child;                /* 0: not started */
    int socket;                 /* the program's standard input and output */
    FILE *line;                 /* the line that is being written, in memory */
    char *text;
    size_t size; /* of `text` */
};

/* --- A line of JSON --------------------------------------------------------------------------- */

static void
put_text(FILE *line, const char *key, const char *text, size_t size)
{
    fprintf(line, "\"%s\": \"", key);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\')
            fprintf(line, "\\u%04x", c);
        else
            fputc(c, line);
    }
    fputs("\", ", line);
}

static exo_status
put_decoded(FILE *line, const char *key, const exo_tokenizer *tokenizer, const int32_t *tokens,
            size_t count, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    exo_status st = exo_tokenizer_decode(tokenizer, tokens, count, false, &text, &size, err);
    if (st == EXO_OK)
        put_text(line, key, text, size);
    exo_free(text);
    return st;
}

static exo_status
write_answer(struct command *c, const exo_answer *a, exo_err *err)
{
    exo_status st = EXO_OK;
    rewind(c->line);
    fputc('{', c->line);
    if (a->tokenizer)
        st = put_decoded(c->line, "prompt", a->tokenizer, a->prompt, a->prompt_length, err);
    if (st == EXO_OK && a->tokenizer)
        st = put_decoded(c->line, "answer", a->tokenizer, a->tokens, a->length, err);
    fprintf(c->line, "\"stopped\": %s, \"tokens\": [", a->stopped ? "true" : "false");
    for (size_t i = 0; i < a->length; i++)
        fprintf(c->line, "%s%d", i ? ", " : "", (int)a->tokens[i]);
    fputs("]}\n", c->line);
    if (st == EXO_OK && (fflush(c->line) != 0 || ferror(c->line)))
        st = exo_fail(err, EXO_NOMEM, "no memory for a line");
    return st;
}

/* --- The program ------------------------------------------------------------------------------ */

/* Why there is no reply. A program that ends closes its output first, and gets GRACE to end. */
static exo_status
fail(struct command *c, const char *what, exo_err *err)
{
    int status = 0;
    pid_t ended = 0;
    exo_time deadline = exo_deadline(exo_clock_real(), GRACE);
    while (c->child > 0 && (ended = waitpid(c->child, &status, WNOHANG)) == 0 &&
           exo_now(exo_clock_real()) < deadline)
        poll(NULL, 0, 1);
    if (ended > 0) {
        c->child = 0;
        return WIFSIGNALED(status) ? exo_fail(err, EXO_FAILED, "%s: it was killed by signal %d",
                                              c->words[0], WTERMSIG(status))
                                   : exo_fail(err, EXO_FAILED, "%s: it ended with status %d",
                                              c->words[0], WEXITSTATUS(status));
    }
    return exo_fail(err, EXO_FAILED, "%s: %s", c->words[0], what);
}

/* Waits until the socket has one of `events`. */
static exo_status
await(struct command *c, short events, exo_time deadline, exo_err *err)
{
    for (;;) {
        struct pollfd p = {.fd = c->socket, .events = events};
        exo_time left = deadline - exo_now(exo_clock_real());
        int got = left > 0 ? poll(&p, 1, (int)(left / EXO_MS) + 1) : 0;
        if (got > 0)
            return EXO_OK;
        if (got == 0)
            return exo_fail(err, EXO_TIMEOUT, "%s: no reply within %.3g s", c->words[0],
                            (double)c->timeout / (double)EXO_SECOND);
        if (errno != EINTR)
            return fail(c, strerror(errno), err);
    }
}

static exo_status
send_line(struct command *c, exo_time deadline, exo_err *err)
{
    size_t size = (size_t)ftell(c->line);
    for (size_t sent = 0; sent < size;) {
        exo_status st = await(c, POLLOUT, deadline, err);
        if (st != EXO_OK)
            return st;
        ssize_t n = send(c->socket, c->text + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail(c, "it does not read its standard input", err);
        sent += n > 0 ? (size_t)n : 0;
    }
    return EXO_OK;
}

static exo_status
fail_more(const struct command *c, exo_err *err)
{
    return exo_fail(err, EXO_FAILED, "%s: its output is not one line for each answer", c->words[0]);
}

static exo_status
receive_number(struct command *c, exo_time deadline, double *out, exo_err *err)
{
    char reply[MAX_REPLY] = "", *end = reply;
    size_t size = 0;
    while (!memchr(reply, '\n', size)) {
        exo_status st = size + 1 < sizeof reply
                            ? await(c, POLLIN, deadline, err)
                            : exo_fail(err, EXO_FAILED, "%s: a line without end", c->words[0]);
        if (st != EXO_OK)
            return st;
        ssize_t n = recv(c->socket, reply + size, sizeof reply - 1 - size, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return fail(c, "it closed its standard output", err);
        size += n > 0 ? (size_t)n : 0;
    }
    if (memchr(reply, '\n', size) != reply + size - 1)
        return fail_more(c, err);
    reply[size - 1] = '\0';
    *out = strtod(reply, &end);
    return end != reply && end + strspn(end, " \r") == reply + size - 1 && isfinite(*out)
               ? EXO_OK
               : exo_fail(err, EXO_FAILED, "%s: a line with a number is expected, and this is '%s'",
                          c->words[0], reply);
}

/* --- The class -------------------------------------------------------------------------------- */

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct command *c = self;
    exo_config *list = NULL;
    c->socket = -1;
    exo_status st = exo_config_list(config, "command", &list, err);
    if (st == EXO_OK)
        st = exo_config_time(config, "timeout", 10 * EXO_SECOND, EXO_MS, 3600 * EXO_SECOND,
                             &c->timeout, err);
    size_t count = list ? exo_config_length(list) : 0;
    if (st == EXO_OK && (count == 0 || count > MAX_WORDS))
        st = exo_config_fail(config, err,
                             "command: a list of 1 to %d words, such as [python3, reward.py]",
                             MAX_WORDS);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        const char *word = exo_config_scalar(exo_config_item(list, i));
        if (!word)
            st = exo_config_fail(list, err, "command: a list of words");
        else if (!(c->words[i] = exo_strdup(word)))
            st = exo_fail(err, EXO_NOMEM, "no memory for a command");
    }
    return st;
}

/* The program gets the usual signals, which workers block or ignore, and a process group of its own:
 * Ctrl-C stops the run, which still needs scores, and `release` ends what the program has started. */
static int
spawn(struct command *c, int socket)
{
    const short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, ignored;
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, flags);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
    int failed = posix_spawnp(&c->child, c->words[0], &actions, &attributes, c->words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

/* Checks of a job call init alone, so that none starts the program. */
static exo_status
start(void *self, uint32_t place, exo_err *err)
{
    struct command *c = self;
    int pair[2] = {-1, -1};
    (void)place;
    c->line = open_memstream(&c->text, &c->size);
    if (!c->line || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", c->words[0], strerror(errno));
    int failed = spawn(c, pair[1]);
    close(pair[1]);
    c->socket = pair[0];
    c->child = failed ? 0 : c->child;
    return failed ? exo_fail(err, EXO_NOT_FOUND, "%s: %s", c->words[0], strerror(failed)) : EXO_OK;
}

static exo_status
score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    struct command *c = self;
    exo_time deadline = exo_deadline(exo_clock_real(), c->timeout);
    char more;
    if (recv(c->socket, &more, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
        return fail_more(c, err);
    exo_status st = write_answer(c, answer, err);
    if (st == EXO_OK)
        st = send_line(c, deadline, err);
    return st == EXO_OK ? receive_number(c, deadline, out, err) : st;
}

static void
release(void *self)
{
    struct command *c = self;
    if (c->socket >= 0)
        close(c->socket); /* the end of its input */
    if (c->child > 0) {
        kill(-c->child, SIGKILL); /* its group, with what it has started */
        waitpid(c->child, NULL, 0);
    }
    if (c->line)
        fclose(c->line);
    free(c->text);
    for (size_t i = 0; c->words[i]; i++)
        exo_free(c->words[i]);
}

static const exo_reward_class command = {
    .name = "command",
    .help = "the score of a program that reads answers as lines of JSON; options command, timeout",
    .state_size = sizeof(struct command),
    .init = init,
    .start = start,
    .score = score,
    .release = release,
};

EXO_PLUGIN
{
    return exo_reward_class_register(&command, err);
}
