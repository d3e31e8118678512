// Command mongodb checks the driver of Go: `mongodb URL LIST`, with the list `server`, `scripted`, `stored` or `login`. It prints a line
// for each check: `ok NAME` or `failed NAME: REASON`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const database = "go"

// check is one of the driver's checks; its function returns why it failed.
type check struct {
	name string
	body func(ctx context.Context, url string) error
}

func main() {
	lists := map[string][]check{
		"server": serverChecks, "scripted": scriptedChecks, "stored": storedChecks, "login": loginChecks,
	}
	if len(os.Args) != 3 || lists[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: mongodb URL server|scripted|stored|login")
		os.Exit(2)
	}
	failed := 0
	for _, one := range lists[os.Args[2]] {
		if err := bounded(one.body, os.Args[1]); err != nil {
			failed++
			fmt.Printf("failed %s: %s\n", one.name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Printf("ok %s\n", one.name)
		}
	}
	fmt.Printf("end %d checks\n", len(lists[os.Args[2]]))
	if failed > 0 {
		os.Exit(1)
	}
}

// bounded runs a check for 30 s at most; a panic is a failure.
func bounded(body func(context.Context, string) error, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if trouble := recover(); trouble != nil {
				done <- fmt.Errorf("panic: %v", trouble)
			}
		}()
		done <- body(ctx, url)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("no end after 30 s")
	}
}

// scene runs a body with a client and an empty collection.
func scene(name string, body func(context.Context, *mongo.Collection) error) func(context.Context, string) error {
	return sceneWith(name, options.Client(), body)
}

func sceneWith(name string, words *options.ClientOptions, body func(context.Context, *mongo.Collection) error) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		client, err := mongo.Connect(options.Client().ApplyURI(url).SetServerSelectionTimeout(15*time.Second), words)
		if err != nil {
			return err
		}
		defer func() { _ = client.Disconnect(context.Background()) }()
		notes := client.Database(database).Collection(name)
		if _, err := notes.DeleteMany(ctx, bson.D{}); err != nil {
			return err
		}
		return body(ctx, notes)
	}
}

// note is a document of the checks.
type note struct {
	ID   int    `bson:"_id"`
	N    int    `bson:"n"`
	Text string `bson:"text,omitempty"`
}

func notesOf(count, size int) []note {
	all := make([]note, count)
	for number := range all {
		all[number] = note{ID: number, N: number % 10, Text: fmt.Sprintf("%d-%s", number, strings.Repeat("x", size))}
	}
	return all
}

// ids reads a cursor to its end.
func ids(ctx context.Context, cursor *mongo.Cursor, err error) ([]int, error) {
	if err != nil {
		return nil, err
	}
	var found []note
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	numbers := make([]int, len(found))
	for index, one := range found {
		numbers[index] = one.ID
	}
	return numbers, nil
}

func upTo(count int) []int {
	numbers := make([]int, count)
	for number := range numbers {
		numbers[number] = number
	}
	return numbers
}

// equal compares by the printed form.
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

// errgroup runs functions at the same time, and keeps their first error.
type errgroup struct {
	running sync.WaitGroup
	once    sync.Once
	first   error
}

func (group *errgroup) start(body func() error) {
	group.running.Add(1)
	go func() {
		defer group.running.Done()
		if err := body(); err != nil {
			group.once.Do(func() { group.first = err })
		}
	}()
}

func (group *errgroup) wait() error {
	group.running.Wait()
	return group.first
}

// hasCode tells whether an error of the server has this code.
func hasCode(err error, code int) error {
	var known mongo.ServerError
	if !errors.As(err, &known) || !known.HasErrorCode(code) {
		return fmt.Errorf("%v instead of an error with code %d", err, code)
	}
	return nil
}

// fail makes the next request with this command fail.
func fail(ctx context.Context, notes *mongo.Collection, command string, data ...bson.E) error {
	words := append(bson.D{{Key: "failCommands", Value: bson.A{command}}}, data...)
	point := bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: words},
	}
	return notes.Database().Client().Database("admin").RunCommand(ctx, point).Err()
}
