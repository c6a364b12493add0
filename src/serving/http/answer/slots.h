/*
 * Slots, as scripts for llama-server know them: numbers under which the server remembers the last
 * prompt that a key has sent with each, and its answer, so that they can be saved to a file, and
 * read again. A slot is a list of token ids. The rows are the prefix cache's, which finds them by
 * these, so a slot holds no memory of the model's and no place for an answer.
 */
#ifndef SKV_SERVER_SLOTS_H
#define SKV_SERVER_SLOTS_H

#include "transport/exchange.h"

typedef struct slot_table slot_table;

bool slots_open(size_t n, slot_table **out);
/** Before the accounts of memory go. */
void slots_close(slot_table *slots);
/** Remembers ids [n] and more [n_more] for a request's key; without memory for them the slot is
 * empty. */
void slots_put(const exchange *ex, size_t i, skv_id_piece ids, skv_id_piece more);
/** A copy of the prompt that the request's key has there, to be freed; the request's budget counts
 * it. False with an error: there is none, or no memory. */
bool slots_copy(const exchange *ex, size_t i, int32_t **ids, size_t *n, api_error *error);
/** Forgets it; returns how many ids there were. */
size_t slots_erase(const exchange *ex, size_t i);
/** One request at a time writes files (slot_files.h), since their bytes are counted first. */
void slots_lock_files(slot_table *slots);
void slots_unlock_files(slot_table *slots);

#endif
