/* The models that need no plugin; each is a file in models/. */
#ifndef EXO_BUILTIN_MODELS_H
#define EXO_BUILTIN_MODELS_H

#include <exogym/model.h>

extern const exo_model_class exo_mnist_cnn;
extern const exo_model_class exo_mlp;
extern const exo_model_class exo_gpt;

#endif
