// An event builder over ZeroMQ push/pull, written to be compared with weir's: the same grouping (every source's fragment of event n goes to
// builder n modulo the number of builders, which joins them by id), no scheduler, no acknowledgement, no checksum.
//
//   zeromq-events builder PORT SOURCES EVENTS      joins EVENTS events, prints: events seconds bytes mismatched
//   zeromq-events source INDEX EVENTS BYTES HOST:PORT...
//
// The time is from the first fragment's arrival to the last event's completion, at the builder.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

// Below this one part with a copy is faster, above it two parts without.
#define COPY_BYTES_MAX 8192
// Events under way at once; a source is never this far ahead of another (the queues hold 1,000 messages).
#define OPEN_EVENTS 65536

struct header {
    uint64_t id;
    uint32_t source;
    uint32_t bytes;
};

static void fail(const char *what) {
    fprintf(stderr, "zeromq-events: %s: %s\n", what, zmq_strerror(errno));
    exit(2);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int builder(const char *port, uint32_t sources, uint64_t events) {
    void *context = zmq_ctx_new(), *pull = zmq_socket(context, ZMQ_PULL);
    char address[64];
    snprintf(address, sizeof address, "tcp://*:%s", port);
    if (zmq_bind(pull, address)) fail(address);
    uint64_t *ids = calloc(OPEN_EVENTS, sizeof *ids), bytes = 0, complete = 0, mismatched = 0;
    uint32_t *arrived = calloc(OPEN_EVENTS, sizeof *arrived);
    if (!ids || !arrived) fail("memory");
    double begun = 0;
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (complete < events) {
        if (zmq_msg_recv(&part, pull, 0) < 0) fail("receiving");
        if (begun == 0) begun = now();
        struct header head;
        if (zmq_msg_size(&part) < sizeof head) fail("a short message");
        memcpy(&head, zmq_msg_data(&part), sizeof head);
        size_t got = zmq_msg_size(&part) - sizeof head;
        if (zmq_msg_more(&part)) {
            if (zmq_msg_recv(&part, pull, 0) < 0) fail("receiving");
            got += zmq_msg_size(&part);
        }
        if (got != head.bytes) fail("a message of another size");
        bytes += got;
        uint64_t slot = head.id % OPEN_EVENTS;
        if (arrived[slot] == 0) ids[slot] = head.id;
        if (ids[slot] != head.id) mismatched++;
        if (++arrived[slot] == sources) {
            arrived[slot] = 0;
            complete++;
        }
    }
    printf("%llu %.6f %llu %llu\n", (unsigned long long)complete, now() - begun, (unsigned long long)bytes,
           (unsigned long long)mismatched);
    zmq_msg_close(&part);
    zmq_close(pull);
    zmq_ctx_term(context);
    return 0;
}

static int source(uint32_t index, uint64_t events, uint32_t bytes, int count, char **builders) {
    void *context = zmq_ctx_new();
    void **push = calloc(count, sizeof *push);
    char *payload = malloc(bytes + sizeof(struct header));
    if (!push || !payload) fail("memory");
    memset(payload, 0x5a, bytes + sizeof(struct header));
    for (int number = 0; number < count; number++) {
        char address[128];
        push[number] = zmq_socket(context, ZMQ_PUSH);
        snprintf(address, sizeof address, "tcp://%s", builders[number]);
        if (zmq_connect(push[number], address)) fail(address);
    }
    for (uint64_t id = 0; id < events * count; id++) {
        struct header head = {id, index, bytes};
        void *to = push[id % count];
        if (bytes <= COPY_BYTES_MAX) {
            memcpy(payload, &head, sizeof head);
            if (zmq_send(to, payload, sizeof head + bytes, 0) < 0) fail("sending");
        } else {
            if (zmq_send(to, &head, sizeof head, ZMQ_SNDMORE) < 0) fail("sending");
            if (zmq_send_const(to, payload, bytes, 0) < 0) fail("sending");
        }
    }
    for (int number = 0; number < count; number++) zmq_close(push[number]);
    zmq_ctx_term(context);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "builder")) return builder(argv[2], atoi(argv[3]), strtoull(argv[4], 0, 10));
    if (argc >= 6 && !strcmp(argv[1], "source"))
        return source(atoi(argv[2]), strtoull(argv[3], 0, 10), atoi(argv[4]), argc - 5, argv + 5);
    fprintf(stderr, "usage: zeromq-events builder PORT SOURCES EVENTS | source INDEX EVENTS BYTES HOST:PORT...\n");
    return 2;
}
