/* What every public header begins with: which symbols libexogym exports, and how C++ reads
 * declarations that are C's. */
#ifndef EXOGYM_EXPORT_H
#define EXOGYM_EXPORT_H

#ifdef __cplusplus
#include <atomic>
#endif

/* EXO_API: libexogym exports the function; everything else is hidden. EXO_PRINTF: which argument is
 * printf's format, and which is the first that it takes. EXO_MUST_USE: whoever calls the function
 * looks at what it gives. */
#if defined(__GNUC__)
#define EXO_API                           __attribute__((visibility("default")))
#define EXO_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define EXO_MUST_USE                      __attribute__((warn_unused_result))
#else
#define EXO_API
#define EXO_PRINTF(format_arg, first_arg)
#define EXO_MUST_USE
#endif

/* Between EXO_DECLS_BEGIN and EXO_DECLS_END declarations are C's, in C++ too. EXO_ATOMIC(type): an
 * atomic member, which lies in memory the same way in both languages. */
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
