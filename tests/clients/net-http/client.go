package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Requests of one version of HTTP, whose responses repeat the body.
type client struct {
	url     string
	version int
	http    *http.Client
}

func runClient(url string, authority string, version int) error {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no authority")
	}
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:     version == 2,
		ExpectContinueTimeout: 10 * time.Second,
		MaxIdleConnsPerHost:   50,
	}
	if version == 1 {
		// Not nil and empty: no HTTP/2.
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	one := client{url: url, version: version, http: &http.Client{Transport: transport}}
	for _, step := range []func() error{one.many, one.large, one.head, one.expect, one.cancel, one.many} {
		if err := step(); err != nil {
			return err
		}
	}
	transport.CloseIdleConnections()
	return nil
}

// Sends a body and expects it back.
func (c *client) echo(body io.Reader, want []byte, change func(*http.Request)) error {
	request, err := http.NewRequest("POST", c.url, body)
	if err != nil {
		return err
	}
	if change != nil {
		change(request)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != 200 || response.ProtoMajor != c.version || !bytes.Equal(got, want) {
		return fmt.Errorf("%s %s, %d bytes of %d", response.Proto, response.Status, len(got), len(want))
	}
	return nil
}

// Fifty at a time, and each gets its own response.
func (c *client) many() error {
	var group sync.WaitGroup
	failures := make([]error, 50)
	for number := range failures {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < 10 && failures[number] == nil; round++ {
				body := []byte(strconv.Itoa(number*100 + round))
				failures[number] = c.echo(bytes.NewReader(body), body, nil)
			}
		}()
	}
	group.Wait()
	return errors.Join(failures...)
}

func content() []byte {
	content := make([]byte, 3_000_000)
	for at := range content {
		content[at] = byte(at * 7919 >> 8)
	}
	return content
}

// With its length, and without.
func (c *client) large() error {
	content := content()
	if err := c.echo(bytes.NewReader(content), content, nil); err != nil {
		return err
	}
	// A reader whose length nobody knows.
	return c.echo(io.MultiReader(bytes.NewReader(content)), content, nil)
}

func (c *client) head() error {
	response, err := c.http.Head(c.url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.ProtoMajor != c.version {
		return fmt.Errorf("HEAD: %s %s", response.Proto, response.Status)
	}
	return nil
}

// The body waits for 100 or for a final status.
func (c *client) expect() error {
	content := content()
	return c.echo(bytes.NewReader(content), content, func(request *http.Request) {
		request.Header.Set("Expect", "100-continue")
	})
}

// A request that is given up in the middle of its body.
func (c *client) cancel() error {
	reader, writer := io.Pipe()
	context, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(context, "POST", c.url, reader)
	if err != nil {
		return err
	}
	go func() {
		writer.Write(make([]byte, 10_000))
		cancel()
		writer.CloseWithError(context.Err())
	}()
	if response, err := c.http.Do(request); err == nil {
		response.Body.Close()
		return errors.New("half a body was answered")
	}
	return nil
}
