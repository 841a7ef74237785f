/* Units of a model: what models declare, copies of which a part is there, and what a pass says
 * about where it is. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "base/memory_fault.h"
#include "support/points.h"
#include "support/token_rows.h"

enum {
    SEED = 7,
    BATCH = 4,
    BLOCK = 5,
    VOCABULARY = 11,
    WIDTH = 8
};

static exo_err err;

static exo_model *
model_of(const char *name, const char *options)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    cr_assert_eq(exo_config_parse(&doc, "model", options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, name, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

static exo_model *
small_gpt(const char *more)
{
    char options[256];
    snprintf(options, sizeof options,
             "{vocabulary: %d, context: %d, width: %d, heads: 2, layers: 2%s}", VOCABULARY, BLOCK,
             WIDTH, more);
    return model_of("gpt", options);
}

static void
expect_units(exo_model *model, const char *const *names, size_t count)
{
    const exo_unit_info *units = exo_model_units(model);
    size_t end = 0;
    cr_assert_eq(exo_model_num_units(model), count);
    for (size_t u = 0; u < count; u++) {
        cr_expect_str_eq(units[u].name, names[u]);
        cr_expect_eq(units[u].first, end);
        cr_expect_gt(units[u].count, 0);
        end += units[u].count;
    }
    cr_expect_eq(end, exo_model_numel(model));
    for (size_t i = 0; i < exo_model_num_infos(model); i++) {
        const exo_param_info *info = &exo_model_infos(model)[i];
        cr_expect_eq(info->unit == EXO_NO_UNIT, info->is_buffer, "%s", info->name);
        if (info->is_buffer)
            continue;
        const exo_unit_info *unit = &units[info->unit];
        cr_expect(info->offset >= unit->first &&
                      info->offset + info->numel <= unit->first + unit->count,
                  "%s", info->name);
    }
    exo_model_drop(&model);
}

/* --- What models declare ---------------------------------------------------------------------- */

Test(model_units, the_library_s_models_have_theirs)
{
    expect_units(points_mlp(), (const char *const[]){"fc1", "fc2"}, 2);
    expect_units(small_gpt(""), (const char *const[]){"embedding", "block.0", "block.1", "head"},
                 4);
    expect_units(model_of("mnist_cnn", "{}"),
                 (const char *const[]){"conv1", "conv2", "conv3", "conv4", "fc1", "fc2"}, 6);
}

Test(model_units, what_is_frozen_is_in_none)
{
    expect_units(small_gpt(", frozen: [blocks.0.*, norm.*]"),
                 (const char *const[]){"embedding", "block.1"}, 2);
}

static exo_status
build(void *self, exo_builder *b, exo_config *config, exo_err *reason)
{
    const char *text = NULL;
    (void)self;
    exo_status st = exo_config_string(config, "units", "", &text, reason);
    for (size_t i = 0; st == EXO_OK && text[i]; i++) {
        char name[2] = {text[i]};
        if (text[i] == '.') /* a parameter */
            exo_build_param(b, (char[]){'p', (char)('0' + i), '\0'}, 1, (size_t[]){3},
                            exo_init_constant(1));
        else
            exo_build_unit(b, name);
    }
    return st == EXO_OK ? exo_build_status(b, reason) : st;
}

static void
forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    (void)self;
    (void)t;
    (void)batch;
    (void)outputs;
}

static const exo_model_class listed = {
    .name = "listed", .build = build, .outputs = (const char *const[]){NULL}, .forward = forward};

static exo_status
new_of(const char *units, exo_model **model)
{
    char text[64];
    exo_config_doc *doc = NULL;
    snprintf(text, sizeof text, "{units: '%s'}", units);
    err = (exo_err){0};
    cr_assert_eq(exo_config_parse(&doc, "model", text, &err), EXO_OK, "%s", err.text);
    exo_status st = exo_model_new(model, &listed, exo_config_root(doc), &err);
    exo_config_free(&doc);
    return st;
}

Test(model_units, a_model_may_have_none_of_its_own)
{
    exo_model *model = NULL;
    cr_assert_eq(new_of("..", &model), EXO_OK, "%s", err.text);
    expect_units(model, (const char *const[]){"model"}, 1);
    cr_assert_eq(new_of(".a..b", &model), EXO_OK, "%s", err.text);
    expect_units(model, (const char *const[]){"model", "a"}, 2);
    cr_assert_eq(new_of("ab.", &model), EXO_OK, "%s", err.text);
    expect_units(model, (const char *const[]){"b"}, 1);
}

Test(model_units, names_are_unique)
{
    exo_model *model = NULL;
    cr_expect_eq(new_of("a.b.a.", &model), EXO_EXISTS);
    cr_expect_not_null(strstr(err.text, "two units 'a'"), "%s", err.text);
}

/* --- Copies of which a part is there ---------------------------------------------------------- */

static size_t
resident_pages(void *memory, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    unsigned char pages[64] = {0};
    cr_assert_leq(bytes, sizeof pages * page);
    cr_assert_eq(mincore(memory, bytes, pages), 0);
    for (size_t i = 0; i < (bytes + page - 1) / page; i++)
        count += pages[i] & 1;
    return count;
}

Test(model_units, an_absent_unit_has_an_address_and_no_memory)
{
    exo_model *model = points_mlp();
    exo_params *params = NULL;
    exo_array first, again;
    cr_assert_eq(exo_model_by_units(model, SEED, &params, &err), EXO_OK, "%s", err.text);
    cr_expect(exo_params_by_units(params));
    cr_expect_eq(exo_params_values(params), NULL);
    cr_expect_eq(exo_params_grads(params), NULL);
    cr_expect_eq(exo_params_at(params, 0), NULL);
    cr_expect_eq(exo_unit_values(params, 0).data, NULL);
    cr_assert_eq(exo_unit_open(params, 0, &first, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(first.count, 8 * 16 + 16);
    cr_expect_eq((void *)exo_params_at(params, 0), first.data);
    exo_vec_fill(first, 1);
    cr_expect_eq(exo_params_open_bytes(params), first.count * sizeof(float));
    cr_expect_gt(resident_pages(first.data, first.count * sizeof(float)), 0);
    exo_unit_close(params, 0);
    cr_expect_eq(exo_params_open_bytes(params), 0);
    cr_expect_eq(resident_pages(first.data, first.count * sizeof(float)), 0);
    exo_unit_close(params, 0);
    cr_assert_eq(exo_unit_open(params, 0, &again, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(again.data, first.data, "what a pass has recorded stays right");
    for (size_t i = 0; i < again.count; i++)
        cr_assert_eq(((float *)again.data)[i], 0);
    cr_expect_eq(exo_params_most_open_bytes(params), first.count * sizeof(float));
    exo_params_free(&params);
    exo_model_drop(&model);
}

Test(model_units, who_reads_an_absent_unit_is_ended, .signal = SIGSEGV)
{
    exo_model *model = points_mlp();
    exo_params *params = NULL;
    exo_array unit;
    cr_assert_eq(exo_model_by_units(model, SEED, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_unit_open(params, 1, &unit, &err), EXO_OK, "%s", err.text);
    exo_unit_close(params, 1);
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it instead */
    const volatile float *stale = unit.data;
    cr_expect_eq(*stale, 0, "not reached");
}

Test(model_units, drawn_one_by_one_they_are_the_model)
{
    exo_model *model = small_gpt(", tied: false");
    exo_params *flat = NULL, *params = NULL;
    cr_assert_eq(exo_model_params(model, SEED, &flat, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_by_units(model, SEED, &params, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_params_by_units(flat), false);
    for (size_t u = 0; u < exo_model_num_units(model); u++) {
        exo_array values, expected;
        cr_assert_eq(exo_unit_open(params, u, &values, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_unit_open(flat, u, &expected, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(expected.data,
                     (void *)(exo_params_values(flat) + exo_model_units(model)[u].first));
        cr_assert_eq(exo_unit_draw(model, params, u, SEED, &err), EXO_OK, "%s", err.text);
        cr_expect_arr_eq(values.data, expected.data, values.count * sizeof(float));
        exo_unit_close(params, u);
        exo_unit_close(flat, u);
        cr_expect_eq(exo_unit_values(flat, u).data, expected.data, "a flat copy's units stay");
    }
    exo_params_free(&flat);
    exo_params_free(&params);
    exo_model_drop(&model);
}

Test(model_units, every_allocation_of_a_copy_may_fail)
{
    exo_model *model = points_mlp();
    exo_params *params = NULL;
    exo_array values;
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_memory_fail_at(n);
        st = exo_model_by_units(model, SEED, &params, &err);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && !params));
        cr_assert_lt(n, 20);
    }
    exo_memory_fail_at(1);
    cr_expect_eq(exo_unit_open(params, 0, &values, &err), EXO_NOMEM);
    cr_expect_not_null(strstr(err.text, "'fc1'"), "%s", err.text);
    cr_expect_eq(values.data, NULL);
    cr_expect_eq(exo_params_open_bytes(params), 0);
    char hash[65];
    cr_expect_eq(exo_params_sha256(params, hash, &err), EXO_UNSUPPORTED,
                 "its values are not there");
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* A node of its own: what it is told, and a copy of everything to fill units from. */
struct walk {
    exo_model *model;
    exo_params *flat, *params;
    exo_tape *tape;
    exo_batch batch;
    char told[256]; /* "+0 -0 +1 ..." */
    size_t fail_at; /* the call that fails; 0: none */
    size_t calls;
};

static exo_status
tell(struct walk *w, char sign, size_t unit, exo_err *reason)
{
    size_t used = strlen(w->told);
    snprintf(w->told + used, sizeof w->told - used, "%s%c%zu", used ? " " : "", sign, unit);
    return ++w->calls == w->fail_at ? exo_fail(reason, EXO_IO, "the unit is gone") : EXO_OK;
}

static exo_status
before(void *context, size_t unit, exo_err *reason)
{
    struct walk *w = context;
    exo_array values;
    exo_status st = tell(w, '+', unit, reason);
    if (st == EXO_OK)
        st = exo_unit_open(w->params, unit, &values, reason);
    if (st == EXO_OK)
        exo_vec_copy(values, exo_unit_values(w->flat, unit));
    return st;
}

static exo_status
after(void *context, size_t unit, exo_err *reason)
{
    struct walk *w = context;
    exo_unit_close(w->params, unit);
    return tell(w, '-', unit, reason);
}

static void
walk_init(struct walk *w, exo_model *model, exo_dataset *data)
{
    *w = (struct walk){.model = model};
    size_t indices[BATCH];
    for (size_t i = 0; i < BATCH; i++)
        indices[i] = i;
    cr_assert_eq(exo_model_params(model, SEED, &w->flat, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_by_units(model, SEED, &w->params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new(&w->tape, &err), EXO_OK);
    cr_assert_eq(exo_batch_init(&w->batch, data, BATCH, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_batch_read(&w->batch, data, indices, BATCH, &(exo_sample_key){0}, &err),
                 EXO_OK, "%s", err.text);
    exo_dataset_drop(&data);
}

static void
walk_release(struct walk *w)
{
    exo_tape_free(&w->tape);
    exo_batch_release(&w->batch);
    exo_params_free(&w->flat);
    exo_params_free(&w->params);
    exo_model_drop(&w->model);
}

static exo_status
pass(struct walk *w, bool by_units, bool grad, float *loss)
{
    const exo_unit_hooks hooks = {.before = before, .after = after, .context = w};
    const exo_pass how = {
        .train = grad, .grad = grad, .seed = SEED, .units = by_units ? &hooks : NULL};
    err = (exo_err){0};
    w->told[0] = '\0';
    w->calls = 0;
    exo_tape_begin(w->tape, by_units ? w->params : w->flat, &how);
    exo_tensor *out = exo_model_loss(w->model, w->tape, &w->batch);
    if (!out)
        return exo_tape_error(w->tape, &err);
    *loss = exo_tensor_item(out);
    return grad ? exo_tape_backward(w->tape, out, 1, &err) : exo_tape_leave_units(w->tape, &err);
}

/* A pass by units comes to them in this order, and computes what one over a flat copy does. */
static void
expect_walk(struct walk *w, bool grad, const char *told)
{
    float flat = 0, by_units = -1;
    if (grad)
        exo_params_zero_grads(w->flat);
    exo_params_zero_grads(w->params);
    cr_assert_eq(pass(w, false, grad, &flat), EXO_OK, "%s", err.text);
    cr_assert_eq(pass(w, true, grad, &by_units), EXO_OK, "%s", err.text);
    cr_expect_str_eq(w->told, told);
    cr_expect_eq(flat, by_units);
    for (size_t u = 0; u < exo_model_num_units(w->model); u++) {
        exo_array expected, grads;
        cr_expect_eq(exo_unit_values(w->params, u).data, NULL, "unit %zu", u);
        if (!grad)
            continue;
        cr_assert_eq(exo_unit_open_grads(w->flat, u, &expected, &err), EXO_OK);
        cr_assert_eq(exo_unit_open_grads(w->params, u, &grads, &err), EXO_OK);
        cr_expect_arr_eq(grads.data, expected.data, grads.count * sizeof(float), "unit %zu", u);
    }
}

Test(model_units, a_pass_goes_through_them_and_back)
{
    struct walk w;
    walk_init(&w, points_mlp(), points_new(BATCH, 1, SIZE_MAX));
    expect_walk(&w, true, "+0 -0 +1 -1 +0 -0");
    expect_walk(&w, false, "+0 -0 +1 -1");
    expect_walk(&w, true, "+0 -0 +1 -1 +0 -0");
    cr_expect_leq(exo_params_most_open_bytes(w.params),
                  4 * exo_model_numel(w.model) * sizeof(float));
    walk_release(&w);
}

/* The embedding is the head, too: it comes last in forward and first in backward, where the tables'
 * own operations read nothing of it. */
Test(model_units, a_decoder_s_tied_embedding_is_come_to_twice)
{
    struct walk w;
    walk_init(&w, small_gpt(""), token_rows_new(BATCH, BLOCK, VOCABULARY));
    expect_walk(&w, true, "+0 -0 +1 -1 +2 -2 +3 -3 +0 -0 +3 -3 +2 -2 +1 -1");
    expect_walk(&w, false, "+0 -0 +1 -1 +2 -2 +3 -3 +0 -0");
    walk_release(&w);
}

Test(model_units, a_checkpoint_comes_to_its_unit_once_in_backward)
{
    struct walk w;
    walk_init(&w, small_gpt(", tied: false, checkpoint: true"),
              token_rows_new(BATCH, BLOCK, VOCABULARY));
    expect_walk(&w, true, "+0 -0 +1 -1 +2 -2 +3 -3 +2 -2 +1 -1");
    walk_release(&w);
}

Test(model_units, a_batch_norm_reads_its_statistics_and_its_unit)
{
    struct walk w;
    exo_dataset *images = NULL;
    static const uint8_t pixels[BATCH * 28 * 28] = {1, 2, 3}, labels[BATCH] = {0, 1, 2, 3};
    cr_assert_eq(
        exo_dataset_images(&images, BATCH, 28, 28, pixels, labels, &(exo_image_opts){0}, &err),
        EXO_OK);
    walk_init(&w, model_of("mnist_cnn", "{}"), images);
    expect_walk(&w, false, "+0 -0 +1 -1 +2 -2 +3 -3 +4 -4 +5 -5");
    walk_release(&w);
}

Test(model_units, an_error_of_a_unit_ends_the_pass)
{
    struct walk w;
    float loss;
    walk_init(&w, points_mlp(), points_new(BATCH, 1, SIZE_MAX));
    for (size_t n = 1; n <= 6; n++) {
        w.fail_at = n;
        exo_params_zero_grads(w.params);
        for (size_t u = 0; u < 2; u++)
            exo_unit_close(w.params, u);
        cr_expect_eq(pass(&w, true, true, &loss), EXO_IO, "call %zu", n);
        cr_expect_str_eq(err.text, "the unit is gone");
        cr_expect_eq(w.calls, n);
    }
    walk_release(&w);
}

static exo_status
sum_forward(const exo_custom_call *call, exo_err *reason)
{
    (void)reason;
    const float *x = call->inputs[0].data;
    *(float *)call->output.data = 0;
    for (size_t i = 0; i < call->inputs[0].count; i++)
        *(float *)call->output.data += x[i];
    return EXO_OK;
}

Test(model_units, an_own_operation_without_backward_comes_to_them)
{
    static const exo_custom_op sum = {.name = "sum", .forward = sum_forward};
    struct walk w;
    walk_init(&w, points_mlp(), points_new(BATCH, 1, SIZE_MAX));
    const exo_unit_hooks hooks = {.before = before, .after = after, .context = &w};
    const exo_pass how = {.units = &hooks};
    exo_tape_begin(w.tape, w.params, &how);
    exo_tensor *weight = exo_tape_param(w.tape, (exo_param){.index = 2});
    cr_expect_not_null(exo_tape_custom(w.tape, &sum, &weight, 1, 1, (size_t[]){1}, 0, NULL));
    cr_expect_eq(exo_tape_error(w.tape, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tape_leave_units(w.tape, &err), EXO_OK);
    cr_expect_str_eq(w.told, "+1 -1");
    walk_release(&w);
}

/* A pass is in two units, which one operation reads. The n-th call fails; then `left` is told when
 * the pass is asked to leave the units that it is still in. */
static void
expect_left(size_t n, exo_status entered, const char *left)
{
    static const exo_custom_op sum = {.name = "sum", .forward = sum_forward};
    struct walk w;
    walk_init(&w, points_mlp(), points_new(BATCH, 1, SIZE_MAX));
    const exo_unit_hooks hooks = {.before = before, .after = after, .context = &w};
    const exo_pass how = {.units = &hooks};
    w.fail_at = n;
    exo_tape_begin(w.tape, w.params, &how);
    exo_tensor *weights[] = {exo_tape_param(w.tape, (exo_param){.index = 0}),
                             exo_tape_param(w.tape, (exo_param){.index = 2})};
    exo_tape_custom(w.tape, &sum, weights, 2, 1, (size_t[]){1}, 0, NULL);
    cr_expect_eq(exo_tape_error(w.tape, &err), entered, "call %zu", n);
    if (entered == EXO_OK)
        cr_expect_eq(exo_tape_leave_units(w.tape, &err), EXO_IO, "call %zu", n);
    w.told[0] = '\0';
    cr_expect_eq(exo_tape_leave_units(w.tape, &err), EXO_OK, "call %zu", n);
    cr_expect_str_eq(w.told, left, "call %zu", n);
    walk_release(&w);
}

Test(model_units, after_an_error_a_pass_is_in_the_units_that_it_has_not_left)
{
    expect_left(1, EXO_IO, "");
    expect_left(2, EXO_IO, "-0");
    expect_left(3, EXO_OK, "-1");
    expect_left(4, EXO_OK, "");
}
