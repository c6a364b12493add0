/*
 * One file of the spilled prefix cache: an item as spill_item.h has it.
 *
 * Its name is 32 hexadecimal digits. A file is written under another name and renamed, so it is
 * complete or absent; nothing is synced, since the checksums detect the remains of a crash of the
 * whole machine.
 */
#ifndef SKV_SERVE_SPILL_FILE_H
#define SKV_SERVE_SPILL_FILE_H

#include "scheduler/spill_item.h"

typedef struct skv_spill_place {
    int folder_fd;
    skv_spill_form form;
} skv_spill_place;

/** SKV_IO with a line that tells why; then nothing is there. */
SKV_MUST_CHECK skv_status skv_spill_file_write(const skv_spill_place *place,
                                               const skv_spill_item *item, skv_error *err);
/** SKV_FORMAT: its content does not match its name, is damaged, or is another model's. SKV_IO:
 * it is missing or cannot be read. */
SKV_MUST_CHECK skv_status skv_spill_file_read(const skv_spill_place *place,
                                              const skv_spill_name *name, skv_spill_item **out,
                                              skv_error *err);
/** Looks at the header alone: is it ours, and as long as it says? */
SKV_MUST_CHECK skv_status skv_spill_file_check(const skv_spill_place *place,
                                               const skv_spill_name *name, skv_spill_kind *kind,
                                               size_t *n_bytes, skv_error *err);
void skv_spill_file_remove(const skv_spill_place *place, const skv_spill_name *name);
/** Marks as used at this time, for the order in which files are given up. */
void skv_spill_file_touch(const skv_spill_place *place, const skv_spill_name *name);

enum { SKV_SPILL_FILE_NAME = 2 * SKV_SPILL_NAME_BYTES + 8 };

/** Parses the name of one of our files; *temporary: an unfinished one. Returns false for others. */
bool skv_spill_name_parse(const char *text, skv_spill_name *name, bool *temporary);
/** Writes a file's name. */
void skv_spill_name_format(const skv_spill_name *name, bool temporary,
                           char text[SKV_SPILL_FILE_NAME]);

#endif
