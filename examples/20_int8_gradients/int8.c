/* int8_ddp: DDP that sends its gradients in 8 bits. This is a plugin, built outside exogym against
 * the public headers alone.
 *
 * Gradients are cut into chunks. The scale of a chunk is its largest magnitude on any node. Each
 * node rounds its gradients to integers in -127..127 of the scale. All nodes have the same scales,
 * so they can sum the integers, in 32 bits and without a further error. The mean, as floats, is the
 * gradient of the inner optimizer. Rounding errors are not sent later (no error feedback).
 *
 * Traffic of each node in a step: (N - 1) (Psi + 4 Psi / chunk) bytes. ddp sends 8 Psi (N - 1) / N
 * bytes: int8_ddp sends a quarter of that with two nodes, half with four, the same with eight.
 */
#include <exogym/exogym.h>

#include <math.h>

struct int8_ddp {
    uint64_t chunk;    /* gradients that share a scale */
    size_t chunks;     /* chunks of the model */
    float *scales;     /* (num_nodes, chunks) the largest magnitudes on each node */
    int8_t *quantized; /* (num_nodes, numel) the gradients of all nodes */
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct int8_ddp *s = self;
    return exo_config_u64(config, "chunk", 256, 1, UINT32_MAX, &s->chunk, err);
}

static exo_status
start(void *self, exo_node *node, exo_err *err)
{
    struct int8_ddp *s = self;
    if (!exo_array_host(node->grads)) /* the loops below need host memory */
        return exo_fail(err, EXO_UNSUPPORTED, "int8_ddp: trains on the CPU, not on %s",
                        exo_device_name(node->grads.device));
    s->chunks = (node->numel + s->chunk - 1) / s->chunk;
    s->scales = exo_calloc(node->num_nodes * s->chunks, sizeof *s->scales);
    s->quantized = exo_calloc(node->num_nodes, node->numel);
    return s->scales && s->quantized
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "int8_ddp: no memory for quantized gradients");
}

/* NaN counts as infinite: it must reach the parameters, as under ddp, and must not be rounded away
 * unseen. */
static float
magnitude(float gradient)
{
    return isnan(gradient) ? INFINITY : fabsf(gradient);
}

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    struct int8_ddp *s = self;
    const size_t N = node->num_nodes, numel = node->numel;
    float *grads = exo_array_host(node->grads);
    float *own_scales = s->scales + node->rank * s->chunks;
    int8_t *own = s->quantized + node->rank * numel;

    for (size_t c = 0; c < s->chunks; c++)
        own_scales[c] = 0;
    for (size_t i = 0; i < numel; i++)
        own_scales[i / s->chunk] = fmaxf(own_scales[i / s->chunk], magnitude(grads[i]));
    exo_status st =
        exo_all_gather(node->group, exo_host_array(EXO_F32, s->scales, N * s->chunks), err);
    if (st != EXO_OK)
        return st;
    for (size_t c = 0; c < N * s->chunks; c++)
        s->scales[c % s->chunks] = fmaxf(s->scales[c % s->chunks], s->scales[c]);

    for (size_t i = 0; i < numel; i++) {
        float scale = s->scales[i / s->chunk];
        own[i] = (int8_t)(scale > 0 ? lrintf(grads[i] / scale * 127) : 0);
    }
    st = exo_all_gather(node->group, exo_host_array(EXO_I8, s->quantized, N * numel), err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < numel; i++) {
        int32_t sum = 0;
        for (size_t r = 0; r < N; r++)
            sum += s->quantized[r * numel + i];
        grads[i] = (float)sum * s->scales[i / s->chunk] / (127 * (float)N);
    }
    return exo_node_inner_step(node, err);
}

static void
release(void *self)
{
    struct int8_ddp *s = self;
    exo_free(s->scales);
    exo_free(s->quantized);
}

static const exo_strategy_class int8_ddp = {
    .name = "int8_ddp",
    .help = "all-gather the gradients as 8-bit integers at every step",
    .state_size = sizeof(struct int8_ddp),
    .init = init,
    .start = start,
    .step = step,
    .release = release,
};

EXO_PLUGIN
{
    return exo_strategy_register(&int8_ddp, err);
}
