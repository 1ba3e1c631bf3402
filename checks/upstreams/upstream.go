// An upstream for checks/proxy_peers.py on net/http: HTTP/1.1 and HTTP/2 without TLS.
package main

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// The events of the newest stream.
	published atomic.Pointer[chan string]
	left      atomic.Int64
)

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") }

// Responds with the content while it arrives.
func echo(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).EnableFullDuplex()
	buffer := make([]byte, 32768)
	for {
		count, err := r.Body.Read(buffer)
		if count > 0 {
			w.Write(buffer[:count])
			w.(http.Flusher).Flush()
		}
		if err != nil {
			return
		}
	}
}

func events(w http.ResponseWriter, r *http.Request) {
	own := make(chan string)
	published.Store(&own)
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, ": open\n\n")
	w.(http.Flusher).Flush()
	for {
		select {
		case text := <-own:
			fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func publish(_ http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	*published.Load() <- string(text)
}

func wait(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "begin\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
	left.Add(1)
}

// Returns the sum of a request's trailer in a trailer of the response.
func trailers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Length, X-Received")
	length, _ := io.Copy(io.Discard, r.Body)
	io.WriteString(w, "content\n")
	// Without it, the response of HTTP/2 has a length, with which a client of HTTP/1.1 gets no trailers.
	w.(http.Flusher).Flush()
	w.Header().Set("X-Length", strconv.FormatInt(length, 10))
	w.Header().Set("X-Received", r.Trailer.Get("X-Sum"))
}

// The streams and WebSockets that get what is broadcast.
type listeners struct {
	sync.Mutex
	all map[chan string]struct{}
}

var kept = listeners{all: map[chan string]struct{}{}}

func (l *listeners) join() chan string {
	l.Lock()
	defer l.Unlock()
	listener := make(chan string, 16)
	l.all[listener] = struct{}{}
	return listener
}

func (l *listeners) leave(listener chan string) {
	l.Lock()
	defer l.Unlock()
	delete(l.all, listener)
}

func (l *listeners) count() int {
	l.Lock()
	defer l.Unlock()
	return len(l.all)
}

func broadcast(_ http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	kept.Lock()
	defer kept.Unlock()
	for listener := range kept.all {
		listener <- string(text)
	}
}

func keptStream(w http.ResponseWriter, r *http.Request) {
	listener := kept.join()
	defer kept.leave(listener)
	w.(http.Flusher).Flush()
	for {
		select {
		case text := <-listener:
			fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// A WebSocket that sends back the bytes that it receives, and what is broadcast.
func keptSocket(w http.ResponseWriter, r *http.Request) {
	key := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	connection, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	listener := kept.join()
	defer kept.leave(listener)
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(key[:]))
	ended := make(chan struct{})
	go func() {
		io.Copy(connection, buffered)
		close(ended)
	}()
	for {
		select {
		case text := <-listener:
			connection.Write(append([]byte{0x81, byte(len(text))}, text...))
		case <-ended:
			return
		}
	}
}

func refuse(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", hello)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/events", events)
	mux.HandleFunc("/publish", publish)
	mux.HandleFunc("/wait", wait)
	mux.HandleFunc("/left", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, left.Load()) })
	mux.HandleFunc("/broadcast", broadcast)
	mux.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, kept.count()) })
	mux.HandleFunc("/stream", keptStream)
	mux.HandleFunc("/socket", keptSocket)
	mux.HandleFunc("/trailers", trailers)
	mux.HandleFunc("/refuse", refuse)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error)
	for _, address := range os.Args[1:] {
		server := &http.Server{Addr: address, Handler: mux, IdleTimeout: time.Second, Protocols: protocols}
		go func() { ended <- server.ListenAndServe() }()
	}
	fmt.Fprintln(os.Stderr, <-ended)
	os.Exit(1)
}
