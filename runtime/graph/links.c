/* Makes the emulated network of a graph. No state. */
#include "graph/spec.h"

#include <math.h>

#include <exogym/memory.h>

/* The link between hosts if the graph gives none: it takes no time. */
static const exo_link_spec instant = {.bandwidth = (double)INFINITY, .transport = EXO_LINK_IDEAL};

static const exo_link_spec *
fallback_of(const exo_graph_spec *spec)
{
    return spec->num_links > 0 && spec->links[0].is_default ? &spec->links[0].spec : &instant;
}

static bool
contains(const exo_host_group *group, uint32_t host)
{
    return host >= group->first && host - group->first < group->count;
}

const exo_link_spec *
exo_graph_link_between(const exo_graph_spec *spec, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < spec->num_links; i++) {
        const exo_named_link *link = &spec->links[i];
        if (link->from < 0)
            continue;
        const exo_host_group *a = &spec->host_groups[link->from], *b = &spec->host_groups[link->to];
        if ((contains(a, from) && contains(b, to)) ||
            (link->both_ways && contains(b, from) && contains(a, to)))
            return &link->spec;
    }
    return fallback_of(spec);
}

/* Sets the link for every pair of hosts from two groups. */
static exo_status
connect(exo_links *links, const exo_host_group *from, const exo_host_group *to,
        const exo_link_spec *link, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < from->count; i++)
        for (uint32_t k = 0; st == EXO_OK && k < to->count; k++)
            if (from->first + i != to->first + k)
                st = exo_links_between(links, from->first + i, to->first + k, link, err);
    return st;
}

/* Gives pairs of hosts the links that the graph names for them. */
static exo_status
connect_all(exo_links *links, const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < spec->num_links; i++) {
        const exo_named_link *link = &spec->links[i];
        if (link->from < 0)
            continue;
        const exo_host_group *from = &spec->host_groups[link->from],
                             *to = &spec->host_groups[link->to];
        st = connect(links, from, to, &link->spec, err);
        if (st == EXO_OK && link->both_ways && link->from != link->to)
            st = connect(links, to, from, &link->spec, err);
    }
    return st;
}

exo_status
exo_graph_set_links(exo_links *links, const exo_graph_spec *next, exo_err *err)
{
    exo_links_begin_change(links);
    exo_status st = connect_all(links, next, err);
    if (st == EXO_OK)
        st = exo_links_set_fallback(links, fallback_of(next), err);
    if (st == EXO_OK)
        exo_links_end_change(links);
    return st;
}

exo_status
exo_graph_links(const exo_graph_spec *spec, exo_links **out, exo_err *err)
{
    exo_links *links = NULL;
    exo_host_spec *hosts = exo_calloc(spec->num_hosts, sizeof *hosts);
    exo_status st = hosts ? EXO_OK : exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (size_t i = 0; st == EXO_OK && i < spec->num_hosts; i++)
        hosts[i] = spec->hosts[i].spec;
    if (st == EXO_OK)
        st = exo_links_new(&links, hosts, spec->num_hosts, fallback_of(spec), spec->seed, err);
    if (st == EXO_OK)
        st = connect_all(links, spec, err);
    exo_free(hosts);
    if (st == EXO_OK) {
        *out = links;
        links = NULL; /* moved to the caller */
    }
    if (links)
        exo_links_free(&links);
    return st;
}
