/* Rows of pages that go to other positions: jobs of backend.h's pages_turn. */
#ifndef SKV_TURN_JOB_H
#define SKV_TURN_JOB_H

#include <stddef.h>
#include <stdint.h>

typedef struct skv_angles skv_angles;

/* Row to_row + i of a head in pages `to` becomes row from_row + i of pages `from`, for i < n. Its
 * key is turned from the angle of position from_position + i to that of to_position + i, and
 * rounded once more; its value is the same to the bit. No page is in both lists. Where both angles
 * are equal the key is the same to the bit too. */
typedef struct skv_turn_job {
    const uint32_t *to, *from; /* [ceil((to_row + n) / 64)], [ceil((from_row + n) / 64)] */
    size_t to_row, from_row;   /* less than 64 */
    size_t n;                  /* at least 1 */
    size_t offset;             /* as in skv_track_spec, in both */
    size_t head_dim;
    const skv_angles *angles; /* of the keys */
    size_t to_position, from_position, context;
} skv_turn_job;

#endif
