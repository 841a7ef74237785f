/* The registry of models, and the built-in classes, each a file in models/. Read next: model.c. */
#ifndef EXO_BUILTIN_MODELS_H
#define EXO_BUILTIN_MODELS_H

#include <exogym/model.h>

#include "base/registry.h"

extern exo_registry exo_model_registry; /* of exo_model_class; model.c */

extern const exo_model_class exo_mnist_cnn;
extern const exo_model_class exo_mlp;
extern const exo_model_class exo_gpt;

#endif
