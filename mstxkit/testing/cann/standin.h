/* What the stand-in libraries share. All of it lives in libascendcl.so, which the others link to. */
#ifndef MSTXKIT_STANDIN_H
#define MSTXKIT_STANDIN_H

#include <stdatomic.h>
#include <stdint.h>

/* Appends {"t_ns", "pid", "tid", "call", <fields>} to MSTXKIT_STANDIN_LOG, one line a call. */
void standin_log(const char *call, const char *fields, ...) __attribute__((format(printf, 2, 3)));

/* Text as it may stand between the quotes of a JSON string; valid until the next but one call on this thread. */
const char *standin_escape(const char *text);

/* `normal`, or the code that MSTXKIT_STANDIN_FAIL asks for at this use of `call`. */
long standin_answer(const char *call, long normal);

/* Does anybody take mstx events now? MSTXKIT_STANDIN_MSTX: "profiler" (the default: while a profiler with mstx is
 * started), "on", "off". */
int standin_takes_mstx(void);

#endif
