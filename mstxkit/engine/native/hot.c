/* mstxkit's hot path: ranges, marks, steps and the recorder's live file, in one extension module.
 *
 * The interface is that of docs/internals/engine.md; engine/twin/hot.py is the same in Python. A part is a source, and
 * a header that declares what others take of it; it includes the headers of those that it takes from, never in a circle
 * (tests/test_engine_parts.py). All are compiled as one unit, this one, so that what a range runs is inlined:
 *   clock           ticks, anchors                           faults       what goes wrong
 *   live            the live file: texts, records, slots     banks        one after another, and what they know
 *   sites           interned names and stages                tracks       threads and contexts
 *   sums            what is handed over of a stage           stages       a range that is one
 *   watch           hooks on stages and steps                sinks        live outputs
 *   attributes      on their way into records                free_ranges  memory for them
 *   range           from begin to end                        entering     also again, watched, counted
 *   limits          storms and cost                          range_object what `with` sees of it
 *   ready           an awaitable that is done                driven       coroutines and generators
 *   making          the calls that make ranges and marks     stored       what patched calls read
 *   steps           the step and the stage in force          heartbeat    a thread of its own
 *   attaching       recording begins and ends                sealing      what the recorder's threads call
 *   blocks          a full bank as planes                    texts        its texts as columns
 * types.h is what they all know; words.h has the docstrings.
 * Needs the GIL (it does not declare Py_mod_gil, so a free-threaded interpreter turns the GIL on) and one interpreter.
 */
#include "clock.c"
#include "faults.c"
#include "live.c"
#include "sites.c"
#include "tracks.c"
#include "banks.c"
#include "sums.c"
#include "watch.c"
#include "sinks.c"
#include "stages.c"
#include "free_ranges.c"
#include "attributes.c"
#include "range.c"
#include "limits.c"
#include "entering.c"
#include "ready.c"
#include "range_object.c"
#include "driven.c"
#include "stored.c"
#include "making.c"
#include "steps.c"
#include "heartbeat.c"
#include "attaching.c"
#include "blocks.c"
#include "texts.c"
#include "sealing.c"
#include "words.h"

/* ---- hooks and counters ---- */
static PyObject *hot_set_hooks(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *hooks[5] = {NULL};
    if (!PyArg_ParseTuple(args, "OOOO|O", hooks, hooks + 1, hooks + 2, hooks + 3, hooks + 4)) return NULL;
    Py_XSETREF(g.describe, Py_NewRef(hooks[0]));
    Py_XSETREF(g.utf8, Py_NewRef(hooks[1]));
    Py_XSETREF(g.fault, Py_NewRef(hooks[2]));
    Py_XSETREF(g.decorate, Py_NewRef(hooks[3]));
    if (hooks[4]) Py_XSETREF(g.unpickle, Py_NewRef(hooks[4]));
    if (g_catch_all) Py_RETURN_NONE;
    PyObject *name = PyUnicode_FromString("(too many names)");
    if (!name) return NULL;
    g_catch_all = intern_slow(name, NULL, NULL);
    Py_DECREF(name);
    if (!g_catch_all) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *hot_counters(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    uint64_t *c = g.counters;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:I}", "dropped", c[DROPPED], "slots_overflowed",
                         c[SLOTS_OVERFLOWED], "attributes_lost", c[ATTRIBUTES_LOST], "names_capped", c[NAMES_CAPPED],
                         "texts_cut", c[TEXTS_CUT], "faults", c[FAULTS], "coalesced", c[COALESCED],
                         "summaries_lost", g_summaries_lost, "sites", g_site_count, "open",
                         g.slot_count - g.free_count);
}

/* ---- fork: a child that did not go through os.fork() must not write into its parent's file ---- */
static void before_fork(void)
{
    pthread_mutex_lock(&g.beat_lock);
    pthread_mutex_lock(&g.work_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&g.work_lock);
    pthread_mutex_unlock(&g.beat_lock);
}

static void make_locks(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g.beat_lock, NULL);
    pthread_mutex_init(&g.work_lock, NULL);
    pthread_cond_init(&g.beat_cond, &monotonic);
    pthread_cond_init(&g.work_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void after_fork_in_child(void)
{
    make_locks();
    forget_file(); /* the memory is let go of by attach or detach, which may use Python */
    g.on = 0;
    g.beat_running = 0;
    g.forks++;
    g_seen_count = 0;
    g.step = g.first_step = NO_STEP;
    forget_stage_times();
    forget_sums();
    if (!tls_thread) return;
    tls_thread->os_id = (uint32_t)syscall(SYS_gettid);
    tls_thread->state = NULL; /* so that its track is looked for anew, which leaves what the parent is inside of */
}

/* ---- the module ---- */
#define FAST (METH_FASTCALL | METH_KEYWORDS)

#define CALL(f) (PyCFunction)(void *)f

static PyMethodDef hot_methods[] = {
    {"mstx_range", CALL(hot_mstx_range), FAST, doc_mstx_range},
    {"stage", CALL(hot_stage), FAST, doc_stage},
    {"mark", CALL(hot_mark), FAST, doc_mark},
    {"at_step", hot_at_step, METH_O, doc_at_step},
    {"carried", hot_carried, METH_NOARGS, NULL},
    {"carry", hot_carry, METH_O, NULL},
    {"current_step", hot_current_step, METH_NOARGS, doc_current_step},
    {"stage_times", CALL(hot_stage_times), METH_VARARGS | METH_KEYWORDS,
     "stage_times(step=None)\n--\n\nStage to seconds in this process, of a step or of the last finished one."},
    {"take_summaries", CALL(hot_take_summaries), METH_VARARGS | METH_KEYWORDS, NULL},
    {"stage_keys", hot_stage_keys, METH_NOARGS, NULL},
    {"stage_waits", hot_stage_waits, METH_NOARGS, NULL},
    {"process_step", hot_process_step, METH_NOARGS, NULL},
    {"first_step", hot_first_step, METH_NOARGS, NULL},
    {"intern", CALL(hot_intern), METH_VARARGS | METH_KEYWORDS, NULL},
    {"attach", hot_attach, METH_VARARGS, NULL},
    {"detach", hot_detach, METH_NOARGS, NULL},
    {"recording", hot_recording, METH_NOARGS, NULL},
    {"set_recording", hot_set_recording, METH_O, NULL},
    {"rotate", hot_rotate, METH_NOARGS, NULL},
    {"full_bank", hot_full_bank, METH_NOARGS, NULL},
    {"encode_bank", hot_encode_bank, METH_O, NULL},
    {"encode_into", hot_encode_into, METH_VARARGS, NULL},
    {"bank_texts", hot_bank_texts, METH_O, NULL},
    {"encode_left", hot_encode_left, METH_VARARGS, NULL},
    {"text_columns", hot_text_columns, METH_O, NULL},
    {"release_bank", hot_release_bank, METH_O, NULL},
    {"limit", CALL(hot_limit), METH_VARARGS | METH_KEYWORDS, NULL},
    {"throttle", hot_throttle, METH_VARARGS, NULL},
    {"flush_coalesced", hot_flush_coalesced, METH_NOARGS, NULL},
    {"site_costs", hot_site_costs, METH_NOARGS, NULL},
    {"add_cost", hot_add_cost, METH_VARARGS, NULL},
    {"wait", hot_wait, METH_O, NULL},
    {"wait_for_records", hot_wait_for_records, METH_O, NULL},
    {"wake", hot_wake, METH_NOARGS, NULL},
    {"start_heartbeat", hot_start_heartbeat, METH_O, NULL},
    {"stop_heartbeat", hot_stop_heartbeat, METH_NOARGS, NULL},
    {"anchor", hot_anchor, METH_NOARGS, NULL},
    {"clock_kind", hot_clock_kind, METH_NOARGS, NULL},
    {"set_clock", hot_set_clock, METH_O, NULL},
    {"set_fake_ticks", hot_set_fake_ticks, METH_O, NULL},
    {"now", hot_now, METH_NOARGS, NULL},
    {"ticks_per_ns", hot_ticks_per_ns, METH_NOARGS, NULL},
    {"set_sink", hot_set_sink, METH_VARARGS, NULL},
    {"clear_sink", hot_clear_sink, METH_O, NULL},
    {"set_direct", hot_set_direct, METH_VARARGS, NULL},
    {"clear_direct", hot_clear_direct, METH_NOARGS, NULL},
    {"set_hooks", hot_set_hooks, METH_VARARGS, NULL},
    {"set_watch", hot_set_watch, METH_VARARGS, NULL},
    {"watch", hot_watch, METH_O, NULL},
    {"watch_site", hot_watch_site, METH_O, NULL},
    {"await_first", hot_await_first, METH_O, NULL},
    {"stages_seen", hot_stages_seen, METH_NOARGS, NULL},
    {"count_fault", hot_count_fault, METH_NOARGS, NULL},
    {"counters", hot_counters, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

/* What generated wrappers hold. Their module is said to be mstxkit.marking.state, so that a wrapper which
 * cloudpickle ships by value takes them by reference, and finds the engine of the process that it arrives in. */
static PyMethodDef wrapper_calls[] = {{"is_on", hot_is_on, METH_O, NULL},
                                      {"timed", CALL(hot_timed), METH_FASTCALL, NULL},
                                      {"driven", CALL(hot_driven), METH_FASTCALL, NULL},
                                      {"opened", CALL(hot_opened), METH_FASTCALL, NULL},
                                      {"stored", CALL(hot_stored), METH_FASTCALL, NULL},
                                      {"step", CALL(hot_step), METH_FASTCALL, doc_step},
                                      {"current_stage", hot_current_stage, METH_NOARGS, doc_current_stage},
                                      {NULL, NULL, 0, NULL}};

static int make_types(PyObject *module)
{
    struct { PyTypeObject **type; PyType_Spec *spec; const char *name; } all[] = {
        {&Site_Type, &site_spec, "Site"},     {&Range_Type, &range_spec, "Range"}, {&Ready_Type, &ready_spec, NULL},
        {&Span_Type, &span_spec, "Span"},     {&Driven_Type, &driven_spec, "Driven"},
        {&AtStep_Type, &at_step_spec, NULL},
        {&SelfDescr_Type, &selfdescr_spec, NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].type = (PyTypeObject *)PyType_FromSpec(all[i].spec);
        if (!*all[i].type) return 0;
        if (all[i].name && PyObject_SetAttrString(module, all[i].name, (PyObject *)*all[i].type) < 0) return 0;
    }
    g_call_range = range_call;
    PyObject *descr = (PyObject *)PyObject_New(PyObject, SelfDescr_Type);
    int done = descr && PyObject_SetAttrString((PyObject *)Range_Type, "__enter__", descr) == 0 &&
               PyObject_SetAttrString((PyObject *)Range_Type, "__exit__", descr) == 0;
    Py_XDECREF(descr);
    return done;
}

/* What is given where there is no memory for another one. */
static int make_spares(void)
{
    if (!(g_nothing = new_range())) return 0;
    g_nothing->begun = OPEN;
    g_nothing->unusual = NOTHING;
    if (!(g_no_span = new_span((Range *)Py_NewRef((PyObject *)g_nothing)))) return 0;
    g_no_span->ended = 1;
    g_no_step = (PyObject *)new_at_step();
    g_ready_none = (PyObject *)new_ready(Py_None);
    g_ready_nothing = (PyObject *)new_ready((PyObject *)g_nothing);
    return g_no_step && g_ready_none && g_ready_nothing;
}

static int add_wrapper_calls(PyObject *module)
{
    PyObject *home = PyUnicode_FromString("mstxkit.marking.state");
    int done = home != NULL;
    for (PyMethodDef *d = wrapper_calls; done && d->ml_name; d++) {
        PyObject *call = PyCFunction_NewEx(d, NULL, home);
        done = call && PyObject_SetAttrString(module, d->ml_name, call) == 0;
        Py_XDECREF(call);
    }
    Py_XDECREF(home);
    return done;
}

static int make_tables(void)
{
    g_sites = PyDict_New();
    g_by_name = PyDict_New();
    g_stage_ids = PyDict_New();
    g_stage_waits = PyDict_New();
    g.texts = PyDict_New();
    g_ambient = PyContextVar_New("mstxkit.ambient", NULL);
    s_threading = PyUnicode_InternFromString("threading");
    s_stage = PyUnicode_InternFromString("stage");
    s_domain = PyUnicode_InternFromString("domain");
    static const char *const work[WORK_KINDS] = {"tokens", "responses", "prompts", "longest_response", "waits_for"};
    for (int kind = 0; kind < WORK_KINDS; kind++)
        if (!(s_work[kind] = PyUnicode_InternFromString(work[kind]))) return 0;
    s_stream = PyUnicode_InternFromString("stream");
    s_default = PyUnicode_InternFromString("default");
    s_send = PyUnicode_InternFromString("send");
    s_throw = PyUnicode_InternFromString("throw");
    s_close = PyUnicode_InternFromString("close");
    s_coalesced = PyUnicode_InternFromString("coalesced");
    s_total_ns = PyUnicode_InternFromString("total_ns");
    s_max_ns = PyUnicode_InternFromString("max_ns");
    /* CPython 3.9 to 3.11 crash where there is no memory for a process's first context: here it is, once */
    PyObject *context = PyContext_CopyCurrent();
    Py_XDECREF(context);
    return context && g_sites && g_by_name && g_stage_ids && g_stage_waits && g.texts && g_ambient && s_threading &&
           s_stage && s_domain && s_stream && s_default && s_send && s_throw && s_close && s_coalesced &&
           s_total_ns && s_max_ns;
}

static int make_hooks_of_the_system(void)
{
    if (pthread_key_create(&g_thread_key, thread_gone) == 0 &&
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0) return 1;
    PyErr_NoMemory();
    return 0;
}

static int count_refusal(void *unused)
{
    (void)unused;
    if (g.counters) g.counters[FAULTS]++;
    return 0;
}

/* This engine's state is the process's: a second interpreter would take the file and the hooks from the first. */
static int refuse(void)
{
    PyErr_SetString(PyExc_ImportError, "mstxkit's C engine serves the main interpreter of a process only");
#if PY_VERSION_HEX >= 0x030c0000
    Py_AddPendingCall(count_refusal, NULL); /* this one may have a GIL of its own */
#else
    count_refusal(NULL);
#endif
    return -1;
}

static int hot_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) return refuse();
    if (g_module) return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(g_module));
    if (!make_tables() || !make_types(module) || !make_spares() || !add_wrapper_calls(module)) return -1;
    if (PyObject_SetAttrString(module, "NATIVE", Py_True) < 0 || !make_hooks_of_the_system()) return -1;
    g.counters = g.detached_counters;
    g.step = g.first_step = NO_STEP;
    g.clock = CLOCK_MONO;
    g.ticks_per_ns = 1.0;
    g.first_ticks = g.first_ns = clock_ns(CLOCK_MONOTONIC);
    make_locks();
    g_module = Py_NewRef(module);
    return 0;
}

static PyModuleDef_Slot hot_slots[] = {{Py_mod_exec, hot_exec},
#if PY_VERSION_HEX >= 0x030c0000
                                       /* hot_exec refuses, and counts it */
                                       {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
                                       {0, NULL}};

static struct PyModuleDef hot_module = {PyModuleDef_HEAD_INIT, "mstxkit.engine.native.hot", "mstxkit's hot path.", 0,
                                       hot_methods, hot_slots, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit_hot(void);

PyMODINIT_FUNC PyInit_hot(void) { return PyModuleDef_Init(&hot_module); }
