/* An environment with its options: the struct behind exo_environment_spec, for vector.c.
 *
 * Read-only after it was made; any thread. */
#ifndef EXO_ENVIRONMENTS_SPEC_H
#define EXO_ENVIRONMENTS_SPEC_H

#include <exogym/environment.h>

struct exo_environment_spec {
    const exo_environment_class *environment_class;
    exo_environment_shape shape; /* after the options; players is at least 1 */
    void *self;                  /* the class's options */
};

/* shape.c: INVAL: the shape is beyond the limits of environment.h, or contradicts itself. */
exo_status exo_environment_check_shape(const exo_environment_class *environment_class,
                                       const exo_environment_shape *shape, exo_err *err);

#endif
