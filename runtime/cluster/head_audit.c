/* The head's records in the audit log: refused calls, and calls that note their subject because
 * they change something. Of calls that only read, only the refused ones are recorded.
 *
 * The note belongs to the lane: the method that writes it returns before the next one begins. Read
 * next: head.c (the methods), audit.h. */
#include <stdio.h>
#include <string.h>

#include "base/audit.h"
#include "base/printable.h"
#include "cluster/head_impl.h"

void
exo_head_note(struct head *h, const char *subject, const char *detail)
{
    if (!h->env.audit)
        return;
    exo_cut(h->note.subject, sizeof h->note.subject, subject);
    exo_cut(h->note.detail, sizeof h->note.detail, detail ? detail : "");
}

void
exo_head_note_actor(struct head *h, const char *space, const char *name, const char *detail)
{
    char subject[2 * EXO_NAME];
    if (!h->env.audit)
        return;
    exo_format_cut(subject, sizeof subject, "%s/%s", space[0] ? space : "default", name);
    exo_head_note(h, subject, detail);
}

/* Appends as much as fits. */
static size_t
add(char *out, size_t at, size_t size, const char *before, const char *text)
{
    if (at + 1 < size && text[0])
        exo_format_cut(out + at, size - at, "%s%s", before, text);
    return at + strlen(out + at);
}

void
exo_head_note_spawn(struct head *h, const Exo__Cluster__Spawn *spec)
{
    char detail[sizeof h->note.detail], count[64];
    size_t at = 0;
    if (!h->env.audit)
        return;
    detail[0] = 0;
    at = add(detail, at, sizeof detail, "class ", spec->class_name);
    at = add(detail, at, sizeof detail, ", group ", spec->group);
    at = add(detail, at, sizeof detail, ", job ", spec->job);
    at = add(detail, at, sizeof detail, ", on ", spec->node);
    at = add(detail, at, sizeof detail, ", ", spec->detached ? "detached" : "");
    for (size_t i = 0; i < spec->n_plugins && at + 1 < sizeof detail; i++)
        at = add(detail, at, sizeof detail, i ? ", " : ", plugins ", spec->plugins[i]);
    snprintf(count, sizeof count, "%zu more", spec->n_together);
    at = add(detail, at, sizeof detail, ", with ", spec->n_together ? count : "");
    for (size_t i = 0; i < spec->n_together && at + 1 < sizeof detail; i++) {
        const Exo__Cluster__Spawn *one = spec->together[i];
        at = add(detail, at, sizeof detail, i ? ", " : ": ",
                 one->name[0] ? one->name : one->class_name);
    }
    exo_head_note_actor(h, spec->space, spec->name, detail);
}

void
exo_head_record_job(struct head *h, const exo_job_entry *job, const exo_cluster_node *driver,
                    const char *detail)
{
    exo_audit_add(h->env.audit, &(exo_audit_record){.event = EXO_AUDIT_JOB,
                                                    .who = driver ? driver->owner : NULL,
                                                    .object = "head",
                                                    .subject = job->name,
                                                    .detail = detail});
}

static exo_status
run(const struct exo_head_method *method, struct head *h, exo_call_context *call,
    const exo_payload *args, exo_payload *reply, exo_err *err)
{
    if (!method->message)
        return method->run(h, call, args, reply, err);
    ProtobufCMessage *message = exo_message_unpack_args(method->message, args);
    if (!message)
        return exo_message_refuse_args(method->name, err);
    exo_status st = method->run(h, call, message, reply, err);
    exo_message_release(message);
    return st;
}

exo_status
exo_head_serve(const struct exo_head_method *method, struct head *h, exo_call_context *call,
               const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_err reason = {0};
    if (!h->env.audit)
        return run(method, h, call, args, reply, err);
    h->note = (struct exo_head_note){0};
    exo_status st = run(method, h, call, args, reply, &reason);
    if (err)
        *err = reason;
    bool refused = st == EXO_DENIED || st == EXO_FULL,
         noted = method->event < EXO_AUDIT_EVENTS && h->note.subject[0];
    if (exo_call_identity(call) && (refused || noted))
        exo_audit_add(h->env.audit, &(exo_audit_record){.event = st == EXO_DENIED ? EXO_AUDIT_DENIED
                                                                 : st == EXO_FULL ? EXO_AUDIT_QUOTA
                                                                                  : method->event,
                                                        .who = exo_call_identity(call),
                                                        .object = "head",
                                                        .method = method->name,
                                                        .subject = h->note.subject,
                                                        .detail = h->note.detail,
                                                        .status = st,
                                                        .reason = reason.text});
    return st;
}
