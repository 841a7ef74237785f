/* The line of a graph: see graph_line.h. */
#include "programs/graph_line.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "programs/show.h"
#include "programs/text.h"

enum {
    MAX_NAMES = 32,   /* of actors that are looked at */
    MAX_FIGURES = 16, /* of each                      */
    SHOWN = 24        /* characters of a name         */
};

struct figure {
    const char *name;
    double least, greatest;
    bool shown;
};

struct group {
    const char *actor; /* the first one's name    */
    size_t length;     /* of it without the index */
    size_t actors;
    const char *latest; /* the last one that was counted */
    struct figure figures[MAX_FIGURES];
    size_t num_figures;
};

/* "trainer" of "trainer_12". */
static size_t
length_of_name(const char *actor)
{
    size_t length = strlen(actor), digits = length;
    while (digits > 0 && isdigit((unsigned char)actor[digits - 1]))
        digits--;
    return digits < length && digits > 1 && actor[digits - 1] == '_' ? digits - 1 : length;
}

static struct group *
group_of(struct group *groups, size_t *count, const char *actor)
{
    size_t length = length_of_name(actor);
    for (size_t g = 0; g < *count; g++)
        if (groups[g].length == length && strncmp(groups[g].actor, actor, length) == 0)
            return &groups[g];
    if (*count == MAX_NAMES)
        return NULL;
    groups[*count] = (struct group){.actor = actor, .length = length};
    return &groups[(*count)++];
}

static void
add_figure(struct group *g, const char *name, double value)
{
    size_t i = 0;
    while (i < g->num_figures && strcmp(g->figures[i].name, name) != 0)
        i++;
    if (i == MAX_FIGURES)
        return;
    struct figure *f = &g->figures[i];
    if (i == g->num_figures) {
        *f = (struct figure){.name = name, .least = value, .greatest = value};
        g->num_figures++;
    }
    f->least = value < f->least || isnan(f->least) ? value : f->least;
    f->greatest = value > f->greatest || isnan(f->greatest) ? value : f->greatest;
}

static size_t
gather(struct group *groups, const exo_graph_progress *p)
{
    size_t count = 0;
    for (size_t i = 0; i < p->num_figures; i++) {
        struct group *g = group_of(groups, &count, p->figures[i].actor);
        if (!g)
            continue;
        if (!g->latest || strcmp(g->latest, p->figures[i].actor) != 0)
            g->actors++;
        g->latest = p->figures[i].actor;
        add_figure(g, p->figures[i].name, p->figures[i].value);
    }
    return count;
}

/* The groups with those of their figures that are shown. */
static void
put_groups(exo_text *line, const struct group *groups, size_t count)
{
    char least[EXO_FIGURE], greatest[EXO_FIGURE], name[64];
    for (size_t g = 0; g < count; g++) {
        bool first = true;
        for (size_t i = 0; i < groups[g].num_figures; i++) {
            const struct figure *f = &groups[g].figures[i];
            if (!f->shown)
                continue;
            if (first && groups[g].actors > 1)
                exo_text_add(line, "  %.*s x%zu:", (int)(groups[g].length < SHOWN ? groups[g].length : SHOWN),
                             groups[g].actor, groups[g].actors);
            else if (first)
                exo_text_add(line, "  %.*s:", SHOWN + 4, groups[g].actor);
            exo_text_value(f->least, 4, least);
            exo_text_value(f->greatest, 4, greatest);
            exo_text_add(line, "%s %s %s", first ? "" : ",", exo_printable(name, sizeof name, f->name, EXO_SHOWN_LINE),
                         least);
            if (strcmp(least, greatest) != 0)
                exo_text_add(line, "..%s", greatest);
            first = false;
        }
    }
}

static int
width_of(const struct group *groups, size_t count)
{
    exo_text text = {0};
    put_groups(&text, groups, count);
    int width = text.failed ? 0 : (int)text.length;
    exo_free(text.data);
    return width;
}

void
exo_graph_line(exo_text *line, const exo_graph_progress *p, int width)
{
    char time[EXO_FIGURE], bytes[EXO_FIGURE], sent[EXO_FIGURE + 8];
    struct group *groups = exo_calloc(MAX_NAMES, sizeof *groups);
    size_t count = groups ? gather(groups, p) : 0;
    exo_traffic sum = exo_ledger_sum(p->ledger, NULL);
    exo_text_seconds((double)p->time * 1e-9, time);
    snprintf(sent, sizeof sent, "  %s sent", exo_text_bytes((double)sum.payload_bytes, bytes));
    int room = width - (int)strlen(time) - (int)strlen(sent);
    for (size_t i = 0; i < MAX_FIGURES; i++)
        for (size_t g = 0; g < count; g++) {
            if (i >= groups[g].num_figures)
                continue;
            groups[g].figures[i].shown = true;
            if (width_of(groups, count) > room)
                groups[g].figures[i].shown = false;
        }
    exo_text_add(line, "%s", time);
    put_groups(line, groups, count);
    exo_text_add(line, "%s", sent);
    exo_free(groups);
}
