// Sends requests over TLS: AUTHORITY VERSION CERTIFICATE|none KEY|none URL... Each request has a connection of its own.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	log.SetFlags(0)
	authority, version, certificate, key := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	roots := x509.NewCertPool()
	text, err := os.ReadFile(authority)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		log.Fatal("the authority cannot be read: ", err)
	}
	versions := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	config := &tls.Config{RootCAs: roots, MinVersion: versions[version], MaxVersion: versions[version]}
	config.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	if certificate != "none" {
		own, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			log.Fatal(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for _, url := range os.Args[5:] {
		response, err := client.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		// A client that reads to the end has received the session tickets.
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 {
			log.Fatal(url, " has the status ", response.StatusCode)
		}
	}
}
