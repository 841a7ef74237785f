/* The CPU among the kinds of devices. */
#ifndef EXO_CPU_KIND_H
#define EXO_CPU_KIND_H

#include "nn/device/kinds.h"

extern const exo_device_kind exo_cpu_device_kind; /* cpu_device.c */

#endif
