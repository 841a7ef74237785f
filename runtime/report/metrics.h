/* The figures of one run, written while it runs: CSV files with EXO Gym's columns, and TensorBoard
 * event files.
 *
 *   train.csv        step,examples_trained,train_loss,train_perplexity,lr
 *   validation.csv   step,local_loss,local_perplexity,global_loss,global_perplexity
 *   metrics.csv      step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy
 *   correlation.csv  step,avg_correlation; exists only after its first row
 *   members.csv      step,seconds,epoch,event,node,present; exists only after its first row
 *   meters.csv       step,meter,value,unit: one row for each meter of the run (docs/meters.md)
 *   events.out.tfevents.<time>.<host>.exogym
 *
 * The run of a graph has no steps: its only table is meters.csv, with the columns
 * seconds,meter,value,unit.
 *
 * Each call writes its rows before it returns, so that a reader of a running job sees whole rows
 * only. Rows are in the order of their steps. A row of a step that the file already has is left
 * out, except in members.csv: a resumed run computes the same figures again and ends with the same files as an
 * uninterrupted run. Only meters.csv has several rows of one step, which are written at once.
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

/* Opens the files in `folder`, and makes the folder if it is missing. Without `resume`, old files
 * are replaced. With `resume`, rows up to `step` are kept; later rows and an incomplete last line
 * are dropped, and a warning names each file whose earlier rows are damaged or missing. Errors: IO
 * names the file; INVAL if an existing file is not a table of this kind; NOMEM. */
exo_status exo_metrics_open(exo_metrics **out, const char *folder, bool resume, uint64_t step,
                            exo_err *err);
/* Opens the files of a graph's run (meters.csv and TensorBoard's) and replaces old ones. Errors as
 * above. */
exo_status exo_metrics_open_graph(exo_metrics **out, const char *folder, exo_err *err);
/* Closes the files. *m may be NULL. Rows are already written, so nothing can fail here. */
void exo_metrics_close(exo_metrics **m);

/* All functions that write: IO names the file and the reason, also of a full disk; the file then
 * ends with its last whole row. */
exo_status exo_metrics_train(exo_metrics *m, uint64_t step, uint64_t examples, double loss,
                             double lr, exo_err *err);

typedef struct exo_eval_row {
    uint64_t step;
    double seconds;      /* wall-clock since the start of the run */
    uint64_t bytes_sent; /* by the strategy, mean over the nodes */
    double local_loss, global_loss;
    double local_accuracy, global_accuracy; /* NaN if the model reports none */
} exo_eval_row;

/* Writes to validation.csv and metrics.csv. */
exo_status exo_metrics_validation(exo_metrics *m, const exo_eval_row *row, exo_err *err);
exo_status exo_metrics_correlation(exo_metrics *m, uint64_t step, double correlation, exo_err *err);
/* Writes that a node of an elastic run has left or joined; `event` is a word. */
exo_status exo_metrics_members(exo_metrics *m, uint64_t step, double seconds, uint64_t epoch,
                               const char *event, uint32_t node, uint32_t present, exo_err *err);
/* Writes all meters of a tree, except gauges that are not set, to meters.csv and to TensorBoard.
 * TensorBoard's tags are the paths with '/' for '.'; meters that have a tag of their own there
 * (train/loss, say) are left out. A histogram takes several rows: path.count, path.sum, and
 * path.le_BOUND, the number of observations up to each bound. */
exo_status exo_metrics_meters(exo_metrics *m, uint64_t step, const exo_meters *tree, exo_err *err);
/* The same for a graph, at the time `at` on its clock. TensorBoard's steps are milliseconds of this
 * clock. If the table already has rows of this microsecond or a later one, the rows get the next
 * free microsecond. */
exo_status exo_metrics_meters_at(exo_metrics *m, exo_time at, const exo_meters *tree, exo_err *err);
/* Waits until all rows are on the disk. Call it before a checkpoint is saved: a resume relies on
 * the rows up to it. */
exo_status exo_metrics_flush(exo_metrics *m, exo_err *err);

#endif
