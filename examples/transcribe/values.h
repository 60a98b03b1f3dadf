/* values.h - command line options with their own syntax. Each value_ function stores the value in o
 * or prints an error to standard error; it returns 0 or an exit status. Strings are kept by
 * reference. */
#ifndef VALUES_H
#define VALUES_H

#include "options.h"

#define VALUE_TO_THE_END INT64_C(1000000000000) /* ms: longer than any recording */

int value_languages(options *o, const option_info *info, const char *value);
int value_language_mode(options *o, const option_info *info, const char *value);
int value_hotwords(options *o, const option_info *info, const char *value);
int value_replace(options *o, const option_info *info, const char *value);
int value_commands(options *o, const option_info *info, const char *value);
int value_align(options *o, const option_info *info, const char *value);
int value_channel(options *o, const option_info *info, const char *value);
int value_speakers(options *o, const option_info *info, const char *value);
int value_stall(options *o, const option_info *info, const char *value);
int value_offset(options *o, const option_info *info, const char *value);
int value_duration(options *o, const option_info *info, const char *value);
int value_clips(options *o, const option_info *info, const char *value);
int value_raw(options *o, const option_info *info, const char *value);
int value_formats(options *o, const option_info *info, const char *value);
int value_output(options *o, const option_info *info, const char *value);
int value_isa(options *o, const option_info *info, const char *value);
int value_compute(options *o, const option_info *info, const char *value);
/* "int8" or "float"; NULL if there is no such wnpu_compute. */
const char *value_compute_name(int compute);

/* Parses an integer from info->low to info->high. */
int value_number(const option_info *info, const char *value, int *result);

#endif
