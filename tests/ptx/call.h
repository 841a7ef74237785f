/* What tests in C call of the interpreter. */
#ifndef EXO_TEST_PTX_CALL_H
#define EXO_TEST_PTX_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PTX_FAULT_TEXT = 1024
};

/* A launch of `kernel`, whose only parameter is the address of `memory`. */
typedef struct ptx_call {
    const char *text, *kernel;
    unsigned blocks, threads;
    size_t shared; /* bytes of the launch */
    void *memory;
    size_t bytes;
    size_t fresh;  /* the last ones: nobody has written them */
    uint64_t seed; /* of lanes and blocks; 0: they have the usual order */
} ptx_call;

/* False: the text or the kernel has a fault, which is in `fault` then. */
bool ptx_call_run(const ptx_call *call, char fault[PTX_FAULT_TEXT]);

#ifdef __cplusplus
}
#endif

#endif
