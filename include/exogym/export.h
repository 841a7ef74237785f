/* Macros of every public header: the symbols that libexogym exports, and C linkage for C++. */
#ifndef EXOGYM_EXPORT_H
#define EXOGYM_EXPORT_H

#ifdef __cplusplus
#include <atomic>
#endif

/* EXO_API: libexogym exports the function; all other symbols are hidden. EXO_PRINTF: the numbers of
 * printf's format and of the first formatted argument. EXO_MUST_USE: a caller that ignores the
 * result is warned. */
#if defined(__GNUC__)
#define EXO_API                           __attribute__((visibility("default")))
#define EXO_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define EXO_MUST_USE                      __attribute__((warn_unused_result))
#else
#define EXO_API
#define EXO_PRINTF(format_arg, first_arg)
#define EXO_MUST_USE
#endif

/* Declarations between EXO_DECLS_BEGIN and EXO_DECLS_END have C linkage in C++, too.
 * EXO_ATOMIC(type): an atomic member, which has the same layout in both languages. */
#ifdef __cplusplus
#define EXO_DECLS_BEGIN  extern "C" {
#define EXO_DECLS_END    }
#define EXO_ATOMIC(type) std::atomic<type>
#else
#define EXO_DECLS_BEGIN
#define EXO_DECLS_END
#define EXO_ATOMIC(type) _Atomic(type)
#endif

#endif
