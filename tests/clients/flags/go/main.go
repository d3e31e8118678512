// The SDK of Go: `flags URL TOKEN FLAG APPLICATION`, with the output of the programs in `../node`.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	unleash "github.com/Unleash/unleash-client-go/v4"
)

const (
	interval     = 100 * time.Millisecond
	sentDeadline = 30 * time.Second
)

// counts are evaluations of a flag.
type counts struct{ yes, no int }

// listener adds up the counts that the SDK has sent.
type listener struct {
	flag string
	lock sync.Mutex
	sent counts
}

func (*listener) OnError(err error)               { fmt.Fprintln(os.Stderr, err) }
func (*listener) OnWarning(err error)             { fmt.Fprintln(os.Stderr, err) }
func (*listener) OnReady()                        {}
func (*listener) OnCount(string, bool)            {}
func (*listener) OnRegistered(unleash.ClientData) {}

func (l *listener) OnSent(data unleash.MetricsData) {
	l.lock.Lock()
	defer l.lock.Unlock()
	toggle := data.Bucket.Toggles[l.flag]
	l.sent.yes += int(toggle.Yes)
	l.sent.no += int(toggle.No)
}

// waitSent waits until all counts are sent. The SDK has no last flush: they leave with its next interval.
func (l *listener) waitSent(wanted counts) error {
	for begun := time.Now(); ; time.Sleep(interval) {
		l.lock.Lock()
		sent := l.sent
		l.lock.Unlock()
		if sent == wanted {
			return nil
		}
		if time.Since(begun) > sentDeadline {
			return fmt.Errorf("the SDK has sent %v of %v counts in time", sent, wanted)
		}
	}
}

func main() {
	url, token, flag, application := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	listener := &listener{flag: flag}
	err := unleash.Initialize(
		unleash.WithListener(listener),
		unleash.WithUrl(url+"/api/"),
		unleash.WithAppName(application),
		unleash.WithCustomHeaders(http.Header{"Authorization": {token}}),
		unleash.WithRefreshInterval(500*time.Millisecond),
		unleash.WithMetricsInterval(time.Second),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	unleash.WaitForReady()
	ends := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ends)
	}()
	counted, last := counts{}, ""
	for {
		state := "off"
		if unleash.IsEnabled(flag) {
			state = "on"
			counted.yes++
		} else {
			counted.no++
		}
		if state != last {
			fmt.Println("state", state)
		}
		last = state
		select {
		case <-ends:
			if err := listener.waitSent(counted); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			_ = unleash.Close()
			fmt.Println("counts", counted.yes, counted.no)
			return
		case <-time.After(interval):
		}
	}
}
