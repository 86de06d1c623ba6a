/* Many texts of a bank as columns, which compress better than entry by entry. The same as store/text_columns.py, which
 * reads them.
 */
#include "types.h"

enum { TEXT_KINDS = 256, TEXT_ROW_BYTES = 9, TEXT_AT_MOST = 0xFFFF };

typedef struct { const char *payload; uint32_t length, id; uint16_t kind; } TextEntry;

/* The entry that ends at `at`, and where it begins; -1 where none does. */
static int64_t entry_before(const char *texts, int64_t at, TextEntry *entry)
{
    struct { uint32_t length; uint16_t kind, zero; uint32_t id, crc; } trailer;
    if (at < TRAILER_BYTES) return -1;
    memcpy(&trailer, texts + at - TRAILER_BYTES, TRAILER_BYTES);
    int64_t padded = ((int64_t)trailer.length + 7) / 8 * 8, first = at - TRAILER_BYTES - padded;
    if (first < 0 || trailer.kind >= TEXT_KINDS || trailer.length > TEXT_AT_MOST) return -1;
    if (trailer.zero || trailer.crc) return -1;
    for (int64_t i = trailer.length; i < padded; i++)
        if (texts[first + i]) return -1;
    *entry = (TextEntry){texts + first, trailer.length, trailer.id, trailer.kind};
    return first;
}

/* How many entries there are; -1 where not all of it is entries. */
static int64_t count_entries(const char *texts, int64_t bytes)
{
    TextEntry entry;
    int64_t count = 0;
    for (; bytes > 0; count++)
        if ((bytes = entry_before(texts, bytes, &entry)) < 0) return -1;
    return count;
}

/* Fills `out`, and says how many bytes of it. */
static size_t write_columns(const char *texts, int64_t bytes, uint32_t count, char *out)
{
    TextEntry entry, last[TEXT_KINDS];
    memset(last, 0, sizeof last);
    char *kinds = out + sizeof count, *ids = kinds + count, *lengths = ids + 4ull * count;
    char *shares = lengths + 2ull * count, *rest = shares + 2ull * count;
    memcpy(out, &count, sizeof count);
    for (uint32_t i = 0; i < count; i++) {
        bytes = entry_before(texts, bytes, &entry);
        TextEntry *before = &last[entry.kind];
        uint32_t more = entry.id - before->id, most = before->length < entry.length ? before->length : entry.length;
        uint16_t length = (uint16_t)entry.length, shared = 0;
        while (shared < most && before->payload[shared] == entry.payload[shared]) shared++;
        kinds[i] = (char)entry.kind;
        memcpy(ids + 4ull * i, &more, sizeof more);
        memcpy(lengths + 2ull * i, &length, sizeof length);
        memcpy(shares + 2ull * i, &shared, sizeof shared);
        memcpy(rest, entry.payload + shared, entry.length - shared);
        rest += entry.length - shared;
        *before = entry;
    }
    return (size_t)(rest - out);
}

/* text_columns(texts without checksums) -> bytes, or None where they are not what a bank has; the GIL is released. */
static PyObject *hot_text_columns(PyObject *self, PyObject *texts)
{
    (void)self;
    if (!PyBytes_Check(texts)) return PyErr_Format(PyExc_TypeError, "texts must be bytes");
    const char *raw = PyBytes_AS_STRING(texts);
    int64_t bytes = PyBytes_GET_SIZE(texts), count;
    Py_BEGIN_ALLOW_THREADS
    count = count_entries(raw, bytes);
    Py_END_ALLOW_THREADS
    if (count < 0 || count > UINT32_MAX) Py_RETURN_NONE;
    /* An entry has 16 bytes besides its text: its columns and the text take less. */
    PyObject *columns = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(bytes + (int64_t)sizeof(uint32_t)));
    if (!columns) return NULL;
    size_t used;
    Py_BEGIN_ALLOW_THREADS
    used = write_columns(raw, bytes, (uint32_t)count, PyBytes_AS_STRING(columns));
    Py_END_ALLOW_THREADS
    _PyBytes_Resize(&columns, (Py_ssize_t)used);
    return columns;
}
