/* Reads the reports of graph actors: see report.h. No state. */
#include "graph/report.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "report/meter_json.h"
#include "report/timeline.h"
#include "report/traffic_json.h"

static uint64_t
count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static exo_status
read_traffic(const char *actor, const char *host, const json_t *edges, exo_ledger *ledger,
             exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < json_array_size(edges); i++) {
        const json_t *row = json_array_get(edges, i);
        const char *edge = json_string_value(json_object_get(row, "edge"));
        const exo_traffic traffic =
            exo_traffic_of_json(json_object_get(row, "traffic"), EXO_TRAFFIC_NUMBERS);
        st = exo_ledger_add(ledger, edge ? edge : "?", actor, host, &traffic, err);
    }
    return st;
}

/* Adds an actor's meters to the result; leaves out those that do not fit the tree. */
static exo_status
read_meters(exo_graph_result *result, const char *actor, const json_t *meters, exo_err *err)
{
    exo_meters *scope = NULL;
    if (json_object_size(meters) == 0)
        return EXO_OK;
    exo_status st = result->meters ? EXO_OK : exo_meters_new(&result->meters, err);
    if (st == EXO_OK && exo_meters_scope(&scope, result->meters, actor, NULL) == EXO_OK)
        exo_meters_of_json(scope, meters);
    return st;
}

static void
read_part(exo_graph_part *part, const char *actor, const char *host, const json_t *report)
{
    const json_t *phases = json_object_get(report, "phases");
    *part = (exo_graph_part){.host = host, .time = (exo_time)count_of(report, "time_ns")};
    snprintf(part->actor, sizeof part->actor, "%s", actor);
    for (size_t i = 0; i < json_array_size(phases); i++) {
        const json_t *phase = json_array_get(phases, i);
        const char *kind = json_string_value(json_object_get(phase, "kind"));
        const char *name = json_string_value(json_object_get(phase, "name"));
        exo_time time = (exo_time)count_of(phase, "time_ns");
        if (kind && name && part->num_phases < EXO_GRAPH_PHASES) {
            size_t at = part->num_phases++;
            snprintf(part->phases[at].name, sizeof part->phases[at].name, "%s", name);
            snprintf(part->phases[at].kind, sizeof part->phases[at].kind, "%s", kind);
            part->phases[at].time = time;
            part->phases[at].count = count_of(phase, "count");
        }
        if (kind && strcmp(kind, "compute") == 0)
            part->compute += time;
        else if (kind && strcmp(kind, "send_blocked") == 0)
            part->send_blocked += time;
        else
            part->recv_blocked += time;
    }
}

static exo_status
add_report(exo_graph_result *result, const char *actor, const char *host, const exo_payload *reply,
           bool at_the_end, exo_err *err)
{
    json_t *report =
        reply && reply->size ? json_loadb(reply->data, reply->size - 1, 0, NULL) : NULL;
    if (!report)
        return exo_fail(err, EXO_INVAL, "%s: its report cannot be read", actor);
    exo_status st =
        read_traffic(actor, host, json_object_get(report, "edges"), &result->ledger, err);
    if (st == EXO_OK)
        st = read_meters(result, actor, json_object_get(report, "meters"), err);
    if (st == EXO_OK && at_the_end && result->parts) {
        exo_graph_part *part = &result->parts[result->num_parts++];
        read_part(part, actor, host, report);
        result->time = part->time > result->time ? part->time : result->time;
    }
    json_decref(report);
    return st;
}

exo_status
exo_graph_report_add_all(exo_graph_result *result, uint32_t count,
                         void (*report)(void *context, uint32_t i, exo_graph_report *out),
                         void *context, exo_err *err)
{
    exo_status first = EXO_OK;
    for (uint32_t i = 0; i < count; i++) {
        exo_graph_report r = {0};
        report(context, i, &r);
        if (!r.reply)
            continue;
        exo_status st = add_report(result, r.actor, r.host, r.reply, r.at_the_end,
                                   first == EXO_OK ? err : NULL);
        first = first == EXO_OK ? st : first;
    }
    return first;
}

exo_status
exo_graph_report_hosts(exo_graph_result *r, const exo_graph_spec *spec, exo_links *network,
                       exo_err *err)
{
    r->hosts = exo_calloc(spec->num_hosts, sizeof *r->hosts);
    if (!r->hosts)
        return exo_fail(err, EXO_NOMEM, "no memory for the hosts' figures");
    r->num_hosts = spec->num_hosts;
    for (uint32_t h = 0; h < spec->num_hosts; h++) {
        exo_link_stats up = {0}, down = {0};
        exo_links_host_stats(network, h, &up, &down);
        r->hosts[h] = (exo_graph_host){.name = spec->hosts[h].spec.name,
                                       .up_bytes = up.bytes,
                                       .down_bytes = down.bytes,
                                       .up_busy = up.busy,
                                       .down_busy = down.busy};
    }
    return EXO_OK;
}

exo_status
exo_graph_report_timeline(const char *path, const exo_graph_spec *spec, exo_place *const *places,
                          uint32_t count, exo_err *err)
{
    exo_timeline_track *tracks = exo_calloc(count, sizeof *tracks);
    if (!tracks)
        return exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    for (uint32_t i = 0; i < count; i++)
        tracks[i] = (exo_timeline_track){.host = spec->hosts[places[i]->host].spec.name,
                                         .actor = places[i]->actor.name,
                                         .track = &places[i]->pace.track};
    exo_status st = exo_timeline_write(path, tracks, count, err);
    exo_free(tracks);
    return st;
}
