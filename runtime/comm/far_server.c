/* Messages between the server of a communicator and its members in other processes: see server.c.
 * Each has a message of its own, whose body is the numbers and figures, and then the array. Messages
 * that arrive before the server is opened wait. */
#include <string.h>

#include <exogym/memory.h>

#include "comm/far_impl.h"
#include "comm/server.h"

/* The begin of a body; little endian like all supported machines. */
struct head {
    uint64_t numbers[4];
    double figures[2];
};

exo_status
exo_far_carry(void *state, uint32_t to, const exo_server_message *message, exo_err *err)
{
    exo_far *f = state;
    struct head head;
    const size_t count = message->data.count, bytes = sizeof head + count * sizeof(float);
    char *body = exo_calloc(1, bytes);
    if (!body)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a server");
    memcpy(head.numbers, message->numbers, sizeof head.numbers);
    memcpy(head.figures, message->figures, sizeof head.figures);
    memcpy(body, &head, sizeof head);
    exo_far_header header = {.channel = f->opts.channel,
                             .phase = EXO_FAR_SERVER,
                             .from = f->opts.rank,
                             .count = count,
                             .bytes = bytes};
    exo_status st = count > 0 ? exo_array_read(message->data, body + sizeof head, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_far_send(f, to, &header, NULL, body, 0, err);
    exo_free(body);
    return st;
}

void
exo_far_fail_all(void *state, const exo_err *reason)
{
    exo_far *f = state;
    exo_far_header header = {.channel = f->opts.channel,
                             .phase = EXO_FAR_SERVER,
                             .from = f->opts.rank,
                             .root = (uint32_t)reason->code,
                             .bytes = strlen(reason->text)};
    pthread_mutex_lock(&f->lock);
    bool tell = f->broken.code == EXO_OK && f->members;
    exo_far_break_locked(f, reason->code, reason->text);
    pthread_mutex_unlock(&f->lock);
    for (uint32_t r = 0; tell && r < f->opts.size; r++)
        if (r != f->opts.rank && f->members[r].id)
            exo_far_send(f, r, &header, NULL, reason->text, 0, NULL);
}

/* Hands a message to the server. Under the lock. */
static exo_status
hand_over_locked(exo_far *f, const exo_far_message *m, exo_err *err)
{
    struct head head;
    exo_server_message message = {0};
    const char *body = (const char *)m->payload.data + sizeof m->header;
    memcpy(&head, body, sizeof head);
    memcpy(message.numbers, head.numbers, sizeof head.numbers);
    memcpy(message.figures, head.figures, sizeof head.figures);
    exo_status st = EXO_OK;
    if (m->header.count > 0)
        st = exo_array_init(&message.data, exo_device_cpu(), EXO_F32, m->header.count, err);
    if (st == EXO_OK && m->header.count > 0)
        memcpy(message.data.data, body + sizeof head, m->header.count * sizeof(float));
    if (st == EXO_OK)
        st = exo_server_arrived(f->server, m->header.from, &message, m->ready, err);
    exo_array_release(&message.data);
    return st;
}

/* An error of another member's server. */
static void
take_failure(exo_far *f, const exo_far_message *m)
{
    char text[EXO_ERR_TEXT];
    size_t length = m->header.bytes < sizeof text - 1 ? m->header.bytes : sizeof text - 1;
    memcpy(text, (const char *)m->payload.data + sizeof m->header, length);
    text[length] = '\0';
    exo_far_break(f, m->header.root <= EXO_DENIED ? (exo_status)m->header.root : EXO_FAILED, text);
}

exo_status
exo_far_server_message(exo_far *f, exo_far_message *m, exo_err *err)
{
    exo_status st = EXO_OK;
    if (m->header.root != EXO_OK) {
        take_failure(f, m);
        exo_far_message_free(m);
        return EXO_OK;
    }
    bool fits = m->header.bytes >= sizeof(struct head) &&
                m->header.count == (m->header.bytes - sizeof(struct head)) / sizeof(float) &&
                (m->header.bytes - sizeof(struct head)) % sizeof(float) == 0 &&
                (f->opts.rank == f->opts.home || m->header.from == f->opts.home);
    if (!fits) {
        exo_far_message_free(m);
        return exo_fail(err, EXO_INVAL, "a message that no server sends");
    }
    pthread_mutex_lock(&f->lock);
    f->counts[f->opts.size + m->header.from]++;
    if (f->server) {
        st = hand_over_locked(f, m, err);
    } else {
        exo_far_message **at = &f->for_server;
        while (*at)
            at = &(*at)->next;
        *at = m;
        m = NULL;
    }
    pthread_mutex_unlock(&f->lock);
    if (m)
        exo_far_message_free(m);
    if (st != EXO_OK)
        exo_far_break(f, st, "no memory for a message of a server");
    return st;
}

void
exo_far_attach(void *state, exo_server *server)
{
    exo_far *f = state;
    exo_err err = {0};
    pthread_mutex_lock(&f->lock);
    f->server = server;
    for (exo_far_message *m = f->for_server, *next; server && m; m = next) {
        next = m->next;
        if (hand_over_locked(f, m, &err) != EXO_OK)
            exo_far_break_locked(f, err.code, err.text);
        exo_far_message_free(m);
        f->for_server = next;
    }
    if (server && f->broken.code != EXO_OK)
        exo_server_break(server, f->broken.code, f->broken.text);
    pthread_mutex_unlock(&f->lock);
}

const exo_comm_edge *
exo_far_edge(const void *state)
{
    return &((const exo_far *)state)->edge;
}
