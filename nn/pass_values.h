/* The losses and metrics of passes, which stay on the device until they are read together: a step
 * of training asks for its kernels without a wait in their midst.
 *
 * Owner: the thread of the tapes. Read next: pass_values.c; actors/replica_pass.c, which reads
 * them. */
#ifndef EXO_PASS_VALUES_H
#define EXO_PASS_VALUES_H

#include <exogym/tensor.h>

/* How the value of a metric is kept. */
typedef enum exo_value_form {
    EXO_VALUE_HERE, /* it is known on the host */
    EXO_VALUE_MEAN, /* on the device: an fp32 mean */
    EXO_VALUE_SUM,  /* on the device: a double, whose mean is over the metric's count */
} exo_value_form;

typedef struct exo_pass_value {
    const exo_meter_class *metric; /* NULL: the loss */
    double mean;                   /* HERE, or after exo_pass_values_read */
    size_t count;
    exo_value_form form;
} exo_pass_value;

typedef struct exo_pass_record {
    exo_pass_value each[1 + EXO_TAPE_METRICS]; /* the loss first */
    size_t num;
} exo_pass_record;

/* Of `num` passes, oldest first. A zero-initialized struct has no room. */
typedef struct exo_pass_values {
    exo_array kept;        /* on the device: 8 bytes for each value; a row behind the passes' */
    uint64_t *host;        /* the same, once read */
    exo_pass_record *each; /* (room) */
    size_t room, num;
} exo_pass_values;

/* Makes room for `room` passes on the device. After an error *values is released. NOMEM. */
exo_status exo_pass_values_init(exo_pass_values *values, exo_device *device, size_t room,
                                exo_err *err);
void exo_pass_values_release(exo_pass_values *values);
/* Keeps the loss and the metrics of the pass on `tape`, which is before its backward: the device
 * copies them, in the order of its work, to one place for all passes, so that a pass asks the device
 * for the same as the one before it. There is room. Errors: of the device. */
exo_status exo_pass_values_keep(exo_pass_values *values, exo_tape *tape, const exo_tensor *loss,
                                exo_err *err);
/* Copies them to the place of their pass, behind its backward. Errors: of the device. */
exo_status exo_pass_values_store(exo_pass_values *values, exo_err *err);
/* Counts a pass of a rehearsal, which has no results: its loss is 0. */
void exo_pass_values_skip(exo_pass_values *values);
/* Waits for the device, and sets every `mean`. Errors: the first failure of the device's work. */
exo_status exo_pass_values_read(exo_pass_values *values, exo_err *err);

/* Reports a metric as exo_tape_metric does, whose value is at `value` on the device until backward.
 * The form is MEAN or SUM. */
void exo_tape_metric_later(exo_tape *tape, const exo_meter_class *metric, const void *value,
                           exo_value_form form, size_t count);

#endif
