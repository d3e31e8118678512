package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// serverChecks need what any server of documents has.
var serverChecks = []check{
	{"inserts and finds", scene("crud", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(20, 0)); err != nil {
			return err
		}
		var found note
		if err := notes.FindOne(ctx, bson.M{"_id": 3}).Decode(&found); err != nil {
			return err
		}
		sorted := options.Find().SetSort(bson.M{"_id": -1}).SetLimit(3)
		cursor, err := notes.Find(ctx, bson.M{"n": bson.M{"$gt": 7}}, sorted)
		got, err := ids(ctx, cursor, err)
		return all(err, equal(found, note{3, 3, "3-"}), equal(got, []int{19, 18, 9}))
	})},
	{"updates, upserts and deletes", scene("changes", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(20, 0)); err != nil {
			return err
		}
		many, err := notes.UpdateMany(ctx, bson.M{"n": 1}, bson.M{"$set": bson.M{"n": 50}})
		if err != nil {
			return err
		}
		one, err := notes.UpdateOne(ctx, bson.M{"_id": 77}, bson.M{"$set": bson.M{"n": 1}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return err
		}
		var after note
		change := options.FindOneAndUpdate().SetReturnDocument(options.After)
		if err := notes.FindOneAndUpdate(ctx, bson.M{"_id": 2}, bson.M{"$inc": bson.M{"n": 5}}, change).Decode(&after); err != nil {
			return err
		}
		gone, err := notes.DeleteMany(ctx, bson.M{"n": 50})
		return all(err, equal(many.ModifiedCount, int64(2)), equal(one.UpsertedCount, int64(1)), equal(after.N, 7), equal(gone.DeletedCount, int64(2)))
	})},
	{"bulk writes with an error", scene("bulk", func(ctx context.Context, notes *mongo.Collection) error {
		work := []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(note{ID: 1}),
			mongo.NewInsertOneModel().SetDocument(note{ID: 1}),
			mongo.NewInsertOneModel().SetDocument(note{ID: 2}),
			mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": 2}).SetUpdate(bson.M{"$set": bson.M{"n": 4}}),
		}
		done, err := notes.BulkWrite(ctx, work, options.BulkWrite().SetOrdered(false))
		if !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("%v instead of a duplicate key", err)
		}
		return all(equal(done.InsertedCount, int64(2)), equal(done.ModifiedCount, int64(1)))
	})},
	{"a bulk of many messages", scene("large_bulk", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(3_000, 2_000)); err != nil {
			return err
		}
		count, err := notes.CountDocuments(ctx, bson.D{})
		return all(err, equal(count, int64(3_000)))
	})},
	{"a cursor over many batches", scene("batches", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(700, 50)); err != nil {
			return err
		}
		cursor, err := notes.Find(ctx, bson.D{}, options.Find().SetBatchSize(6).SetSort(bson.M{"_id": 1}))
		got, err := ids(ctx, cursor, err)
		return all(err, equal(got, upTo(700)))
	})},
	{"a cursor that is closed early is gone", scene("closed", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(50, 0)); err != nil {
			return err
		}
		cursor, err := notes.Find(ctx, bson.D{}, options.Find().SetBatchSize(5))
		if err != nil {
			return err
		}
		id := cursor.ID()
		if err := cursor.Close(ctx); err != nil {
			return err
		}
		more := bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "closed"}}
		return hasCode(notes.Database().RunCommand(ctx, more).Err(), 43)
	})},
	{"aggregates, counts and distinct values", scene("aggregates", func(ctx context.Context, notes *mongo.Collection) error {
		if _, err := notes.InsertMany(ctx, notesOf(60, 0)); err != nil {
			return err
		}
		stages := bson.A{bson.M{"$match": bson.M{"n": 4}}, bson.M{"$group": bson.M{"_id": "$n", "n": bson.M{"$sum": 1}}}}
		cursor, err := notes.Aggregate(ctx, stages)
		if err != nil {
			return err
		}
		var groups []note
		if err := cursor.All(ctx, &groups); err != nil {
			return err
		}
		// The driver sends what is left of a deadline, which not every server knows here.
		raw, err := notes.Distinct(context.WithoutCancel(ctx), "n", bson.D{}).Raw()
		if err != nil {
			return err
		}
		values, err := raw.Values()
		return all(err, equal(groups, []note{{ID: 4, N: 6}}), equal(len(values), 10))
	})},
	{"unique keys", scene("indexes", func(ctx context.Context, notes *mongo.Collection) error {
		model := mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}, Options: options.Index().SetUnique(true)}
		name, err := notes.Indexes().CreateOne(ctx, model)
		if err != nil {
			return err
		}
		if _, err := notes.InsertOne(ctx, note{ID: 1, N: 1}); err != nil {
			return err
		}
		_, err = notes.InsertOne(ctx, note{ID: 2, N: 1})
		return all(hasCode(err, 11000), equal(name, "n_1"), notes.Indexes().DropOne(ctx, name))
	})},
	{"large documents", scene("large", func(ctx context.Context, notes *mongo.Collection) error {
		for _, size := range []int{16_384, 262_144, 1_048_576, 8_388_608} {
			text := strings.Repeat("z", size)
			if _, err := notes.InsertOne(ctx, note{ID: size, Text: text}); err != nil {
				return err
			}
			var found note
			if err := notes.FindOne(ctx, bson.M{"_id": size}).Decode(&found); err != nil || found.Text != text {
				return fmt.Errorf("%d: %v, %d bytes", size, err, len(found.Text))
			}
		}
		return nil
	})},
	{"many at a time on few connections", sceneWith("parallel", options.Client().SetMaxPoolSize(5), func(ctx context.Context, notes *mongo.Collection) error {
		var group errgroup
		for owner := range 50 {
			group.start(func() error {
				for number := range 8 {
					if _, err := notes.InsertOne(ctx, note{ID: owner*100 + number, N: owner}); err != nil {
						return err
					}
				}
				cursor, err := notes.Find(ctx, bson.M{"n": owner}, options.Find().SetBatchSize(3))
				got, err := ids(ctx, cursor, err)
				if err != nil || len(got) != 8 || got[0]/100 != owner {
					return fmt.Errorf("%d: %v, %v", owner, err, got)
				}
				return nil
			})
		}
		return group.wait()
	})},
	{"sessions", scene("sessions", func(ctx context.Context, notes *mongo.Collection) error {
		return notes.Database().Client().UseSession(ctx, func(ctx context.Context) error {
			if _, err := notes.InsertOne(ctx, note{ID: 1}); err != nil {
				return err
			}
			return notes.FindOne(ctx, bson.M{"_id": 1}).Err()
		})
	})},
	{"errors have their codes", scene("errors", func(ctx context.Context, notes *mongo.Collection) error {
		err := notes.Database().RunCommand(ctx, bson.D{{Key: "noSuchCommand", Value: 1}}).Err()
		return all(hasCode(err, 59), notes.Database().RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err())
	})},
	{"files of GridFS", scene("files", func(ctx context.Context, notes *mongo.Collection) error {
		bucket := notes.Database().GridFSBucket(options.GridFSBucket().SetChunkSizeBytes(50_000))
		content := bytes.Repeat([]byte("gridfs "), 80_000)
		id, err := bucket.UploadFromStream(ctx, "report", bytes.NewReader(content))
		if err != nil {
			return err
		}
		stream, err := bucket.OpenDownloadStream(ctx, id)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(stream)
		return all(err, equal(bytes.Equal(got, content), true), bucket.Delete(ctx, id))
	})},
}
