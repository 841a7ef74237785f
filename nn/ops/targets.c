/* Checks of targets, on the host's copy of them. No state. Read next: targets.h. */
#include "nn/ops/targets.h"

#include "nn/tape_impl.h"

bool
exo_count_targets(exo_tape *tape, const char *name, const exo_tensor *targets, size_t classes,
                  size_t *counted)
{
    const int32_t *target = exo_tensor_host(targets);
    *counted = 0;
    if (!target) {
        exo_tape_fail(tape, EXO_INVAL, "%s: the targets are not an input of the pass", name);
        return false;
    }
    for (size_t r = 0; r < targets->numel; r++) {
        if (target[r] >= 0 && (size_t)target[r] >= classes) {
            exo_tape_fail(tape, EXO_INVAL, "%s: target %d of row %zu is not in [0, %zu)", name,
                          target[r], r, classes);
            return false;
        }
        *counted += target[r] >= 0;
    }
    return true;
}

bool
exo_check_targets(exo_tape *tape, const char *name, const exo_tensor *logits,
                  const exo_tensor *targets, size_t *counted)
{
    char a[96], b[96];
    if (!logits || !targets || exo_tape_error(tape, NULL) != EXO_OK)
        return false;
    if (logits->num_dims != 2 || targets->numel != logits->dims[0] || targets->dtype != EXO_I32 ||
        logits->numel == 0 || !exo_is_float(logits)) {
        exo_tape_fail(
            tape, EXO_INVAL, "%s: logits %s and targets %s %s: expected (R, V) and R int32", name,
            exo_shape_text(logits, a), exo_shape_text(targets, b), exo_dtype_name(targets->dtype));
        return false;
    }
    return exo_count_targets(tape, name, targets, logits->dims[1], counted);
}
