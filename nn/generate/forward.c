/* Forward passes: see forward.h. The device computes; the host plans, and reads logits or, if the
 * device chooses them, tokens. Read next:
 * nn/device/decoder_args.h, the kernels. */
#include "nn/generate/forward.h"

#include <string.h>

#include <exogym/memory.h>
#include <exogym/model.h>

#include "base/parallel.h"
#include "nn/lora.h"

/* The share of the free memory that the caches may take. */
static const double share_of_memory = 0.9;

/* --- The group of a part ---------------------------------------------------------------------- */

/* Notes the first error. The kernels of a pass cannot return it, and further collectives are left
 * out. */
static void
note_peers(exo_forward *f, exo_status st, const exo_err *err)
{
    if (st == EXO_OK || f->peer_status != EXO_OK)
        return;
    f->peer_status = st;
    f->peer_err = *err;
}

static exo_array
array_of_pass(const exo_forward *f, float *data, size_t count)
{
    return (exo_array){.device = f->device, .data = data, .count = count, .dtype = EXO_F32};
}

static void
gather_peers(void *context, float *data, size_t count)
{
    exo_forward *f = context;
    exo_err err = {0};
    exo_array all = array_of_pass(f, data, count * f->shape.members);
    note_peers(f, f->peer_status == EXO_OK ? exo_all_gather(f->group, all, &err) : EXO_OK, &err);
}

static void
add_peers(void *context, float *data, size_t count)
{
    exo_forward *f = context;
    exo_err err = {0};
    exo_array sum = array_of_pass(f, data, count);
    note_peers(f, f->peer_status == EXO_OK ? exo_all_reduce(f->group, sum, EXO_SUM, &err) : EXO_OK,
               &err);
}

/* What a wait for the device has said, unless a collective of the pass has failed. */
static exo_status
end_pass(const exo_forward *f, exo_status st, exo_err *err)
{
    return f->peer_status == EXO_OK ? st
                                    : exo_fail(err, f->peer_status, "generation by %u makers: %s",
                                               f->shape.members, f->peer_err.text);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static size_t
bytes_for(const exo_forward *f, exo_scratch_use use)
{
    return f->device->device_class->scratch(f->device, EXO_SHAPE_DECODER, &f->shape, use);
}

static exo_status
take(exo_forward *f, exo_array *out, exo_dtype dtype, size_t count, const char *what, exo_err *err)
{
    exo_status st = exo_array_init(out, f->device, dtype, count, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "generation: %s", what);
}

/* count * size zeroed bytes, aligned for kernels. NULL: no memory, or the product overflows. */
static void *
aligned(size_t count, size_t size)
{
    size_t bytes = 0;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : exo_alloc_aligned(bytes);
}

static exo_status
make_arrays(exo_forward *f, exo_err *err)
{
    size_t rows = f->shape.rows;
    exo_status st = take(f, &f->weights, EXO_U8, f->weight_bytes, "the weights", err);
    if (st == EXO_OK)
        st = take(f, &f->scratch, EXO_U8, bytes_for(f, EXO_SCRATCH_FORWARD), "a pass", err);
    if (st == EXO_OK)
        st = take(f, &f->logits, EXO_F32, EXO_LOGIT_ROWS * (f->pitch + 2), "the logits", err);
    exo_array *numbers[] = {&f->tokens, &f->positions, &f->places, &f->which};
    for (size_t i = 0; st == EXO_OK && i < sizeof numbers / sizeof numbers[0]; i++)
        st = take(f, numbers[i], EXO_I32, rows, "the rows of a pass", err);
    if (st == EXO_OK && f->device->device_class->log_sums)
        st = take(f, &f->scales, EXO_F32, rows, "the rows of a pass", err);
    if (st != EXO_OK || !exo_forward_chooses(f))
        return st;
    st = take(f, &f->rules, EXO_U8, rows * sizeof *f->rule, "the choice of tokens", err);
    if (st == EXO_OK)
        st = take(f, &f->choices, EXO_U8, rows * sizeof *f->chosen, "the choice of tokens", err);
    if (st == EXO_OK)
        st = take(f, &f->choice_scratch, EXO_U8, bytes_for(f, EXO_SCRATCH_CHOICE),
                  "the choice of tokens", err);
    return st;
}

/* The host's side of the plan and of the logits. */
static exo_status
make_plan(exo_forward *f, exo_err *err)
{
    size_t rows = f->shape.rows, floats = EXO_LOGIT_ROWS * f->pitch;
    exo_logits_scratch *s = &f->scratch_of_use;
    f->token = exo_calloc(rows, sizeof *f->token);
    f->position = exo_calloc(rows, sizeof *f->position);
    f->place = exo_calloc(rows, sizeof *f->place);
    f->output = exo_calloc(rows, sizeof *f->output);
    f->tag = exo_calloc(rows, sizeof *f->tag);
    f->scale = exo_calloc(rows, sizeof *f->scale);
    f->rule = exo_calloc(rows, sizeof *f->rule);
    f->chosen = exo_calloc(rows, sizeof *f->chosen);
    f->read = exo_array_host(f->logits);
    if (!f->read)
        f->read = f->copy = aligned(EXO_LOGIT_ROWS * (f->pitch + 2), sizeof *f->copy);
    s->weights = aligned(floats, sizeof(float));
    s->values = aligned(floats, sizeof(float));
    s->places = aligned(floats, sizeof(uint32_t));
    s->order = aligned(floats, sizeof(uint32_t));
    bool good = f->token && f->position && f->place && f->output && f->tag && f->scale && f->rule &&
                f->chosen && f->read && s->weights && s->values && s->places && s->order;
    return good ? EXO_OK
                : exo_fail(err, EXO_NOMEM, "generation: no memory for passes of %zu tokens", rows);
}

exo_status
exo_forward_init(exo_forward *f, const exo_decoder_shape *shape, exo_params *params, exo_err *err)
{
    size_t panels = (shape->spec.vocabulary + EXO_DECODER_PITCH - 1) / EXO_DECODER_PITCH;
    f->device = exo_params_device(params);
    f->shape = *shape;
    f->peers = (exo_decoder_peers){.context = f, .gather = gather_peers, .add = add_peers};
    if (f->group) {
        f->shape.rank = exo_group_rank(f->group);
        f->shape.members = exo_group_size(f->group);
    }
    if (f->group && !f->device->device_class->parts)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "generation by a group needs the device cpu or cuda, not '%s'",
                        exo_device_name(f->device));
    f->pitch = panels * EXO_DECODER_PITCH;
    exo_status st = exo_plan_new(&f->plan, f->device, EXO_SHAPE_DECODER, &f->shape, err);
    if (st != EXO_OK)
        return st;
    f->weight_bytes = bytes_for(f, EXO_SCRATCH_WEIGHTS);
    f->cache_bytes = bytes_for(f, EXO_SCRATCH_CACHE);
    st = make_arrays(f, err);
    if (st == EXO_OK)
        st = make_plan(f, err);
    return st == EXO_OK ? exo_forward_pack(f, params, err) : st;
}

/* Refuses caches that do not fit into the free memory. On the host, the system would else kill the
 * process. */
static exo_status
check_room(const exo_forward *f, size_t sequences, exo_err *err)
{
    uint64_t room = f->device->device_class->free_memory(f->device);
    double wanted = (double)sequences * (double)f->cache_bytes;
    if (room == 0 || wanted <= share_of_memory * (double)room)
        return EXO_OK;
    return exo_fail(err, EXO_NOMEM,
                    "generation: the caches of %zu sequence%s of up to %zu tokens take %.3g GB, "
                    "and %.3g GB are free on the device '%s': fewer at once, or a shorter context",
                    sequences, sequences == 1 ? "" : "s", f->shape.context, wanted * 1e-9,
                    (double)room * 1e-9, exo_device_name(f->device));
}

exo_status
exo_forward_make_caches(exo_forward *f, size_t sequences, exo_err *err)
{
    size_t bytes = 0;
    exo_status st = check_room(f, sequences, err);
    if (st == EXO_OK && __builtin_mul_overflow(sequences, f->cache_bytes, &bytes))
        st = exo_fail(err, EXO_NOMEM, "generation: no memory for %zu caches of %zu bytes",
                      sequences, f->cache_bytes);
    f->sequences = sequences;
    return st == EXO_OK ? take(f, &f->caches, EXO_U8, bytes, "the caches", err) : st;
}

void
exo_forward_release(exo_forward *f)
{
    exo_array *arrays[] = {&f->weights,   &f->caches, &f->scratch,       &f->logits, &f->tokens,
                           &f->positions, &f->places, &f->which,         &f->scales, &f->rules,
                           &f->choices,   &f->seen,   &f->choice_scratch};
    void *host[] = {f->token,
                    f->position,
                    f->place,
                    f->output,
                    f->tag,
                    f->scale,
                    f->rule,
                    f->chosen,
                    f->copy,
                    f->scratch_of_use.weights,
                    f->scratch_of_use.values,
                    f->scratch_of_use.places,
                    f->scratch_of_use.order};
    exo_plan_free(&f->plan);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        exo_array_release(arrays[i]);
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        exo_free(host[i]);
    *f = (exo_forward){0};
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* Checks the parameters' names and shapes. *num: the decoder's parameters, after which a value head
 * and LoRA parameters may follow; *largest: the elements of the largest one. */
static exo_status
check(const exo_decoder_shape *shape, const exo_params *params, size_t *num, size_t *largest,
      exo_err *err)
{
    size_t count = exo_params_count(params), i = 0;
    exo_decoder_entry p;
    *largest = 0;
    for (; exo_decoder_part_entry_at(shape, i, &p); i++) {
        const exo_param_info *info = i < count ? exo_params_info(params, i) : NULL;
        if (!info || strcmp(info->name, p.name) != 0)
            return exo_fail(
                err, EXO_INVAL,
                "the decoder's parameter %zu is %s, but that of the given parameters is %s", i,
                p.name, info ? info->name : "nothing");
        size_t rows = info->dims[0], cols = info->num_dims > 1 ? info->dims[1] : 0;
        if (info->num_dims != p.num_dims || rows != p.dims[0] || cols != p.dims[1])
            return exo_fail(err, EXO_INVAL,
                            "%s: expected (%zu, %zu), got (%zu, %zu); 0: no such dimension", p.name,
                            p.dims[0], p.dims[1], rows, cols);
        *largest = info->numel > *largest ? info->numel : *largest;
    }
    *num = i;
    while (i < count && strncmp(exo_params_info(params, i)->name, "value.", 6) == 0)
        i++; /* generation does not read it */
    return exo_lora_check_params(&shape->spec, params, i, err);
}

/* The way of parameters to the device: through the host, if it is not theirs. All zero: the kernels
 * read them in their place. */
struct way {
    float *host;
    exo_array there;
    /* With LoRA: room for a weight with its low-rank parts and, through the host, for A and B. */
    exo_array merged, a, b;
};

static exo_status
way_init_lora(struct way *way, const exo_forward *f, const exo_params *params, size_t largest,
              exo_err *err)
{
    size_t from = 0, a = 0, b = 0;
    exo_lora_pair pair;
    while (exo_lora_pair_next(&f->shape.spec, params, &from, &pair)) {
        size_t numel_a = exo_params_info(params, pair.a)->numel;
        size_t numel_b = exo_params_info(params, pair.b)->numel;
        a = numel_a > a ? numel_a : a;
        b = numel_b > b ? numel_b : b;
    }
    if (a == 0)
        return EXO_OK;
    exo_status st = exo_array_init(&way->merged, f->device, EXO_F32, largest, err);
    if (st == EXO_OK && way->host)
        st = exo_array_init(&way->a, f->device, EXO_F32, a, err);
    if (st == EXO_OK && way->host)
        st = exo_array_init(&way->b, f->device, EXO_F32, b, err);
    return st;
}

static exo_status
way_init(struct way *way, const exo_forward *f, const exo_params *params, size_t largest,
         exo_err *err)
{
    exo_device *from = exo_params_device(params);
    if (from == f->device || (exo_device_is_host(from) && exo_device_is_host(f->device)))
        return way_init_lora(way, f, params, largest, err);
    way->host = exo_calloc(largest, sizeof *way->host);
    if (!way->host)
        return exo_fail(err, EXO_NOMEM, "generation: no memory for a parameter of %zu numbers",
                        largest);
    exo_status st = exo_array_init(&way->there, f->device, EXO_F32, largest, err);
    return st == EXO_OK ? way_init_lora(way, f, params, largest, err) : st;
}

static void
way_release(struct way *way)
{
    exo_free(way->host);
    exo_array_release(&way->there);
    exo_array_release(&way->merged);
    exo_array_release(&way->a);
    exo_array_release(&way->b);
}

static exo_array
values_array(exo_params *params, size_t index)
{
    const exo_param_info *info = exo_params_info(params, index);
    if (exo_device_is_host(exo_params_device(params)))
        return exo_host_array(EXO_F32, exo_params_at(params, index), info->numel);
    exo_array flat =
        info->is_buffer ? exo_params_buffers_array(params) : exo_params_values_array(params);
    return exo_array_part(flat, info->offset, info->numel);
}

/* Brings a parameter to the device, by `room` if it goes through the host. Errors: those of the
 * parameters' own device. */
static exo_status
bring(exo_array *out, exo_params *params, size_t index, const struct way *way, exo_array room,
      exo_err *err)
{
    *out = values_array(params, index);
    if (!way->host)
        return EXO_OK;
    exo_status st = exo_array_read(*out, way->host, err);
    *out = exo_array_part(room, 0, out->count);
    exo_array_send(*out, way->host);
    return st;
}

/* Adds low-rank parts to a weight, in the room for it. *values: the weight, then the sum. */
static exo_status
merge(const exo_forward *f, exo_params *params, size_t index, const struct way *way,
      exo_array *values, exo_err *err)
{
    exo_decoder_entry weight;
    exo_lora_pair pair;
    exo_array a, b, sum = exo_array_part(way->merged, 0, values->count);
    exo_status st = EXO_OK;
    size_t from = 0, found = 0;
    exo_decoder_entry_at(&f->shape.spec, index, &weight);
    while (st == EXO_OK && !weight.bias &&
           exo_lora_pair_next(&f->shape.spec, params, &from, &pair)) {
        const exo_decoder_layer *l = &pair.layer;
        if (l->role != weight.role || l->block != weight.block)
            continue;
        if (found++ == 0)
            exo_vec_copy(sum, *values);
        st = bring(&a, params, pair.a, way, way->a, err);
        if (st == EXO_OK)
            st = bring(&b, params, pair.b, way, way->b, err);
        float *rows = (float *)sum.data + l->first * l->columns;
        if (st == EXO_OK)
            exo_device_run(f->device, lora_merge, .rows = l->rows, .columns = l->columns,
                           .rank = pair.rank, .scale = f->shape.spec.lora_scale, .y = rows,
                           .x = rows, .a = a.data, .b = b.data);
    }
    *values = found > 0 ? sum : *values;
    return st;
}

/* Asks the device to pack a parameter. Errors: those of the parameters' own device. */
static exo_status
pack(exo_forward *f, exo_params *params, size_t index, const struct way *way, exo_err *err)
{
    exo_array values;
    exo_status st = bring(&values, params, index, way, way->there, err);
    if (st == EXO_OK && way->merged.count > 0)
        st = merge(f, params, index, way, &values, err);
    exo_device_run(f->device, decoder_pack, .plan = f->plan, .parameter = index,
                   .values = values.data, .weights = f->weights.data);
    return st;
}

exo_status
exo_forward_pack(exo_forward *f, exo_params *params, exo_err *err)
{
    struct way way = {0};
    size_t num = 0, largest = 0;
    exo_status st = check(&f->shape, params, &num, &largest, err);
    if (st == EXO_OK)
        st = way_init(&way, f, params, largest, err);
    for (size_t i = 0; st == EXO_OK && i < num; i++)
        st = pack(f, params, i, &way, err);
    if (st == EXO_OK)
        st = exo_device_synchronize(f->device, err);
    way_release(&way);
    return st;
}

/* --- Plan ------------------------------------------------------------------------------------- */

void
exo_pass_begin(exo_forward *f, exo_logits_use use, void *context)
{
    f->rows = f->outputs = 0;
    f->use = use;
    f->choice = NULL;
    f->use_context = context;
}

void
exo_pass_begin_choice(exo_forward *f, const exo_pass_choice *choice, void *context)
{
    exo_pass_begin(f, NULL, context);
    f->choice = choice;
}

bool
exo_forward_chooses(const exo_forward *f)
{
    return f->device->device_class->choose != NULL;
}

static void
request(exo_forward *f, size_t row, size_t tag, float scale)
{
    f->output[f->outputs] = (int32_t)row;
    f->scale[f->outputs] = scale;
    f->tag[f->outputs++] = tag;
}

void
exo_pass_add(exo_forward *f, size_t place, const int32_t *tokens, size_t count, size_t position,
             size_t wanted, size_t tag, float scale)
{
    for (size_t i = 0; i < count; i++) {
        size_t row = f->rows++;
        f->token[row] = tokens[i];
        f->position[row] = (int32_t)(position + i);
        f->place[row] = (int32_t)place;
        if (i + wanted >= count)
            request(f, row, tag++, scale);
    }
}

/* --- The pass --------------------------------------------------------------------------------- */

static void
send(exo_array array, const int32_t *numbers, size_t count)
{
    exo_array_send(exo_array_part(array, 0, count), numbers);
}

static void
use_row(void *context, size_t index)
{
    exo_forward *f = context;
    size_t skip = index * f->pitch;
    const exo_logits_scratch *s = &f->scratch_of_use;
    const float *sums = f->read + f->in_use * f->pitch;
    const exo_logits_sums own = {sums[index], sums[f->in_use + index]};
    const exo_logits_scratch scratch = {s->weights + skip, s->values + skip, s->places + skip,
                                        s->order + skip, f->scales.data ? &own : NULL};
    f->use(f->use_context, f->tag[f->first + index], f->read + skip, &scratch);
}

/* Asks for the logits of `count` rows from f->first on, and for their log-sums if the device gives
 * them. Returns where they will be. */
static exo_array
ask_for_logits(exo_forward *f, size_t count)
{
    bool with_sums = f->scales.data != NULL;
    exo_array logits = exo_array_part(f->logits, 0, count * (f->pitch + (with_sums ? 2 : 0)));
    exo_device_run(f->device, decoder_logits, .plan = f->plan, .rows = count,
                   .which = (const int32_t *)f->which.data + f->first, .logits = logits.data,
                   .weights = f->weights.data, .scratch = f->scratch.data, .peers = &f->peers,
                   .scales = with_sums ? (const float *)f->scales.data + f->first : NULL,
                   .log_sums = with_sums ? (float *)logits.data + count * f->pitch : NULL);
    return logits;
}

/* Computes the logits of `count` rows from f->first on, reads them, and uses them. */
static exo_status
use_logits(exo_forward *f, size_t count, exo_err *err)
{
    exo_array logits = ask_for_logits(f, count);
    f->in_use = count;
    exo_status st =
        f->copy ? exo_array_read(logits, f->copy, err) : exo_device_synchronize(f->device, err);
    st = end_pass(f, st, err);
    if (st == EXO_OK)
        exo_parallel_for(count, use_row, f);
    return st;
}

/* --- The device chooses ----------------------------------------------------------------------- */

static size_t
words_of(const exo_forward *f)
{
    return (f->shape.spec.vocabulary + 63) / 64;
}

/* Sends the rules of all rows with logits and, if one has a penalty, what their sequences have seen.
 * *any: one has. */
static exo_status
send_rules(exo_forward *f, bool *any, exo_err *err)
{
    size_t bytes = words_of(f) * sizeof(uint64_t);
    exo_status st = EXO_OK;
    for (size_t i = 0; i < f->outputs; i++) {
        const uint64_t *seen = NULL;
        f->rule[i] = f->choice->rule(f->use_context, f->tag[i], &seen);
        if (!seen)
            continue;
        if (!f->seen.data)
            st = take(f, &f->seen, EXO_U8, f->shape.rows * bytes, "the choice of tokens", err);
        if (st != EXO_OK)
            return st;
        exo_array_send(exo_array_part(f->seen, i * bytes, bytes), seen);
        *any = true;
    }
    f->needs = exo_choice_needs(f->rule, f->outputs);
    exo_array_send(exo_array_part(f->rules, 0, f->outputs * sizeof *f->rule), f->rule);
    return EXO_OK;
}

/* Asks for the logits of `count` rows from f->first on, and for the choice of their tokens. */
static exo_status
choose_some(exo_forward *f, size_t count, bool seen, exo_err *err)
{
    const float *logits = ask_for_logits(f, count).data;
    const exo_choose_args args = {
        .rows = count,
        .vocabulary = f->shape.spec.vocabulary,
        .pitch = f->pitch,
        .logits = logits,
        .log_sums = logits + count * f->pitch,
        .rules = (const exo_choice_rule *)f->rules.data + f->first,
        .seen = seen ? (const uint64_t *)f->seen.data + f->first * words_of(f) : NULL,
        .needs = f->needs,
        .scratch = f->choice_scratch.data,
        .choices = (exo_choice *)f->choices.data + f->first};
    return f->device->device_class->choose(f->device, &args, err);
}

/* Chooses a token for each row with logits. The host waits once, for all of them. */
static exo_status
choose_all(exo_forward *f, exo_err *err)
{
    bool seen = false;
    exo_status st = send_rules(f, &seen, err);
    for (f->first = 0; st == EXO_OK && f->first < f->outputs; f->first += EXO_LOGIT_ROWS) {
        size_t left = f->outputs - f->first;
        st = choose_some(f, left < EXO_LOGIT_ROWS ? left : EXO_LOGIT_ROWS, seen, err);
    }
    exo_status read = exo_array_read(exo_array_part(f->choices, 0, f->outputs * sizeof *f->chosen),
                                     f->chosen, st == EXO_OK ? err : NULL);
    st = end_pass(f, st == EXO_OK ? read : st, err);
    for (size_t i = 0; st == EXO_OK && i < f->outputs; i++)
        f->choice->chosen(f->use_context, f->tag[i], &f->chosen[i]);
    return st;
}

/* --- The run ---------------------------------------------------------------------------------- */

exo_status
exo_pass_run(exo_forward *f, exo_err *err)
{
    if (f->rows == 0)
        return EXO_OK;
    send(f->tokens, f->token, f->rows);
    send(f->positions, f->position, f->rows);
    send(f->places, f->place, f->rows);
    send(f->which, f->output, f->outputs);
    if (f->scales.data)
        exo_array_send(exo_array_part(f->scales, 0, f->outputs), f->scale);
    exo_device_run(f->device, decoder_pass, .plan = f->plan, .rows = f->rows,
                   .tokens = f->tokens.data, .positions = f->positions.data,
                   .sequences = f->places.data, .weights = f->weights.data,
                   .caches = f->caches.data, .scratch = f->scratch.data, .peers = &f->peers);
    exo_status st = EXO_OK;
    if (f->choice && f->outputs > 0)
        return choose_all(f, err);
    for (f->first = 0; st == EXO_OK && f->first < f->outputs; f->first += EXO_LOGIT_ROWS)
        st = use_logits(
            f, f->outputs - f->first < EXO_LOGIT_ROWS ? f->outputs - f->first : EXO_LOGIT_ROWS,
            err);
    /* A pass that only takes prompts reads nothing. It waits, to report its own failure. */
    return f->outputs > 0 ? st : end_pass(f, exo_device_synchronize(f->device, err), err);
}
