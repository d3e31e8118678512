package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// scriptedChecks need the scripted server of the lab.
var scriptedChecks = []check{
	{"transactions commit and abort", scene("transactions", func(ctx context.Context, notes *mongo.Collection) error {
		session, err := notes.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		within := func(ctx context.Context) (any, error) {
			return notes.InsertOne(ctx, note{ID: 1})
		}
		if _, err := session.WithTransaction(ctx, within); err != nil {
			return err
		}
		refused := errors.New("no")
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := notes.InsertOne(ctx, note{ID: 2}); err != nil {
				return nil, err
			}
			return nil, refused
		})
		if !errors.Is(err, refused) {
			return fmt.Errorf("%v instead of the error of the check", err)
		}
		return nil
	})},
	{"cursors over many batches, many at a time", sceneWith("batches", options.Client().SetMaxPoolSize(6), func(ctx context.Context, notes *mongo.Collection) error {
		var group errgroup
		for number := range 12 {
			group.start(func() error {
				comment := fmt.Sprintf("cursor %d", number)
				cursor, err := notes.Find(ctx, bson.D{}, options.Find().SetBatchSize(int32(20+number)).SetComment(comment))
				if err != nil {
					return err
				}
				var found []struct {
					ID      int    `bson:"_id"`
					Request string `bson:"request"`
				}
				if err := cursor.All(ctx, &found); err != nil {
					return err
				}
				for index, one := range found {
					if one.ID != index+1 || one.Request != comment {
						return fmt.Errorf("%v in place of %d of %q", one, index+1, comment)
					}
				}
				return equal(len(found), 500)
			})
		}
		return group.wait()
	})},
	{"unacknowledged writes", sceneWith("unacknowledged", options.Client().SetMaxPoolSize(1), func(ctx context.Context, notes *mongo.Collection) error {
		before, err := inserted(ctx, notes)
		if err != nil {
			return err
		}
		silent := notes.Database().Collection("unacknowledged", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
		for number := range 100 {
			if _, err := silent.InsertOne(ctx, note{ID: number}); err != nil {
				return err
			}
		}
		for range 50 {
			now, err := inserted(ctx, notes)
			if err != nil || now == before+100 {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
		return errors.New("not all have arrived")
	})},
	{"a transaction is repeated after a transient error", scene("transient", func(ctx context.Context, notes *mongo.Collection) error {
		session, err := notes.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		tries := 0
		_, err = session.WithTransaction(ctx, func(within context.Context) (any, error) {
			tries++
			if tries == 1 {
				labels := bson.E{Key: "errorLabels", Value: bson.A{"TransientTransactionError"}}
				if err := fail(ctx, notes, "insert", bson.E{Key: "errorCode", Value: 112}, labels); err != nil {
					return nil, err
				}
			}
			return notes.InsertOne(within, note{ID: tries})
		})
		return all(err, equal(tries, 2))
	})},
	{"a write and a read are repeated once after a lost connection", scene("retried", func(ctx context.Context, notes *mongo.Collection) error {
		closes := bson.E{Key: "closeConnection", Value: true}
		if err := fail(ctx, notes, "insert", closes); err != nil {
			return err
		}
		if _, err := notes.InsertOne(ctx, note{ID: 1}); err != nil {
			return err
		}
		if err := fail(ctx, notes, "find", closes); err != nil {
			return err
		}
		var found note
		return all(notes.FindOne(ctx, bson.M{"_id": 2}).Decode(&found), equal(found.ID, 2))
	})},
	{"a change stream shows writes of others", scene("watched", func(ctx context.Context, notes *mongo.Collection) error {
		stream, err := notes.Watch(ctx, bson.A{}, options.ChangeStream().SetMaxAwaitTime(300*time.Millisecond))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close(ctx) }()
		if stream.TryNext(ctx) {
			return errors.New("an event without a write")
		}
		if _, err := notes.InsertOne(ctx, note{ID: 1}); err != nil {
			return err
		}
		if !stream.Next(ctx) {
			return fmt.Errorf("no event: %v", stream.Err())
		}
		var event struct {
			Key note `bson:"documentKey"`
		}
		return all(stream.Decode(&event), equal(event.Key.ID, 1))
	})},
}

// inserted returns the number of documents that the server was given.
func inserted(ctx context.Context, notes *mongo.Collection) (int64, error) {
	var counts struct {
		Inserted int64 `bson:"inserted"`
	}
	err := notes.Database().Client().Database("admin").RunCommand(ctx, bson.D{{Key: "weirOrigin", Value: 1}}).Decode(&counts)
	return counts.Inserted, err
}

// loginChecks need a URL with a user and a password.
var loginChecks = []check{
	{"the right password is enough", scene("logins", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(30, 0)); err != nil {
			return err
		}
		cursor, err := notes.Find(ctx, bson.D{}, options.Find().SetBatchSize(4).SetSort(bson.M{"_id": 1}))
		got, err := ids(ctx, cursor, err)
		return all(err, equal(got, upTo(30)))
	})},
	{"both mechanisms of SCRAM", func(ctx context.Context, url string) error {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-1"} {
			credential := *options.Client().ApplyURI(url).Auth
			credential.AuthMechanism = mechanism
			if err := loggedIn(ctx, url, credential); err != nil {
				return fmt.Errorf("%s: %w", mechanism, err)
			}
		}
		return nil
	}},
	{"a wrong password is refused", func(ctx context.Context, url string) error {
		credential := *options.Client().ApplyURI(url).Auth
		credential.Password = "wrong"
		err := loggedIn(ctx, url, credential)
		var known mongo.CommandError
		if !errors.As(err, &known) || known.Code != 18 {
			return fmt.Errorf("%v instead of an error with code 18", err)
		}
		return nil
	}},
}

// loggedIn reads a document with a login of its own.
func loggedIn(ctx context.Context, url string, credential options.Credential) error {
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetAuth(credential).SetServerSelectionTimeout(15 * time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	err = client.Database(database).Collection("logins").FindOne(ctx, bson.D{}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	return err
}
