package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// storedChecks need the scripted server of the lab that stores documents.
var storedChecks = []check{
	{"a transaction counts with its commit alone", scene("ends", func(ctx context.Context, notes *mongo.Collection) error {
		session, err := notes.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		refused := errors.New("no")
		for number, end := range []error{nil, refused} {
			_, err := session.WithTransaction(ctx, func(within context.Context) (any, error) {
				if _, err := notes.InsertOne(within, note{ID: number}); err != nil {
					return nil, err
				}
				// Others see what was committed before.
				got, err := stored(ctx, notes)
				return nil, all(err, equal(got, upTo(number)), end)
			})
			if !errors.Is(err, end) {
				return fmt.Errorf("%v instead of %v", err, end)
			}
		}
		got, err := stored(ctx, notes)
		return all(err, equal(got, upTo(1)))
	})},
	{"a write that was done and is repeated counts once", scene("done", func(ctx context.Context, notes *mongo.Collection) error {
		late := bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 262}, {Key: "errmsg", Value: "late"}}}
		labels := bson.E{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}}
		if err := fail(ctx, notes, "insert", late, labels); err != nil {
			return err
		}
		if _, err := notes.InsertOne(ctx, note{ID: 1}); err != nil {
			return err
		}
		if err := fail(ctx, notes, "update", late, labels); err != nil {
			return err
		}
		if _, err := notes.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$inc": bson.M{"n": 1}}); err != nil {
			return err
		}
		var found note
		return all(notes.FindOne(ctx, bson.M{"_id": 1}).Decode(&found), equal(found, note{ID: 1, N: 1}))
	})},
}

// stored returns the documents of a collection.
func stored(ctx context.Context, notes *mongo.Collection) ([]int, error) {
	cursor, err := notes.Find(ctx, bson.D{}, options.Find().SetSort(bson.M{"_id": 1}))
	return ids(ctx, cursor, err)
}
