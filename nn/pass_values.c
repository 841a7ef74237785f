/* Losses and metrics that stay on the device: see pass_values.h. State: exo_pass_values, and the
 * metrics of tapes. */
#include "nn/pass_values.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/tape_private.h"

enum {
    CELL = 8, /* bytes: a float or a double */
    CELLS = 1 + EXO_TAPE_METRICS
};

static size_t
bytes_of(exo_value_form form)
{
    return form == EXO_VALUE_SUM ? sizeof(double) : sizeof(float);
}

static double
mean_of(exo_value_form form, const void *cell, size_t count)
{
    float mean;
    double sum;
    memcpy(&mean, cell, sizeof mean);
    memcpy(&sum, cell, sizeof sum);
    return form == EXO_VALUE_MEAN ? (double)mean : sum / (double)count;
}

/* --- Metrics of a pass ------------------------------------------------------------------------ */

void
exo_tape_metric(exo_tape *tape, const exo_meter_class *metric, double mean, size_t count)
{
    if (!tape->again && tape->num_metrics < EXO_TAPE_METRICS)
        tape->metrics[tape->num_metrics++] = (struct metric){
            .known = {.metric = metric, .mean = mean, .count = count, .form = EXO_VALUE_HERE}};
}

void
exo_tape_metric_later(exo_tape *tape, const exo_meter_class *metric, const void *value,
                      exo_value_form form, size_t count)
{
    if (!tape->again && tape->num_metrics < EXO_TAPE_METRICS)
        tape->metrics[tape->num_metrics++] = (struct metric){
            .known = {.metric = metric, .count = count, .form = form}, .value = value};
}

size_t
exo_tape_num_metrics(const exo_tape *tape)
{
    return tape->num_metrics;
}

const exo_meter_class *
exo_tape_metric_at(const exo_tape *tape, size_t index, double *mean, size_t *count)
{
    if (index >= tape->num_metrics)
        return NULL;
    const struct metric *m = &tape->metrics[index];
    uint64_t cell = 0;
    *mean = m->known.mean;
    *count = m->known.count;
    if (m->known.form != EXO_VALUE_HERE) {
        /* a copy that fails is recorded in the tape */
        exo_status st =
            exo_tape_read((exo_tape *)(uintptr_t)tape, &cell, m->value, bytes_of(m->known.form));
        *mean = st == EXO_OK ? mean_of(m->known.form, &cell, *count) : (double)NAN;
    }
    return m->known.metric;
}

/* --- Values of passes ------------------------------------------------------------------------- */

exo_status
exo_pass_values_init(exo_pass_values *values, exo_device *device, size_t room, exo_err *err)
{
    *values = (exo_pass_values){0};
    exo_status st = EXO_OK;
    if (room >= SIZE_MAX / (CELLS * CELL) ||
        !(values->host = exo_calloc(room * CELLS, sizeof *values->host)) ||
        !(values->each = exo_calloc(room, sizeof *values->each)))
        st = exo_fail(err, EXO_NOMEM, "no memory for the losses of %zu passes", room);
    if (st == EXO_OK)
        st = exo_array_init(&values->kept, device, EXO_U8, (room + 1) * CELLS * CELL, err);
    values->room = room;
    if (st != EXO_OK)
        exo_pass_values_release(values);
    return st;
}

void
exo_pass_values_release(exo_pass_values *values)
{
    exo_array_release(&values->kept);
    exo_free(values->host);
    exo_free(values->each);
    *values = (exo_pass_values){0};
}

static exo_status
keep(const exo_pass_values *values, size_t cell, const void *from, exo_value_form form,
     exo_err *err)
{
    exo_device *device = values->kept.device;
    return device->device_class->copy(device, (char *)values->kept.data + cell * CELL, from,
                                      bytes_of(form), EXO_COPY_ON_DEVICE, err);
}

exo_status
exo_pass_values_keep(exo_pass_values *values, exo_tape *tape, const exo_tensor *loss, exo_err *err)
{
    assert(values->num < values->room);
    const size_t first = values->room * CELLS; /* behind those of the passes */
    exo_pass_record *pass = &values->each[values->num];
    exo_status st = EXO_OK;
    *pass = (exo_pass_record){.num = 1 + tape->num_metrics};
    pass->each[0] = (exo_pass_value){.count = 1, .form = EXO_VALUE_MEAN};
    if (loss->dtype == EXO_F32)
        st = keep(values, first, loss->data, EXO_VALUE_MEAN, err);
    else
        pass->each[0] = (exo_pass_value){.mean = (double)exo_tensor_item(loss), .count = 1};
    for (size_t i = 0; st == EXO_OK && i < tape->num_metrics; i++) {
        const struct metric *m = &tape->metrics[i];
        pass->each[1 + i] = m->known;
        if (m->known.form != EXO_VALUE_HERE)
            st = keep(values, first + 1 + i, m->value, m->known.form, err);
    }
    values->num += st == EXO_OK;
    return st;
}

exo_status
exo_pass_values_store(exo_pass_values *values, exo_err *err)
{
    exo_device *device = values->kept.device;
    char *const kept = values->kept.data;
    assert(values->num > 0);
    return device->device_class->copy(device, kept + (values->num - 1) * CELLS * CELL,
                                      kept + values->room * CELLS * CELL, CELLS * CELL,
                                      EXO_COPY_ON_DEVICE, err);
}

void
exo_pass_values_skip(exo_pass_values *values)
{
    assert(values->num < values->room);
    values->each[values->num++] = (exo_pass_record){.num = 1, .each[0].count = 1};
}

exo_status
exo_pass_values_read(exo_pass_values *values, exo_err *err)
{
    exo_status st = exo_array_read(exo_array_part(values->kept, 0, values->num * CELLS * CELL),
                                   values->host, err);
    for (size_t p = 0; st == EXO_OK && p < values->num; p++)
        for (size_t i = 0; i < values->each[p].num; i++) {
            exo_pass_value *v = &values->each[p].each[i];
            if (v->form != EXO_VALUE_HERE)
                v->mean = mean_of(v->form, &values->host[p * CELLS + i], v->count);
            v->form = EXO_VALUE_HERE;
        }
    return st;
}
