// An HTTP peer made with net/http. `origin` listens on a free port, prints it, and then a line of JSON for each request that
// it was given, before it answers with method and target; `/echo` repeats bodies and is not told of. `client URL AUTHORITY 1|2` makes requests of an echo over TLS in that
// version of HTTP and prints `ok`, or fails loudly.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

// What the origin was given.
type seen struct {
	Method   string `json:"method"`
	Target   string `json:"target"`
	Host     string `json:"host"`
	Length   string `json:"length"`
	Encoding string `json:"encoding"`
	Body     string `json:"body"`
	IsWhole  bool   `json:"is_whole"`
}

func origin() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	var mutex sync.Mutex
	handler := func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/echo" {
			body, err := io.ReadAll(request.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
			writer.Write(body)
			return
		}
		body, err := io.ReadAll(request.Body)
		line, _ := json.Marshal(seen{
			Method: request.Method, Target: request.RequestURI, Host: request.Host,
			Length: request.Header.Get("Content-Length"), Encoding: strings.Join(request.TransferEncoding, ","),
			Body: string(body), IsWhole: err == nil,
		})
		mutex.Lock()
		fmt.Println(string(line))
		mutex.Unlock()
		fmt.Fprintf(writer, "%s %s", request.Method, request.RequestURI)
	}
	// The handler is asked for `OPTIONS *` too.
	server := http.Server{Handler: http.HandlerFunc(handler), DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0)}
	return server.Serve(listener)
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "origin":
		err = origin()
	case len(os.Args) == 5 && os.Args[1] == "client":
		if err = runClient(os.Args[2], os.Args[3], int(os.Args[4][0]-'0')); err == nil {
			fmt.Println("ok")
		}
	default:
		err = fmt.Errorf("usage: %s origin | client URL AUTHORITY 1|2", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
