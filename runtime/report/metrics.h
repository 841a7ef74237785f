/* The figures of one run, written as it goes: CSV files with EXO Gym's columns, and TensorBoard
 * event files.
 *
 *   train.csv        step,examples_trained,train_loss,train_perplexity,lr
 *   validation.csv   step,local_loss,local_perplexity,global_loss,global_perplexity
 *   metrics.csv      step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy
 *   correlation.csv  step,avg_correlation (there only if it is written to)
 *   meters.csv       step,meter,value,unit: a row for each meter of the run (docs/meters.md); of a graph, which has no steps,
 *                    seconds,meter,value,unit, and no other table
 *   events.out.tfevents.<time>.<host>.exogym
 *
 * A row is in its file, whole, when its call returns: a reader of a running job sees rows, never
 * half of one. Rows are in the order of their steps; what is said of a step that the file has
 * already is left out, so that a resumed run, which computes the same figures again, ends with the
 * same files as one that was never interrupted. Only meters.csv has several rows of one step, which
 * are written at once.
 *
 * Owner: the caller, one thread at a time. Read next: tfevents.h. */
#ifndef EXO_REPORT_METRICS_H
#define EXO_REPORT_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/meter.h>
#include <exogym/status.h>

typedef struct exo_metrics exo_metrics;

/* Opens the files in `folder`, which is made if it is missing. `resume`: rows up to `step` are
 * kept, later ones and a last line that was cut are dropped, and a warning names a file of which
 * earlier rows are damaged or missing; otherwise old files are replaced. Errors: IO names the file;
 * INVAL if a file to go on with is none of ours. */
exo_status exo_metrics_open(exo_metrics **out, const char *folder, bool resume, uint64_t step,
                            exo_err *err);
/* The files of a graph's run, meters.csv and TensorBoard's: old ones are replaced. Errors as
 * above. */
exo_status exo_metrics_open_graph(exo_metrics **out, const char *folder, exo_err *err);
/* NULL is fine. Rows are written already: nothing can fail here. */
void exo_metrics_close(exo_metrics **m);

/* All: IO names the file and the reason, a full disk too; the file then ends with its last whole
 * row. */
exo_status exo_metrics_train(exo_metrics *m, uint64_t step, uint64_t examples, double loss,
                             double lr, exo_err *err);

typedef struct exo_eval_row {
    uint64_t step;
    double seconds;      /* wall-clock since the start of the run */
    uint64_t bytes_sent; /* by the strategy, mean over the nodes  */
    double local_loss, global_loss;
    double local_accuracy, global_accuracy; /* NaN if the model reports none */
} exo_eval_row;

/* To validation.csv and metrics.csv. */
exo_status exo_metrics_validation(exo_metrics *m, const exo_eval_row *row, exo_err *err);
exo_status exo_metrics_correlation(exo_metrics *m, uint64_t step, double correlation, exo_err *err);
/* All meters of a tree but gauges that are not set, to meters.csv and, under their paths with '/'
 * for '.', to TensorBoard, where those that have had a tag of their own are left out. A histogram
 * is several rows: path.count, path.sum, and path.le_BOUND, the observations up to each bound. */
exo_status exo_metrics_meters(exo_metrics *m, uint64_t step, const exo_meters *tree, exo_err *err);
/* The same of a graph, `at` on its clock: TensorBoard's steps are milliseconds of it. Rows of one
 * time are those of the next microsecond. */
exo_status exo_metrics_meters_at(exo_metrics *m, exo_time at, const exo_meters *tree, exo_err *err);
/* Waits until the disk has all rows: before a checkpoint that they belong to. */
exo_status exo_metrics_flush(exo_metrics *m, exo_err *err);

#endif
