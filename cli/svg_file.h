/** What all charts share: a file that is whole or absent, its head, and text in it. */
#ifndef SKV_CLI_SVG_FILE_H
#define SKV_CLI_SVG_FILE_H

#include <stdio.h>

#include "report.h"

/* In pixels. */
enum {
    CLI_SVG_TOP = 76,  /* where the drawing begins, below the titles */
    CLI_SVG_RIGHT = 24 /* the margin */
};

typedef struct cli_svg_file {
    FILE *stream;
    char *temporary;  /* owned: what is written until it is whole */
    const char *path; /* borrowed */
} cli_svg_file;

typedef struct cli_svg_head {
    const char *title, *subtitle;
    int width, height, left; /* left: where the titles begin */
} cli_svg_head;

/** Begins a drawing with its colours and titles. Classes: title, soft, grid, axis, line, dot. */
CLI_CHECKED int cli_svg_open(cli_svg_file *file, const char *path, const cli_svg_head *head);
/** Ends it; nothing is left behind on failure. */
CLI_CHECKED int cli_svg_close(cli_svg_file *file);
void cli_svg_text(FILE *stream, double x, double y, const char *attributes, const char *text);
void cli_svg_escaped(FILE *stream, const char *text);

#endif
