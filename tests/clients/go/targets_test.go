// Package clients runs go-redis against real servers and against Weir in front of them.
package clients

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// target is one address to test; see tests/src/bin/stage.rs for where it comes from.
type target struct {
	name, server, via, host string
	port, authPort          int
	password                string
}

func (t target) address() string     { return net.JoinHostPort(t.host, strconv.Itoa(t.port)) }
func (t target) authAddress() string { return net.JoinHostPort(t.host, strconv.Itoa(t.authPort)) }

// targets fails the test when none are given: a suite without a server proves nothing.
func targets(t *testing.T) []target {
	t.Helper()
	text := os.Getenv("WEIR_TARGETS")
	if text == "" {
		t.Fatal("WEIR_TARGETS is not set: run `cargo xtask test clients:go`")
	}
	var found []target
	for _, part := range strings.Split(text, ";") {
		words := strings.Split(part, " ")
		if len(words) != 7 {
			t.Fatalf("a target has seven words: %q", part)
		}
		port, err := strconv.Atoi(words[4])
		must(t, err)
		authPort, err := strconv.Atoi(words[5])
		must(t, err)
		found = append(found, target{words[0], words[1], words[2], words[3], port, authPort, words[6]})
	}
	return found
}

// scene is what one test body gets: a client of one target and protocol, and a fresh key.
type scene struct {
	*testing.T
	ctx      context.Context
	target   target
	protocol int
	client   *redis.Client
	key      string
}

var keys atomic.Int64

// everywhere runs the body for each target with RESP2 and RESP3.
func everywhere(t *testing.T, body func(s *scene)) {
	t.Helper()
	for _, target := range targets(t) {
		for _, protocol := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s-resp%d", target.name, protocol), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				s := &scene{T: t, ctx: ctx, target: target, protocol: protocol}
				s.key = fmt.Sprintf("go:%d:%d:%s", os.Getpid(), keys.Add(1), strings.Split(t.Name(), "/")[0])
				s.client = s.open(nil)
				body(s)
			})
		}
	}
}

// open connects another client, closed at the end of the test.
func (s *scene) open(change func(*redis.Options)) *redis.Client {
	options := &redis.Options{
		Addr:         s.target.address(),
		Protocol:     s.protocol,
		ReadTimeout:  20 * time.Second,
		WriteTimeout: 20 * time.Second,
	}
	if change != nil {
		change(options)
	}
	client := redis.NewClient(options)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[V comparable](t testing.TB, got, want V) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// until waits for a condition, at most ten seconds.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for ends := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(ends) {
			t.Fatalf("waited for: %s", what)
		}
	}
}

// forwarder passes bytes on; a test can cut its connections to see a client come back.
type forwarder struct {
	listener net.Listener
	accepted atomic.Int64
	mutex    sync.Mutex
	open     []net.Conn
}

func forward(t testing.TB, upstream string) *forwarder {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &forwarder{listener: listener}
	t.Cleanup(func() { _ = listener.Close(); f.cut() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = client.Close()
				continue
			}
			f.accepted.Add(1)
			f.mutex.Lock()
			f.open = append(f.open, client, server)
			f.mutex.Unlock()
			go pump(client, server)
			go pump(server, client)
		}
	}()
	return f
}

func pump(source, sink net.Conn) {
	_, _ = io.Copy(sink, source)
	_ = source.Close()
	_ = sink.Close()
}

func (f *forwarder) cut() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, side := range f.open {
		_ = side.Close()
	}
	f.open = nil
}
