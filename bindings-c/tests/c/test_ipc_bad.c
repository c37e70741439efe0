/* Sharing with other processes that misbehave. A proxy between importer and exporter alters their messages; the result is the
 * same tensor or a refusal, in time, and nothing is left over. */
#define _GNU_SOURCE
#include "leases.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 40000, MOST_FDS = 8 };

/* How long an importer waits for an answer that does not come, and for one that does, though late on a busy machine. */
static int64_t const short_ns = INT64_C(200000000), long_ns = INT64_C(120000000000);

static int64_t const shape_4[1] = {4};

static void address_of(char *out, size_t size, char const *what) {
    snprintf(out, size, "@devexchange-c-bad-%s-%ld", what, (long)getpid());
}

static struct sockaddr_un name_of(char const *address, socklen_t *length) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path + 1, address + 1, strlen(address) - 1);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address));
    return name;
}

static int listening(char const *address) {
    int const fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length;
    struct sockaddr_un const name = name_of(address, &length);
    if (fd < 0 || bind(fd, (struct sockaddr const *)&name, length) != 0 || listen(fd, 64) != 0) {
        abort();
    }
    return fd;
}

/* A connected socket, or -1. */
static int connected(char const *address, int type) {
    int const fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    socklen_t length;
    struct sockaddr_un const name = name_of(address, &length);
    if (connect(fd, (struct sockaddr const *)&name, length) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- an exporter --- */

static devx_ipc_server_t *offering(char const *address) {
    devx_ipc_server_t *server = NULL;
    devx_tensor_t *tensor = NULL;
    DLTensor seen;
    if (devx_ipc_server_create(address, &server, &error) != DEVX_OK ||
        devx_tensor_allocate_shared(int32, shape_4, 1, &tensor, &error) != DEVX_OK ||
        devx_tensor_borrow(tensor, &seen, NULL, &error) != DEVX_OK) {
        return NULL;
    }
    for (int32_t i = 0; i < 4; ++i) {
        ((int32_t *)seen.data)[i] = 10 * (i + 1);
    }
    if (devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error) != DEVX_OK) {
        devx_ipc_server_release(&server);
    }
    devx_tensor_release(&tensor);
    return server;
}

static void check_end(devx_ipc_server_t *server) {
    CHECK_CALL(check_leases_end(server));
    devx_ipc_server_release(&server);
    CHECK_NOTHING_OUTSTANDING();
}

/* Imports "t" from an address: DEVX_OK only if it is the tensor that was offered. */
static devx_status imported(char const *address, int64_t timeout_ns) {
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = UNWRITTEN;
    DLTensor seen = {0};
    devx_status got = devx_ipc_client_create(address, timeout_ns, &client, &error);
    if (got != DEVX_OK) {
        return got;
    }
    got = devx_ipc_client_import_tensor(client, "t", &tensor, &error);
    if (got != DEVX_OK) {
        if (tensor != UNWRITTEN || error.message[0] == '\0') {
            got = DEVX_PANIC;
        }
    } else {
        int32_t const *values;
        (void)devx_tensor_borrow(tensor, &seen, NULL, &error);
        values = seen.data;
        if (seen.shape[0] != 4 || values[0] != 10 || values[3] != 40) {
            got = DEVX_PANIC;
        }
        devx_tensor_release(&tensor);
    }
    devx_ipc_client_release(&client);
    return got;
}

/* --- the proxy --- */

struct message {
    char bytes[MOST_BYTES];
    ssize_t length;
    int fds[MOST_FDS], n_fds;
};

/* What the proxy does to one message. */
enum how { AS_IT_IS, ALTER, CUT, GARBAGE, FILES, HANG_UP, AGAIN_AND_AGAIN };

struct proxy {
    char address[64], exporter[64];
    int socket, stop[2];
    pthread_t thread;
    pthread_mutex_t lock; /* of the members that follow */
    int from_importer, number;
    enum how how;
    size_t at;
    unsigned char mask;
    int files[MOST_FDS], n_files;
    /* Lengths of the messages seen so far, by side and number. */
    ssize_t seen[2][2];
};

static int receive(int fd, struct message *out) {
    union {
        char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {out->bytes, sizeof out->bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    out->n_fds = 0;
    out->length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c != NULL; c = CMSG_NXTHDR(&header, c)) {
        out->n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(out->fds, CMSG_DATA(c), (size_t)out->n_fds * sizeof(int));
    }
    return out->length > 0;
}

static int send_message(int fd, char const *bytes, size_t length, int const *fds, int n_fds) {
    union {
        char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (n_fds > 0) {
        struct cmsghdr *c;
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    return sendmsg(fd, &header, MSG_NOSIGNAL) >= 0;
}

/* Hands a message on, altered if it is the chosen one; 0 ends the connection. */
static int hand_on(struct proxy *proxy, struct message *message, int to, int from_importer, int number) {
    int const *fds = message->fds;
    int n_fds = message->n_fds, alive = 1;
    pthread_mutex_lock(&proxy->lock);
    if (number < 2) {
        proxy->seen[from_importer][number] = message->length;
    }
    if (from_importer == proxy->from_importer && number == proxy->number) {
        switch (proxy->how) {
        case ALTER:
            message->bytes[proxy->at] = (char)(message->bytes[proxy->at] ^ proxy->mask);
            break;
        case CUT:
            message->length = (ssize_t)proxy->at;
            break;
        case GARBAGE:
            memset(message->bytes, proxy->mask, proxy->at);
            message->length = (ssize_t)proxy->at;
            break;
        case FILES:
            fds = proxy->files;
            n_fds = proxy->n_files;
            break;
        case HANG_UP:
            alive = 0;
            break;
        case AGAIN_AND_AGAIN: /* the answer to the first request, whatever the later requests are */
            while (send_message(to, message->bytes, (size_t)message->length, fds, n_fds)) {
            }
            alive = 0;
            break;
        case AS_IT_IS:
            break;
        }
    }
    if (alive) {
        alive = send_message(to, message->bytes, (size_t)message->length, fds, n_fds);
    }
    pthread_mutex_unlock(&proxy->lock);
    for (int i = 0; i < message->n_fds; ++i) {
        close(message->fds[i]);
    }
    return alive;
}

static void between(struct proxy *proxy, int importer) {
    struct message *message = malloc(sizeof *message);
    int const exporter = connected(proxy->exporter, SOCK_SEQPACKET);
    int numbers[2] = {0, 0}, alive = exporter >= 0;
    while (alive) {
        struct pollfd fds[2] = {{exporter, POLLIN, 0}, {importer, POLLIN, 0}};
        poll(fds, 2, -1);
        for (int side = 0; side < 2 && alive; ++side) {
            if (fds[side].revents != 0) {
                alive = receive(fds[side].fd, message) &&
                        hand_on(proxy, message, fds[1 - side].fd, side, numbers[side]++);
            }
        }
    }
    close(exporter);
    free(message);
}

static void *run_proxy(void *context) {
    struct proxy *proxy = context;
    for (;;) {
        struct pollfd fds[2] = {{proxy->socket, POLLIN, 0}, {proxy->stop[0], POLLIN, 0}};
        int importer;
        poll(fds, 2, -1);
        if (fds[1].revents != 0) {
            return NULL;
        }
        importer = accept4(proxy->socket, NULL, NULL, SOCK_CLOEXEC);
        between(proxy, importer);
        close(importer);
    }
}

static void start_proxy(struct proxy *proxy, char const *exporter) {
    memset(proxy, 0, sizeof *proxy);
    address_of(proxy->address, sizeof proxy->address, "proxy");
    snprintf(proxy->exporter, sizeof proxy->exporter, "%s", exporter);
    proxy->socket = listening(proxy->address);
    if (pipe(proxy->stop) != 0 || pthread_mutex_init(&proxy->lock, NULL) != 0 ||
        pthread_create(&proxy->thread, NULL, run_proxy, proxy) != 0) {
        abort();
    }
}

static void end_proxy(struct proxy *proxy) {
    if (write(proxy->stop[1], "!", 1) != 1) {
        abort();
    }
    pthread_join(proxy->thread, NULL);
    pthread_mutex_destroy(&proxy->lock);
    close(proxy->stop[0]);
    close(proxy->stop[1]);
    close(proxy->socket);
}

/* Tells the proxy what to do to one message. */
static void arrange(struct proxy *proxy, int from_importer, int number, enum how how, size_t at, unsigned char mask) {
    pthread_mutex_lock(&proxy->lock);
    proxy->from_importer = from_importer;
    proxy->number = number;
    proxy->how = how;
    proxy->at = at;
    proxy->mask = mask;
    pthread_mutex_unlock(&proxy->lock);
}

/* Imports through the proxy, which alters one message in this way. */
static devx_status through(struct proxy *proxy, int from_importer, int number, enum how how, size_t at,
                           unsigned char mask) {
    arrange(proxy, from_importer, number, how, at, mask);
    return imported(proxy->address, long_ns);
}

static size_t length_seen(struct proxy *proxy, int from_importer, int number) {
    pthread_mutex_lock(&proxy->lock);
    size_t const length = (size_t)proxy->seen[from_importer][number];
    pthread_mutex_unlock(&proxy->lock);
    return length;
}

/* --- another user: comes first, because the child may use the library only if its parent has not used it yet --- */

/* The importer, as another user: returns 0 if it was refused. */
static int refused_as_another(char const *address) {
    devx_ipc_client_t *client = NULL;
    devx_error why;
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 1;
    if (devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &client, &why) != DEVX_SYSTEM) return 2;
    return strstr(why.message, "is a process of user 0, not of user 65534") == NULL ? 3 : 0;
}

TEST(a_process_of_another_user_is_refused) {
    char address[64], byte;
    int ready[2], status = -1;
    devx_ipc_server_t *server;
    pid_t child;
    if (geteuid() != 0) {
        SKIP("only root can be somebody else");
    }
    address_of(address, sizeof address, "user");
    CHECK(pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        _exit(read(ready[0], &byte, 1) == 1 ? refused_as_another(address) : 100);
    }
    server = offering(address);
    CHECK_MADE(server);
    CHECK(write(ready[1], "!", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    close(ready[0]);
    close(ready[1]);
    CHECK_CALL(check_end(server));
}

/* --- altered messages --- */

TEST(every_byte_of_every_message_altered_or_cut_off) {
    struct proxy proxy;
    char address[64];
    devx_ipc_server_t *server;
    int same = 0, late = 0, refused = 0;
    address_of(address, sizeof address, "exporter");
    server = offering(address);
    CHECK_MADE(server);
    start_proxy(&proxy, address);
    CHECK_INT(through(&proxy, 0, 0, AS_IT_IS, 0, 0), DEVX_OK);
    /* hello and answer of the exporter, request of the importer */
    static struct {
        int from_importer, number;
    } const all[] = {{0, 0}, {0, 1}, {1, 0}};
    for (size_t which = 0; which < 3; ++which) {
        int const from = all[which].from_importer, number = all[which].number;
        size_t const length = length_seen(&proxy, from, number);
        CHECK(length > 8 && length < 1000);
        for (size_t at = 0; at < length; ++at) {
            static unsigned char const masks[] = {0, 0x01, 0x80};
            for (size_t m = 0; m < 3; ++m) {
                /* The number of a request, in the request and in its answer: if it is altered, the importer waits in vain,
                 * except that no request may have the number 0. */
                int const is_zero = from == 1 && at == 8 && masks[m] == 0x01;
                int const in_vain = from + number == 1 && at >= 8 && at < 16 && masks[m] != 0 && !is_zero;
                arrange(&proxy, from, number, masks[m] == 0 ? CUT : ALTER, at, masks[m]);
                devx_status const got = imported(proxy.address, in_vain ? short_ns : long_ns);
                CHECK_MSG(got != DEVX_PANIC && (got == DEVX_NOT_READY) == in_vain,
                          "message %d/%d, byte %d, mask %d: %.150s", from, number, (int)at, masks[m], error.message);
                *(got == DEVX_OK ? &same : got == DEVX_NOT_READY ? &late : &refused) += 1;
            }
        }
    }
    /* The exporter may choose its identity, so altering it changes nothing. */
    CHECK(same == 2 * 8 && late == 2 * (8 + 8) - 1 && refused > 200);
    CHECK_INT(through(&proxy, 0, 0, AS_IT_IS, 0, 0), DEVX_OK);
    end_proxy(&proxy);
    CHECK_CALL(check_end(server));
}

TEST(garbage_and_silence_end_in_time) {
    static size_t const sizes[] = {1, 4, 8, 20, 32768, 32769, MOST_BYTES};
    struct proxy proxy;
    char address[64];
    devx_ipc_server_t *server;
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = NULL;
    double begin;
    int silent;
    char text[64];
    address_of(address, sizeof address, "exporter");
    server = offering(address);
    CHECK_MADE(server);
    start_proxy(&proxy, address);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        for (int side = 0; side < 2; ++side) {
            CHECK(through(&proxy, side, 0, GARBAGE, sizes[i], 0xff) != DEVX_OK);
            CHECK(through(&proxy, side, 0, GARBAGE, sizes[i], 0) != DEVX_OK);
            CHECK(through(&proxy, 0, 1, GARBAGE, sizes[i], 0x41) != DEVX_OK);
        }
    }
    for (int number = 0; number < 2; ++number) {
        CHECK_INT(through(&proxy, 0, number, HANG_UP, 0, 0), DEVX_CLOSED);
        CHECK_HAS(error.message, "the exporter is gone");
    }
    /* The answer to another request, endlessly. The importer has one patience for what comes and for what does not. */
    arrange(&proxy, 0, 2, AGAIN_AND_AGAIN, 0, 0);
    CHECK_OK(devx_ipc_client_create(proxy.address, 15 * short_ns, &client, &error));
    CHECK_OK(devx_ipc_client_import_tensor(client, "t", &tensor, &error));
    devx_tensor_release(&tensor);
    CHECK_REFUSED(devx_ipc_client_import_tensor(client, "none", &tensor, &error), DEVX_INVALID_ARGUMENT,
                  "nothing is offered");
    begin = seconds();
    CHECK_REFUSED(devx_ipc_client_import_tensor(client, "t", &tensor, &error), DEVX_NOT_READY, "did not answer within");
    CHECK(seconds() - begin < 10);
    devx_ipc_client_release(&client);
    end_proxy(&proxy);
    CHECK_CALL(check_end(server));
    /* Nobody accepts the connection; and then there is no time at all. */
    address_of(address, sizeof address, "silent");
    silent = listening(address);
    begin = seconds();
    snprintf(text, sizeof text, "did not answer within %" PRId64 "ms", short_ns / 1000000);
    CHECK_REFUSED(devx_ipc_client_create(address, short_ns, &client, &error), DEVX_NOT_READY, text);
    CHECK_HAS(error.message, address);
    CHECK_REFUSED(devx_ipc_client_create(address, 0, &client, &error), DEVX_NOT_READY, "did not answer within");
    CHECK(seconds() - begin < 10);
    CHECK(client == NULL);
    close(silent);
}

static int memory_file(size_t bytes, int seals) {
    int const fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)bytes) != 0 || (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        abort();
    }
    return fd;
}

TEST(files_that_are_not_what_they_should_be) {
    int const seals = F_SEAL_SHRINK | F_SEAL_GROW;
    int ends[2], streams[2];
    struct proxy proxy;
    char address[64];
    devx_ipc_server_t *server;
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, streams) == 0);
    struct {
        char const *name, *part;
        int fds[2], n;
    } const all[] = {
        {"none", "there are 0 file descriptors, the regions have 1", {-1, -1}, 0},
        {"two", "there are 2 file descriptors, the regions have 1", {memory_file(16, seals), memory_file(16, seals)}, 2},
        {"a directory", "no memory file: it has no seals", {open("/", O_RDONLY | O_DIRECTORY), -1}, 1},
        {"/dev/null", "no memory file: it has no seals", {open("/dev/null", O_RDWR), -1}, 1},
        {"/dev/zero", "no memory file: it has no seals", {open("/dev/zero", O_RDWR), -1}, 1},
        {"a pipe", "no memory file: it has no seals", {ends[0], -1}, 1},
        {"a socket", "no memory file: it has no seals", {streams[0], -1}, 1},
        {"not sealed", "seals 0x0: its memory could be cut off", {memory_file(16, 0), -1}, 1},
        {"half sealed", "seals 0x2: its memory could be cut off", {memory_file(16, F_SEAL_SHRINK), -1}, 1},
        {"too short", "region.bytes is 16, but the file has 15", {memory_file(15, seals), -1}, 1},
        {"too long", "region.bytes is 16, but the file has 17", {memory_file(17, seals), -1}, 1},
        {"not to be written", "region.writable is 1, but the file", {memory_file(16, seals | F_SEAL_WRITE), -1}, 1},
    };
    address_of(address, sizeof address, "exporter");
    server = offering(address);
    CHECK_MADE(server);
    start_proxy(&proxy, address);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        pthread_mutex_lock(&proxy.lock);
        memcpy(proxy.files, all[i].fds, sizeof all[i].fds);
        proxy.n_files = all[i].n;
        pthread_mutex_unlock(&proxy.lock);
        devx_status const got = through(&proxy, 0, 1, FILES, 0, 0);
        CHECK_MSG(got == DEVX_INVALID_ARGUMENT, "%s: %s: %.150s", all[i].name, devx_status_name(got), error.message);
        CHECK_MSG(strstr(error.message, all[i].part) != NULL, "%s: %.150s", all[i].name, error.message);
        for (int k = 0; k < all[i].n; ++k) {
            close(all[i].fds[k]);
        }
    }
    close(ends[1]);
    close(streams[1]);
    end_proxy(&proxy);
    CHECK_CALL(check_end(server));
}

/* --- importers that connect and say nothing, or nonsense --- */

TEST(importers_that_do_not_speak_disturb_nobody) {
    enum { SILENT = 200, TIMES = 2000 };
    static char noise[MOST_BYTES];
    char address[64];
    int fds[SILENT];
    devx_ipc_server_t *server;
    address_of(address, sizeof address, "exporter");
    server = offering(address);
    CHECK_MADE(server);
    CHECK_INT(connected(address, SOCK_STREAM), -1);
    for (int i = 0; i < SILENT; ++i) {
        fds[i] = connected(address, SOCK_SEQPACKET);
        CHECK(fds[i] >= 0);
    }
    CHECK_INT(imported(address, long_ns), DEVX_OK);
    for (int i = 0; i < SILENT; ++i) {
        memset(noise, i, sizeof noise);
        (void)send_message(fds[i], noise, i % 2 == 0 ? (size_t)i + 1 : sizeof noise, fds, i % 3);
    }
    CHECK_INT(imported(address, long_ns), DEVX_OK);
    for (int i = 0; i < SILENT; ++i) {
        close(fds[i]);
    }
    for (int i = 0; i < TIMES; ++i) {
        int const fd = connected(address, SOCK_SEQPACKET);
        CHECK(fd >= 0);
        close(fd);
    }
    CHECK_INT(imported(address, long_ns), DEVX_OK);
    CHECK_CALL(check_end(server));
}

/* --- names and addresses --- */

TEST(names_and_addresses_are_checked) {
    static char long_name[300];
    static struct {
        char const *name;
        devx_status status;
        char const *part;
    } const names[] = {
        {NULL, DEVX_NULL_ARGUMENT, "name is NULL"},
        {"", DEVX_INVALID_ARGUMENT, "name has 0 bytes"},
        {long_name, DEVX_INVALID_ARGUMENT, "name has 256 bytes: between 1 and 255"},
        {"\xff\xfe", DEVX_INVALID_TEXT, "name"},
    };
    static struct {
        char const *address;
        devx_status status;
        char const *part;
    } const addresses[] = {
        {NULL, DEVX_NULL_ARGUMENT, "address is NULL"},
        {"", DEVX_INVALID_ARGUMENT, "address is \"\""},
        {"@", DEVX_INVALID_ARGUMENT, "address is \"@\""},
        {long_name, DEVX_INVALID_ARGUMENT, "address is \"xxx"},
        {"@\xff\xfe", DEVX_INVALID_TEXT, "address"},
        {"/nowhere/at/all", DEVX_SYSTEM, "address \"/nowhere/at/all\": "},
    };
    char address[64];
    devx_ipc_server_t *server, *second = NULL;
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = NULL;
    devx_batch_t *batch = NULL;
    memset(long_name, 'x', 256);
    address_of(address, sizeof address, "exporter");
    server = offering(address);
    CHECK_MADE(server);
    CHECK_OK(devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &client, &error));
    CHECK_OK(devx_ipc_client_import_tensor(client, "t", &tensor, &error));
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &batch, &error));
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        devx_tensor_t *no_tensor = NULL;
        devx_batch_t *no_batch = NULL;
        char const *name = names[i].name, *part = names[i].part;
        devx_status const expected = names[i].status;
        CHECK_REFUSED(devx_ipc_server_offer_tensor(server, name, tensor, 0, &error), expected, part);
        CHECK_REFUSED(devx_ipc_server_offer_batch(server, name, batch, 0, &error), expected, part);
        CHECK_REFUSED(devx_ipc_client_import_tensor(client, name, &no_tensor, &error), expected, part);
        CHECK_REFUSED(devx_ipc_client_import_batch(client, name, &no_batch, &error), expected, part);
        CHECK(no_tensor == NULL && no_batch == NULL);
    }
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; ++i) {
        devx_ipc_client_t *nobody = NULL;
        CHECK_REFUSED(devx_ipc_server_create(addresses[i].address, &second, &error), addresses[i].status,
                      addresses[i].part);
        CHECK_REFUSED(devx_ipc_client_create(addresses[i].address, short_ns, &nobody, &error), addresses[i].status,
                      addresses[i].part);
        CHECK(second == NULL && nobody == NULL);
    }
    CHECK_REFUSED(devx_ipc_server_create(address, &second, &error), DEVX_SYSTEM, "bind: ");
    CHECK_REFUSED(devx_ipc_client_import_batch(client, "t", &batch, &error), DEVX_MISMATCH,
                  "name is \"t\": it is a tensor, not a batch");
    CHECK_REFUSED(devx_ipc_client_import_tensor(NULL, "t", &tensor, &error), DEVX_NULL_ARGUMENT, "client is NULL");
    CHECK_REFUSED(devx_ipc_client_import_tensor(client, "t", NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    devx_ipc_client_release(&client);
    CHECK_CALL(check_end(server));
}

/* --- the descriptor's own numbers --- */

TEST(shapes_of_shared_memory_are_checked) {
    devx_tensor_t *tensor = NULL;
    int64_t const negative[1] = {-1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40}, large[1] = {INT64_C(1) << 58};
    CHECK_REFUSED(devx_tensor_allocate_shared(int32, negative, 1, &tensor, &error), DEVX_INVALID_SHAPE, "shape[0] is -1");
    CHECK_REFUSED(devx_tensor_allocate_shared(int32, huge, 2, &tensor, &error), DEVX_INVALID_SHAPE, "shape [");
    CHECK_REFUSED(devx_tensor_allocate_shared(int32, large, 1, &tensor, &error), DEVX_OUT_OF_MEMORY,
                  "1152921504606846976 bytes of shared memory could not be allocated: the system has");
    CHECK_REFUSED(devx_tensor_allocate_shared(int32, NULL, 1, &tensor, &error), DEVX_NULL_ARGUMENT, "shape is NULL");
    CHECK_REFUSED(devx_tensor_allocate_shared((DLDataType){99, 32, 1}, shape_4, 1, &tensor, &error), DEVX_INVALID_DTYPE,
                  "code is 99");
    CHECK(tensor == NULL);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
