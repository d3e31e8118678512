// Command postgres checks the drivers of Go: `postgres pgx URL`, `postgres pq URL`; and an admin console by both:
// `postgres console URL`. It prints a line for each check: `ok NAME` or `failed NAME: REASON`.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// check is one of a driver's checks; its function returns why it failed.
type check struct {
	name string
	body func(url string) error
}

func main() {
	lists := map[string][]check{"pgx": pgxChecks, "pq": pqChecks, "console": consoleChecks}
	if len(os.Args) != 3 || lists[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: postgres pgx|pq|console URL")
		os.Exit(2)
	}
	failed := 0
	for _, one := range lists[os.Args[1]] {
		if err := bounded(one.body, os.Args[2]); err != nil {
			failed++
			fmt.Printf("failed %s: %s\n", one.name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Printf("ok %s\n", one.name)
		}
	}
	fmt.Printf("end %d checks\n", len(lists[os.Args[1]]))
	if failed > 0 {
		os.Exit(1)
	}
}

// bounded runs a check for 30 s at most; a panic is a failure.
func bounded(body func(string) error, url string) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if trouble := recover(); trouble != nil {
				done <- fmt.Errorf("panic: %v", trouble)
			}
		}()
		done <- body(url)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		return fmt.Errorf("no end after 30 s")
	}
}

// equal compares by the printed form, which tells 1 from "1".
func equal(got, want any) error {
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		return fmt.Errorf("%#v instead of %#v", got, want)
	}
	return nil
}

// all returns the first error.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
