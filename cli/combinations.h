/** What goes with what, as docs/methods.md has it. */
#ifndef SKV_CLI_COMBINATIONS_H
#define SKV_CLI_COMBINATIONS_H

/** `swiftkv help --combinations`: the table and the reasons, in Markdown. */
void cli_help_combinations(void);

#endif
