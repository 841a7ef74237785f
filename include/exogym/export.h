/* Marks the symbols that libexogym exports; everything else is hidden. */
#ifndef EXOGYM_EXPORT_H
#define EXOGYM_EXPORT_H

#if defined(__GNUC__)
#define EXO_API                           __attribute__((visibility("default")))
#define EXO_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define EXO_MUST_USE                      __attribute__((warn_unused_result))
#else
#define EXO_API
#define EXO_PRINTF(format_arg, first_arg)
#define EXO_MUST_USE
#endif

#endif
