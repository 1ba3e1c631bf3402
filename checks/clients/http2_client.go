// Sends requests over HTTP/2, with TLS or without.
//
//	http2_client CA URL LARGE-BYTES
//
// The URL is that of a site with `/hello.txt`, `/large.bin` and `/accepts`. Without TLS, CA is "none".
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
)

const concurrent = 100

func main() {
	authority, site := os.Args[1], os.Args[2]
	largeBytes, err := strconv.Atoi(os.Args[3])
	check(err)
	client := newClient(authority)
	var group sync.WaitGroup
	for range concurrent {
		group.Add(2)
		go func() {
			defer group.Done()
			expect(client, http.MethodGet, site+"/hello.txt", nil, 200, 6)
		}()
		go func() {
			defer group.Done()
			expect(client, http.MethodHead, site+"/large.bin", nil, 200, 0)
		}()
	}
	group.Wait()
	expect(client, http.MethodGet, site+"/large.bin", nil, 200, largeBytes)
	expect(client, http.MethodPost, site+"/accepts", make([]byte, largeBytes), 200, 9)
	expect(client, http.MethodPost, site+"/hello.txt", make([]byte, 1000), 405, -1)
	expect(client, http.MethodGet, site+"/missing", nil, 404, -1)
}

func newClient(authority string) *http.Client {
	protocols := new(http.Protocols)
	transport := &http.Transport{Protocols: protocols}
	if authority == "none" {
		protocols.SetUnencryptedHTTP2(true)
		return &http.Client{Transport: transport}
	}
	protocols.SetHTTP2(true)
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(authority)
	check(err)
	roots.AppendCertsFromPEM(pem)
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	return &http.Client{Transport: transport}
}

// Sends a request. The response must have the status and length; -1 is any length.
func expect(client *http.Client, method, url string, content []byte, status, length int) {
	request, err := http.NewRequest(method, url, bytes.NewReader(content))
	check(err)
	response, err := client.Do(request)
	check(err)
	received, err := io.ReadAll(response.Body)
	check(err)
	if response.ProtoMajor != 2 || response.StatusCode != status || length >= 0 && len(received) != length {
		check(fmt.Errorf("%s %s: %s %d, %d bytes", method, url, response.Proto, response.StatusCode, len(received)))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
