/* libms_tools_ext as seen from a range: it counts its calls and returns a new id, nothing else. */
#include <stdint.h>

static uint64_t begun, ended, marks;

void mstxMarkA(const char *message, void *stream) { (void)message; (void)stream; marks++; }
uint64_t mstxRangeStartA(const char *message, void *stream) { (void)message; (void)stream; return ++begun; }
void mstxRangeEnd(uint64_t id) { (void)id; ended++; }
void *mstxDomainCreateA(const char *name) { (void)name; return &begun; }
void mstxDomainMarkA(void *domain, const char *message, void *stream) { (void)domain; mstxMarkA(message, stream); }
uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) {
    (void)domain;
    return mstxRangeStartA(message, stream);
}
void mstxDomainRangeEnd(void *domain, uint64_t id) { (void)domain; mstxRangeEnd(id); }
uint64_t stub_begun(void) { return begun; }
uint64_t stub_ended(void) { return ended; }
