// The SDK of Go: `flags URL TOKEN FLAG APPLICATION`, with the output of the programs in `../node`.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	unleash "github.com/Unleash/unleash-client-go/v4"
)

const interval = 100 * time.Millisecond

type listener struct{}

func (listener) OnError(err error)               { fmt.Fprintln(os.Stderr, err) }
func (listener) OnWarning(err error)             { fmt.Fprintln(os.Stderr, err) }
func (listener) OnReady()                        {}
func (listener) OnCount(string, bool)            {}
func (listener) OnSent(unleash.MetricsData)      {}
func (listener) OnRegistered(unleash.ClientData) {}

func main() {
	url, token, flag, application := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	err := unleash.Initialize(
		unleash.WithListener(listener{}),
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
	counts, last := map[bool]int{}, ""
	for {
		on := unleash.IsEnabled(flag)
		counts[on]++
		state := map[bool]string{true: "on", false: "off"}[on]
		if state != last {
			fmt.Println("state", state)
		}
		last = state
		select {
		case <-ends:
			// The SDK has no last flush: its counts leave with the next interval.
			time.Sleep(2500 * time.Millisecond)
			_ = unleash.Close()
			fmt.Println("counts", counts[true], counts[false])
			return
		case <-time.After(interval):
		}
	}
}
