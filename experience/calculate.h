/* Arithmetic in texts, for the tool `calculator` and the reward `calculation`:
 *
 *     sum     = product {(+ | -) product}
 *     product = factor {(* | /) factor}
 *     factor  = - factor | NUMBER | ( sum )
 *
 * NUMBER has digits, and may have a point and further digits. Spaces may stand anywhere between.
 *
 * Pure functions, any thread. */
#ifndef EXO_CALCULATE_H
#define EXO_CALCULATE_H

#include <stdbool.h>
#include <stddef.h>

/* The value of the expression text (size). False: it is no expression, or its value is not finite. */
bool exo_calculate(const char *text, size_t size, double *value);
/* The last number in text (size), with the minus before it. False: there is none. */
bool exo_last_number(const char *text, size_t size, double *value);

#endif
