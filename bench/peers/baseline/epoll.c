/* The baseline server: the cost of the kernel alone. An epoll loop that parses nothing. It counts received
 * bytes, and sends a fixed response for every REQUEST_BYTES of them. As the upstream of measured proxies it gets
 * REQUEST_BYTES 0, because each proxy sends other fields: then it sends a response for each empty line (CR LF CR LF).
 *
 *   epoll PORT WORKERS REQUEST_BYTES keep|close FILE
 *
 * Content up to 64 KiB is in memory after its head and takes one send; longer content takes sendfile, as in
  * the fastest of the measured servers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS_MAX = 512, DESCRIPTORS_MAX = 65536, IN_MEMORY_MAX = 65536, PIPELINED_MAX = 64 };

static int file;
static off_t body_bytes;
static char *response; /* PIPELINED_MAX consecutive copies, so that a batch takes one send */
static size_t response_bytes, request_bytes;
static int closes, in_memory;

struct connection {
    size_t got;    /* bytes of an incomplete request, or matched bytes of the empty line */
    size_t to_send; /* unsent bytes of responses in memory, or of the head */
    off_t from;    /* offset in the file, or -1 if all of it is sent */
};
static struct connection connections[DESCRIPTORS_MAX];

static void die(const char *failed) { perror(failed); exit(1); }

/* Sends unsent bytes. 1: all sent, 0: the send buffer is full, -1: the connection failed. */
static int flush(int fd, struct connection *c) {
    while (c->to_send > 0) {
        size_t offset = (response_bytes - c->to_send % response_bytes) % response_bytes;
        ssize_t n = send(fd, response + offset, c->to_send, MSG_NOSIGNAL | (c->from >= 0 ? MSG_MORE : 0));
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        c->to_send -= (size_t)n;
    }
    while (c->from >= 0) {
        ssize_t n = sendfile(fd, file, &c->from, (size_t)(body_bytes - c->from));
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        if (c->from >= body_bytes) c->from = -1;
    }
    return 1;
}

/* Counts the request heads that end in these bytes. `matched` are the bytes of an empty line at the end of the last ones. */
static size_t heads_ended(const char *bytes, size_t count, size_t *matched) {
    static const char END[] = "\r\n\r\n";
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == END[*matched]) ++*matched;
        else *matched = bytes[i] == '\r';
        if (*matched == 4) { ended++; *matched = 0; }
    }
    return ended;
}

static void on_event(int epoll, struct epoll_event *event) {
    static char buffer[65536];
    int fd = event->data.fd;
    struct connection *c = &connections[fd];
    if (event->events & EPOLLOUT) {
        int sent = flush(fd, c);
        if (sent == 0) return;
        if (sent < 0 || closes) { close(fd); return; }
        struct epoll_event in = { .events = EPOLLIN, .data.fd = fd };
        epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &in);
        return;
    }
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) close(fd);
        return;
    }
    size_t requests;
    if (request_bytes == 0) requests = heads_ended(buffer, (size_t)n, &c->got);
    else {
        c->got += (size_t)n;
        requests = c->got / request_bytes;
    }
    if (requests == 0) return;
    if (requests > PIPELINED_MAX) requests = PIPELINED_MAX;
    c->got -= requests * request_bytes;
    c->to_send = requests * response_bytes;
    c->from = in_memory ? -1 : 0;
    int sent = flush(fd, c);
    if (sent < 0 || (sent > 0 && closes)) { close(fd); return; }
    if (sent == 0) {
        struct epoll_event out = { .events = EPOLLOUT, .data.fd = fd };
        epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &out);
    }
}

static void accept_all(int epoll, int listener) {
    for (int i = 0; i < 64; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= DESCRIPTORS_MAX) { close(fd); continue; }
        connections[fd] = (struct connection){ .from = -1 };
        struct epoll_event in = { .events = EPOLLIN, .data.fd = fd };
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &in);
    }
}

static void work(int port) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* accepted sockets inherit it */
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) die("bind");
    if (listen(listener, 4096) < 0) die("listen");
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event in = { .events = EPOLLIN, .data.fd = listener };
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &in);
    static struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener) accept_all(epoll, listener);
            else on_event(epoll, &events[i]);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) { fprintf(stderr, "epoll PORT WORKERS REQUEST_BYTES keep|close FILE\n"); return 2; }
    request_bytes = (size_t)atol(argv[3]);
    signal(SIGPIPE, SIG_IGN); /* sendfile has no MSG_NOSIGNAL */
    closes = strcmp(argv[4], "close") == 0;
    struct stat facts;
    if ((file = open(argv[5], O_RDONLY | O_CLOEXEC)) < 0 || fstat(file, &facts) < 0) die(argv[5]);
    body_bytes = facts.st_size;
    in_memory = body_bytes <= IN_MEMORY_MAX;
    char head[256];
    size_t head_bytes = (size_t)snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\nServer: baseline-epoll\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
        "Content-Type: text/html\r\nContent-Length: %lld\r\n%s\r\n",
        (long long)body_bytes, closes ? "Connection: close\r\n" : "");
    response_bytes = head_bytes + (in_memory ? (size_t)body_bytes : 0);
    response = malloc(response_bytes * PIPELINED_MAX);
    if (!response) die("malloc");
    memcpy(response, head, head_bytes);
    if (in_memory && pread(file, response + head_bytes, (size_t)body_bytes, 0) != body_bytes) die("pread");
    for (int i = 1; i < PIPELINED_MAX; i++) memcpy(response + (size_t)i * response_bytes, response, response_bytes);
    for (int i = 1; i < atoi(argv[2]); i++) {
        if (fork() == 0) break; /* each process is a worker with its own listening socket */
    }
    work(atoi(argv[1]));
}
