/* Timelines: see timeline.h. No state. */
#include "report/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/file.h"

/* Writes a JSON string. A checked graph has no such characters in its names, but the escapes keep
 * the file valid in any case. */
static void
put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", *text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static void
put_name(FILE *out, const char *what, size_t pid, size_t tid, const char *name)
{
    fprintf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%zu,\"tid\":%zu,\"args\":{\"name\":", what,
            pid, tid);
    put_text(out, name);
    fprintf(out, "}},\n");
}

static size_t
host_number(const exo_timeline_track *tracks, size_t index)
{
    size_t number = 1;
    for (size_t i = 0; i < index; i++) {
        if (strcmp(tracks[i].host, tracks[index].host) == 0)
            return host_number(tracks, i);
        number++;
    }
    return number;
}

exo_status
exo_timeline_write(const char *path, const exo_timeline_track *tracks, size_t count, exo_err *err)
{
    static const char *const kinds[] = {"compute", "send_blocked", "recv_blocked"};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    fprintf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t i = 0; i < count; i++) {
        size_t host = host_number(tracks, i);
        put_name(out, "process_name", host, 0, tracks[i].host);
        put_name(out, "thread_name", host, i + 1, tracks[i].actor);
        for (size_t s = 0; s < tracks[i].track->length; s++) {
            const exo_span *span = &tracks[i].track->spans[s];
            fprintf(out, "{\"ph\":\"X\",\"name\":");
            put_text(out, span->name);
            exo_c_fprintf(out,
                          ",\"cat\":\"%s\",\"pid\":%zu,\"tid\":%zu,\"ts\":%.3f,\"dur\":%.3f},\n",
                          kinds[span->kind], host, i + 1, (double)span->begin * 1e-3,
                          (double)(span->end - span->begin) * 1e-3);
        }
    }
    fprintf(out, "{\"ph\":\"M\",\"name\":\"exogym\",\"pid\":0,\"args\":{}}\n]}\n");
    exo_status st = fclose(out) == 0 ? exo_file_write_atomic(path, text, size, err)
                                     : exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    (free)(text); /* open_memstream allocates with malloc */
    return st;
}
