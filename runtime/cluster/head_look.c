/* Information from the head: the cluster's contents, causes of deaths, the workers' output. Read
 * next: head_identity.c, for what a caller may see. */
#include "cluster/head_impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "base/version.h"
#include "net/process.h"

/* Writes "NAME: dead since ..., class C, life 1", and the cause. Returns the length. */
static size_t
tell_of_actor(const exo_entry *a, char *out, size_t size)
{
    /* names and causes may have any characters; each is shown as one line */
    char since[64] = "", name[1024], line[2048];
    time_t when = (time_t)a->since;
    struct tm broken;
    if (localtime_r(&when, &broken))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &broken);
    size_t at = (size_t)snprintf(out, size, "%s: %s since %s, class %.300s, life %llu\n",
                                 exo_printable(name, sizeof name, a->spec->name, EXO_SHOWN_LINE),
                                 exo_entry_state_text(a->state), since, a->spec->class_name,
                                 (unsigned long long)a->incarnation);
    if (a->cause && at < size)
        at += (size_t)snprintf(out + at, size - at, "%s: %s\n",
                               a->state == EXO_ENTRY_ALIVE ? "its last life ended" : "cause",
                               exo_printable(line, sizeof line, a->cause, EXO_SHOWN_LINE));
    if (a->waits && at < size)
        at += (size_t)snprintf(out + at, size - at, "it waits: %s\n",
                               exo_printable(line, sizeof line, a->waits, EXO_SHOWN_LINE));
    return at < size ? at : size - 1;
}

/* all: also the methods that ran and the output, whoever owns them. */
static void
tell_of_node(const exo_cluster_node *n, bool all, char *out, size_t size)
{
    char name[1024], cause[2048], running[2048];
    bool lost = n->cause && !n->left, ran = all && n->running && n->running[0],
         printed = all && n->log && n->log[0];
    snprintf(out, size, "node %s: %s%s%s\n%s%s%s%s%s",
             exo_printable(name, sizeof name, n->name, EXO_SHOWN_LINE), exo_node_state(n),
             lost ? ": " : "",
             lost ? exo_printable(cause, sizeof cause, n->cause, EXO_SHOWN_LINE) : "",
             ran ? "it ran: " : "",
             ran ? exo_printable(running, sizeof running, n->running, EXO_SHOWN_LINE) : "",
             ran ? "\n" : "", printed ? "its last lines:\n" : "", printed ? n->log : "");
}

exo_status
exo_head_why(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
             exo_err *err)
{
    char text[8192] = "";
    const Exo__Cluster__Name *m = args;
    exo_head_note_actor(h, m->space, m->name, NULL);
    const exo_entry *a = exo_head_by_name(h, m->space, m->name);
    exo_status allowed = exo_head_check_space(h, call, m->space, a, "why", err);
    if (allowed != EXO_OK)
        return allowed;
    const exo_cluster_node *n = !a             ? exo_directory_node_by_name(&h->directory, m->name)
                                : a->lost_with ? exo_directory_node(&h->directory, a->lost_with)
                                : a->node      ? a->node
                                               : exo_directory_node(&h->directory, a->last_node);
    n = n && exo_head_hides_node(call, n) ? NULL : n;
    size_t at = a ? tell_of_actor(a, text, sizeof text) : 0;
    if (n)
        tell_of_node(n, !exo_head_hides_logs(call), text + at, sizeof text - at);
    return a || n ? exo_payload_copy(reply, text, strlen(text) + 1)
                  : exo_fail(err, EXO_NOT_FOUND, "nothing is known of '%s' in the namespace '%s'",
                             m->name, m->space);
}

/* Describes the holdings of an account: here, and in this process's connection. */
static void
describe_account(struct head *h, const exo_account *a, Exo__Cluster__Holding *p)
{
    exo_remote_held far = {0};
    const exo_cluster_node *node = exo_directory_node(&h->directory, a->peer);
    if (h->env.held_for)
        h->env.held_for(h->env.context, a->peer, &far);
    exo__cluster__holding__init(p);
    p->node = a->peer;
    p->name = exo_pb_text(node ? node->name : a->name);
    p->nodes = a->held[EXO_QUOTA_NODES];
    p->jobs = a->held[EXO_QUOTA_JOBS];
    p->actors = a->held[EXO_QUOTA_ACTORS];
    p->names = a->held[EXO_QUOTA_NAMES];
    p->spawns = a->held[EXO_QUOTA_SPAWNS];
    p->finds = a->held[EXO_QUOTA_FINDS];
    p->logs = a->held[EXO_QUOTA_LOGS];
    p->waiting = far.waiting;
    p->waiting_bytes = far.waiting_bytes;
    p->lent = far.lent;
    p->lent_bytes = far.lent_bytes;
    p->references = far.references;
    p->monitors = far.monitors;
}

/* Lists the holdings of each process, at the head and at the nodes that have reported them, as far
 * as the caller may see them. NOMEM: the list has some of them. */
static exo_status
list_holdings(struct head *h, const exo_call_context *call, Exo__Cluster__Listing *out)
{
    size_t most = HASH_COUNT(h->directory.accounts.by_peer);
    for (const exo_cluster_node *n = h->directory.nodes; n; n = n->hh.next)
        most += n->alive && n->held ? n->held->n_peers : 0;
    Exo__Cluster__Holding *p;
    if (!(out->peers = exo_calloc(most + 1, sizeof *out->peers)))
        return EXO_NOMEM;
    for (const exo_account *a = h->directory.accounts.by_peer; a; a = a->hh.next) {
        const exo_cluster_node *node = exo_directory_node(&h->directory, a->peer);
        if (!a->peer ||
            (a->peer != exo_head_holder(h, call) && exo_head_hides_holding(call, a->peer, node)))
            continue; /* account 0 is the head's own */
        if (!(p = out->peers[out->n_peers] = exo_calloc(1, sizeof *p)))
            return EXO_NOMEM;
        describe_account(h, a, p);
        out->n_peers++;
    }
    for (const exo_cluster_node *n = h->directory.nodes; n; n = n->hh.next) {
        for (size_t i = 0; n->alive && n->held && i < n->held->n_peers; i++) {
            uint64_t holder = n->held->peers[i]->node;
            if (exo_head_hides_node(call, n) ||
                exo_head_hides_holding(call, holder, exo_directory_node(&h->directory, holder)))
                continue;
            if (!(p = out->peers[out->n_peers] = exo_calloc(1, sizeof *p)))
                return EXO_NOMEM;
            *p = *n->held->peers[i]; /* borrows the node's texts */
            p->by = n->name;
            out->n_peers++;
        }
    }
    return EXO_OK;
}

exo_status
exo_head_holds(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
               exo_err *err)
{
    (void)reply;
    Exo__Cluster__Holdings *m =
        EXO_UNPACK_ARGS(Exo__Cluster__Holdings, exo__cluster__holdings, args);
    if (!m || m->n_peers > EXO_HOLDERS) {
        EXO_RELEASE(m);
        return exo_fail(err, EXO_INVAL, "holds: the arguments cannot be read");
    }
    exo_cluster_node *node = exo_directory_node(&h->directory, m->node);
    exo_status st = exo_head_check_self(call, m->node, "holds", err);
    if (st == EXO_OK && (!node || !node->alive))
        st = exo_fail(err, EXO_NOT_FOUND, "holds: this process is not registered at the head");
    if (st == EXO_OK) {
        EXO_RELEASE(node->held);
        node->held = m;
        m = NULL;
    }
    EXO_RELEASE(m);
    return st;
}

/* Removes the nodes and jobs that the caller may not see. */
static void
hide(struct head *h, const exo_call_context *call, Exo__Cluster__Listing *listing)
{
    size_t kept = 0;
    for (size_t i = 0; i < listing->n_nodes; i++) {
        const exo_cluster_node *n = exo_directory_node(&h->directory, listing->nodes[i]->node);
        if (n && exo_head_hides_node(call, n))
            exo_directory_free_node_info(listing->nodes[i]);
        else
            listing->nodes[kept++] = listing->nodes[i];
    }
    listing->n_nodes = kept;
    kept = 0;
    for (size_t i = 0; i < listing->n_jobs; i++) {
        const exo_job_entry *j = exo_directory_job(&h->directory, listing->jobs[i]->name, 0);
        if (j && exo_head_hides_job(call, j))
            exo_free(listing->jobs[i]);
        else
            listing->jobs[kept++] = listing->jobs[i];
    }
    listing->n_jobs = kept;
}

/* Lists a page of the actors that the caller may see. */
static exo_status
list_actors(struct head *h, const exo_call_context *call, uint64_t after,
            Exo__Cluster__Listing *out)
{
    const exo_entry *a = after ? exo_directory_by_key(&h->directory, after) : h->directory.actors;
    size_t looked_at = 0;
    if (after && a)
        a = a->by_key.next;
    else if (after)
        /* Forgotten meanwhile. The table is in order of keys, except for actors of an earlier
         * head. */
        for (a = h->directory.actors; a && a->key <= after;)
            a = a->by_key.next;
    if (!(out->actors = exo_calloc(EXO_PAGE_ACTORS, sizeof *out->actors)))
        return EXO_NOMEM;
    for (; a && looked_at < EXO_PAGE_ACTORS; a = a->by_key.next, looked_at++) {
        out->more = a->key;
        if (exo_head_is_hidden(call, a))
            continue;
        Exo__Cluster__Actor *info = exo_calloc(1, sizeof *info);
        if (!info)
            return EXO_NOMEM;
        exo_head_describe(a, info);
        out->actors[out->n_actors++] = info;
    }
    out->more = a ? out->more : 0;
    return EXO_OK;
}

exo_status
exo_head_list(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
              exo_err *err)
{
    char boot[EXO_BOOT_ID];
    Exo__Cluster__Listing listing = EXO__CLUSTER__LISTING__INIT;
    uint64_t after = ((const Exo__Cluster__Name *)args)->key;
    listing.cluster = exo_pb_text(h->env.cluster);
    listing.version = exo_pb_text(exo_version);
    listing.began = h->began;
    listing.pid = (uint32_t)getpid();
    listing.host = boot;
    exo_boot_id(boot);
    exo_status st = after ? EXO_OK : exo_directory_list(&h->directory, &listing);
    hide(h, call, &listing);
    if (st == EXO_OK && !after)
        st = list_holdings(h, call, &listing);
    if (st == EXO_OK)
        st = list_actors(h, call, after, &listing);
    if (st == EXO_OK)
        st = exo_head_reply(reply, &listing.base, err);
    exo_directory_list_release(&listing);
    return st;
}

/* Replies with the lines after that one, as many as a reply may have. */
static exo_status
reply_lines(struct head *h, uint64_t after, exo_payload *reply)
{
    uint64_t first = h->num_lines > LOG_LINES ? h->num_lines - LOG_LINES : 0, end;
    size_t size = sizeof end + 1;
    first = after > first ? after : first;
    first = first < h->num_lines ? first : h->num_lines;
    for (end = first; end < h->num_lines && size < MOST_LINES_BYTES; end++)
        size += strlen(h->lines[end % LOG_LINES]) + 1;
    char *text = exo_calloc(1, size);
    if (!text)
        return EXO_NOMEM;
    memcpy(text, &end, sizeof end);
    size_t at = sizeof end;
    for (uint64_t n = first; n < end; n++)
        at += (size_t)snprintf(text + at, size - at, "%s\n", h->lines[n % LOG_LINES]);
    *reply = (exo_payload){.data = text, .size = at, .release = exo_free};
    return EXO_OK;
}

/* The start of the last LOG_LINES lines. */
static char *
skip_lines(char *text)
{
    char *first = text;
    size_t count = 0;
    for (const char *c = text; (c = strchr(c, '\n')); c++)
        count++;
    for (; count > LOG_LINES; count--)
        first = strchr(first, '\n') + 1;
    return first;
}

exo_status
exo_head_log(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
             exo_err *err)
{
    char full[1024];
    (void)reply;
    const Exo__Cluster__LogLines *m = args;
    const exo_identity *who = exo_call_identity(call);
    const exo_cluster_node *node = who ? exo_directory_node(&h->directory, who->node) : NULL;
    if (who && !node)
        return exo_fail(err, EXO_DENIED, "log: this process is not registered at the head");
    for (char *line = skip_lines(m->text); *line;) {
        size_t length = strcspn(line, "\n");
        exo_format_cut(full, sizeof full, "%s: %.*s", node ? node->name : m->node_name,
                       (int)(length < sizeof full ? length : sizeof full), line);
        char *copy = exo_strdup(full);
        if (copy) {
            char **slot = &h->lines[h->num_lines++ % LOG_LINES];
            exo_free(*slot);
            *slot = copy;
        }
        line += length + (line[length] == '\n');
    }
    for (struct exo_wish *w = h->log_wishes, *next; w; w = next) {
        exo_payload lines = {0};
        next = w->next;
        exo_status st = reply_lines(h, w->after, &lines);
        exo_future_complete(w->future, st, NULL, &lines);
        exo_head_free_wish(h, w);
    }
    h->log_wishes = NULL;
    return EXO_OK;
}

/* args: nothing; or the number of lines that the caller has, and, optionally, a second uint64_t.
 * Without arguments the reply has the oldest lines that are kept. UINT64_MAX lines: only new ones.
 * A call with one number waits for a further line; one without arguments, or with a second number
 * that is not 0, does not wait, and its reply may have no lines. The reply: the next such number, a
 * uint64_t, then text. */
exo_status
exo_head_logs(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
              exo_err *err)
{
    const exo_payload *lines = args;
    uint64_t words[2] = {0, 1}; /* lines that the caller has; whether it does not wait */
    if (lines->size == sizeof words[0])
        words[1] = 0;
    else if (lines->size != 0 && lines->size != sizeof words)
        return exo_fail(err, EXO_INVAL, "logs: expected the number of a line");
    if (lines->size > 0)
        memcpy(words, lines->data, lines->size);
    if (words[1] || words[0] < h->num_lines)
        return reply_lines(h, words[0], reply);
    exo_status st = exo_head_wish(h, call, &h->log_wishes, EXO_QUOTA_LOGS, err);
    if (st == EXO_OK)
        h->log_wishes->after = words[0] == UINT64_MAX ? h->num_lines : words[0];
    return st;
}
