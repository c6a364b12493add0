/* A text of token ids that a small model can learn: every id follows from the ones before. */
#ifndef SKV_TESTS_TEXT_IDS_H
#define SKV_TESTS_TEXT_IDS_H

#include <stdio.h>

/** Writes ids[0..n) below 97 as a JSON array; another factor makes another text. 0 when that
 * worked. */
static inline int text_ids_write(const char *path, int n, int factor)
{
    FILE *file = fopen(path, "w");
    if (!file) return -1;
    fputc('[', file);
    for (int i = 0; i < n; i++) fprintf(file, "%s%d", i ? "," : "", i * i * factor % 97);
    fputs("]\n", file);
    return fclose(file);
}

#endif
