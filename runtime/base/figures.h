/* Figures for people, in one notation for all tables and messages. No state. */
#ifndef EXO_FIGURES_H
#define EXO_FIGURES_H

enum {
    EXO_FIGURE = 32 /* room for one figure */
};

/* Writes "0 B", "999 B", "1.23 kB", "45.6 MB": three digits, powers of 1000. Returns `out`. */
const char *exo_text_bytes(double bytes, char out[EXO_FIGURE]);

#endif
