/* The costs of a machine's steps, as `swiftkv bench --costs` measured them. */
#ifndef SKV_FLEET_COSTS_H
#define SKV_FLEET_COSTS_H

#include <stddef.h>

#include "load.h"

enum { FLEET_POINTS_MAX = 32 };

/* Milliseconds of steps of so many rows, by rising rows; straight lines between the points. */
typedef struct fleet_curve {
    size_t n;
    double rows[FLEET_POINTS_MAX], ms[FLEET_POINTS_MAX];
} fleet_curve;

typedef struct fleet_costs {
    fleet_curve prompt; /* rows that stop at layer l, or run all layers where none is skipped */
    fleet_curve answer; /* rows that run all layers and the head */
    double prompt_context_us, answer_context_us; /* of a row for 1,000 rows that it reads */
    double kv_bytes_per_token, weight_bytes;
    size_t step_tokens;
} fleet_costs;

/* A step as the costs see it. */
typedef struct fleet_step {
    double n_prompt, n_answer; /* rows; the last row of a prompt is one of the answers' */
    double prompt_reads;       /* rows before each prompt row, added up: those of earlier steps */
    double answer_reads;
} fleet_step;

/** Reads a file; on failure `error` (of LOAD_ERROR_MAX bytes) names the field. */
bool fleet_costs_read(const char *path, fleet_costs *out, char *error);
double fleet_step_ms(const fleet_costs *costs, const fleet_step *step);

#endif
