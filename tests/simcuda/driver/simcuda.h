/* The functions of the simulated CUDA driver for tests, besides the driver API. Programs find them with dlsym in
 * libcuda.so.1, and so also start on a machine with a real driver, where simcuda_version is absent.
 *
 * Environment, read when the driver is first used or reset:
 *   SIMCUDA_MODE        lazy (default) | threads | adversarial
 *   SIMCUDA_SEED        seed of every choice; without it one is drawn, and reports print it
 *   SIMCUDA_WORKERS, SIMCUDA_DELAY_US    for mode threads
 *   SIMCUDA_DEVICES     number of devices, 0 included           SIMCUDA_PEER      0: devices are not peers
 *   SIMCUDA_VISIBLE     1: at most the devices that CUDA_VISIBLE_DEVICES names
 *   SIMCUDA_VERSION     a version other than the placed one (names for dlsym stay)
 *   SIMCUDA_MEM_MB      memory of each device
 *   SIMCUDA_VA_GB       reserved address space (default 1024; valgrind needs about 8)
 *   SIMCUDA_FAIL        function|*:nth:code[:sticky], several separated by commas
 *   SIMCUDA_FATAL       exit (default) | now | off: when findings abort the process
 *   SIMCUDA_LEAKS       fatal | report | off (default): what is live at exit
 *   SIMCUDA_REPORT      stderr, or a file to append a report with call counts to
 *   SIMCUDA_ALLOW       kinds of findings to ignore, separated by commas
 *   SIMCUDA_FREE        strict (default): freeing memory in use is a race | waits: a free waits for the device
 *   SIMCUDA_STAGING     documented (default): a synchronous upload of pageable memory may arrive later | waits
 *   SIMCUDA_REACH       anywhere (default) | documented: copies of other devices cannot access pools
 *   SIMCUDA_HOST_ORDER  observed (default) | annotated: how calls of different host threads are ordered
 *   SIMCUDA_POISON      0: no 0xCD in new memory                SIMCUDA_INITCHECK 1: report reads of unwritten bytes
 *   SIMCUDA_STRICT      1: log requests for missing functions   SIMCUDA_BACKTRACE 1: a backtrace for every site
 *   SIMCUDA_IDLE_MS     run something after this long without progress, once host functions or shared events are used
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H
#include <stddef.h>
#include <stdint.h>

/* Functions that write text return the length of all of it and write at most len - 1 bytes and a NUL. */

/* The marker: a program that finds this symbol does not run on a GPU. */
const char *simcuda_version(void);

/* Schedule: mode as in SIMCUDA_MODE. -1 for an unknown mode. */
int simcuda_seed(const char *mode, uint64_t seed);
/* Runs everything queued, or one operation (0 if none may run). Neither creates any order. */
void simcuda_quiesce(void);
int simcuda_step(void);
/* Replaces the driver by a new one: every handle and address dies. Prints and counts the findings that were
 * left. No other thread may be inside the driver. */
size_t simcuda_reset(void);
/* From now on calls return CUDA_ERROR_DEINITIALIZED, as at the end of a process. */
void simcuda_deinit(void);

/* Lets new streams reuse the handles of streams that are destroyed from now on, whether or not their work is done; or
 * no longer. Otherwise no handle is ever used again. */
void simcuda_reuse_streams(int reuse);

/* Makes the nth call from now on of a function, or of any ("*"), return code; with sticky, every later call, too. */
int simcuda_fail(const char *function, uint64_t nth, uint32_t code, int sticky);
void simcuda_fail_clear(void);
/* The function that a fault stopped last. */
size_t simcuda_last_fault(char *buffer, size_t len);

/* The number of calls of a function so far, or of all ("*"). The _ptsz and _ptds forms count as their plain form. */
uint64_t simcuda_calls(const char *function);
/* A number by its name: calls faults findings races use_after_free submitted executed skipped seed live leaks live_device
 * live_host live_managed live_imported live_streams live_events live_contexts live_pools; -1 for any other name. */
int64_t simcuda_stat(const char *name);

/* Findings: their number, each as text (kind, details, both calls), and clearing them, which makes them harmless. */
size_t simcuda_findings(void);
size_t simcuda_finding(size_t index, char *buffer, size_t len);
size_t simcuda_findings_clear(void);
/* The live things and where they were made, one line each; and the whole report. */
size_t simcuda_ledger(char *buffer, size_t len);
size_t simcuda_report(char *buffer, size_t len);

/* Sets a name for what this thread is doing, kept with every later call; NULL removes it. */
void simcuda_label(const char *label);
/* Declares that this thread reads or writes pinned, managed or registered memory, which the driver cannot see itself. */
uint32_t simcuda_host_access(const void *address, size_t n, int write);
/* 1: only annotated edges order different host threads. */
void simcuda_host_order(int annotated);
/* An edge between host threads: what is known at a release is known after a later acquire of the same token. */
void simcuda_annotate_release(uint64_t token);
void simcuda_annotate_acquire(uint64_t token);

#endif
