/* What a sender knows of its receivers, and their replies: see sender.h. */
#include "nn/updates/sender.h"

#include <exogym/memory.h>

exo_known_receiver *
exo_sender_find(const exo_update_sender *sender, const char *name)
{
    for (size_t i = 0; i < sender->num_receivers; i++)
        if (strcmp(sender->receivers[i].name, name) == 0)
            return &sender->receivers[i];
    return NULL;
}

exo_known_receiver *
exo_sender_meet(exo_update_sender *sender, const char *name)
{
    exo_known_receiver *found = exo_sender_find(sender, name);
    if (found)
        return found;
    char *copy = exo_strdup(name);
    exo_known_receiver *all =
        copy ? exo_realloc(sender->receivers, sender->num_receivers + 1, sizeof *all) : NULL;
    if (!all) {
        exo_free(copy);
        return NULL;
    }
    sender->receivers = all;
    all[sender->num_receivers] = (exo_known_receiver){.name = copy};
    return &all[sender->num_receivers++];
}

static void
release(exo_known_receiver *receiver)
{
    exo_free(receiver->name);
    exo_snapshot_drop(&receiver->base);
    exo_snapshot_drop(&receiver->sent);
}

void
exo_sender_forget_all(exo_update_sender *sender)
{
    for (size_t i = 0; i < sender->num_receivers; i++)
        release(&sender->receivers[i]);
    exo_free(sender->receivers);
    sender->receivers = NULL;
    sender->num_receivers = 0;
}

void
exo_update_sender_forget(exo_update_sender *sender, const char *receiver)
{
    exo_known_receiver *found = exo_sender_find(sender, receiver);
    if (!found)
        return;
    release(found);
    *found = sender->receivers[--sender->num_receivers];
}

void
exo_sender_trim(exo_update_sender *sender)
{
    for (size_t i = 0; i < sender->num_receivers; i++) {
        exo_snapshot *base = sender->receivers[i].base;
        bool used = base == sender->newest;
        for (size_t k = 0; k < sender->num_receivers; k++)
            used = used || sender->receivers[k].sent == base;
        if (base && !used)
            exo_ipc_array_drop(&base->shared);
    }
}

bool
exo_update_sender_hands(const exo_update_sender *sender, const char *receiver)
{
    const exo_known_receiver *found = exo_sender_find(sender, receiver);
    return found && sender->newest && sender->newest->shared &&
           found->place == sender->newest->place;
}

uint64_t
exo_update_sender_base(const exo_update_sender *sender, const char *receiver)
{
    const exo_known_receiver *found = exo_sender_find(sender, receiver);
    return found && found->base ? found->base->id.version : 0;
}

static bool
is_new(exo_snapshot *const *seen, size_t count, const exo_snapshot *snapshot)
{
    for (size_t i = 0; i < count; i++)
        if (seen[i] == snapshot)
            return false;
    return snapshot != NULL;
}

size_t
exo_update_sender_copies(const exo_update_sender *sender)
{
    size_t copies = sender->newest != NULL, count = 0;
    exo_snapshot **seen = exo_calloc(2 * sender->num_receivers + 1, sizeof *seen);
    if (!seen)
        return 0;
    seen[count++] = sender->newest;
    for (size_t i = 0; i < sender->num_receivers; i++) {
        exo_snapshot *const both[] = {sender->receivers[i].base, sender->receivers[i].sent};
        for (size_t k = 0; k < 2; k++)
            if (is_new(seen, count, both[k])) {
                seen[count++] = both[k];
                copies++;
            }
    }
    exo_free(seen);
    return copies;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* Whether the receiver says that it has the state of a snapshot. */
static bool
has_state(const exo_update_reply *reply, const exo_snapshot *snapshot)
{
    return snapshot && reply->have == snapshot->id.version &&
           strcmp(reply->state, snapshot->state) == 0;
}

static exo_status
check(const exo_update_sender *s, const exo_known_receiver *r, const char *name,
      const exo_update_reply *reply, exo_err *err)
{
    unsigned long long version = reply->version;
    if (!r)
        return exo_fail(err, EXO_INVAL,
                        "a reply of '%s', to which no update was sent: begin one with its name",
                        name);
    bool mine = reply->version == 0 || (reply->sender == s->sender && reply->life == s->life);
    if (!mine)
        return exo_fail(err, EXO_INVAL,
                        "a reply of '%s' to version %llu of sender %llu, life %llu; this is sender "
                        "%llu, life %llu",
                        name, version, (unsigned long long)reply->sender,
                        (unsigned long long)reply->life, (unsigned long long)s->sender,
                        (unsigned long long)s->life);
    bool current = r->sent && reply->version == r->sent->id.version;
    if (reply->answer == EXO_UPDATE_NEED_WHOLE || current ||
        (reply->answer == EXO_UPDATE_REFUSED && reply->version == 0))
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "a reply of '%s' to version %llu, which is not under way to it (%s%.200s)",
                    name, version, reply->text[0] ? "its reason: " : "no reason", reply->text);
}

static exo_status
accepted(exo_known_receiver *r, const exo_update_reply *reply, exo_err *err)
{
    if (!has_state(reply, r->sent))
        return exo_fail(err, EXO_INVAL,
                        "'%s' accepted version %llu, but says that it has another state: treat it "
                        "as lost",
                        r->name, (unsigned long long)reply->version);
    exo_snapshot_drop(&r->base);
    r->base = r->sent;
    r->sent = NULL;
    return EXO_OK;
}

exo_status
exo_update_sender_reply(exo_update_sender *sender, const char *receiver,
                        const exo_update_reply *reply, exo_err *err)
{
    exo_known_receiver *r = reply->answer == EXO_UPDATE_NEED_WHOLE
                                ? exo_sender_meet(sender, receiver)
                                : exo_sender_find(sender, receiver);
    exo_status st = check(sender, r, receiver, reply, err);
    if (st != EXO_OK)
        return st;
    r->place = reply->place;
    switch (reply->answer) {
    case EXO_UPDATE_ACCEPTED:
        st = accepted(r, reply, err);
        exo_sender_trim(sender);
        return st;
    case EXO_UPDATE_REFUSED:
        exo_snapshot_drop(&r->sent);
        if (!has_state(reply, r->base))
            exo_snapshot_drop(&r->base);
        return exo_fail(err, EXO_FAILED, "'%s' refused version %llu and goes on with %llu: %s",
                        receiver, (unsigned long long)reply->version,
                        (unsigned long long)reply->have, reply->text);
    case EXO_UPDATE_NEED_WHOLE:
        exo_snapshot_drop(&r->sent);
        exo_snapshot_drop(&r->base);
        return EXO_OK;
    case EXO_UPDATE_NONE:
        break;
    }
    return exo_fail(err, EXO_INVAL, "a reply of '%s' without an answer", receiver);
}
