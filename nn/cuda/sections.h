/* Sections of work, such as a step of training, and the passes in it: what a section asks for is put
 * off, and started together by one call, as a CUDA graph. EXOGYM_CUDA_GRAPHS is `on`, or `off`, the
 * default.
 *
 * A section keeps a list of its requests: kernels of the table with their arguments, and copies on
 * the device. The list is started at the end of the outermost section, or as soon as something is
 * asked for that is none of these and needs their work: exo_cuda_catch_up. A list is known by its
 * form, the kernels in their order, and by its bytes, which have all numbers and addresses, but for
 * the fields that change from step to step (late.h).
 *
 *     its form is new:                the requests are started one by one
 *     its form came before:           they are recorded, and made a graph, which is launched
 *     its bytes are those of a graph: the graph is launched
 *     CUDA refuses its graph:         the requests are started one by one, and the log says why
 *
 * A form that comes with other bytes each time is recorded each time. Once it has its number of
 * graphs, the oldest of them is changed to what was recorded. So a graph needs no address to stay
 * equal, and nothing is recorded that was not asked for just now.
 *
 * Owner: the device. Read next: sections.cu, late.h, graphs.h. */
#ifndef EXO_CUDA_SECTIONS_H
#define EXO_CUDA_SECTIONS_H

#include "nn/cuda/late.h"

enum {
    EXO_CUDA_SECTION_GRAPHS = 64, /* of a device */
    /* Graphs of a form: so many that the equal layers of a model have one each, if together they
     * have at most FORM_REQUESTS; in any case FORM_LEAST, since the slots of copies from the host
     * take turns. */
    EXO_CUDA_FORM_GRAPHS = EXO_CUDA_SECTION_GRAPHS / 2,
    EXO_CUDA_FORM_REQUESTS = 2048,
    EXO_CUDA_FORM_LEAST = EXO_CUDA_SLOTS,
    EXO_CUDA_LEAST_REQUESTS = 8 /* of a graph */
};

typedef enum exo_cuda_request {
#define EXO_CUDA_REQUEST(name) EXO_CUDA_REQUEST_##name,
    EXO_KERNELS(EXO_CUDA_REQUEST)
#undef EXO_CUDA_REQUEST
    EXO_CUDA_REQUEST_COPY,
} exo_cuda_request;

/* Reads the environment. *out is NULL if nothing is to be put off. Errors: INVAL (an impossible
 * EXOGYM_CUDA_GRAPHS), NOMEM, FAILED. */
exo_status exo_cuda_sections_new(exo_cuda_sections **out, const exo_cuda_device *cuda,
                                 exo_err *err);
/* Nothing is under way on the device's stream. Accepts NULL. */
void exo_cuda_sections_free(exo_cuda_sections *sections, const exo_cuda_device *cuda);

/* The device's methods. */
void exo_cuda_section_begin(exo_device *device);
exo_status exo_cuda_section_end(exo_device *device, exo_err *err);

/* Whether there is a section, in which requests are put off. */
bool exo_cuda_puts_off(const exo_cuda_device *cuda);
/* Puts a request off, if there is a section. *taken: it is put off. Else the caller starts it, and what
 * was put off before is started. args: without the values of padding. Errors: NOMEM, those of
 * kernels. */
exo_status exo_cuda_put_off(exo_cuda_device *cuda, exo_cuda_request request, const void *args,
                            size_t bytes, bool *taken, exo_err *err);
/* Starts what was put off. The section goes on. Errors: those of kernels; what came behind the
 * failed one is not started. */
exo_status exo_cuda_catch_up(exo_cuda_device *cuda, exo_err *err);
/* The same for functions that return no status: the device remembers a failure. */
void exo_cuda_catch_up_noted(exo_cuda_device *cuda);
/* No later list is taken for an equal one of before: something that requests point to has
 * changed. */
void exo_cuda_sections_forget(exo_cuda_device *cuda);

#endif
