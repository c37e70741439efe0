/* What tests may ask of the simulated CUDA driver beside the driver API. Found with dlsym in libcuda.so.1, so that
 * a program also starts on a machine with a real driver, where simcuda_version is absent.
 *
 * Environment, read when the driver is first used or reset:
 *   SIMCUDA_MODE        lazy (default) | threads | adversarial
 *   SIMCUDA_SEED        seed of every choice; without it one is drawn, and reports print it
 *   SIMCUDA_WORKERS, SIMCUDA_DELAY_US    for mode threads
 *   SIMCUDA_DEVICES     number of devices, 0 included           SIMCUDA_PEER      0: devices are no peers
 *   SIMCUDA_VISIBLE     1: no more devices than CUDA_VISIBLE_DEVICES names
 *   SIMCUDA_VERSION     another version than the one placed (names for dlsym stay)
 *   SIMCUDA_MEM_MB      memory of each device
 *   SIMCUDA_VA_GB       reserved address space (default 1024; valgrind needs about 8)
 *   SIMCUDA_FAIL        function|*:nth:code[:sticky], several separated by commas
 *   SIMCUDA_FATAL       exit (default) | now | off: when findings abort the process
 *   SIMCUDA_LEAKS       fatal | report | off (default): what is live at exit
 *   SIMCUDA_REPORT      stderr, or a file to append a report with call counts to
 *   SIMCUDA_ALLOW       kinds of findings to ignore, separated by commas
 *   SIMCUDA_FREE        strict (default): freeing memory in use is a race | waits: a free waits for the device
 *   SIMCUDA_STAGING     documented (default): a synchronous upload of pageable memory may arrive later | waits
 *   SIMCUDA_REACH       anywhere (default) | documented: memory of pools is no place for copies elsewhere
 *   SIMCUDA_HOST_ORDER  observed (default) | annotated: how calls of different host threads are ordered
 *   SIMCUDA_POISON      0: no 0xCD in new memory                SIMCUDA_INITCHECK 1: report reads of unwritten bytes
 *   SIMCUDA_STRICT      1: log requests for missing functions   SIMCUDA_BACKTRACE 1: a backtrace for every site
 *   SIMCUDA_IDLE_MS     run something after so long without progress, once host functions or shared events are used
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H
#include <stddef.h>
#include <stdint.h>

/* Functions that write text return the length of all of it and write at most len - 1 bytes and a NUL. */

/* The marker: whoever finds this symbol is not on a GPU. */
const char *simcuda_version(void);

/* Schedule: mode as in SIMCUDA_MODE. -1 for an unknown mode. */
int simcuda_seed(const char *mode, uint64_t seed);
/* Runs everything queued, or one operation (0 if none may run). Neither orders anything. */
void simcuda_quiesce(void);
int simcuda_step(void);
/* A new driver in place of the old one: every handle and address dies. Prints and counts the findings that were
 * left. No other thread may be inside the driver. */
size_t simcuda_reset(void);
/* From now on calls return CUDA_ERROR_DEINITIALIZED, as at the end of a process. */
void simcuda_deinit(void);

/* From now on, or no longer, a new stream gets the handle of a stream that is destroyed from now on, whether its work is
 * done or not. Otherwise no handle is ever used again. */
void simcuda_reuse_streams(int reuse);

/* The nth call from now of a function, or of any ("*"), returns code; sticky: and everything after it. */
int simcuda_fail(const char *function, uint64_t nth, uint32_t code, int sticky);
void simcuda_fail_clear(void);
/* The function that a fault stopped last. */
size_t simcuda_last_fault(char *buffer, size_t len);

/* Calls of a function so far, or of all ("*"). The _ptsz and _ptds forms count as their plain form. */
uint64_t simcuda_calls(const char *function);
/* calls faults findings races use_after_free submitted executed skipped seed live leaks live_device live_host
 * live_managed live_imported live_streams live_events live_contexts live_pools; -1 for any other name. */
int64_t simcuda_stat(const char *name);

/* Findings: how many, each as text (kind, what, both calls), and dealing with them, which makes them harmless. */
size_t simcuda_findings(void);
size_t simcuda_finding(size_t index, char *buffer, size_t len);
size_t simcuda_findings_clear(void);
/* What is live and where it was made, a line each; and everything together. */
size_t simcuda_ledger(char *buffer, size_t len);
size_t simcuda_report(char *buffer, size_t len);

/* A name for what this thread is doing, kept with every call that follows; NULL takes it off. */
void simcuda_label(const char *label);
/* This thread reads or writes pinned, managed or registered memory, which the driver cannot see by itself. */
uint32_t simcuda_host_access(const void *address, size_t n, int write);
/* 1: only annotated edges order different host threads. */
void simcuda_host_order(int annotated);
/* An edge between host threads: what is known at a release is known after a later acquire of the same token. */
void simcuda_annotate_release(uint64_t token);
void simcuda_annotate_acquire(uint64_t token);

#endif
