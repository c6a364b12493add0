/* Files of charts: see svg_file.h. */
#include "svg_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void cli_svg_escaped(FILE *stream, const char *text)
{
    for (; *text != 0; text++) {
        switch (*text) {
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '&': fputs("&amp;", stream); break;
        default: putc((unsigned char)*text < 0x20 ? '?' : *text, stream); break;
        }
    }
}

void cli_svg_text(FILE *stream, double x, double y, const char *attributes, const char *text)
{
    fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    cli_svg_escaped(stream, text);
    fputs("</text>\n", stream);
}

static void put_head(FILE *stream, const cli_svg_head *head)
{
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\">\n<title>",
            head->width, head->height, head->width, head->height);
    cli_svg_escaped(stream, head->title);
    fputs("</title>\n<style>\n"
          "svg { --paper: #ffffff; --ink: #1f2933; --soft: #66727f; --grid: #e3e7eb; "
          "--line: #1668b8; }\n"
          "@media (prefers-color-scheme: dark) { svg { --paper: #14181d; --ink: #e6eaee; "
          "--soft: #9aa5b1; --grid: #2b333c; --line: #6cb2ff; } }\n"
          ".paper { fill: #ffffff; fill: var(--paper); }\n"
          "text { font: 13px system-ui, sans-serif; fill: #1f2933; fill: var(--ink); }\n"
          ".title { font-size: 17px; font-weight: 600; }\n"
          ".soft { fill: #66727f; fill: var(--soft); }\n"
          ".grid { stroke: #e3e7eb; stroke: var(--grid); }\n"
          ".axis { stroke: #66727f; stroke: var(--soft); }\n"
          ".line { fill: none; stroke: #1668b8; stroke: var(--line); stroke-width: 2; }\n"
          ".dot { fill: #1668b8; fill: var(--line); }\n"
          "</style>\n",
          stream);
    fprintf(stream, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", head->width,
            head->height);
    cli_svg_text(stream, head->left, 30, "class=\"title\"", head->title);
    cli_svg_text(stream, head->left, 52, "class=\"soft\"", head->subtitle);
}

int cli_svg_open(cli_svg_file *file, const char *path, const cli_svg_head *head)
{
    const size_t n = strlen(path) + sizeof ".tmp";
    *file = (cli_svg_file){.path = path, .temporary = cli_alloc(n, 1)};
    snprintf(file->temporary, n, "%s.tmp", path);
    file->stream = fopen(file->temporary, "wb");
    if (file->stream == NULL) {
        free(file->temporary);
        return cli_fail("%s: %s", path, strerror(errno));
    }
    put_head(file->stream, head);
    return CLI_DONE;
}

int cli_svg_close(cli_svg_file *file)
{
    int status = CLI_DONE;
    fputs("</svg>\n", file->stream);
    const bool failed = ferror(file->stream) != 0;
    const bool not_closed = fclose(file->stream) != 0;
    if (failed || not_closed || rename(file->temporary, file->path) != 0) {
        const int code = errno;
        remove(file->temporary);
        status = cli_fail("%s: %s", file->path, strerror(code));
    }
    free(file->temporary);
    return status;
}
