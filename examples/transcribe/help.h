/* help.h - options of transcribe that print information and exit. Each prints to standard output
 * and returns an exit status. */
#ifndef HELP_H
#define HELP_H

int help_print(void);        /* --help */
int help_list_options(void); /* --list-options: all options as a Markdown table */
int help_list_languages(void);
int help_version(void);
int help_self_test(void);

#endif
